//! Drives that do not answer. A read goes to another copy before the drive's time is over. A drive whose time
//! is over is out, as after a failed write: its exclusion is durable on the others before anything is
//! acknowledged without it. Only a drive that the pool cannot do without is waited for.

use ashlar_block::{ErrorKind, IoError, Operation, Request};
use tracing::trace;

use super::Unsent;
use super::flights::{Asked, DriveReplies, Slow};
use super::waits::{DriveWait, Refused};
use crate::Canary;
use crate::engine::{Engine, Owner};
use crate::format::MemberState;

impl Engine {
    /// Does what there is to do about requests that drives have had for long.
    pub(in crate::engine) fn watch_drives(&mut self) {
        while let Some(unsent) = self.base.drive_io.next_unsent() {
            let Unsent {
                owner,
                drive,
                buffer,
            } = unsent;
            let why = format!("drive {drive} is out of service");
            let error = IoError::new(ErrorKind::NotSent, why);
            self.answered(drive, owner, buffer, Err(error));
        }
        self.base.drive_io.look_at_clock(self.now);
        self.ask_again();
        while let Some(slow) = self.base.drive_io.next_slow(self.now) {
            self.is_slow(slow);
        }
        while let Some(drive) = self.base.drive_io.overdue(self.now) {
            self.time_is_over(drive);
        }
    }

    /// A read of a host looks for another copy; everything else waits.
    fn is_slow(&mut self, slow: Slow) {
        let Slow { tag, drive, asked } = slow;
        if let Some(asked) = asked
            && self.read_elsewhere(asked.owner, drive)
        {
            self.base.drive_io.has_gone_elsewhere(tag, &asked, drive);
        }
    }

    /// Has a host's read go on without a drive; false if it is something else, or cannot.
    pub(in crate::engine) fn read_elsewhere(&mut self, owner: Owner, drive: usize) -> bool {
        match owner {
            Owner::ReadPart { op, at } => self.read_part_elsewhere(op, at),
            Owner::ReadStrips { op, first } => self.read_strips_elsewhere(op, first, drive),
            _ => false,
        }
    }

    fn time_is_over(&mut self, drive: usize) {
        let may_leave = self.base.failed.is_some() || self.can_do_without(drive);
        if !may_leave {
            return self.base.drive_io.await_drive(drive, self.now);
        }
        let seconds = self.base.drive_io.timeout().as_secs_f64();
        let error = || IoError::new(ErrorKind::Timeout, format!("no answer for {seconds} s"));
        let ignores = self.identity.sings(Canary::TimeoutCountsAsDone);
        if self.base.failed.is_none() && !ignores {
            self.drive_failed(drive, &error());
        }
        for asked in self.base.drive_io.give_up(drive) {
            let owner = asked.owner;
            let result = match ignores && !owner.is_read() {
                true => Ok(()),
                false => Err(error()),
            };
            self.answered(drive, owner, None, result);
        }
    }

    /// Whether a drive's error is one to wait out.
    pub(in crate::engine) fn will_pass(&self, asked: &Asked, error: &IoError) -> bool {
        match (asked.op, error.kind()) {
            // There may be another copy.
            (Operation::Read, ErrorKind::Exhausted) => asked
                .since
                .is_none_or(|since| self.now < since + self.base.drive_io.timeout()),
            (Operation::Write(_), kind) => {
                let may_pass = matches!(kind, ErrorKind::Exhausted | ErrorKind::NoSpace);
                may_pass && self.base.failed.is_none()
            }
            _ => false,
        }
    }

    pub(in crate::engine) fn wait_for(&mut self, refused: Refused, error: &IoError) {
        let Refused {
            asked,
            drive,
            buffer,
        } = refused;
        if self.read_elsewhere(asked.owner, drive) {
            return self.base.drive_io.is_over(&asked, drive);
        }
        if self.identity.sings(Canary::NoSpaceCountsAsDone) && asked.op != Operation::Read {
            return self.answered(drive, asked.owner, buffer, Ok(()));
        }
        if buffer.is_none() {
            let why = format!("{error}, and the drive has kept the data");
            let error = IoError::new(ErrorKind::Media, why);
            self.base.drive_io.is_over(&asked, drive);
            return self.answered(drive, asked.owner, None, Err(error));
        }
        let refused = Refused {
            asked,
            drive,
            buffer,
        };
        self.base.drive_io.ask_later(refused, error, self.now);
    }

    /// Sends what has waited.
    fn ask_again(&mut self) {
        while let Some(refused) = self.base.drive_io.next_to_ask(self.now) {
            let Refused {
                asked,
                drive,
                buffer,
            } = refused;
            let is_over = self.base.failed.is_some() && asked.op != Operation::Read;
            if is_over || !self.uses(drive) {
                self.base.drive_io.is_over(&asked, drive);
                let why = format!("drive {drive} is out of service");
                let error = IoError::new(ErrorKind::NotSent, why);
                self.answered(drive, asked.owner, buffer, Err(error));
                continue;
            }
            let tag = self.base.drive_io.send(drive, asked, self.now);
            trace!(drive, owner = ?asked.owner, "I/O sent again");
            let request = Request {
                tag,
                op: asked.op,
                range: asked.range,
                buffer,
            };
            self.base.drive_io.post(drive, request);
        }
    }

    /// What a drive cannot do now.
    pub fn drive_wait(&self, member: usize) -> Option<DriveWait> {
        self.base.drive_io.wait_of(member, self.now)
    }

    /// How a member answers.
    pub fn replies(&self, member: usize) -> DriveReplies {
        self.base.drive_io.replies(member, self.now)
    }

    /// Whether the pool can go on without a drive. What only that drive has is not reached either way.
    fn can_do_without(&mut self, drive: usize) -> bool {
        // As if it were out.
        let Some(state) = self.space.drives.set_state(drive, MemberState::Excluded) else {
            return true;
        };
        let can =
            state == MemberState::Excluded || self.lost_for_good().is_none() && !self.is_minority();
        self.space.drives.set_state(drive, state);
        can
    }
}

impl Owner {
    fn is_read(&self) -> bool {
        use crate::engine::DestageIo;
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
