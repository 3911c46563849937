//! Volumes that cache a device: the cache that ships, over a volume of the world's pool and a simulated device that
//! holds something already, loses power with the node, fails requests and flushes, and dies.
//!
//! ```text
//! load ─▶ Cache ─┬─▶ engine (a volume of the pool)
//!                └─▶ backing device (cache, medium, faults)
//! ```
//!
//! What a host may read follows the rules of a device with a volatile cache: what was flushed or forced stays. When a
//! volume is left, and at every crash unless the device has the mark, the device by itself is held to that, too.

mod leave;
mod plan;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use ashlar_block::{BlockDevice, BlockSize, Completion, IoError, Moment, Operation, Request};
use ashlar_cache::{
    Cache, Defect, GRANULE, HEAD_BYTES, Header, Identity, Layout, Mark, Mode, Other, Side,
};
use uuid::Uuid;

use super::drive::{Drive, DriveSize, Handle, Loss, Shared};
use super::plan::Plan;
use super::rig::Rig;
use crate::chance::Chance;

use leave::Leaving;
pub(crate) use leave::Then;
pub(crate) use plan::{CacheFate, CacheWish};

/// Granules that the mark replaces.
pub(crate) const HEAD: u64 = (HEAD_BYTES / GRANULE) as u64;
/// Tags of what caches ask of the pool: theirs, the life that has asked, the volume.
const OURS: u64 = 1 << 63;
const LIFE_AT: u32 = 32;
const VOLUME_AT: u32 = 52;
/// How long after it could not be taken up a cache is taken up again.
const AGAIN: Duration = Duration::from_secs(1);

/// All of a world.
pub(crate) struct Caches {
    all: BTreeMap<usize, Cached>,
    lives: u64,
    defect: Option<Defect>,
    pub(crate) tally: Tally,
}

/// What caches have done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) hits: u64,
    pub(crate) written_back: u64,
    pub(crate) left: u64,
}

/// A volume that caches.
pub(crate) struct Cached {
    wish: CacheWish,
    granules: u64,
    pub(crate) device: Shared,
    life: Option<Life>,
    /// The cache: its volume, as it is now.
    id: Uuid,
    /// Volumes that have cached the device before it.
    before: u64,
    /// It has been in service: its header is there.
    is_finished: bool,
    /// Its volume is to be made when the name of the one before is free.
    awaits_name: bool,
    /// Requests of the device have failed, or will.
    is_troubled: bool,
    /// Sectors of it cannot be read.
    is_spoiled: bool,
    /// Something has befallen the device.
    is_touched: bool,
    leaving: Option<Leaving>,
    /// What only the cache had was given up: nothing is known of the device.
    is_given_up: bool,
    /// An operator's flush has failed since the device has lost something.
    is_operator_told: bool,
    excluded: Option<std::ops::Range<u64>>,
    /// Bytes that are cached at least when it is taken up again.
    warm: Option<u64>,
}

/// A cache in service, or on its way there.
struct Life {
    cache: Cache,
    handle: Box<dyn BlockDevice>,
    number: u64,
    /// What the pool calls the volume.
    volume: u32,
    flying: u32,
    /// Flushes of the device, and headers, that are on their way.
    telling: BTreeSet<u64>,
    answers: Vec<Completion>,
    was_open: bool,
    /// It asks for nothing more.
    rests: bool,
    /// It could not be taken up: when that is tried again.
    again_at: Option<Moment>,
}

/// What a turn of a cache has brought.
#[derive(Default)]
pub(crate) struct Turned {
    pub(crate) pool: Vec<(u32, Request)>,
    pub(crate) done: Vec<Completion>,
    pub(crate) answers: Vec<(u64, Result<(), IoError>)>,
    /// It is in service now, and was not.
    pub(crate) opens: bool,
    /// It could not be made: the pool has no room for it.
    pub(crate) is_unmade: bool,
    /// What the device has lost.
    pub(crate) loss: Loss,
    pub(crate) is_busy: bool,
}

impl Caches {
    pub(crate) fn new(plan: &Plan, rig: &Rc<Rig>, chance: &mut Chance) -> Self {
        let wishes = plan.wishes.iter().enumerate();
        let cached = wishes.filter_map(|(volume, wish)| Some((volume, wish.cache?, wish.granules)));
        let cached = cached.map(|(volume, wish, granules)| {
            let size = DriveSize {
                block_size: wish.sectors,
                bytes: granules * GRANULE as u64,
            };
            let device = Drive::new(rig, 100 + volume, size, plan.pace, chance.fork());
            device.borrow_mut().loses_at_flush = true;
            device.borrow_mut().late_per_mille = wish.late;
            (volume, Cached::new(volume, wish, granules, device))
        });
        Self {
            all: cached.collect(),
            lives: 0,
            defect: plan.defect,
            tally: Tally::default(),
        }
    }

    /// Whether a volume caches.
    pub(crate) fn has(&self, volume: usize) -> bool {
        self.all.contains_key(&volume)
    }

    pub(crate) fn get(&self, volume: usize) -> Option<&Cached> {
        self.all.get(&volume)
    }

    /// Those that cache.
    pub(crate) fn volumes(&self) -> Vec<usize> {
        self.all.keys().copied().collect()
    }

    /// What names a volume's cache, and so its volume of the pool.
    pub(crate) fn id(&self, volume: usize) -> Option<Uuid> {
        Some(self.all.get(&volume)?.id)
    }

    /// Whether none is waited for until it has been in service once.
    pub(crate) fn are_finished(&self) -> bool {
        let waits = |one: &Cached| one.awaits_name || one.life.is_some() && !one.is_finished;
        !self.all.values().any(waits)
    }

    /// Whether none is being left.
    pub(crate) fn is_idle(&self) -> bool {
        self.all.values().all(|one| one.leaving.is_none())
    }

    /// When something happens next.
    pub(crate) fn next(&self) -> Option<Moment> {
        let devices = self
            .all
            .values()
            .filter_map(|one| one.device.borrow().next());
        let lives = self.all.values().filter_map(|one| one.life.as_ref());
        let wakes = lives.flat_map(|life| [life.again_at, life.cache.next_deadline()]);
        let leaves = self.all.values().filter_map(Cached::leaves_at);
        devices.chain(wakes.flatten()).chain(leaves).min()
    }

    /// Faults are over: devices fail nothing more, but for answers that are late.
    pub(crate) fn peace(&mut self) {
        for one in self.all.values_mut() {
            let mut device = one.device.borrow_mut();
            device.end_shortage();
            one.is_troubled &= device.has_bad_news();
        }
    }

    /// Whether caches have heard of all that has failed.
    pub(crate) fn have_heard(&self) -> bool {
        let has_not = |one: &Cached| one.is_troubled && one.device.borrow().has_bad_news();
        !self.all.values().any(has_not)
    }

    /// The node has failed, perhaps with the power of all devices; those that have lost what they had.
    pub(crate) fn fail_power(&mut self, power: bool) -> Vec<usize> {
        let mut lost = Vec::new();
        for (&volume, one) in &mut self.all {
            if let Some(life) = one.life.take() {
                self.tally.of(&life.cache);
            }
            one.leaving = None;
            let mut device = one.device.borrow_mut();
            device.crash(power);
            if device.is_dead() && device.revive() {
                lost.push(volume);
            }
        }
        lost
    }

    /// Volumes whose caches may not have recorded yet that something is lost.
    pub(crate) fn may_forget(&self) -> Vec<usize> {
        let waits = |life: &Life| !life.telling.is_empty() || life.rests || !life.cache.is_open();
        let all = self.all.iter();
        let some = all.filter(|(_, one)| one.life.as_ref().is_some_and(waits));
        some.map(|(&volume, _)| volume).collect()
    }

    /// A volume of the pool is there: its cache is made, or taken up.
    pub(crate) fn begin(&mut self, volume: usize, number: u32, now: Moment) -> Result<(), String> {
        self.lives += 1;
        let lives = self.lives;
        let Some(one) = self.all.get_mut(&volume) else {
            return Ok(());
        };
        let cache = one.cache(volume, now)?;
        let mut life = Life {
            cache,
            handle: Handle::open(&one.device),
            number: lives & 0xf_ffff,
            volume: number,
            flying: 0,
            telling: BTreeSet::new(),
            answers: Vec::new(),
            was_open: false,
            rests: false,
            again_at: None,
        };
        if let Some(defect) = self.defect {
            life.cache.break_on_purpose(defect);
        }
        one.life = Some(life);
        one.exclude();
        Ok(())
    }

    /// A host asks for something.
    pub(crate) fn submit(&mut self, volume: usize, request: Request) {
        let life = self.all.get_mut(&volume).and_then(|one| one.life.as_mut());
        if let Some(life) = life {
            life.cache.submit(request);
        }
    }

    /// Whether a tag is of a request of a cache.
    pub(crate) fn asked(tag: u64) -> bool {
        tag & OURS > 0
    }

    /// The volume whose cache has asked with this tag.
    pub(crate) fn whose(tag: u64) -> usize {
        (tag >> VOLUME_AT & 0x7ff) as usize
    }

    /// The pool has answered a cache.
    pub(crate) fn answered(&mut self, completion: Completion) {
        let (volume, number) = (
            Self::whose(completion.tag),
            completion.tag >> LIFE_AT & 0xf_ffff,
        );
        let life = self.all.get_mut(&volume).and_then(|one| one.life.as_mut());
        if let Some(life) = life.filter(|life| life.number == number) {
            life.answers.push(completion);
        }
    }

    /// Does what a cache can do now.
    pub(crate) fn turn(&mut self, volume: usize, rig: &Rig) -> Result<Turned, String> {
        let now = rig.now();
        let mut turned = Turned::default();
        let Some(one) = self.all.get_mut(&volume) else {
            return Ok(turned);
        };
        let has_failed = one.turn(volume, rig, &mut turned);
        if has_failed && !rig.is_off() {
            turned.is_unmade = !one.is_finished && one.is_for_room();
            if !turned.is_unmade {
                one.look_at_failure(volume, now)?;
            }
        }
        Ok(turned)
    }
}

impl Tally {
    fn of(&mut self, cache: &Cache) {
        let status = cache.status();
        self.hits += status.read_hits;
        self.written_back += status.written_back_bytes;
    }
}

impl Cached {
    fn new(volume: usize, wish: CacheWish, granules: u64, device: Shared) -> Self {
        Self {
            wish,
            granules,
            device,
            life: None,
            id: id(volume, 0),
            before: 0,
            is_finished: false,
            awaits_name: false,
            is_troubled: false,
            is_spoiled: false,
            is_touched: false,
            leaving: None,
            is_given_up: false,
            is_operator_told: false,
            excluded: None,
            warm: None,
        }
    }

    /// Another volume is to cache the device.
    pub(crate) fn begin_anew(&mut self, volume: usize) {
        self.before += 1;
        self.id = id(volume, self.before);
        self.is_finished = false;
        self.excluded = None;
        self.warm = None;
    }

    fn identity(&self, volume: usize) -> Identity {
        let bytes = self.device.borrow().pages.bytes();
        Identity::new(bytes, Some(format!("device {volume}")))
    }

    fn cache(&self, volume: usize, now: Moment) -> Result<Cache, String> {
        let geometry = self.device.borrow().geometry();
        let name = format!("/dev/{volume}");
        let identity = self.identity(volume);
        let layout = Layout::of_granules(self.granules);
        let cache = match self.is_finished {
            true => Cache::open(self.id, layout, geometry, &name, now)
                .map(|cache| cache.over(identity, Other::Refused)),
            false => {
                let header = Header {
                    cache: self.id,
                    layout,
                    cache_bytes: self.wish.bytes,
                    blocks: BlockSize::B4096,
                    mode: self.wish.mode,
                    mark: Mark::Off,
                    head_crc: None,
                    marked: None,
                    is_untold: false,
                    identity: Some(identity),
                    backing: name,
                };
                Cache::create(header, geometry, now)
            }
        };
        cache.map_err(|error| format!("volume {volume} cannot cache: {error}"))
    }

    /// Tells the cache what is kept out.
    fn exclude(&mut self) {
        const RULE: ashlar_cache::RuleId = ashlar_cache::RuleId(1);
        let Some(life) = &mut self.life else { return };
        match self.excluded.clone() {
            Some(range) => life.cache.set_rule(RULE, vec![range]),
            None => life.cache.remove_rule(RULE),
        }
    }

    /// Lets the cache do what it can; whether it has failed.
    fn turn(&mut self, volume: usize, rig: &Rig, turned: &mut Turned) -> bool {
        let now = rig.now();
        let Some(life) = &mut self.life else {
            return false;
        };
        life.cache.it_is(now);
        let mut done = Vec::new();
        life.handle.poll(now, &mut done);
        if rig.is_off() {
            return false;
        }
        turned.loss = self.device.borrow_mut().takes_loss();
        let pool = life.answers.drain(..).map(|answer| (Side::Fast, answer));
        let device = done.drain(..).map(|answer| (Side::Backing, answer));
        for (side, mut answer) in pool.chain(device).collect::<Vec<_>>() {
            turned.is_busy = true;
            life.flying -= 1;
            answer.tag &= u64::from(u32::MAX);
            life.telling.remove(&answer.tag);
            life.cache.completed(side, answer);
        }
        if life.again_at.is_some() && life.flying > 0 {
            return false;
        }
        life.cache.advance(now);
        let mut io = Vec::new();
        life.cache.take(&mut io, &mut turned.done);
        turned.answers = life.cache.take_answers();
        turned.is_busy |= !turned.done.is_empty() || !turned.answers.is_empty();
        let header = Layout::of_granules(self.granules);
        let header = Layout::header_of(header.fast_granules());
        for (side, mut request) in io {
            if life.rests {
                continue;
            }
            turned.is_busy = true;
            life.flying += 1;
            let is_header = side == Side::Fast && request.range.start.0 == header;
            if is_header || side == Side::Backing && request.op == Operation::Flush {
                life.telling.insert(request.tag);
            }
            match side {
                Side::Backing => life.handle.submit(request),
                Side::Fast => {
                    let (life_at, volume_at) =
                        (life.number << LIFE_AT, (volume as u64) << VOLUME_AT);
                    request.tag |= OURS | life_at | volume_at;
                    turned.pool.push((life.volume, request));
                }
            }
        }
        if life.cache.is_open() && !life.was_open {
            life.was_open = true;
            self.is_finished = true;
            turned.opens = true;
        }
        life.cache.failure().is_some()
    }

    /// Whether it has failed for want of room, and nothing of it is on its way any more.
    fn is_for_room(&self) -> bool {
        let full = |life: &Life| {
            life.cache
                .failure()
                .is_some_and(|why| why.contains("no space"))
        };
        self.life.as_ref().is_some_and(full)
    }

    /// A cache has failed: it may not be taken up while its device does not do what it is asked.
    fn look_at_failure(&mut self, volume: usize, now: Moment) -> Result<(), String> {
        let Some(life) = &mut self.life else {
            return Ok(());
        };
        let why = life.cache.failure().unwrap_or_default();
        // One that failed while faults were on is tried again after them.
        let is_new = life.again_at.is_none();
        if life.was_open || is_new && !self.is_troubled {
            return Err(format!("the cache of volume {volume} has failed: {why}"));
        }
        let again_at = *life.again_at.get_or_insert(now + AGAIN);
        if again_at > now || life.flying > 0 {
            return Ok(());
        }
        let cache = self.cache(volume, now)?;
        if let Some(life) = &mut self.life {
            life.cache = cache;
            life.again_at = None;
        }
        self.exclude();
        Ok(())
    }
}

/// What names a volume's cache: the volume of the pool has the same, and each that follows another.
fn id(volume: usize, before: u64) -> Uuid {
    Uuid::from_u64_pair(volume as u64, 2 + (before << 32))
}

/// Whether a mode leaves the newest on the device at all times.
const fn is_always_newest(mode: Mode) -> bool {
    !matches!(mode, Mode::WriteBack)
}
