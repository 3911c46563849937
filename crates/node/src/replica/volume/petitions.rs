//! What hosts want reserved, and what of theirs has come to other nodes.

use ashlar_nvme_target::{Answer, Petition};
use ashlar_replica::{HostCommand, Position};
use ashlar_rights::{Asker, Decided, ReservedNews};

use super::{Ground, News, Replicated};

impl Replicated {
    /// A host's command on reservations.
    pub(crate) fn petition(&mut self, petition: Petition, answer: Answer, ground: &mut Ground<'_>) {
        let asker = Asker::Here(answer);
        if self.is_over {
            // Nothing would answer it.
            return self.reserve.refuse(asker);
        }
        if let Some(event) = self.reserve.take(petition, asker) {
            self.hear(event, ground);
        }
        self.decide(ground);
    }

    /// A host's command has come from another node.
    pub(super) fn forwarded(
        &mut self,
        by: Position,
        of_host: HostCommand,
        ground: &mut Ground<'_>,
    ) {
        if let Some(event) = self.reserve.forwarded(by, of_host) {
            self.hear(event, ground);
        }
        self.decide(ground);
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
