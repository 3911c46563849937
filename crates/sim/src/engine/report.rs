use std::fmt;

/// What a world has lived through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Commands answered.
    pub commands: u64,
    /// Of these, writes for which there was no space.
    pub refused: u64,
    /// Crashes of the node or its power.
    pub crashes: u64,
    /// Imports, those that were cut off too.
    pub imports: u64,
    /// Imports that went on with half of the drives, on the word of their node.
    pub halves: u64,
    /// Writes and flushes done on drives.
    pub changes: u64,
    /// Bytes of slots that have moved to hot homes.
    pub promoted: u64,
    /// Bytes of slots that have moved from there.
    pub demoted: u64,
    /// Parts of reads that caches had.
    pub hits: u64,
    /// Bytes that caches have written back.
    pub written_back: u64,
    /// Cached volumes that were left, and their devices looked at.
    pub left: u64,
    /// Blocks that were said to be lost, at most.
    pub lost: u64,
    /// Simulated time in microseconds.
    pub micros: u64,
    /// Turns of the world.
    pub turns: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} commands ({} without space), {} crashes, {} imports, {} drive writes and flushes, {} ms in {} turns",
            self.commands,
            self.refused,
            self.crashes,
            self.imports,
            self.changes,
            self.micros / 1000,
            self.turns,
        )
    }
}
