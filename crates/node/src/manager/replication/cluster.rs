//! The cluster as this node sees it, and nodes that are drained.

use std::collections::BTreeSet;
use std::time::Duration;

use ashlar_cluster::{ClusterStatus, NodeConfig, QuorumStatus};
use ashlar_replica::{NodeId, Position};
use rustix::process::{Signal, getpid, kill_process};
use tracing::info;

use super::orders::Order;
use super::{CopyPlace, LOOK_EVERY, Replication, told};
use crate::manager::PoolManager;
use crate::manager::work::seconds;
use crate::model::{
    ClusterToken, ClusterView, ControlError, DrainNode, DrainReply, ForgetNode, KeptVolume,
    MemberOfQuorum, NewToken, NodeOfCluster, NodeRole, NodeState, ProtocolOfCluster,
    QuorumOfCluster, QuorumRole, VolumeStatus,
};
use crate::pool::ReplicaMail;
use crate::replica::{ReplicaView, ResyncView};

/// How long one volume may take until another node serves it.
const MOVE_WAIT: Duration = Duration::from_secs(5);
/// How long a node may take that is drained, whose services are stopped first.
const DRAINED_WITHIN: Duration = Duration::from_secs(60);
/// How long the answer may take to arrive that this node has left.
const LAST_ANSWER: Duration = Duration::from_millis(500);
/// How long a node may take to say that it is not drained, to be preferred for a volume.
const HEIR_WAIT: Duration = Duration::from_millis(500);

impl Replication {
    fn node(&self, node: &NodeConfig, status: &ClusterStatus) -> NodeOfCluster {
        let peers = &status.peers;
        let mut members = status.quorum.members.iter();
        let votes = members.any(|member| status.quorum.is_local && member.name == node.name);
        let mut roles = vec![NodeRole::Storage];
        roles.extend(votes.then_some(NodeRole::Quorum));
        let is_this = node.id == self.cluster.me();
        let peer = peers.iter().find(|peer| peer.id == node.id);
        let drained = match is_this {
            true => Some(self.is_drained()),
            // A node that does not answer is not asked twice.
            false if peer.is_some_and(|peer| peer.reachable) => self.asks_whether_drained(node.id),
            false => None,
        };
        NodeOfCluster {
            name: node.name.clone(),
            id: node.id.0,
            is_this,
            roles,
            state: match drained {
                Some(true) => NodeState::Drained,
                Some(false) => NodeState::Up,
                None => NodeState::Unreachable,
            },
            reason: peer.and_then(|peer| peer.problem.clone().or(peer.refused.clone())),
            replication: node.replication.to_string(),
            portal: node.portal.map(|portal| portal.to_string()),
            incarnation: match is_this {
                true => Some(self.cluster.incarnation().0),
                false => peer.and_then(|peer| peer.incarnation).map(|life| life.0),
            },
        }
    }

    pub(super) fn asks_whether_drained(&self, node: NodeId) -> Option<bool> {
        let answer = self.order(node, &Order::IsDrained).ok()?;
        answer.as_bool()
    }

    /// Who takes each of these volumes over at once: one that says it is not drained, if there is a choice. Each node
    /// is asked once, and all at the same time.
    pub(super) fn heirs_of(&self, views: &[&ReplicaView]) -> Vec<Option<Position>> {
        let undrained = self.undrained(choices(views));
        let heir = |view: &&ReplicaView| {
            let serves = |at: &Position| {
                let node = view.members.get(*at);
                node.is_some_and(|node| undrained.contains(&node))
            };
            heirs(view).find(serves).or_else(|| heirs(view).next())
        };
        views.iter().map(heir).collect()
    }

    /// Those that say in time that they are not drained.
    pub(super) fn undrained(&self, asked: BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        std::thread::scope(|scope| {
            let ask = |node| {
                let thread = std::thread::Builder::new().name("heir".into());
                let asking = thread.spawn_scoped(scope, move || self.says_undrained(node));
                // One that cannot be asked has not said it.
                asking.ok().map(|asking| (node, asking))
            };
            let asking: Vec<_> = asked.into_iter().filter_map(ask).collect();
            let says = asking
                .into_iter()
                .filter_map(|(node, asking)| asking.join().ok()?.then_some(node));
            says.collect()
        })
    }

    fn says_undrained(&self, node: NodeId) -> bool {
        let answer = self.order_within(HEIR_WAIT, node, &Order::IsDrained);
        answer.is_ok_and(|answer| answer.as_bool() == Some(false))
    }
}

impl PoolManager {
    /// The cluster, as this node sees it.
    pub(in crate::manager) fn cluster_view(&self) -> Result<ClusterView, ControlError> {
        let replication = self.replication()?;
        let status = replication.cluster.status();
        let config = replication.cluster.config();
        let nodes = config.nodes.iter();
        let nodes = nodes.map(|node| replication.node(node, &status)).collect();
        let reached = status.peers.iter().filter(|peer| peer.reachable);
        let reached: Vec<NodeId> = reached.map(|peer| peer.id).collect();
        Ok(ClusterView {
            name: status.name,
            id: status.id,
            nodes,
            protocol: Some(ProtocolOfCluster {
                agreed: status.agreed,
                oldest: status.speaks.oldest(),
                newest: status.speaks.newest(),
            }),
            quorum: quorum_of(status.quorum),
            witnesses: status.witnesses,
            volumes: self.volumes_of_cluster(&reached)?,
        })
    }

    /// Makes a token with which a machine can join.
    pub(in crate::manager) fn new_token(
        &self,
        request: &NewToken,
    ) -> Result<ClusterToken, ControlError> {
        let lasts = Duration::from_secs(request.seconds);
        let made = self.replication()?.cluster.token(lasts).map_err(told)?;
        Ok(ClusterToken {
            token: made.token,
            expires: made.expires,
        })
    }

    /// Takes a node that is gone, or a witness, out of the cluster.
    pub(in crate::manager) fn forget_member(
        &self,
        request: &ForgetNode,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let node = &request.node;
        if let Err(problem) = replication.cluster.forget(node) {
            // Keys may be left of volumes that are nowhere.
            let known = replication.cluster.config().node(node).map(|node| node.id);
            let swept = known.map(|node| {
                let is_gone = replication.asks_whether_drained(node).is_none();
                self.drop_orphaned_keys_of(node, is_gone.then_some(node))
            });
            match swept {
                Some(Ok(true)) => replication.cluster.forget(node).map_err(told)?,
                _ => return Err(told(problem)),
            }
        }
        let text = format!("node {node} was forgotten");
        info!("{text}");
        replication.events.add("forgotten", None, text);
        Ok(())
    }

    /// Takes this node out of its cluster, and ends the daemon.
    pub(in crate::manager) fn leave_for_good(&self) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let (mut copies, mut left) = (Vec::new(), Vec::new());
        for copy in self.copies() {
            let key = replication.read_key(copy.volume)?;
            match key.and_then(|key| key.position(replication.cluster.me())) {
                Some(_) => copies.push(copy.name),
                None => left.push(copy.name),
            }
        }
        if copies.is_empty()
            && let Some(first) = left.first()
        {
            return Err(ControlError::conflict(format!(
                "this node has what is left of copies of {}, whose places were given up: delete that first: `ashlar \
                 volume delete {first} --destroy-data` here",
                left.join(", ")
            )));
        }
        if !copies.is_empty() {
            return Err(ControlError::conflict(format!(
                "this node has copies of {}: have another node take its place first: `ashlar node replace {} --with NODE`",
                copies.join(", "),
                replication.node_name(replication.cluster.me())
            )));
        }
        if let Err(problem) = replication.cluster.leave() {
            // As above, of this node's.
            match self.drop_orphaned_keys_of(replication.cluster.me(), None) {
                Ok(true) => replication.cluster.leave().map_err(told)?,
                _ => return Err(told(problem)),
            }
        }
        info!("this node has left its cluster; the daemon ends");
        let end = || {
            std::thread::sleep(LAST_ANSWER);
            if let Err(error) = kill_process(getpid(), Signal::TERM) {
                tracing::error!("the daemon does not end by itself: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("leave".into()).spawn(end);
        let no_thread =
            |error| ControlError::environment(format!("cannot start a thread: {error}"));
        thread.map(drop).map_err(no_thread)
    }

    /// Has others serve a node's volumes, or lets it serve again.
    pub(in crate::manager) fn drain_node(
        &self,
        request: &DrainNode,
    ) -> Result<DrainReply, ControlError> {
        let replication = self.replication()?;
        let node = replication.node_named(&request.node)?;
        if node == replication.cluster.me() {
            return self.drain_here(request.drain);
        }
        let drain = request.drain;
        let answer = replication.order_within(DRAINED_WITHIN, node, &Order::Drain { drain })?;
        serde_json::from_value(answer).map_err(|error| ControlError::internal(error.to_string()))
    }

    /// Drains this node: first all volumes that can, then it counts as drained if none is left.
    pub(super) fn drain_here(&self, drain: bool) -> Result<DrainReply, ControlError> {
        let replication = self.replication()?;
        let mut reply = DrainReply::default();
        if drain {
            reply.kept = self.drain_services();
            let mut places = self.copies();
            // Taken from a service that is being stopped, it would be killed.
            places.retain(|place| reply.kept.iter().all(|kept| kept.volume != place.name));
            reply.kept.extend(self.plain_in_use());
            for place in places {
                match self.give_away(&place) {
                    Ok(false) => {}
                    Ok(true) => reply.moved.push(place.name),
                    Err(error) => reply.kept.push(KeptVolume {
                        volume: place.name,
                        reason: error.message,
                    }),
                }
            }
        }
        let drained = drain && reply.kept.is_empty();
        self.state.update(|state| state.drained = drained)?;
        let (kind, text) = match (drain, drained) {
            (true, true) => ("drained", "this node is drained: others serve its volumes"),
            (true, false) => return Ok(reply),
            (false, _) => ("undrained", "this node may serve volumes again"),
        };
        info!("{text}");
        replication.events.add(kind, None, text.to_owned());
        Ok(reply)
    }

    /// Volumes of one copy, not replicated, that hosts use: they lose them with this node.
    fn plain_in_use(&self) -> Vec<KeptVolume> {
        let mut all = self.all_volumes();
        all.retain(|one| one.replication.is_none() && !one.connected_hosts.is_empty());
        let kept = |one: VolumeStatus| KeptVolume {
            volume: format!("{}/{}", one.pool, one.name),
            reason: format!(
                "it has one copy, here, and is used by {}",
                one.connected_hosts.join(", ")
            ),
        };
        all.into_iter().map(kept).collect()
    }

    /// Has another node serve a volume, if this one does.
    fn give_away(&self, place: &CopyPlace) -> Result<bool, ControlError> {
        let view = || {
            let look = |reply| ReplicaMail::Look { reply };
            let view = place.pool.ask_replica(place.number, look);
            let view = view.map_err(crate::manager::pools::engine)?;
            view.ok_or_else(|| ControlError::environment("its copy here is not in service"))
        };
        let seen = view()?;
        if seen.owns.is_none() {
            return Ok(false);
        }
        let to = self.replication()?.heirs_of(&[&seen]).pop().flatten();
        let to = to.ok_or_else(|| self.no_heir(&seen))?;
        self.asks_who_decides()?;
        place
            .pool
            .post_to_replica(place.number, ReplicaMail::Move { to });
        let begun = std::time::Instant::now();
        while view()?.owns.is_some() {
            if begun.elapsed() > MOVE_WAIT {
                let seconds = MOVE_WAIT.as_secs();
                let why = format!(
                    "{to} has not taken it over within {seconds} s, or the quorum did not answer"
                );
                return Err(ControlError::environment(why));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(true)
    }

    fn no_heir(&self, view: &ReplicaView) -> ControlError {
        if view.is_unproven {
            return unproven();
        }
        let name = |node| match &self.replication {
            Some(replication) => replication.node_name(node),
            None => node.to_string(),
        };
        let others = view.members.iter().filter(|(at, _)| *at != view.position);
        let others = others.map(|(at, node)| {
            let missing = view.missing_bytes.get(at.index()).copied().unwrap_or(0);
            let resync = view.resyncs.get(at.index()).copied().unwrap_or_default();
            match view.connected.has(at) {
                true => format!(
                    "the copy on {} is not in sync: {}",
                    name(node),
                    until_in_sync(missing, resync)
                ),
                false => format!("node {} is not reached", name(node)),
            }
        });
        let why: Vec<String> = others.collect();
        match why.is_empty() {
            true => ControlError::conflict("it has no other copy"),
            false => ControlError::conflict(why.join("; ")),
        }
    }

    /// A copy's name for people, by its volume.
    pub(super) fn name_of(&self, volume: uuid::Uuid) -> Option<String> {
        let mut known = self.copies().into_iter();
        known
            .find(|copy| copy.volume == volume)
            .map(|copy| copy.name)
    }
}

fn quorum_of(quorum: QuorumStatus) -> QuorumOfCluster {
    let role = |role| match role {
        ashlar_cluster::QuorumRole::Leader => QuorumRole::Leader,
        ashlar_cluster::QuorumRole::Voter => QuorumRole::Voter,
        ashlar_cluster::QuorumRole::Learner => QuorumRole::Learner,
        ashlar_cluster::QuorumRole::Unreachable => QuorumRole::Unreachable,
    };
    let members = quorum.members.into_iter().map(|member| MemberOfQuorum {
        name: member.name,
        endpoint: member.endpoint,
        role: role(member.role),
        reason: member.problem,
    });
    let members: Vec<MemberOfQuorum> = members.collect();
    QuorumOfCluster {
        endpoints: quorum.endpoints,
        reachable: quorum.reachable,
        reason: quorum.problem,
        local: quorum.is_local,
        advice: match quorum.reachable {
            true => advice(quorum.is_local, &members),
            false => Some(revival(quorum.is_local, members.len())),
        },
        members,
    }
}

/// What brings a quorum back that does not answer.
fn revival(is_local: bool, members: usize) -> String {
    let majority = members / 2 + 1;
    match (is_local, members) {
        (true, 1..) => format!(
            "start the machines of its members (`ashlar node --dir DIR`, `ashlar witness --dir DIR`), {majority} of \
             {members} have to run"
        ),
        (true, 0) => "start the machines of its members (`ashlar node --dir DIR`, `ashlar witness --dir DIR`): more \
                      than half have to run"
            .to_owned(),
        (false, _) => "look at etcd: more than half of its members have to run, and to be reached from here; \
                       until then volumes are served where they are, and no node takes one over"
            .to_owned(),
    }
}

/// What keeps a quorum from surviving the end of a machine.
fn advice(is_local: bool, members: &[MemberOfQuorum]) -> Option<String> {
    let away = members
        .iter()
        .filter(|one| one.role == QuorumRole::Unreachable);
    let away: Vec<&str> = away.map(|member| member.name.as_str()).collect();
    let votes = |one: &&MemberOfQuorum| matches!(one.role, QuorumRole::Leader | QuorumRole::Voter);
    let voters = members.iter().filter(votes).count();
    if !away.is_empty() {
        return Some(format!(
            "{} of its {} members does not answer: {}; start it (`ashlar node --dir DIR`, or `ashlar witness --dir \
             DIR`, there); if its directory or its etcd is damaged or lost, `ashlar cluster join TOKEN --rejoin` there \
             (`ashlar witness --join TOKEN --rejoin`); if it is gone for good, `ashlar node forget NODE`, and let another \
             join (`ashlar cluster token`)",
            away.len(),
            members.len(),
            away.join(", ")
        ));
    }
    let troubled = members
        .iter()
        .find_map(|one| Some((one, one.reason.as_ref()?)));
    if let Some((member, why)) = troubled {
        return Some(format!("etcd of {}: {why}", member.name));
    }
    match (is_local, voters) {
        (false, _) | (true, 3..) => None,
        (true, _) if members.len() < 3 => Some(format!(
            "{voters} voting of 3 that it needs to survive a machine's end: let another node join, or a witness \
             (`ashlar cluster token`, then `ashlar witness --join TOKEN`)"
        )),
        (true, _) => Some("a member is catching up, and votes soon".to_owned()),
    }
}

/// What is left until a copy can take over, and for how long.
fn until_in_sync(missing: u64, resync: ResyncView) -> String {
    match (missing, resync.left) {
        (0, _) => "it has everything, and is being compared".to_owned(),
        (_, None) => format!("{missing} bytes are left"),
        (_, Some(left)) => format!(
            "{missing} bytes are left, for {} s at the present rate",
            seconds(left)
        ),
    }
}

/// Why nothing is handed over for a while.
pub(super) fn unproven() -> ControlError {
    ControlError::conflict(
        "its copies are being compared, for its owner has heard of none before it: a copy may have come back as it was at \
         another time, and must not serve. Try again when that is done (`volume show` says when it was)",
    )
}

/// Who can take a volume over at once.
fn heirs(view: &ReplicaView) -> impl Iterator<Item = Position> {
    let can =
        move |at: &Position| !view.is_unproven && !view.absent.has(*at) && view.connected.has(*at);
    Position::all().filter(can)
}

/// The nodes among which there is a choice.
fn choices(views: &[&ReplicaView]) -> BTreeSet<NodeId> {
    let several = views.iter().filter(|view| heirs(view).nth(1).is_some());
    let nodes = several.flat_map(|view| heirs(view).filter_map(|at| view.members.get(at)));
    nodes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_drain_says_what_is_left_and_for_how_long() {
        let view = |left: Option<u64>| ResyncView {
            percent: None,
            left: left.map(Duration::from_secs),
        };
        for (missing, left, words) in [
            (0, None, "it has everything, and is being compared"),
            (4096, None, "4096 bytes are left"),
            (
                4096,
                Some(7),
                "4096 bytes are left, for 7 s at the present rate",
            ),
        ] {
            assert_eq!(until_in_sync(missing, view(left)), words);
        }
    }
}
