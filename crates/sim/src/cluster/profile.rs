use ashlar_replica::Canary;

use super::faults::Lure;

/// What befalls a cluster. Weights say how often a fault is drawn among the others; every choice that is not fixed
/// here follows from the seed.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub name: &'static str,
    /// Most writes and reads of a writer.
    pub commands: u64,
    /// Most faults of a world.
    pub faults: u64,
    /// A process is killed, and comes back.
    pub crashes: u32,
    /// All nodes lose power together.
    pub power: u32,
    /// A process is stopped, and goes on.
    pub stops: u32,
    /// Wires are cut, in one direction or both.
    pub cuts: u32,
    /// A node is cut off from all others and from the quorum; its hosts still reach it.
    pub isolations: u32,
    /// Most times that something befalls a node just when it sends a certain message.
    pub ambushes: u64,
    /// What lies in wait in each of its worlds besides.
    pub lures: &'static [Lure],
    /// A session breaks.
    pub breaks: u32,
    /// The quorum has no majority for a while, or is silent about outcomes.
    pub quorum: u32,
    /// A store lets records go into its own plane.
    pub spills: u32,
    /// A store has no space for a while.
    pub full: u32,
    /// A store can neither read nor write for a while.
    pub broken: u32,
    /// An operator moves the volume.
    pub moves: u32,
    /// Of a thousand worlds, those in which an operator takes copies away, and gives others.
    pub reseats: u32,
    /// Of a thousand worlds, those in which an operator makes the volume larger.
    pub grows: u32,
    /// Of a thousand worlds, those in which processes end in order: they hand over, and leave the in-sync set first.
    pub ends: u32,
    /// Of a thousand worlds, those in which two writers each are one host, which writes by two associations at once.
    pub pairs: u32,
    /// Of a thousand worlds, those in which hosts reserve the volume.
    pub rights: u32,
    /// A store takes long for a while, or all it does.
    pub slow: u32,
    /// A clock jumps, or stops for a while: reads are confirmed in these worlds.
    pub clocks: u32,
    /// A clock runs at another rate from now on, within what is promised for.
    pub drifts: u32,
    /// Of a thousand worlds, those in which copies in sync are compared again and again.
    pub proofs: u32,
    /// Of a thousand worlds, those whose stores are the engine that ships.
    pub engines: u32,
    /// Blocks cannot be read until they are written.
    pub spoils: u32,
    /// So are those of several copies at once, the last one's, too.
    pub spoils_all: bool,
    /// All lose power, and a node comes back with an old image of its drives.
    pub old_images: u32,
    /// At last all lose power, and a node comes back with an image that is younger than what the quorum remembers.
    pub is_young: bool,
    /// Nothing fails but one member at last; the others' stores are slow, and the owner is held up.
    pub is_steady: bool,
    /// The quorum is away for most of the time, while something else goes wrong now and then.
    pub is_away: bool,
    /// What is broken in that engine on purpose, in builds that can be (feature `canary` of the store).
    pub engine_canary: Option<ashlar_store::Canary>,
    /// What is broken on purpose, in builds that can be (feature `canary` of the replica).
    pub canary: Option<Canary>,
}

impl Profile {
    /// Processes die and stop; sessions break.
    pub const CRASH: Self = Self {
        name: "crash",
        commands: 100,
        faults: 16,
        crashes: 10,
        power: 2,
        stops: 3,
        cuts: 0,
        isolations: 2,
        ambushes: 12,
        lures: &[],
        breaks: 4,
        quorum: 0,
        spills: 1,
        full: 0,
        broken: 0,
        moves: 3,
        reseats: 300,
        grows: 300,
        ends: 200,
        pairs: 300,
        rights: 0,
        slow: 2,
        clocks: 0,
        drifts: 0,
        proofs: 600,
        engines: 100,
        old_images: 0,
        is_young: false,
        spoils: 0,
        spoils_all: false,
        is_steady: false,
        is_away: false,
        engine_canary: None,
        canary: None,
    };

    /// Wires are cut in one direction and both, and the quorum is away.
    pub const PARTITION: Self = Self {
        name: "partition",
        crashes: 4,
        power: 0,
        stops: 4,
        cuts: 8,
        isolations: 6,
        breaks: 4,
        quorum: 4,
        ..Self::CRASH
    };

    /// Stores tear, are full, slow, and spill.
    pub const DRIVE_LOSS: Self = Self {
        name: "drive-loss",
        crashes: 6,
        power: 1,
        stops: 0,
        breaks: 4,
        spills: 5,
        full: 8,
        broken: 4,
        slow: 5,
        ..Self::CRASH
    };

    /// Clocks drift within what is promised for in all worlds; here they jump and stop, too.
    pub const CLOCK: Self = Self {
        name: "clock",
        crashes: 4,
        stops: 4,
        cuts: 3,
        clocks: 8,
        ..Self::CRASH
    };

    /// Clocks run as fast and as slow as they may, each at another rate again and again, while copies take over from each
    /// other: reads are leased.
    pub const DRIFT: Self = Self {
        name: "drift",
        crashes: 3,
        power: 0,
        stops: 6,
        cuts: 6,
        isolations: 4,
        drifts: 16,
        faults: 40,
        ..Self::CRASH
    };

    /// Slowness, and no fault but the death of a member.
    pub const STEADY: Self = Self {
        name: "steady",
        faults: 24,
        ambushes: 0,
        proofs: 0,
        reseats: 0,
        grows: 0,
        ends: 0,
        engines: 0,
        is_steady: true,
        ..Self::CRASH
    };

    /// The quorum is away for long, and copies are, too, for a while.
    pub const QUORUM_AWAY: Self = Self {
        name: "quorum-away",
        commands: 6000,
        faults: 106,
        is_steady: false,
        is_away: true,
        ..Self::STEADY
    };

    /// Drives are restored from older copies.
    pub const OLD_IMAGE: Self = Self {
        name: "old-image",
        old_images: 8,
        engines: 0,
        ..Self::CRASH
    };

    /// Drives are restored from copies that are younger than what the quorum remembers of them.
    pub const YOUNG_IMAGE: Self = Self {
        name: "young-image",
        commands: 250,
        faults: 16,
        is_young: true,
        engines: 0,
        reseats: 0,
        grows: 0,
        ..Self::CRASH
    };

    /// Blocks cannot be read until they are written, or are given by another copy.
    pub const BAD_BLOCKS: Self = Self {
        name: "bad-blocks",
        faults: 40,
        spoils: 40,
        crashes: 4,
        ..Self::CRASH
    };

    /// Hosts reserve the volume and take it from each other, while copies take over from each other.
    pub const RIGHTS: Self = Self {
        name: "rights",
        stops: 4,
        cuts: 3,
        isolations: 4,
        moves: 6,
        rights: 1000,
        ..Self::CRASH
    };

    /// The profiles of `all`.
    pub const EVERY: [Self; 4] = [Self::CRASH, Self::PARTITION, Self::DRIVE_LOSS, Self::CLOCK];

    /// Those that are run by their names only.
    pub const BY_NAME: [Self; 7] = [
        Self::DRIFT,
        Self::STEADY,
        Self::QUORUM_AWAY,
        Self::OLD_IMAGE,
        Self::YOUNG_IMAGE,
        Self::BAD_BLOCKS,
        Self::RIGHTS,
    ];

    /// The profiles of this name: one, or `all`.
    pub fn named(name: &str) -> Option<Vec<Self>> {
        if name == "all" {
            return Some(Self::EVERY.to_vec());
        }
        let mut all = Self::EVERY.into_iter().chain(Self::BY_NAME);
        let found = all.find(|p| p.name == name)?;
        Some(vec![found])
    }

    /// The same with something broken.
    pub fn with_canary(self, canary: Canary) -> Self {
        Self {
            canary: Some(canary),
            ..self
        }
    }
}
