//! Which slots move between the homes of a volume in a round.

use super::{Around, Destage, Next};
use crate::Canary;
use crate::engine::Waiter;
use crate::engine::rebuild::AT_A_TIME;
use crate::engine::space::{location, segment_and_slot};
use crate::engine::state::Retired;
use crate::engine::tier::walk::{Found, Move, Moves, Way};

impl Destage {
    /// The slots that move in this round.
    pub(super) fn collect_moves(&mut self, around: &mut Around<'_>) {
        let mut budget = AT_A_TIME;
        for volume in around.tiers.volumes() {
            let mut moves = Moves::of(volume, budget);
            self.promote_some(&mut moves, around);
            self.demote_some(&mut moves, around);
            budget = moves.budget();
        }
        if budget < AT_A_TIME {
            around.tiers.round_begins(around.base.now);
        }
    }

    fn promote_some(&mut self, moves: &mut Moves, around: &mut Around<'_>) {
        let bytes = around.map.grain(moves.volume).bytes();
        while let Some(next) = around.next_promotion(moves) {
            if self.collect_move(next, around) {
                around.tiers.promotes(moves, bytes);
            }
        }
    }

    fn demote_some(&mut self, moves: &mut Moves, around: &mut Around<'_>) {
        let bytes = around.map.grain(moves.volume).bytes();
        loop {
            match around.next_demotion(moves) {
                Found::Cold(next) => {
                    if self.collect_move(next, around) {
                        around.tiers.demotes(moves, bytes);
                    }
                }
                Found::OnDisk(page) => {
                    let waiter = Waiter::Tier;
                    return self.next.push_back(Next::Load { page, waiter });
                }
                Found::Nothing => return,
                Found::Enough => break,
            }
        }
        around.base.again = true;
    }

    /// Takes a slot along to a home of another class, unless it is there, or busy.
    fn collect_move(&mut self, what: Move, around: &mut Around<'_>) -> bool {
        let Move { key, to } = what;
        let home = around.map.location(key.volume, key.slot).unwrap_or(0);
        let segment = segment_and_slot(home).0;
        let is_there = around.space.segments.class(segment) == Some(to);
        if home == 0 || is_there || !around.space.is_readable(segment) {
            return false;
        }
        let is_locked = !around.identity.sings(Canary::MoveWithoutLock);
        if is_locked && !around.access.try_lock(key) {
            return false;
        }
        around.map.pin_slot(key);
        let leaf = around.map.leaf_of(key);
        around.map.hold(leaf);
        let Some((segment, slot)) = around.space.take_slot(to) else {
            self.let_job_go(key, is_locked, around);
            return false;
        };
        if around.identity.sings(Canary::MoveFreesEarly) {
            around.access.retire(Retired::Slot(home));
        }
        let way = Way {
            from: home,
            to: location(segment, slot),
        };
        self.collect_whole(key, way, is_locked, around);
        true
    }
}

impl Around<'_> {
    /// Whether slots may be moved now.
    pub(super) fn may_move(&mut self) -> bool {
        let (tiers, around) = self.tiers();
        if !tiers.want_moves(&around) {
            return false;
        }
        !self.logs.is_map_busy() && !self.base.is_short_of_memory(self.logs)
    }

    fn next_promotion(&mut self, moves: &Moves) -> Option<Move> {
        let (tiers, around) = self.tiers();
        tiers.next_promotion(moves, &around)
    }

    fn next_demotion(&mut self, moves: &mut Moves) -> Found {
        let (tiers, mut around) = self.tiers();
        tiers.next_demotion(moves, &mut around)
    }
}
