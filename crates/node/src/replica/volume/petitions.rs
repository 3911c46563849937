//! What hosts want reserved, and what of theirs has come to other nodes.

use ashlar_block::Provenance;
use ashlar_nvme_target::{Answer, Petition};
use ashlar_replica::{Event, HostCommand, HostOperation, Outcome, Position};

use super::{Ground, News, Replicated};
use crate::replica::reserve::{Asker, Decided, ReservedNews};
use crate::replica::words;

impl Replicated {
    /// A host's command on reservations.
    pub(crate) fn petition(&mut self, petition: Petition, answer: Answer, ground: &mut Ground<'_>) {
        self.reserve_for(petition, Asker::Here(answer), ground);
    }

    fn reserve_for(&mut self, petition: Petition, asker: Asker, ground: &mut Ground<'_>) {
        if self.is_over {
            // Nothing would answer it.
            return self.reserve.refuse(asker);
        }
        if let Some(event) = self.reserve.take(petition, asker) {
            self.hear(event, ground);
        }
        self.decide(ground);
    }

    /// A host's command has come from another node: whether it may is judged here, by what is reserved now.
    pub(super) fn forwarded(
        &mut self,
        by: Position,
        of_host: HostCommand,
        ground: &mut Ground<'_>,
    ) {
        let HostCommand {
            command,
            registrant,
            operation,
        } = of_host;
        if let HostOperation::Consult {
            question,
            origin,
            label,
        } = operation
        {
            let Ok(wants) = words::to_wants(&question) else {
                let outcome = Outcome::Failed;
                return self.hear(Event::Decided { command, outcome }, ground);
            };
            let provenance = Provenance {
                host: origin.host,
                registrant,
                association: origin.association,
                label: Some(label),
                here_only: false,
            };
            let petition = Petition { provenance, wants };
            return self.reserve_for(petition, Asker::There { by, command }, ground);
        }
        let writes = !matches!(operation, HostOperation::Read { .. });
        let event = match self.reserve.lets(registrant, writes) {
            true => Event::Host(HostCommand {
                command,
                registrant,
                operation,
            }),
            false => Event::Decided {
                command,
                outcome: Outcome::Reserved,
            },
        };
        self.hear(event, ground);
    }

    /// Decides on what hosts want reserved, as far as the replica can be asked now.
    pub(super) fn decide(&mut self, ground: &mut Ground<'_>) {
        let replica = &self.replica;
        if let Some(event) = self.reserve.next(|origin| replica.label(origin)) {
            self.hear(event, ground);
        }
        for event in self.reserve.take_decided() {
            self.hear(event, ground);
        }
        for Decided { news, by } in self.reserve.take_news() {
            let others = self.plan.members.iter();
            let others = others.filter(|&(at, _)| at != self.me && Some(at) != by);
            self.outside.tell(News::Reserved(ReservedNews {
                news,
                is_for_this_node: by.is_some(),
                nodes: others.map(|(_, node)| node).collect(),
            }));
        }
    }
}
