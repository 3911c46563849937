use std::fmt;

/// What a world has lived through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub nodes: usize,
    /// Writes acknowledged.
    pub writes: u64,
    /// Reads answered to hosts.
    pub reads: u64,
    /// Commands that came by a node that did not own the volume, and reached its owner.
    pub forwarded: u64,
    /// Attempts that hosts made again.
    pub retries: u64,
    /// Of them, because a label was too old.
    pub stale: u64,
    /// Faults that befell it.
    pub faults: u64,
    /// Whether it came to the part in which nothing fails but one member.
    pub steady: u64,
    /// What went wrong while the quorum was away, and was mended without it.
    pub trials: u64,
    /// Copies that came back as old images.
    pub old_images: u64,
    /// Copies that came back as images younger than what the quorum remembers, and that another copy knows of.
    pub young_images: u64,
    /// Those older than half a second that no other copy knows of, and that lack what was acknowledged or read: something
    /// has kept copies from hearing of it, and no promise is kept of them.
    pub unknown_images: u64,
    /// How often a copy was found to lack what it had acknowledged.
    pub lags: u64,
    /// Blocks that could not be read.
    pub spoilt: u64,
    /// Times that an owner went on without a granule of its base, which no copy gave.
    pub unread_bases: u64,
    /// Ranges that other copies gave back.
    pub healed: u64,
    /// Drives of engines' pools that died.
    pub lost_drives: u64,
    /// Epochs that served.
    pub epochs: u64,
    /// Copies added to the in-sync set again.
    pub adds: u64,
    /// Copies that left the in-sync set because their processes ended in order.
    pub left: u64,
    /// Copies that were deleted, and others made.
    pub replaced: u64,
    /// How often the volume has become larger.
    pub growths: u64,
    /// Leaves of copies in sync that were compared.
    pub leaves: u64,
    /// How often hosts have lost their rights, how many of their commands were refused, and how many on reservations were
    /// granted.
    pub fenced: u64,
    pub refused: u64,
    pub granted: u64,
    /// Messages that arrived, and what stores did, until all hosts were done.
    pub steps: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Simulated time in microseconds.
    pub micros: u64,
    /// Events of the world.
    pub events: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} nodes, {} writes, {} reads, {} forwarded, {} retries ({} of old labels), {} faults, {} epochs served, {} adds, {} left in order, {} replaced, {} growths, {} leaves proven, \
             {} messages, \
             {} ms in {} events",
            self.nodes,
            self.writes,
            self.reads,
            self.forwarded,
            self.retries,
            self.stale,
            self.faults,
            self.epochs,
            self.adds,
            self.left,
            self.replaced,
            self.growths,
            self.leaves,
            self.messages,
            self.micros / 1000,
            self.events,
        )
    }
}
