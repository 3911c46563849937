//! The end of a cached volume, as the daemon brings it about: hosts are gone, what is newer is written back, the cache
//! rests, the device is looked at, and the volume of the pool is deleted. And the device by itself, at any time.

use ashlar_block::{IoError, Moment};
use ashlar_cache::GRANULE;

use super::{AGAIN, CacheFate, Cached, Caches, HEAD, is_always_newest};
use crate::content;
use crate::engine::load::{check_found, key};
use crate::engine::model::Model;
use crate::engine::plan::Fate;
use crate::engine::rig::Cut;
use crate::engine::seam::Subject;
use crate::engine::volumes::name;
use crate::engine::world::World;

/// The number of the flush that the end waits for.
const LAST: u64 = 1;

/// What comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The volume is deleted; perhaps another one is to cache the device.
    Delete { again: bool },
    /// Nothing: the world ends.
    Nothing,
}

/// A volume that is being left.
pub(super) struct Leaving {
    then: Then,
    step: Step,
    /// What only the cache has is given up: granules of the device, as the cache lists them.
    gives_up: bool,
    newer: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Hosts have their answers first.
    Hosts,
    Flushing,
    /// It has failed, as the device fails: when it is tried again.
    Again(Moment),
    Resting,
    /// The device was looked at.
    Left,
}

impl Cached {
    pub(super) fn leaves_at(&self) -> Option<Moment> {
        match self.leaving.as_ref()?.step {
            Step::Again(at) => Some(at),
            _ => None,
        }
    }

    fn step(&self) -> Option<Step> {
        self.leaving.as_ref().map(|leaving| leaving.step)
    }

    fn go_on(&mut self, step: Step) {
        if let Some(leaving) = &mut self.leaving {
            leaving.step = step;
        }
    }

    /// Has the cache write everything back, or list what is not.
    fn end(&mut self, now: Moment) {
        let (Some(leaving), Some(life)) = (&mut self.leaving, &mut self.life) else {
            return;
        };
        if !life.was_open {
            leaving.step = Step::Again(now + AGAIN);
        } else if leaving.gives_up {
            leaving.newer = life.cache.dirty_ranges();
            life.rests = true;
            leaving.step = Step::Resting;
        } else {
            life.cache.flush(LAST);
            leaving.step = Step::Flushing;
        }
    }

    /// The device as it lies there, without the mark if what only the cache has is given up.
    fn take_mark_away(&self, header: Option<ashlar_cache::Header>) {
        let mut device = self.device.borrow_mut();
        let mut head = vec![0; HEAD as usize * GRANULE];
        device.pages.read(0, &mut head);
        if let Some(sums) = header.and_then(|header| header.marked)
            && sums.take_away(&mut head)
        {
            device.pages.write(0, &head, None);
        }
    }

    fn granule(&self, granule: u64) -> Vec<u8> {
        let mut bytes = vec![0; GRANULE];
        // What cannot be read is there all the same.
        self.device
            .borrow()
            .pages
            .read(granule * GRANULE as u64, &mut bytes);
        bytes
    }

    /// Whether the device begins with something that no host has written there.
    fn is_marked(&self, volume: usize) -> bool {
        let is_strange = |granule: u64| {
            let bytes = self.granule(granule);
            let mut units = bytes.chunks(512);
            units.any(|unit| content::read(unit, key(volume, granule)).is_err())
        };
        (0..HEAD).any(is_strange)
    }
}

impl Caches {
    /// A cache has written everything back, or could not.
    pub(super) fn was_flushed(
        &mut self,
        volume: usize,
        id: u64,
        result: Result<(), IoError>,
        now: Moment,
    ) -> Result<(), String> {
        let Some(one) = self.all.get_mut(&volume) else {
            return Ok(());
        };
        let is_lost = |error: &IoError| error.context().contains("has failed before");
        let tells = result.as_ref().is_err_and(is_lost);
        one.is_operator_told |= tells;
        match result {
            Err(error) if !one.is_troubled && !tells => Err(format!(
                "a flush of the cache of volume {volume} failed: {error}"
            )),
            _ if id != LAST || one.step() != Some(Step::Flushing) => Ok(()),
            Err(_) => {
                one.go_on(Step::Again(now + AGAIN));
                Ok(())
            }
            Ok(()) => {
                if let Some(life) = &mut one.life {
                    life.rests = true;
                }
                one.go_on(Step::Resting);
                Ok(())
            }
        }
    }

    /// Looks whether devices by themselves have what their volumes are to have. One with a mark need not: nothing takes it
    /// for what it was.
    pub(crate) fn check_devices(&self, model: &mut Model) -> Result<(), String> {
        for (&volume, one) in &self.all {
            let newest = is_always_newest(one.wish.mode);
            if one.is_given_up || !newest && one.is_marked(volume) {
                continue;
            }
            one.check_device(volume, model, &[])
                .map_err(|why| format!("device by itself: {why}"))?;
        }
        Ok(())
    }
}

impl Cached {
    fn check_device(
        &self,
        volume: usize,
        model: &mut Model,
        but: &[(u64, u64)],
    ) -> Result<(), String> {
        for granule in 0..self.granules {
            let at = granule * GRANULE as u64;
            if but
                .iter()
                .any(|&(from, bytes)| (from..from + bytes).contains(&at))
            {
                continue;
            }
            check_found(volume, granule, &self.granule(granule), model)?;
        }
        Ok(())
    }
}

impl<S: Subject> World<'_, S> {
    /// An operator wants the volume gone.
    pub(super) fn leave_for(&mut self, volume: usize, what: CacheFate) {
        let again = matches!(what, CacheFate::Again);
        // A volume of a device that is gone is not left, and without hosts the crash may not come that has it back.
        let is_dead = |one: &Cached| one.device.borrow().is_dead();
        let is_gone = self.caches.get(volume).is_some_and(is_dead);
        if self.volumes.made().contains(&volume) && !is_gone {
            self.leave(volume, Then::Delete { again }, !again);
        }
    }

    /// A cached volume is left.
    pub(crate) fn leave(&mut self, volume: usize, then: Then, gives_up: bool) {
        let Some(one) = self.caches.all.get_mut(&volume) else {
            return;
        };
        if one.leaving.is_some() || !one.is_finished {
            return;
        }
        one.leaving = Some(Leaving {
            then,
            step: Step::Hosts,
            gives_up,
            newer: Vec::new(),
        });
        self.say(|| format!("volume {volume} is left, giving up what is newer: {gives_up}"));
        self.load.close(volume);
    }

    /// All cached volumes are left.
    pub(crate) fn leave_all(&mut self) -> Result<(), String> {
        let made = self.volumes.made().into_iter();
        for volume in made
            .filter(|&volume| self.caches.has(volume))
            .collect::<Vec<_>>()
        {
            let then = match self.chance.happens(500) {
                true => Then::Delete { again: false },
                false => Then::Nothing,
            };
            self.leave(volume, then, false);
        }
        self.until("cached volumes are left", |w| {
            w.caches.is_idle() && w.volumes.is_idle()
        })
    }

    pub(super) fn go_on_leaving(&mut self, volume: usize, now: Moment) -> Result<bool, String> {
        let Some(one) = self.caches.all.get_mut(&volume) else {
            return Ok(false);
        };
        match one.step() {
            Some(Step::Hosts) if !self.load.uses(volume) => one.end(now),
            Some(Step::Again(at)) if at <= now => one.end(now),
            Some(Step::Resting) => {
                let flying = one.life.as_ref().map_or(0, |life| life.flying);
                if flying > 0 {
                    return Ok(false);
                }
                return self.is_left(volume);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The cache rests, and goes. The device is what the volume was.
    fn is_left(&mut self, volume: usize) -> Result<bool, String> {
        let Some(one) = self.caches.all.get_mut(&volume) else {
            return Ok(false);
        };
        let Some(life) = one.life.take() else {
            return Ok(false);
        };
        self.caches.tally.of(&life.cache);
        self.caches.tally.left += 1;
        one.go_on(Step::Left);
        let Some(leaving) = &one.leaving else {
            return Ok(false);
        };
        let is_told = leaving.gives_up || one.is_operator_told;
        if self.model.is_untold(volume) && !is_told {
            return Err(format!(
                "untold: volume {volume} has lost what was acknowledged, and its last flush says that all is there"
            ));
        }
        // Its hosts are gone.
        self.model.forgive(volume);
        if leaving.gives_up {
            one.is_given_up = true;
            one.take_mark_away(life.cache.status().header);
        } else if self.chance.happens(500) {
            // All of it is flushed.
            one.device.borrow_mut().pages.lose_cache(&mut self.chance);
        }
        let checked = one.check_device(volume, &mut self.model, &leaving.newer);
        checked.map_err(|why| format!("left: {why}"))?;
        let then = leaving.then;
        match then {
            Then::Delete { .. } => self.delete(volume),
            Then::Nothing => one.leaving = None,
        }
        Ok(true)
    }

    /// A volume is made that caches a device after another: the node may fail just then.
    pub(crate) fn cut_again(&mut self, volume: usize) -> Result<(), String> {
        let follows = self.caches.get(volume).is_some_and(|one| one.before > 0);
        if !self.plan.cuts_agains || !follows || !self.chance.happens(600) {
            return Ok(());
        }
        let after = self.chance.below(30);
        self.strike(Fate::Fuse {
            after,
            cut: Cut::Before,
            power: false,
        })
    }

    /// The name of the volume before is not free yet.
    pub(crate) fn await_name(&mut self, volume: usize) {
        if let Some(one) = self.caches.all.get_mut(&volume) {
            one.awaits_name = true;
        }
    }

    /// Makes the volume whose name is free now.
    pub(super) fn make_anew(&mut self, volume: usize) {
        let called = name(volume);
        let awaits = self.caches.get(volume).is_some_and(|one| one.awaits_name);
        if !awaits || self.known().iter().any(|known| known.name == called) {
            return;
        }
        if let Some(one) = self.caches.all.get_mut(&volume) {
            one.awaits_name = false;
        }
        self.create(volume);
    }

    /// The volume of the pool is gone, and with it the cache: whether another one is to take its place.
    pub(crate) fn cache_is_gone(&mut self, volume: usize) -> bool {
        let Some(one) = self.caches.all.get_mut(&volume) else {
            return false;
        };
        let leaving = one.leaving.take();
        one.life = None;
        let again = matches!(
            leaving.map(|leaving| leaving.then),
            Some(Then::Delete { again: true })
        );
        if again {
            one.begin_anew(volume);
        }
        again
    }
}
