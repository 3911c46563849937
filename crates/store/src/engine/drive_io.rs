//! I/O of drives: what each has been asked for, what waits to be asked again, and what could not be sent.

pub(super) mod deadline;
pub(crate) mod flights;
pub(super) mod waits;

use std::time::Duration;

use ashlar_block::{IoBuffer, IoError, Moment};

use super::Owner;
use flights::{Answered, Asked, DriveReplies, Flights, Slow};
use waits::{DriveWait, Refused, Waits};

/// A request for a drive that was out by the time it was made.
pub(super) struct Unsent {
    pub(super) owner: Owner,
    pub(super) drive: usize,
    pub(super) buffer: Option<IoBuffer>,
}

/// Requests of all drives.
pub(super) struct DriveIo {
    flights: Flights,
    waits: Waits,
    unsent: Vec<Unsent>,
}

impl DriveIo {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            flights: Flights::new(timeout),
            waits: Waits::default(),
            unsent: Vec::new(),
        }
    }

    /// Tags are slots alone (a canary).
    pub(super) fn forget_generations(&mut self) {
        self.flights.forget_generations();
    }

    /// Nothing is on its way, and nothing waits to be.
    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.waits.is_empty()
    }

    /// When a drive must be looked at next.
    pub(super) fn deadline(&self) -> Option<Moment> {
        let deadlines = [self.flights.next_deadline(), self.waits.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// How long a drive may take for a request.
    pub(super) fn timeout(&self) -> Duration {
        self.flights.timeout()
    }

    /// A request goes to a drive; returns its tag.
    pub(super) fn send(&mut self, drive: usize, asked: Asked, now: Moment) -> u64 {
        self.flights.send(drive, asked, now)
    }

    /// A request cannot go to its drive: its owner is told in the next turn.
    pub(super) fn hold_unsent(&mut self, unsent: Unsent) {
        self.unsent.push(unsent);
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(super) fn next_unsent(&mut self) -> Option<Unsent> {
        self.unsent.pop()
    }

    /// A drive has answered: whom.
    pub(super) fn answered(&mut self, drive: usize, tag: u64) -> Answered {
        self.flights.answered(drive, tag)
    }

    /// A request has an answer that counts.
    pub(super) fn is_over(&mut self, asked: &Asked, drive: usize) {
        self.waits.is_over(asked, drive);
    }

    /// A slow request's owner has gone elsewhere.
    pub(super) fn has_gone_elsewhere(&mut self, tag: u64, asked: &Asked, drive: usize) {
        self.flights.disown(tag);
        self.waits.is_over(asked, drive);
    }

    pub(super) fn look_at_clock(&mut self, now: Moment) {
        self.flights.look_at_clock(now);
    }

    /// The next request that has become slow.
    pub(super) fn next_slow(&mut self, now: Moment) -> Option<Slow> {
        self.flights.next_slow(now)
    }

    /// A drive whose time is over.
    pub(super) fn overdue(&self, now: Moment) -> Option<usize> {
        self.flights.overdue(now)
    }

    /// The drive is waited for, however long it takes.
    pub(super) fn await_drive(&mut self, drive: usize, now: Moment) {
        self.flights.wait_for(drive, now);
    }

    /// Gives up everything that a drive has; returns what has owners.
    pub(super) fn give_up(&mut self, drive: usize) -> Vec<Asked> {
        let given_up = self.flights.give_up(drive);
        for asked in &given_up {
            self.waits.is_over(asked, drive);
        }
        given_up
    }

    pub(super) fn is_slow(&self, drive: usize) -> bool {
        self.flights.is_slow(drive)
    }

    /// Whether a drive has requests, or may answer given up ones yet.
    pub(super) fn has_any(&self, drive: usize) -> bool {
        self.flights.has_any(drive)
    }

    /// Bytes of memory that given up requests hold.
    pub(super) fn late_bytes(&self) -> usize {
        self.flights.late_bytes()
    }

    pub(super) fn replies(&self, drive: usize, now: Moment) -> DriveReplies {
        self.flights.replies(drive, now)
    }

    /// A drive cannot do something now; it is asked again.
    pub(super) fn ask_later(&mut self, refused: Refused, error: &IoError, now: Moment) {
        self.waits.wait(refused, error, now);
    }

    /// What is to be asked again now.
    pub(super) fn next_to_ask(&mut self, now: Moment) -> Option<Refused> {
        self.waits.next(now)
    }

    /// What a drive cannot do now.
    pub(super) fn wait_of(&self, drive: usize, now: Moment) -> Option<DriveWait> {
        self.waits.of_drive(drive, now)
    }
}
