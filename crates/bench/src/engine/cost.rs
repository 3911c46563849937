//! Device bytes a user byte, counted.

use std::rc::Rc;
use std::time::Duration;

use ashlar_store::format::DriveClass;
use ashlar_store::{Grain, Layout, Sizes, Status};
use serde::Serialize;

use super::drive::{Counting, Medium, Pace, Rig};
use super::pool::{Ask, Devices, Pool, Wait, make, make_of};
use crate::failure::Failure;

/// A layout on so many drives.
struct Kind {
    layout: Layout,
    /// Size of its slots, if not the layout's own.
    grain: Option<Grain>,
    name: &'static str,
    drives: usize,
    /// Most device bytes written for a user byte of 64 KiB random writes: at depth 1, at depth.
    limits: Option<[f64; 2]>,
}

/// The goals are 2.13, and 2.0 with one decimal.
const MIRROR_LIMITS: [f64; 2] = [2.13, 2.05];

/// What is measured. Another layout is another line.
const KINDS: &[Kind] = &[
    Kind {
        layout: Layout::Mirror { copies: 1 },
        grain: None,
        name: "mirror:1",
        drives: 2,
        limits: None,
    },
    Kind {
        layout: Layout::Mirror { copies: 2 },
        grain: None,
        name: "mirror:2",
        drives: 2,
        limits: Some(MIRROR_LIMITS),
    },
    Kind {
        layout: Layout::Mirror { copies: 2 },
        grain: None,
        name: "mirror:2 of 5",
        drives: 5,
        limits: Some(MIRROR_LIMITS),
    },
    Kind {
        layout: Layout::Parity { data: 4, parity: 1 },
        grain: None,
        name: "parity:4+1",
        drives: 5,
        limits: None,
    },
    Kind {
        layout: Layout::Parity { data: 4, parity: 1 },
        grain: Some(Grain::K64),
        name: "parity:4+1 64k",
        drives: 5,
        limits: None,
    },
    Kind {
        layout: Layout::Parity { data: 2, parity: 1 },
        grain: None,
        name: "parity:2+1",
        drives: 3,
        limits: None,
    },
    Kind {
        layout: Layout::Mirror { copies: 3 },
        grain: None,
        name: "mirror:3",
        drives: 3,
        limits: None,
    },
    Kind {
        layout: Layout::Parity { data: 4, parity: 2 },
        grain: None,
        name: "parity:4+2",
        drives: 6,
        limits: None,
    },
    Kind {
        layout: Layout::Stripe { columns: 2 },
        grain: None,
        name: "stripe:2",
        drives: 2,
        limits: None,
    },
];

impl Kind {
    /// Copies of the logs and the map: as many losses as the layout survives, and one more.
    fn log_copies(&self) -> u64 {
        let wanted = (u64::from(self.layout.survives()) + 1).max(2);
        wanted.min(self.drives as u64)
    }
}

/// Commands in flight: one, and many.
const DEPTHS: [usize; 2] = [1, 32];
/// What is measured.
pub(crate) struct CostOptions {
    pub(crate) drive_bytes: u64,
    /// Layouts as the table names them; all if there are none here.
    pub(crate) layouts: Vec<String>,
    /// Percents of the advertised capacity that the volumes hold.
    pub(crate) fills: Vec<u64>,
}
/// Granules of the writes that fill a volume.
const LOADED: u32 = 256;
/// Steady state begins after the volume was overwritten this often, and lasts as long.
const OVERWRITES: u64 = 2;

/// Writes of one kind.
struct Pattern {
    name: &'static str,
    granules: u32,
    random: bool,
    /// Size of random writes that have overwritten the volume before, and scattered it.
    scattered: Option<u32>,
}

impl Pattern {
    /// How much larger its drives are. Whole slots go past the ring, and what they cost besides themselves is the map
    /// log's affair: it should have as many chunks as a large pool's, whose tail moves by small parts of it. Small
    /// writes would take too long for that.
    fn scale(&self) -> u64 {
        if self.granules >= UNIT { 4 } else { 1 }
    }
}

/// Granules of 64 KiB.
const UNIT: u32 = 16;

const PATTERNS: [Pattern; 5] = [
    Pattern {
        name: "randwrite",
        granules: 1,
        random: true,
        scattered: None,
    },
    Pattern {
        name: "randwrite",
        granules: 2,
        random: true,
        scattered: None,
    },
    Pattern {
        name: "randwrite",
        granules: UNIT,
        random: true,
        scattered: None,
    },
    Pattern {
        name: "after 8 KiB",
        granules: UNIT,
        random: true,
        scattered: Some(2),
    },
    Pattern {
        name: "write",
        granules: 256,
        random: false,
        scattered: None,
    },
];

/// A cell of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Cost {
    pub(crate) layout: &'static str,
    pub(crate) pattern: &'static str,
    pub(crate) block_bytes: u32,
    pub(crate) depth: usize,
    /// Percent of the advertised capacity.
    pub(crate) fill_pct: u64,
    /// Device bytes for each byte that the user wrote.
    pub(crate) written_per_byte: f64,
    pub(crate) read_per_byte: f64,
    /// Of `written_per_byte`: pages of the map and tables.
    pub(crate) pages_per_byte: f64,
    /// Device writes and flushes for each command.
    pub(crate) writes_per_command: f64,
    pub(crate) flushes_per_command: f64,
    /// Goal for `written_per_byte`, if there is one.
    pub(crate) limit: Option<f64>,
    /// The fullest that the logs were, 0 to 1.
    pub(crate) ring_fill: f64,
    pub(crate) map_fill: f64,
    /// Of the simulated drives: user bytes a second, and the longest time without an answer.
    pub(crate) user_bytes_per_s: f64,
    pub(crate) longest_silence_us: f64,
}

/// How fast parity is beside a mirror of the same drives, by the drives' simulated time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CostRatio {
    pub(crate) ours: &'static str,
    pub(crate) base: &'static str,
    pub(crate) pattern: &'static str,
    pub(crate) block_bytes: u32,
    pub(crate) depth: usize,
    pub(crate) fill_pct: u64,
    /// User bytes a second, ours / base.
    pub(crate) rate_ratio: f64,
    pub(crate) goal: f64,
    /// The longest time without an answer, of ours.
    pub(crate) longest_silence_us: f64,
}

/// The goal is for random writes of 64 KiB at depth.
const PARITY: &str = "parity:4+1";
const MIRROR: &str = "mirror:2 of 5";
const PARITY_GOAL: f64 = 0.5;

/// What cells of both layouts say of them together.
pub(crate) fn ratios(cells: &[Cost]) -> Vec<CostRatio> {
    let is_64k = |cell: &&Cost| cell.block_bytes == 64 << 10 && cell.depth > 1;
    let parity = cells.iter().filter(|cell| cell.layout == PARITY);
    let pairs = parity.filter(is_64k).filter_map(|ours| {
        let base = cells.iter().find(|cell| {
            let (a, b) = (&ours, cell);
            b.layout == MIRROR
                && (a.pattern, a.block_bytes) == (b.pattern, b.block_bytes)
                && (a.depth, a.fill_pct) == (b.depth, b.fill_pct)
        })?;
        Some(CostRatio {
            ours: ours.layout,
            base: base.layout,
            pattern: ours.pattern,
            block_bytes: ours.block_bytes,
            depth: ours.depth,
            fill_pct: ours.fill_pct,
            rate_ratio: ours.user_bytes_per_s / base.user_bytes_per_s,
            goal: PARITY_GOAL,
            longest_silence_us: ours.longest_silence_us,
        })
    });
    pairs.collect()
}

/// What a pool advertises for a layout.
fn capacity(status: &Status, kind: &Kind) -> u64 {
    if let Layout::Stripe { .. } = kind.layout {
        return status.stripes.free_bytes;
    }
    // What there is to grow by is the same for all grains, less what they pad.
    let found = status
        .homes
        .iter()
        .find(|home| home.layout == kind.layout && home.hot_of.is_none());
    found.map_or(0, |home| {
        home.used_bytes + home.free_bytes + home.growth_bytes
    })
}

/// Logs in proportion to space as in a pool of 1 TiB drives: the ring 1/256 of a drive and the map log
/// 1/512, with the smallest chunks that there are.
pub(crate) fn scaled_sizes(drive_bytes: u64) -> Sizes {
    let chunk = 512 << 10;
    Sizes {
        extent_shift: 19,
        chunk_extents: 1,
        ring_chunks: (drive_bytes / 256 / chunk).clamp(3, 1024) as u32,
        map_chunks: (drive_bytes / 512 / chunk).clamp(3, 1024) as u32,
        segment_slots: 128,
        batch_bytes: 128 << 10,
    }
}

/// A pool on fresh drives that count.
pub(crate) fn counting_pool(
    drives: usize,
    bytes: u64,
    sizes: Sizes,
) -> Result<(Pool, Vec<Medium>, Rc<Rig>), Failure> {
    let media: Vec<Medium> = (0..drives).map(|_| Medium::new(bytes)).collect();
    let rig = Rc::new(Rig::default());
    make(devices(&media, &rig), &mut waiting(&rig), sizes)?;
    let pool = Pool::open(devices(&media, &rig), waiting(&rig), waiting(&rig), None)?;
    Ok((pool, media, rig))
}

/// A pool on fresh drives of several classes, each as fast as its own.
pub(crate) fn mixed_pool(
    drives: &[(DriveClass, Pace)],
    bytes: u64,
    sizes: Sizes,
) -> Result<Pool, Failure> {
    let rig = Rc::new(Rig::default());
    let media: Vec<Medium> = drives.iter().map(|_| Medium::new(bytes)).collect();
    let open = || -> Devices {
        let each = media.iter().zip(drives);
        each.map(|(medium, &(_, pace))| {
            Box::new(Counting::new(medium.clone(), rig.clone(), pace)) as Box<_>
        })
        .collect()
    };
    let classes: Vec<DriveClass> = drives.iter().map(|&(class, _)| class).collect();
    make_of(open(), &classes, &mut waiting(&rig), sizes)?;
    Pool::open(open(), waiting(&rig), waiting(&rig), None)
}

/// New devices on these media.
pub(crate) fn devices(media: &[Medium], rig: &Rc<Rig>) -> Devices {
    let open = |medium: &Medium| {
        Box::new(Counting::new(medium.clone(), rig.clone(), Pace::NVME)) as Box<_>
    };
    media.iter().map(open).collect()
}

/// Lets simulated time pass.
pub(crate) fn waiting(rig: &Rc<Rig>) -> Wait {
    let rig = rig.clone();
    Box::new(move |until| {
        rig.advance(until.unwrap_or_else(|| rig.now() + Duration::from_micros(10)));
        rig.now()
    })
}

/// All cells, each told to `tell` when it is there.
pub(crate) fn measure(
    options: &CostOptions,
    mut tell: impl FnMut(&Cost) -> Result<(), Failure>,
) -> Result<Vec<Cost>, Failure> {
    let mut cells = Vec::new();
    let named = |kind: &&Kind| options.layouts.iter().any(|name| name == kind.name);
    let wanted = |kind: &&Kind| options.layouts.is_empty() || named(kind);
    for kind in KINDS.iter().filter(wanted) {
        for pattern in &PATTERNS {
            for &fill in &options.fills {
                let drive_bytes = options.drive_bytes * pattern.scale();
                for cost in filled(kind, pattern, fill, drive_bytes)? {
                    tell(&cost)?;
                    cells.push(cost);
                }
            }
        }
    }
    Ok(cells)
}

/// The cells of one fresh pool whose only volume holds so many percent of what it advertises.
fn filled(
    kind: &Kind,
    pattern: &Pattern,
    fill: u64,
    drive_bytes: u64,
) -> Result<Vec<Cost>, Failure> {
    let (mut pool, _, rig) = counting_pool(kind.drives, drive_bytes, scaled_sizes(drive_bytes))?;
    let capacity = capacity(&pool.engine.status(), kind);
    let unit = u64::from(LOADED);
    let granules = capacity * fill / 100 / 4096 / unit * unit;
    let volume = pool.volume(kind.layout, kind.grain, granules * 4096)?;
    pool.load(volume, 8, sequential(granules, LOADED, 1))?;
    let mut random = fastrand::Rng::with_seed(fill);
    let mut cells = Vec::new();
    // What is scattered is gathered again by whole overwrites.
    let overwrites = pattern.scattered.map_or(OVERWRITES, |_| 1);
    for (depth, limit) in DEPTHS.into_iter().zip(0..) {
        let asks = |random: &mut fastrand::Rng| -> Box<dyn FnMut() -> Option<Ask>> {
            match pattern.random {
                true => Box::new(randomly(
                    granules,
                    pattern.granules,
                    overwrites,
                    random.fork(),
                )),
                false => Box::new(sequential(granules, pattern.granules, overwrites)),
            }
        };
        match pattern.scattered {
            Some(step) => pool.load(volume, 32, randomly(granules, step, 1, random.fork()))?,
            None => pool.load(volume, depth, asks(&mut random))?,
        };
        let (before, counters) = (rig.count(), pool.engine.counters());
        let seen = pool.load(volume, depth, asks(&mut random))?;
        let count = rig.count().since(&before);
        let pages = pool.engine.counters().pages - counters.pages;
        let (bytes, commands) = (seen.bytes as f64, seen.commands as f64);
        cells.push(Cost {
            layout: kind.name,
            pattern: pattern.name,
            block_bytes: pattern.granules * 4096,
            depth,
            fill_pct: fill,
            written_per_byte: count.written_bytes as f64 / bytes,
            read_per_byte: count.read_bytes as f64 / bytes,
            pages_per_byte: (pages * 4096 * kind.log_copies()) as f64 / bytes,
            writes_per_command: count.writes as f64 / commands,
            flushes_per_command: count.flushes as f64 / commands,
            limit: kind
                .limits
                .filter(|_| pattern.granules == 16 && pattern.scattered.is_none())
                .map(|limits| limits[limit]),
            ring_fill: seen.ring_fill,
            map_fill: seen.map_fill,
            user_bytes_per_s: bytes / seen.time.as_secs_f64().max(1e-9),
            longest_silence_us: seen.longest_silence.as_secs_f64() * 1e6,
        });
    }
    Ok(cells)
}

/// Writes from the beginning to the end, `times` over.
pub(crate) fn sequential(granules: u64, step: u32, times: u64) -> impl FnMut() -> Option<Ask> {
    let (mut next, steps) = (0, granules / u64::from(step));
    move || {
        let at = next % steps.max(1);
        next += 1;
        (next <= steps * times).then_some(Ask {
            write: true,
            first: at * u64::from(step),
            granules: step,
        })
    }
}

/// Writes at random places, as many as overwrite everything `times`.
fn randomly(
    granules: u64,
    step: u32,
    times: u64,
    mut random: fastrand::Rng,
) -> impl FnMut() -> Option<Ask> {
    let steps = granules / u64::from(step);
    let mut left = steps * times;
    move || {
        left = left.checked_sub(1)?;
        Some(Ask {
            write: true,
            first: random.u64(..steps) * u64::from(step),
            granules: step,
        })
    }
}
