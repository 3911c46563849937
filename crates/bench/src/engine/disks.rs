//! What parity on disks that seek costs their arms, by the media model's count and time: with the slots that such volumes
//! have, and with those that the same layout has on flash. Logs and map are on two NVMe drives.

use std::rc::Rc;
use std::sync::Arc;

use ashlar_block::BlockSize;
use ashlar_device::Memory;
use ashlar_device::media::{DiskModel, Media};
use ashlar_reactor::{Opener, Options, Reactor, Spin};
use ashlar_store::format::DriveClass::{Hdd, Nvme};
use ashlar_store::{Grain, Layout, VolumePlan};
use serde::Serialize;

use super::cost::{scaled_sizes, sequential, waiting};
use super::drive::{Counting, Medium, Pace, Rig};
use super::pool::{Ask, Devices, Pool, make_of};
use crate::failure::Failure;

const DISKS: usize = 5;
const FAST: usize = 2;
const PARITY: Layout = Layout::Parity { data: 4, parity: 1 };
const DRIVE_BYTES: u64 = 192 << 20;
const GRANULES: u64 = (384 << 20) / 4096;
const DEPTH: usize = 32;
/// Bytes that a load moves, after as many that are not counted.
const BYTES: u64 = 24 << 20;

struct Load {
    name: &'static str,
    granules: u32,
    write: bool,
}

const LOADS: [Load; 4] = [
    Load {
        name: "randwrite",
        granules: 2,
        write: true,
    },
    Load {
        name: "randwrite",
        granules: 16,
        write: true,
    },
    Load {
        name: "randread",
        granules: 2,
        write: false,
    },
    Load {
        name: "randread",
        granules: 16,
        write: false,
    },
];

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DiskCost {
    pub(crate) pattern: &'static str,
    pub(crate) block_bytes: u32,
    pub(crate) depth: usize,
    /// Of the volume's slots.
    pub(crate) grain_bytes: u64,
    /// It is the one that such a volume has if no other is said.
    pub(crate) is_default: bool,
    /// How often an arm had to move, for a MiB that hosts wrote or read.
    pub(crate) seeks_per_mib: f64,
    pub(crate) mib_per_s: f64,
}

/// All rows.
pub(crate) fn measure() -> Result<Vec<DiskCost>, Failure> {
    let mut rows = Vec::new();
    for load in &LOADS {
        for grain in [PARITY.default_grain(), PARITY.default_grain_on(true)] {
            rows.push(row(load, grain)?);
        }
    }
    Ok(rows)
}

fn row(load: &Load, grain: Grain) -> Result<DiskCost, Failure> {
    let disks = Disks::new()?;
    let mut pool = disks.pool()?;
    let volume = pool.create(VolumePlan {
        class: Some(Hdd),
        grain: Some(grain),
        ..pool.plan(PARITY, GRANULES * 4096)
    })?;
    pool.load(volume, 8, sequential(GRANULES, 256, 1))?;
    let mut random = fastrand::Rng::with_seed(23);
    pool.load(volume, DEPTH, anywhere(load, random.fork()))?;
    let before = disks.seeks();
    let seen = pool.load(volume, DEPTH, anywhere(load, random.fork()))?;
    let mib = seen.bytes as f64 / f64::from(1 << 20);
    Ok(DiskCost {
        pattern: load.name,
        block_bytes: load.granules * 4096,
        depth: DEPTH,
        grain_bytes: grain.bytes(),
        is_default: grain == PARITY.default_grain_on(true),
        seeks_per_mib: (disks.seeks() - before) as f64 / mib,
        mib_per_s: mib / seen.time.as_secs_f64().max(1e-9),
    })
}

fn anywhere(load: &Load, mut random: fastrand::Rng) -> impl FnMut() -> Option<Ask> {
    let step = u64::from(load.granules);
    let mut left = BYTES / 4096 / step;
    let (write, granules) = (load.write, load.granules);
    move || {
        left = left.checked_sub(1)?;
        Some(Ask {
            write,
            first: random.u64(..GRANULES / step) * step,
            granules,
        })
    }
}

/// Disks that count how often their arms move, and drives for the logs.
struct Disks {
    fast: Vec<Medium>,
    slow: Vec<Arc<Media>>,
    rig: Rc<Rig>,
    // Dropped last: devices are of it.
    reactor: Reactor,
}

impl Disks {
    fn new() -> Result<Self, Failure> {
        let options = Options {
            spin: Spin::Off,
            ..Options::default()
        };
        let disk = |_| {
            let memory = Memory::new(DRIVE_BYTES, BlockSize::B4096);
            let memory = memory.map_err(Failure::doing("a disk in memory"))?;
            Ok(Media::disk(memory, DiskModel::NEARLINE))
        };
        Ok(Self {
            fast: (0..FAST).map(|_| Medium::new(DRIVE_BYTES)).collect(),
            slow: (0..DISKS).map(disk).collect::<Result<_, Failure>>()?,
            rig: Rc::new(Rig::default()),
            reactor: Reactor::new(&options).map_err(Failure::doing("a reactor"))?,
        })
    }

    fn open(&self) -> Result<Devices, Failure> {
        let fast = self.fast.iter().map(|medium| {
            let drive = Counting::new(medium.clone(), self.rig.clone(), Pace::NVME);
            Ok(Box::new(drive) as Box<_>)
        });
        let slow = self.slow.iter().map(|media| {
            let opened = media.open(self.reactor.handle());
            opened.map_err(Failure::doing("a disk"))
        });
        fast.chain(slow).collect()
    }

    fn pool(&self) -> Result<Pool, Failure> {
        let classes = [[Nvme; FAST].as_slice(), &[Hdd; DISKS]].concat();
        let wait = || waiting(&self.rig);
        make_of(
            self.open()?,
            &classes,
            &mut wait(),
            scaled_sizes(DRIVE_BYTES),
        )?;
        Pool::open(self.open()?, wait(), wait(), None)
    }

    fn seeks(&self) -> u64 {
        self.slow.iter().map(|media| media.seeks()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_slots_spare_arms_their_way_to_small_reads() {
        let load = &LOADS[2];
        let small = row(load, PARITY.default_grain()).expect("measured");
        let large = row(load, PARITY.default_grain_on(true)).expect("measured");
        assert!(
            large.seeks_per_mib < small.seeks_per_mib * 0.75,
            "{large:?} {small:?}"
        );
        assert!(
            large.mib_per_s > small.mib_per_s * 1.2,
            "{large:?} {small:?}"
        );
    }
}
