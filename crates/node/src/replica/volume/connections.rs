//! A copy's connections to the others, and who they are.

use std::time::Duration;

use ashlar_block::Moment;
use ashlar_cluster::{PeerSocket, Versions};
use ashlar_replica::{
    Codec, Event, Incarnation, Members, NodeId, Position, Positions, ReplicaUuid, Revision,
    WIRE_VERSION,
};
use tracing::{debug, warn};

use super::{GRANULE_BYTES, Ground, News, Replicated};
use crate::replica::stream::{Ended, Stream};

/// After a connection was lost, or could not be made: when the next is tried, at first and at most.
const REDIAL: Duration = Duration::from_millis(50);
const REDIAL_MOST: Duration = Duration::from_secs(1);
/// A connection that lasts so long was a good one.
const GOOD_CONNECTION: Duration = Duration::from_secs(1);

/// Messages have the version that their connection has.
const _: () = assert!(WIRE_VERSION as u16 == Versions::OURS.newest());

/// What is known of another copy's node.
#[derive(Default)]
pub(super) struct Peer {
    pub(super) stream: Option<Stream>,
    /// A connection is being made, or is not to be tried before.
    dialling: bool,
    redial_at: Option<Moment>,
    redial: Duration,
    /// Since when there is a connection, or was the last.
    since: Option<Moment>,
    /// Why there is no connection.
    pub(super) trouble: Option<Ended>,
    /// The process of the last connection.
    process: Option<Incarnation>,
}

impl Peer {
    /// The next connection is tried later, the more so the more have failed in a row.
    fn rest(&mut self, now: Moment) {
        self.redial = (self.redial * 2).clamp(REDIAL, REDIAL_MOST);
        self.redial_at = Some(now + self.redial);
    }
}

impl Replicated {
    /// A connection that this node has asked for, or why there is none.
    pub(crate) fn dialled(
        &mut self,
        peer: Position,
        to: NodeId,
        stream: Result<PeerSocket, String>,
        ground: &mut Ground<'_>,
    ) {
        if self.plan.members.get(peer) != Some(to) {
            return;
        }
        let known = &mut self.peers[peer.index()];
        known.dialling = false;
        match stream {
            Ok(socket) => self.connected(peer, socket, ground),
            Err(why) => {
                known.rest(ground.now);
                if known.trouble.as_ref() != Some(&why) {
                    let name = &self.plan.name;
                    warn!(
                        volume = name,
                        "volume {name}: no connection to {peer}: {why}"
                    );
                    known.trouble = Some(why);
                }
            }
        }
    }

    /// A peer has connected.
    pub(crate) fn accepted(&mut self, from: NodeId, socket: PeerSocket, ground: &mut Ground<'_>) {
        match self.plan.members.find(|node| node == from) {
            Some(peer) if peer != self.me => self.connected(peer, socket, ground),
            _ => warn!(
                volume = self.plan.name,
                "volume {}: {from} has no copy of it, and is not heard", self.plan.name
            ),
        }
    }

    fn connected(&mut self, peer: Position, socket: PeerSocket, ground: &mut Ground<'_>) {
        self.lost(peer, "it has connected anew".into(), ground);
        self.next_key += 1;
        let codec = Codec {
            granule_bytes: GRANULE_BYTES as u32,
            version: u8::try_from(socket.version).unwrap_or(u8::MAX),
        };
        let process = socket.incarnation;
        let stream = Stream::new(socket, self.next_key, codec, ground.reactor);
        let known = &mut self.peers[peer.index()];
        known.process = Some(process);
        let mut early = Vec::new();
        let mut opened = Ok(());
        match stream {
            Ok(mut stream) => {
                opened = stream.early(&mut early);
                known.stream = Some(stream);
                known.trouble = None;
                known.since = Some(ground.now);
                debug!(
                    volume = self.plan.name,
                    "volume {}: connected to {peer}", self.plan.name
                );
            }
            Err(why) => known.trouble = Some(why),
        }
        for envelope in early {
            self.received(peer, envelope, ground);
        }
        if let Err(why) = opened {
            self.lost(peer, why, ground);
        }
        self.flush(ground);
    }

    /// A connection is over, if there was one.
    pub(super) fn lost(&mut self, peer: Position, why: Ended, ground: &mut Ground<'_>) {
        let known = &mut self.peers[peer.index()];
        if known.stream.take().is_none() {
            return;
        }
        debug!(
            volume = self.plan.name,
            "volume {}: the connection to {peer} is over: {why}", self.plan.name
        );
        known.trouble = Some(why);
        if known
            .since
            .is_some_and(|at| ground.now.since(at) > GOOD_CONNECTION)
        {
            known.redial = Duration::ZERO;
        }
        known.rest(ground.now);
        self.hear(Event::PeerGone { peer }, ground);
    }

    /// A process is certified dead. One that is newer, and has connected already, is not.
    pub(super) fn died(&mut self, node: NodeId, process: Incarnation, ground: &mut Ground<'_>) {
        let Some(peer) = self.plan.members.find(|member| member == node) else {
            return;
        };
        let last = self.peers[peer.index()].process;
        if last.is_some_and(|last| last <= process) {
            self.lost(peer, "its process has ended".into(), ground);
            self.hear(Event::PeerDied { peer }, ground);
        }
    }

    /// A process ends in order. One that is newer does not.
    pub(crate) fn peer_leaves(
        &mut self,
        node: NodeId,
        process: Incarnation,
        ground: &mut Ground<'_>,
    ) {
        let peer = self.plan.members.find(|member| member == node);
        let is_its = |peer: &Position| self.peers[peer.index()].process == Some(process);
        if let Some(peer) = peer.filter(is_its) {
            self.hear(Event::PeerLeaves { peer }, ground);
        }
    }

    /// When the next connection is to be tried.
    pub(super) fn dials_at(&self) -> Option<Moment> {
        let mine = self.plan.members.iter().filter(|(at, _)| *at > self.me);
        let idle = mine
            .map(|(at, _)| &self.peers[at.index()])
            .filter(|peer| peer.stream.is_none() && !peer.dialling);
        idle.map(|peer| peer.redial_at.unwrap_or(Moment::ORIGIN))
            .min()
    }

    pub(super) fn dial(&mut self, now: Moment) {
        // The node of the lower position connects, so that there is one connection.
        for (peer, node) in self.plan.members.iter().filter(|(peer, _)| *peer > self.me) {
            let known = &mut self.peers[peer.index()];
            let due = known.redial_at.is_none_or(|at| now >= at);
            if known.stream.is_none() && !known.dialling && due {
                known.dialling = true;
                self.outside.dial(node, peer);
            }
        }
    }

    /// Who has copies, as the volume's key says.
    pub(crate) fn seat(&mut self, revision: Revision, members: Members, ground: &mut Ground<'_>) {
        if revision <= self.seated {
            return;
        }
        self.seated = revision;
        let nodes = members.map(|member| member.node);
        let is_its = |replica: ReplicaUuid| [ReplicaUuid::NEW, self.plan.uuid].contains(&replica);
        let mine = members.get(self.me);
        if !mine.is_some_and(|mine| mine.node == self.plan.node && is_its(mine.replica)) {
            // It stays as it is, out of service: what it holds may be wanted yet.
            return self.outside.tell(News::Unseated);
        }
        if nodes == self.plan.members {
            return;
        }
        let before = std::mem::replace(&mut self.plan.members, nodes);
        for position in Position::all().filter(|&at| before.get(at) != nodes.get(at)) {
            self.lost(position, "another copy has its place".into(), ground);
            self.peers[position.index()] = Peer::default();
            self.tally.seated(position);
        }
        // Of those, other nodes have copies that are not in sync.
        self.absent = self.absent.map(|_| Positions::NONE);
        self.outside.tell(News::Members(nodes));
    }
}
