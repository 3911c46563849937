//! What a drive cannot do now, and may be able to do later: there is no memory, or no space left on the file
//! system that its file lies on. That says nothing of what the drive holds, so it stays in service. The request
//! waits and is sent again four times a second, for as long as it takes: outside of the time that a drive has for
//! an answer. Whom it is for is not told; hosts' reads go to another copy.
//!
//! A flush is never asked for twice: what it was for may be lost by then.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::{IoBuffer, IoError, Moment};
use tracing::debug;

use super::flights::Asked;

const SEND_AGAIN: Duration = Duration::from_millis(250);

/// What a drive cannot do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveWait {
    pub why: String,
    /// For how long already.
    pub lasts: Duration,
}

/// What a drive could not do.
pub(in crate::engine) struct Refused {
    pub(in crate::engine) asked: Asked,
    pub(in crate::engine) drive: usize,
    pub(in crate::engine) buffer: Option<IoBuffer>,
}

struct Waiting {
    refused: Refused,
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
pub(in crate::engine) struct Waits {
    requests: Vec<Waiting>,
    drives: BTreeMap<usize, Condition>,
}

impl Waits {
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// When the next is sent again.
    pub(in crate::engine) fn deadline(&self) -> Option<Moment> {
        self.requests.iter().map(|waiting| waiting.due).min()
    }

    /// The drive is asked for it again a little later.
    pub(in crate::engine) fn wait(&mut self, mut refused: Refused, error: &IoError, now: Moment) {
        if refused.asked.since.is_none() {
            debug!(member = refused.drive, %error, "drive cannot do it now");
            let condition = self.drives.entry(refused.drive).or_insert(Condition {
                since: now,
                why: String::new(),
                requests: 0,
            });
            condition.requests += 1;
            condition.why = error.to_string();
            refused.asked.since = Some(now);
        }
        self.requests.push(Waiting {
            refused,
            due: now + SEND_AGAIN,
        });
    }

    /// What is to be sent again now.
    pub(in crate::engine) fn next(&mut self, now: Moment) -> Option<Refused> {
        let due = self.requests.iter().position(|one| one.due <= now)?;
        Some(self.requests.remove(due).refused)
    }

    /// What a drive cannot do now.
    pub(in crate::engine) fn of_drive(&self, drive: usize, now: Moment) -> Option<DriveWait> {
        let condition = self.drives.get(&drive)?;
        Some(DriveWait {
            why: condition.why.clone(),
            lasts: now.since(condition.since),
        })
    }

    /// A request has an answer that counts.
    pub(in crate::engine) fn is_over(&mut self, asked: &Asked, drive: usize) {
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
