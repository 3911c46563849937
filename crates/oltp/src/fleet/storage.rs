//! What the storage under a fleet does: as the kernel counts it, and as the node tells that has the volumes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::usage::{Counters, device_counters, family_cpu_s};

/// Who knows which volume a folder is on. This crate does not: it is handed one.
pub trait Volumes: Sync {
    /// The volume that a folder is on, and what its node tells of it now; nothing if it is on none, or no node can be
    /// asked.
    fn under(&self, dir: &Path) -> Option<VolumeNow>;
}

/// Where no folder is on a volume.
#[derive(Clone, Copy, Debug)]
pub struct NoVolumes;

impl Volumes for NoVolumes {
    fn under(&self, _: &Path) -> Option<VolumeNow> {
        None
    }
}

/// A volume at a moment, as its node tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeNow {
    /// Its name, `POOL/VOLUME`.
    pub name: String,
    /// The node's process, if it runs on this machine.
    pub process: Option<u32>,
    /// Reads since it came online.
    pub reads: Served,
    /// Writes since it came online.
    pub writes: Served,
    /// User data that its pool holds, in percent of what that promises to hold.
    pub pool_full_pct: f64,
}

/// Commands that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// How many.
    pub count: u64,
    /// From arrival to end, added up, in microseconds.
    pub total_us: u64,
}

/// What a block device did for those above it, as the kernel counts it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accesses {
    /// The kernel's number of it, major:minor; of a volume its name.
    pub device: String,
    /// Reads a second.
    pub read_iops: f64,
    /// Writes a second.
    pub write_iops: f64,
    /// Mean of a read, in milliseconds; null without reads.
    pub read_ms: Option<f64>,
    /// Mean of a write.
    pub write_ms: Option<f64>,
}

/// What a volume did, as its node tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeAccesses {
    /// Which, and how many, and how long they took.
    #[serde(flatten)]
    pub accesses: Accesses,
    /// Processor seconds of the node's daemon, which may serve others, too; null if it is not on this machine.
    pub daemon_cpu_s: Option<f64>,
    /// How full its pool was in the end, in percent.
    pub pool_full_pct: f64,
}

/// All storage that a fleet is on.
pub(crate) struct Storage<'a> {
    /// A folder of each place.
    pub(crate) places: Vec<PathBuf>,
    /// A path on the storage of each database, where it can be told.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) volumes: &'a dyn Volumes,
}

/// All of it at a moment.
pub(crate) struct Looked {
    devices: Vec<(String, Counters)>,
    /// By place.
    volumes: Vec<Option<(VolumeNow, Option<f64>)>>,
}

/// What it did between two moments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    pub(crate) devices: Vec<Accesses>,
    /// By place.
    pub(crate) volumes: Vec<Option<VolumeAccesses>>,
}

impl Storage<'_> {
    pub(crate) fn now(&self) -> Looked {
        let mut devices: Vec<(String, Counters)> = Vec::new();
        for (name, counters) in self
            .files
            .iter()
            .filter_map(|path| device_counters(path).ok())
        {
            if devices.iter().all(|(other, _)| *other != name) {
                devices.push((name, counters));
            }
        }
        let volume = |dir: &PathBuf| {
            let now = self.volumes.under(dir)?;
            let cpu_s = now.process.and_then(|process| family_cpu_s(process).ok());
            Some((now, cpu_s))
        };
        Looked {
            devices,
            volumes: self.places.iter().map(volume).collect(),
        }
    }
}

impl Looked {
    pub(crate) fn until(self, later: Self, seconds: f64) -> Done {
        let device = |(name, from): (String, Counters)| {
            let mut now = later.devices.iter();
            let (_, to) = now.find(|(other, _)| *other == name)?;
            let [from, to] = [&from, to].map(|at| {
                let ms = |count, ms: u64| Served {
                    count,
                    total_us: 1000 * ms,
                };
                [ms(at.reads, at.read_ms), ms(at.writes, at.write_ms)]
            });
            Some(Accesses::between(name, [from, to], seconds))
        };
        let devices = self.devices.into_iter().filter_map(device).collect();
        let both = self.volumes.into_iter().zip(later.volumes);
        let volume = |(from, to): (Option<_>, Option<_>)| {
            let ((from, cpu_from), (to, cpu_to)) = from.zip(to)?;
            let (from, to): (VolumeNow, VolumeNow) = (from, to);
            let counts = [[from.reads, from.writes], [to.reads, to.writes]];
            Some(VolumeAccesses {
                accesses: Accesses::between(to.name, counts, seconds),
                daemon_cpu_s: Option::zip(cpu_from, cpu_to)
                    .map(|(from, to): (f64, f64)| (to - from).max(0.0)),
                pool_full_pct: to.pool_full_pct,
            })
        };
        Done {
            devices,
            volumes: both.map(volume).collect(),
        }
    }
}

impl Accesses {
    /// Of reads and writes at two moments.
    pub(crate) fn between(device: String, [from, to]: [[Served; 2]; 2], seconds: f64) -> Self {
        let part = |at: usize| {
            let count = to[at].count.saturating_sub(from[at].count);
            let total = to[at].total_us.saturating_sub(from[at].total_us);
            let mean_ms = (count > 0).then(|| total as f64 / 1000.0 / count as f64);
            (count as f64 / seconds, mean_ms)
        };
        let ((read_iops, read_ms), (write_iops, write_ms)) = (part(0), part(1));
        Self {
            device,
            read_iops,
            write_iops,
            read_ms,
            write_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_volume_did_is_what_its_counters_grew_by() {
        let at = |reads: u64, us| {
            let now = VolumeNow {
                name: "tank/db".into(),
                process: None,
                reads: Served {
                    count: reads,
                    total_us: us,
                },
                writes: Served::default(),
                pool_full_pct: 70.0,
            };
            Looked {
                devices: Vec::new(),
                volumes: vec![Some((now, Some(us as f64))), None],
            }
        };
        let done = at(100, 1000).until(at(300, 5000), 2.0);
        let volume = done.volumes[0].as_ref().expect("told");
        assert_eq!(volume.accesses.read_iops, 100.0);
        assert_eq!(volume.accesses.read_ms, Some(0.02));
        assert_eq!(
            (volume.accesses.write_ms, volume.daemon_cpu_s),
            (None, Some(4000.0))
        );
        assert_eq!(done.volumes[1], None);
    }
}
