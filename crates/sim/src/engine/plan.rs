//! What a world is made of, and what befalls it: drawn from the seed before it begins.

use std::time::Duration;

use ashlar_block::{BlockRange, BlockSize, Operation};
use ashlar_cache::Defect;
use ashlar_store::format::Reserve;
use ashlar_store::{Canary, Grain, Layout, Sizes};
use uuid::Uuid;

use super::cached::CacheFate;
use super::drive::{DriveSize, Pace};
use super::layouts::{self, Facts, Need};
use super::load::Habits;
use super::profile::Profile;
use super::rig::Cut;
use super::seam::Shape;
pub(crate) use super::wish::{Spread, Wish};
use crate::chance::Chance;

/// Units small enough that logs wrap and segments fill within a few hundred commands.
pub(crate) const SMALL: Sizes = Sizes {
    extent_shift: 16,
    chunk_extents: 8,
    ring_chunks: 4,
    map_chunks: 4,
    segment_slots: 16,
    batch_bytes: 128 << 10,
};

/// Bytes of the smallest drive.
const SMALLEST: u64 = 24 << 20;

/// Something that happens when so many commands were answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// The node, or its power, fails at once.
    Crash { power: bool },
    /// The same at the nth write or flush of a drive from now on.
    Fuse { after: u64, cut: Cut, power: bool },
    /// An operator wants the logs empty.
    Settle,
    /// The users rest.
    Rest(Duration),
    /// A drive stops answering.
    Stall { drive: usize, time: Duration },
    /// A drive dies.
    Die { drive: usize },
    /// A drive dies, the node fails soon after, the drive comes back, and at first another does not:
    /// the pool must refuse, or have acknowledged nothing that the drive lacks.
    Swap {
        dies: usize,
        absent: usize,
        /// At which write the node fails. None: the drive does not die but hangs, and the node fails as its
        /// time is over.
        after: Option<u64>,
    },
    /// The power fails, and at first one drive does not come back; one that was away may be back.
    Half { back: Option<usize>, absent: usize },
    /// A drive answers nothing any more; or so late that it may have been given up.
    Hang {
        drive: usize,
        time: Option<Duration>,
    },
    /// A drive has no space, or no memory, for most of what it is asked for.
    Short { drive: usize, time: Duration },
    /// A drive that died comes back, with what it held when it died, or less.
    Return { drive: usize },
    /// An operator wants everything read and mended.
    Scrub,
    /// An operator wants another volume.
    Create,
    /// An operator deletes a volume, if there is more than one.
    Delete { pick: u64 },
    /// An operator gives a volume another size.
    Resize { pick: u64, to: u64 },
    /// A bit flips somewhere on a drive.
    Flip { drive: usize },
    /// A sector cannot be read any more.
    Spoil { drive: usize },
    /// An operator adds a drive: a new one, or one that was taken out.
    Add { size: DriveSize },
    /// An operator takes a drive out: what it holds moves elsewhere.
    Remove { pick: u64 },
    /// An operator wants another amount kept for repair.
    Reserve(Reserve),
    /// An operator wants a volume to stop, or not to, when a copy is missing.
    Stops { pick: u64, stops: bool },
    /// An operator does not want to wait for repair to begin.
    Repair,
    /// An operator has a drive take part again that the pool has left out, with what it had.
    Readmit,
    /// Something befalls a device that a volume caches, or its cache.
    Cache { volume: usize, what: CacheFate },
}

/// What is unusual about a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Usual,
    /// There is one drive.
    Alone,
    /// What rots is the only copy of some volume.
    Frail,
    /// Everything survives two losses: one drive rots, and another dies.
    Twice,
}

impl Kind {
    fn draw(chance: &mut Chance, profile: &Profile, drives: usize) -> Self {
        let dice = chance.below(1000);
        match dice {
            _ if profile.deaths => Self::Usual,
            _ if dice < u64::from(profile.alone) => Self::Alone,
            120..220 if profile.rot > 0 => Self::Frail,
            220..400 if profile.rot > 0 && drives >= 3 => Self::Twice,
            _ => Self::Usual,
        }
    }
}

/// What happens next in a world that follows a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A command for a volume.
    Ask(usize, Operation, BlockRange),
    /// Something happens.
    Do(Fate),
    /// Everything that was asked for is answered.
    Wait,
    /// The same, and the logs are empty.
    Settle,
}

/// A world before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) shape: Shape,
    pub(crate) drives: Vec<DriveSize>,
    pub(crate) pace: Pace,
    pub(crate) wishes: Vec<Wish>,
    /// How many of them are there from the beginning.
    pub(crate) initial: usize,
    /// They are larger than the pool, all together.
    pub(crate) overcommitted: bool,
    pub(crate) habits: Habits,
    /// Ordered by the number of answered commands.
    pub(crate) fates: Vec<(u64, Fate)>,
    /// The drive that may lie, and of how many writes of a thousand.
    pub(crate) liar: Option<(usize, u32)>,
    /// Of a thousand imports, those that are cut off.
    pub(crate) import_cuts: u32,
    /// The first import after a crash is cut off at this write or flush.
    pub(crate) recovery: Option<(u64, Cut)>,
    /// The drive that does not come back after a crash.
    pub(crate) missing: Option<usize>,
    /// Drives that may die together with the node, and how many of a thousand failures take one.
    pub(crate) casualties: Vec<usize>,
    pub(crate) casualty_per_mille: u32,
    /// How long after a loss repair begins.
    pub(crate) repair_after: Duration,
    /// Whether the node remembers which drives serve.
    pub(crate) remembers: bool,
    /// The node fails mostly when a volume is made that is to cache a device after another.
    pub(crate) cuts_agains: bool,
    /// What is broken on purpose.
    pub(crate) canary: Option<Canary>,
    pub(crate) defect: Option<Defect>,
}

impl Plan {
    /// Draws a world.
    pub(crate) fn draw(chance: &mut Chance, profile: &Profile) -> Self {
        // Not drawn from the chance that everything else is drawn from: older seeds stay what they were.
        let mut aside = chance.aside();
        let remembers = profile.halves > 0 && aside.happens(profile.halves);
        let count = match (remembers, profile.swaps) {
            (true, _) => 2,
            (false, 1000) => 3,
            _ => chance.between(2, 5) as usize,
        };
        let kind = Kind::draw(&mut aside, profile, count);
        let count = if kind == Kind::Alone { 1 } else { count };
        let overcommitted = chance.happens(profile.overcommits);
        let drives = (0..count).map(|_| drive(chance, overcommitted)).collect();
        let least = match kind {
            Kind::Alone => 1,
            Kind::Twice => 3,
            _ => 2,
        };
        let log_copies = chance.between(least, (count as u64).min(4)) as u8;
        let has_losses = profile.deaths || profile.rot > 0 || remembers;
        let losses = match (kind, has_losses) {
            (Kind::Twice, _) => 2,
            (Kind::Alone, _) | (_, false) => 0,
            _ => 1,
        };
        let sizes = sizes(chance);
        let need = Need {
            drives: count,
            losses,
            raw: profile.rot == 0 && !remembers,
        };
        let (initial, wishes) = match overcommitted {
            true => overcommit(chance, need, &sizes),
            false => wishes(chance, need, &sizes),
        };
        let mut habits = Habits::draw(chance, profile.commands);
        if overcommitted {
            habits.fill();
        }
        let mut plan = Self {
            shape: Shape {
                pool: Uuid::from_u64_pair(chance.below(u64::MAX), 1),
                salt: chance.below(1 << 32) as u32,
                sizes,
                log_copies,
                reserve: Reserve::None,
                drives: count,
                fast: 0,
            },
            drives,
            pace: pace(chance),
            wishes,
            initial,
            overcommitted,
            habits,
            fates: Vec::new(),
            liar: None,
            import_cuts: profile.import_cuts,
            recovery: None,
            missing: None,
            casualties: Vec::new(),
            casualty_per_mille: 0,
            repair_after: Duration::ZERO,
            remembers,
            cuts_agains: profile.agains > 0,
            canary: profile.canary,
            defect: profile.defect,
        };
        plan.draw_spread();
        plan.draw_tiers(profile);
        plan.draw_fates(chance, profile);
        plan.draw_repair();
        match kind {
            Kind::Frail => plan.make_frail(&mut aside),
            Kind::Twice => plan.draw_second_loss(&mut aside),
            Kind::Alone => plan.leave_alone(),
            Kind::Usual => {}
        }
        // Drives of several classes do not take each other's place.
        if aside.happens(profile.orders) && plan.shape.fast == 0 {
            plan.draw_orders(&mut aside);
        }
        // What hangs may be the only drive that is left of two.
        if aside.happens(profile.hangs) && !remembers {
            plan.draw_hang(&mut aside);
        }
        if aside.happens(profile.shortages) {
            plan.draw_shortage(&mut aside);
        }
        if aside.happens(profile.readmits) {
            plan.draw_readmits(&mut aside);
        }
        if remembers {
            plan.draw_halves(&mut aside);
        }
        plan.trim_tiers();
        plan.draw_caches(profile);
        plan
    }

    /// Drives that die come back while the pool serves, and an operator has them take part again.
    fn draw_readmits(&mut self, chance: &mut Chance) {
        let commands = self.habits.commands;
        let mut fates = Vec::new();
        for &(at, fate) in &self.fates {
            let lost = match fate {
                Fate::Die { drive } => drive,
                // The one that hung may answer again by then.
                Fate::Hang { .. } | Fate::Return { .. } => {
                    fates.push((at + chance.below(100), Fate::Readmit));
                    continue;
                }
                _ => continue,
            };
            let back = at + 1 + chance.below(commands / 4 + 1);
            let pause = chance.pick(&[0, 1, 20, 60]);
            fates.push((back, Fate::Return { drive: lost }));
            fates.push((back + pause, Fate::Readmit));
            // It may have been too early: a drive is readmitted once it has nothing left to do.
            fates.push((back + pause + 40, Fate::Readmit));
        }
        self.fates.extend(fates);
        self.fates.sort_by_key(|(at, _)| *at);
    }

    /// Memory for leaves of the map: in half of the worlds less than a volume has.
    pub(crate) fn leaf_bytes(&self) -> u64 {
        match self.shape.pool.as_u128() >> 64 & 3 {
            0 => 1,
            1 => 3 * 4096,
            _ => 0,
        }
    }

    /// In some of the worlds whose volumes are larger than their pool, some are far larger, and so is their
    /// map; not drawn from the chance that everything else is drawn from, as in `draw_repair`.
    fn draw_spread(&mut self) {
        let mut chance = Chance::new((self.shape.pool.as_u128() >> 64) as u64).aside();
        if !self.overcommitted || chance.happens(500) {
            return;
        }
        // Of a leaf, and of a table with few segments of places to name.
        let (leaf, far) = (
            512,
            if self.shape.sizes.segment_slots > 4 {
                1 << 16
            } else {
                1 << 11
            },
        );
        for wish in &mut self.wishes {
            let (unit, step) = chance.pick(&[(2, leaf), (2, leaf), (16, leaf), (16, far), (1, 1)]);
            if !Facts::of(wish.layout).raw {
                wish.spread = Spread { unit, step };
            }
        }
        self.habits.commands *= 3;
    }

    /// What is kept for repair, and when that begins: not drawn from the chance that everything else
    /// is drawn from, so that older seeds stay what they were.
    fn draw_repair(&mut self) {
        let mut chance = Chance::new((self.shape.pool.as_u128() >> 64) as u64);
        let count = self.drives.len() as u64;
        let sizes = self.drives.iter().map(|drive| drive.bytes);
        let (all, largest) = sizes.fold((0, 0), |(all, most), size| (all + size, size.max(most)));
        let eighth = Reserve::Extents((all >> SMALL.extent_shift) as u32 / 8);
        let kept = match (self.overcommitted, count) {
            (true, 4..) => [Reserve::None, Reserve::Auto, Reserve::Auto],
            (true, _) => [Reserve::None; 3],
            (false, _) => [Reserve::None, Reserve::None, eighth],
        };
        self.shape.reserve = chance.pick(&kept);
        match self.shape.reserve {
            Reserve::None => {}
            // A drive's worth, of drives that grow by their shares of it.
            Reserve::Auto => self.make_room_for(largest / (count - 1)),
            _ => self.make_room_for(largest / 8),
        }
        let times = [0, 0, 5, 200, 300_000];
        self.repair_after = Duration::from_millis(chance.pick(&times));
    }

    /// Makes every drive larger by the most that one will keep: the volumes have been promised the
    /// rest. Shares are whole columns, and one more.
    pub(crate) fn make_room_for(&mut self, share: u64) {
        let column = self.shape.sizes.segment_bytes();
        let more = (share + 4 * column).next_multiple_of(1 << 20);
        for drive in &mut self.drives {
            drive.bytes += more;
        }
    }

    /// One volume has one copy, of which the rot takes a part.
    fn make_frail(&mut self, chance: &mut Chance) {
        let volume = chance.below(self.wishes.len() as u64) as usize;
        let wish = &mut self.wishes[volume];
        wish.layout = Layout::Mirror { copies: 1 };
        wish.grain = chance.pick(&[None, None, Some(Grain::K8), Some(Grain::K32)]);
    }

    /// While one drive rots, another dies.
    fn draw_second_loss(&mut self, chance: &mut Chance) {
        let Some((liar, _)) = self.liar else { return };
        let drives = self.drives.len() as u64;
        let drive = (liar + 1 + chance.below(drives - 1) as usize) % self.drives.len();
        if chance.happens(300) {
            self.casualty_per_mille = 700;
            self.casualties.push(drive);
            return;
        }
        let at = chance.below(self.habits.commands);
        self.fates.push((at, Fate::Die { drive }));
        self.fates.sort_by_key(|(at, _)| *at);
    }

    /// The one drive that there is may rot, but what it is told to write it writes: nothing could
    /// tell a write of the log that was never done from one that was never asked for.
    fn leave_alone(&mut self) {
        if let Some((_, per_mille)) = &mut self.liar {
            *per_mille = 0;
        }
    }

    /// The drives that may rot are all there are: nothing has a second copy.
    pub(crate) fn is_rotten(&self) -> bool {
        self.liar.is_some() && self.drives.len() == 1
    }

    /// Volumes whose blocks may be lost to rot.
    pub(crate) fn frail(&self) -> Vec<usize> {
        let wishes = self.wishes.iter().enumerate();
        let frail = wishes.filter(|(_, wish)| Facts::of(wish.layout).losses == 0);
        let rots = self.liar.is_some();
        frail.map(|(volume, _)| volume).filter(|_| rots).collect()
    }

    /// Whether drives may have gone, by themselves or by order.
    pub(crate) fn loses_drives(&self) -> bool {
        let dies = |(_, fate): &(u64, Fate)| matches!(fate, Fate::Die { .. } | Fate::Hang { .. });
        self.casualty_per_mille > 0 || self.has_orders() || self.fates.iter().any(dies)
    }

    /// Whether its drives and what they keep change by order.
    pub(crate) fn has_orders(&self) -> bool {
        let is_order = |fate: &Fate| {
            matches!(
                fate,
                Fate::Add { .. }
                    | Fate::Remove { .. }
                    | Fate::Reserve(_)
                    | Fate::Stops { .. }
                    | Fate::Repair
            )
        };
        self.fates.iter().any(|(_, fate)| is_order(fate))
    }

    /// What operators order of drives.
    fn draw_orders(&mut self, chance: &mut Chance) {
        let swaps = |(_, fate): &(u64, Fate)| matches!(fate, Fate::Swap { .. });
        if self.fates.iter().any(swaps) {
            // Who may go on without whom is the question there.
            return;
        }
        let commands = self.habits.commands;
        let mut orders = Vec::new();
        for _ in 0..chance.between(1, 3) {
            let size = drive(chance, self.overcommitted);
            let (at, pick) = (chance.below(commands), chance.below(1 << 20));
            // To replace one is to add one and to take one out.
            let (adds, removes) =
                chance.pick(&[(true, true), (true, true), (true, false), (false, true)]);
            let pause = chance.pick(&[0, 0, 1, 20]);
            orders.extend(adds.then_some((at, Fate::Add { size })));
            orders.extend(removes.then_some((at + pause, Fate::Remove { pick })));
        }
        if chance.happens(400) {
            let eighth = Reserve::Extents((self.drives[0].bytes >> SMALL.extent_shift) as u32 / 8);
            let kept = [Reserve::None, Reserve::Auto, Reserve::Drives(1), eighth];
            orders.push((chance.below(commands), Fate::Reserve(chance.pick(&kept))));
        }
        if chance.happens(200) {
            orders.push((chance.below(commands), Fate::Repair));
        }
        // Who has filled a pool wants to give something up, and a volume that stops takes not even
        // that.
        for _ in 0..chance.pick(&[0, 0, 1, 3]) {
            let (pick, stops) = (chance.below(1 << 20), chance.happens(700));
            if !self.overcommitted {
                orders.push((chance.below(commands), Fate::Stops { pick, stops }));
            }
        }
        if let Some((_, Fate::Die { drive })) = self
            .fates
            .iter_mut()
            .find(|(_, fate)| matches!(fate, Fate::Die { .. }))
            && chance.happens(300)
        {
            // The first that was added.
            *drive = self.drives.len();
        }
        self.fates.extend(orders);
        self.fates.sort_by_key(|(at, _)| *at);
    }

    /// A drive hangs: one that would have died, or one more where a loss is survived and nothing else takes it.
    fn draw_hang(&mut self, chance: &mut Chance) {
        let commands = self.habits.commands;
        let at = chance.below(commands);
        let drive = match self.liar {
            Some((liar, _)) => liar,
            None => chance.below(self.drives.len() as u64) as usize,
        };
        // Longer than a drive may take, or nearly as long.
        let seconds = chance.pick(&[9, 11, 15, 40]);
        let late = Duration::from_secs(seconds) + chance.time(Duration::from_secs(1));
        let time = Some(late).filter(|_| chance.happens(600));
        for (_, fate) in &mut self.fates {
            match fate {
                Fate::Die { drive } => {
                    *fate = Fate::Hang {
                        drive: *drive,
                        time,
                    };
                    return;
                }
                Fate::Swap { after, .. } => {
                    *after = None;
                    return;
                }
                _ => {}
            }
        }
        let alone = self.drives.len() == 1;
        let is_spent = !self.casualties.is_empty();
        let fate = match (alone, is_spent, self.tolerance()) {
            // It is waited for.
            (true, ..) => Fate::Hang {
                drive,
                time: Some(late),
            },
            (false, true, _) => match self.casualties.pop() {
                Some(drive) => Fate::Hang { drive, time },
                None => return,
            },
            (false, false, 1..) => Fate::Hang { drive, time },
            // Not longer than it may.
            (false, false, 0) => Fate::Hang {
                drive,
                time: Some(chance.time(Duration::from_secs(9))),
            },
        };
        self.fates.push((at, fate));
        self.fates.sort_by_key(|(at, _)| *at);
    }

    /// A drive has no space for a while, which may be longer than it may take for an answer.
    fn draw_shortage(&mut self, chance: &mut Chance) {
        let at = chance.below(self.habits.commands);
        let drive = chance.below(self.drives.len() as u64) as usize;
        let most = Duration::from_secs(chance.pick(&[1, 3, 30]));
        let time = chance.time(most);
        self.fates.push((at, Fate::Short { drive, time }));
        self.fates.sort_by_key(|(at, _)| *at);
    }

    /// How many drives may be lost without loss of data.
    pub(crate) fn tolerance(&self) -> usize {
        let facts = self.wishes.iter().map(|wish| Facts::of(wish.layout));
        let losses = facts.filter(|facts| !facts.raw).map(|facts| facts.losses);
        let logs = usize::from(self.shape.log_copies) - 1;
        // Nothing but the logs notices that a drive has died where all else is passed through, and two
        // losses at once leave too few drives.
        losses.min().unwrap_or(1).min(logs)
    }

    fn draw_fates(&mut self, chance: &mut Chance, profile: &Profile) {
        let commands = self.habits.commands;
        let drives = self.drives.len() as u64;
        let mut fates = Vec::new();
        let mut add = |chance: &mut Chance, fate: Fate| fates.push((chance.below(commands), fate));
        for _ in 0..chance.between(profile.crashes.min(1), profile.crashes) {
            let fate = crash(chance);
            add(chance, fate);
        }
        for _ in 0..chance.below(4) {
            add(chance, Fate::Settle);
        }
        for _ in 0..chance.below(profile.changes + 1) {
            let (pick, to) = (chance.below(1 << 20), chance.below(1 << 20));
            let fate = match chance.below(4) {
                0 => Fate::Create,
                1 => Fate::Delete { pick },
                _ => Fate::Resize { pick, to },
            };
            add(chance, fate);
        }
        for _ in 0..chance.below(4) {
            let rest = Fate::Rest(chance.time(Duration::from_secs(5)));
            add(chance, rest);
        }
        for _ in 0..chance.between(0, profile.stalls) {
            let drive = chance.below(drives) as usize;
            let time = chance.time(Duration::from_secs(2));
            add(chance, Fate::Stall { drive, time });
        }
        let one = chance.below(drives) as usize;
        let tolerance = self.tolerance();
        let swaps = profile.deaths && tolerance > 0 && drives > 2 && chance.happens(profile.swaps);
        if swaps {
            // Few copies on few drives: both must have the same part of a log.
            self.hold_on_both();
            let absent = (one + 1 + chance.below(drives - 1) as usize) % self.drives.len();
            let after = chance.between(1, 6);
            let dies = one;
            add(
                chance,
                Fate::Swap {
                    dies,
                    absent,
                    after: Some(after),
                },
            );
        } else if profile.deaths {
            self.casualty_per_mille = chance.pick(&[0, 300, 700]);
            for step in 0..tolerance {
                let drive = (one + step) % self.drives.len();
                if chance.happens(700) {
                    self.casualties.push(drive);
                } else {
                    add(chance, Fate::Die { drive });
                }
                if chance.happens(400) {
                    add(chance, Fate::Return { drive });
                }
            }
        }
        if profile.deaths || profile.rot > 0 {
            for _ in 0..chance.below(3) {
                add(chance, Fate::Scrub);
            }
        }
        for _ in 0..chance.between(profile.rot.min(1), profile.rot) {
            let fate = match chance.happens(500) {
                true => Fate::Flip { drive: one },
                false => Fate::Spoil { drive: one },
            };
            add(chance, fate);
        }
        if profile.astray > 0 {
            self.liar = Some((one, chance.below(u64::from(profile.astray) + 1) as u32));
        }
        fates.sort_by_key(|(at, _)| *at);
        self.fates = fates;
    }
}

fn drive(chance: &mut Chance, overcommitted: bool) -> DriveSize {
    let block_size = chance.pick(&[BlockSize::B512, BlockSize::B4096, BlockSize::B4096]);
    let more = chance.pick(&[0, 1, 8, 40]) * (1 << 20);
    DriveSize {
        block_size,
        bytes: match overcommitted {
            true => SMALLEST,
            false => SMALLEST + more,
        },
    }
}

fn sizes(chance: &mut Chance) -> Sizes {
    Sizes {
        chunk_extents: chance.pick(&[8, 8, 12, 16]),
        ring_chunks: chance.pick(&[3, 4, 5]),
        map_chunks: chance.pick(&[3, 4]),
        segment_slots: chance.pick(&[4, 16, 16, 32]),
        ..SMALL
    }
}

fn pace(chance: &mut Chance) -> Pace {
    Pace {
        time: Duration::from_micros(chance.pick(&[20, 100, 400])),
        slow: Duration::from_millis(chance.pick(&[1, 20])),
        slow_per_mille: chance.pick(&[0, 10, 50]),
        pieces: chance.happens(700),
    }
}

/// Granules of volumes that a drive holds at least, beside its logs, the pool's own map, and what is
/// written anew before the old is free.
fn room(sizes: &Sizes) -> u64 {
    let logs = u64::from(sizes.ring_chunks + sizes.map_chunks) * sizes.chunk_bytes();
    let rest = SMALLEST - (1 << 20) - logs - 6 * sizes.segment_bytes();
    rest / 4096 / 2
}

/// Volumes for which there is room, and how many of them are there from the beginning.
fn wishes(chance: &mut Chance, need: Need, sizes: &Sizes) -> (usize, Vec<Wish>) {
    let initial = chance.pick(&[1, 1, 2, 3]);
    let later = chance.pick(&[0, 0, 1, 2]);
    let wish = |chance: &mut Chance| {
        let most = chance.pick(&[40, 200, 512, 700, 1024]);
        let (layout, grain) = layouts::draw(chance, need);
        Wish {
            layout,
            grain,
            granules: chance.pick(&[most, most, most / 2]),
            most,
            spread: Spread::NONE,
            class: None,
            hot: None,
            cache: None,
        }
    };
    let mut wished: Vec<Wish> = (0..initial + later).map(|_| wish(chance)).collect();
    let room = need.drives as u64 * room(sizes);
    let cost = |wish: &Wish| layouts::cost(wish.layout, wish.most, sizes);
    // A pass-through volume takes whole segments.
    let mut wanted: u64 = wished.iter().map(cost).sum();
    for wish in &mut wished {
        if wanted > room && Facts::of(wish.layout).raw {
            wanted -= cost(wish);
            let copies = need.drives.min(2) as u8;
            wish.layout = Layout::Mirror { copies };
            wanted += cost(wish);
        }
    }
    for wish in wished.iter_mut().filter(|_| wanted > room) {
        wish.most = (wish.most * room / wanted).max(16);
        wish.granules = wish.granules.min(wish.most);
    }
    (initial, wished)
}

/// Volumes that are larger than the pool.
fn overcommit(chance: &mut Chance, need: Need, sizes: &Sizes) -> (usize, Vec<Wish>) {
    let initial = chance.pick(&[1, 2, 3]);
    let later = chance.below(3) as usize;
    let room = need.drives as u64 * (SMALLEST >> 12);
    let wish = |chance: &mut Chance, first: bool| {
        let raw = need.raw && !first;
        let (layout, grain) = layouts::draw(chance, Need { raw, ..need });
        let most = match Facts::of(layout) {
            facts if facts.raw => chance.pick(&[100, 1000]),
            facts => room * facts.cost.1 / facts.cost.0 / initial as u64,
        };
        Wish {
            layout,
            grain,
            granules: most,
            most,
            spread: Spread::NONE,
            class: None,
            hot: None,
            cache: None,
        }
    };
    let _ = sizes;
    let wished = (0..initial + later).map(|index| wish(chance, index == 0));
    (initial, wished.collect())
}

fn crash(chance: &mut Chance) -> Fate {
    let power = chance.happens(600);
    if chance.happens(300) {
        return Fate::Crash { power };
    }
    let most = chance.pick(&[4, 20, 100, 400]);
    Fate::Fuse {
        after: chance.below(most),
        cut: chance.pick(&[Cut::Before, Cut::Torn]),
        power,
    }
}
