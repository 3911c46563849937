use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{LayoutSpec, ReserveSpec, Survives};

/// Writes a share. One of nothing is no number, which JSON does not have: it is 0.
fn share<S: Serializer>(share: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(if share.is_finite() { *share } else { 0.0 })
}

/// How a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// Everything has its full redundancy, and no scrub is due for copies that were bad.
    Healthy,
    /// It serves, with less redundancy than asked for, or with bad copies that no scrub has looked after.
    Degraded,
    /// It does not serve, or serves reads only.
    Failed,
}

/// What a drive is good at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveClass {
    /// NVMe flash.
    Nvme,
    /// SATA or SAS flash.
    Ssd,
    /// A disk that seeks.
    Hdd,
}

impl fmt::Display for DriveClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvme => "nvme",
            Self::Ssd => "ssd",
            Self::Hdd => "hdd",
        })
    }
}

impl FromStr for DriveClass {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Nvme, Self::Ssd, Self::Hdd]
            .into_iter()
            .find(|class| class.to_string() == text)
            .ok_or_else(|| format!("class `{text}` is none of nvme, ssd, hdd"))
    }
}

/// How a drive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// In use.
    Online,
    /// Giving what it holds to the others, to be removed.
    Evacuating,
    /// Out of service: it was not there at the import, or had left the pool before.
    Missing,
    /// Out of service since the import: it failed, or has just been removed.
    Failed,
}

/// Errors of a drive since the pool was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveErrors {
    /// Reads that failed.
    pub read: u64,
    /// Writes and flushes that failed.
    pub write: u64,
    /// Copies on it, of 4 KiB of data or of a page of the map, that could not be read or were not what
    /// had been written.
    pub checksum: u64,
}

/// One drive of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DriveStatus {
    /// The device as it was named when it was given to the pool or last imported; empty if that was
    /// never here.
    pub spec: String,
    /// Its identity, from its label.
    pub id: Uuid,
    /// Its class, if it was ever here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<DriveClass>,
    /// How it is.
    pub state: DriveState,
    /// Why it is not online, or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the pool uses of it.
    pub bytes: u64,
    /// Of these, what is allocated.
    pub used_bytes: u64,
    /// Its errors since the pool was imported.
    pub errors: DriveErrors,
    /// Requests that it took longer than a second for, since the pool was imported.
    #[serde(default)]
    pub slow_requests: u64,
    /// For how many seconds it has not answered a request, if that is one or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_seconds: Option<u64>,
    /// Of `bytes`, what no layout can use that survives the loss of a drive, since the other drives together have less.
    #[serde(default)]
    pub unmatched_bytes: u64,
}

/// Space that is kept back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reserve {
    /// What for: `repair`, `cleaning`, `logs`, `metadata`, `deletion`.
    pub purpose: String,
    /// Raw bytes.
    pub bytes: u64,
}

/// The space of a pool. Raw bytes count every copy and all parity; user bytes are what volumes
/// hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpaceStatus {
    /// Raw bytes of all drives.
    pub raw_bytes: u64,
    /// User bytes that the pool promises to hold, in the layouts it has now (those of its volumes
    /// by size; while there are none, `mirror:2`, or `mirror:1` on a single drive).
    pub advertised_bytes: u64,
    /// User bytes held.
    pub used_bytes: u64,
    /// User bytes that the volumes could ask for if all were written: their sizes. More than
    /// `advertised_bytes` means that the pool is overcommitted.
    pub provisioned_bytes: u64,
    /// Raw bytes kept back, in all.
    pub reserved_bytes: u64,
    /// The same by purpose.
    pub reserves: Vec<Reserve>,
    /// How much is to be kept for repair, as it was wished; `reserves` has what that comes to now.
    pub repair_reserve: ReserveSpec,
    /// `advertised_bytes / raw_bytes`, as it is.
    #[serde(serialize_with = "share")]
    pub efficiency_with_reserves: f64,
    /// The same if nothing were kept back: the formula of the layouts alone.
    #[serde(serialize_with = "share")]
    pub efficiency_without_reserves: f64,
}

/// What a layout gives on this pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LayoutStatus {
    /// The layout.
    pub layout: LayoutSpec,
    /// The class of drives that it is on; any, without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<DriveClass>,
    /// Size of its slots; 0 for `stripe`, which has none.
    pub grain_bytes: u32,
    /// User bytes if the whole pool were in this layout.
    pub advertised_bytes: u64,
    /// User bytes that can still be written in this layout.
    pub free_bytes: u64,
    /// Share of raw space that holds data, with the reserves kept back.
    #[serde(serialize_with = "share")]
    pub efficiency_with_reserves: f64,
    /// The same if nothing were kept back.
    #[serde(serialize_with = "share")]
    pub efficiency_without_reserves: f64,
    /// What it survives.
    pub survives: Survives,
}

/// What a pool does in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// Makes what a lost drive held again.
    Rebuild,
    /// Empties a drive.
    Evacuate,
    /// Reads everything and checks it.
    Scrub,
    /// Gives back the space of a deleted volume.
    Reclaim,
}

/// How far background work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkState {
    /// It will start by itself.
    Waiting,
    /// It goes on.
    Running,
    /// It cannot go on; `reason` says why.
    Stuck,
}

/// One piece of background work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkStatus {
    /// What it is.
    pub what: WorkKind,
    /// What it is about: the drive that is emptied, or was lost if it is one; the volume that was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How it is.
    pub state: WorkState,
    /// Why it waits or is stuck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How far, from 0 to 1.
    #[serde(serialize_with = "share")]
    pub progress: f64,
    /// When it will be done, at the rate of the last minute (or of longer, if the pool has had nothing
    /// to do meanwhile), or will start if it waits; `null` while that is not known.
    pub eta_seconds: Option<u64>,
}

/// What has happened since the pool was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolCounters {
    /// Bytes that hosts have read.
    pub user_read_bytes: u64,
    /// Bytes that hosts have written.
    pub user_written_bytes: u64,
    /// Bytes read from drives, for hosts and for background work.
    pub device_read_bytes: u64,
    /// Bytes written to drives.
    pub device_written_bytes: u64,
    /// Copies that did not verify or could not be read, in bytes.
    pub bad_copy_bytes: u64,
    /// Of these, written again from a good copy.
    pub repaired_bytes: u64,
    /// Of these, without any good copy: they read as errors.
    pub lost_bytes: u64,
    /// Scrubs that reached the end.
    pub scrubs: u64,
}

/// A part of a volume in which blocks are lost: no copy of their data, or of what the pool's map says of them, is good.
/// They read as errors until they are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LostRange {
    /// The volume.
    pub volume: String,
    /// Where the part begins, in bytes.
    pub offset_bytes: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// How many of these are lost.
    pub lost_bytes: u64,
}

/// How full the logs are, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogFill {
    /// The rings of small writes.
    #[serde(serialize_with = "share")]
    pub data_ring: f64,
    /// The log of changes to the map.
    #[serde(serialize_with = "share")]
    pub map_log: f64,
}

/// Everything about a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: Uuid,
    /// How it is.
    pub state: PoolState,
    /// Why it is not healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its drives, in the order of their labels, without those that were removed or replaced and hold
    /// nothing any more.
    pub drives: Vec<DriveStatus>,
    /// Its space.
    pub space: SpaceStatus,
    /// What the layouts give on it, those it can have at all.
    pub layouts: Vec<LayoutStatus>,
    /// What it does in the background.
    pub work: Vec<WorkStatus>,
    /// How full its logs are.
    pub log_fill: LogFill,
    /// Features of the format that it uses, or has used, by name: a program that lacks one refuses the pool.
    #[serde(default)]
    pub features: Vec<String>,
    /// What has happened since it was imported.
    pub counters: PoolCounters,
    /// What is lost, as far as the pool knows it: a scrub finds what else is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostRange>,
    /// What an operator should know: space that runs out or is promised twice, drives in service that
    /// have errors, narrower stripes, what was lost.
    pub warnings: Vec<String>,
}
