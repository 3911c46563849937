//! Whether another host has taken away what this one has reserved.
//!
//! A target refuses the writes of a host that was preempted. A session that was told that its host holds a reservation
//! ends with the first such refusal: what is mounted on it must not go on with half of what it had. So that one that
//! writes nothing notices, too, it asks when its controller says that something was reserved, and at every new
//! association.

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
    is_out: bool,
}

impl Vigil {
    /// It is to be looked at: something may have changed.
    pub(super) fn is_due(&mut self, at: Moment) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.due.filter(|_| !self.is_out)
    }
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
        if self.vigil.is_out || self.vigil.due.is_none_or(|due| due > now) {
            return;
        }
        if let Some(at) = self.best_path(now)
            && self.ask_report(now, at).is_some()
        {
            self.vigil.due = None;
            self.vigil.is_out = true;
        } else {
            self.vigil.due = Some(now + RETRY_DELAY);
        }
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

    /// Takes a report.
    pub(super) fn reported(&mut self, now: Moment, finished: &Finished) {
        self.vigil.is_out = false;
        let status = match &finished.outcome {
            // It has no reservations.
            Outcome::Answered(completion) if completion.status().dnr() => return,
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
        if let Some(other) = holders.next().filter(|_| !is_ours) {
            let who = Uuid::from_bytes(other.host);
            self.fence(format!("host identifier {who} has taken the volume over"));
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
