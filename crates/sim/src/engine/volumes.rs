//! The volumes of a world: made, given another size and deleted while everything else goes on, and
//! looked for after each import.

use std::collections::{BTreeMap, VecDeque};

use ashlar_block::{BlockRange, ErrorKind, IoError};
use ashlar_store::format::Reserve;
use uuid::Uuid;

use super::cached::Then;
use super::layouts::Facts;
use super::model::{Effect, WriteId};
use super::plan::Wish;
use super::seam::{Known, Manage, Managed, Subject, VolumePlan};
use super::world::World;

/// What the world knows of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It was not asked for yet.
    Absent,
    /// It was asked for.
    Wanted,
    /// Its making was acknowledged, or it was found.
    Made,
    /// It is to go; this write of zeroes is how the model sees it.
    Doomed(WriteId),
    /// It is gone, or could not be made.
    Gone,
}

/// Another size, asked for and not yet answered.
struct Resize {
    id: u64,
    to: u64,
    /// What is cut off, as the model sees it.
    cut: Option<WriteId>,
}

pub(crate) struct Volume {
    wish: Wish,
    state: State,
    number: Option<u32>,
    /// Granules, as was last acknowledged or found.
    size: u64,
    resizes: VecDeque<Resize>,
}

/// What was asked of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Create(usize),
    Delete(usize),
    Resize(usize),
    Settle,
    Scrub,
    Add,
    Readmit,
    Remove(usize),
    Reserve(Reserve),
    Stops(usize, bool),
    Repair,
}

/// All volumes, and what is on its way.
pub(crate) struct Volumes {
    all: Vec<Volume>,
    orders: BTreeMap<u64, Order>,
    next: u64,
}

impl Volume {
    fn new(wish: Wish) -> Self {
        Self {
            wish,
            state: State::Absent,
            number: None,
            size: wish.granules,
            resizes: VecDeque::new(),
        }
    }

    /// Up to where commands may go.
    fn limit(&self) -> u64 {
        let wanted = self.resizes.iter().map(|resize| resize.to);
        wanted.fold(self.size, u64::min)
    }

    fn is_raw(&self) -> bool {
        Facts::of(self.wish.layout).raw
    }
}

impl Volumes {
    /// None is there yet; the first `initial` are to be made at once.
    pub(crate) fn new(wishes: &[Wish], initial: usize) -> Self {
        let mut all: Vec<Volume> = wishes.iter().copied().map(Volume::new).collect();
        for volume in all.iter_mut().take(initial) {
            volume.state = State::Wanted;
        }
        Self {
            all,
            orders: BTreeMap::new(),
            next: 0,
        }
    }

    /// Whether no volume is waited for.
    pub(crate) fn are_made(&self) -> bool {
        self.all.iter().all(|volume| volume.state != State::Wanted)
    }

    /// What the engine calls a volume.
    pub(crate) fn number(&self, volume: usize) -> Option<u32> {
        self.all.get(volume)?.number
    }

    /// How a volume is kept.
    pub(crate) fn wish(&self, volume: usize) -> Wish {
        self.all[volume].wish
    }

    /// Whether this order has no answer yet.
    pub(crate) fn awaits(&self, order: Order) -> bool {
        self.orders.values().any(|&other| other == order)
    }

    /// Whether an order like this has no answer yet.
    pub(crate) fn awaits_any(&self, like: impl Fn(&Order) -> bool) -> bool {
        self.orders.values().any(like)
    }

    /// Whether a drive is being added.
    pub(crate) fn awaits_drive(&self) -> bool {
        self.awaits(Order::Add) || self.awaits(Order::Readmit)
    }

    /// Drives that the volume of this name needs.
    pub(crate) fn width_of(&self, called: &str) -> Option<usize> {
        let volume = (0..self.all.len()).find(|&volume| name(volume) == called)?;
        Some(Facts::of(self.wish(volume).layout).width)
    }

    /// Whether anything was asked for that is not answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.orders.is_empty()
    }

    /// Volumes that may be changed.
    pub(crate) fn made(&self) -> Vec<usize> {
        let made = self.all.iter().enumerate();
        let made = made.filter(|(_, volume)| volume.state == State::Made);
        made.map(|(index, _)| index).collect()
    }

    /// No answer will come any more.
    pub(crate) fn crash(&mut self) {
        self.orders.clear();
    }
}

impl<S: Subject> World<'_, S> {
    /// Asks something of the pool.
    pub(crate) fn order(&mut self, order: Order, what: Manage) {
        let id = self.volumes.next;
        self.volumes.next += 1;
        let Some(node) = &mut self.node else { return };
        self.volumes.orders.insert(id, order);
        node.manage(id, what);
    }

    /// Asks for a volume that is wanted.
    pub(crate) fn create(&mut self, volume: usize) {
        let Volume { wish, state, .. } = &mut self.volumes.all[volume];
        *state = State::Wanted;
        let plan = VolumePlan {
            name: name(volume),
            uuid: Uuid::from_u64_pair(volume as u64, 2),
            granules: wish.of_pool(wish.granules),
            layout: wish.layout,
            grain: wish.grain,
            stops: false,
            class: wish.class,
            is_cache: wish.cache.is_some(),
            hot: wish.hot,
        };
        let uuid = self.caches.id(volume).unwrap_or(plan.uuid);
        let plan = VolumePlan { uuid, ..plan };
        self.order(Order::Create(volume), Manage::CreateVolume(plan));
    }

    /// Asks for the next of the volumes that were not asked for yet.
    pub(crate) fn create_next(&mut self) {
        let absent = |volume: &Volume| volume.state == State::Absent;
        if let Some(volume) = self.volumes.all.iter().position(absent) {
            self.create(volume);
        }
    }

    /// An operator wants a volume gone: one that caches is left first.
    pub(crate) fn give_up(&mut self, volume: usize) {
        match self.caches.has(volume) {
            true => self.leave(volume, Then::Delete { again: false }, false),
            false => self.delete(volume),
        }
    }

    /// Asks for a volume's end.
    pub(crate) fn delete(&mut self, volume: usize) {
        let one = &mut self.volumes.all[volume];
        let (State::Made, Some(number)) = (one.state, one.number) else {
            return;
        };
        // What a cache leaves is on its device.
        let is_cached = one.wish.cache.is_some();
        let size = if is_cached { 0 } else { one.size };
        let whole = BlockRange::new(0, size as u32);
        one.state = State::Doomed(self.model.submit(volume, whole, Effect::Drop));
        self.load.close(volume);
        self.order(
            Order::Delete(volume),
            Manage::DeleteVolume { volume: number },
        );
    }

    /// Asks for another size.
    pub(crate) fn resize(&mut self, volume: usize, to: u64) {
        let one = &mut self.volumes.all[volume];
        let (State::Made, Some(number), None) = (one.state, one.number, one.wish.cache) else {
            return;
        };
        // A crash must leave no doubt about which of several came to pass.
        if to == one.size || one.resizes.iter().any(|resize| resize.to == to) {
            return;
        }
        let before = one.limit();
        let cut = (to < before).then(|| {
            let range = BlockRange::new(to, (before - to) as u32);
            self.model.submit(volume, range, Effect::Drop)
        });
        let id = self.volumes.next;
        one.resizes.push_back(Resize { id, to, cut });
        self.model.limit(volume, one.limit());
        self.load.cut_off(volume, one.limit());
        let what = Manage::ResizeVolume {
            volume: number,
            granules: one.wish.spread.at(to),
        };
        self.order(Order::Resize(volume), what);
    }

    /// The pool has answered.
    pub(crate) fn managed(
        &mut self,
        id: u64,
        result: Result<Managed, IoError>,
    ) -> Result<(), String> {
        let Some(order) = self.volumes.orders.remove(&id) else {
            return Err(format!("order {id} was answered, but is not on its way"));
        };
        self.rig.note(|| format!("{order:?} answered: {result:?}"));
        match (order, result) {
            (Order::Create(volume), Ok(Managed::Volume(number))) => {
                let found = self.known().into_iter().find(|k| k.number == number);
                let Some(found) = found.filter(|found| found.name == name(volume)) else {
                    return Err(format!("volume {number} was made, but is not there"));
                };
                self.found(volume, &found)?;
                self.cut_again(volume)
            }
            (Order::Delete(volume), Ok(Managed::Done)) => {
                self.gone(volume);
                Ok(())
            }
            (Order::Resize(volume), Ok(Managed::Done)) => {
                if let Some(resize) = self.take_resize(volume, id) {
                    self.resized(volume, resize);
                }
                Ok(())
            }
            (Order::Scrub, Ok(Managed::Scrubbed { lost }))
                if lost > 0 && self.load.excuses.frail.is_empty() =>
            {
                Err(format!("a scrub found no good copy of {lost} granules"))
            }
            (Order::Scrub, Ok(Managed::Scrubbed { .. })) => Ok(()),
            (Order::Settle, Ok(Managed::Done)) => self.audit(),
            (
                Order::Add
                | Order::Readmit
                | Order::Remove(_)
                | Order::Reserve(_)
                | Order::Stops(..)
                | Order::Repair,
                Ok(Managed::Done),
            ) => {
                self.members_ordered(order);
                Ok(())
            }
            (order, Ok(managed)) => Err(format!("{order:?} was answered with {managed:?}")),
            (order, Err(error)) => self.refused(id, order, &error),
        }
    }

    /// What was asked for is not done, and must not have been.
    fn refused(&mut self, id: u64, order: Order, error: &IoError) -> Result<(), String> {
        if !self.may_refuse(order, error) {
            return Err(format!("{order:?} failed: {error}"));
        }
        let unknown = error.kind() == ErrorKind::Latched;
        match order {
            // The pool has stopped, perhaps after it was done.
            Order::Delete(_) | Order::Resize(_) if unknown => {}
            Order::Create(volume) => {
                self.volumes.all[volume].state = State::Gone;
                if is_name_taken(error) {
                    self.await_name(volume);
                }
            }
            Order::Delete(volume) => {
                self.live_on(volume);
                if self.caches.has(volume) {
                    return self.begin_service(volume);
                }
            }
            Order::Resize(volume) => {
                let resize = self.take_resize(volume, id);
                if let Some(cut) = resize.and_then(|resize| resize.cut) {
                    self.model.refute(cut);
                }
                let limit = self.volumes.all[volume].limit();
                self.model.limit(volume, limit);
            }
            _ => {}
        }
        Ok(())
    }

    fn may_refuse(&self, order: Order, error: &IoError) -> bool {
        if self.load.excuses.rotten && error.kind() == ErrorKind::Latched {
            return true;
        }
        let volume = match order {
            Order::Create(volume) | Order::Delete(volume) | Order::Resize(volume) => volume,
            _ => return self.may_refuse_members(order, error),
        };
        let raw = self.volumes.all[volume].is_raw();
        let lost = self.load.excuses.lost;
        match (order, error.kind()) {
            // The one before is still being deleted.
            (Order::Create(_), _) if is_name_taken(error) => self.caches.has(volume),
            // There are fewer drives than it needs.
            (Order::Create(_), ErrorKind::InvalidRequest) => {
                lost || self.load.excuses.fewer || self.has_too_few_drives(volume)
            }
            // Another change of it is under way.
            (_, ErrorKind::InvalidRequest) => error.to_string().contains("still"),
            // All its space is taken at once; or the logs have to be copied more often for it, and
            // another volume has taken the room; or they lack copies since a drive was lost, and what is
            // left has no room for them.
            (Order::Create(_) | Order::Resize(_), ErrorKind::NoSpace) => {
                let losses = Facts::of(self.volumes.wish(volume).layout).losses;
                let raises = losses >= usize::from(self.plan.shape.log_copies);
                let lacks = matches!(order, Order::Create(_)) && losses > 0 && lost;
                lacks || (raw || raises) && (lost || self.load.excuses.full)
            }
            (
                Order::Create(_) | Order::Resize(_),
                ErrorKind::Media | ErrorKind::Disconnected | ErrorKind::Timeout,
            ) => raw && lost,
            _ => false,
        }
    }

    /// Whether drives have been left out (an import may find one unreadable) that a volume needs.
    fn has_too_few_drives(&self, volume: usize) -> bool {
        let width = match self.plan.shape.fast {
            0 => Facts::of(self.volumes.wish(volume).layout).width,
            // Which of them it needs is another question.
            _ => self.plan.drives.len(),
        };
        let node = self.node.as_ref();
        let drives = node.and_then(|node| node.engine().drives_in_service());
        drives.is_some_and(|drives| drives < width)
    }

    pub(crate) fn known(&self) -> Vec<Known> {
        let known = self.node.as_ref().map(|node| node.engine().volumes());
        known.unwrap_or_default()
    }

    /// Looks for the volumes after an import, and makes those that are wanted and not there.
    pub(crate) fn look_for_volumes(&mut self) -> Result<(), String> {
        let known = self.known();
        for volume in 0..self.volumes.all.len() {
            // One that is being deleted leaves its name to the next.
            let there = known
                .iter()
                .find(|known| known.name == name(volume) && !known.deleting);
            let one = &mut self.volumes.all[volume];
            match (one.state, there) {
                (State::Absent | State::Gone, None) => {}
                (State::Absent | State::Gone, Some(_)) => {
                    return Err(format!("volume {volume} is there, but should not be"));
                }
                (State::Wanted, None) => self.create(volume),
                (State::Made, None) => return Err(format!("lost: volume {volume} is gone")),
                (State::Doomed(_), None) => self.gone(volume),
                (State::Wanted | State::Made, Some(found)) => self.found(volume, found)?,
                (State::Doomed(_), Some(found)) => {
                    self.live_on(volume);
                    self.found(volume, found)?;
                }
            }
        }
        Ok(())
    }

    /// A volume is there.
    fn found(&mut self, volume: usize, found: &Known) -> Result<(), String> {
        let one = &mut self.volumes.all[volume];
        let before = one.number.replace(found.number);
        if before.is_some_and(|before| before != found.number) {
            return Err(format!("volume {volume} was number {before:?}: {found:?}"));
        }
        one.state = State::Made;
        let wish = one.wish;
        let found_size = found.granules.unwrap_or(wish.of_pool(one.size));
        let sizes = one.resizes.iter().map(|resize| resize.to);
        let sizes: Vec<u64> = std::iter::once(one.size).chain(sizes).collect();
        let is_it = |&known: &u64| wish.of_pool(known) == found_size;
        let Some(done) = sizes.iter().position(is_it) else {
            return Err(format!(
                "volume {volume} has {found_size} granules, not one of {sizes:?}"
            ));
        };
        let size = sizes[done];
        for _ in 0..done {
            if let Some(resize) = self.volumes.all[volume].resizes.pop_front() {
                self.resized(volume, resize);
            }
        }
        let one = &mut self.volumes.all[volume];
        for cut in one.resizes.drain(..).filter_map(|resize| resize.cut) {
            self.model.refute(cut);
        }
        self.model.limit(volume, size);
        self.begin_service(volume)
    }

    fn take_resize(&mut self, volume: usize, id: u64) -> Option<Resize> {
        let resizes = &mut self.volumes.all[volume].resizes;
        let at = resizes.iter().position(|resize| resize.id == id)?;
        resizes.remove(at)
    }

    /// A change of its size has come to pass.
    fn resized(&mut self, volume: usize, Resize { to, cut, .. }: Resize) {
        let one = &mut self.volumes.all[volume];
        if let Some(cut) = cut {
            self.model.answer(cut, true);
        }
        if to > one.size {
            self.model.grow(volume, one.size, to);
        }
        one.size = to;
        self.model.limit(volume, one.limit());
    }

    /// A volume was to be deleted, and is not.
    fn live_on(&mut self, volume: usize) {
        if let State::Doomed(cut) = self.volumes.all[volume].state {
            self.model.refute(cut);
            self.volumes.all[volume].state = State::Made;
            self.load.open(volume);
        }
    }

    fn gone(&mut self, volume: usize) {
        let one = &mut self.volumes.all[volume];
        one.state = State::Gone;
        one.number = None;
        one.resizes.clear();
        if self.cache_is_gone(volume) {
            self.create(volume);
        }
    }

    /// When the logs are empty nothing of a deleted volume is left, and everything that is taken is
    /// some volume's.
    pub(crate) fn check_accounts(&self) -> Result<(), String> {
        let left: Vec<String> = self
            .known()
            .into_iter()
            .filter(|k| k.deleting)
            .map(|k| k.name)
            .collect();
        if !left.is_empty() {
            return Err(format!("leaked: {left:?} are still being deleted"));
        }
        if !self.caches.are_at_rest() {
            return Ok(());
        }
        if self.load.excuses.rotten {
            // Slots that only a lost leaf has named stay taken.
            return Ok(());
        }
        let leak = self.node.as_ref().and_then(|node| node.engine().leak());
        leak.map_or(Ok(()), |leak| Err(format!("leaked: {leak}")))
    }
}

fn is_name_taken(error: &IoError) -> bool {
    error.context().contains("already")
}

/// What a volume is called.
pub(crate) fn name(volume: usize) -> String {
    format!("v{volume}")
}
