use std::sync::Arc;

use ashlar_block::{BlockRange, IoBuffer};

use super::{Area, Job};
use crate::verify::{Failures, Model, Tally};

/// What writes carry, and what is done with what reads bring.
pub(crate) enum Content {
    /// Random data, made once a buffer and changed a little for every write, so that no two
    /// writes are equal. Reads are not looked at.
    Random {
        /// Written into each 4 KiB of a write.
        counter: u64,
    },
    /// Stamped blocks; reads are compared with the model.
    Verified {
        /// Which generation each block should hold.
        model: Arc<Model>,
        /// What was found.
        tally: Box<Tally>,
        /// Units in flight: an access never overlaps another, or what it must find is unknown.
        busy: Vec<u64>,
    },
}

/// Fills `bytes` with data that does not compress, from `seed`.
pub(crate) fn random_fill(bytes: &mut [u8], seed: u64) {
    fastrand::Rng::with_seed(seed).fill(bytes);
}

impl Content {
    pub(crate) fn random(seed: u64) -> Self {
        Self::Random {
            counter: seed << 40,
        }
    }

    pub(crate) fn verified(model: Arc<Model>, job: &Job) -> Self {
        let busy = Vec::with_capacity(job.cell.depth as usize);
        Self::Verified {
            model,
            tally: Box::default(),
            busy,
        }
    }

    /// The unit to use instead of `unit`: itself, or the next that is not in flight.
    #[inline]
    pub(crate) fn claim(&mut self, unit: u64, area: Area) -> u64 {
        let Self::Verified { busy, .. } = self else {
            return unit;
        };
        let mut unit = unit;
        // Ends: an owned area has more units than accesses in flight before this one.
        while busy.contains(&unit) {
            unit = area.first + (unit - area.first + 1) % area.units;
        }
        busy.push(unit);
        unit
    }

    /// Prepares a write; gives the generation it carries (0 if it is not stamped).
    #[inline]
    pub(crate) fn stamp(&mut self, buffer: &mut IoBuffer, range: BlockRange) -> u64 {
        match self {
            Self::Random { counter } => {
                for part in buffer.chunks_mut(4096) {
                    *counter += 1;
                    if let Some(bytes) = part.first_chunk_mut() {
                        *bytes = counter.to_le_bytes();
                    }
                }
                0
            }
            Self::Verified { model, .. } => model.stamp(buffer, range),
        }
    }

    /// Learns that the access to `unit` has completed; checks what a read brought.
    #[inline]
    pub(crate) fn settle(&mut self, outcome: Outcome<'_>) {
        let Self::Verified { model, tally, busy } = self else {
            return;
        };
        if let Some(index) = busy.iter().position(|&unit| unit == outcome.unit) {
            busy.swap_remove(index);
        }
        match outcome.what {
            Settled::Read(bytes) => model.check(bytes, outcome.range, tally),
            Settled::Written { generation } => model.written(outcome.range, generation),
            Settled::WriteFailed { generation } => model.uncertain(outcome.range, generation),
            Settled::ReadFailed => {}
        }
    }

    /// What verification has found so far.
    pub(crate) fn failures(&self) -> Failures {
        match self {
            Self::Random { .. } => Failures::default(),
            Self::Verified { tally, .. } => tally.failures,
        }
    }

    /// What verification found, if it was on.
    pub(crate) fn into_tally(self) -> Option<Tally> {
        match self {
            Self::Random { .. } => None,
            Self::Verified { tally, .. } => Some(*tally),
        }
    }
}

/// A completed access, as [`Content::settle`] needs it.
pub(crate) struct Outcome<'a> {
    pub(crate) unit: u64,
    pub(crate) range: BlockRange,
    pub(crate) what: Settled<'a>,
}

/// How it ended.
pub(crate) enum Settled<'a> {
    Read(&'a [u8]),
    ReadFailed,
    Written { generation: u64 },
    WriteFailed { generation: u64 },
}
