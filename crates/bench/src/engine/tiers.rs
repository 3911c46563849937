//! What a volume with a hot home loses when writes are spread over more than that may hold, by the drives'
//! simulated time: against writes that stay inside it, and against a plain mirror of the same drives.

use ashlar_store::{HotTier, Layout, Share};
use serde::Serialize;

use super::cost::{counting_pool, scaled_sizes, sequential};
use super::pool::{Ask, Pool};
use crate::failure::Failure;

/// A parity volume on five drives, a fifth of it hot: the volume is five times that.
const PARITY: Layout = Layout::Parity { data: 4, parity: 1 };
const MIRROR: Layout = Layout::Mirror { copies: 2 };
const DRIVES: usize = 5;
const DRIVE_BYTES: u64 = 1 << 30;
const SHARE_PERCENT: u8 = 20;
const GRANULES: u64 = (1 << 30) / 4096;
/// What stays inside: a part of the share below the one at which cold slots leave.
const INSIDE: u64 = GRANULES / 100 * SHARE_PERCENT as u64 * 7 / 10;

const DEPTHS: [usize; 4] = [1, 4, 16, 32];
/// Of a hundred writes of 80/20, those that go to what is hot.
const HOT_PERCENT: u64 = 80;

/// Where writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    /// To what fits the hot home.
    Inside,
    Uniform,
    /// Most to what fits the hot home, the rest anywhere.
    EightyTwenty,
}

struct Block {
    granules: u32,
    /// Goals for uniform writes and for 80/20, of in-tier speed.
    goals: [Option<f64>; 2],
    /// Writes that are counted, after as many that are not.
    writes: u64,
}

const BLOCKS: [Block; 2] = [
    Block {
        granules: 16,
        goals: [Some(0.8), Some(0.9)],
        writes: 16_384,
    },
    Block {
        granules: 2,
        goals: [None; 2],
        writes: 60_000,
    },
];

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TierRatio {
    pub(crate) spread: &'static str,
    pub(crate) block_bytes: u32,
    pub(crate) depth: usize,
    /// User bytes a second, of those of writes that stay inside the hot home.
    pub(crate) of_inside: f64,
    /// The same of a plain mirror's, written anywhere.
    pub(crate) of_mirror: f64,
    pub(crate) goal: Option<f64>,
    /// Device bytes a user byte, as `volume show` has it.
    pub(crate) device_bytes_per_user_byte: f64,
    pub(crate) promoted_bytes: u64,
    pub(crate) demoted_bytes: u64,
}

/// What a load has got.
struct Speed {
    bytes_per_s: f64,
    cost: f64,
    moved: (u64, u64),
}

/// All rows.
pub(crate) fn measure() -> Result<Vec<TierRatio>, Failure> {
    let mut rows = Vec::new();
    for block in &BLOCKS {
        for depth in DEPTHS {
            let mirror = speed(None, block, depth, Spread::Uniform)?.bytes_per_s;
            let hot = Share::of_percent(SHARE_PERCENT).map(|share| HotTier {
                copies: 2,
                class: None,
                share,
            });
            let inside = speed(hot, block, depth, Spread::Inside)?.bytes_per_s;
            let spreads = [
                ("uniform", Spread::Uniform),
                ("80/20", Spread::EightyTwenty),
            ];
            for ((name, spread), goal) in spreads.into_iter().zip(block.goals) {
                let found = speed(hot, block, depth, spread)?;
                rows.push(TierRatio {
                    spread: name,
                    block_bytes: block.granules * 4096,
                    depth,
                    of_inside: found.bytes_per_s / inside,
                    of_mirror: found.bytes_per_s / mirror,
                    goal,
                    device_bytes_per_user_byte: found.cost,
                    promoted_bytes: found.moved.0,
                    demoted_bytes: found.moved.1,
                });
            }
        }
    }
    Ok(rows)
}

/// A fresh pool with one volume that is written all over, and then as `spread` says.
fn speed(
    hot: Option<HotTier>,
    block: &Block,
    depth: usize,
    spread: Spread,
) -> Result<Speed, Failure> {
    let sizes = scaled_sizes(DRIVE_BYTES);
    let (mut pool, _, _rig) = counting_pool(DRIVES, DRIVE_BYTES, sizes)?;
    let layout = hot.map_or(MIRROR, |_| PARITY);
    let volume = pool.tiered_volume(layout, hot, GRANULES * 4096)?;
    pool.load(volume, 8, sequential(GRANULES, 256, 1))?;
    let mut random = fastrand::Rng::with_seed(19);
    pool.load(volume, depth, writes(block, spread, random.fork()))?;
    let before = tally(&pool, volume);
    let seen = pool.load(volume, depth, writes(block, spread, random.fork()))?;
    let after = tally(&pool, volume);
    let user = (after.user_bytes - before.user_bytes) as f64;
    Ok(Speed {
        bytes_per_s: seen.bytes as f64 / seen.time.as_secs_f64().max(1e-9),
        cost: (after.device_bytes - before.device_bytes) as f64 / user.max(1.0),
        moved: (
            after.promoted_bytes - before.promoted_bytes,
            after.demoted_bytes - before.demoted_bytes,
        ),
    })
}

fn tally(pool: &Pool, volume: u32) -> ashlar_store::TierTally {
    let volumes = pool.engine.volumes().into_iter();
    let mut ours = volumes.filter(|one| one.number == volume);
    let tier = ours.next().and_then(|one| one.tier);
    tier.map(|tier| tier.tally).unwrap_or_default()
}

fn writes(block: &Block, spread: Spread, mut random: fastrand::Rng) -> impl FnMut() -> Option<Ask> {
    let step = u64::from(block.granules);
    let (mut left, granules) = (block.writes, block.granules);
    move || {
        left = left.checked_sub(1)?;
        let within = match spread {
            Spread::Inside => INSIDE,
            Spread::EightyTwenty if random.u64(..100) < HOT_PERCENT => INSIDE,
            Spread::Uniform | Spread::EightyTwenty => GRANULES,
        };
        Some(Ask {
            write: true,
            first: random.u64(..within / step) * step,
            granules,
        })
    }
}
