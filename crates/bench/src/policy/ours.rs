use ashlar_cache::policy::{Admission, Asked, BlockIndex, S3Fifo, Streams};

use super::traces::Access;

/// The shipped policy, asked as the cache asks it.
pub(super) struct Ours {
    queues: S3Fifo,
    reads: Streams,
    writes: Streams,
    slot: u64,
}

impl Ours {
    pub(super) fn new(slots: usize, slot: u64) -> Self {
        Self {
            queues: S3Fifo::new(slots),
            reads: Streams::of_reads(),
            writes: Streams::of_writes(),
            slot,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.queues.bytes()
    }

    /// Reads of slots that were there.
    pub(super) fn hits(&mut self, accesses: &[Access]) -> u64 {
        let mut hits = 0;
        for access in accesses {
            let streams = match access.is_write {
                true => &mut self.writes,
                false => &mut self.reads,
            };
            let how = match streams.follow(access.first, access.bytes) {
                true => Admission::Stream,
                false => Admission::Ordinary,
            };
            for slot in access.slots(self.slot) {
                let hit = self.ask(BlockIndex(slot), access.is_write, how);
                hits += u64::from(hit && !access.is_write);
            }
        }
        hits
    }

    fn ask(&mut self, slot: BlockIndex, is_write: bool, how: Admission) -> bool {
        let asked = match (is_write, how) {
            (true, _) => Asked::Written,
            (false, Admission::Ordinary) => Asked::Read,
            (false, Admission::Stream) => Asked::ReadByStream,
        };
        // A log that begins again at its start is written, not asked for.
        let hit = match is_write && how == Admission::Stream {
            true => self.queues.has(slot),
            false => self.queues.touch(slot, asked),
        };
        let enters = !hit && (is_write || self.queues.admits(slot, how));
        if enters {
            if self.queues.is_full() {
                self.queues.victim(|_| true);
            }
            let how = if is_write { how } else { Admission::Ordinary };
            self.queues.insert(slot, how);
        }
        hit
    }
}
