//! What a ring on NVMe gives the writes of several databases whose homes are on SATA drives, by the drives' simulated
//! time: against the same SATA drives with their ring on themselves, at the same rate.

use std::time::Duration;

use ashlar_store::Layout;
use ashlar_store::format::DriveClass;
use serde::Serialize;

use super::cost::{mixed_pool, scaled_sizes, sequential};
use super::drive::Pace;
use super::pool::{Ask, Pool, Timed};
use crate::failure::Failure;

const SATA: usize = 4;
const NVME: usize = 2;
const DRIVE_BYTES: u64 = 1 << 30;
const MIRROR: Layout = Layout::Mirror { copies: 2 };
const DATABASES: u64 = 8;
/// Of what the SATA drives can hold.
const FULL_PERCENT: u64 = 70;
/// Commands a second, of all databases together.
const RATE: u64 = 20_000;
/// Of a hundred: reads and writes of pages; the rest is the log.
const READS: u64 = 60;
const WRITES: u64 = 30;
/// Granules of a page, and of each database's log.
const PAGE: u64 = 2;
const LOG: u64 = (8 << 20) / 4096;
/// What is not measured, at the beginning.
const RAMP: Duration = Duration::from_secs(5);

/// A layout under the load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WriteCache {
    pub(crate) ring: &'static str,
    pub(crate) simulated_seconds: u64,
    pub(crate) commands: u64,
    pub(crate) write_p50_us: f64,
    pub(crate) write_p95_us: f64,
    pub(crate) write_p999_us: f64,
    pub(crate) write_longest_us: f64,
    pub(crate) read_p95_us: f64,
}

/// Both layouts, for so long in the drives' time.
pub(crate) fn measure(seconds: u64) -> Result<[WriteCache; 2], Failure> {
    let sata = [(DriveClass::Ssd, Pace::SATA); SATA];
    let nvme = [(DriveClass::Nvme, Pace::NVME); NVME];
    let both: Vec<_> = nvme.into_iter().chain(sata).collect();
    Ok([
        under_load("sata", &sata, seconds)?,
        under_load("nvme", &both, seconds)?,
    ])
}

/// How often something took how long, in steps of a twentieth.
struct Times {
    counts: Vec<u64>,
    longest: Duration,
}

impl Times {
    const STEP: f64 = 1.05;

    fn new() -> Self {
        Self {
            counts: vec![0; 512],
            longest: Duration::ZERO,
        }
    }

    fn add(&mut self, took: Duration) {
        let micros = (took.as_secs_f64() * 1e6).max(1.0);
        let at = micros.log(Self::STEP).ceil() as usize;
        let last = self.counts.len() - 1;
        self.counts[at.min(last)] += 1;
        self.longest = self.longest.max(took);
    }

    /// In microseconds, what so many of a thousand stay below.
    fn of_thousand(&self, part: u64) -> f64 {
        let all: u64 = self.counts.iter().sum();
        let mut left = all * part / 1000;
        let at = self.counts.iter().position(|&count| {
            let here = count >= left;
            left = left.saturating_sub(count);
            here
        });
        Self::STEP.powi(at.unwrap_or(0) as i32)
    }
}

fn under_load(
    ring: &'static str,
    drives: &[(DriveClass, Pace)],
    seconds: u64,
) -> Result<WriteCache, Failure> {
    let mut pool = mixed_pool(drives, DRIVE_BYTES, scaled_sizes(DRIVE_BYTES))?;
    let all = SATA as u64 / 2 * DRIVE_BYTES * FULL_PERCENT / 100;
    let granules = all / DATABASES / 4096 / 256 * 256;
    let volumes = (0..DATABASES)
        .map(|_| pool.volume_on(DriveClass::Ssd, MIRROR, granules * 4096))
        .collect::<Result<Vec<u32>, Failure>>()?;
    for &volume in &volumes {
        pool.load(volume, 8, sequential(granules, 256, 1))?;
    }
    let (mut writes, mut reads) = (Times::new(), Times::new());
    let mut commands = 0;
    let ramp = RAMP.as_secs() * RATE;
    let load = Load::new(volumes, granules);
    run(
        &mut pool,
        load,
        ramp + seconds * RATE,
        |number, ask, took| {
            if number < ramp {
                return;
            }
            commands += 1;
            match ask.write {
                true => writes.add(took),
                false => reads.add(took),
            }
        },
    )?;
    Ok(WriteCache {
        ring,
        simulated_seconds: seconds,
        commands,
        write_p50_us: writes.of_thousand(500),
        write_p95_us: writes.of_thousand(950),
        write_p999_us: writes.of_thousand(999),
        write_longest_us: writes.longest.as_secs_f64() * 1e6,
        read_p95_us: reads.of_thousand(950),
    })
}

/// What databases ask for: pages anywhere, and each its log, round and round.
struct Load {
    volumes: Vec<u32>,
    granules: u64,
    logs: Vec<u64>,
    random: fastrand::Rng,
}

impl Load {
    fn new(volumes: Vec<u32>, granules: u64) -> Self {
        Self {
            logs: vec![0; volumes.len()],
            volumes,
            granules,
            random: fastrand::Rng::with_seed(144),
        }
    }

    fn next(&mut self, number: u64) -> Timed {
        let database = self.random.usize(..self.volumes.len());
        let kind = self.random.u64(..100);
        let page = LOG + self.random.u64(..(self.granules - LOG) / PAGE) * PAGE;
        let log = &mut self.logs[database];
        let first = match kind < READS + WRITES {
            true => page,
            false => {
                *log = (*log + PAGE) % LOG;
                *log
            }
        };
        Timed {
            after: Duration::from_nanos(number * 1_000_000_000 / RATE),
            volume: self.volumes[database],
            ask: Ask {
                write: kind >= READS,
                first,
                granules: PAGE as u32,
            },
        }
    }
}

fn run(
    pool: &mut Pool,
    mut load: Load,
    count: u64,
    mut told: impl FnMut(u64, &Ask, Duration),
) -> Result<(), Failure> {
    let (mut number, mut answered) = (0, 0);
    let next = || {
        number += 1;
        (number <= count).then(|| load.next(number))
    };
    pool.paced(next, |ask, took| {
        answered += 1;
        told(answered, ask, took);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_on_nvme_makes_writes_quicker() {
        let [sata, nvme] = measure(1).expect("measured");
        assert!(nvme.write_p95_us < sata.write_p95_us, "{sata:?}, {nvme:?}");
        assert!(nvme.write_longest_us < 100_000.0, "{nvme:?}");
    }
}
