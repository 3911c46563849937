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

    /// The granule at a position, if its batch is here.
    pub fn granule(&self, at: u64) -> Option<&[u8]> {
        let (&start, batch) = self.batches.range(..=at).next_back()?;
        let offset = (at - start) as usize;
        batch.get(offset..offset + GRANULE)
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
