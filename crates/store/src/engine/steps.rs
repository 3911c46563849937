//! Steps of parts: each is handed what it may use, and what follows from it for others is done here.
//!
//! A part knows none of those that it is not handed: its step returns what has become due, and this file, which knows
//! all of them, says who does it.

use std::ops::Range;

use ashlar_block::{ErrorKind, IoBuffer, IoError};

use super::access::locks::SlotKey;
use super::checkpoint::{self, Checkpoint, Step, Wishes};
use super::class::Class;
use super::invariant::invariant;
use super::journal::tails::Tails;
use super::map::load::{Asked, Load, Loader};
use super::rebuild::AT_A_TIME;
use super::root_budget::{Budget, Refusal, Wanted};
use super::roots::{self, Healing, Purpose, Roots, Said, Written};
use super::space::{location, segment_and_slot, segment_and_unit};
use super::state::Retired;
use super::tier::walk::{Found, Move, Moves, Way};
use super::tier::{self, Tiers};
use super::{Engine, Waiter};
use crate::format::{LogId, PageId, Root};
use crate::manage::Managed;
use crate::membership::Membership;
use crate::{Canary, Layout};

/// Checkpoints.
impl Engine {
    /// Where the logs would begin by a root of this moment.
    pub(super) fn tails(&self) -> Tails<'_> {
        Tails {
            hold: self.replica_hold(),
            ..self.tails_without_replicas()
        }
    }

    /// The same if replicas need nothing of the logs.
    fn tails_without_replicas(&self) -> Tails<'_> {
        Tails {
            identity: &self.identity,
            journal: &self.journal,
            logs: &self.logs,
            map: &self.map,
            hold: u64::MAX,
        }
    }

    /// Whether records of the ring keep the map log from letting go of what it soon should.
    pub(super) fn ring_holds_map(&self) -> bool {
        self.tails_without_replicas().ring_holds_map()
    }

    fn checkpoint(&mut self) -> (&mut Checkpoint, checkpoint::Around<'_>) {
        let copies = self.log_copies();
        let around = checkpoint::Around {
            now: self.now,
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
            hold: self.replica_hold(),
            is_draining: self.waiting.is_draining(),
            is_healing: self.roots.is_healing(),
            renewal: self.renewal_due(),
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
            scrub: self.scrub_at(),
        }
    }

    /// The root of a checkpoint whose pages are flushed.
    pub(super) fn checkpoint_root(&mut self) -> Root {
        let hold = self.replica_hold();
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
            self.give_extents_of(copy, extents);
            // Pages that found no room to move to may find it now.
            self.want_renewal();
        }
        self.part_renewed();
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
                        self,
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
            self.out.managed.push((id, Ok(Managed::Done)));
        }
    }

    fn has_drained(&self) -> bool {
        let quiet = self.replica_hold() == u64::MAX && self.journal.is_quiet();
        quiet
            && self.waiting.writes().is_empty()
            && self.waiting.clears().is_empty()
            && self.raw.is_idle()
            && self.logs.is_all_home()
            && self.destage_is_idle()
            && self.map.dirty_pages() == 0
            && !self.map.has_dirty_tables()
            && self.checkpoint.is_done_to(self.tails().now())
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
                    scrub: self.scrub_at(),
                };
                self.roots.next(purpose, said)
            }
        };
        let mut around = roots::Around {
            now: self.now,
            identity: &self.identity,
            base: &mut self.base,
            space: &mut self.space,
            logs: &mut self.logs,
        };
        self.roots.write(root, purpose, &mut around);
    }

    fn hand(&mut self, membership: Option<Membership>) {
        self.out.membership = membership.or(self.out.membership.take());
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
            self.out.managed.push((id, Ok(Managed::Done)));
        }
        if purpose == Purpose::Checkpoint {
            self.checkpoint_rooted();
            self.look_for_healing();
        }
        self.advance_roots();
        self.publish_durable();
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
        (layout, granules): (Layout, u64),
        volume: u32,
        planes: u32,
    ) -> Result<(), IoError> {
        let wanted = Wanted {
            layout,
            granules,
            volume: Some(volume),
        };
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

/// Tiers.
impl Engine {
    fn tiers(&mut self) -> (&mut Tiers, tier::Around<'_>) {
        let around = tier::Around {
            now: self.now,
            base: &mut self.base,
            volumes: &self.volumes,
            space: &mut self.space,
            map: &mut self.map,
        };
        (&mut self.tiers, around)
    }

    /// A fresh hot home for a slot whose small writes leave the ring, if its tier takes it.
    pub(super) fn take_hot(&mut self, key: SlotKey) -> Option<u32> {
        let (tiers, mut around) = self.tiers();
        tiers.take_hot(key, &mut around)
    }

    /// The hot home for these slots of a write that covers them, if they are to go there.
    pub(super) fn hot_class_for(&mut self, volume: u32, slots: Range<u64>) -> Option<Class> {
        let (tiers, around) = self.tiers();
        tiers.hot_class_for(volume, slots, &around)
    }

    /// Space for hot homes that found too little.
    pub(super) fn provision_tiers(&mut self) {
        let (tiers, mut around) = self.tiers();
        for change in tiers.provision(&mut around) {
            self.journal.stage_first(change);
        }
    }

    /// A host's write is let in.
    pub(super) fn slots_written(&mut self, volume: u32, granules: Range<u64>) {
        let (tiers, mut around) = self.tiers();
        tiers.written(volume, granules, &mut around);
    }

    /// A host reads a volume's homes.
    pub(super) fn slots_read(&mut self, volume: u32, read: tier::Read<'_>) {
        let (tiers, mut around) = self.tiers();
        tiers.read(volume, read, &mut around);
    }

    /// A slot has moved from one home to another.
    pub(super) fn slot_moved(&mut self, volume: u32, way: Way) {
        let (tiers, around) = self.tiers();
        tiers.moved(volume, way, &around);
    }

    /// Whether slots are on their way between homes, or have just left one: both homes are in use then.
    pub fn is_moving(&self) -> bool {
        let left = |what: &Retired| matches!(what, Retired::Slot(_));
        self.tiers.are_moving() || self.access.retires(left)
    }

    /// Whether slots may be moved now.
    pub(super) fn may_move(&mut self) -> bool {
        let (tiers, around) = self.tiers();
        if !tiers.want_moves(&around) {
            return false;
        }
        let asked =
            self.waiting.is_draining() || self.roots.is_healing() || self.logs.has_many_terms();
        let is_full = self.logs.is_map_busy() || self.is_short_of_memory();
        !asked && !is_full
    }

    /// The slots that move in this round.
    pub(super) fn collect_moves(&mut self) {
        let mut budget = AT_A_TIME;
        for volume in self.tiers.volumes() {
            let mut moves = Moves::of(volume, budget);
            self.promote_some(&mut moves);
            self.demote_some(&mut moves);
            budget = moves.budget();
        }
        if budget < AT_A_TIME {
            self.tiers.round_begins(self.now);
        }
    }

    /// The round is over.
    pub(super) fn moves_ended(&mut self) {
        let hosts_are_here = self.hosts_are_here();
        self.base.again |= self.tiers.round_ended(self.now, hosts_are_here);
    }

    fn promote_some(&mut self, moves: &mut Moves) {
        let bytes = self.map.grain(moves.volume).bytes();
        while let Some(next) = self.next_promotion(moves) {
            if self.collect_move(next) {
                self.tiers.promotes(moves, bytes);
            }
        }
    }

    fn next_promotion(&mut self, moves: &Moves) -> Option<Move> {
        let (tiers, around) = self.tiers();
        tiers.next_promotion(moves, &around)
    }

    fn demote_some(&mut self, moves: &mut Moves) {
        let bytes = self.map.grain(moves.volume).bytes();
        loop {
            let (tiers, mut around) = self.tiers();
            match tiers.next_demotion(moves, &mut around) {
                Found::Cold(next) => {
                    if self.collect_move(next) {
                        self.tiers.demotes(moves, bytes);
                    }
                }
                Found::OnDisk(leaf) => return self.load(leaf, Waiter::Tier),
                Found::Nothing => return,
                Found::Enough => break,
            }
        }
        self.base.again = true;
    }

    /// Takes a slot along to a home of another class, unless it is there, or busy.
    fn collect_move(&mut self, what: Move) -> bool {
        let Move { key, to } = what;
        let home = self.map.location(key.volume, key.slot).unwrap_or(0);
        let segment = segment_and_slot(home).0;
        let is_there = self.space.segments.class(segment) == Some(to);
        if home == 0 || is_there || !self.space.is_readable(segment) {
            return false;
        }
        let is_locked = !self.identity.sings(Canary::MoveWithoutLock);
        if is_locked && !self.access.try_lock(key) {
            return false;
        }
        self.map.pin_slot(key);
        self.map.hold(self.map.leaf_of(key));
        let Some((segment, slot)) = self.space.take_slot(to) else {
            self.let_job_go(key, is_locked);
            return false;
        };
        if self.identity.sings(Canary::MoveFreesEarly) {
            self.access.retire(Retired::Slot(home));
            self.reclaim();
        }
        let way = Way {
            from: home,
            to: location(segment, slot),
        };
        self.collect_whole(key, way, is_locked);
        true
    }
}

/// Pages of the map that are read.
impl Engine {
    fn loader(&mut self) -> Loader<'_> {
        Loader {
            now: self.now,
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
                Waiter::Read(op) if self.base.failed.is_none() => self.plan_read(op),
                Waiter::Read(op) => self.fail_read(op),
                Waiter::Renew => self.renew_page(id),
                Waiter::ClearPage(op) => self.clear_page_loaded(op),
                // The others look again at every turn.
                _ => {}
            }
        }
    }
}
