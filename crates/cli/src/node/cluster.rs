//! `ashlar cluster`, and `ashlar node drain`.

use ashlar_node::model::{
    ClusterView, DrainNode, DrainReply, MemberOfQuorum, NodeOfCluster, ProtocolOfCluster,
    ReplicaStatus, VolumeOfCluster,
};

use super::Api;
use super::membership::{self, Machine};
use super::replace;
use super::replication::resync;
use super::table::{lines, table, word};
use crate::args::{ApiOptions, ClusterCommand, NodeCommand};
use crate::exit::Failure;

pub(crate) fn run(command: &ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Init {
            cluster,
            place,
            listen,
            quorum,
        } => membership::init(cluster, (place, *listen), quorum),
        ClusterCommand::Token { minutes, api } => membership::token(*minutes, api),
        ClusterCommand::Join {
            token,
            place,
            listen,
            rejoin,
        } => {
            let machine = Machine {
                place,
                listen: *listen,
                rejoins: *rejoin,
            };
            membership::join_as_node(token, &machine)
        }
        ClusterCommand::Leave { api } => membership::leave(api),
        ClusterCommand::Recover {
            dir,
            others_are_lost,
        } => membership::recover(dir, *others_are_lost),
        ClusterCommand::Status { api } => {
            let api = Api::new(api)?;
            api.show(&api.client.cluster()?, show)
        }
    }
}

/// `ashlar node drain` and `undrain`.
pub(crate) fn node(command: &NodeCommand) -> Result<(), Failure> {
    match command {
        NodeCommand::Drain { node, api } => drain(node, true, api),
        NodeCommand::Forget { node, api } => membership::forget(node, api),
        NodeCommand::Replace { node, with, api } => replace::replace(node, with, api),
        NodeCommand::Undrain { node, api } => drain(node, false, api),
    }
}

fn drain(node: &str, drain: bool, api: &ApiOptions) -> Result<(), Failure> {
    let api = Api::new(api)?;
    let request = DrainNode {
        node: node.to_owned(),
        drain,
    };
    let reply = api.client.drain(&request)?;
    api.show(&reply, |reply| drained(node, drain, reply))?;
    match reply.kept.len() {
        0 => Ok(()),
        count => Err(Failure::environment(format!(
            "node {node} is not drained: {count} of its volumes cannot be served by others now"
        ))),
    }
}

fn drained(node: &str, drain: bool, reply: &DrainReply) -> String {
    let mut text: String = reply
        .moved
        .iter()
        .map(|volume| format!("{volume}: served by another node now\n"))
        .collect();
    for kept in &reply.kept {
        text.push_str(&format!("{}: stays: {}\n", kept.volume, kept.reason));
    }
    match (drain, reply.kept.is_empty()) {
        (true, true) => text.push_str(&format!("node {node} is drained\n")),
        (true, false) => {}
        (false, _) => text.push_str(&format!("node {node} may serve volumes again\n")),
    }
    text
}

fn show(cluster: &ClusterView) -> String {
    let quorum = match (&cluster.quorum.reason, cluster.quorum.reachable) {
        (_, true) => format!("answers ({})", cluster.quorum.endpoints.join(", ")),
        (Some(why), false) => format!("does not answer: {why}"),
        (None, false) => "has not been asked yet".to_owned(),
    };
    let mut shown = vec![
        ("cluster", format!("{} ({})", cluster.name, cluster.id)),
        ("quorum", quorum),
    ];
    shown.extend(cluster.protocol.map(|known| ("protocol", protocol(known))));
    if let Some(advice) = &cluster.quorum.advice {
        shown.push(("to do", advice.clone()));
    }
    shown.extend(cluster.volumes.iter().filter_map(|volume| {
        let advice = volume.replication.advice.as_ref()?;
        Some(("to do", format!("{}: {advice}", volume.volume)))
    }));
    let mut text = lines(&shown);
    if cluster.quorum.local {
        let members: Vec<_> = cluster.quorum.members.iter().map(member_row).collect();
        text.push('\n');
        text.push_str(&table(&["quorum on", "state", "etcd"], &members));
    }
    let nodes: Vec<_> = cluster.nodes.iter().map(node_row).collect();
    text.push('\n');
    text.push_str(&table(
        &["node", "roles", "state", "portal", "replication"],
        &nodes,
    ));
    if !cluster.witnesses.is_empty() {
        let witnesses = cluster.witnesses.iter();
        let witnesses: Vec<_> = witnesses.map(|name| vec![name.clone()]).collect();
        text.push('\n');
        text.push_str(&table(&["witness"], &witnesses));
    }
    if !cluster.volumes.is_empty() {
        let volumes: Vec<_> = cluster.volumes.iter().map(volume_row).collect();
        text.push('\n');
        text.push_str(&table(&["volume", "owner", "epoch", "copies"], &volumes));
    }
    text
}

/// What nodes say to each other.
fn protocol(known: ProtocolOfCluster) -> String {
    let ProtocolOfCluster {
        agreed,
        oldest,
        newest,
    } = known;
    let speaks = match oldest == newest {
        true => format!("version {newest}"),
        false => format!("versions {oldest} to {newest}"),
    };
    match agreed {
        Some(agreed) if agreed == newest => format!("version {agreed}, agreed on by all nodes"),
        Some(agreed) => format!(
            "version {agreed}, agreed on by all nodes; the asked one speaks {speaks}: upgrade the others"
        ),
        None => format!("{speaks}: each connection has the newest that both nodes speak"),
    }
}

fn member_row(member: &MemberOfQuorum) -> Vec<String> {
    let mut state = word(member.role);
    if let Some(why) = &member.reason {
        state.push_str(&format!(": {why}"));
    }
    vec![member.name.clone(), state, member.endpoint.clone()]
}

fn node_row(node: &NodeOfCluster) -> Vec<String> {
    let this = if node.is_this { " (asked)" } else { "" };
    let mut state = word(node.state);
    if let Some(why) = &node.reason {
        state.push_str(&format!(": {why}"));
    }
    let roles: Vec<String> = node.roles.iter().map(word).collect();
    vec![
        format!("{}{this}", node.name),
        roles.join(", "),
        state,
        node.portal.clone().unwrap_or_else(|| "-".into()),
        node.replication.clone(),
    ]
}

fn volume_row(volume: &VolumeOfCluster) -> Vec<String> {
    let known = &volume.replication;
    let copies: Vec<String> = known.replicas.iter().map(copy).collect();
    vec![
        volume.volume.clone(),
        known.owner.clone().unwrap_or_else(|| "none".into()),
        known.epoch.to_string(),
        copies.join(", "),
    ]
}

fn copy(copy: &ReplicaStatus) -> String {
    let state = word(copy.state).replace('_', " ");
    match copy.resync_bytes_left {
        0 => format!("{} {state}", copy.node),
        _ => format!("{} {state} ({})", copy.node, resync(copy)),
    }
}

#[cfg(test)]
mod tests {
    use ashlar_node::model::{NodeRole, NodeState, QuorumOfCluster};

    use super::*;

    #[test]
    fn roles_and_witnesses_are_printed() {
        let node = NodeOfCluster {
            name: "a".into(),
            id: 1,
            is_this: true,
            roles: vec![NodeRole::Storage, NodeRole::Quorum],
            state: NodeState::Up,
            reason: None,
            replication: "10.0.0.1:7000".into(),
            portal: None,
            incarnation: None,
        };
        let cluster = ClusterView {
            name: "prod".into(),
            id: Default::default(),
            protocol: None,
            quorum: QuorumOfCluster {
                endpoints: Vec::new(),
                reachable: true,
                reason: None,
                local: false,
                members: Vec::new(),
                advice: None,
            },
            nodes: vec![node],
            witnesses: vec!["w".into()],
            volumes: Vec::new(),
        };
        let text = show(&cluster);
        for words in ["storage, quorum", "WITNESS\nw\n"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn what_nodes_have_agreed_on_is_said_with_what_holds_it_up() {
        let known = |agreed, oldest, newest| ProtocolOfCluster {
            agreed,
            oldest,
            newest,
        };
        for (known, says) in [
            (known(Some(5), 5, 5), "version 5, agreed on by all nodes"),
            (
                known(Some(4), 4, 5),
                "version 4, agreed on by all nodes; the asked one speaks versions 4 to 5: upgrade the others",
            ),
            (
                known(None, 4, 5),
                "versions 4 to 5: each connection has the newest that both nodes speak",
            ),
        ] {
            assert_eq!(protocol(known), says);
        }
    }
}
