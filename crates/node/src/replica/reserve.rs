//! Reservations of a replicated volume: decided by its owner, one petition after the other, and kept in the volume's
//! register, which is replicated like what hosts write.
//!
//! An owner knows the table when it has read the register, before it serves any host. A change counts when it is
//! committed; what is refused, or told, is answered when the register was read again: an owner that has been succeeded
//! and does not know it says nothing.

use std::collections::VecDeque;

use ashlar_nvme::Status;
use ashlar_replica::{CommandId, Content, Event, HostOperation, Label, Origin, Outcome};
use ashlar_target::{Answer, DecidedReservations, Petition, Table, Verdict, Wants};
use bytes::Bytes;

const GRANULE: usize = 4096;
/// Tells these commands from those of hosts.
const OURS: u64 = 1 << 63;

/// A petition that is being decided.
struct Current {
    command: CommandId,
    verdict: Verdict,
    /// What is reserved if it is granted; nothing if that stays as it is.
    table: Option<Table>,
    answer: Answer,
}

/// A copy's part in its volume's reservations.
pub(super) struct Reserve {
    shown: DecidedReservations,
    /// As the register says it, while this node owns the volume.
    table: Option<Table>,
    current: Option<Current>,
    waiting: VecDeque<(Petition, Answer)>,
    commands: u64,
}

impl Reserve {
    pub(super) fn new(shown: DecidedReservations) -> Self {
        Self {
            shown,
            table: None,
            current: None,
            waiting: VecDeque::new(),
            commands: 0,
        }
    }

    /// What the register holds, at the beginning of an epoch.
    ///
    /// # Errors
    /// It is no table. What may be reserved is not served unreserved.
    pub(super) fn learn(&mut self, register: &[u8]) -> Result<(), String> {
        let table = table_of(register)?;
        self.shown.publish(&table);
        self.table = Some(table);
        Ok(())
    }

    /// This node does not own the volume any more: it decides nothing.
    pub(super) fn forget(&mut self) {
        self.table = None;
        self.current = None;
        self.waiting.clear();
    }

    /// A petition joins the line; on a node that does not decide it fails on this path.
    pub(super) fn take(&mut self, petition: Petition, answer: Answer) {
        match self.table {
            Some(_) => self.waiting.push_back((petition, answer)),
            None => answer.give(Verdict::of(Status::ANA_INACCESSIBLE)),
        }
    }

    /// What the replica is to hear for the next petition, if it is its turn. `label` is what its association would be
    /// given now.
    pub(super) fn next(&mut self, label: impl Fn(Origin) -> Option<Label>) -> Option<Event> {
        while self.current.is_none() {
            let (petition, answer) = self.waiting.pop_front()?;
            if let Some(event) = self.begin(petition, answer, &label) {
                return Some(event);
            }
        }
        None
    }

    fn begin(
        &mut self,
        petition: Petition,
        answer: Answer,
        label: impl Fn(Origin) -> Option<Label>,
    ) -> Option<Event> {
        let before = self.table.as_ref()?;
        let mut table = before.clone();
        let verdict = table.decide(petition.host, petition.wants);
        self.commands += 1;
        let command = CommandId(OURS | self.commands);
        let origin = Origin {
            host: petition.provenance.host,
            association: petition.provenance.association,
        };
        let label = match petition.wants {
            // It comes by the admin queue, whose commands have no labels.
            Wants::Persist(_) => label(origin),
            Wants::Change(_) | Wants::Report => petition.provenance.label,
        };
        let is_changed = table != *before;
        let operation = match (is_changed, label) {
            (false, _) => HostOperation::GetRegister,
            (true, Some(label)) => HostOperation::SetRegister {
                content: register_of(&table),
                origin,
                label,
            },
            (true, None) => {
                answer.give(Verdict::of(Status::ANA_TRANSITION));
                return None;
            }
        };
        self.current = Some(Current {
            command,
            verdict,
            table: is_changed.then_some(table),
            answer,
        });
        Some(Event::Host { command, operation })
    }

    /// Whether the replica's answer is to this.
    pub(super) const fn asked(command: CommandId) -> bool {
        command.0 & OURS != 0
    }

    /// The replica has answered.
    pub(super) fn answered(&mut self, command: CommandId, outcome: &Outcome) {
        let is_it = |current: &mut Current| current.command == command;
        let Some(current) = self.current.take_if(is_it) else {
            return;
        };
        match outcome {
            Outcome::Written | Outcome::Read(_) => {
                if let Some(table) = current.table {
                    self.shown.publish(&table);
                    self.table = Some(table);
                }
                current.answer.give(current.verdict);
            }
            Outcome::NotOwner => current.answer.give(Verdict::of(Status::ANA_INACCESSIBLE)),
            Outcome::Stale | Outcome::PathGone => {
                current.answer.give(Verdict::of(Status::ANA_TRANSITION));
            }
            Outcome::Failed | Outcome::OutOfRange => {
                current.answer.give(Verdict::of(Status::INTERNAL_ERROR));
            }
        }
    }
}

/// The table in a register; a new volume's holds zeroes.
fn table_of(register: &[u8]) -> Result<Table, String> {
    if register.iter().all(|&byte| byte == 0) {
        return Ok(Table::default());
    }
    Table::decode_padded(register).map_err(|error| format!("its register is damaged: {error}"))
}

fn register_of(table: &Table) -> Content {
    let mut bytes = table.encode();
    bytes.resize(GRANULE, 0);
    Content::Data(Bytes::from(bytes))
}

#[cfg(test)]
mod tests;
