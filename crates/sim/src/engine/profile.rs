use ashlar_cache::Defect;
use ashlar_store::Canary;

/// What befalls a pool. Every choice that is not fixed here follows from the seed.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub name: &'static str,
    /// Most commands of a world's users.
    pub commands: u64,
    /// Most crashes, of the node or of its power.
    pub crashes: u64,
    /// Of a thousand imports, those that are cut off too.
    pub import_cuts: u32,
    /// Most times that a drive stops answering for a while.
    pub stalls: u64,
    /// Of a thousand worlds, those in which a drive hangs: it takes requests and answers them much later,
    /// or never.
    pub hangs: u32,
    /// Of a thousand worlds, those in which a drive has no space, or no memory, for a while.
    pub shortages: u32,
    /// Whether drives die, and perhaps return, within what the pool survives.
    pub deaths: bool,
    /// Of a thousand worlds in which drives die, those in which one that died comes back just when
    /// another is away.
    pub swaps: u32,
    /// Of a thousand worlds, those of two drives, of which one may be all that is left after a power loss: their node
    /// remembers which drives serve.
    pub halves: u32,
    /// Most places that rot, or become unreadable, on the one drive that may.
    pub rot: u64,
    /// Of a thousand worlds without deaths, those of one drive: what rots there has no other copy, and the pool goes on
    /// without it.
    pub alone: u32,
    /// Of a thousand writes of that drive, those that go astray, and as many that are never done.
    pub astray: u32,
    /// Of a thousand worlds, those whose volumes are larger than their pool.
    pub overcommits: u32,
    /// Most volumes that are made, deleted or given another size on the way.
    pub changes: u64,
    /// Of a thousand worlds, those in which drives are added and taken out by order, other amounts are
    /// kept for repair, and volumes are told to stop when a copy is missing.
    pub orders: u32,
    /// Of a thousand worlds, those in which volumes have a hot home beside their others.
    pub tiers: u32,
    /// Of a thousand worlds, those in which drives that died come back while the pool serves, and take part again.
    pub readmits: u32,
    /// Of a thousand worlds, those in which volumes cache devices that fail in ways of their own.
    pub caches: u32,
    /// Most times that an operator has another volume cache a device, besides those drawn with all that befalls caches; the
    /// node fails mostly just when that volume is made.
    pub agains: u64,
    /// What is broken on purpose, in builds whose engine can be (feature `canary` of the store).
    pub canary: Option<Canary>,
    /// The same of the caches (feature `canary` of the cache).
    pub defect: Option<Defect>,
}

impl Profile {
    /// Crashes of the node and of its power, during import too.
    pub const CRASH: Self = Self {
        name: "crash",
        commands: 500,
        crashes: 4,
        import_cuts: 300,
        stalls: 1,
        hangs: 150,
        shortages: 250,
        deaths: false,
        swaps: 0,
        halves: 0,
        rot: 0,
        alone: 120,
        astray: 0,
        overcommits: 100,
        changes: 6,
        orders: 250,
        tiers: 300,
        readmits: 0,
        caches: 250,
        agains: 0,
        canary: None,
        defect: None,
    };

    /// One drive rots, has bad sectors, and loses or misplaces writes.
    pub const BITROT: Self = Self {
        name: "bitrot",
        crashes: 2,
        rot: 30,
        astray: 10,
        ..Self::CRASH
    };

    /// Drives die, stall and return.
    pub const DRIVE_LOSS: Self = Self {
        name: "drive-loss",
        stalls: 3,
        hangs: 300,
        deaths: true,
        swaps: 300,
        orders: 400,
        readmits: 500,
        ..Self::CRASH
    };

    /// A drive dies, comes back, and another is away: what only that one has must not be missed.
    pub const DRIVE_SWAP: Self = Self {
        name: "drive-swap",
        swaps: 1000,
        ..Self::DRIVE_LOSS
    };

    /// After a power loss one of two drives is left: it goes on by itself, unless the other did so before.
    pub const HALF: Self = Self {
        name: "half",
        halves: 1000,
        hangs: 0,
        orders: 0,
        alone: 0,
        ..Self::CRASH
    };

    /// Every profile.
    pub const EVERY: [Self; 5] = [
        Self::CRASH,
        Self::BITROT,
        Self::DRIVE_LOSS,
        Self::DRIVE_SWAP,
        Self::HALF,
    ];

    /// The profiles of this name: one, or `all`.
    pub fn named(name: &str) -> Option<Vec<Self>> {
        if name == "all" {
            return Some(Self::EVERY.to_vec());
        }
        let found = Self::EVERY.into_iter().find(|p| p.name == name)?;
        Some(vec![found])
    }

    /// The same with something broken.
    pub fn with_canary(self, canary: Canary) -> Self {
        Self {
            canary: Some(canary),
            ..self
        }
    }

    /// The same with something broken in its caches.
    pub fn with_defect(self, defect: Defect) -> Self {
        Self {
            defect: Some(defect),
            ..self
        }
    }
}
