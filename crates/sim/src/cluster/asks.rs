//! What hosts of a cluster want reserved.

use ashlar_nvme::reservation::{AcquireAction, Ask, Persistence, RegisterAction, ReservationType};
use ashlar_nvme_target::Wants;

use crate::chance::Chance;

/// Of one type in a world. Nothing is released: so a host that has lost its rights gets them back by what it asks for
/// itself, and never by what another does.
#[derive(Debug)]
pub(crate) struct Asks {
    chance: Chance,
    kind: ReservationType,
    /// Of a thousand commands.
    often: u32,
}

/// The key of a writer.
const fn key(writer: usize) -> u64 {
    writer as u64 + 1
}

impl Asks {
    pub(crate) fn draw_up(mut chance: Chance) -> Self {
        let kind = chance.pick(&[
            ReservationType::WriteExclusive,
            ReservationType::WriteExclusiveRegistrants,
            ReservationType::WriteExclusiveRegistrants,
            ReservationType::ExclusiveAccess,
            ReservationType::ExclusiveAccessRegistrants,
        ]);
        let often = chance.pick(&[60, 200, 400]);
        Self {
            chance,
            kind,
            often,
        }
    }

    /// What a writer wants now, if anything. A fenced one is to be let in again.
    pub(crate) fn draw(&mut self, writer: usize, others: u64, is_fenced: bool) -> Option<Wants> {
        let often = if is_fenced { 700 } else { self.often };
        if !self.chance.happens(often) {
            return None;
        }
        let registers = if is_fenced { 600 } else { 200 };
        if self.chance.happens(registers) {
            return Some(Wants::Change(Ask::Register {
                action: RegisterAction::Register,
                ignores_key: false,
                persistence: Persistence::Unchanged,
                current: 0,
                new: key(writer),
            }));
        }
        let other = (writer + 1 + self.chance.below(others) as usize) % (others as usize + 1);
        let action = match self.chance.below(8) {
            0 => return Some(Wants::Report),
            1 | 2 => AcquireAction::Acquire,
            3 => AcquireAction::PreemptAndAbort,
            _ => AcquireAction::Preempt,
        };
        Some(Wants::Change(Ask::Acquire {
            action,
            kind: self.kind,
            current: key(writer),
            preempted: match action {
                AcquireAction::Acquire => 0,
                _ => key(other),
            },
        }))
    }
}
