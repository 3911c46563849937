//! What is said of a world that did not come to rest.

use super::*;

impl World<'_> {
    pub(super) fn stuck(&self) -> String {
        format!("{HEALING:?} after faults have ended: {}", self.state())
    }

    /// What is waited for, and where nodes are.
    pub(super) fn state(&self) -> String {
        let mut what = format!(
            "in sync {:?} of {}, {}",
            self.seen.key.in_sync, self.seen.key.epoch, self.seen.key.owner.node
        );
        for (n, writer) in self.hosts.writers.iter().enumerate() {
            if let Doing::Busy(command) = &writer.doing {
                let kind = match command.what {
                    What::Write(_) => "write",
                    What::Read(_) => "read",
                    What::Ask => "change of reservations",
                };
                what += &format!("; writer {n}'s {kind} of {} waits", command.extent);
            }
        }
        let unanswered = self.unanswered();
        if !unanswered.is_empty() {
            what += &format!("; {unanswered:?} are not answered");
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let Some(replica) = &node.replica else {
                continue;
            };
            let state = match (replica.owns(), replica.is_serving(), replica.follows()) {
                (Some(epoch), true, _) => format!("serves {epoch}"),
                (Some(epoch), false, _) => format!("prepares {epoch}"),
                (None, _, true) => "follows".into(),
                (None, _, false) => "waits".into(),
            };
            let uncertain = ashlar_replica::Local::uncertain(&node.store);
            what += &format!(
                "; node {n} {state}, {:?}, uncertain {uncertain:?}",
                node.store.entry()
            );
        }
        what
    }
}
