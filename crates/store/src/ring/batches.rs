//! A ring as its writer has it: where it ends, what is appended, and which of it recovery would still need.

use std::collections::VecDeque;

use super::scan::{Scanned, ScannedBatch};
use super::shape::{Log, Shape};
use crate::format::{Batch, Descriptor, LogId, LogState, Salt, TermStart, encode_batch};
use crate::sizes::Sizes;

/// Granules of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub volume: u32,
    /// The first granule.
    pub first: u64,
    /// How many.
    pub granules: u16,
}

/// A batch that recovery would still need.
#[derive(Debug)]
pub struct LogBatch {
    pub at: u64,
    pub bytes: u64,
    pub number: u64,
    /// Header checksum of the batch before it.
    pub previous: u32,
    /// Sequence of its first record.
    pub first_sequence: u64,
    /// How many records it has.
    pub records: u64,
    /// Granules whose newest record is in here (all of them until it is published).
    pub live: u32,
    /// What is in it; empty where it is not asked for granule by granule, as in the map log.
    pub spans: Vec<Span>,
}

impl LogBatch {
    /// As it was found, with nothing in it.
    pub fn found(scanned: &ScannedBatch) -> Self {
        Self {
            at: scanned.at,
            bytes: scanned.len,
            number: scanned.batch.number,
            previous: scanned.batch.previous,
            first_sequence: scanned.batch.first_sequence,
            records: scanned.batch.records.len() as u64,
            live: 0,
            spans: Vec::new(),
        }
    }

    /// As it was found, with what its records are about.
    pub fn found_with_spans(scanned: &ScannedBatch) -> Self {
        let spans = scanned.batch.records.iter().map(|record| Span {
            volume: record.volume,
            first: record.first_granule,
            granules: record.granules,
        });
        Self {
            spans: spans.collect(),
            ..Self::found(scanned)
        }
    }

    /// Sequence after its last record.
    pub fn end_sequence(&self) -> u64 {
        self.first_sequence + self.records
    }
}

/// Whose batch is appended.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Which log of the pool.
    pub log: LogId,
    /// The pool's salt.
    pub salt: Salt,
    pub term: u64,
    /// Sequence of the first record.
    pub first_sequence: u64,
}

/// Records of a batch.
#[derive(Debug)]
pub struct Records {
    /// What each is.
    pub descriptors: Vec<Descriptor>,
    /// Checksums that they refer to.
    pub crcs: Vec<u32>,
}

#[derive(Debug)]
pub struct Ring {
    /// Where it ends, and what of it may be written again.
    pub log: Log,
    /// Terms that batches of it are of, and where each begins.
    pub terms: Vec<TermStart>,
    /// Batches that recovery would still need, oldest first.
    pub batches: VecDeque<LogBatch>,
    /// How many copies the append on its way still waits for; 0 if there is none.
    pub appending: usize,
}

impl Ring {
    /// The ring that was found, where its next batch goes.
    pub fn found(
        sizes: &Sizes,
        state: &LogState,
        scanned: &Scanned,
        batches: Vec<LogBatch>,
    ) -> Self {
        Self {
            log: Log {
                shape: Shape::new(sizes, state.chunks.clone()),
                head: scanned.head,
                free_below: state.tail_at,
                held: false,
            },
            terms: state.terms.clone(),
            batches: batches.into(),
            appending: 0,
        }
    }

    /// Makes a batch of these records, with their data in `buffer` behind the metadata, the next of the ring. Returns
    /// its position: there its bytes are to be written, on every copy. It counts when all of them have it.
    pub fn append(
        &mut self,
        stamp: Stamp,
        records: Records,
        spans: Vec<Span>,
        buffer: &mut [u8],
    ) -> u64 {
        let head = self.log.head;
        let batch = Batch {
            log: stamp.log,
            term: stamp.term,
            number: head.number,
            first_sequence: stamp.first_sequence,
            previous: head.previous,
            records: records.descriptors,
            crcs: records.crcs,
        };
        let crc = encode_batch(&batch, stamp.salt, buffer);
        self.batches.push_back(LogBatch {
            at: head.at,
            bytes: buffer.len() as u64,
            number: head.number,
            previous: head.previous,
            first_sequence: stamp.first_sequence,
            records: batch.records.len() as u64,
            live: spans.iter().map(|span| u32::from(span.granules)).sum(),
            spans,
        });
        self.log.advance(buffer.len() as u64, crc);
        head.at
    }

    /// One copy has the append that is on its way, or never will. Whether it was the last.
    pub fn copy_done(&mut self) -> bool {
        self.appending = self.appending.saturating_sub(1);
        self.appending == 0
    }

    /// A granule's newest record is no longer the one at `at`.
    pub fn forget(&mut self, at: u64) {
        let after = self.batches.partition_point(|batch| batch.at <= at);
        let batch = after.checked_sub(1);
        if let Some(batch) = batch.and_then(|batch| self.batches.get_mut(batch)) {
            batch.live = batch.live.saturating_sub(1);
        }
    }

    /// Lets go of batches at the tail that are published (all below this sequence are) and whose granules all
    /// have newer records or are home.
    pub fn trim(&mut self, published: u64) {
        let dead = |batch: &LogBatch| batch.live == 0 && batch.end_sequence() <= published;
        while self.batches.front().is_some_and(dead) {
            self.batches.pop_front();
        }
    }

    /// Position of the oldest batch that recovery would need.
    pub fn tail_at(&self) -> u64 {
        self.batches
            .front()
            .map_or(self.log.head.at, |batch| batch.at)
    }

    /// Position of the oldest batch with records from this sequence on.
    pub fn position_of(&self, sequence: u64) -> u64 {
        let before = |batch: &LogBatch| batch.end_sequence() <= sequence;
        let first = self.batches.get(self.batches.partition_point(before));
        first.map_or(self.log.head.at, |batch| batch.at)
    }

    /// The first batch that begins at this position or behind it.
    pub fn batch_from(&self, at: u64) -> Option<&LogBatch> {
        let first = self.batches.partition_point(|batch| batch.at < at);
        self.batches.get(first)
    }

    /// Drops batches below a position.
    pub fn drop_below(&mut self, at: u64) {
        while self.batches.front().is_some_and(|batch| batch.at < at) {
            self.batches.pop_front();
        }
    }

    /// Forgets terms that ended before the oldest batch.
    pub fn drop_terms(&mut self) {
        let number = self
            .batches
            .front()
            .map_or(self.log.head.number, |batch| batch.number);
        while self
            .terms
            .get(1)
            .is_some_and(|next| next.first_batch <= number)
        {
            self.terms.remove(0);
        }
    }

    /// The ring for a root whose tail is at `at`.
    pub fn state(&self, at: u64) -> LogState {
        let head = self.log.head;
        let tail = self.batches.iter().find(|batch| batch.at == at);
        let (number, previous) = match tail {
            Some(batch) => (batch.number, batch.previous),
            None => (head.number, head.previous),
        };
        let is_past = |i: usize| {
            self.terms
                .get(i + 1)
                .is_some_and(|next| next.first_batch <= number)
        };
        let terms = self.terms.iter().enumerate();
        LogState {
            chunks: self.log.shape.chunks.clone(),
            tail_at: at,
            tail_number: number,
            tail_previous: previous,
            terms: terms
                .filter(|&(i, _)| !is_past(i))
                .map(|(_, &term)| term)
                .collect(),
        }
    }
}
