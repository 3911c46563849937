use ashlar_block::{IoBuffer, Moment};
use std::ops::Range;

use crate::chance::Chance;
use crate::net::Net;
use crate::profile::Profile;
use crate::report::Trace;

/// What everything in the world shares.
pub(crate) struct Env<'a> {
    pub(crate) now: Moment,
    pub(crate) chance: Chance,
    pub(crate) net: Net,
    pub(crate) profile: Profile,
    pub(crate) trace: Trace<'a>,
}

/// A receive that was started: perhaps into the payload's own place.
#[derive(Default)]
pub(crate) struct Receive {
    pub(crate) direct: Option<(IoBuffer, Range<usize>)>,
}

impl Receive {
    /// Puts what belongs there into the payload's place; returns how much that was.
    pub(crate) fn place(&mut self, bytes: &[u8], shift: usize) -> usize {
        let Some((buffer, range)) = &mut self.direct else {
            return 0;
        };
        let taken = bytes.len().min(range.len());
        let start = range.start + shift;
        let room = buffer.get_mut(start..).unwrap_or_default();
        let fits = taken.min(room.len());
        room[..fits].copy_from_slice(&bytes[..fits]);
        taken
    }

    /// How much of the payload fits in its place.
    pub(crate) fn room(&self) -> usize {
        self.direct.as_ref().map_or(0, |(_, range)| range.len())
    }
}

/// A batch that is being sent.
pub(crate) struct Sending {
    pub(crate) batch: ashlar_block::Gather,
    at: usize,
}

impl Sending {
    pub(crate) fn new(batch: ashlar_block::Gather) -> Self {
        Self { batch, at: 0 }
    }

    /// The next bytes, at most `most`, read from the buffers now and not before.
    pub(crate) fn next(&mut self, most: usize) -> Vec<u8> {
        let mut skip = self.at;
        let mut bytes = Vec::new();
        for chunk in self.batch.chunks() {
            let from = skip.min(chunk.len());
            skip -= from;
            let take = (chunk.len() - from).min(most - bytes.len());
            bytes.extend_from_slice(&chunk[from..from + take]);
        }
        self.at += bytes.len();
        bytes
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.batch.len()
    }
}
