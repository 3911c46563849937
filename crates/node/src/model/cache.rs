use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::hosts::check_hosts;
use super::request::{Check, check_size, check_spec};
use super::{ControlError, DriveClass, LayoutSpec, VolumeName, VolumeStatus};

/// Least bytes of a cache.
const LEAST_CACHE: u64 = 8 << 20;
/// Most bytes of the text that names a backing device: the cache keeps it.
const MAX_BACKING: usize = 1024;

/// How writes of a cached volume go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// To the pool, and later to the backing device.
    #[default]
    WriteBack,
    /// To the backing device; the pool keeps a copy for reads.
    WriteThrough,
    /// To the backing device only; reads are cached.
    WriteAround,
}

/// A volume whose uncached content is what another device holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateCache {
    /// The pool that caches.
    pub pool: String,
    /// The volume's name in the pool.
    pub name: String,
    /// The device that is cached, as devices are named: `/dev/x`, `file:/p`, `nvme-tcp://…`.
    pub backing: String,
    /// Bytes that may be cached, a multiple of 4,096 and at least 8 MiB. Without it: nine tenths of the pool's room,
    /// and no more than the backing device has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// How writes go.
    #[serde(default)]
    pub mode: CacheMode,
    /// How what is cached is laid out. Without it `mirror:2`, in a pool of one drive `mirror:1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutSpec>,
    /// The class of drives that hold what is cached. Without it, in a pool of several, the fastest with drives enough
    /// for its layout and room for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<DriveClass>,
    /// The hosts that may connect, by NQN.
    #[serde(default)]
    pub allow_hosts: Vec<String>,
    /// Whether every host may.
    #[serde(default)]
    pub allow_any_host: bool,
}

impl CreateCache {
    /// A cache that no host may use yet.
    pub fn new(volume: &VolumeName, backing: String) -> Self {
        Self {
            pool: volume.pool.clone(),
            name: volume.name.clone(),
            backing,
            cache_bytes: None,
            mode: CacheMode::default(),
            layout: None,
            class: None,
            allow_hosts: Vec::new(),
            allow_any_host: false,
        }
    }
}

fn check_backing(backing: &str) -> Result<(), ControlError> {
    check_spec(backing)?;
    if backing.len() > MAX_BACKING {
        return Err(ControlError::usage(format!(
            "the backing device is named by {} bytes: {MAX_BACKING} at most",
            backing.len()
        )));
    }
    Ok(())
}

impl Check for CreateCache {
    fn check(&self) -> Result<(), ControlError> {
        VolumeName::new(&self.pool, &self.name)?;
        check_backing(&self.backing)?;
        if let Some(bytes) = self.cache_bytes {
            check_size(bytes)?;
            if bytes < LEAST_CACHE {
                return Err(ControlError::usage(format!(
                    "a cache of {bytes} bytes: at least {LEAST_CACHE} are needed"
                )));
            }
        }
        if let Some(layout @ LayoutSpec::Stripe { .. }) = self.layout {
            return Err(ControlError::usage(format!(
                "layout {layout}: what is cached comes and goes, and a stripe has its space from the beginning"
            )));
        }
        check_hosts(&self.allow_hosts)
    }
}

/// A cached volume that is not in service to be taken up again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReopenCache {
    /// How its backing device is called now; without it, as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing: Option<String>,
    /// It may be another device than the one that is cached, or have changed: what is cached is forgotten then. Of a device
    /// with a mark it is a whole copy, and nothing is forgotten.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_device: bool,
    /// With that: one with a mark, of which no name says whether it is the one that is cached, is taken for that though it has
    /// other data somewhere. What is cached goes there again; what it lacks besides is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_data_loss: bool,
}

impl Check for ReopenCache {
    fn check(&self) -> Result<(), ControlError> {
        self.backing.as_deref().map_or(Ok(()), check_backing)
    }
}

/// What a volume caches, and how that goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CacheStatus {
    /// The backing device; empty when the pool does not say.
    pub backing: String,
    /// How writes go.
    pub mode: CacheMode,
    /// Bytes that may be cached.
    pub cache_bytes: u64,
    /// Bytes that are cached.
    pub cached_bytes: u64,
    /// Bytes of these that are newer than the backing device.
    pub newer_bytes: u64,
    /// The backing device has the mark: it cannot be mounted without the cache.
    pub is_marked: bool,
    /// Parts of reads that the pool has answered, since it came into service; a part is 64 KiB at most.
    pub read_hits: u64,
    /// Parts of reads for which the backing device was read.
    pub read_misses: u64,
    /// Hits of all parts of reads, 0 to 1; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<f64>,
    /// Parts of writes that went to the backing device at once.
    pub written_around: u64,
    /// Bytes written back.
    pub written_back_bytes: u64,
    /// Writes and flushes of the backing device that have failed; write-back tries again every second.
    pub backing_errors: u64,
    /// Memory that knows what is to stay, and what is cached.
    pub memory_bytes: u64,
    /// Bytes of the backing device for which the pool was not looked through yet, since the cache came into service, for
    /// space that a crash has left behind.
    #[serde(default)]
    pub unswept_bytes: u64,
}

/// What has become of a flush.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlushReply {
    /// The backing device has everything, and no mark. Otherwise the flush goes on: ask again.
    pub done: bool,
    /// The volume.
    pub volume: VolumeStatus,
}

/// Consecutive bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ByteRange {
    /// The first.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// What only a cache has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewerData {
    /// All of it.
    pub bytes: u64,
    /// Where it is, in order of address; the first 65,536 ranges.
    pub ranges: Vec<ByteRange>,
    /// Whether these are all.
    pub is_complete: bool,
}

impl NewerData {
    /// Most ranges that are told.
    const MOST: usize = 65_536;

    /// Of ranges: from, how many.
    pub fn of(ranges: &[(u64, u64)]) -> Self {
        let told = ranges.iter().take(Self::MOST);
        Self {
            bytes: ranges.iter().map(|(_, bytes)| bytes).sum(),
            ranges: told
                .map(|&(offset, bytes)| ByteRange { offset, bytes })
                .collect(),
            is_complete: ranges.len() <= Self::MOST,
        }
    }
}
