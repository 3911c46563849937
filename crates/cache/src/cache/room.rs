//! Room for what is written. While the backing device keeps up, a write that finds none waits a moment for it: what is
//! written back in order of address takes a disk less time than the same writes one by one. What waits too long goes
//! around, and so does a stream at once, which a disk takes as it comes.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use ashlar_block::Moment;

use super::{BLOCK, Cache, Op};
use crate::layout::Mode;
use crate::policy::Admission;

/// How long a write waits for room.
const ROOM_TIMEOUT: Duration = Duration::from_millis(200);

/// Writes that wait, oldest first, and until when each does.
#[derive(Default)]
pub(super) struct Starved {
    ordinary: VecDeque<(Moment, usize)>,
    streams: VecDeque<(Moment, usize)>,
}

impl Starved {
    fn of(&mut self, how: Admission) -> &mut VecDeque<(Moment, usize)> {
        match how {
            Admission::Ordinary => &mut self.ordinary,
            Admission::Stream => &mut self.streams,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ordinary.is_empty() && self.streams.is_empty()
    }

    fn until(&self) -> Option<Moment> {
        let first = [self.ordinary.front(), self.streams.front()];
        first.into_iter().flatten().map(|&(until, _)| until).min()
    }
}

/// Which of a write's tries to find room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Try {
    First,
    /// There may be room now.
    Again,
    /// It has waited for long enough.
    Last,
}

impl Cache {
    /// Whether a write may add to what is newer than the backing device. The last part is for streams: a log.
    pub(super) fn takes(&self, how: Admission) -> bool {
        let sixteenths = match how {
            Admission::Ordinary => 13,
            Admission::Stream => 15,
        };
        self.dirty.saturating_sub(self.head())
            < self.policy.capacity() as u64 * BLOCK * sixteenths / 16
    }

    /// Whether a write of a range goes to the backing device, and nothing of it stays here.
    pub(super) fn goes_around(&self, range: &Range<u64>) -> bool {
        let mode = self.header.as_ref().map(|header| header.mode);
        let may_stay = self.takes(Admission::Ordinary) || self.gets_on();
        let stays = mode == Some(Mode::WriteThrough) || self.may_be_newer() && may_stay;
        !stays && range.start >= self.head() && !range.clone().any(|granule| self.is_dirty(granule))
    }

    /// Whether a write that finds no room is to wait for it.
    pub(super) fn waits_for_room(&self) -> bool {
        self.may_be_newer() && self.gets_on()
    }

    pub(super) fn wait_for_room(&mut self, op: usize, how: Admission) {
        let until = self.now + ROOM_TIMEOUT;
        self.starved.of(how).push_back((until, op));
    }

    /// Those that have waited go on, in their order: there is room, or their time is over.
    pub(super) fn feed(&mut self) {
        self.feed_those(Admission::Stream);
        self.feed_those(Admission::Ordinary);
    }

    /// The cache can do nothing any more: what waits for room, or for a page to be recorded, ends. What waits behind it
    /// for a lock ends when it has that.
    pub(super) fn let_go(&mut self) {
        let starved = std::mem::take(&mut self.starved);
        let starved = starved.ordinary.into_iter().chain(starved.streams);
        let mut all: Vec<usize> = starved.map(|(_, op)| op).collect();
        self.forget_waiters();
        all.extend(self.waits_for_pages());
        for op in all {
            let result = self.failure_error().map_or(Ok(()), Err);
            match self.ops.get(op) {
                Some(Op::Evict(_)) => self.end_eviction(op),
                _ => self.end_piece(op, result),
            }
        }
    }

    /// What waits for a page to be recorded.
    fn waits_for_pages(&self) -> Vec<usize> {
        let waits = |op: &Op| match op {
            Op::Piece(piece) => piece.awaits_page(),
            Op::Evict(eviction) => eviction.awaits_page(),
            Op::Clean(_) | Op::Sweep(_) => false,
        };
        let all = self.ops.iter().filter(|(_, op)| waits(op));
        all.map(|(number, _)| number).collect()
    }

    fn feed_those(&mut self, how: Admission) {
        while let Some(&(until, op)) = self.starved.of(how).front() {
            let range = self.range_of(op);
            let room = self.takes(how) && self.has_room(&range);
            let over = self.now >= until || !self.waits_for_room();
            if !(room || over) {
                return;
            }
            self.starved.of(how).pop_front();
            self.start_write(op, if over { Try::Last } else { Try::Again });
        }
    }

    /// Whether the blocks of a range can be let in.
    pub(super) fn has_room(&self, range: &Range<u64>) -> bool {
        let new = Self::blocks(range.start, range.end)
            .filter(|&block| !self.policy.has(block))
            .count();
        self.policy.len() + self.evicting + new <= self.policy.capacity()
    }

    pub(super) fn room_deadline(&self) -> Option<Moment> {
        self.starved.until()
    }
}
