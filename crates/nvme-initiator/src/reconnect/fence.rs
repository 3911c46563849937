//! Whether another host has taken away what this one has reserved.
//!
//! A target refuses the writes of a host that was preempted. A session that was told that its host holds a reservation
//! ends with the first such refusal: what is mounted on it must not go on with half of what it had. So that one that
//! writes nothing notices, too, it asks when its controller says that something was reserved, and over every new
//! association before a request goes that way: what it would read may be another's.

use ashlar_block::{ErrorKind, Moment};
use ashlar_nvme::reservation::ReservationStatus;
use uuid::Uuid;

use super::{RETRY_DELAY, Session};
use crate::queue_pair::{Data, Finished, Outcome, Submission};

/// The name of a report among commands: no request has it.
pub(super) const REPORT: u64 = u64::MAX - 1;
/// Room for the registrants that Ashlar's targets have at most.
const REPORT_BYTES: u32 = 12 << 10;

/// When what is reserved is looked at.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    /// From this moment on, once a path can be used.
    due: Option<Moment>,
}

impl Vigil {
    /// It is to be looked at: something may have changed.
    pub(super) fn is_due(&mut self, at: Moment) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

/// What a path's present association has said of the reservation. A report by another path says nothing of it: that
/// one may be of before the reservation was lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Word {
    /// It is asked.
    is_out: bool,
    /// It has said that no other host has taken it.
    is_ours: bool,
}

impl Session {
    /// Looks at what is reserved, if it is time to.
    pub(super) fn keep_vigil(&mut self, now: Moment) {
        if !self.config.holds_reservation || self.dead.is_some() {
            return;
        }
        for path in &mut self.paths {
            let association = path.association.as_mut();
            if association.is_some_and(|one| one.take_reservation_change()) {
                self.vigil.is_due(now);
            }
        }
        let Some(at) = self.best_path(now) else {
            return;
        };
        let due = self
            .vigil
            .due
            .or_else(|| (!self.may_use(at)).then_some(now));
        if self.paths[at].word.is_out || due.is_none_or(|due| due > now) {
            return;
        }
        self.vigil.due = match self.ask_report(now, at) {
            Some(()) => {
                self.paths[at].word.is_out = true;
                None
            }
            None => Some(now + RETRY_DELAY),
        };
    }

    /// Whether requests may take this path: nothing is reserved, or its association says that it is ours.
    pub(super) fn may_use(&self, at: usize) -> bool {
        !self.config.holds_reservation || self.paths[at].word.is_ours
    }

    /// When what is reserved is to be looked at next.
    pub(super) fn next_look(&self) -> Option<Moment> {
        let due = self.vigil.due?;
        let best = self.best_path(self.polled)?;
        (!self.paths[best].word.is_out).then_some(due)
    }

    fn ask_report(&mut self, now: Moment, at: usize) -> Option<()> {
        let path = self.paths.get_mut(at)?;
        let nsid = path.shape.nsid;
        let association = path.association.as_mut()?;
        let queue = association.roomiest()?;
        let buffer = association.buffer(REPORT_BYTES as usize).ok()?;
        let submission = Submission {
            user: REPORT,
            command: ReservationStatus::report(nsid, REPORT_BYTES),
            data: Data::ToHost(buffer),
            timed: true,
        };
        association.submit(now, queue, submission).ok()
    }

    /// Takes a report that came by a path.
    pub(super) fn reported(&mut self, now: Moment, at: usize, finished: &Finished) {
        self.paths[at].word.is_out = false;
        let status = match &finished.outcome {
            // It has no reservations.
            Outcome::Answered(completion) if completion.status().dnr() => {
                return self.paths[at].word.is_ours = true;
            }
            // Whichever path takes its place is asked at once.
            Outcome::Lost { .. } => return self.vigil.is_due(now),
            Outcome::Answered(completion) if completion.status().is_success() => {
                ReservationStatus::parse(finished.buffer.as_deref().unwrap_or_default())
            }
            _ => None,
        };
        let Some(status) = status else {
            return self.vigil.is_due(now + RETRY_DELAY);
        };
        let mut holders = status.registrants.iter().filter(|one| one.holds);
        let is_ours = holders.clone().any(|one| one.host == self.config.host.id);
        match holders.next().filter(|_| !is_ours) {
            Some(other) => {
                let who = Uuid::from_bytes(other.host);
                self.fence(format!("host identifier {who} has taken the volume over"));
            }
            None => self.paths[at].word.is_ours = true,
        }
    }

    /// Another host has the volume: nothing is taken any more.
    pub(super) fn fence(&mut self, who: String) {
        self.is_fenced = true;
        self.die(Some(ErrorKind::Denied), format!("fenced: {who}"));
    }

    /// Whether another host has taken away what this one had reserved.
    pub fn is_fenced(&self) -> bool {
        self.is_fenced
    }
}
