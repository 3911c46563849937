//! Caches in the world: they take their turns, are taken up with the volumes of the pool, and things befall them.

use std::collections::BTreeSet;
use std::time::Duration;

use ashlar_block::{BlockRange, Completion, ErrorKind, Moment};
use ashlar_cache::GRANULE;

use super::{CacheFate, Cached, Caches, HEAD, is_always_newest};
use crate::content;
use crate::engine::drive::Loss;
use crate::engine::load::key;
use crate::engine::model::Effect;
use crate::engine::node::News;
use crate::engine::seam::Subject;
use crate::engine::world::World;

/// The time in which a cache that no host uses comes to rest.
const COMES_TO_REST: Duration = Duration::from_secs(10);
/// Bytes of a slot of a cache's volume.
const SLOT_BYTES: u64 = 8192;
/// Slots in which a cache keeps what it knows: a page of bits, for devices are small here, and the header.
const OF_ITSELF: u64 = 2;
/// The number of a flush whose end is of no interest.
const UNASKED: u64 = 0;

impl<S: Subject> World<'_, S> {
    /// Devices that are to be cached hold something already.
    pub(crate) fn fill_devices(&mut self) {
        for volume in self.caches.volumes() {
            let Some(one) = self.caches.get(volume) else {
                continue;
            };
            let (granules, filled) = (one.granules, one.wish.filled);
            let mut at = 0;
            while at < granules {
                let count = self.chance.between(1, 64).min(granules - at);
                let range = BlockRange::new(at, count as u32);
                if self.chance.happens(filled) {
                    let write = self
                        .model
                        .submit(volume, range, Effect::Data { forced: true });
                    self.model.answer(write, true);
                    let mut bytes = vec![0; count as usize * GRANULE];
                    content::fill(&mut bytes, GRANULE, key(volume, at), write);
                    let mut device = one.device.borrow_mut();
                    device.pages.write(at * GRANULE as u64, &bytes, None);
                }
                at += count;
            }
        }
    }

    /// A volume of the pool is there: hosts may use it, or its cache is made, or taken up.
    pub(crate) fn begin_service(&mut self, volume: usize) -> Result<(), String> {
        if self.caches.get(volume).is_some_and(|one| one.is_given_up) {
            // It has no mark any more, and is not taken up.
            self.delete(volume);
            return Ok(());
        }
        if let (true, Some(number)) = (self.caches.has(volume), self.volumes.number(volume)) {
            self.caches.begin(volume, number, self.rig.now())?;
            // One that has never been in service hosts do not see before.
            let is_finished = self.caches.get(volume).is_some_and(|one| one.is_finished);
            if !is_finished {
                return Ok(());
            }
        }
        self.load.open(volume);
        Ok(())
    }

    /// All caches do what they can; whether any did something.
    pub(crate) fn turn_caches(&mut self, now: Moment) -> Result<bool, String> {
        let mut busy = false;
        for volume in self.caches.volumes() {
            let turned = self.caches.turn(volume, &self.rig)?;
            if self.rig.is_off() {
                return Ok(true);
            }
            busy |= turned.is_busy;
            self.has_lost(volume, turned.loss);
            if turned.is_unmade {
                // As the daemon does, which says so.
                self.unmake(volume);
            }
            if turned.opens {
                self.is_taken_up(volume)?;
            }
            if let Some(node) = &mut self.node {
                for (number, request) in turned.pool {
                    self.rig.note(|| {
                        let (tag, op, range) =
                            (request.tag & 0xffff_ffff, request.op, request.range);
                        format!(" cache {volume} < {tag:x} {op:?} {range}")
                    });
                    node.command(number, request);
                }
            }
            for done in turned.done {
                self.hear(News::Answered(done))?;
            }
            for (id, result) in turned.answers {
                self.rig
                    .note(|| format!("flush {id} of cache {volume}: {result:?}"));
                self.caches.was_flushed(volume, id, result, now)?;
            }
            busy |= self.go_on_leaving(volume, now)?;
            self.make_anew(volume);
        }
        Ok(busy)
    }

    /// A device has lost something of its cache. What a cache that writes around it has acknowledged was a host's.
    fn has_lost(&mut self, volume: usize, loss: Loss) {
        if loss.any {
            self.rig
                .note(|| format!("the device of volume {volume} has lost what was not flushed"));
            self.model.lose_cache_of(volume);
        }
        let one = self.caches.get(volume);
        if loss.acknowledged && one.is_some_and(|one| is_always_newest(one.wish.mode)) {
            self.model.is_to_be_told(volume);
            if let Some(one) = self.caches.all.get_mut(&volume) {
                one.is_operator_told = false;
            }
        }
    }

    fn unmake(&mut self, volume: usize) {
        if let Some(one) = self.caches.all.get_mut(&volume) {
            one.life = None;
        }
        self.delete(volume);
    }

    fn is_taken_up(&mut self, volume: usize) -> Result<(), String> {
        self.rig.note(|| format!("volume {volume} caches"));
        // Hosts are gone from one that is being left.
        let leaving = self.caches.get(volume).map(|one| one.leaving.is_some());
        if leaving != Some(true) {
            self.load.open(volume);
        }
        self.caches.is_warm(volume)
    }

    /// The pool has answered a cache. It serves it as any host.
    pub(crate) fn cache_is_answered(&mut self, completion: Completion) -> Result<(), String> {
        let volume = Caches::whose(completion.tag);
        let error = completion.result.as_ref().err();
        self.rig.note(|| {
            let tag = completion.tag & 0xffff_ffff;
            format!(" cache {volume} > {tag:x} {error:?}")
        });
        if let Some(error) = error {
            let is_full = error.kind() == ErrorKind::NoSpace && self.load.excuses.full;
            if !is_full {
                return Err(format!(
                    "the pool fails the cache of volume {volume}: {error}"
                ));
            }
        }
        self.caches.answered(completion);
        Ok(())
    }

    /// Something befalls a cache, or its device.
    pub(crate) fn befall_cache(&mut self, volume: usize, what: CacheFate) {
        let now = self.rig.now();
        if matches!(what, CacheFate::Again | CacheFate::GiveUp) {
            return self.leave_for(volume, what);
        }
        let Some(one) = self.caches.all.get_mut(&volume) else {
            return;
        };
        one.is_touched |= what.is_of_the_device();
        let mut device = one.device.borrow_mut();
        match what {
            CacheFate::Stall(time) => device.stall(now + time),
            CacheFate::Short(time) => {
                one.is_troubled = true;
                self.load.excuses.cached.insert(volume);
                device.run_short(now + time);
            }
            // One that nothing waits for: hosts do not, while there is no volume for them.
            CacheFate::Die if one.leaving.is_some() || !one.is_finished => {}
            CacheFate::Die => {
                one.is_troubled = true;
                self.load.excuses.cached.insert(volume);
                device.die();
            }
            CacheFate::Spoil { pick } => {
                one.is_spoiled = true;
                self.load.excuses.cached.insert(volume);
                let granule = HEAD + pick % (one.granules - HEAD);
                device
                    .pages
                    .spoil(granule * GRANULE as u64 + pick % 8 * 512);
            }
            CacheFate::Flush => {
                if let Some(life) = one.life.as_mut().filter(|life| life.was_open) {
                    life.cache.flush(UNASKED);
                }
            }
            CacheFate::Exclude { first, count } => {
                one.excluded = Some(first..(first + count).min(one.granules));
            }
            CacheFate::Include => one.excluded = None,
            CacheFate::Again | CacheFate::GiveUp => {}
        }
        drop(device);
        one.exclude();
    }

    /// The devices of caches fail no more; one that is gone comes back as the daemon is started again.
    pub(crate) fn mend_devices(&mut self) -> Result<(), String> {
        self.caches.peace();
        let mut all = self.caches.all.values();
        if all.any(|one| one.device.borrow().is_dead()) {
            self.crash(false)?;
        }
        // What could not be taken up is, now.
        self.until("caches are taken up", |w| {
            w.caches.are_taken_up() && w.caches.have_heard()
        })?;
        self.caches.peace();
        // From now on hosts hear of no fault, but for sectors that cannot be read.
        self.load.excuses.cached = self.caches.spoiled();
        Ok(())
    }

    /// Waits until caches that no host uses have nothing to do, if they come to that.
    pub(crate) fn await_caches(&mut self) -> Result<(), String> {
        let until = self.rig.now() + COMES_TO_REST;
        self.until("caches come to rest", |w| {
            let is_made = w.volumes.is_idle() && w.caches.is_idle();
            is_made && w.caches.are_at_rest() || w.rig.now() > until
        })?;
        self.check_space()?;
        let restless = self.caches.restless();
        // One may wait for a pool that has no room, or has lost drives.
        let waits = self.load.excuses.full || self.load.excuses.lost;
        match restless.first().filter(|_| !waits) {
            Some(volume) => Err(format!(
                "the cache of volume {volume} does not come to rest"
            )),
            None => Ok(()),
        }
    }

    /// What a cache at rest holds of the pool it knows: a crash has left nothing behind.
    fn check_space(&self) -> Result<(), String> {
        for known in self.known() {
            let mut all = self.caches.all.iter();
            let is_known = |volume: usize| self.volumes.number(volume) == Some(known.number);
            let Some((volume, one)) = all.find(|(volume, _)| is_known(**volume)) else {
                continue;
            };
            let (Some(used), Some(life)) = (known.used, one.life.as_ref()) else {
                continue;
            };
            let is_still = one.is_at_rest() && life.cache.is_open() && !known.deleting;
            let has = life.cache.held_blocks() + OF_ITSELF;
            if is_still && used / SLOT_BYTES > has {
                return Err(format!(
                    "leaked: the cache of volume {volume} holds {used} bytes, and knows {has} slots"
                ));
            }
        }
        Ok(())
    }

    /// The same, and notes how warm they are.
    pub(crate) fn rest_caches(&mut self) -> Result<(), String> {
        self.await_caches()?;
        self.caches.note_warmth();
        Ok(())
    }
}

impl Caches {
    /// A cache that was taken up is as warm as it was.
    fn is_warm(&mut self, volume: usize) -> Result<(), String> {
        let Some(one) = self.all.get_mut(&volume) else {
            return Ok(());
        };
        let before = one.warm.take().unwrap_or(0);
        let now = one
            .life
            .as_ref()
            .map_or(0, |life| life.cache.status().cached_bytes);
        if now < before {
            return Err(format!(
                "cold: the cache of volume {volume} had {before} bytes, and has {now} now"
            ));
        }
        Ok(())
    }

    /// Notes how warm caches are that have nothing to do: so warm they are to be after a crash.
    pub(crate) fn note_warmth(&mut self) {
        for one in self.all.values_mut() {
            let rests = one.life.as_ref().filter(|_| one.is_at_rest());
            one.warm = rests.map(|life| life.cache.status().cached_bytes);
        }
    }

    /// Whether each that is there serves.
    fn are_taken_up(&self) -> bool {
        let mut lives = self.all.values().filter_map(|one| one.life.as_ref());
        lives.all(|life| life.was_open && life.cache.is_open())
    }

    /// Those of which sectors cannot be read.
    fn spoiled(&self) -> BTreeSet<usize> {
        let all = self.all.iter().filter(|(_, one)| one.is_spoiled);
        all.map(|(&volume, _)| volume).collect()
    }

    /// Those that have something to do, though their devices have always done what they were asked.
    fn restless(&self) -> Vec<usize> {
        let all = self.all.iter();
        let restless = all.filter(|(_, one)| !one.is_touched && !one.is_at_rest());
        restless.map(|(&volume, _)| volume).collect()
    }

    /// Whether none has anything to do.
    pub(crate) fn are_at_rest(&self) -> bool {
        self.all.values().all(Cached::is_at_rest)
    }
}

impl Cached {
    /// Whether it has nothing to do, or is not there.
    fn is_at_rest(&self) -> bool {
        let rests = |life: &super::Life| life.flying == 0 && life.cache.next_deadline().is_none();
        self.life.as_ref().is_none_or(rests)
    }
}
