use std::net::SocketAddr;
use std::sync::Arc;

use crate::model::{
    AddDrive, CacheRule, ClusterEvent, ClusterMetrics, ClusterToken, ClusterView, ControlError,
    CreateCache, CreatePool, CreateVolume, DeleteVolume, DrainNode, DrainReply, ExportPool,
    FlushReply, ForgetNode, HostChange, ImportPool, MetricsSnapshot, MoveVolume, NewToken,
    NewerData, PoolStatus, ProofStatus, PutRule, RemoveDrive, RemoveRule, ReopenCache,
    ReplaceDrive, ReplaceNode, ReplaceReply, ReplicateVolume, ResizeVolume, RunAlone, SetFollow,
    SetReserve, SetWhenDegraded, VolumeMetrics, VolumeName, VolumeStats, VolumeStatus,
};
use crate::service::{Ownership, Services};

/// What a daemon can do with pools and volumes.
///
/// Calls block until what they say has been done *durably*, or has durably begun where the work is
/// long (rebuild, evacuation, scrub: `work` in the pool's status); they come from several threads
/// at once, never from a thread of the data plane, and an implementation orders what must not
/// overlap. Requests have passed their [`Check`](crate::model::Check): names are names, sizes are
/// multiples of 4,096; what depends on the state of the node is checked here. A caller that has
/// gone away does not end a call.
///
/// Who implements it remembers, in [`StateFile`](crate::StateFile), which pools there are and who
/// may connect to their volumes, before it answers.
pub trait Control: Send + Sync + 'static {
    /// Where hosts connect.
    fn address(&self) -> SocketAddr;

    /// All pools that are imported, by name. One whose import failed at start is listed as failed.
    fn pools(&self) -> Vec<PoolStatus>;

    /// One of them.
    ///
    /// # Errors
    /// Not found.
    fn pool(&self, name: &str) -> Result<PoolStatus, ControlError>;

    /// Makes a pool of drives.
    ///
    /// # Errors
    /// Conflict: there is a pool of this name, or a drive is in use. Refused: a drive holds
    /// something and `destroy_data` was not said. Usage: a device's text makes no sense.
    /// Environment: a drive cannot be used.
    fn create_pool(&self, request: CreatePool) -> Result<PoolStatus, ControlError>;

    /// Takes a pool up again. One that is imported already is left as it is.
    ///
    /// # Errors
    /// Not found: no drive holds it. Conflict: the name is taken, or drives exclude each other.
    /// Environment: too many drives are missing or damaged; nothing was changed.
    fn import_pool(&self, name: &str, request: ImportPool) -> Result<PoolStatus, ControlError>;

    /// Moves everything home, lets go of the drives and forgets the pool.
    ///
    /// # Errors
    /// Not found. Refused: hosts are connected and `force` was not said.
    fn export_pool(&self, name: &str, request: ExportPool) -> Result<(), ControlError>;

    /// Adds a drive.
    ///
    /// # Errors
    /// Those of [`create_pool`](Self::create_pool), and not found.
    fn add_drive(&self, pool: &str, request: AddDrive) -> Result<PoolStatus, ControlError>;

    /// Puts a drive in another's place and begins to rebuild.
    ///
    /// # Errors
    /// Those of [`add_drive`](Self::add_drive).
    fn replace_drive(&self, pool: &str, request: ReplaceDrive) -> Result<PoolStatus, ControlError>;

    /// Begins to empty a drive, which then leaves the pool.
    ///
    /// # Errors
    /// Not found. Conflict: what it holds has no room, or would lose redundancy, elsewhere.
    fn remove_drive(&self, pool: &str, request: RemoveDrive) -> Result<PoolStatus, ControlError>;

    /// Begins to read and check everything; goes on if it has begun already.
    ///
    /// # Errors
    /// Not found.
    fn scrub(&self, pool: &str) -> Result<PoolStatus, ControlError>;

    /// Begins at once to make again what a lost drive held, if that waits for its time.
    ///
    /// # Errors
    /// Not found.
    fn repair(&self, pool: &str) -> Result<PoolStatus, ControlError>;

    /// Keeps so much for repair from now on.
    ///
    /// # Errors
    /// Not found. Usage: nothing would be left of the pool.
    fn set_reserve(&self, pool: &str, request: SetReserve) -> Result<PoolStatus, ControlError>;

    /// All volumes of all pools, by name.
    fn volumes(&self) -> Vec<VolumeStatus>;

    /// The same; of those that other nodes serve with what these say, for which they are asked.
    fn volumes_with_owners(&self) -> Vec<VolumeStatus> {
        self.volumes()
    }

    /// One of them.
    ///
    /// # Errors
    /// Not found.
    fn volume(&self, volume: &VolumeName) -> Result<VolumeStatus, ControlError>;

    /// Makes a volume and serves it.
    ///
    /// # Errors
    /// Not found: no such pool. Conflict: the name is taken. Usage: the pool has too few drives for
    /// the layout. Environment: no space.
    fn create_volume(&self, request: CreateVolume) -> Result<VolumeStatus, ControlError>;

    /// Gives a volume another size.
    ///
    /// # Errors
    /// Not found; those of [`ResizeVolume::allowed_on`].
    fn resize_volume(
        &self,
        volume: &VolumeName,
        request: ResizeVolume,
    ) -> Result<VolumeStatus, ControlError>;

    /// Deletes a volume, on all its nodes. Its space comes back in the background.
    ///
    /// # Errors
    /// Not found; those of [`DeleteVolume::allowed_on`]. Environment: one of its nodes is not reached, or does not know
    /// whether it has a copy; nothing was deleted.
    fn delete_volume(&self, volume: &VolumeName, request: DeleteVolume)
    -> Result<(), ControlError>;

    /// The cluster that this node is in, as it sees it.
    ///
    /// # Errors
    /// Usage: it is in none.
    fn cluster(&self) -> Result<ClusterView, ControlError>;

    /// Makes a token with which a machine can join the cluster.
    ///
    /// # Errors
    /// Usage: it is in none, or in one whose nodes are written in a file. Environment: the quorum does not answer.
    fn cluster_token(&self, request: NewToken) -> Result<ClusterToken, ControlError>;

    /// Takes a node that is gone, or a witness, out of the cluster.
    ///
    /// # Errors
    /// Not found. Conflict: it is there, has copies of volumes, or is needed. Environment: the quorum does not answer.
    fn forget_node(&self, request: ForgetNode) -> Result<(), ControlError>;

    /// Does what can be done next to have one node take the place of another.
    ///
    /// # Errors
    /// Usage: no such node. Environment: the new one is not reached, or the quorum does not answer.
    fn replace_node(&self, request: ReplaceNode) -> Result<ReplaceReply, ControlError>;

    /// Takes this node out of its cluster; the daemon ends by itself.
    ///
    /// # Errors
    /// Conflict: it has copies of volumes, or is needed. Environment: the quorum does not answer.
    fn leave_cluster(&self) -> Result<(), ControlError>;

    /// Has others serve a node's volumes, or lets it serve again.
    ///
    /// # Errors
    /// Usage: no cluster, or no such node. Environment: the node is not reached.
    fn drain(&self, request: DrainNode) -> Result<DrainReply, ControlError>;

    /// What has happened after the event of this number, as far as this node knows.
    fn events(&self, after: u64) -> Vec<ClusterEvent>;

    /// Gives a volume copies on other nodes, in service.
    ///
    /// # Errors
    /// Not found. Usage: no such node. Conflict: it has copies already, cannot have any, or is attached in process.
    /// Environment: a node is not reached; nothing was changed.
    fn replicate_volume(
        &self,
        volume: &VolumeName,
        request: ReplicateVolume,
    ) -> Result<VolumeStatus, ControlError>;

    /// Has this node's copy, which was not in sync, serve without the others.
    ///
    /// # Errors
    /// Not found. Refused: `accept_data_loss` was not said. Conflict: it is in sync, or one that is can be reached
    /// (`force`). Environment: the quorum does not answer.
    fn run_alone(
        &self,
        volume: &VolumeName,
        request: RunAlone,
    ) -> Result<VolumeStatus, ControlError>;

    /// Has another node serve a replicated volume.
    ///
    /// # Errors
    /// Not found. Usage: no such node. Conflict: it has no copy, or one that is not in sync. Environment: it has not
    /// taken over in time.
    fn move_volume(
        &self,
        volume: &VolumeName,
        request: MoveVolume,
    ) -> Result<VolumeStatus, ControlError>;

    /// Compares the copies of a replicated volume that are in sync.
    ///
    /// # Errors
    /// Not found. Conflict: it has one copy. Environment: no node serves it, or another one does meanwhile.
    fn verify_volume(&self, volume: &VolumeName) -> Result<ProofStatus, ControlError>;

    /// Makes a volume that caches a device, and serves it.
    ///
    /// # Errors
    /// Not found: no such pool. Conflict: the name is taken, or the device is in use. Refused: another cache has
    /// its mark on the device. Usage: the device's text makes no sense, or it is too small. Environment: it cannot be
    /// used, or the pool has no room.
    fn create_cache(&self, request: CreateCache) -> Result<VolumeStatus, ControlError>;

    /// Begins to write back everything that only the cache has, and waits half a minute for it.
    ///
    /// # Errors
    /// Not found. Conflict: the volume caches nothing. Environment: the cache is not in service.
    fn flush_volume(&self, volume: &VolumeName) -> Result<FlushReply, ControlError>;

    /// Takes up a cached volume that is not in service; one that is stays as it is.
    ///
    /// # Errors
    /// Not found. Conflict: the volume caches nothing. Others: why it still cannot be.
    fn reopen_volume(
        &self,
        volume: &VolumeName,
        request: ReopenCache,
    ) -> Result<VolumeStatus, ControlError>;

    /// What only the cache has.
    ///
    /// # Errors
    /// Not found. Conflict: the volume caches nothing. Environment: the pool cannot say.
    fn newer_data(&self, volume: &VolumeName) -> Result<NewerData, ControlError>;

    /// What is kept out of a cache by hand, and what that did.
    ///
    /// # Errors
    /// Not found. Conflict: the volume caches nothing.
    fn cache_rules(&self, volume: &VolumeName) -> Result<Vec<CacheRule>, ControlError>;

    /// Keeps files out of a cache, or says again where they lie.
    ///
    /// # Errors
    /// Not found: the volume, or the rule that is to be renewed. Conflict: the volume caches nothing. Environment: the
    /// cache is not in service.
    fn put_cache_rule(
        &self,
        volume: &VolumeName,
        request: PutRule,
    ) -> Result<CacheRule, ControlError>;

    /// Keeps them out no more.
    ///
    /// # Errors
    /// Not found: the volume, or the rule. Conflict: the volume caches nothing.
    fn remove_cache_rule(
        &self,
        volume: &VolumeName,
        request: RemoveRule,
    ) -> Result<(), ControlError>;

    /// Changes who may connect. Hosts that may no longer are disconnected, if the change says so.
    ///
    /// # Errors
    /// Not found; those of [`HostChange::applied_to`].
    fn change_hosts(
        &self,
        volume: &VolumeName,
        change: HostChange,
    ) -> Result<VolumeStatus, ControlError>;

    /// Says what a volume does when a copy is missing.
    ///
    /// # Errors
    /// Not found. Usage: its layout has no copies. Conflict: it is being given another size.
    fn set_when_degraded(
        &self,
        volume: &VolumeName,
        request: SetWhenDegraded,
    ) -> Result<VolumeStatus, ControlError>;

    /// Says whether ownership of a replicated volume follows its hosts.
    ///
    /// # Errors
    /// Not found. Usage: the node is in no cluster. Conflict: the volume has one copy. Environment: another of its
    /// nodes is not reached; it remembers what it did.
    fn set_follow(
        &self,
        volume: &VolumeName,
        request: SetFollow,
    ) -> Result<VolumeStatus, ControlError>;

    /// What a volume has done.
    ///
    /// # Errors
    /// Not found.
    fn volume_stats(&self, volume: &VolumeName) -> Result<VolumeStats, ControlError>;

    /// Everything that can be measured. A volume that goes away meanwhile is left out.
    fn metrics(&self) -> MetricsSnapshot {
        let with_stats = |status: VolumeStatus| {
            let name = VolumeName::new(&status.pool, &status.name).ok()?;
            let stats = self.volume_stats(&name).ok()?;
            Some(VolumeMetrics { status, stats })
        };
        MetricsSnapshot {
            pools: self.pools(),
            volumes: self.volumes().into_iter().filter_map(with_stats).collect(),
            cluster: self.cluster_metrics(),
        }
    }

    /// What is measured of the node's cluster; nothing if it is in none.
    fn cluster_metrics(&self) -> Option<ClusterMetrics> {
        None
    }

    /// Who has volumes, as services must know it.
    fn ownership(self: Arc<Self>) -> Arc<dyn Ownership>;

    /// These services hear from now on what other nodes say of them.
    fn keep_services(&self, services: &Arc<Services>) {
        // Without other nodes there is nothing to hear.
        let _ = services;
    }

    /// Ends everything in order: hosts are disconnected, logs settle, drives are let go. Called
    /// once, when no other call is under way and none will follow.
    ///
    /// # Errors
    /// What could not be ended in order; everything acknowledged is safe nevertheless.
    fn stop(&self) -> Result<(), ControlError>;
}
