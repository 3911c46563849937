//! The members of an etcd that nodes bring with them. A second one only learns until there is a third: of two that
//! vote, each would stop the quorum when it ends.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::sleep;

use super::document::{ETCD_MEMBERS, EtcdPlace, Membership};
use crate::problem::Problem;
use crate::shared::Shared;
use crate::store::{EtcdEndpoint, MemberInfo, Store};

/// How often, and how long between, etcd is asked to take a member: it refuses while its members find each other.
const TRIES: usize = 20;
const BETWEEN: Duration = Duration::from_millis(500);

/// What a member of etcd does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuorumRole {
    /// It leads.
    Leader,
    /// It votes.
    Voter,
    /// It is told everything, and does not vote.
    Learner,
    /// It does not answer.
    Unreachable,
}

/// A member of etcd, as it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuorumMember {
    /// Of the node or witness that runs it; of another, its address.
    pub name: String,
    /// Where it is asked.
    pub endpoint: String,
    /// What it does.
    pub role: QuorumRole,
    /// Why it does not answer.
    pub problem: Option<String>,
}

fn url(place: EtcdPlace) -> String {
    format!("https://{}", place.peers)
}

fn refused(why: String) -> Problem {
    Problem::environment(format!("etcd: {why}"))
}

/// A change of etcd's members.
enum Change {
    /// One with this URL for its peers, as a learner.
    Add(String),
    Promote(u64),
    Remove(u64),
}

impl Store {
    async fn learners(&self) -> Result<Vec<MemberInfo>, String> {
        let mut all = self.etcd_members().await?;
        all.retain(|member| member.is_learner);
        Ok(all)
    }

    async fn make(&self, change: &Change) -> Result<(), String> {
        match change {
            Change::Add(url) => {
                let listed = self.etcd_members().await?;
                let is_there = listed.iter().any(|member| member.peers.contains(url));
                match is_there {
                    true => Ok(()),
                    false => self.add_learner(url).await,
                }
            }
            Change::Promote(id) => self.promote_member(*id).await,
            Change::Remove(id) => self.remove_member(*id).await,
        }
    }

    /// Repeats until etcd has done it.
    async fn persist(&self, change: Change) -> Result<(), String> {
        let mut tries = 0;
        loop {
            match self.make(&change).await {
                Ok(()) => return Ok(()),
                Err(why) if tries >= TRIES => return Err(why),
                Err(_) => tries += 1,
            }
            sleep(BETWEEN).await;
        }
    }
}

impl Shared {
    /// Before another member can join: what learns votes, if there will be three; what is left of one that did not
    /// join goes.
    pub(super) async fn make_room_in_etcd(&self, members: &Membership) -> Result<(), Problem> {
        let known: Vec<String> = members
            .etcd()
            .iter()
            .map(|(_, place)| url(*place))
            .collect();
        let listed = self.store.etcd_members().await.map_err(refused)?;
        for member in &listed {
            let is_known = member.peers.iter().any(|peer| known.contains(peer));
            if !is_known {
                self.store.remove_member(member.id).await.map_err(refused)?;
            }
        }
        if members.etcd().len() + 1 < ETCD_MEMBERS {
            return Ok(());
        }
        for learner in self.store.learners().await.map_err(refused)? {
            let promoted = self.store.persist(Change::Promote(learner.id));
            promoted.await.map_err(|why| {
                let peers = learner.peers.join(", ");
                Problem::conflict(format!(
                    "the member of etcd at {peers} is not ready to vote: start that node first, and wait until \
                     `ashlar cluster status` has it as a learner ({why})"
                ))
            })?;
        }
        Ok(())
    }

    /// As a learner: it counts when it has caught up.
    pub(super) async fn add_to_etcd(&self, peers: std::net::SocketAddr) -> Result<(), String> {
        let url = format!("https://{peers}");
        self.store.persist(Change::Add(url)).await
    }

    /// Whatever learns votes from now on, if there are three.
    pub(super) async fn settle_etcd(&self, members: &Membership) {
        if !members.is_local() || members.etcd().len() < ETCD_MEMBERS {
            return;
        }
        // Looked at before: a learner that is not ready is refused, and tried again.
        let learns = |member: &QuorumMember| member.role == QuorumRole::Learner;
        if !self.view().quorum.iter().any(learns) {
            return;
        }
        for learner in self.store.learners().await.unwrap_or_default() {
            match self.store.promote_member(learner.id).await {
                Ok(()) => tracing::info!("etcd: {} votes now", learner.peers.join(", ")),
                Err(why) => tracing::debug!("etcd: {}: {why}", learner.peers.join(", ")),
            }
        }
    }

    pub(super) fn settle_etcd_soon(self: &Arc<Self>) {
        self.look_again.notify_one();
    }

    /// What is to end must not be what etcd needs.
    pub(super) async fn remove_from_etcd(&self, place: EtcdPlace) -> Result<(), Problem> {
        let listed = self.store.etcd_members().await.map_err(refused)?;
        let is_it = |member: &&MemberInfo| member.peers.contains(&url(place));
        let Some(leaves) = listed.iter().find(is_it) else {
            return Ok(());
        };
        let voters = listed.iter().filter(|member| !member.is_learner);
        if !leaves.is_learner && voters.count() == 1 {
            let heir = listed.iter().find(|member| member.is_learner);
            let heir = heir.ok_or_else(|| {
                Problem::conflict("etcd has no other member: the cluster would have no quorum")
            })?;
            let promoted = self.store.persist(Change::Promote(heir.id));
            promoted.await.map_err(refused)?;
        }
        let removed = self.store.persist(Change::Remove(leaves.id));
        removed.await.map_err(refused)
    }

    /// Asks each member of etcd how it is.
    pub(crate) async fn look_at_quorum(&self) {
        let names = self.known_members().map(|members| members.etcd());
        let name_of = |endpoint: &EtcdEndpoint| {
            let mut all = names.iter().flatten();
            let found = all.find(|(_, place)| EtcdEndpoint::with_tls(place.clients) == *endpoint);
            found.map_or_else(|| endpoint.authority().to_owned(), |(name, _)| name.clone())
        };
        let mut seen = Vec::new();
        for (endpoint, status) in self.store.member_statuses().await {
            let (role, problem) = match status {
                Ok(status) if status.is_learner => (QuorumRole::Learner, status.alarm),
                Ok(status) if status.is_leader => (QuorumRole::Leader, status.alarm),
                Ok(status) => (QuorumRole::Voter, status.alarm),
                Err(why) => (QuorumRole::Unreachable, Some(why)),
            };
            seen.push(QuorumMember {
                name: name_of(&endpoint),
                endpoint: endpoint.to_string(),
                role,
                problem,
            });
        }
        self.change_view(|view| view.quorum = seen);
    }
}
