//! Hosts' flushes. What the fast device has acknowledged is durable there, so they are about writes that went around: the
//! backing device is flushed for those.
//!
//! A flush that has failed may have lost them, and the device says that once. It may have been one of the cache's own: so a
//! flush of a host succeeds only if every failure before its end was told to a host before it was asked for.
//!
//! An operator who has everything written back, to use the device without the cache, is told as well, once; hosts are all the
//! same.
//!
//! One flush of the backing device is under way at a time. One that began before another failed could be answered first: it
//! had nothing of what that has lost, and would say that it is durable.

use ashlar_block::{Durability, ErrorKind, IoError, Request};
use slab::Slab;

use super::barrier::again;
use super::{Cache, Defect, Owner, Side};

/// Writes that went around.
#[derive(Debug, Default)]
pub(super) struct Around {
    written: u64,
    /// Of these, how many are durable, or were told to be lost.
    flushed: u64,
    /// Flushes that failed over some that were not, and writes that were on their way then; how many a host was told of.
    failures: u64,
    told: u64,
    /// Of how many an operator was.
    told_to_operator: u64,
    said: Option<Said>,
    /// Flushes that failed.
    losses: u64,
}

/// The last answer to an operator's flush.
#[derive(Debug)]
struct Said {
    flush: u64,
    /// Of how many failures an operator was told before.
    told_before: u64,
}

/// For whom the backing device is flushed.
#[derive(Clone, Copy, Debug)]
pub(super) enum For {
    /// A host; how many failures were told when it asked.
    Host {
        whole: usize,
        told: u64,
    },
    /// What was written back.
    Settle,
    Barrier,
}

/// Flushes of the backing device: who asks while one is under way shares the next.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    under_way: Slab<UnderWay>,
    next: Vec<For>,
}

/// A flush of the backing device.
#[derive(Debug)]
struct UnderWay {
    whom: Vec<For>,
    /// Writes around that had been answered when it began.
    covers: u64,
}

impl Around {
    /// In the cache's life before there may have been some.
    pub(super) const fn may_have_been(&mut self) {
        self.written = 1;
    }

    /// A flush has failed in its life before, and no host was told.
    pub(super) const fn may_have_lost(&mut self) {
        self.failures = 1;
    }

    /// Whether a flush has failed of which no host was told.
    pub(super) const fn is_untold(&self) -> bool {
        self.failures > self.told
    }

    /// Whether one has of which no operator was told, either.
    pub(super) const fn is_unsaid(&self) -> bool {
        self.is_untold() && self.failures > self.told_to_operator
    }

    /// An operator's flush is over; whether it has to say that a flush has failed before.
    pub(super) const fn is_said(&mut self, flush: u64) -> bool {
        let is_unsaid = self.is_unsaid();
        self.said = Some(Said {
            flush,
            told_before: self.told_to_operator,
        });
        self.told_to_operator = self.failures;
        is_unsaid
    }

    fn was_not_heard(&mut self, flush: u64) {
        if let Some(said) = self.said.take_if(|said| said.flush == flush) {
            self.told_to_operator = said.told_before;
        }
    }

    /// One more: durable ones count, too, for they may lie over older ones that are not. It was sent after so many losses:
    /// if there was one since, the device may have had it before and not have it any more.
    pub(super) fn wrote(&mut self, durability: Durability, losses: u64) {
        self.written += 1;
        let is_lost = durability == Durability::Cached && losses != self.losses;
        self.failures += u64::from(is_lost);
    }

    /// A flush has failed; whether some may be lost.
    pub(super) fn may_be_lost(&mut self) -> bool {
        let some = self.written > self.flushed;
        self.losses += 1;
        self.failures += u64::from(some);
        some
    }

    /// How often something may have been lost: what was read before is not what the device has for good, and what was on
    /// its way there may have been among it, whenever that is answered.
    pub(super) const fn losses(&self) -> u64 {
        self.losses
    }

    fn is_flushed(&self) -> bool {
        self.written == self.flushed && !self.is_untold()
    }

    /// A flush of a host is over, and it is told so; whether all of it is durable as far as other flushes tell.
    fn ended(&mut self, told: u64) -> bool {
        let is_whole = told == self.failures;
        self.told = self.failures;
        is_whole
    }
}

impl Cache {
    pub(super) fn begin_hosts_flush(&mut self, whole: usize) {
        if self.around.is_flushed() {
            return self.piece_over(whole, Ok(()));
        }
        let told = self.around.told;
        self.flush_backing(For::Host { whole, told });
    }

    pub(super) fn flush_backing(&mut self, whom: For) {
        self.flushes.next.push(whom);
        self.begin_next_flush();
    }

    fn begin_next_flush(&mut self) {
        let waits = !self.flushes.under_way.is_empty() && !self.sings(Defect::FlushesCross);
        if waits || self.flushes.next.is_empty() {
            return;
        }
        let flush = self.flushes.under_way.insert(UnderWay {
            whom: std::mem::take(&mut self.flushes.next),
            covers: self.around.written,
        });
        self.send(Side::Backing, Owner::Flush(flush), Request::flush(0));
    }

    /// The flush under way is over. What its failure may have lost is known before any of those for whom it was goes on.
    pub(super) fn flush_is_over(&mut self, flush: usize, result: &Result<(), IoError>) {
        let Some(over) = self.flushes.under_way.try_remove(flush) else {
            return;
        };
        let is_hosts = |one: &For| matches!(one, For::Host { .. });
        if let Err(error) = result {
            self.flush_failed(error);
        } else {
            self.was_flushed();
            if over.whom.iter().any(is_hosts) {
                self.around.flushed = over.covers;
            }
        }
        for one in over.whom {
            let result = result.as_ref().copied().map_err(again);
            match one {
                For::Host { whole, told } => self.hosts_flush_is_over(whole, told, result),
                For::Settle => self.settled(result),
                For::Barrier => self.barrier_done(None, result),
            }
        }
        self.begin_next_flush();
    }

    /// The operator whose [`flush`](Self::flush) this was has gone before its answer: the next one is told what that says.
    pub fn was_not_heard(&mut self, flush: u64) {
        self.around.was_not_heard(flush);
    }

    /// What an operator is answered who had everything written back.
    pub(super) fn says_what_is_lost(&mut self, flush: u64) -> Result<(), IoError> {
        match self.around.is_said(flush) {
            false => Ok(()),
            true => Err(IoError::new(
                ErrorKind::Media,
                "a flush of the backing device has failed before, and what hosts wrote around the cache may be lost; all else \
                 is written back, and this is said once",
            )),
        }
    }

    fn hosts_flush_is_over(&mut self, whole: usize, told: u64, result: Result<(), IoError>) {
        if self.around.is_untold() {
            self.loss.is_told(self.now);
        }
        let is_whole = self.around.ended(told);
        let result = result.and_then(|()| match is_whole {
            true => Ok(()),
            false => Err(IoError::new(
                ErrorKind::Media,
                "a flush of the backing device has failed before, and what was written may be lost",
            )),
        });
        self.piece_over(whole, result);
    }
}
