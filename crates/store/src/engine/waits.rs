//! What a drive cannot do now, and may be able to do later: there is no memory, or no space left on the file
//! system that its file lies on. That says nothing of what the drive holds, so it stays in service. The request
//! waits and is sent again four times a second, for as long as it takes: outside of the time that a drive has for
//! an answer. Whom it is for is not told; hosts' reads go to another copy.
//!
//! A flush is never asked for twice: what it was for may be lost by then.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::{ErrorKind, IoBuffer, IoError, Moment, Operation, Request};
use tracing::{debug, trace};

use super::Engine;
use super::flights::Asked;
use crate::Canary;

const SEND_AGAIN: Duration = Duration::from_millis(250);

/// What a drive cannot do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveWait {
    /// Its error.
    pub why: String,
    /// For how long already.
    pub lasts: Duration,
}

struct Waiting {
    asked: Asked,
    drive: usize,
    buffer: Option<IoBuffer>,
    due: Moment,
}

struct Condition {
    since: Moment,
    why: String,
    /// Requests that wait, or were sent again and have no answer yet.
    requests: usize,
}

/// Requests that wait.
#[derive(Default)]
pub(crate) struct Waits {
    requests: Vec<Waiting>,
    drives: BTreeMap<usize, Condition>,
}

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// When the next is sent again.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.requests.iter().map(|waiting| waiting.due).min()
    }

    fn next(&mut self, now: Moment) -> Option<Waiting> {
        let due = self.requests.iter().position(|one| one.due <= now)?;
        Some(self.requests.remove(due))
    }

    /// A request has an answer that counts.
    pub(super) fn is_over(&mut self, asked: &Asked, drive: usize) {
        if asked.since.is_none() {
            return;
        }
        if let Some(condition) = self.drives.get_mut(&drive) {
            condition.requests -= 1;
            if condition.requests == 0 {
                debug!(member = drive, "drive does what it could not");
                self.drives.remove(&drive);
            }
        }
    }
}

impl Engine {
    /// Whether a drive's error is one to wait out.
    pub(super) fn will_pass(&self, asked: &Asked, error: &IoError) -> bool {
        match (asked.op, error.kind()) {
            // There may be another copy.
            (Operation::Read, ErrorKind::Exhausted) => asked
                .since
                .is_none_or(|since| self.now < since + self.flights.timeout()),
            (Operation::Write(_), kind) => {
                let may_pass = matches!(kind, ErrorKind::Exhausted | ErrorKind::NoSpace);
                may_pass && self.failed.is_none()
            }
            _ => false,
        }
    }

    pub(super) fn wait_for(
        &mut self,
        (asked, drive): (Asked, usize),
        buffer: Option<IoBuffer>,
        error: &IoError,
    ) {
        if self.read_elsewhere(asked.owner, drive) {
            return self.waits.is_over(&asked, drive);
        }
        if self.cage.sings(Canary::NoSpaceCountsAsDone) && asked.op != Operation::Read {
            return self.answered((asked.owner, drive), buffer, Ok(()));
        }
        if buffer.is_none() {
            let why = format!("{error}, and the drive has kept the data");
            let error = IoError::new(ErrorKind::Media, why);
            self.waits.is_over(&asked, drive);
            return self.answered((asked.owner, drive), None, Err(error));
        }
        if asked.since.is_none() {
            debug!(member = drive, %error, "drive cannot do it now");
            let condition = self.waits.drives.entry(drive).or_insert(Condition {
                since: self.now,
                why: String::new(),
                requests: 0,
            });
            condition.requests += 1;
            condition.why = error.to_string();
        }
        self.waits.requests.push(Waiting {
            asked: Asked {
                since: asked.since.or(Some(self.now)),
                ..asked
            },
            drive,
            buffer,
            due: self.now + SEND_AGAIN,
        });
    }

    /// Sends what has waited.
    pub(super) fn ask_again(&mut self) {
        while let Some(waiting) = self.waits.next(self.now) {
            let Waiting {
                asked,
                drive,
                buffer,
                ..
            } = waiting;
            let is_over = self.failed.is_some() && asked.op != Operation::Read;
            if is_over || !self.uses(drive) {
                self.waits.is_over(&asked, drive);
                let why = format!("drive {drive} is out of service");
                let error = IoError::new(ErrorKind::NotSent, why);
                self.answered((asked.owner, drive), buffer, Err(error));
                continue;
            }
            let tag = self.flights.send(drive, asked, self.now);
            trace!(drive, owner = ?asked.owner, "I/O sent again");
            let request = Request {
                tag,
                op: asked.op,
                range: asked.range,
                buffer,
            };
            self.out.io.push((drive, request));
        }
    }

    /// What a drive cannot do now.
    pub fn drive_wait(&self, member: usize) -> Option<DriveWait> {
        let condition = self.waits.drives.get(&member)?;
        Some(DriveWait {
            why: condition.why.clone(),
            lasts: self.now.since(condition.since),
        })
    }
}
