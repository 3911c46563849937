//! How long an import takes after a crash, and what the map takes of memory.

use std::rc::Rc;

use ashlar_reactor::cpu_time;
use ashlar_store::{Layout, Manage, Sizes};
use serde::Serialize;

use super::cost::{counting_pool, devices, sequential, waiting};
use super::drive::{Medium, Rig};
use super::pool::{Ask, LEAF, Pool};
use crate::failure::Failure;

/// Bytes of each of two drives: the first size whose pools have logs as large as any.
const DRIVE: u64 = 64 << 30;
/// Bytes of the volume.
const VOLUME: u64 = 16 << 30;
const GIB: f64 = (1 << 30) as f64;
const TIB: f64 = (1_u64 << 40) as f64;

/// An import after a crash.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Recovery {
    /// What was in the logs.
    pub(crate) case: &'static str,
    /// Bytes of the two logs' copies that were read, counted once.
    pub(crate) log_bytes: u64,
    /// Bytes of volumes that have homes.
    pub(crate) mapped_bytes: u64,
    /// I/O of the import.
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Seconds of this machine's processor, drives not counted.
    pub(crate) cpu_s: f64,
    /// Seconds that simulated drives take.
    pub(crate) drive_s: f64,
    /// Both together for a GiB of log, or for a mapped TiB, less what an empty pool takes.
    pub(crate) seconds_a_unit: f64,
    pub(crate) unit: &'static str,
    pub(crate) goal_s: f64,
}

/// Memory that the map takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Memory {
    pub(crate) mapped_bytes: u64,
    /// What the leaves that are in memory take, once every leaf was looked at, and may take.
    pub(crate) leaf_bytes: u64,
    pub(crate) limit_bytes: u64,
    /// GiB a mapped TiB if all of them were in memory, and with the engine's bound.
    pub(crate) gib_a_tib: f64,
    pub(crate) bound_gib_a_tib: f64,
    pub(crate) goal_gib: f64,
}

struct Crashed {
    media: Vec<Medium>,
    rig: Rc<Rig>,
    /// Seconds that the import of an empty pool takes.
    fixed_s: f64,
}

impl Crashed {
    fn import(&self) -> Result<Pool, Failure> {
        let (import, serve) = (waiting(&self.rig), waiting(&self.rig));
        Pool::open(devices(&self.media, &self.rig), import, serve, None)
    }

    fn measure(
        &self,
        case: &'static str,
        log_bytes: u64,
        unit: &'static str,
        goal_s: f64,
    ) -> Result<(Recovery, Pool), Failure> {
        let (before, from, start) = (self.rig.count(), self.rig.now(), cpu_time());
        let pool = self.import()?;
        let cpu_s = cpu_time().saturating_sub(start).as_secs_f64();
        let drive_s = self.rig.now().since(from).as_secs_f64();
        let count = self.rig.count().since(&before);
        let mapped_bytes = pool.engine.volumes().iter().map(|v| v.used_bytes).sum();
        let units = match unit {
            "GiB of log" => log_bytes as f64 / GIB,
            "import" => 1.0,
            _ => mapped_bytes as f64 / TIB,
        };
        let recovery = Recovery {
            case,
            log_bytes,
            mapped_bytes,
            reads: count.reads,
            read_bytes: count.read_bytes,
            written_bytes: count.written_bytes,
            cpu_s,
            drive_s,
            seconds_a_unit: (cpu_s + drive_s - self.fixed_s) / units.max(1e-9),
            unit,
            goal_s,
        };
        Ok((recovery, pool))
    }
}

/// Imports: of a mapped volume, of a ring, of a map log; and the memory of a wholly loaded map.
pub(crate) fn measure() -> Result<(Vec<Recovery>, Memory), Failure> {
    let sizes = Sizes::for_drive(DRIVE)
        .ok_or_else(|| Failure::environment("no sizes for the bench's drives"))?;
    let (pool, media, rig) = counting_pool(2, DRIVE, sizes)?;
    drop(pool);
    let mut crashed = Crashed {
        media,
        rig,
        fixed_s: 0.0,
    };
    let (empty, mut pool) = crashed.measure("an empty pool", 0, "import", 1.0)?;
    crashed.fixed_s = empty.cpu_s + empty.drive_s;
    let volume = pool.volume(Layout::Mirror { copies: 2 }, None, VOLUME)?;
    let granules = VOLUME / 4096;
    pool.load(volume, 8, sequential(granules, 256, 1))?;
    pool.manage(Manage::Drain)?;
    drop(pool);
    let (mapped, mut pool) = crashed.measure("mapped, logs empty", 0, "mapped TiB", 1.0)?;
    let memory = memory(&mut pool, volume)?;
    let mut random = fastrand::Rng::with_seed(7);
    // As much as a ring holds that is not yet being emptied.
    let ring_bytes = sizes.chunk_bytes() * u64::from(sizes.ring_chunks) / 4;
    pool.load(
        volume,
        32,
        random_writes(granules, 1, ring_bytes / 4096 * 9 / 10, &mut random),
    )?;
    let (ring_fill, _) = pool.engine.log_fill();
    let log = (ring_fill * (sizes.chunk_bytes() * u64::from(sizes.ring_chunks)) as f64) as u64;
    drop(pool);
    let (ring, mut pool) = crashed.measure("4 KiB records in the ring", log, "GiB of log", 1.0)?;
    pool.manage(Manage::Drain)?;
    pool.load(
        volume,
        32,
        random_writes(granules, 16, 200_000, &mut random),
    )?;
    let (_, map_fill) = pool.engine.log_fill();
    let log = (map_fill * (sizes.chunk_bytes() * u64::from(sizes.map_chunks)) as f64) as u64;
    drop(pool);
    let (map, _) = crashed.measure("64 KiB places in the map log", log, "GiB of log", 1.0)?;
    Ok((vec![empty, mapped, ring, map], memory))
}

fn random_writes(
    granules: u64,
    step: u32,
    mut left: u64,
    random: &mut fastrand::Rng,
) -> impl FnMut() -> Option<Ask> {
    let mut random = random.fork();
    move || {
        left = left.checked_sub(1)?;
        Some(Ask {
            write: true,
            first: random.u64(..granules / u64::from(step)) * u64::from(step),
            granules: step,
        })
    }
}

fn memory(pool: &mut Pool, volume: u32) -> Result<Memory, Failure> {
    let granules = VOLUME / 4096;
    let mut leaf = 0;
    pool.load(volume, 32, || {
        let first = leaf * LEAF;
        leaf += 1;
        (first < granules).then_some(Ask {
            write: false,
            first,
            granules: 1,
        })
    })?;
    let memory = pool.engine.leaf_memory();
    let per_leaf = memory.bytes as f64 / memory.leaves.max(1) as f64;
    let per_tib = |bytes: f64| bytes / VOLUME as f64 * 1024.0;
    Ok(Memory {
        mapped_bytes: VOLUME,
        leaf_bytes: memory.bytes,
        limit_bytes: memory.limit_bytes,
        gib_a_tib: per_tib(per_leaf * granules.div_ceil(LEAF) as f64),
        bound_gib_a_tib: memory.limit_bytes_a_tib as f64 / f64::from(1 << 30),
        goal_gib: 1.0,
    })
}
