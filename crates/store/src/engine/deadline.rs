//! Drives that do not answer. A read goes to another copy before the drive's time is over. A drive whose time
//! is over is out, as after a failed write: its exclusion is durable on the others before anything is
//! acknowledged without it. Only a drive that the pool cannot do without is waited for.

use ashlar_block::{ErrorKind, IoError};

use super::flights::Slow;
use super::{Engine, Owner};
use crate::Canary;
use crate::format::MemberState;

impl Engine {
    /// Does what there is to do about requests that drives have had for long.
    pub(super) fn watch_drives(&mut self) {
        while let Some((owner, drive, buffer)) = self.unsent.pop() {
            let why = format!("drive {drive} is out of service");
            let error = IoError::new(ErrorKind::NotSent, why);
            self.answered((owner, drive), buffer, Err(error));
        }
        self.flights.look_at_clock(self.now);
        self.ask_again();
        while let Some(slow) = self.flights.next_slow(self.now) {
            self.is_slow(slow);
        }
        while let Some(drive) = self.flights.overdue(self.now) {
            self.time_is_over(drive);
        }
    }

    /// A read of a host looks for another copy; everything else waits.
    fn is_slow(&mut self, slow: Slow) {
        let Slow { tag, drive, asked } = slow;
        if let Some(asked) = asked
            && self.read_elsewhere(asked.owner, drive)
        {
            self.flights.disown(tag);
            self.waits.is_over(&asked, drive);
        }
    }

    /// Has a host's read go on without a drive; false if it is something else, or cannot.
    pub(super) fn read_elsewhere(&mut self, owner: Owner, drive: usize) -> bool {
        match owner {
            Owner::ReadPart { op, at } => self.read_part_elsewhere(op, at),
            Owner::ReadStrips { op, first } => self.read_strips_elsewhere((op, first), drive),
            _ => false,
        }
    }

    fn time_is_over(&mut self, drive: usize) {
        let may_leave = self.failed.is_some() || self.can_do_without(drive);
        if !may_leave {
            return self.flights.wait_for(drive, self.now);
        }
        let seconds = self.flights.timeout().as_secs_f64();
        let error = || IoError::new(ErrorKind::Timeout, format!("no answer for {seconds} s"));
        let ignores = self.cage.sings(Canary::TimeoutCountsAsDone);
        if self.failed.is_none() && !ignores {
            self.drive_failed(drive, &error());
        }
        for asked in self.flights.give_up(drive) {
            self.waits.is_over(&asked, drive);
            let owner = asked.owner;
            let result = match ignores && !owner.is_read() {
                true => Ok(()),
                false => Err(error()),
            };
            self.answered((owner, drive), None, result);
        }
    }

    /// Whether the pool can go on without a drive. What only that drive has is not reached either way.
    fn can_do_without(&mut self, drive: usize) -> bool {
        let Some(member) = self.members.get_mut(drive) else {
            return true;
        };
        if member.state == MemberState::Excluded {
            return true;
        }
        let state = std::mem::replace(&mut member.state, MemberState::Excluded);
        let can = self.lost_for_good().is_none() && !self.is_minority();
        if let Some(member) = self.members.get_mut(drive) {
            member.state = state;
        }
        can
    }
}

impl Owner {
    fn is_read(&self) -> bool {
        use super::DestageIo;
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
