//! A crash at every write and flush of a small, fixed workload.
//!
//! For each the write is left out, or torn; the power fails, or only the node; then the pool is
//! imported as it is, with each drive missing that its layout can miss, and with another crash at
//! each write of what follows, the import, a rebuild, destage, checkpoints. Every time everything must
//! be there, before the logs have drained, after, and after a clean import. Where there are drives to
//! spare what was lost is made again, and then another drive dies.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ashlar_block::{BlockRange, BlockSize, Durability, Operation};
use ashlar_store::format::{DriveClass, Reserve};
use ashlar_store::{Grain, HotTier, Layout, Share};
use uuid::Uuid;

use super::drive::{DriveSize, Pace};
use super::layouts::Facts;
use super::load::Habits;
use super::plan::{Fate, Plan, SMALL, Spread, Step, Wish};
use super::report::Summary;
use super::rig::Cut;
use super::run::panicked;
use super::seam::{Shape, Subject};
use super::world::World;
use crate::chance::Chance;
use crate::report::Listener;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads and writes of one volume.
    Data,
    /// Volumes that are made, given another size, and deleted.
    Volumes,
    /// A drive dies under reads and writes; what it held is made again, if there is one to spare.
    Loss,
    /// A drive is taken out in good order: what it holds moves to one to spare.
    Leave,
    /// The same, of one that is added just before.
    Replace,
    /// Blocks of one drive rot, and everything is read and mended.
    Scrub,
    /// Slots of one volume move to its hot home, and from there.
    Tier,
    /// The same, where that is on faster drives: reads alone bring them there.
    Promote,
}

impl Work {
    /// Drives that it takes away by itself.
    fn losses(self) -> usize {
        usize::from(matches!(self, Self::Loss | Self::Leave | Self::Replace))
    }

    /// The hot home that its volumes have.
    fn hot(self, layout: Layout) -> Option<HotTier> {
        let copies = Facts::of(layout).losses as u8 + 1;
        let (percent, class) = match self {
            Self::Tier => (10, None),
            Self::Promote => (20, Some(DriveClass::Nvme)),
            _ => return None,
        };
        Some(HotTier {
            copies,
            class,
            share: Share::of_percent(percent)?,
        })
    }

    /// Faster drives, for the hot home.
    fn fast(self, layout: Layout) -> usize {
        match self {
            Self::Promote => Facts::of(layout).losses + 1,
            _ => 0,
        }
    }
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
    /// Drives beside those that the layout takes.
    pub spare: usize,
    /// The drive that dies, or is taken out, if the workload has one do that.
    pub dies: usize,
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

/// Which crashes are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// What is going on.
    pub work: Work,
    /// The volume's layout.
    pub layout: Layout,
    /// Its slots' size; `None` for the layout's own.
    pub grain: Option<Grain>,
    /// Drives beside those that the layout takes.
    pub spare: usize,
    /// The drive that dies, or is taken out, if the workload has one do that.
    pub dies: usize,
    /// At every so manieth write or flush of the workload.
    pub step: u64,
    /// After each of these, at every so manieth of what follows.
    pub stride: u64,
    /// The same with each drive missing that may be; `None` for no such second crash.
    pub missing_stride: Option<u64>,
    /// Decides what else is left to chance.
    pub seed: u64,
}

impl Sweep {
    /// Every crash, and every second one, with no drive to spare and none missing at a second crash.
    pub const fn every(work: Work, layout: Layout) -> Self {
        Self {
            work,
            layout,
            grain: None,
            spare: 0,
            dies: 0,
            step: 1,
            stride: 1,
            missing_stride: None,
            seed: 1,
        }
    }
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes and flushes of the workload, from the first import on.
    pub changes: u64,
    /// Crashes with another one during recovery.
    pub recoveries: u64,
    /// Of these, without a drive.
    pub missing: u64,
    /// Lives in all.
    pub lives: u64,
    /// Without a crash, slots have moved to a hot home and from there.
    pub moves: bool,
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

/// A drive that dies between writes, and with a drive to spare a rebuild, to its end.
fn loss(drive: usize) -> Vec<Step> {
    vec![
        write(0, 0, 1),
        write(0, 4, 4),
        write(0, 16, 32),
        Step::Wait,
        Step::Settle,
        write(0, 64, 4),
        write(0, 20, 4),
        Step::Wait,
        Step::Do(Fate::Die { drive }),
        write(0, 1, 3),
        write(0, 36, 8),
        Step::Wait,
        write(0, 2, 4),
        write(0, 48, 16),
        Step::Ask(0, Operation::Deallocate, BlockRange::new(16, 4)),
        Step::Wait,
        // Answered when there is nothing more to be made again.
        Step::Do(Fate::Scrub),
        write(0, 70, 6),
        Step::Wait,
        Step::Settle,
        write(0, 0, 16),
        Step::Wait,
    ]
}

/// A drive that leaves under reads and writes, and one that is added for it if there is none to spare.
fn leave(drive: usize, adds: bool) -> Vec<Step> {
    let mut steps = vec![
        write(0, 0, 1),
        write(0, 16, 32),
        Step::Wait,
        Step::Settle,
        write(0, 64, 4),
        write(0, 20, 4),
        Step::Wait,
    ];
    if adds {
        steps.push(Step::Do(Fate::Add { size: SIZE }));
        steps.push(Step::Wait);
    }
    steps.extend([
        Step::Do(Fate::Remove { pick: drive as u64 }),
        write(0, 1, 3),
        write(0, 36, 8),
        Step::Wait,
        write(0, 48, 16),
        Step::Do(Fate::Scrub),
        write(0, 70, 6),
        Step::Wait,
        Step::Settle,
        write(0, 0, 16),
        Step::Wait,
    ]);
    steps
}

/// Rot on one drive, twice, and everything mended while it is written to.
fn scrub() -> Vec<Step> {
    let rot = [
        Fate::Flip { drive: 1 },
        Fate::Flip { drive: 1 },
        Fate::Spoil { drive: 1 },
        Fate::Flip { drive: 1 },
    ];
    let mut steps = vec![
        write(0, 0, 4),
        write(0, 16, 32),
        Step::Wait,
        Step::Settle,
        write(0, 64, 12),
        Step::Wait,
    ];
    for first in [1, 18] {
        steps.extend(rot.map(Step::Do));
        steps.extend([
            Step::Do(Fate::Scrub),
            write(0, first, 3),
            write(0, first + 24, 8),
            Step::Wait,
            write(0, 48, 16),
            Step::Settle,
        ]);
    }
    steps
}

/// Small writes of more slots than may be hot, some of them again and again, and whole slots over those that
/// move.
fn tier() -> Vec<Step> {
    let mut steps = vec![write(0, 0, 32), Step::Wait];
    for round in 0..2 {
        for slot in 0..6 {
            steps.push(write(0, slot * 8 + round, 1));
        }
        steps.extend([
            write(0, 3, 1),
            Step::Wait,
            Step::Settle,
            write(0, 40 + round, 1),
            write(0, 8, 8),
            Step::Wait,
            write(0, 16 * round, 16),
            Step::Wait,
            write(0, 70 + round, 2),
            Step::Wait,
        ]);
    }
    steps
}

/// Whole slots that go past the ring, so that no write brings them to the faster drives. Reads of some do, a tenth of
/// what they read; then they are cold beside others, and leave. Some are written meanwhile.
fn promote() -> Vec<Step> {
    let read = |start| Step::Ask(0, Operation::Read, BlockRange::new(start, 16));
    let mut steps = vec![write(0, 0, 48), write(0, 48, 32), Step::Wait, Step::Settle];
    for first in [0, 32, 16] {
        for _ in 0..7 {
            steps.extend([read(first), read(first), Step::Wait]);
        }
        steps.extend([
            read(first),
            write(0, first, 16),
            write(0, 64, 16),
            Step::Wait,
            read(first),
            Step::Wait,
        ]);
    }
    steps.push(Step::Settle);
    steps
}

/// Blocks and bytes of a drive.
const SIZE: DriveSize = DriveSize {
    block_size: BlockSize::B4096,
    bytes: 16 << 20,
};

/// Drives of a case.
fn drives(work: Work, layout: Layout, spare: usize) -> usize {
    Facts::of(layout).width.max(2) + spare + work.fast(layout)
}

fn plan(case: &Case) -> Plan {
    let losses = Facts::of(case.layout).losses;
    let (count, tolerant) = (drives(case.work, case.layout, case.spare), losses as u8 + 1);
    let shape = Shape {
        pool: Uuid::from_u64_pair(1, 1),
        salt: 0x5eed,
        sizes: SMALL,
        log_copies: tolerant,
        reserve: Reserve::None,
        drives: count,
        fast: case.work.fast(case.layout),
    };
    let cut = if case.torn { Cut::Torn } else { Cut::Before };
    let wish = |granules| Wish {
        layout: case.layout,
        grain: case.grain,
        granules,
        most: 120,
        spread: Spread::NONE,
        class: (case.work == Work::Promote).then_some(DriveClass::Hdd),
        hot: case.work.hot(case.layout),
        cache: None,
    };
    Plan {
        shape,
        drives: vec![SIZE; count],
        pace: Pace {
            time: Duration::from_micros(50),
            slow: Duration::from_micros(50),
            slow_per_mille: 0,
            pieces: false,
        },
        wishes: [80, 40, 40].map(wish).to_vec(),
        initial: 1,
        overcommitted: false,
        habits: Habits::none(),
        fates: Vec::new(),
        liar: (case.work == Work::Scrub).then_some((1, 0)),
        import_cuts: 0,
        repair_after: Duration::ZERO,
        recovery: case.recovery.map(|at| (at, cut)),
        missing: case.missing,
        casualties: Vec::new(),
        casualty_per_mille: 0,
        remembers: false,
        cuts_agains: false,
        canary: None,
        defect: None,
    }
}

/// How one case went: how many writes and flushes there were, and how many crashes there were during
/// recovery.
pub(crate) struct Lived {
    /// Until the volume was made.
    ready: u64,
    changes: u64,
    imports: u64,
    moves: bool,
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
        world.work(case)?;
        let changes = world.count().changes - before;
        world.lose_one_more(case)?;
        world.end()?;
        let Summary {
            imports,
            promoted,
            demoted,
            ..
        } = world.count();
        Ok(Lived {
            moves: promoted > 0 && demoted > 0,
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

impl<S: Subject> World<'_, S> {
    /// Follows a workload until its end or the first crash.
    fn work(&mut self, case: &Case) -> Result<(), String> {
        self.follow(&match case.work {
            Work::Data => data(),
            Work::Volumes => volumes(),
            Work::Loss => loss(case.dies),
            Work::Leave => leave(case.dies, false),
            Work::Replace => leave(case.dies, true),
            Work::Scrub => scrub(),
            Work::Tier => tier(),
            Work::Promote => promote(),
        })
    }

    /// With drives to spare, everything is made again that was lost; then another drive dies.
    fn lose_one_more(&mut self, case: &Case) -> Result<(), String> {
        let rots = case.work == Work::Scrub;
        let gone = case.work.losses() + usize::from(case.missing.is_some());
        let spare = case.spare + usize::from(case.work == Work::Replace);
        if spare < gone.max(1) || rots || Facts::of(case.layout).losses == 0 {
            return Ok(());
        }
        let is_whole = |w: &Self| w.node.as_ref().is_some_and(|node| node.engine().is_whole());
        loop {
            let crashes = self.summary.crashes;
            self.until("what was lost is made again", is_whole)?;
            // The root says so, of the logs and of the members.
            self.settle()?;
            let reserve = self.plan.shape.reserve;
            self.keep(reserve);
            self.until("the members are durable", |w| w.volumes.is_idle())?;
            if self.summary.crashes == crashes && is_whole(self) {
                break;
            }
        }
        // The one beside it may have what the other copy of was lost.
        let gone = case.missing.unwrap_or(case.dies);
        let drive = (gone + 1) % drives(case.work, case.layout, case.spare);
        self.follow(&[Step::Do(Fate::Die { drive }), write(0, 10, 3), Step::Wait])
    }
}

/// Tries the crashes of a sweep.
///
/// # Errors
/// The first case that broke a promise, and what it broke.
pub(crate) fn enumerate<S: Subject>(sweep: &Sweep) -> Result<Counts, (Case, String)> {
    let whole = Case {
        work: sweep.work,
        layout: sweep.layout,
        grain: sweep.grain,
        spare: sweep.spare,
        dies: sweep.dies,
        at: None,
        torn: false,
        power: false,
        recovery: None,
        missing: None,
        seed: sweep.seed,
    };
    let mut counts = Counts::default();
    let Lived {
        ready,
        changes,
        moves,
        ..
    } = live_counted::<S>(whole, &mut counts)?;
    (counts.changes, counts.moves) = (changes, moves);
    for at in (0..changes).step_by(sweep.step.max(1) as usize) {
        for (torn, power) in [(false, true), (false, false), (true, true), (true, false)] {
            let case = Case {
                at: Some(at),
                torn,
                power,
                ..whole
            };
            counts.recoveries += again::<S>(case, Some(sweep.stride), &mut counts)?;
            // Without all its drives a volume that is not there yet cannot be made.
            for drive in (0..may_miss(sweep)).filter(|_| at >= ready) {
                let case = Case {
                    missing: Some(drive),
                    ..case
                };
                let found = again::<S>(case, sweep.missing_stride, &mut counts)?;
                counts.recoveries += found;
                counts.missing += found;
            }
        }
    }
    Ok(counts)
}

fn live_counted<S: Subject>(case: Case, counts: &mut Counts) -> Result<Lived, (Case, String)> {
    counts.lives += 1;
    live::<S>(&case, None).map_err(|what| (case, what))
}

/// A case, and then another crash at every so manieth write or flush after the first, as long as there are
/// any. How many there were.
fn again<S: Subject>(
    case: Case,
    stride: Option<u64>,
    counts: &mut Counts,
) -> Result<u64, (Case, String)> {
    let plain = live_counted::<S>(case, counts)?.imports;
    let (Some(stride), Some(at)) = (stride.map(|stride| stride.max(1)), case.at) else {
        return Ok(0);
    };
    let mut found = 0;
    for recovery in (at % stride..).step_by(stride as usize) {
        let case = Case {
            recovery: Some(recovery),
            ..case
        };
        if live_counted::<S>(case, counts)?.imports == plain {
            break;
        }
        found += 1;
    }
    Ok(found)
}

/// Drives of which each may be missing.
fn may_miss(sweep: &Sweep) -> usize {
    let taken = match sweep.work {
        // Rot is a loss, too.
        Work::Scrub => 1,
        work => work.losses(),
    };
    match Facts::of(sweep.layout).losses {
        losses if losses > taken => drives(sweep.work, sweep.layout, sweep.spare),
        _ => 0,
    }
}
