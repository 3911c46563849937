//! A node that joins, from the side of the one that lets it in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ashlar_replica::{NodeId, Revision};
use serde::Serialize;

use super::document::{ETCD_MEMBERS, MemberNode, Membership, TokenEntry, Witness};
use super::home::FileNode;
use super::joining::{Answer, Request, Role, Welcome};
use super::secret::{Secret, Token, now};
use crate::cluster::Cluster;
use crate::config::check_name;
use crate::problem::{Kind, Problem};
use crate::shared::{Shared, members_key};
use crate::store::Swap;
use crate::trust::{AuthorityHash, Place, PublicKey, Subject};

/// How long the quorum may take.
const QUORUM_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a change is tried while others change the list, too, or an answer is lost.
const TRIES: usize = 10;

/// A token that was made.
#[derive(Clone, Debug, Serialize)]
pub struct NewToken {
    pub token: String,
    /// Until when it is good, in seconds since 1970.
    pub expires: u64,
}

impl Cluster {
    /// Makes a token with which one node can join. Blocks.
    ///
    /// # Errors
    /// Usage: nodes of this cluster do not join, they are written in a file. Environment: the quorum does not answer.
    pub fn token(&self, lasts: Duration) -> Result<NewToken, Problem> {
        let shared = self.0.shared.clone();
        let made = self.wait(QUORUM_TIMEOUT, async move { shared.new_token(lasts).await });
        made.map_err(Problem::environment)?
    }
}

/// Lets a node in, or says why not.
pub(crate) async fn take(shared: &Arc<Shared>, request: Request) -> Answer {
    let (name, version) = (request.name.clone(), request.version.clone());
    match shared.admit(request).await {
        Ok(welcome) => {
            tracing::info!("{name:?} has joined the cluster, version {version}");
            Answer::Welcome(Box::new(welcome))
        }
        // Any machine can ask, as often as it likes: that must not fill the log.
        Err(problem) if problem.kind == Kind::Unauthorized => {
            tracing::debug!("{name:?} wanted to join the cluster, and has no token: {problem}");
            Answer::Problem(problem)
        }
        Err(problem) => {
            tracing::warn!("{name:?} wanted to join the cluster, and was refused: {problem}");
            Answer::Problem(problem)
        }
    }
}

impl Shared {
    pub(super) fn no_joining(&self) -> Problem {
        Problem::usage(format!(
            "nodes of cluster {} are written in its file, and do not join: a cluster that they join begins with \
             `ashlar cluster init`",
            self.name
        ))
    }

    /// Who is a member, as the quorum says, and the list's revision.
    pub(super) async fn members(&self) -> Result<(Membership, Revision), Problem> {
        let silent = |why: String| {
            Problem::environment(format!(
                "the quorum ({}) does not answer: {why}",
                self.store.names()
            ))
        };
        let held = self.store.read(&members_key(&self.name)).await;
        let held = held.map_err(silent)?.ok_or_else(|| self.no_joining())?;
        Ok((Membership::decode(&held.value)?, held.revision))
    }

    /// Changes the list by one swap. `edit` may be asked again: the list has changed, or an answer was lost; so it must
    /// find out whether what it does is done.
    pub(super) async fn change<T>(
        self: &Arc<Self>,
        edit: impl Fn(&mut Membership) -> Result<T, Problem>,
    ) -> Result<(T, Membership), Problem> {
        let mut last = None;
        for _ in 0..TRIES {
            let (before, revision) = self.members().await?;
            let mut after = before.clone();
            let done = edit(&mut after)?;
            if after == before {
                return Ok((done, after));
            }
            let (key, value) = (members_key(&self.name), after.encode()?);
            match self.store.swap(&key, revision, &value).await {
                Swap::Made(_) => {
                    self.take_up(&after)?;
                    return Ok((done, after));
                }
                Swap::NotMade(_) => {}
                Swap::Unknown(why) => last = Some(why),
            }
        }
        let why = last.unwrap_or_else(|| "others change it all the time".into());
        Err(Problem::environment(format!(
            "the list of members cannot be changed: {why}"
        )))
    }

    async fn new_token(self: &Arc<Self>, lasts: Duration) -> Result<NewToken, Problem> {
        let config = self.config();
        let identity = config.trust.identity().ok_or_else(|| self.no_joining())?;
        let authority = AuthorityHash::of_pem(identity.authority()?.certificate())?;
        let secret = Secret::random();
        let expires = now().saturating_add(lasts.as_secs());
        let entry = TokenEntry::new(secret.hash(), expires);
        let add = |members: &mut Membership| {
            if !members.tokens.contains(&entry) {
                members.put_token(entry.clone());
            }
            Ok(())
        };
        let ((), members) = self.change(add).await?;
        // This node first: it is there.
        let own = std::iter::once(self.me.replication);
        let others = members.nodes.iter().map(|node| node.replication);
        let others = others.filter(|at| *at != self.me.replication);
        let token = Token {
            cluster: self.id,
            secret,
            authority,
            nodes: own.chain(others).collect(),
        };
        Ok(NewToken {
            token: token.to_string(),
            expires: entry.expires,
        })
    }

    async fn admit(self: &Arc<Self>, request: Request) -> Result<Welcome, Problem> {
        let config = self.config();
        let identity = config.trust.identity().ok_or_else(|| self.no_joining())?;
        self.screen(&request).await?;
        let authority = identity.authority()?;
        check_name("node", &request.name).map_err(Problem::usage)?;
        let key = PublicKey::new(&request.public_key)
            .ok_or_else(|| Problem::usage("what joins has sent no public key of P-256"))?;
        let _turn = self.take_turn().await?;
        let (members, _) = self.members().await?;
        // Everything that can be wrong is found before anything is changed.
        let wanted = self.enter(&mut members.clone(), &request)?;
        if request.rejoins {
            // What has come in already has no former member of etcd any more.
            if wanted.is_new {
                self.take_former_out(&members, &request).await?;
            }
        } else if wanted.runs_etcd {
            self.make_room_in_etcd(&members).await?;
        }
        let (place, members) = self.change(|members| self.enter(members, &request)).await?;
        if place.runs_etcd
            && let Err(why) = self.add_to_etcd(request.etcd.peers).await
        {
            let why = format!("{} cannot become a member of etcd: {why}", request.name);
            // What was in the list before this request stays there.
            if !wanted.is_new {
                return Err(Problem::environment(why));
            }
            self.change(|members| leave_again(members, &request))
                .await?;
            return Err(Problem::environment(format!(
                "{why}; it has not joined, and the token is still good"
            )));
        }
        let subject = Subject {
            cluster: self.id,
            node: place.id,
            name: request.name.clone(),
        };
        let addresses = [request.replication.ip(), request.etcd.clients.ip()];
        let certificate = authority.sign(&subject, &Place::of(&addresses), &key)?;
        let etcd = members.etcd().into_iter();
        let etcd = etcd.map(|(name, place)| format!("{name}=https://{}", place.peers));
        let etcd: Vec<String> = etcd.collect();
        let endpoints = members.endpoints()?;
        self.settle_etcd_soon();
        Ok(Welcome {
            cluster: self.name.clone(),
            id: place.id,
            certificate,
            authority: authority.certificate().to_owned(),
            authority_key: (request.role == Role::Node).then(|| authority.key().to_owned()),
            quorum: endpoints.iter().map(ToString::to_string).collect(),
            etcd: place.runs_etcd.then(|| etcd.join(",")),
            nodes: members.node_configs().iter().map(FileNode::from).collect(),
        })
    }

    /// Puts what joins into the list, if it may be there. Asked again, it finds that it is.
    pub(super) fn enter(
        &self,
        members: &mut Membership,
        request: &Request,
    ) -> Result<Entered, Problem> {
        if let Some(place) = self.judge_token(members, request)? {
            return Ok(place);
        }
        let name = &request.name;
        members.use_token(request);
        if request.rejoins {
            return members.enter_again(request, &self.name);
        }
        let witness = members
            .witnesses
            .iter()
            .any(|witness| witness.name == *name);
        if members.node(name).is_some() || witness {
            return Err(Problem::conflict(format!(
                "cluster {} has {name} already: take another name, or `ashlar node forget {name}` first. If it is that one, \
                 whose directory was lost or whose address has changed, say --rejoin",
                self.name
            )));
        }
        let runs_etcd = members.is_local() && members.etcd().len() < ETCD_MEMBERS;
        check_places(members, request, runs_etcd)?;
        match request.role {
            Role::Witness if !members.is_local() => Err(Problem::conflict(format!(
                "cluster {} uses an etcd that is there ({}): it needs no witness",
                self.name,
                members.quorum.join(", ")
            ))),
            Role::Witness if !runs_etcd => Err(Problem::conflict(format!(
                "cluster {} has {ETCD_MEMBERS} members of etcd already: it needs no witness",
                self.name
            ))),
            Role::Witness => {
                members.witnesses.push(Witness {
                    name: name.clone(),
                    etcd: request.etcd,
                });
                Ok(Entered::new(runs_etcd))
            }
            Role::Node => {
                let id = NodeId(members.next);
                members.next += 1;
                members.nodes.push(MemberNode {
                    id,
                    name: name.clone(),
                    replication: request.replication,
                    portal: request.portal,
                    etcd: runs_etcd.then_some(request.etcd),
                });
                Ok(Entered {
                    id,
                    ..Entered::new(runs_etcd)
                })
            }
        }
    }
}

/// As what it is in the list.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) id: NodeId,
    pub(super) runs_etcd: bool,
    /// It is in the list, or there with these addresses, by this request alone.
    pub(super) is_new: bool,
}

impl Entered {
    /// Put there by this request.
    pub(super) const fn new(runs_etcd: bool) -> Self {
        Self {
            id: NodeId(0),
            runs_etcd,
            is_new: true,
        }
    }

    /// As what this request has put itself into the list already, if it has.
    pub(super) fn already(members: &Membership, request: &Request) -> Option<Self> {
        let (id, runs_etcd) = match request.role {
            Role::Node => {
                let node = members.node(&request.name)?;
                let is_same =
                    node.replication == request.replication && node.portal == request.portal;
                is_same.then_some((node.id, node.etcd.is_some()))?
            }
            Role::Witness => {
                let mut witnesses = members.witnesses.iter();
                witnesses.find(|one| one.name == request.name && one.etcd == request.etcd)?;
                (NodeId(0), true)
            }
        };
        let is_new = false;
        Some(Self {
            id,
            runs_etcd,
            is_new,
        })
    }
}

/// No two listen at one address.
pub(super) fn check_places(
    members: &Membership,
    request: &Request,
    runs_etcd: bool,
) -> Result<(), Problem> {
    let mut taken: Vec<(SocketAddr, String)> = Vec::new();
    let is_other = |name: &str| name != request.name;
    for node in members.nodes.iter().filter(|node| is_other(&node.name)) {
        taken.push((
            node.replication,
            format!("replication of node {}", node.name),
        ));
        taken.push((node.portal, format!("portal of node {}", node.name)));
    }
    let etcd = members.etcd().into_iter();
    for (name, place) in etcd.filter(|(name, _)| is_other(name)) {
        taken.push((place.clients, format!("etcd of {name}")));
        taken.push((place.peers, format!("etcd of {name}")));
    }
    let mut wanted = Vec::new();
    if request.role == Role::Node {
        wanted.extend([request.replication, request.portal]);
    }
    if runs_etcd {
        wanted.extend([request.etcd.clients, request.etcd.peers]);
    }
    for (at, whose) in taken {
        if wanted.contains(&at) {
            return Err(Problem::conflict(format!(
                "{at} is {whose} already: {} needs addresses of its own",
                request.name
            )));
        }
    }
    Ok(())
}

/// What has come back stays in the list: its token is good for it again.
fn leave_again(members: &mut Membership, request: &Request) -> Result<(), Problem> {
    members.release_token(request);
    if request.rejoins {
        return Ok(());
    }
    members.nodes.retain(|node| node.name != request.name);
    members.witnesses.retain(|one| one.name != request.name);
    Ok(())
}
