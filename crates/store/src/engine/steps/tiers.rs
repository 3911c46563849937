//! Steps of tiers: where slots of volumes with two homes go, and moves between these.

use crate::Canary;
use crate::engine::access::locks::SlotKey;
use crate::engine::rebuild::AT_A_TIME;
use crate::engine::space::{location, segment_and_slot};
use crate::engine::state::Retired;
use crate::engine::tier::walk::{Found, Move, Moves, Way};
use crate::engine::tier::{self, Tiers};
use crate::engine::{Engine, Waiter};

impl Engine {
    fn tiers(&mut self) -> (&mut Tiers, tier::Around<'_>) {
        let around = tier::Around {
            base: &mut self.base,
            volumes: &self.volumes,
            space: &mut self.space,
            map: &mut self.map,
        };
        (&mut self.tiers, around)
    }

    /// A fresh hot home for a slot whose small writes leave the ring, if its tier takes it.
    pub(in crate::engine) fn take_hot(&mut self, key: SlotKey) -> Option<u32> {
        let (tiers, mut around) = self.tiers();
        tiers.take_hot(key, &mut around)
    }

    /// Space for hot homes that found too little.
    pub(in crate::engine) fn provision_tiers(&mut self) {
        let (tiers, mut around) = self.tiers();
        for change in tiers.provision(&mut around) {
            self.journal.stage_first(change);
        }
    }

    /// A host reads a volume's homes.
    pub(in crate::engine) fn slots_read(&mut self, volume: u32, read: tier::Read<'_>) {
        let (tiers, mut around) = self.tiers();
        tiers.read(volume, read, &mut around);
    }

    /// A slot has moved from one home to another.
    pub(in crate::engine) fn slot_moved(&mut self, volume: u32, way: Way) {
        let (tiers, around) = self.tiers();
        tiers.moved(volume, way, &around);
    }

    /// Whether slots are on their way between homes, or have just left one: both homes are in use then.
    pub fn is_moving(&self) -> bool {
        let left = |what: &Retired| matches!(what, Retired::Slot(_));
        self.tiers.are_moving() || self.access.retires(left)
    }

    /// Whether slots may be moved now.
    pub(in crate::engine) fn may_move(&mut self) -> bool {
        let (tiers, around) = self.tiers();
        if !tiers.want_moves(&around) {
            return false;
        }
        let asked =
            self.waiting.is_draining() || self.roots.is_healing() || self.logs.has_many_terms();
        let is_full = self.logs.is_map_busy() || self.base.is_short_of_memory(&self.logs);
        !asked && !is_full
    }

    /// The slots that move in this round.
    pub(in crate::engine) fn collect_moves(&mut self) {
        let mut budget = AT_A_TIME;
        for volume in self.tiers.volumes() {
            let mut moves = Moves::of(volume, budget);
            self.promote_some(&mut moves);
            self.demote_some(&mut moves);
            budget = moves.budget();
        }
        if budget < AT_A_TIME {
            self.tiers.round_begins(self.base.now);
        }
    }

    /// The round is over.
    pub(in crate::engine) fn moves_ended(&mut self) {
        let hosts_are_here = self.hosts_are_here();
        self.base.again |= self.tiers.round_ended(self.base.now, hosts_are_here);
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
