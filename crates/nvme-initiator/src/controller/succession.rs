//! Taking over from a lost association: Cross-Controller Reset (Base 2.3, 5.4.3; TP8028).
//!
//! What the old association's commands still do in the target must be over before this one sends
//! the first of its own: a write of old must not land on a newer one. The target cannot know which of
//! our associations we have given up, if their links went silent, so we tell it, and wait.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ashlar_block::Moment;
use ashlar_nvme::{Command, Completion, Status};

use super::bring_up::Step;
use super::{Association, ControllerFacts};
use crate::failure::Failure;
use crate::queue_pair::{Data, Finished, Outcome};

/// The command's opcode.
const OPCODE: u8 = 0x38;
/// DW0 bit 0, IRS: the reset is complete.
const COMPLETE: u32 = 1;
/// The reset of this controller is going on.
const IN_PROGRESS: Status = Status::new(1, 0x3f);
/// There are too many resets going on.
const LIMIT_EXCEEDED: Status = Status::new(1, 0x40);
/// How long to wait until the target is asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Where Identify Controller has CIU, CIRN and CCRL.
const CIU: usize = 135;
const CIRN: usize = 136;
const CCRL: usize = 1807;

/// What names a controller for ever: its id is used again, the other two with it are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    pub cntlid: u16,
    /// CIU.
    pub uniquifier: u8,
    /// CIRN.
    pub number: u64,
}

impl Instance {
    /// The instance that an Identify Controller page speaks of, if its controller can end others
    /// (CCRL) and be ended by others.
    pub(super) fn parse(page: &[u8], cntlid: u16) -> Option<Self> {
        let (uniquifier, limit) = (*page.get(CIU)?, *page.get(CCRL)?);
        let number = page.get(CIRN..CIRN + 8)?.try_into().ok()?;
        (uniquifier > 0 && limit > 0).then_some(Self {
            cntlid,
            uniquifier,
            number: u64::from_le_bytes(number),
        })
    }

    fn reset(self) -> Command {
        let mut command = Command::new(OPCODE, 0);
        let uniquifier = u32::from(self.uniquifier) << 16;
        command.cdw10.set(uniquifier | u32::from(self.cntlid));
        command.cdw12.set(self.number as u32);
        command.cdw13.set((self.number >> 32) as u32);
        command
    }
}

/// A lost association from which another takes over.
#[derive(Clone, Copy, Debug)]
pub struct Predecessor {
    pub instance: Instance,
    /// Its target has given it up by then, if it keeps to the specification.
    pub over_at: Option<Moment>,
}

impl Instance {
    /// Length of its text.
    pub const TEXT_BYTES: usize = 24;
}

/// `cntlid uniquifier number`, hexadecimal, always as long.
impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (uniquifier, number) = (self.uniquifier, self.number);
        write!(f, "{:04x} {uniquifier:02x} {number:016x}", self.cntlid)
    }
}

impl FromStr for Instance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let mut words = text.split(' ');
            let mut next = |digits| words.next().filter(|word| word.len() == digits);
            let (cntlid, uniquifier, number) = (next(4)?, next(2)?, next(16)?);
            Some(Self {
                cntlid: u16::from_str_radix(cntlid, 16).ok()?,
                uniquifier: u8::from_str_radix(uniquifier, 16).ok()?,
                number: u64::from_str_radix(number, 16).ok()?,
            })
        };
        let named = parse().filter(|_| text.len() == Self::TEXT_BYTES);
        named.ok_or_else(|| format!("`{text}` does not name an association"))
    }
}

/// What a controller says of the end of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfOther {
    /// Nothing is left of it.
    Over,
    /// It is being ended: ask again.
    UnderWay,
    /// This controller cannot tell.
    Unknown,
}

impl Association {
    /// Asks this controller to end another one of the subsystem, on another target perhaps; the answer
    /// comes by [`called`](Self::called), for [`end_of_other`]. False if it cannot be asked.
    pub fn ask_end_of(&mut self, now: Moment, other: Instance) -> bool {
        self.instance().is_some() && self.call(now, other.reset(), Data::None).is_ok()
    }

    /// The same, to take over from `predecessor`: it is ready only when nothing is left of that. A controller without
    /// Cross-Controller Reset is trusted to see to it itself.
    #[must_use]
    pub fn after(mut self, predecessor: Option<Predecessor>) -> Self {
        self.predecessor = predecessor;
        self
    }

    /// The controller's name for a successor, if it has told one.
    pub fn instance(&self) -> Option<Instance> {
        self.controller.as_deref()?.instance
    }

    /// The step after Identify Controller: what the predecessor needs, or `next`.
    pub(super) fn succeed(&mut self, now: Moment, facts: &ControllerFacts, next: Step) -> Step {
        if self.predecessor.is_none() || facts.instance.is_none() {
            return next;
        }
        self.step_deadline = Some(now + self.config.timeout);
        Step::EndPredecessor
    }

    /// Asks for the end of the predecessor. Again, until the answer says that it has come: our target
    /// answers when it has, others may answer at once.
    pub(super) fn end_predecessor(&self) -> Option<Command> {
        self.predecessor.map(|old| old.instance.reset())
    }

    pub(super) fn predecessor_answer(
        &mut self,
        now: Moment,
        completion: &Completion,
    ) -> Result<bool, Failure> {
        let status = completion.status();
        let goes_on = status.is(IN_PROGRESS) || status.is(LIMIT_EXCEEDED);
        let is_refused = !status.is_success() && !goes_on;
        let old = self.predecessor;
        // An id is given again when its former owner is gone; a target may look no further than that.
        let is_own_id = old.map(|old| old.instance.cntlid) == Some(self.cntlid);
        let is_gone = is_own_id && status.is(Status::INVALID_FIELD);
        // The time says so where the target cannot: one that took its place, say, which has other ids.
        let over_at = old.and_then(|old| old.over_at);
        let is_given_up = over_at.is_some_and(|at| at <= now);
        if is_refused && !is_gone && !is_given_up {
            let what = "ending the lost association (Cross-Controller Reset)";
            return Err(match over_at {
                Some(_) => Failure::Network(format!("{what} failed: {status}")),
                None => Failure::Command { what, status },
            });
        }
        let complete = is_refused || (status.is_success() && completion.dw0.get() & COMPLETE != 0);
        if complete {
            self.predecessor = None;
            self.step_deadline = None;
        } else {
            self.pause = Some(now + LOOK_AGAIN);
        }
        Ok(complete)
    }
}

/// What the answer to [`Association::ask_end_of`] says.
pub fn end_of_other(finished: &Finished) -> EndOfOther {
    let Outcome::Answered(completion) = finished.outcome else {
        return EndOfOther::Unknown;
    };
    let status = completion.status();
    if status.is_success() && completion.dw0.get() & COMPLETE != 0 {
        EndOfOther::Over
    } else if status.is_success() || status.is(IN_PROGRESS) || status.is(LIMIT_EXCEEDED) {
        EndOfOther::UnderWay
    } else {
        EndOfOther::Unknown
    }
}
