//! Steps of parts: each is handed what it may use, and what follows from it for others is done here.
//!
//! A part knows none of those that it is not handed: its step returns what has become due, and this file, which knows
//! all of them, says who does it.

mod commands;
mod commit;
mod destage;
mod walk;

use std::collections::BTreeSet;

use ashlar_block::{ErrorKind, IoBuffer, IoError};

use super::checkpoint::{self, Checkpoint, Step, Wishes};
use super::invariant::invariant;
use super::journal::tails::Tails;
use super::map::load::{Asked, Load, Loader};
use super::mending::{self, Made, Mending};
use super::parity::{For, Gathered, Wish};
use super::raw::{self, Raw};
use super::read::{self, Next, Reads};
use super::replica::{self, Replicas};
use super::reservations::reserving::Reserving;
use super::root_budget::{Budget, Refusal, Wanted};
use super::roots::{self, Healing, Purpose, Roots, Said, Written};
use super::salvage::Reader;
use super::space::{DriveByte, segment_and_slot, segment_and_unit};
use super::state::Retired;
use super::tier;
use super::upkeep::release;
use super::{Engine, Waiter};
use crate::format::{LogId, PageId, Root};
use crate::manage::{Manage, Managed};
use crate::membership::Membership;

/// Checkpoints.
impl Engine {
    /// Where the logs would begin by a root of this moment.
    pub(super) fn tails(&self) -> Tails<'_> {
        Tails {
            identity: &self.identity,
            journal: &self.journal,
            logs: &self.logs,
            map: &self.map,
            hold: self.replicas.hold(&self.identity),
        }
    }

    fn checkpoint(&mut self) -> (&mut Checkpoint, checkpoint::Around<'_>) {
        let copies = self.log_copies();
        let around = checkpoint::Around {
            identity: &self.identity,
            base: &mut self.base,
            space: &mut self.space,
            journal: &self.journal,
            logs: &mut self.logs,
            map: &mut self.map,
            access: &mut self.access,
            copies,
        };
        (&mut self.checkpoint, around)
    }

    /// Begins a checkpoint when it is time to.
    pub(super) fn advance_checkpoint(&mut self) {
        if self.checkpoint.is_under_way() || self.base.failed.is_some() {
            return;
        }
        let wishes = Wishes {
            hold: self.replicas.hold(&self.identity),
            is_draining: self.waiting.is_draining(),
            is_healing: self.roots.is_healing(),
            renewal: self.rebuild.renewal().due(),
        };
        let (checkpoint, mut around) = self.checkpoint();
        let step = checkpoint.begin(wishes, &mut around);
        self.checkpoint_stepped(step);
    }

    fn checkpoint_stepped(&mut self, step: Step) {
        if step == Step::RootIsDue {
            self.roots.checkpoint_is_due();
        }
    }

    pub(super) fn page_written(&mut self, id: PageId, drive: usize, result: Result<(), IoError>) {
        if let Err(error) = result {
            let error = IoError::with_source(ErrorKind::Media, format!("{id:?}"), error);
            self.drive_failed(drive, &error);
        }
        let (checkpoint, mut around) = self.checkpoint();
        checkpoint.page_written(id, &mut around);
    }

    pub(super) fn checkpoint_flushed(&mut self, drive: usize, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.drive_failed(drive, &error);
        }
        let step = self.checkpoint.flushed(&self.base);
        self.checkpoint_stepped(step);
    }

    /// The root of this moment.
    fn root(&self) -> Root {
        let tails = self.tails();
        let (map_sequence, tails) = (tails.map_sequence(), tails.now());
        Root {
            features: self.roots.features.wanted(),
            pool: self.identity.label().pool,
            generation: self.space.drives.generation(),
            term: self.space.drives.term(),
            next_sequence: self.journal.next_sequence(),
            map_sequence,
            members: self.space.drives.members().to_vec(),
            reserve: self.space.upkeep.kept().wish(),
            ring: self.logs.state(LogId::Ring, tails.ring),
            map: self.logs.state(LogId::Map, tails.map),
            meta: self.space.metadata.segments().to_vec(),
            tops: self.map.tops(),
            scrub: self.rebuild.scrub().at(),
        }
    }

    /// The root of a checkpoint whose pages are flushed.
    pub(super) fn checkpoint_root(&mut self) -> Root {
        let hold = self.replicas.hold(&self.identity);
        let (checkpoint, mut around) = self.checkpoint();
        checkpoint.root_begins(hold, &mut around);
        self.root()
    }

    /// The checkpoint's root is durable.
    pub(super) fn checkpoint_rooted(&mut self) {
        let (checkpoint, mut around) = self.checkpoint();
        let dropped = checkpoint.is_rooted(&mut around);
        for copy in dropped {
            let extents = self.identity.sizes().segment_extents();
            self.space.give_extents(copy, extents, self.base.now);
            // Pages that found no room to move to may find it now.
            self.want_renewal();
        }
        let renewal = self.rebuild.renewal_mut();
        renewal.part_is_done(self.base.now, &self.map);
    }

    /// Gives places back that the map has had for pages that are gone: what is left in their segments moves to others.
    pub(super) fn give_places_back(&mut self) {
        if self.map.is_renewing() || self.checkpoint.is_under_way() {
            return;
        }
        if self.space.give_places_back(&self.map) {
            self.checkpoint.look_for_emptied();
            self.want_renewal();
        }
    }

    /// Takes back what no reader uses any more.
    pub(super) fn reclaim(&mut self) {
        while let Some(free) = self.access.next_free() {
            match free {
                Retired::Slot(location) => {
                    let segment = segment_and_slot(location).0;
                    let is_there = self.space.free_slot(location);
                    invariant!(
                        self.base,
                        is_there,
                        "a slot of segment {segment} is free, which is not there"
                    );
                }
                Retired::Place(place) => {
                    let (segment, unit) = segment_and_unit(place);
                    let metadata = &mut self.space.metadata;
                    metadata.release(segment, unit);
                    self.checkpoint.place_freed(metadata.is_emptied(segment));
                }
                Retired::Log(log, at) => self.logs.free(log, at),
            }
        }
    }

    /// Answers those who asked for everything to be home.
    pub(super) fn answer_drained(&mut self) {
        if !self.waiting.is_draining() || !self.has_drained() {
            return;
        }
        for id in self.waiting.take_draining() {
            self.base.answer(id, Ok(Managed::Done));
        }
    }

    fn has_drained(&self) -> bool {
        let quiet = self.replicas.hold(&self.identity) == u64::MAX && self.journal.is_quiet();
        quiet
            && self.waiting.writes().queue().is_empty()
            && self.waiting.clears().is_empty()
            && self.raw.is_idle()
            && self.logs.is_all_home()
            && self.destage.is_idle()
            && self.map.dirty_pages() == 0
            && !self.map.has_dirty_tables()
            && self.checkpoint.is_done_to(self.tails().now())
    }
}

/// Slots that need a reservation.
impl Engine {
    pub(super) fn reserving(&mut self) -> Reserving<'_> {
        Reserving {
            base: &mut self.base,
            space: &mut self.space,
            volumes: &self.volumes,
            journal: &self.journal,
            logs: &self.logs,
            map: &mut self.map,
        }
    }
}

/// Hosts' reads.
impl Engine {
    /// A step of reads, and what follows from it.
    pub(super) fn read_step<T>(
        &mut self,
        step: impl FnOnce(&mut Reads, &mut read::Around<'_>) -> T,
    ) -> T {
        let mut around = read::Around {
            base: &mut self.base,
            identity: &self.identity,
            space: &mut self.space,
            volumes: &self.volumes,
            tiers: &self.tiers,
            logs: &mut self.logs,
            map: &mut self.map,
            access: &mut self.access,
            mending: &mut self.mending,
        };
        let found = step(self.waiting.reads_mut(), &mut around);
        while let Some(next) = self.waiting.reads_mut().take_next() {
            self.follow_read(next);
        }
        found
    }

    fn follow_read(&mut self, next: Next) {
        match next {
            Next::Load { page, op } => self.load(page, Waiter::Read(op)),
            Next::Gather(wish) => self.gather(wish),
            Next::Unlock(key) => self.unlock(key),
            Next::Tell {
                volume,
                bytes,
                slots,
            } => {
                let slots = &slots[..];
                self.slots_read(volume, tier::Read { bytes, slots });
            }
        }
    }

    /// A copy that was bad is written again.
    pub(super) fn repair_written(
        &mut self,
        repair: usize,
        drive: usize,
        result: Result<(), IoError>,
    ) {
        match result {
            Ok(()) => self.base.counters.repaired += 1,
            Err(error) => self.drive_failed(drive, &error),
        }
        if let Some(key) = self.mending.repair_written(repair, &mut self.base) {
            self.unlock(key);
        }
    }
}

/// What is made good.
impl Engine {
    fn mending(&mut self) -> (&mut Mending, mending::Around<'_>) {
        let around = mending::Around {
            base: &mut self.base,
            identity: &self.identity,
            space: &mut self.space,
            logs: &mut self.logs,
            map: &self.map,
            rebuild: &self.rebuild,
        };
        (&mut self.mending, around)
    }

    /// Begins to put a slot together; the one that wants it is told, perhaps before this returns.
    pub(super) fn gather(&mut self, wish: Wish) {
        self.mending.wish(wish);
        self.begin_gathers();
        self.hand_out_made();
    }

    fn begin_gathers(&mut self) {
        let (mending, mut around) = self.mending();
        mending.begin_gathers(&mut around);
    }

    /// Reads so many bytes of a drive for a reader.
    pub(super) fn read_strip(&mut self, reader: Reader, at: DriveByte, buffer: IoBuffer) {
        let (mending, mut around) = self.mending();
        mending.read_strip(reader, at, buffer, &mut around);
    }

    pub(super) fn strip_read(
        &mut self,
        reader: Reader,
        at: DriveByte,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        let (mending, mut around) = self.mending();
        mending.strip_read(reader, at, buffer, result, &mut around);
        self.hand_out_made();
    }

    pub(super) fn granule_salvaged(
        &mut self,
        id: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        let (mending, mut around) = self.mending();
        mending.granule_salvaged(id, buffer, result, &mut around);
        self.hand_out_made();
    }

    fn hand_out_made(&mut self) {
        while let Some(made) = self.mending.next_made() {
            match made {
                Made::Copy { job, copy, strip } => {
                    self.walk_step(|rebuild, _, around| {
                        rebuild.copy_read(job, copy, strip, around)
                    });
                }
                Made::Slot { who, found } => {
                    self.gathered(who, &found);
                    self.begin_gathers();
                }
            }
        }
    }

    fn gathered(&mut self, who: For, found: &Gathered) {
        match who {
            For::Read { op, at } => {
                self.read_step(|reads, around| reads.part_gathered(op, at, found, around));
            }
            _ if self.base.failed.is_some() => {}
            For::Destage { job } => {
                self.destage_step(|destage, around| destage.job_gathered(job, found, around));
            }
            For::Walk { job } => {
                self.walk_step(|rebuild, _, around| rebuild.slot_gathered(job, found, around));
            }
        }
    }
}

/// Copies of replicated volumes.
impl Engine {
    pub(super) fn saving(&mut self) -> (&mut Replicas, replica::Around<'_>) {
        let around = replica::Around {
            base: &mut self.base,
            identity: &self.identity,
            journal: &mut self.journal,
            logs: &self.logs,
        };
        (&mut self.replicas, around)
    }

    /// Obeys what has waited for what copies remember of others to be durable, and saves what is to be saved.
    pub(super) fn advance_replicas(&mut self) {
        for wish in self.replicas.take_growing() {
            let (volume, granules) = (wish.volume, wish.granules);
            self.manage(wish.id, Manage::ResizeVolume { volume, granules });
        }
        let is_draining = self.waiting.is_draining();
        let (replicas, mut around) = self.saving();
        replicas.advance(is_draining, &mut around);
    }
}

/// Pass-through volumes.
impl Engine {
    pub(super) fn raw(&mut self) -> (&mut Raw, raw::Around<'_>) {
        let around = raw::Around {
            base: &mut self.base,
            identity: &self.identity,
            space: &mut self.space,
            volumes: &mut self.volumes,
            journal: &mut self.journal,
            logs: &self.logs,
        };
        (&mut self.raw, around)
    }

    pub(super) fn raw_io_done(
        &mut self,
        io: raw::Io,
        drive: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        let result = result.map_err(|error| raw::of_drive(drive, error));
        if let Err(error) = &result
            && io.is_flush()
        {
            self.drive_failed(drive, error);
        }
        let (raw, mut around) = self.raw();
        let answer = raw::Answer {
            drive,
            buffer,
            result,
        };
        raw.io_done(io, answer, &mut around);
    }
}

/// Space that goes back to the drives.
impl Engine {
    /// Gives segments back that are empty.
    pub(super) fn advance_release(&mut self) {
        let mut around = release::Around {
            base: &mut self.base,
            identity: &self.identity,
            volumes: &self.volumes,
            rebuild: &self.rebuild,
            logs: &self.logs,
            journal: &mut self.journal,
        };
        self.space.advance_release(&mut around);
    }

    /// A segment's free entry is durable.
    pub(super) fn segment_released(&mut self, id: u32) {
        if self.space.segment_released(id, &mut self.base) && self.is_degraded() {
            // What found no room before may find it now.
            self.rebuild.want_columns(self.base.now);
            self.volumes
                .stops_admission_check(&self.space, &self.rebuild);
        }
    }

    /// A drive has discarded what it was told to, or could not.
    pub(super) fn discarded(&mut self, drive: usize, result: &Result<(), IoError>) {
        if let Err(error) = result
            && error.kind() == ErrorKind::Timeout
        {
            // What has not been answered may still be under way: nothing may be put there.
            self.drive_failed(drive, error);
        }
        for (id, what) in self.space.discarded(drive, result.is_ok()) {
            self.manage(id, what);
        }
        if self.space.upkeep.discards().none_wait() {
            // Repairs that found no room meanwhile have ended without it.
            self.look_for_repairs();
        }
        self.base.again = true;
    }
}

/// Roots.
impl Engine {
    /// Whether no root is written, and so nothing acknowledged, until the node has stored which drives are left: it would
    /// let in the others.
    pub fn waits_for_its_node(&self) -> bool {
        self.roots.wait_for_node(&self.identity, &self.space.drives)
    }

    /// Whether a drive may still be asked for something: one that was let go is, until that is durable.
    pub fn uses(&self, member: usize) -> bool {
        self.serves(member) || self.rebuild.returns().knows(member)
    }

    /// The same, but for one that is on its way back.
    pub(super) fn serves(&self, member: usize) -> bool {
        self.roots.serves(member, &self.space.drives)
    }

    /// Whether those that have gone would be let in without those that are left.
    pub(super) fn is_minority(&self) -> bool {
        self.roots.are_of_a_minority(&self.space.drives)
    }

    /// Writes the next root, if one is due and none is on its way.
    pub(super) fn advance_roots(&mut self) {
        if !self.roots.is_idle() {
            return;
        }
        if self.waits_for_its_node() {
            let next = self.roots.hand_next(&self.space.drives);
            return self.hand(next);
        }
        if let Some(purpose) = self.roots.take_due() {
            self.write_root(purpose);
        }
    }

    fn write_root(&mut self, purpose: Purpose) {
        let root = match purpose {
            Purpose::Checkpoint => {
                let (roots, mut healing) = self.healing();
                roots.heal_logs(&mut healing);
                self.checkpoint_root()
            }
            purpose => {
                let said = Said {
                    next_sequence: self.journal.next_sequence(),
                    members: self.space.drives.members(),
                    reserve: self.space.upkeep.kept().wish(),
                    scrub: self.rebuild.scrub().at(),
                };
                self.roots.next(purpose, said)
            }
        };
        let mut around = roots::Around {
            identity: &self.identity,
            base: &mut self.base,
            space: &mut self.space,
            logs: &mut self.logs,
        };
        self.roots.write(root, purpose, &mut around);
    }

    fn hand(&mut self, membership: Option<Membership>) {
        self.base.out.membership = membership.or(self.base.out.membership.take());
    }

    pub(super) fn root_written(&mut self, drive: usize, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.drive_failed(drive, &error);
        }
        if let Written::Durable(purpose) = self.roots.written(&mut self.base) {
            self.root_is_durable(purpose);
        }
    }

    fn root_is_durable(&mut self, purpose: Purpose) {
        // What drives are given that join.
        self.identity.set_features(self.roots.durable().features);
        self.logs.go_on();
        let membership = self.roots.hand_durable();
        self.hand(membership);
        for id in self.roots.take_done() {
            self.base.answer(id, Ok(Managed::Done));
        }
        if purpose == Purpose::Checkpoint {
            self.checkpoint_rooted();
            self.look_for_healing();
        }
        self.advance_roots();
        self.publish_durable();
    }

    /// Makes the volumes that have waited for copies of the logs; refuses them when no more can be made.
    pub(super) fn advance_log_copies(&mut self) {
        let moving = self.map.is_renewing() || self.roots.is_healing();
        let waits = self.roots.add_log_copies.is_waiting();
        if !waits || moving || self.space.metadata.is_leaving_pages() {
            return;
        }
        for (id, plan) in self.roots.add_log_copies.take_waiting(&self.volumes) {
            // What lacks copies finds no room for them, or nothing lacks any that a root would bring.
            let checked = self.roots.check_log_copies(&plan, &self.space);
            if let Err(error) = checked.and_then(|()| self.create_volume(id, plan)) {
                self.base.answer(id, Err(error));
            }
        }
    }

    fn healing(&mut self) -> (&mut Roots, Healing<'_>) {
        let copies = self.log_copies();
        let healing = Healing {
            space: &mut self.space,
            logs: &mut self.logs,
            copies,
        };
        (&mut self.roots, healing)
    }

    fn look_for_healing(&mut self) {
        let (roots, healing) = self.healing();
        roots.look_for_healing(&healing);
    }

    /// Logs and map get back the copies that they lack, at once: they are small, and the pool cannot
    /// go on without them.
    pub(super) fn heal(&mut self) {
        self.look_for_healing();
        self.want_renewal();
        self.checkpoint.look_for_emptied();
    }
}

/// The root's budget.
impl Engine {
    fn budget(&self) -> Budget<'_> {
        Budget {
            sizes: self.identity.sizes(),
            volumes: &self.volumes,
            replicas: &self.replicas,
            map: &self.map,
            metadata: &self.space.metadata,
            copies: self.log_copies(),
        }
    }

    /// Refuses a volume for which the root might have no room: a new one, or one with another size.
    pub(super) fn check_root_budget(&mut self, wanted: Wanted) -> Result<(), IoError> {
        let checked = self.budget().check(wanted);
        self.within_budget(checked)
    }

    /// The same of a volume that is to be a copy with so many pages of planes.
    pub(super) fn check_replica_budget(
        &mut self,
        wanted: Wanted,
        planes: u32,
    ) -> Result<(), IoError> {
        let checked = self.budget().check_replica(wanted, planes);
        self.within_budget(checked)
    }

    fn within_budget(&mut self, checked: Result<(), Refusal>) -> Result<(), IoError> {
        checked.map_err(|refusal| {
            if refusal.clears {
                self.checkpoint.clear_remains();
            }
            refusal.why
        })
    }

    /// Refuses what would have all pages move, to have so many copies, while they are still moving for another reason.
    pub(super) fn check_move_budget(&self, copies: usize) -> Result<(), IoError> {
        self.budget().check_move(copies)
    }
}

/// Pages of the map that are written elsewhere.
impl Engine {
    /// Pages of the map may lie where they shall not stay.
    pub(super) fn want_renewal(&mut self) {
        self.map.begin_renewal();
        self.base.again = true;
    }

    /// Takes up the next part when the one before is elsewhere.
    pub(super) fn advance_renewal(&mut self) {
        let renewal = self.rebuild.renewal();
        let busy = renewal.is_under_way() || self.checkpoint.is_under_way();
        let rests = renewal.rests(self.base.now) && self.hosts_are_here();
        if !self.map.is_renewing() || busy || rests {
            return;
        }
        let copies = self.log_copies();
        if self.space.close_short_metadata(&self.map, copies) {
            self.checkpoint.look_for_emptied();
        }
        let closed: BTreeSet<u32> = self.space.metadata.closed().collect();
        let found = self.map.look_through(&closed);
        // There is more to look at, or who waits for the end may go on.
        self.base.again = true;
        if found.is_empty() {
            return;
        }
        self.rebuild.renewal_mut().begin_part(self.base.now);
        for id in found {
            if id.level > 0 {
                self.map.touch_table(id);
            } else if self.map.is_loaded(id) {
                self.touch_page(id);
            } else {
                self.rebuild.renewal_mut().awaits_page();
                self.load(id, Waiter::Renew);
            }
        }
    }

    /// A page that was loaded in order to be written elsewhere.
    fn renew_page(&mut self, id: PageId) {
        self.rebuild.renewal_mut().page_is_here();
        self.touch_page(id);
        self.base.again = true;
    }

    fn touch_page(&mut self, id: PageId) {
        let sequence = self.tails().map_sequence();
        self.map.touch(id, sequence);
        self.rebuild.renewal_mut().touched(sequence);
    }
}

/// Pages of the map that are read.
impl Engine {
    fn loader(&mut self) -> Loader<'_> {
        Loader {
            identity: &self.identity,
            base: &mut self.base,
            space: &mut self.space,
            logs: &mut self.logs,
            map: &mut self.map,
        }
    }

    /// Reads a page of level 0; what waits goes on when it is here.
    pub(super) fn load(&mut self, id: PageId, waiter: Waiter) {
        if self.access.want_page(id, waiter) {
            // A second read could return when the page has long been changed and moved.
            let load = self.loader().read(id, 0);
            self.loaded(id, load);
        }
    }

    pub(super) fn page_read(
        &mut self,
        asked: Asked,
        buffer: Option<IoBuffer>,
        result: &Result<(), IoError>,
    ) {
        let load = self.loader().answered(asked, buffer, result);
        self.loaded(asked.id, load);
    }

    fn loaded(&mut self, id: PageId, load: Load) {
        if load == Load::OnItsWay {
            return;
        }
        for waiter in self.access.take_waiters(id) {
            match waiter {
                Waiter::Read(op) => self.read_step(|reads, around| reads.page_is_here(op, around)),
                Waiter::Renew => self.renew_page(id),
                Waiter::ClearPage(op) => self.waiting.commands().1.page_is_here(op),
                // The others look again at every turn.
                _ => {}
            }
        }
    }
}
