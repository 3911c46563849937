//! A client of the API that blocks: what the command line is.

mod endpoint;
mod transport;

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use endpoint::Endpoint;

use crate::Token;
use crate::model::{
    AddDrive, AllowHosts, CacheRule, ClusterEvent, ClusterToken, ClusterView, ControlError,
    CreateCache, CreatePool, CreateService, CreateVolume, DeleteVolume, DenyHosts, DrainNode,
    DrainReply, ExportPool, FlushReply, ForgetNode, ImportPool, MoveService, MoveVolume, NewToken,
    NewerData, NodeStatus, PoolStatus, ProofStatus, PutRule, RemoveDrive, RemoveRule, ReopenCache,
    ReplaceDrive, ReplaceNode, ReplaceReply, ReplicateVolume, ResizeVolume, RunAlone,
    ServiceStatus, SetFollow, SetHosts, SetReserve, SetWhenDegraded, VolumeName, VolumeStats,
    VolumeStatus,
};
use transport::{Ask, Transport};

type Result<T> = std::result::Result<T, ControlError>;

/// A daemon's API. Each call is one connection; errors are the daemon's own, or `environment` when
/// it cannot be reached.
pub struct Client {
    transport: Transport,
}

impl Client {
    /// A client of the API there. Connects when something is asked.
    ///
    /// # Errors
    /// Environment: no runtime can be made.
    pub fn new(endpoint: Endpoint, token: Option<Token>) -> Result<Self> {
        let transport = Transport::new(endpoint, token)?;
        Ok(Self { transport })
    }

    /// The same, which gives a daemon on this machine that is being started so long to come up.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.transport.patience = patience;
        self
    }

    /// The same, which waits so long for an answer: most are given at once.
    #[must_use]
    pub fn answered_within(mut self, limit: Duration) -> Self {
        self.transport.answers_within = limit;
        self
    }

    /// The daemon.
    ///
    /// # Errors
    /// Those of [`Client`].
    pub fn node(&self) -> Result<NodeStatus> {
        self.get("/v1/node")
    }

    /// All pools.
    ///
    /// # Errors
    /// Those of [`Client`].
    pub fn pools(&self) -> Result<Vec<PoolStatus>> {
        self.get("/v1/pools")
    }

    /// One pool.
    ///
    /// # Errors
    /// Those of [`Control::pool`](crate::Control::pool).
    pub fn pool(&self, name: &str) -> Result<PoolStatus> {
        self.get(&pool(name, ""))
    }

    /// Makes a pool.
    ///
    /// # Errors
    /// Those of [`Control::create_pool`](crate::Control::create_pool).
    pub fn create_pool(&self, request: &CreatePool) -> Result<PoolStatus> {
        self.send("POST", "/v1/pools", request)
    }

    /// Takes a pool up again.
    ///
    /// # Errors
    /// Those of [`Control::import_pool`](crate::Control::import_pool).
    pub fn import_pool(&self, name: &str, request: &ImportPool) -> Result<PoolStatus> {
        self.send("POST", &pool(name, "/import"), request)
    }

    /// Lets a pool go.
    ///
    /// # Errors
    /// Those of [`Control::export_pool`](crate::Control::export_pool).
    pub fn export_pool(&self, name: &str, request: &ExportPool) -> Result<()> {
        self.send("POST", &pool(name, "/export"), request)
    }

    /// Begins a scrub.
    ///
    /// # Errors
    /// Those of [`Control::scrub`](crate::Control::scrub).
    pub fn scrub(&self, name: &str) -> Result<PoolStatus> {
        self.transport.ask(&Ask::new("POST", &pool(name, "/scrub")))
    }

    /// Begins a repair that waits for its time.
    ///
    /// # Errors
    /// Those of [`Control::repair`](crate::Control::repair).
    pub fn repair(&self, name: &str) -> Result<PoolStatus> {
        self.transport
            .ask(&Ask::new("POST", &pool(name, "/repair")))
    }

    /// Says how much is kept for repair.
    ///
    /// # Errors
    /// Those of [`Control::set_reserve`](crate::Control::set_reserve).
    pub fn set_reserve(&self, name: &str, request: &SetReserve) -> Result<PoolStatus> {
        self.send("PUT", &pool(name, "/reserve"), request)
    }

    /// Adds a drive.
    ///
    /// # Errors
    /// Those of [`Control::add_drive`](crate::Control::add_drive).
    pub fn add_drive(&self, name: &str, request: &AddDrive) -> Result<PoolStatus> {
        self.send("POST", &pool(name, "/drives"), request)
    }

    /// Replaces a drive.
    ///
    /// # Errors
    /// Those of [`Control::replace_drive`](crate::Control::replace_drive).
    pub fn replace_drive(&self, name: &str, request: &ReplaceDrive) -> Result<PoolStatus> {
        self.send("POST", &pool(name, "/drives/replace"), request)
    }

    /// Begins to remove a drive.
    ///
    /// # Errors
    /// Those of [`Control::remove_drive`](crate::Control::remove_drive).
    pub fn remove_drive(&self, name: &str, request: &RemoveDrive) -> Result<PoolStatus> {
        self.send("POST", &pool(name, "/drives/remove"), request)
    }

    /// All volumes.
    ///
    /// # Errors
    /// Those of [`Client`].
    pub fn volumes(&self) -> Result<Vec<VolumeStatus>> {
        self.get("/v1/volumes")
    }

    /// One volume.
    ///
    /// # Errors
    /// Those of [`Control::volume`](crate::Control::volume).
    pub fn volume(&self, name: &VolumeName) -> Result<VolumeStatus> {
        self.get(&volume(name, ""))
    }

    /// Makes a volume.
    ///
    /// # Errors
    /// Those of [`Control::create_volume`](crate::Control::create_volume).
    pub fn create_volume(&self, request: &CreateVolume) -> Result<VolumeStatus> {
        self.send("POST", "/v1/volumes", request)
    }

    /// Gives a volume another size.
    ///
    /// # Errors
    /// Those of [`Control::resize_volume`](crate::Control::resize_volume).
    pub fn resize_volume(&self, name: &VolumeName, request: &ResizeVolume) -> Result<VolumeStatus> {
        self.send("PUT", &volume(name, "/size"), request)
    }

    /// Lets more hosts connect.
    ///
    /// # Errors
    /// Those of [`Control::change_hosts`](crate::Control::change_hosts).
    pub fn allow_hosts(&self, name: &VolumeName, request: &AllowHosts) -> Result<VolumeStatus> {
        self.send("POST", &volume(name, "/hosts/allow"), request)
    }

    /// Lets some hosts connect no more.
    ///
    /// # Errors
    /// Those of [`Control::change_hosts`](crate::Control::change_hosts).
    pub fn deny_hosts(&self, name: &VolumeName, request: &DenyHosts) -> Result<VolumeStatus> {
        self.send("POST", &volume(name, "/hosts/deny"), request)
    }

    /// Says who may connect, in place of who might.
    ///
    /// # Errors
    /// Those of [`Control::change_hosts`](crate::Control::change_hosts).
    pub fn set_hosts(&self, name: &VolumeName, request: &SetHosts) -> Result<VolumeStatus> {
        self.send("PUT", &volume(name, "/hosts"), request)
    }

    /// Says what a volume does when a copy is missing.
    ///
    /// # Errors
    /// Those of [`Control::set_when_degraded`](crate::Control::set_when_degraded).
    pub fn set_when_degraded(
        &self,
        name: &VolumeName,
        request: &SetWhenDegraded,
    ) -> Result<VolumeStatus> {
        self.send("PUT", &volume(name, "/when-degraded"), request)
    }

    /// Says whether ownership of a replicated volume follows its hosts.
    ///
    /// # Errors
    /// Those of [`Control::set_follow`](crate::Control::set_follow).
    pub fn set_follow(&self, name: &VolumeName, request: &SetFollow) -> Result<VolumeStatus> {
        self.send("PUT", &volume(name, "/follow"), request)
    }

    /// The cluster, as the daemon sees it.
    ///
    /// # Errors
    /// Those of [`Control::cluster`](crate::Control::cluster).
    pub fn cluster(&self) -> Result<ClusterView> {
        self.get("/v1/cluster")
    }

    /// Makes a token with which a machine can join the cluster.
    ///
    /// # Errors
    /// Those of [`Control::cluster_token`](crate::Control::cluster_token).
    pub fn cluster_token(&self, request: &NewToken) -> Result<ClusterToken> {
        self.send("POST", "/v1/cluster/token", request)
    }

    /// Takes a node that is gone, or a witness, out of the cluster.
    ///
    /// # Errors
    /// Those of [`Control::forget_node`](crate::Control::forget_node).
    pub fn forget_node(&self, request: &ForgetNode) -> Result<()> {
        self.send("POST", "/v1/cluster/forget", request)
    }

    /// Does what can be done next to have one node take the place of another.
    ///
    /// # Errors
    /// Those of [`Control::replace_node`](crate::Control::replace_node).
    pub fn replace_node(&self, request: &ReplaceNode) -> Result<ReplaceReply> {
        self.send("POST", "/v1/cluster/replace", request)
    }

    /// Takes the node that is asked out of its cluster.
    ///
    /// # Errors
    /// Those of [`Control::leave_cluster`](crate::Control::leave_cluster).
    pub fn leave_cluster(&self) -> Result<()> {
        self.send("POST", "/v1/cluster/leave", &())
    }

    /// Has others serve a node's volumes, or lets it serve again.
    ///
    /// # Errors
    /// Those of [`Control::drain`](crate::Control::drain).
    pub fn drain(&self, request: &DrainNode) -> Result<DrainReply> {
        self.send("POST", "/v1/cluster/drain", request)
    }

    /// What has happened after the event of this number.
    ///
    /// # Errors
    /// Those of [`Control::events`](crate::Control::events).
    pub fn events(&self, after: u64) -> Result<Vec<ClusterEvent>> {
        self.get(&format!("/v1/events?after={after}"))
    }

    /// Gives a volume copies on other nodes.
    ///
    /// # Errors
    /// Those of [`Control::replicate_volume`](crate::Control::replicate_volume).
    pub fn replicate_volume(
        &self,
        name: &VolumeName,
        request: &ReplicateVolume,
    ) -> Result<VolumeStatus> {
        self.send("POST", &volume(name, "/replicate"), request)
    }

    /// Has the daemon's copy serve without the others.
    ///
    /// # Errors
    /// Those of [`Control::run_alone`](crate::Control::run_alone).
    pub fn run_alone(&self, name: &VolumeName, request: &RunAlone) -> Result<VolumeStatus> {
        self.send("POST", &volume(name, "/run-alone"), request)
    }

    /// Has another node serve a replicated volume.
    ///
    /// # Errors
    /// Those of [`Control::move_volume`](crate::Control::move_volume).
    pub fn move_volume(&self, name: &VolumeName, request: &MoveVolume) -> Result<VolumeStatus> {
        self.send("POST", &volume(name, "/move"), request)
    }

    /// Compares the copies of a replicated volume that are in sync.
    ///
    /// # Errors
    /// Those of [`Control::verify_volume`](crate::Control::verify_volume).
    pub fn verify_volume(&self, name: &VolumeName) -> Result<ProofStatus> {
        self.transport
            .ask(&Ask::new("POST", &volume(name, "/verify")))
    }

    /// Makes a volume that caches a device.
    ///
    /// # Errors
    /// Those of [`Control::create_cache`](crate::Control::create_cache).
    pub fn create_cache(&self, request: &CreateCache) -> Result<VolumeStatus> {
        self.send("POST", "/v1/caches", request)
    }

    /// Has a cached volume written back; it may have to be asked again.
    ///
    /// # Errors
    /// Those of [`Control::flush_volume`](crate::Control::flush_volume).
    pub fn flush_volume(&self, name: &VolumeName) -> Result<FlushReply> {
        self.transport
            .ask(&Ask::new("POST", &volume(name, "/flush")))
    }

    /// Takes up a cached volume that is not in service.
    ///
    /// # Errors
    /// Those of [`Control::reopen_volume`](crate::Control::reopen_volume).
    pub fn reopen_volume(&self, name: &VolumeName, request: &ReopenCache) -> Result<VolumeStatus> {
        self.send("POST", &volume(name, "/reopen"), request)
    }

    /// What only the cache of a volume has.
    ///
    /// # Errors
    /// Those of [`Control::newer_data`](crate::Control::newer_data).
    pub fn newer_data(&self, name: &VolumeName) -> Result<NewerData> {
        self.get(&volume(name, "/newer"))
    }

    /// Files that are kept out of the cache of a volume.
    ///
    /// # Errors
    /// Those of [`Control::cache_rules`](crate::Control::cache_rules).
    pub fn cache_rules(&self, name: &VolumeName) -> Result<Vec<CacheRule>> {
        self.get(&volume(name, "/rules"))
    }

    /// Keeps files out of the cache of a volume, or says again where they lie.
    ///
    /// # Errors
    /// Those of [`Control::put_cache_rule`](crate::Control::put_cache_rule).
    pub fn put_cache_rule(&self, name: &VolumeName, request: &PutRule) -> Result<CacheRule> {
        self.send("PUT", &volume(name, "/rules"), request)
    }

    /// Keeps files out of the cache of a volume no more.
    ///
    /// # Errors
    /// Those of [`Control::remove_cache_rule`](crate::Control::remove_cache_rule).
    pub fn remove_cache_rule(&self, name: &VolumeName, request: &RemoveRule) -> Result<()> {
        self.send("POST", &volume(name, "/rules/remove"), request)
    }

    /// Deletes a volume.
    ///
    /// # Errors
    /// Those of [`Control::delete_volume`](crate::Control::delete_volume).
    pub fn delete_volume(&self, name: &VolumeName, request: &DeleteVolume) -> Result<()> {
        let query = format!(
            "?destroy_data={}&force={}&accept_data_loss={}",
            request.destroy_data, request.force, request.accept_data_loss
        );
        self.transport
            .ask(&Ask::new("DELETE", &volume(name, &query)))
    }

    /// What a volume has done.
    ///
    /// # Errors
    /// Those of [`Control::volume_stats`](crate::Control::volume_stats).
    pub fn volume_stats(&self, name: &VolumeName) -> Result<VolumeStats> {
        self.get(&volume(name, "/stats"))
    }

    /// All services.
    ///
    /// # Errors
    /// Those of [`Client`].
    pub fn services(&self) -> Result<Vec<ServiceStatus>> {
        self.get("/v1/services")
    }

    /// One service, wherever it runs.
    ///
    /// # Errors
    /// Not found.
    pub fn service(&self, name: &str) -> Result<ServiceStatus> {
        let all = self.services()?;
        let found = all.into_iter().find(|one| one.service.name == name);
        found.ok_or_else(|| ControlError::not_found(format!("there is no service {name}")))
    }

    /// Makes a service.
    ///
    /// # Errors
    /// Those of [`Services::create`](crate::service::Services::create).
    pub fn create_service(&self, request: &CreateService) -> Result<ServiceStatus> {
        self.send("POST", "/v1/services", request)
    }

    /// Has a service run again.
    ///
    /// # Errors
    /// Not found.
    pub fn start_service(&self, name: &str) -> Result<ServiceStatus> {
        self.transport
            .ask(&Ask::new("POST", &service(name, "/start")))
    }

    /// Begins to stop a service in order.
    ///
    /// # Errors
    /// Not found.
    pub fn stop_service(&self, name: &str) -> Result<ServiceStatus> {
        self.transport
            .ask(&Ask::new("POST", &service(name, "/stop")))
    }

    /// Begins to move a service to another node.
    ///
    /// # Errors
    /// Those of [`Services::move_to`](crate::service::Services::move_to).
    pub fn move_service(&self, name: &str, request: &MoveService) -> Result<ServiceStatus> {
        self.send("POST", &service(name, "/move"), request)
    }

    /// Forgets a service that is stopped.
    ///
    /// # Errors
    /// Those of [`Services::delete`](crate::service::Services::delete).
    pub fn delete_service(&self, name: &str) -> Result<()> {
        self.transport.ask(&Ask::new("DELETE", &service(name, "")))
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.transport.ask(&Ask::new("GET", path))
    }

    fn send<T: DeserializeOwned>(
        &self,
        method: &'static str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        let body = serde_json::to_vec(body)
            .map_err(|error| ControlError::internal(format!("the request: {error}")))?;
        self.transport.ask(&Ask {
            body: Some(body),
            ..Ask::new(method, path)
        })
    }
}

fn pool(name: &str, rest: &str) -> String {
    format!("/v1/pools/{}{rest}", segment(name))
}

fn service(name: &str, rest: &str) -> String {
    format!("/v1/services/{}{rest}", segment(name))
}

fn volume(name: &VolumeName, rest: &str) -> String {
    format!(
        "/v1/volumes/{}/{}{rest}",
        segment(&name.pool),
        segment(&name.name)
    )
}

/// A name in a path. What is no name is refused by the daemon, as long as it arrives there as it
/// is.
fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let all_dots = name.bytes().all(|byte| byte == b'.');
    name.bytes()
        .map(|byte| match plain(byte) && !all_dots {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_a_path() {
        assert_eq!(pool("tank-1_a.b", "/scrub"), "/v1/pools/tank-1_a.b/scrub");
        assert_eq!(pool("../volumes?x", ""), "/v1/pools/..%2Fvolumes%3Fx");
        assert_eq!(pool("..", ""), "/v1/pools/%2E%2E");
        assert_eq!(pool("é", ""), "/v1/pools/%C3%A9");
    }
}
