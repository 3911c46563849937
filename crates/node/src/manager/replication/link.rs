use std::sync::mpsc::Sender;

use ashlar_cluster::{Cluster, volume_id};
use ashlar_replica::quorum::Question;
use ashlar_replica::{Ask, NodeId, Position};
use uuid::Uuid;

use super::news::Item;
use crate::pool::{PoolLink, ReplicaMail};
use crate::replica::{News, Outside};

/// A copy's way to its quorum, its peers and its manager.
pub(super) struct Link {
    pub(super) cluster: Cluster,
    pub(super) volume: Uuid,
    pub(super) number: u32,
    pub(super) pool: PoolLink,
    pub(super) news: Sender<Item>,
}

impl Outside for Link {
    fn ask(&self, ask: Ask, question: Question) {
        let (pool, number) = (self.pool.clone(), self.number);
        self.cluster
            .ask_with_group(self.volume, question, move |reply| {
                pool.post_to_replica(number, ReplicaMail::Answered { ask, reply });
            });
    }

    fn dial(&self, to: NodeId, peer: Position) {
        let (pool, number) = (self.pool.clone(), self.number);
        let deliver = move |stream| {
            pool.post_to_replica(number, ReplicaMail::Dialled { peer, to, stream });
        };
        self.cluster.dial(to, volume_id(self.volume), deliver);
    }

    fn tell(&self, news: News) {
        // Nothing reads it when the node ends.
        let _ = self.news.send(Item {
            volume: self.volume,
            news,
        });
    }
}
