//! What an operator must hear of a pool when it happens: the daemon's log outlives the daemon.
//!
//! What is cheap to see is looked at in every turn, so that nothing short is missed; the rest every second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ashlar_block::{Description, Moment};
use ashlar_store::format::MemberState;
use ashlar_store::{Engine, VolumeCondition};
use tracing::{error, info, warn};

use super::room::{is_over, room_of, scarcest};
use crate::model::LayoutSpec;

/// How often everything is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How often at least it is looked whether a degraded pool still is: that takes a look at every segment.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What a bad copy is counted in.
const GRANULE_KIB: u64 = 4;

/// How often the log repeats that a drive is slow.
const SLOW_AGAIN: Duration = Duration::from_secs(10);

/// What the log has already.
#[derive(Default)]
pub(super) struct News {
    /// What drives call themselves, by member.
    names: Vec<Option<String>>,
    states: Vec<MemberState>,
    losses: usize,
    failed: bool,
    is_scarce: bool,
    is_rebuilding: bool,
    scrub: Option<Found>,
    found: Found,
    bad_by_drive: Vec<u64>,
    redundancy: Redundancy,
    volumes: BTreeMap<u32, VolumeCondition>,
    looked: Option<Moment>,
    /// Something has happened since.
    due: Option<Moment>,
    /// Of each drive, how many slow requests have been told of, and when.
    slow: BTreeMap<usize, (u64, Moment)>,
    /// Drives that cannot do something now.
    waiting: BTreeSet<usize>,
}

/// Copies that were not as they should be, since the import.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Found {
    bad: u64,
    mended: u64,
    lost: u64,
}

/// Whether copies are missing, as it was seen last.
#[derive(Default)]
struct Redundancy {
    is_degraded: bool,
    pause: Duration,
    due: Option<Moment>,
}

impl Redundancy {
    /// Something has happened that it may hang on.
    fn stir(&mut self, now: Moment) {
        (self.pause, self.due) = (EVERY, Some(now));
    }

    /// Looks when it is time to; whether that has changed.
    fn look(&mut self, engine: &Engine, now: Moment) -> bool {
        if self.due.is_none_or(|at| now < at) {
            return false;
        }
        let before = std::mem::replace(&mut self.is_degraded, engine.is_degraded());
        self.due = self.is_degraded.then_some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        before != self.is_degraded
    }
}

impl News {
    /// Of a pool that is imported, with these drives by member.
    pub fn new(engine: &Engine, drives: impl Iterator<Item = Option<Description>>) -> Self {
        let states = engine.members().iter().map(|member| member.state);
        // Of volumes nothing is known: what an import finds stopped, or lacking blocks, is told.
        let mut news = Self {
            names: drives.map(|drive| drive.as_ref().map(short)).collect(),
            states: states.collect(),
            ..Self::default()
        };
        news.redundancy.stir(Moment::ORIGIN);
        news
    }

    /// A drive has come.
    pub fn joined(&mut self, engine: &Engine, member: usize, drive: &Description) {
        let name = Some(short(drive));
        match self.names.get_mut(member) {
            Some(place) => *place = name,
            None => self.names.push(name),
        }
        let pool = &engine.label().pool_name;
        let name = self.name_of(engine, member);
        info!(pool, drive = name, "pool {pool}: drive {name} has joined");
    }

    /// Tells, once each, what has changed since this was asked last.
    pub fn tell(&mut self, engine: &Engine, now: Moment) {
        self.tell_of_drives(engine, now);
        self.tell_of_work(engine, now);
        self.tell_of_redundancy(engine, now);
        if let (Some(why), false) = (engine.failure(), self.failed) {
            self.failed = true;
            let pool = &engine.label().pool_name;
            error!(pool, "pool {pool} has stopped: {why}");
        }
        match self.looked.map(|at| at + EVERY).filter(|&next| now < next) {
            Some(next) => self.due = Some(next),
            None => {
                (self.looked, self.due) = (Some(now), None);
                self.tell_of_copies(engine);
                self.tell_of_volumes(engine);
                self.tell_of_room(engine);
                self.tell_of_slowness(engine, now);
                self.tell_of_waits(engine);
            }
        }
    }

    /// When it must be asked again, even if nothing happens until then.
    pub fn due(&self) -> Option<Moment> {
        let redundancy = self.redundancy.due.filter(|_| !self.failed);
        self.due.into_iter().chain(redundancy).min()
    }

    /// How a drive is called: by its device if it was ever here, and by its identity.
    fn name_of(&self, engine: &Engine, member: usize) -> String {
        let id = engine.members().get(member).map(|member| member.drive);
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        match self.names.get(member) {
            Some(Some(name)) => format!("{name} ({id})"),
            _ => id,
        }
    }

    fn tell_of_drives(&mut self, engine: &Engine, now: Moment) {
        let pool = &engine.label().pool_name;
        let losses = engine.losses();
        for (number, why) in losses.iter().skip(self.losses) {
            let drive = self.name_of(engine, *number);
            let was_leaving = self.states.get(*number) == Some(&MemberState::Leaving);
            match was_leaving {
                true => info!(
                    pool,
                    drive, "pool {pool}: drive {drive} is out of service: {why}"
                ),
                false => error!(
                    pool,
                    drive, "pool {pool}: drive {drive} is out of service: {why}"
                ),
            }
            self.redundancy.stir(now);
        }
        self.losses = losses.len();
        for (number, member) in engine.members().iter().enumerate() {
            let before = self.states.get(number).copied();
            if before == Some(member.state) {
                continue;
            }
            match before {
                None => self.states.push(member.state),
                Some(_) => self.states[number] = member.state,
            }
            self.redundancy.stir(now);
            if member.state == MemberState::Leaving {
                let drive = self.name_of(engine, number);
                info!(pool, drive, "pool {pool}: drive {drive} is being emptied");
            }
        }
    }

    fn tell_of_work(&mut self, engine: &Engine, now: Moment) {
        let pool = &engine.label().pool_name;
        if engine.is_rebuilding() != self.is_rebuilding {
            self.is_rebuilding = !self.is_rebuilding;
            self.redundancy.stir(now);
            match self.is_rebuilding {
                true => info!(
                    pool,
                    "pool {pool}: rebuild has begun: missing copies are made again"
                ),
                false => info!(pool, "pool {pool}: rebuild has ended"),
            }
        }
        match (self.scrub, engine.has_scrub()) {
            (None, true) => {
                self.scrub = Some(Found::of(engine));
                info!(pool, "pool {pool}: scrub has begun");
            }
            (Some(before), false) => {
                self.scrub = None;
                let Found { bad, mended, lost } = Found::of(engine).since(before);
                info!(
                    pool,
                    bad,
                    mended,
                    lost,
                    "pool {pool}: scrub has ended: {bad} bad copies found, {mended} of them mended, {lost} \
                     blocks of {GRANULE_KIB} KiB without a good copy"
                );
            }
            _ => {}
        }
    }

    fn tell_of_copies(&mut self, engine: &Engine) {
        let found = Found::of(engine);
        if found == self.found {
            return;
        }
        let pool = &engine.label().pool_name;
        let Found { mended, lost, .. } = found.since(self.found);
        self.found = found;
        self.bad_by_drive.resize(engine.members().len(), 0);
        for number in 0..engine.members().len() {
            let all = engine.bad_copies(number);
            let bad = all - std::mem::replace(&mut self.bad_by_drive[number], all);
            if bad > 0 {
                let drive = self.name_of(engine, number);
                warn!(
                    pool,
                    drive,
                    bad,
                    all,
                    "pool {pool}: {bad} bad copies of {GRANULE_KIB} KiB found on drive {drive}, {all} since the \
                     import"
                );
            }
        }
        if mended > 0 {
            info!(
                pool,
                mended, "pool {pool}: {mended} bad copies mended from good ones"
            );
        }
        if lost > 0 {
            error!(
                pool,
                lost, "pool {pool}: {lost} blocks of {GRANULE_KIB} KiB have no good copy"
            );
        }
    }

    fn tell_of_volumes(&mut self, engine: &Engine) {
        let pool = &engine.label().pool_name;
        let now = engine.volume_conditions().into_iter();
        let now: BTreeMap<u32, VolumeCondition> = now.map(|one| (one.number, one)).collect();
        for (number, is) in &now {
            let before = self.volumes.get(number);
            let volume = format!("{pool}/{}", is.name);
            let was_stopped = before.is_some_and(|before| before.stopped.is_some());
            match &is.stopped {
                Some(why) if !was_stopped => {
                    error!(volume, "volume {volume} takes no writes: {why}");
                }
                None if was_stopped => info!(volume, "volume {volume} takes writes again"),
                _ => {}
            }
            let had = before.and_then(|before| before.trouble.as_ref());
            match &is.trouble {
                Some(why) if had != Some(why) => error!(volume, "volume {volume}: {why}"),
                None if had.is_some() => {
                    info!(volume, "volume {volume} serves all its blocks again")
                }
                _ => {}
            }
        }
        for (_, gone) in self
            .volumes
            .iter()
            .filter(|(number, _)| !now.contains_key(number))
        {
            let volume = format!("{pool}/{}", gone.name);
            info!(volume, "volume {volume} is gone, and its space is free");
        }
        self.volumes = now;
    }

    fn tell_of_redundancy(&mut self, engine: &Engine, now: Moment) {
        if self.failed || !self.redundancy.look(engine, now) {
            return;
        }
        let pool = &engine.label().pool_name;
        match self.redundancy.is_degraded {
            true => warn!(pool, "pool {pool} is degraded: copies are missing"),
            false => info!(pool, "pool {pool}: no copy is missing any more"),
        }
    }

    /// Tells which drives answer slowly: at once, and then now and then.
    fn tell_of_slowness(&mut self, engine: &Engine, now: Moment) {
        let pool = &engine.label().pool_name;
        for number in 0..engine.members().len() {
            let replies = engine.replies(number);
            let told = self.slow.get(&number);
            let (known, at) = told.copied().unwrap_or((0, Moment::ORIGIN));
            let is_new = replies.slow > known && (known == 0 || now >= at + SLOW_AGAIN);
            if !is_new {
                continue;
            }
            self.slow.insert(number, (replies.slow, now));
            let (name, more) = (self.name_of(engine, number), replies.slow - known);
            let oldest = replies.oldest.map_or(String::new(), |oldest| {
                format!("; it has not answered for {} s", oldest.as_secs())
            });
            let waits = match replies.is_awaited {
                true => ", and the pool cannot do without it",
                false => "",
            };
            warn!(
                pool,
                drive = name,
                "pool {pool}: drive {name} took longer than a second for {more} requests{oldest}{waits}"
            );
        }
    }

    /// Tells which drives cannot do something now, and when they can again.
    fn tell_of_waits(&mut self, engine: &Engine) {
        let pool = &engine.label().pool_name;
        for number in 0..engine.members().len() {
            match engine.drive_wait(number) {
                Some(wait) if self.waiting.insert(number) => {
                    let (drive, why) = (self.name_of(engine, number), wait.why);
                    warn!(
                        pool,
                        drive,
                        "pool {pool}: drive {drive} cannot do what it is asked, and is asked again until it can. \
                         Writes wait, nothing is lost: {why}"
                    );
                }
                None if self.waiting.remove(&number) => {
                    let drive = self.name_of(engine, number);
                    info!(
                        pool,
                        drive, "pool {pool}: drive {drive} does again what it is asked"
                    );
                }
                _ => {}
            }
        }
    }

    fn tell_of_room(&mut self, engine: &Engine) {
        let pool = &engine.label().pool_name;
        let homes = engine.homes();
        match (self.is_scarce, scarcest(&homes)) {
            (false, Some(home)) => {
                self.is_scarce = true;
                warn!(
                    pool,
                    "pool {pool} is nearly full: {} bytes are left as {}. Writes will fail when there are \
                     none: add a drive, or delete something",
                    room_of(home),
                    LayoutSpec::from(home.layout)
                );
            }
            (true, None) if is_over(&homes) => {
                self.is_scarce = false;
                info!(pool, "pool {pool} has room again");
            }
            _ => {}
        }
    }
}

impl Found {
    fn of(engine: &Engine) -> Self {
        let counters = engine.counters();
        Self {
            bad: counters.bad_copies,
            mended: counters.repaired,
            lost: counters.lost,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            bad: self.bad - before.bad,
            mended: self.mended - before.mended,
            lost: self.lost - before.lost,
        }
    }
}

/// A device by its name alone: `file /srv/d0`, where a description goes on with size and blocks.
fn short(device: &Description) -> String {
    let title = device.title.split(", ").next().unwrap_or_default();
    let below: Vec<String> = device.children.iter().map(short).collect();
    match below.is_empty() {
        true => title.to_owned(),
        false => format!("{title} of {}", below.join(" and ")),
    }
}
