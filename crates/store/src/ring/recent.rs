//! Payloads of the newest batches, to spare reads of what is soon read again or moved home.

use std::collections::BTreeMap;

use ashlar_block::IoBuffer;

use crate::sizes::GRANULE;

/// Batches as they were written, by position.
#[derive(Debug, Default)]
pub struct Recent {
    batches: BTreeMap<u64, IoBuffer>,
    bytes: usize,
}

impl Recent {
    /// Keeps a batch, and drops the oldest while there are more than `most` bytes.
    pub fn keep(&mut self, at: u64, batch: IoBuffer, most: usize) {
        self.bytes += batch.len();
        self.batches.insert(at, batch);
        while self.bytes > most {
            self.forget_oldest();
        }
    }

    /// Drops the oldest batch, if there is one.
    pub fn forget_oldest(&mut self) -> bool {
        let oldest = self.batches.pop_first();
        if let Some((_, batch)) = &oldest {
            self.bytes -= batch.len();
        }
        oldest.is_some()
    }

    /// Drops batches below a position.
    pub fn forget_below(&mut self, at: u64) {
        let is_below = |(&first, _): (&u64, &IoBuffer)| first < at;
        while self.batches.first_key_value().is_some_and(is_below) {
            self.forget_oldest();
        }
    }

    /// Copies the granule at a position; false when its batch is not here. It may have changed in memory
    /// since: it is checked where it is taken.
    pub fn copy(&self, at: u64, into: &mut [u8]) -> bool {
        let batch = self.batches.range(..=at).next_back();
        let granule = batch.and_then(|(start, batch)| {
            let offset = (at - start) as usize;
            batch.get(offset..offset + GRANULE)
        });
        if let Some(granule) = granule {
            into.copy_from_slice(granule);
        }
        granule.is_some()
    }

    /// Drops the batch that a position is in.
    pub fn forget(&mut self, at: u64) {
        let batch = self.batches.range(..=at).next_back();
        let start = batch.map(|(&start, _)| start);
        if let Some(batch) = start.and_then(|start| self.batches.remove(&start)) {
            self.bytes -= batch.len();
        }
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
