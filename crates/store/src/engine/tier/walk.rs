//! Moves between the homes of a volume, as jobs of destage's rounds: a slot is locked, read where it is, written
//! to a fresh home, flushed, and only then does the map say so. What hosts write meanwhile waits for the lock, or
//! is in the ring and newer than what moves.
//!
//! Who leaves the mirror is found by a clock: its hand goes round the volume, takes what is cold, and halves the
//! heat of all else. Moves rest among hosts, as other walks do; promotions have a tenth of what hosts move.

use std::time::Duration;

use ashlar_block::Moment;

use super::super::map::{LeafView, leaf_id};
use super::super::rebuild::AT_A_TIME;
use super::super::{Engine, Waiter};
use super::{HOT, SlotKey};
use crate::Canary;
use crate::engine::class::Class;
use crate::engine::invariant::invariant;
use crate::engine::pace::rested;
use crate::engine::space::{location, segment_and_slot};
use crate::engine::state::Retired;
use crate::sizes::LEAF_GRANULES;
/// Slots, or leaves of nothing, that the hand passes in one turn.
const LOOKS: usize = 2048;
/// After so many times round nothing is to be found: what is hot has been halved to nothing by then.
const LAPS: u8 = 6;
/// And the hand rests.
const FRUITLESS: Duration = Duration::from_secs(1);

impl Engine {
    /// Whether slots are on their way between homes, or have just left one: both homes are in use then.
    pub fn is_moving(&self) -> bool {
        let left = |what: &Retired| matches!(what, Retired::Slot(_));
        self.tiers.began.is_some() || self.access.retires(left)
    }

    /// When moves that rest go on.
    pub(in crate::engine) fn moves_deadline(&self) -> Option<Moment> {
        let at = self.tiers.rests_until;
        (at > self.now && self.has_moves()).then_some(at)
    }

    fn has_moves(&self) -> bool {
        let mut tiers = self.tiers.of.values();
        tiers.any(|tier| tier.is_demoting || !tier.wishes.is_empty())
    }

    /// Whether slots may be moved now.
    pub(in crate::engine) fn may_move(&mut self) -> bool {
        if self.tiers.of.is_empty() {
            return false;
        }
        for volume in self.tiers.of.keys().copied().collect::<Vec<_>>() {
            self.tier_admission_check(volume);
        }
        let asked = self.waiting.is_draining() || self.is_healing() || self.has_many_terms();
        let is_full = self.logs.is_map_busy() || self.is_short_of_memory();
        let rests = self.now < self.tiers.rests_until;
        self.has_moves() && !asked && !is_full && !rests
    }

    /// The slots that move in this round.
    pub(in crate::engine) fn collect_moves(&mut self) {
        let mut budget = AT_A_TIME;
        for volume in self.tiers.of.keys().copied().collect::<Vec<_>>() {
            self.promote_some(volume, &mut budget);
            self.demote_some(volume, &mut budget);
        }
        if budget < AT_A_TIME {
            self.tiers.began = Some(self.now);
        }
    }

    /// The round is over.
    pub(in crate::engine) fn moves_ended(&mut self) {
        self.again |= self.has_moves();
        for tier in self.tiers.of.values_mut() {
            tier.leaving = 0;
        }
        if let Some(began) = self.tiers.began.take()
            && self.hosts_are_here()
        {
            self.tiers.rests_until = rested(self.now, began, true);
        }
    }

    /// A slot has moved from one home to another.
    pub(in crate::engine) fn slot_moved(&mut self, volume: u32, from: u32, to: u32) {
        let bytes = self.map.grain(volume).bytes();
        let (was_hot, is_hot) = (self.is_hot_home(from), self.is_hot_home(to));
        self.tally(volume, |tally| match (was_hot, is_hot) {
            (false, true) => tally.promoted_bytes += bytes,
            (true, false) => tally.demoted_bytes += bytes,
            _ => {}
        });
    }

    fn promote_some(&mut self, volume: u32, budget: &mut u64) {
        let bytes = self.map.grain(volume).bytes();
        while *budget >= bytes
            && self.has_hot_room(volume)
            && let Some(slot) = self.next_wish(volume, bytes)
        {
            let key = SlotKey { volume, slot };
            let is_wanted = self.map.heat(key).reads() >= HOT;
            let Some(hot) = self.hot_class(volume).filter(|_| is_wanted) else {
                continue;
            };
            if self.spare_slots(hot) == 0 {
                if let Some(tier) = self.tiers.of.get_mut(&volume) {
                    tier.wants_room = true;
                }
                continue;
            }
            if self.collect_move(key, hot) {
                *budget -= bytes;
                if let Some(tier) = self.tiers.of.get_mut(&volume) {
                    tier.credit -= bytes;
                }
            }
        }
    }

    /// The next slot that is read often, if so many bytes may be promoted.
    fn next_wish(&mut self, volume: u32, bytes: u64) -> Option<u64> {
        let tier = self.tiers.of.get_mut(&volume)?;
        let may = tier.credit >= bytes;
        may.then(|| tier.wishes.pop_front()).flatten()
    }

    fn demote_some(&mut self, volume: u32, budget: &mut u64) {
        let bytes = self.map.grain(volume).bytes();
        let Some(all) = self.class_of(volume) else {
            return invariant!(self, "volume {volume} has a tier, but no homes");
        };
        let end = self.volumes.get(&volume).map_or(0, |entry| entry.granules);
        for _ in 0..LOOKS {
            self.tier_admission_check(volume);
            let room = *budget >= bytes && self.spare_slots(all) > 0;
            let Some(tier) = self.tiers.of.get_mut(&volume) else {
                return invariant!(self, "volume {volume} has no tier to be relieved");
            };
            if !tier.is_demoting || !room {
                return;
            }
            if tier.hand >= end {
                (tier.hand, tier.laps) = (0, tier.laps + 1);
                if tier.laps > LAPS {
                    tier.laps = 0;
                    self.tiers.rests_until = self.now + FRUITLESS;
                    return;
                }
                continue;
            }
            let leaf = tier.hand / LEAF_GRANULES;
            match self.map.leaf(volume, leaf) {
                LeafView::OnDisk => return self.load(leaf_id(volume, leaf), Waiter::Tier),
                LeafView::Absent => tier.hand = (leaf + 1) * LEAF_GRANULES,
                LeafView::Loaded(_) => {
                    let grain = self.map.grain(volume);
                    let slot = grain.slot_of(tier.hand);
                    tier.hand = grain.first(slot + 1);
                    if self.demote(SlotKey { volume, slot }, all) {
                        *budget -= bytes;
                    }
                }
            }
        }
        self.again = true;
    }

    /// The hand has come to a slot: takes it along if it is hot no more.
    fn demote(&mut self, key: SlotKey, all: Class) -> bool {
        let home = self.map.location(key.volume, key.slot).unwrap_or(0);
        if !self.is_hot_home(home) || !self.map.heat(key).is_cold() {
            self.map.cool(key);
            return false;
        }
        let moves = self.collect_move(key, all);
        if moves && let Some(tier) = self.tiers.of.get_mut(&key.volume) {
            (tier.leaving, tier.laps) = (tier.leaving + 1, 0);
        }
        moves
    }

    /// Takes a slot along to a home of another class, unless it is there, or busy.
    fn collect_move(&mut self, key: SlotKey, to: Class) -> bool {
        let home = self.map.location(key.volume, key.slot).unwrap_or(0);
        let segment = segment_and_slot(home).0;
        let is_there = self.segments.class(segment) == Some(to);
        if home == 0 || is_there || !self.is_readable(segment) {
            return false;
        }
        let is_locked = !self.identity.sings(Canary::MoveWithoutLock);
        if is_locked && !self.access.try_lock(key) {
            return false;
        }
        self.map.pin_slot(key);
        self.map.hold(self.map.leaf_of(key));
        let Some((segment, slot)) = self.take_slot(to) else {
            self.let_job_go(key, is_locked);
            return false;
        };
        if self.identity.sings(Canary::MoveFreesEarly) {
            self.access.retire(Retired::Slot(home));
            self.reclaim();
        }
        self.collect_whole(key, (home, location(segment, slot)), is_locked);
        true
    }
}
