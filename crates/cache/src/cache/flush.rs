//! Hosts' flushes. What the fast device has acknowledged is durable there, so they are about writes that went around: the
//! backing device is flushed for those.
//!
//! A flush that has failed may have lost them, and the device says that once. It may have been one of the cache's own: so a
//! flush of a host succeeds only if every failure before its end was told to a host before it began.

use ashlar_block::{Durability, ErrorKind, IoError, Request};

use super::{Cache, Owner, Side};

/// Writes that went around.
#[derive(Debug, Default)]
pub(super) struct Around {
    written: u64,
    /// Of these, how many are durable, or were told to be lost.
    flushed: u64,
    /// Flushes that failed over some that were not, and writes that were on their way then; how many a host was told of.
    failures: u64,
    told: u64,
    /// Flushes that failed.
    losses: u64,
}

/// What a host's flush is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    written: u64,
    told: u64,
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
        self.written == self.flushed
    }

    fn sent(&self) -> Sent {
        Sent {
            written: self.written,
            told: self.told,
        }
    }

    /// A flush of a host is over, and it is told so; whether all of it is durable as far as other flushes tell.
    fn ended(&mut self, sent: Sent, went_well: bool) -> bool {
        let is_whole = sent.told == self.failures;
        self.told = self.failures;
        if went_well {
            self.flushed = self.flushed.max(sent.written);
        }
        is_whole
    }
}

impl Cache {
    pub(super) fn begin_hosts_flush(&mut self, whole: usize) {
        if self.around.is_flushed() {
            return self.piece_over(whole, Ok(()));
        }
        let owner = Owner::Flush(whole, self.around.sent());
        self.send(Side::Backing, owner, Request::flush(0));
    }

    pub(super) fn hosts_flush_is_over(
        &mut self,
        whole: usize,
        sent: Sent,
        result: Result<(), IoError>,
    ) {
        match &result {
            Ok(()) => self.was_flushed(),
            Err(error) => self.flush_failed(error),
        }
        let is_whole = self.around.ended(sent, result.is_ok());
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
