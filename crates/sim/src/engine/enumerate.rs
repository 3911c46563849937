//! A crash at every write and flush of a small, fixed workload.
//!
//! For each the write is left out, or torn; the power fails, or only the node; then the pool is
//! imported as it is, with each drive missing that its layout can miss, and with another crash at
//! each of the import's own writes. Every time everything must be there, before the logs have
//! drained, after, and after a clean import.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ashlar_block::{BlockRange, BlockSize, Durability, Operation};
use ashlar_store::format::Reserve;
use ashlar_store::{Grain, Layout};
use uuid::Uuid;

use super::drive::Pace;
use super::layouts::Facts;
use super::load::Habits;
use super::plan::{Fate, Plan, SMALL, Step, Wish};
use super::rig::Cut;
use super::run::panicked;
use super::seam::{Shape, Subject};
use super::world::World;
use crate::chance::Chance;
use crate::report::Listener;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads and writes of one volume.
    Data,
    /// Volumes that are made, given another size, and deleted.
    Volumes,
}

/// One way in which a workload is cut off. Replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is going on.
    pub work: Work,
    /// The volume's layout.
    pub layout: Layout,
    /// Its slots' size; `None` for the layout's own.
    pub grain: Option<Grain>,
    /// At which write or flush, counted from the first import on; `None` for no crash.
    pub at: Option<u64>,
    /// Whether that write is torn, and not left out.
    pub torn: bool,
    /// Whether the power fails too.
    pub power: bool,
    /// At which write or flush of the import that follows it crashes again.
    pub recovery: Option<u64>,
    /// The drive that is missing after the crash.
    pub missing: Option<usize>,
    /// Decides what else is left to chance: service times, how writes tear.
    pub seed: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes and flushes of the workload, from the first import on.
    pub changes: u64,
    /// Crashes with another one during recovery.
    pub recoveries: u64,
    /// Lives in all.
    pub lives: u64,
}

fn write(volume: usize, start: u64, count: u32) -> Step {
    let op = Operation::Write(Durability::Cached);
    Step::Ask(volume, op, BlockRange::new(start, count))
}

/// Small writes, atomic ones, overlapping ones, whole slots, zeroes, a flush, and both logs emptied
/// twice, so that homes are first made and then overwritten.
fn data() -> Vec<Step> {
    let zeroes = Operation::WriteZeroes {
        durability: Durability::Cached,
        deallocate: false,
    };
    vec![
        write(0, 0, 1),
        write(0, 4, 4),
        Step::Wait,
        write(0, 1, 3),
        write(0, 16, 16),
        write(0, 5, 2),
        Step::Wait,
        Step::Settle,
        write(0, 2, 4),
        write(0, 30, 4),
        Step::Wait,
        write(0, 64, 4),
        write(0, 70, 6),
        write(0, 32, 32),
        Step::Ask(0, Operation::Deallocate, BlockRange::new(16, 16)),
        Step::Wait,
        write(0, 33, 1),
        write(0, 68, 12),
        Step::Ask(0, zeroes, BlockRange::new(3, 2)),
        write(0, 20, 4),
        Step::Wait,
        Step::Settle,
        write(0, 0, 16),
        Step::Ask(0, Operation::Flush, BlockRange::default()),
        write(0, 7, 1),
        Step::Wait,
    ]
}

/// A volume that is made smaller and larger again, beside one that is deleted and one that takes its
/// place.
fn volumes() -> Vec<Step> {
    let resize = |to: u64| {
        Step::Do(Fate::Resize {
            pick: 0,
            to: to - 1,
        })
    };
    vec![
        write(0, 0, 16),
        write(0, 58, 8),
        Step::Do(Fate::Create),
        Step::Wait,
        write(1, 0, 16),
        write(1, 20, 2),
        resize(40),
        Step::Wait,
        resize(120),
        Step::Wait,
        write(0, 60, 2),
        Step::Do(Fate::Delete { pick: 1 }),
        write(0, 32, 16),
        Step::Wait,
        Step::Do(Fate::Create),
        resize(20),
        Step::Settle,
        write(2, 3, 20),
        resize(90),
        Step::Wait,
        write(0, 70, 3),
        Step::Wait,
    ]
}

fn plan(case: &Case) -> Plan {
    let Facts { width, losses, .. } = Facts::of(case.layout);
    let (count, tolerant) = (width.max(2), losses as u8 + 1);
    let shape = Shape {
        pool: Uuid::from_u64_pair(1, 1),
        salt: 0x5eed,
        sizes: SMALL,
        log_copies: tolerant,
        reserve: Reserve::None,
        drives: count,
    };
    let cut = if case.torn { Cut::Torn } else { Cut::Before };
    let wish = |granules| Wish {
        layout: case.layout,
        grain: case.grain,
        granules,
        most: 120,
    };
    Plan {
        shape,
        drives: vec![(BlockSize::B4096, 16 << 20); count],
        pace: Pace {
            time: Duration::from_micros(50),
            slow: Duration::from_micros(50),
            slow_per_mille: 0,
            pieces: false,
        },
        wishes: [80, 40, 40].map(wish).to_vec(),
        initial: 1,
        crowded: false,
        habits: Habits::none(),
        fates: Vec::new(),
        liar: None,
        import_cuts: 0,
        repair_after: Duration::ZERO,
        recovery: case.recovery.map(|at| (at, cut)),
        missing: case.missing,
        casualties: Vec::new(),
        casualty_per_mille: 0,
        canary: None,
    }
}

/// How one case went: how many writes and flushes there were, and how many crashes there were during
/// recovery.
pub(crate) struct Lived {
    /// Until the volume was made.
    ready: u64,
    changes: u64,
    imports: u64,
}

pub(crate) fn live<S: Subject>(
    case: &Case,
    listener: Option<Listener<'_>>,
) -> Result<Lived, String> {
    let mut world = World::<S>::new(plan(case), Chance::new(case.seed), listener);
    let lived = catch_unwind(AssertUnwindSafe(|| {
        world.format()?;
        let before = world.count().changes;
        if let Some(at) = case.at {
            let cut = if case.torn { Cut::Torn } else { Cut::Before };
            world.set_fuse(at, cut, case.power);
        }
        world.restart()?;
        world.until("the volume is made", |_| true)?;
        let ready = world.count().changes - before;
        world.follow(&match case.work {
            Work::Data => data(),
            Work::Volumes => volumes(),
        })?;
        let changes = world.count().changes - before;
        world.end()?;
        let imports = world.count().imports;
        Ok(Lived {
            ready,
            changes,
            imports,
        })
    }));
    let lived = lived.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
    if let Err(what) = &lived {
        world.say(|| format!("FAILED {what}"));
    }
    lived
}

/// Tries every crash on a layout; a crash during recovery at every `stride`th place.
///
/// # Errors
/// The first case that broke a promise, and what it broke.
pub(crate) fn enumerate<S: Subject>(
    work: Work,
    (layout, grain): (Layout, Option<Grain>),
    seed: u64,
    stride: u64,
) -> Result<Counts, (Case, String)> {
    let whole = Case {
        work,
        layout,
        grain,
        at: None,
        torn: false,
        power: false,
        recovery: None,
        missing: None,
        seed,
    };
    let mut counts = Counts::default();
    let mut lives = |case: Case| {
        counts.lives += 1;
        live::<S>(&case, None).map_err(|what| (case, what))
    };
    let Lived { ready, changes, .. } = lives(whole)?;
    let (mut recoveries, missing) = (0, may_miss(layout));
    for at in 0..changes {
        for (torn, power) in [(false, true), (false, false), (true, true), (true, false)] {
            let case = Case {
                at: Some(at),
                torn,
                power,
                ..whole
            };
            let plain = lives(case)?.imports;
            // Without all its drives a volume that is not there yet cannot be made.
            for drive in (0..missing).filter(|_| at >= ready) {
                lives(Case {
                    missing: Some(drive),
                    ..case
                })?;
            }
            // Until the recovery has no more writes at which it could be cut off.
            for recovery in (at % stride..).step_by(stride as usize) {
                let again = lives(Case {
                    recovery: Some(recovery),
                    ..case
                })?;
                if again.imports == plain {
                    break;
                }
                recoveries += 1;
            }
        }
    }
    counts.changes = changes;
    counts.recoveries = recoveries;
    Ok(counts)
}

/// Drives of which each may be missing.
fn may_miss(layout: Layout) -> usize {
    match Facts::of(layout) {
        facts if facts.losses > 0 => facts.width,
        _ => 0,
    }
}
