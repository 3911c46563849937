//! The drives of a world as its pool's members: added and taken out by order while everything else
//! goes on, and looked at when the pool has settled.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_block::{ErrorKind, IoError};
use ashlar_store::format::{DriveClass, MemberState, Reserve};
use ashlar_store::{Comeback, Drives};

use super::audit::{Found, Media, Pool, check_order};
use super::drive::{Drive, DriveSize, Handle, Shared};
use super::layouts::Facts;
use super::plan::Plan;
use super::seam::{Manage, Seat, Subject, identity, memory};
use super::volumes::Order;
use super::world::World;

/// What the world knows of its pool's members.
pub(crate) struct Members {
    /// Drives that lie, or have lost what they had acknowledged.
    doubted: BTreeSet<usize>,
    /// Drives that were taken out and pulled: the pool can do without them.
    pulled: BTreeSet<usize>,
    /// How often each drive has joined, the first time left out.
    joined: BTreeMap<usize, u64>,
    /// The term of the last import.
    pub(crate) term: u64,
    /// What may be kept for repair: the last that was acknowledged, and what was ordered since.
    reserves: Vec<Reserve>,
    /// The same of whether a volume stops when a copy is missing, by its name.
    stops: BTreeMap<String, Vec<bool>>,
}

impl Members {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            doubted: plan.liar.iter().map(|&(liar, _)| liar).collect(),
            pulled: BTreeSet::new(),
            joined: BTreeMap::new(),
            term: 0,
            reserves: vec![plan.shape.reserve],
            stops: BTreeMap::new(),
        }
    }

    /// A drive has lost something that it had acknowledged.
    pub(crate) fn doubt(&mut self, drive: usize) {
        self.doubted.insert(drive);
    }

    /// Whether a drive was pulled.
    pub(crate) fn is_pulled(&self, drive: usize) -> bool {
        self.pulled.contains(&drive)
    }
}

impl<S: Subject> World<'_, S> {
    fn media(&self) -> Media<'_> {
        Media::new(&self.drives, &self.members.doubted)
    }

    fn seats(&self) -> Vec<Seat> {
        let seats = self.node.as_ref().and_then(|node| node.engine().seats());
        seats.unwrap_or_default()
    }

    /// Adds a drive: a new one, or one that the pool has left out for good.
    pub(crate) fn add_drive(&mut self, size: DriveSize) -> Result<(), String> {
        let awaited = self.volumes.awaits_drive();
        if awaited || self.seats().is_empty() || self.has_stopped() {
            return Ok(());
        }
        let next = self
            .node
            .as_ref()
            .and_then(|node| node.engine().next_seat());
        let Some(member) = next else {
            return Ok(());
        };
        let old = self.left_out().filter(|_| self.chance.happens(500));
        let drive = old.unwrap_or_else(|| {
            let drive = Drive::new(
                &self.rig,
                self.drives.len(),
                size,
                self.plan.pace,
                self.chance.fork(),
            );
            self.drives.push(drive);
            self.drives.len() - 1
        });
        let time = match old {
            None => 0,
            Some(_) => {
                let time = self.members.joined.entry(drive).or_default();
                *time += 1;
                *time
            }
        };
        self.forget_handles(drive);
        // One that cannot be labelled would be refused.
        self.drives[drive].borrow_mut().end_shortage();
        let identity = identity(drive, time);
        let wait = self.wait_for(&self.drives[drive]);
        let Some(node) = &mut self.node else {
            return Ok(());
        };
        let enlisted = node
            .engine()
            .enlist(identity, Handle::open(&self.drives[drive]), wait);
        if self.rig.is_off() {
            // It has a label, or a part of one, and is no member.
            return Ok(());
        }
        enlisted.map_err(|why| format!("drive {drive} could not be enlisted: {why}"))?;
        let device = Handle::open(&self.drives[drive]);
        let geometry = device.geometry();
        node.bring(device);
        let what = Manage::AddDrive {
            drive: identity,
            member,
            geometry,
            class: DriveClass::Nvme,
        };
        self.order(Order::Add, what);
        Ok(())
    }

    /// Has a drive take part again, if one that was left out is here with what it had.
    pub(crate) fn readmit_drive(&mut self) {
        if self.volumes.awaits_drive() || self.has_stopped() {
            return;
        }
        let Some(drive) = self.left_out() else { return };
        let wait = self.wait_for(&self.drives[drive]);
        let device = Handle::open(&self.drives[drive]);
        let mut drives = Drives::new(vec![device], wait).with_buffers(memory());
        let back = Comeback::read(&mut drives, 0);
        // One that has no label, or another pool's, is none of this pool's.
        let (Ok(back), false) = (back, self.rig.is_off()) else {
            return;
        };
        self.forget_handles(drive);
        let device = Handle::open(&self.drives[drive]);
        if let Some(node) = &mut self.node {
            node.bring(device);
            self.order(Order::Readmit, Manage::ReadmitDrive(Box::new(back)));
        }
    }

    /// A drive that works, and that the pool has durably left out.
    fn left_out(&self) -> Option<usize> {
        let pool = Pool::read(&self.media())?;
        let seats = self.seats();
        let out = |drive: &usize| {
            let known = seats.iter().any(|seat| seat.drive.0 == *drive);
            known && self.is_out(*drive, &seats) && !pool.serves(*drive)
        };
        let mut drives = 0..self.drives.len();
        drives.find(|&drive| {
            out(&drive) && self.rests(drive) && !self.members.doubted.contains(&drive)
        })
    }

    /// Whether a drive works and has nothing left to do. A node lets go of no other: it would wait for the answers
    /// for ever.
    fn rests(&self, drive: usize) -> bool {
        let drive = self.drives[drive].borrow();
        !drive.is_silent() && drive.is_idle()
    }

    fn is_out(&self, drive: usize, seats: &[Seat]) -> bool {
        !seats
            .iter()
            .any(|seat| seat.drive.0 == drive && seat.in_service())
    }

    /// From here on the engine has nothing to ask of the member that a drive was.
    fn forget_handles(&mut self, drive: usize) {
        let seats = self.seats();
        let were = seats.iter().enumerate();
        let were = were.filter(|(_, seat)| seat.drive.0 == drive && !seat.in_service());
        let were: Vec<usize> = were.map(|(member, _)| member).collect();
        if let Some(node) = &mut self.node {
            were.into_iter().for_each(|member| node.forget(member));
        }
    }

    /// Takes a drive out.
    pub(crate) fn remove_drive(&mut self, pick: u64) {
        let Some(member) = pick.checked_rem(self.seats().len() as u64) else {
            return;
        };
        let member = member as usize;
        self.load.excuses.fewer = true;
        self.order(Order::Remove(member), Manage::RemoveDrive { member });
    }

    /// Wants another amount kept for repair.
    pub(crate) fn keep(&mut self, reserve: Reserve) {
        self.members.reserves.push(reserve);
        self.order(Order::Reserve(reserve), Manage::SetReserve { reserve });
    }

    /// Wants a volume to stop, or not to, when a copy is missing.
    pub(crate) fn set_stops(&mut self, volume: usize, stops: bool) {
        // What its cache is refused hosts would hear of as a cache that has failed.
        if self.caches.has(volume) {
            return;
        }
        let Some(number) = self.volumes.number(volume) else {
            return;
        };
        // What a stop says is known of one order at a time.
        let changes = |order: &Order| matches!(order, Order::Stops(other, _) if *other == volume);
        if self.volumes.awaits_any(changes) {
            return;
        }
        let known = self.members.stops.entry(super::volumes::name(volume));
        known.or_insert_with(|| vec![false]).push(stops);
        if stops {
            self.load.excuses.stops.insert(volume);
        }
        let what = Manage::SetStops {
            volume: number,
            stops,
        };
        self.order(Order::Stops(volume, stops), what);
    }

    /// What was ordered of members is done.
    pub(crate) fn members_ordered(&mut self, order: Order) {
        match order {
            Order::Reserve(reserve) => self.members.reserves = vec![reserve],
            Order::Stops(volume, stops) => {
                let name = super::volumes::name(volume);
                self.members.stops.insert(name, vec![stops]);
                if !stops && !self.volumes.awaits(Order::Stops(volume, true)) {
                    self.load.excuses.stops.remove(&volume);
                }
            }
            _ => {}
        }
    }

    /// Whether an order that has to do with members may be refused for this reason.
    pub(crate) fn may_refuse_members(&self, order: Order, error: &IoError) -> bool {
        let text = error.to_string();
        if order == Order::Readmit {
            // It was removed, or added anew meanwhile; or it fails once more.
            return text.contains("cannot take part again") || text.contains("on its way back");
        }
        if error.kind() != ErrorKind::InvalidRequest {
            return false;
        }
        match order {
            Order::Remove(member) => {
                let wishes = || self.plan.wishes.iter().map(|wish| Facts::of(wish.layout));
                let copies = usize::from(self.plan.shape.log_copies);
                let most = wishes().map(|facts| facts.width.max(facts.losses + 1));
                let most = most.fold(copies, usize::max);
                let seats = self.seats();
                let others = seats.iter().enumerate();
                let others =
                    others.filter(|(at, seat)| *at != member && seat.state == MemberState::Active);
                // One that has just been added may have come too late.
                let late = usize::from(self.volumes.awaits_drive());
                let others = others.count().saturating_sub(late);
                let needed = text.contains("add one first") && others < most;
                let passed = text.contains("of which nothing has a copy");
                needed || passed && wishes().any(|facts| facts.raw)
            }
            Order::Reserve(reserve) => {
                matches!(reserve, Reserve::Drives(_)) && text.contains("would leave nothing")
            }
            Order::Stops(volume, _) => {
                let single = Facts::of(self.volumes.wish(volume).layout).losses == 0;
                text.contains("still")
                    || text.contains("there is no volume")
                    || single && text.contains("has no copies")
            }
            _ => false,
        }
    }

    /// After an import: terms grow, and no record of the ring has been let go of.
    pub(crate) fn check_terms(&mut self) -> Result<(), String> {
        if self.load.excuses.rotten {
            return Ok(());
        }
        let rooted = check_order(&self.media()).map_err(|why| format!("audit: {why}"))?;
        if let Some((term, _)) = rooted {
            let before = std::mem::replace(&mut self.members.term, term);
            if term <= before {
                return Err(format!(
                    "audit: an import of term {term} came after one of {before}"
                ));
            }
        }
        Ok(())
    }

    /// The pool has settled: what must be so of what its drives hold.
    pub(crate) fn audit(&mut self) -> Result<(), String> {
        // Of drives that hang at this very moment nothing can be looked at.
        let can_look = self.drives.iter().any(|drive| !drive.borrow().is_silent());
        if self.load.excuses.rotten || !can_look {
            return Ok(());
        }
        let engine = self.node.as_ref().map(|node| node.engine());
        let audited = engine.map_or(Ok(None), |engine| engine.audit(&self.media()));
        let Some(found) = audited.map_err(|why| format!("audit: {why}"))? else {
            return Ok(());
        };
        self.check_used(&found)?;
        self.check_wishes(&found)?;
        self.check_stopped()?;
        if self.plan.has_orders() {
            self.pull(&found.pool);
        }
        Ok(())
    }

    /// What the engine takes for free is, and what is free it knows of.
    fn check_used(&self, found: &Found) -> Result<(), String> {
        let engine = self.node.as_ref().map(|node| node.engine());
        if engine.is_some_and(Subject::is_rebuilding) || !self.volumes.is_idle() {
            // Columns that are being filled are in no table yet, nor is space of a volume that is being
            // made or grown.
            return Ok(());
        }
        let used = found.used_extents().into_iter().zip(self.seats());
        for (member, (used, seat)) in used.enumerate() {
            let stays = seat.state == MemberState::Active;
            if let Some(used) = used.filter(|&used| stays && used != seat.used) {
                return Err(format!(
                    "leaked: of member {member}, {} extents are taken, and {used} are in use",
                    seat.used
                ));
            }
        }
        Ok(())
    }

    /// What was wished, and acknowledged, is what is written.
    fn check_wishes(&mut self, found: &Found) -> Result<(), String> {
        let kept = found.pool.root.reserve.wish;
        let reserves = &mut self.members.reserves;
        if !reserves.contains(&kept) {
            return Err(format!(
                "{kept:?} is kept for repair, not one of {reserves:?}"
            ));
        }
        if !self
            .volumes
            .awaits_any(|order| matches!(order, Order::Reserve(_)))
        {
            *reserves = vec![kept];
        }
        for (name, stops) in found.stops() {
            let known = self.members.stops.entry(name.clone());
            let known = known.or_insert_with(|| vec![false]);
            if !known.contains(&stops) {
                return Err(format!(
                    "volume {name} stops: {stops}, not one of {known:?}"
                ));
            }
            if !self
                .volumes
                .awaits_any(|order| matches!(order, Order::Stops(..)))
            {
                *known = vec![stops];
            }
        }
        Ok(())
    }

    /// A volume that is to stop when a copy is missing has, if there are fewer drives than it needs;
    /// and has not, if all have always been there.
    fn check_stopped(&self) -> Result<(), String> {
        let seats = self.seats();
        let serving = seats.iter().filter(|seat| seat.in_service()).count();
        let fewer = self.load.excuses.lost || self.load.excuses.fewer;
        for known in self.known() {
            let Some(width) = self.volumes.width_of(&known.name) else {
                continue;
            };
            let must = known.stops && serving < width;
            let may = known.stops && fewer;
            if must && !known.stopped || known.stopped && !may {
                return Err(format!(
                    "{known:?} needs {width} drives, and there are {serving}"
                ));
            }
        }
        Ok(())
    }

    /// Drives that were taken out are pulled, some of them.
    fn pull(&mut self, pool: &Pool) {
        let seats = self.seats();
        for drive in 0..self.drives.len() {
            let known = seats.iter().any(|seat| seat.drive.0 == drive);
            let out = known && self.is_out(drive, &seats) && !pool.serves(drive);
            if out && self.rests(drive) && self.chance.happens(300) {
                self.say(|| format!("drive {drive} is pulled"));
                self.forget_handles(drive);
                self.drives[drive].borrow_mut().die();
                self.members.pulled.insert(drive);
            }
        }
    }

    fn is_leaving(&self) -> bool {
        let seats = self.seats();
        seats.iter().any(|seat| seat.state == MemberState::Leaving)
    }

    /// In the end drives that are to leave have left, if the others have room for what they hold.
    pub(crate) fn check_left(&mut self) -> Result<(), String> {
        if !self.is_leaving() {
            return Ok(());
        }
        let until = self.rig.now() + super::world::LEAVE_TIMEOUT;
        self.until("drives are emptied", |w| {
            !w.is_leaving() || w.rig.now() > until
        })?;
        if self.is_leaving() && !self.plan.overcommitted && !self.load.excuses.lost {
            let seats = self.seats();
            return Err(format!("never: drives that are to leave do not: {seats:?}"));
        }
        Ok(())
    }

    /// Whether the engine says that nothing lacks a copy, every drive that it counts on works, and it
    /// knows that what it says of them is durable: before that, those that have gone might go on
    /// without the others, and it must not.
    fn is_whole(&self) -> bool {
        let idle = |drive: &Shared| drive.borrow().is_idle() || drive.borrow().is_hung();
        if !self.drives.iter().all(idle) {
            return false;
        }
        let states = self.seats().into_iter().map(|seat| seat.state);
        let rooted = Pool::read(&self.media());
        let known = rooted.is_some_and(|pool| {
            let members = pool.root.members.iter();
            members.map(|member| member.state).eq(states)
        });
        let engine = self.node.as_ref().map(|node| node.engine());
        let works = |seat: &Seat| !self.drives[seat.drive.0].borrow().is_silent();
        let mut serving = self.seats().into_iter().filter(|seat| seat.in_service());
        engine.is_some_and(Subject::is_whole) && known && serving.all(|seat| works(&seat))
    }

    /// Once nothing lacks a copy, whatever was lost before, one more loss takes nothing along.
    pub(crate) fn lose_another(&mut self) -> Result<(), String> {
        let lies = !self.members.doubted.is_empty();
        if lies || !self.plan.loses_drives() || self.plan.tolerance() == 0 {
            return Ok(());
        }
        let until = self.rig.now() + super::world::LEAVE_TIMEOUT;
        self.until("nothing lacks a copy", |w| {
            w.is_whole() || w.rig.now() > until
        })?;
        if !self.is_whole() {
            return Ok(());
        }
        // A crash just after a lost drive is back may leave logs with fewer copies than they had. Where volumes survive a
        // loss, they want them again; where none does, nothing tells how many there were.
        let engine = self.node.as_ref().map(|node| node.engine());
        if engine.is_none_or(|engine| engine.log_copies() <= self.plan.tolerance()) {
            return Ok(());
        }
        // It is the last.
        self.plan.casualties.clear();
        // What it says is looked at first.
        self.settle()?;
        let seats = self.seats();
        let serving: Vec<usize> = seats
            .iter()
            .filter(|seat| seat.in_service())
            .map(|seat| seat.drive.0)
            .collect();
        if !self.is_whole() || serving.len() < 2 {
            return Ok(());
        }
        let drive = self.chance.pick(&serving);
        self.say(|| format!("nothing lacks a copy, and drive {drive} dies"));
        self.lose_drive(drive);
        self.check_all("everything is read after another loss")
    }

    /// Whether the engine has stopped.
    pub(crate) fn has_stopped(&self) -> bool {
        let engine = self.node.as_ref().map(|node| node.engine());
        engine.is_some_and(|engine| engine.stopped().is_some())
    }

    /// Whether damage here could not be told from a crash.
    fn is_last_batch(&self, drive: usize, page: u64) -> bool {
        let media = self.media();
        let pool = Pool::read(&media);
        // A power cut may take back the one that is on its way: then the one before it is the last.
        let flying = !self.drives[drive].borrow().is_idle();
        let count = 1 + usize::from(flying);
        let last = pool.map_or(Vec::new(), |pool| pool.last_batches(&media, count));
        last.into_iter()
            .any(|(on, from, to)| on == drive && (from..to).contains(&page))
    }

    /// Whether rot leaves this alone where nothing has a second copy: what cannot be told from a crash, and in most
    /// worlds the map's log, without which no pool goes on.
    pub(crate) fn is_spared(&self, drive: usize, page: u64) -> bool {
        let in_map_log = || {
            let pool = Pool::read(&self.media());
            pool.is_some_and(|pool| pool.is_in_map_log(drive, page))
        };
        let spares_log = self.plan.shape.pool.as_u128() >> 70 & 3 != 0;
        spares_log && in_map_log() || self.is_last_batch(drive, page)
    }
}
