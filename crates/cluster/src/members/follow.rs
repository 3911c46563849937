//! What a node knows of the members, kept up to date.

use std::sync::{Arc, PoisonError};

use super::document::Membership;
use super::etcd::QuorumMember;
use super::home::{File, FileEtcd, FileNode};
use crate::config::QuorumConfig;
use crate::problem::Problem;
use crate::shared::Shared;
use crate::status::QuorumStatus;

/// What is shown of members besides nodes.
#[derive(Clone, Debug, Default)]
pub struct MembersView {
    /// Machines that run a member of etcd and nothing else.
    pub witnesses: Vec<String>,
    /// Whether nodes bring the members of etcd with them.
    pub is_local: bool,
    /// Members of etcd, as they answer.
    pub(super) quorum: Vec<QuorumMember>,
    /// The list that was taken up last.
    list: Option<Membership>,
}

impl MembersView {
    /// The version of what nodes say to each other that all have agreed on, by the list that was taken up last.
    pub(crate) fn agreed(&self) -> Option<u16> {
        self.list.as_ref().map(Membership::agreed)
    }
}

#[cfg(test)]
impl MembersView {
    /// As before anything was taken up.
    pub(super) fn forget_list(&mut self) {
        self.list = None;
    }
}

impl Shared {
    pub(crate) fn view(&self) -> MembersView {
        // Whole after every statement.
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        view.clone()
    }

    pub(super) fn change_view(&self, change: impl FnOnce(&mut MembersView)) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut view);
    }

    /// The list that was taken up last.
    pub(super) fn known_members(&self) -> Option<Membership> {
        self.view().list
    }

    pub(crate) fn quorum_status(&self) -> QuorumStatus {
        let view = self.view();
        QuorumStatus {
            members: view.quorum,
            is_local: view.is_local,
            ..self.store.status()
        }
    }

    /// Looks whether nodes have joined or left.
    pub(crate) async fn follow_members(self: &Arc<Self>) -> Result<(), String> {
        let (members, _) = self.members().await.map_err(|problem| problem.message)?;
        if let Err(problem) = self.take_up(&members) {
            tracing::warn!("what was learned of the cluster's members is not kept: {problem}");
        }
        self.settle_etcd(&members).await;
        let agreed = self.agree(&members).await;
        agreed.map_err(|problem| problem.message)
    }

    /// Nodes may have joined or left: peers are those that are there, etcd is asked where it is, and the node's directory
    /// says so.
    pub(super) fn take_up(self: &Arc<Self>, members: &Membership) -> Result<(), Problem> {
        let known = self.known_members();
        if known.as_ref() == Some(members) {
            return Ok(());
        }
        if !members.nodes.iter().any(|node| node.id == self.me.id) {
            tracing::error!("node {} is no member of the cluster any more", self.me.name);
        }
        let config = members.config(&self.config())?;
        if !config.versions.has(members.agreed()) {
            tracing::error!(
                "the cluster has agreed on version {} of the protocol between nodes, and this program speaks {}: other \
                 nodes refuse it; start the newer program",
                members.agreed(),
                config.versions
            );
        }
        self.tell_changes(known.as_ref(), members);
        if let QuorumConfig::Etcd(endpoints) = &config.quorum {
            self.store.set_endpoints(endpoints);
        }
        self.change_view(|view| {
            let witnesses = members.witnesses.iter();
            view.witnesses = witnesses.map(|witness| witness.name.clone()).collect();
            view.is_local = members.is_local();
            view.list = Some(members.clone());
        });
        for node in self.set_config(config) {
            tokio::spawn(self.clone().watch_peer(node));
        }
        self.keep(members)
    }

    fn tell_changes(&self, known: Option<&Membership>, members: &Membership) {
        let Some(known) = known else { return };
        for node in &members.nodes {
            if known.node(&node.name).is_none() {
                tracing::info!("node {} is in the cluster now", node.name);
            }
        }
        for node in &known.nodes {
            if members.node(&node.name).is_none() {
                tracing::info!("node {} is not in the cluster any more", node.name);
            }
        }
    }

    /// In the node's directory: it starts with it, and its parent tells peers of a death by it.
    fn keep(&self, members: &Membership) -> Result<(), Problem> {
        let config = self.config();
        let Some(identity) = config.trust.identity() else {
            return Ok(());
        };
        // One that has left has no file any more.
        let folder = identity.folder();
        if !File::path(folder).exists() {
            return Ok(());
        }
        let before = File::read(folder)?;
        let endpoints = members.endpoints()?;
        let etcd = before.etcd.clone().map(|etcd| FileEtcd {
            // One that has lost its data must not begin an etcd of its own beside the others.
            is_first: etcd.is_first && members.etcd().len() < 2,
            ..etcd
        });
        let after = File {
            etcd,
            nodes: members.node_configs().iter().map(FileNode::from).collect(),
            quorum: endpoints.iter().map(ToString::to_string).collect(),
            ..before
        };
        after.write(folder)
    }
}
