//! A node or witness that comes back under its name, and with its number: its directory was lost or is damaged, or it has
//! another address. Its former member of etcd goes, and a new one learns what there is.

use ashlar_replica::VolumeId;

use super::admit::{Entered, check_places};
use super::document::{EtcdPlace, Membership};
use super::joining::{Request, Role};
use crate::peer::Purpose;
use crate::problem::{Kind, Problem};
use crate::shared::Shared;
use crate::store::EtcdEndpoint;

impl Membership {
    /// Where the member of etcd is that a node or a witness of this name runs.
    fn etcd_of(&self, name: &str) -> Option<EtcdPlace> {
        let mut all = self.etcd().into_iter();
        all.find(|(known, _)| known == name).map(|(_, place)| place)
    }

    /// Gives what is in the list the addresses that it has now.
    pub(super) fn enter_again(
        &mut self,
        request: &Request,
        cluster: &str,
    ) -> Result<Entered, Problem> {
        let name = &request.name;
        let is_known = match request.role {
            Role::Node => self.node(name).is_some(),
            Role::Witness => self.witnesses.iter().any(|one| one.name == *name),
        };
        if !is_known {
            let what = match request.role {
                Role::Node => "node",
                Role::Witness => "witness",
            };
            return Err(Problem::new(
                Kind::NotFound,
                format!(
                    "cluster {cluster} has no {what} {name} that could come back: without --rejoin it joins as a new one"
                ),
            ));
        }
        let runs_etcd = self.is_local() && self.etcd_of(name).is_some();
        check_places(self, request, runs_etcd)?;
        let mut entered = Entered::new(runs_etcd);
        match request.role {
            Role::Node => {
                for node in self.nodes.iter_mut().filter(|node| node.name == *name) {
                    node.replication = request.replication;
                    node.portal = request.portal;
                    node.etcd = runs_etcd.then_some(request.etcd);
                    entered.id = node.id;
                }
            }
            Role::Witness => {
                let mut known = self.witnesses.iter_mut();
                if let Some(known) = known.find(|one| one.name == *name) {
                    known.etcd = request.etcd;
                }
            }
        }
        Ok(entered)
    }
}

impl Shared {
    /// Before a node or witness comes back: what it was must not run, and etcd counts on it no more.
    pub(super) async fn take_former_out(
        &self,
        members: &Membership,
        request: &Request,
    ) -> Result<(), Problem> {
        let name = &request.name;
        let runs = |what: &str| {
            Problem::conflict(format!(
                "{name} is there, {what}: end what runs of it first, it comes back with another certificate"
            ))
        };
        if *name == self.me.name {
            return Err(runs("and was asked itself"));
        }
        if let Some(node) = members.node(name)
            && let Some(peer) = self.peer(node.id)
            && self.call(&peer, Purpose::Probe, VolumeId(0)).await.is_ok()
        {
            return Err(runs("its daemon answers"));
        }
        let place = members.etcd_of(name).filter(|_| members.is_local());
        let Some(place) = place else { return Ok(()) };
        let endpoint = EtcdEndpoint::with_tls(place.clients);
        let mut statuses = self.store.member_statuses().await.into_iter();
        if statuses.any(|(at, status)| at == endpoint && status.is_ok()) {
            return Err(runs("its etcd answers"));
        }
        self.remove_from_etcd(place).await
    }
}
