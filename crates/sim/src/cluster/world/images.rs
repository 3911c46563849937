//! Old images: after all have lost power, a node's drives come back as they were some time before.

use ashlar_replica::Replica;

use super::*;

/// How long all are without power: what was asked of the quorum before has been done or not.
const DARK: Duration = Duration::from_secs(2);
/// What is younger the quorum does not know of.
const MEMORY: Duration = Duration::from_secs(2);
/// What is younger other copies need not know of: two grants, until the second is written.
const HEARD: Duration = Duration::from_millis(500);
/// Copies that nothing has happened to for so long, and that have been in sync since, hear each other.
const CALM: Duration = Duration::from_secs(1);

impl World<'_> {
    /// A copy of a node's drives is put aside.
    pub(super) fn put_aside(&mut self, node: usize) {
        let image = self.nodes[node].store.image();
        self.nodes[node].image = image;
    }

    /// All lose power, and that node's drives are to come back as they were when they were put aside.
    pub(super) fn turn_back(&mut self, node: usize) {
        let owns = |node: &Node| {
            node.replica
                .as_ref()
                .is_some_and(|one| one.owns().is_some())
        };
        let runs = self.nodes[node].replica.is_some();
        if self.has_healed || !runs || owns(&self.nodes[node]) || self.nodes[node].image.is_none() {
            self.nodes[node].image = None;
            return;
        }
        self.nodes[node].comes_back_old = true;
        for node in 0..self.nodes.len() {
            self.crash(node);
            let after = DARK + self.chance.time(Duration::from_millis(1500));
            let over = Fault::Crash {
                node,
                lasts: DARK,
                is_certified: false,
            };
            self.at(after, Happening::Over(over));
        }
    }

    /// While hosts are busy. When faults end if nothing comes of it.
    pub(super) fn plan_young_image(&mut self, lasts: Duration) -> Duration {
        let nodes = self.nodes.len() as u64;
        let node = self.chance.below(nodes) as usize;
        let age = self.chance.time(MEMORY);
        let fault = Fault::YoungImage { node, lasts: age };
        let after = lasts * self.chance.between(600, 1000) as u32 / 1000;
        self.at(after, Happening::Fault(fault));
        lasts + MEMORY
    }

    /// The same, of a copy in sync: of that node, if its copy is one.
    pub(super) fn put_aside_a_little(&mut self, node: usize, lasts: Duration) {
        let nodes = self.nodes.len();
        let mut from_here = (node..node + nodes).map(|n| n % nodes);
        let node = from_here.find(|&n| self.seen.key.in_sync.has(position(n)));
        if let Some(node) = node {
            self.put_aside(node);
            self.at(lasts, Happening::Over(Fault::YoungImage { node, lasts }));
        }
    }

    /// All lose power, and that node's drives are to come back as they were when they were put aside, if another copy in
    /// sync remembers that it had come further. Nothing fails after that.
    pub(super) fn turn_back_a_little(&mut self, node: usize, age: Duration) -> Result<(), String> {
        let serves = |node: &Node| node.replica.as_ref().is_some_and(Replica::is_serving);
        let since = self.fails_until.max(self.seen.since);
        let is_calm = self.now > since + CALM && self.nodes.iter().any(serves);
        let Some(image) = self.nodes[node].image.take().filter(|_| !self.has_healed) else {
            return Ok(());
        };
        self.mend()?;
        self.heals_at = self.now + DARK;
        self.dark_until = self.now + DARK;
        for node in 0..self.nodes.len() {
            self.crash(node);
            self.start_after_dark(node);
        }
        let (me, replica) = (position(node), self.nodes[node].config.uuid);
        if !self.seen.key.in_sync.has(me) {
            return Ok(());
        }
        let others = self.seen.key.in_sync.without(me).iter();
        let heard = others.map(|one| self.nodes[one.index()].store.heads().of(me, replica));
        let Some(heard) = heard.max() else {
            return Ok(());
        };
        if heard > image.found() {
            self.nodes[node].image = Some(image);
            self.nodes[node].comes_back_old = true;
            self.nodes[node].is_young = true;
        } else if age > HEARD {
            let mut granules = 0..image.content().len();
            let lacks = granules.any(|granule| !self.model.may_be(granule, image.value(granule)));
            if lacks && is_calm {
                return Err(format!(
                    "no copy knows of an image of {me} that is {age:?} old"
                ));
            }
            self.summary.unknown_images += u64::from(lacks);
        }
        Ok(())
    }

    /// A process starts some time after power is back.
    pub(super) fn start_after_dark(&mut self, node: usize) {
        let after = self.dark_until - self.now + self.chance.time(Duration::from_millis(1500));
        let over = Fault::Crash {
            node,
            lasts: DARK,
            is_certified: false,
        };
        self.at(after, Happening::Over(over));
    }

    /// A copy is said to lack what it has acknowledged.
    pub(super) fn lags(&mut self, copy: Position) -> Result<(), String> {
        self.summary.lags += 1;
        match self.nodes[copy.index()].was_image {
            true => Ok(()),
            false => Err(format!("{copy} is said to lack something, and does not")),
        }
    }

    /// Before its process starts. Only one of several copies in sync can be lost like that; and it is not the owner's,
    /// whose changes of the key may leave it as the only one: but for a young image, of which that is settled by now.
    pub(super) fn restore(&mut self, node: usize) {
        let is_young = std::mem::take(&mut self.nodes[node].is_young);
        if !std::mem::take(&mut self.nodes[node].comes_back_old) {
            self.nodes[node].is_young = is_young;
            return;
        }
        let Some(image) = self.nodes[node].image.take() else {
            return;
        };
        let key = &self.seen.key;
        let others = key.in_sync.without(position(node));
        let is_owner = key.owner.node == self.nodes[node].config.node && !is_young;
        let is_alone = others.is_empty() || others.iter().any(|one| self.nodes[one.index()].is_old);
        let is_absent = is_young && !key.in_sync.has(position(node));
        if is_alone || is_owner || is_absent {
            return;
        }
        let age = if is_young { "a young" } else { "an old" };
        self.say(|| format!("node {node} comes back with {age} image"));
        match is_young {
            true => self.summary.young_images += 1,
            false => self.summary.old_images += 1,
        }
        let one = &mut self.nodes[node];
        let version = one.store.version();
        one.store = image;
        // It was full then, and what would end that has gone by.
        one.store.set_full(false);
        (one.is_old, one.is_young, one.was_image) = (true, is_young, true);
        if let Err(why) = one.store.crash(&mut self.chance) {
            one.trouble = Some(format!("node {node}: {why}"));
        }
        one.store.count_from(version + 1);
    }
}
