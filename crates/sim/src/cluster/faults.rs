//! What befalls a cluster, and when.

use std::time::Duration;

use ashlar_replica::DRIFT_PER_MILLE;

use super::profile::Profile;
use super::wires::Way;
use crate::chance::Chance;

/// After power is back, processes start one after another.
const STARTS_WITHIN: Duration = Duration::from_millis(1500);

/// Something that befalls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process dies; another starts after a while. It may be certified dead at once.
    Crash {
        node: usize,
        lasts: Duration,
        is_certified: bool,
    },
    /// All processes die, and start again one after another.
    Power { lasts: Duration },
    /// A process gets no processor for a while.
    Stop { node: usize, lasts: Duration },
    /// A wire is cut, in one direction or both.
    Cut {
        way: Way,
        is_both: bool,
        lasts: Duration,
    },
    /// A node is cut off from all others and from the quorum.
    Isolate { node: usize, lasts: Duration },
    /// A connection is reset: both ends may hear of it.
    Break { way: Way },
    /// Messages get lost for a while.
    Lossy { lasts: Duration },
    /// So many members of the quorum are down for a while.
    Quorum { members: usize, lasts: Duration },
    /// Outcomes of swaps are unknown for a while.
    Silent { lasts: Duration },
    /// A store lets its records go.
    Spill { node: usize },
    /// A store has no space for a while.
    Full { node: usize, lasts: Duration },
    /// A store can neither read nor write for a while.
    Broken { node: usize, lasts: Duration },
    /// A store takes long for a while.
    Slow {
        node: usize,
        times: u32,
        lasts: Duration,
    },
    /// A store does nothing for a while.
    Hang { node: usize, lasts: Duration },
    /// An operator moves the volume.
    Move { to: usize },
    /// A clock jumps ahead.
    Jump { node: usize, by: Duration },
    /// A clock stands for a while.
    Stand { node: usize, lasts: Duration },
    /// A clock runs so many parts of a million fast from now on.
    Drift { node: usize, per_million: u64 },
    /// After so long all lose power, and a node's drives come back as they are now.
    OldImage { node: usize, lasts: Duration },
    /// The same at last, and neither the quorum nor the node itself knows of it.
    YoungImage { node: usize, lasts: Duration },
    /// A block of a store, or of a drive of it, cannot be read until it is written.
    Spoil { node: usize },
}

/// How fast clocks run that change: as fast and as slow as is promised for, and right.
const DRIFTS: [u64; 3] = [
    MILLION - DRIFT_PER_MILLE as u64 * 1000,
    MILLION,
    MILLION + DRIFT_PER_MILLE as u64 * 1000,
];
const MILLION: u64 = 1_000_000;

impl Fault {
    /// After what time nothing is left of it but what copies have to make good.
    pub(crate) fn lasts(&self) -> Duration {
        match *self {
            Self::Crash { lasts, .. }
            | Self::Stop { lasts, .. }
            | Self::Cut { lasts, .. }
            | Self::Isolate { lasts, .. }
            | Self::Lossy { lasts }
            | Self::Quorum { lasts, .. }
            | Self::Silent { lasts }
            | Self::Full { lasts, .. }
            | Self::Broken { lasts, .. }
            | Self::Slow { lasts, .. }
            | Self::Hang { lasts, .. }
            | Self::Stand { lasts, .. } => lasts,
            Self::Power { lasts } => lasts + STARTS_WITHIN,
            // All lose power then.
            Self::OldImage { lasts, .. } => lasts + STARTS_WITHIN * 3,
            Self::Break { .. }
            | Self::Spill { .. }
            | Self::Move { .. }
            | Self::Jump { .. }
            | Self::Drift { .. }
            | Self::Spoil { .. }
            | Self::YoungImage { .. } => Duration::ZERO,
        }
    }
}

/// Draws one.
pub(crate) fn draw(chance: &mut Chance, profile: &Profile, nodes: usize) -> Fault {
    let weights = [
        profile.crashes,
        profile.power,
        profile.stops,
        profile.cuts,
        profile.breaks,
        profile.cuts / 4,
        profile.quorum,
        profile.quorum,
        profile.spills,
        profile.full,
        profile.slow,
        profile.moves,
        profile.clocks,
        profile.clocks,
        profile.isolations,
        profile.broken,
        profile.old_images,
        profile.spoils,
        profile.drifts,
    ];
    let total: u32 = weights.iter().sum();
    let mut drawn = chance.below(u64::from(total)) as u32;
    let mut kind = 0;
    while kind + 1 < weights.len() && drawn >= weights[kind] {
        drawn -= weights[kind];
        kind += 1;
    }
    let node = chance.below(nodes as u64) as usize;
    let other = (node + 1 + chance.below(nodes as u64 - 1) as usize) % nodes;
    let way = Way {
        from: node,
        to: other,
    };
    let lasts = Duration::from_millis(5) + chance.time(Duration::from_millis(4000));
    match kind {
        0 => Fault::Crash {
            node,
            lasts,
            is_certified: chance.happens(500),
        },
        1 => Fault::Power { lasts },
        2 => Fault::Stop { node, lasts },
        3 => Fault::Cut {
            way,
            is_both: chance.happens(400),
            lasts,
        },
        4 => Fault::Break { way },
        5 => Fault::Lossy { lasts },
        6 => Fault::Quorum {
            members: chance.between(1, 3) as usize,
            lasts,
        },
        7 => Fault::Silent { lasts },
        8 => Fault::Spill { node },
        9 => Fault::Full { node, lasts },
        10 => Fault::Slow {
            node,
            times: 1 << chance.between(2, 7),
            lasts,
        },
        11 => Fault::Move { to: node },
        12 => Fault::Jump {
            node,
            by: chance.time(Duration::from_secs(20)),
        },
        13 => Fault::Stand { node, lasts },
        14 => Fault::Isolate { node, lasts },
        15 => Fault::Broken { node, lasts },
        16 => Fault::OldImage { node, lasts },
        17 => Fault::Spoil { node },
        _ => Fault::Drift {
            node,
            per_million: chance.pick(&DRIFTS),
        },
    }
}

/// The moment that an ambush waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A message of this name is sent.
    Message(&'static str),
    /// The quorum is asked to add a member.
    Adds,
    /// The quorum is asked to remove members.
    Removes,
    /// The quorum is asked for a new epoch.
    Elects,
    /// A swap was made, and its answer is on its way.
    Swapped,
}

/// What happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The process dies.
    Crash,
    /// The node is cut off from all others and the quorum.
    Isolate,
    /// The process gets no processor.
    Stop,
    /// The store has no space.
    Full,
    /// The store is slow.
    Slow,
    /// The connection is reset.
    Break,
}

/// What happens to whom, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lure {
    pub occasion: Occasion,
    pub blow: Blow,
    /// Whether it befalls the sender, not the receiver.
    pub is_sender: bool,
}

/// Something that happens when a certain message is sent for the nth time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ambush {
    pub(crate) lure: Lure,
    pub(crate) passes: u64,
    pub(crate) lasts: Duration,
}

const MESSAGES: [&str; 13] = [
    "JOIN", "REC", "COPY", "ENTRY", "COMMIT", "DIGEST?", "HANDOFF", "JOINED", "ATTACH", "ACK",
    "COPIED", "DIGEST", "GRANT",
];

fn is_frequent(occasion: Occasion) -> bool {
    matches!(
        occasion,
        Occasion::Message("REC" | "ACK" | "COMMIT" | "GRANT")
    )
}

/// One for a lure.
pub(crate) fn lured(chance: &mut Chance, lure: Lure) -> Ambush {
    Ambush {
        lure,
        passes: chance.below(if is_frequent(lure.occasion) { 40 } else { 3 }),
        lasts: Duration::from_millis(chance.between(5, 4000)),
    }
}

/// Draws one.
pub(crate) fn ambush(chance: &mut Chance) -> Ambush {
    let moment = match chance.below(8) {
        0 => Occasion::Adds,
        1 => Occasion::Removes,
        2 => Occasion::Elects,
        3 => Occasion::Swapped,
        _ => Occasion::Message(chance.pick(&MESSAGES)),
    };
    let often = is_frequent(moment);
    let blows = [
        Blow::Crash,
        Blow::Crash,
        Blow::Isolate,
        Blow::Isolate,
        Blow::Stop,
        Blow::Full,
        Blow::Slow,
        Blow::Break,
    ];
    Ambush {
        lure: Lure {
            occasion: moment,
            blow: chance.pick(&blows),
            is_sender: chance.happens(500),
        },
        passes: chance.below(if often { 60 } else { 3 }),
        lasts: Duration::from_millis(5) + chance.time(Duration::from_millis(4000)),
    }
}
