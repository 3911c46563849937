//! What a drive cannot do now is asked for again, until its time is over.

use ashlar_block::{ErrorKind, IoError, Operation, Request};
use tracing::trace;

use super::Unsent;
use super::flights::Asked;
use super::waits::Refused;
use crate::engine::base::Base;
use crate::engine::{DestageIo, Owner};

impl Base {
    /// Whether a drive's error is one to wait out.
    pub(in crate::engine) fn will_pass(&self, asked: &Asked, error: &IoError) -> bool {
        match (asked.op, error.kind()) {
            // There may be another copy.
            (Operation::Read, ErrorKind::Exhausted) => asked
                .since
                .is_none_or(|since| self.now < since + self.drive_io.timeout()),
            (Operation::Write(_), kind) => {
                let may_pass = matches!(kind, ErrorKind::Exhausted | ErrorKind::NoSpace);
                may_pass && self.failed.is_none()
            }
            _ => false,
        }
    }

    /// A drive that cannot do something now is asked again later; an error if it has kept what was to be written.
    pub(in crate::engine) fn ask_later(
        &mut self,
        refused: Refused,
        error: &IoError,
    ) -> Result<(), IoError> {
        if refused.buffer.is_none() {
            self.drive_io.is_over(&refused.asked, refused.drive);
            let why = format!("{error}, and the drive has kept the data");
            return Err(IoError::new(ErrorKind::Media, why));
        }
        self.drive_io.ask_later(refused, error, self.now);
        Ok(())
    }

    /// Sends what has waited; returns what is not to be sent any more, for the drive is out, or the engine has stopped.
    pub(in crate::engine) fn ask_again(&mut self, uses: impl Fn(usize) -> bool) -> Option<Unsent> {
        while let Some(refused) = self.drive_io.next_to_ask(self.now) {
            let Refused {
                asked,
                drive,
                buffer,
            } = refused;
            let is_over = self.failed.is_some() && asked.op != Operation::Read;
            if is_over || !uses(drive) {
                self.drive_io.is_over(&asked, drive);
                let owner = asked.owner;
                return Some(Unsent {
                    owner,
                    drive,
                    buffer,
                });
            }
            let tag = self.drive_io.send(drive, asked, self.now);
            trace!(drive, owner = ?asked.owner, "I/O sent again");
            let request = Request {
                tag,
                op: asked.op,
                range: asked.range,
                buffer,
            };
            self.out.io.push((drive, request));
        }
        None
    }
}

/// What the owner of a request is told that no drive has had, or has no more.
pub(in crate::engine) fn not_sent(drive: usize) -> IoError {
    let why = format!("drive {drive} is out of service");
    IoError::new(ErrorKind::NotSent, why)
}

impl Owner {
    pub(in crate::engine) fn is_read(&self) -> bool {
        matches!(
            self,
            Self::ReadPart { .. }
                | Self::ReadStrips { .. }
                | Self::Strip { .. }
                | Self::Salvage { .. }
                | Self::LoadPage { .. }
                | Self::Destage(DestageIo::Read { .. })
        )
    }
}
