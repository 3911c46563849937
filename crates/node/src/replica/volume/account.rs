//! What is shown of a copy.

use ashlar_block::Moment;
use ashlar_copy::missed;
use ashlar_replica::Position;
use ashlar_store::Engine;

use super::connections::Peer;
use super::{GRANULE_BYTES, News, ReplicaView, Replicated};
use crate::replica::resync::Seen;

impl Replicated {
    /// What a copy misses, as this one knows.
    pub(super) fn missing_bytes(&self, engine: &Engine, position: Position) -> u64 {
        let marked = missed(engine, self.copy.volume(), position);
        // Of a new copy an owner that took over may have marked less.
        let left = self.replica.missing(position).unwrap_or(0);
        marked.max(left) * GRANULE_BYTES
    }

    /// How the owner sees a copy's resync; one that is no owner sees none.
    pub(super) fn seen(&self, engine: &Engine, position: Position) -> Seen {
        let is_absent = self.copy.entry().absent.has(position);
        let peer = self.peers.get(position.index());
        let is_connected = peer.is_some_and(|peer| peer.stream.is_some());
        match self.replica.owns().is_some() && is_absent && is_connected {
            false => Seen::Idle,
            true => Seen::Filled {
                left: self.missing_bytes(engine, position),
                volume: self.copy.shape().granules * GRANULE_BYTES,
            },
        }
    }

    /// Says who is not in sync, if that has changed.
    pub(super) fn tell_absent(&mut self) {
        let absent = self.copy.entry().absent;
        if self.absent == Some(absent) {
            return;
        }
        let nodes = absent.iter().filter_map(|at| self.plan.members.get(at));
        // One that was away itself hears late of what has happened meanwhile.
        let is_seen = self.absent.is_some() && !absent.has(self.me);
        self.outside.tell(News::Absent {
            nodes: nodes.collect(),
            is_seen,
        });
        self.absent = Some(absent);
    }

    pub(crate) fn view(&self, engine: &Engine, now: Moment) -> ReplicaView {
        let has = |peer: &Peer| peer.stream.is_some();
        let connected = self.peers.iter().enumerate().filter(|(_, peer)| has(peer));
        let missing = |position| self.missing_bytes(engine, position);
        let resync = |position| {
            let seen = self.seen(engine, position);
            self.resyncs.view(now, position, seen)
        };
        ReplicaView {
            position: self.me,
            uuid: self.plan.uuid,
            members: self.plan.members,
            owns: self.replica.owns(),
            serves: self.replica.is_serving() && self.replica.reads(now),
            promised: self.copy.entry().promised,
            session: self.copy.entry().session,
            granules: self.copy.shape().granules,
            size: self.size,
            said_size: self.replica.said_size(),
            absent: self.copy.entry().absent,
            missing_bytes: Position::all().map(missing).collect(),
            resyncs: Position::all().map(resync).collect(),
            tally: self.tally,
            connected: connected
                .filter_map(|(index, _)| Position::new(index))
                .collect(),
            proof: self.proof.clone(),
            published: engine.published(),
            is_old_image: self.lacks(),
            is_unproven: self.replica.is_unproven(),
            troubles: self.peers.iter().map(|peer| peer.trouble.clone()).collect(),
        }
    }
}
