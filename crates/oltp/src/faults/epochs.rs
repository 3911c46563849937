//! All writes of a round, each traced to the epoch in which it was taken.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::trace::{Ack, stale};
use super::watch::Probe;

/// What was acknowledged in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Of a service on a volume with copies, the volume's; otherwise the timeline.
    pub epoch: i64,
    /// Whose servers took our own writes in it: of an epoch there is one.
    pub nodes: Vec<String>,
    /// Clients' transactions.
    pub transactions: usize,
    /// Writes of our own, past the listener.
    pub probes: usize,
}

/// Writes of clients and of our own that an older server began beside a newer one.
pub(super) fn stale_of(acks: &[Ack], probes: &[Probe]) -> usize {
    let probes = probes.iter().map(|probe| probe.ack);
    let all: Vec<Ack> = acks.iter().copied().chain(probes).collect();
    stale(&all)
}

/// What was acknowledged in each epoch, the oldest first.
pub(super) fn epochs(acks: &[Ack], probes: &[Probe]) -> Vec<Epoch> {
    let mut all: BTreeMap<i64, Epoch> = BTreeMap::new();
    for ack in acks {
        of(&mut all, ack).transactions += 1;
    }
    for probe in probes {
        let epoch = of(&mut all, &probe.ack);
        epoch.probes += 1;
        if !epoch.nodes.contains(&probe.node) {
            epoch.nodes.push(probe.node.clone());
        }
    }
    all.into_values().collect()
}

fn of<'a>(all: &'a mut BTreeMap<i64, Epoch>, ack: &Ack) -> &'a mut Epoch {
    let epoch = ack.server.0.epoch;
    all.entry(epoch).or_insert_with(|| Epoch {
        epoch,
        ..Epoch::default()
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::trace::Server;
    use super::*;
    use crate::database::ServerStart;

    #[test]
    fn writes_of_clients_and_our_own_are_counted_by_their_epoch() {
        let base = Instant::now();
        let ack = |epoch, at: u64| Ack {
            server: Server(ServerStart {
                epoch,
                started_us: epoch,
            }),
            begun: base + Duration::from_millis(at),
            at: base + Duration::from_millis(at + 5),
        };
        let probe = |node: &str, ack| Probe {
            number: 1,
            node: node.into(),
            ack,
        };
        let acks = [ack(4, 0), ack(4, 10), ack(7, 40)];
        let mut probes = vec![probe("a", ack(4, 5)), probe("b", ack(7, 45))];
        let wanted = [
            Epoch {
                epoch: 4,
                nodes: vec!["a".into()],
                transactions: 2,
                probes: 1,
            },
            Epoch {
                epoch: 7,
                nodes: vec!["b".into()],
                transactions: 1,
                probes: 1,
            },
        ];
        assert_eq!(epochs(&acks, &probes), wanted);
        assert_eq!(stale_of(&acks, &probes), 0);
        // A write of our own that an old primary took beside the new one, and one in an epoch that was another node's.
        probes.push(probe("a", ack(4, 50)));
        probes.push(probe("a", ack(7, 60)));
        assert_eq!(stale_of(&acks, &probes), 1);
        assert_eq!(epochs(&acks, &probes)[1].nodes, ["b", "a"]);
    }
}
