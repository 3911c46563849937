//! What must hold after every event.

use ashlar_block::Moment;
use ashlar_replica::{Extent, Key, Local, Position, Positions, ReadMode, Revision};

use super::model::Model;
use super::node::Node;
use super::world::Flip;

/// What the store says, as the invariants see it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) revision: Revision,
    pub(crate) key: Key,
    /// Since when it names these copies as in sync.
    pub(crate) since: Moment,
    /// Sum of all versions at the last look.
    version: u64,
}

impl Seen {
    pub(crate) fn new(revision: Revision, key: Key, since: Moment) -> Self {
        let version = u64::MAX;
        Self {
            revision,
            key,
            since,
            version,
        }
    }

    /// Whether contents must be compared again.
    pub(crate) fn is_stale(&mut self, nodes: &[Node], model: &Model) -> bool {
        let stores: u64 = nodes.iter().map(|node| node.store.version()).sum();
        let version = stores + model.version() + (self.revision.0 << 40);
        std::mem::replace(&mut self.version, version) != version
    }
}

fn place(index: usize) -> Position {
    Position::new(index).unwrap_or_default()
}

/// Invariants 2 and 5.
pub(crate) fn ownership(nodes: &[Node], now: Moment) -> Result<(), String> {
    let owns = |node: &Node| node.replica.as_ref().and_then(|replica| replica.owns());
    for (n, node) in nodes.iter().enumerate() {
        let Some(epoch) = owns(node) else { continue };
        if let Some(other) = nodes[..n]
            .iter()
            .position(|other| owns(other) == Some(epoch))
        {
            return Err(format!("nodes {other} and {n} both own {epoch}"));
        }
    }
    if nodes
        .iter()
        .any(|node| node.config.reads == ReadMode::Confirmed)
    {
        return Ok(());
    }
    for (n, node) in nodes.iter().enumerate() {
        let Some(replica) = &node.replica else {
            continue;
        };
        let clock = node.clock.read(now);
        for (m, other) in nodes.iter().enumerate().filter(|(m, _)| *m != n) {
            let Some(grantor) = &other.replica else {
                continue;
            };
            if !replica.relies_on(clock, place(m)) {
                continue;
            }
            if !grantor.is_bound(other.clock.read(now)) {
                return Err(format!(
                    "node {n} relies on the grant of node {m}, whose promise is over"
                ));
            }
            if grantor.is_serving() {
                return Err(format!(
                    "node {n} relies on the grant of node {m}, which serves"
                ));
            }
        }
    }
    let serves = |node: &&Node| {
        let clock = node.clock.read(now);
        node.runs()
            && node
                .replica
                .as_ref()
                .is_some_and(|replica| replica.reads(clock))
    };
    match nodes.iter().filter(serves).count() {
        0 | 1 => Ok(()),
        many => Err(format!("{many} nodes answer reads")),
    }
}

/// Invariants 1 and 6: the reader that reads always.
pub(crate) fn reader(node: &Node, model: &mut Model, now: Moment) -> Result<(), String> {
    if node.config.reads == ReadMode::Confirmed || !node.runs() {
        return Ok(());
    }
    let Some(replica) = node.replica.as_ref().filter(|replica| replica.is_serving()) else {
        return Ok(());
    };
    let clock = node.clock.read(now);
    for (granule, &value) in node.store.content().iter().enumerate() {
        let Some(extent) = Extent::new(granule as u64, 1) else {
            continue;
        };
        if replica.would_serve(clock, extent) {
            let seen = model.seen(granule, value);
            seen.map_err(|what| format!("node {}: {what}", node.config.node.0))?;
        }
    }
    Ok(())
}

/// Invariants 1, 3 and 4: what copies hold, but for what has changed by itself.
pub(crate) fn copies(
    nodes: &[Node],
    model: &Model,
    key: &Key,
    flip: Option<Flip>,
) -> Result<(), String> {
    let is_flipped = |node, granule| flip == Some(Flip { node, granule });
    let in_sync: Positions = key.in_sync;
    if in_sync.is_empty() {
        return Err("no copy is in sync".into());
    }
    let uncertain: Vec<_> = nodes.iter().map(|node| node.store.uncertain()).collect();
    // Its place was given up, or it is given everything; or it is known to be an old image.
    let counts = |x: usize| key.members.get(place(x)) == Some(nodes[x].member());
    let sound = |x: usize| !nodes[x].is_old;
    for y in in_sync.iter().map(Position::index).filter(|&y| sound(y)) {
        if !counts(y) {
            return Err(format!(
                "another copy than node {y}'s is said to be in sync"
            ));
        }
        for (granule, &value) in nodes[y].store.content().iter().enumerate() {
            if is_flipped(y, granule) {
                continue;
            }
            if !model.may_be(granule, value) {
                return Err(format!(
                    "in-sync node {y} holds {value} in granule {granule}, which may be {:?}: an acknowledged or \
                     read value is missing",
                    model.values(granule)
                ));
            }
            let differ = (0..nodes.len()).filter(|&x| {
                x != y && counts(x) && sound(x) && nodes[x].store.value(granule) != value
            });
            let differ = differ.filter(|&x| !is_flipped(x, granule));
            for x in differ {
                let granule = granule as u64;
                if uncertain[y].has(granule) || uncertain[x].has(granule) {
                    continue;
                }
                if in_sync.has(place(x)) {
                    return Err(format!(
                        "in-sync nodes {y} and {x} differ in granule {granule}, and nothing says so"
                    ));
                }
                if !nodes[y].store.plane(place(x)).has(granule) {
                    return Err(format!(
                        "absent node {x} differs from in-sync node {y} in granule {granule}: resync would miss it"
                    ));
                }
            }
        }
    }
    Ok(())
}
