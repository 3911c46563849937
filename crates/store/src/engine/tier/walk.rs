//! Moves between the homes of a volume, as jobs of destage's rounds: a slot is locked, read where it is, written
//! to a fresh home, flushed, and only then does the map say so. What hosts write meanwhile waits for the lock, or
//! is in the ring and newer than what moves.
//!
//! Who leaves the mirror is found by a clock: its hand goes round the volume, takes what is cold, and halves the
//! heat of all else. Moves rest among hosts, as other walks do; promotions have a tenth of what hosts move.

use std::ops::Range;
use std::time::Duration;

use ashlar_block::Moment;

use super::{Around, HOT, SlotKey, Tiers};
use crate::engine::class::Class;
use crate::engine::invariant::invariant;
use crate::engine::map::{LeafView, leaf_id};
use crate::engine::rebuild::pace::rested;
use crate::format::PageId;
use crate::sizes::LEAF_GRANULES;

/// Slots, or leaves of nothing, that the hand passes in one turn.
const LOOKS: usize = 2048;
/// After so many times round nothing is to be found: what is hot has been halved to nothing by then.
const LAPS: u8 = 6;
/// And the hand rests.
const FRUITLESS: Duration = Duration::from_secs(1);

/// Moves of a volume's slots in a round.
pub(in crate::engine) struct Moves {
    pub(in crate::engine) volume: u32,
    /// Bytes that may move yet.
    budget: u64,
    /// Looks that the hand has left.
    looks: Range<usize>,
}

/// A slot that is to go to a home of another class.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Move {
    pub(in crate::engine) key: SlotKey,
    pub(in crate::engine) to: Class,
}

/// What the hand has come to.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Found {
    /// A slot that leaves.
    Cold(Move),
    /// A leaf that is to be read first.
    OnDisk(PageId),
    /// There is nothing to do now.
    Nothing,
    /// It has looked at enough for a turn: there is more.
    Enough,
}

impl Moves {
    /// With so many bytes left.
    pub(in crate::engine) fn of(volume: u32, budget: u64) -> Self {
        Self {
            volume,
            budget,
            looks: 0..LOOKS,
        }
    }

    /// Bytes that may move yet.
    pub(in crate::engine) fn budget(&self) -> u64 {
        self.budget
    }
}

impl Tiers {
    /// Whether slots are on their way between homes.
    pub(in crate::engine) fn are_moving(&self) -> bool {
        self.began.is_some()
    }

    /// When moves that rest go on.
    pub(in crate::engine) fn deadline(&self, now: Moment) -> Option<Moment> {
        let at = self.rests_until;
        (at > now && self.has_moves()).then_some(at)
    }

    fn has_moves(&self) -> bool {
        let mut tiers = self.of.values();
        tiers.any(|tier| tier.is_demoting || !tier.wishes.is_empty())
    }

    /// Whether slots are to be moved, and moves do not rest.
    pub(in crate::engine) fn want_moves(&mut self, around: &Around<'_>) -> bool {
        if self.of.is_empty() {
            return false;
        }
        for volume in self.volumes() {
            self.admission_check(volume, around.homes());
        }
        self.has_moves() && around.base.now >= self.rests_until
    }

    /// Volumes that have tiers.
    pub(in crate::engine) fn volumes(&self) -> Vec<u32> {
        self.of.keys().copied().collect()
    }

    /// Slots move from now on.
    pub(in crate::engine) fn round_begins(&mut self, now: Moment) {
        self.began = Some(now);
    }

    /// The round is over; whether there is more to move.
    pub(in crate::engine) fn round_ended(&mut self, now: Moment, hosts_are_here: bool) -> bool {
        let has_more = self.has_moves();
        for tier in self.of.values_mut() {
            tier.leaving = 0;
        }
        if let Some(began) = self.began.take()
            && hosts_are_here
        {
            self.rests_until = rested(now, began, true);
        }
        has_more
    }

    /// A slot has moved from one home to another.
    pub(in crate::engine) fn moved(&mut self, volume: u32, way: Way, around: &Around<'_>) {
        let bytes = around.map.grain(volume).bytes();
        let is_hot = |home| around.space.is_hot_home(home);
        let (was_hot, is_hot) = (is_hot(way.from), is_hot(way.to));
        self.tally(volume, |tally| match (was_hot, is_hot) {
            (false, true) => tally.promoted_bytes += bytes,
            (true, false) => tally.demoted_bytes += bytes,
            _ => {}
        });
    }

    /// The next slot that is to be promoted.
    pub(in crate::engine) fn next_promotion(
        &mut self,
        moves: &Moves,
        around: &Around<'_>,
    ) -> Option<Move> {
        let volume = moves.volume;
        let bytes = around.map.grain(volume).bytes();
        while moves.budget >= bytes
            && self.has_hot_room(volume, around.homes())
            && let Some(slot) = self.next_wish(volume, bytes)
        {
            let key = SlotKey { volume, slot };
            let is_wanted = around.map.heat(key).reads() >= HOT;
            let hot = around.volumes.hot_class(volume);
            let Some(to) = hot.filter(|_| is_wanted) else {
                continue;
            };
            if around.space.spare_slots(to) == 0 {
                self.want_room(volume);
                continue;
            }
            return Some(Move { key, to });
        }
        None
    }

    /// A slot is on its way to the mirror.
    pub(in crate::engine) fn promotes(&mut self, moves: &mut Moves, bytes: u64) {
        moves.budget -= bytes;
        if let Some(tier) = self.of.get_mut(&moves.volume) {
            tier.credit -= bytes;
        }
    }

    /// The next slot that is read often, if so many bytes may be promoted.
    fn next_wish(&mut self, volume: u32, bytes: u64) -> Option<u64> {
        let tier = self.of.get_mut(&volume)?;
        let may = tier.credit >= bytes;
        may.then(|| tier.wishes.pop_front()).flatten()
    }

    /// Moves the hand on to the next slot that is cold.
    pub(in crate::engine) fn next_demotion(
        &mut self,
        moves: &mut Moves,
        around: &mut Around<'_>,
    ) -> Found {
        let volume = moves.volume;
        let grain = around.map.grain(volume);
        let Some(all) = around.volumes.class_of(volume) else {
            invariant!(around.base, "volume {volume} has a tier, but no homes");
            return Found::Nothing;
        };
        let entry = around.volumes.get(&volume);
        let end = entry.map_or(0, |entry| entry.granules);
        while moves.looks.next().is_some() {
            self.admission_check(volume, around.homes());
            let room = moves.budget >= grain.bytes() && around.space.spare_slots(all) > 0;
            let Some(tier) = self.of.get_mut(&volume) else {
                invariant!(around.base, "volume {volume} has no tier to be relieved");
                return Found::Nothing;
            };
            if !tier.is_demoting || !room {
                return Found::Nothing;
            }
            if tier.hand >= end {
                (tier.hand, tier.laps) = (0, tier.laps + 1);
                if tier.laps > LAPS {
                    tier.laps = 0;
                    self.rests_until = around.base.now + FRUITLESS;
                    return Found::Nothing;
                }
                continue;
            }
            let leaf = tier.hand / LEAF_GRANULES;
            match around.map.leaf(volume, leaf) {
                LeafView::OnDisk => return Found::OnDisk(leaf_id(volume, leaf)),
                LeafView::Absent => tier.hand = (leaf + 1) * LEAF_GRANULES,
                LeafView::Loaded(_) => {
                    let slot = grain.slot_of(tier.hand);
                    tier.hand = grain.first(slot + 1);
                    let key = SlotKey { volume, slot };
                    if is_cold(key, around) {
                        return Found::Cold(Move { key, to: all });
                    }
                }
            }
        }
        Found::Enough
    }

    /// A slot is on its way out of the mirror.
    pub(in crate::engine) fn demotes(&mut self, moves: &mut Moves, bytes: u64) {
        moves.budget -= bytes;
        if let Some(tier) = self.of.get_mut(&moves.volume) {
            (tier.leaving, tier.laps) = (tier.leaving + 1, 0);
        }
    }
}

/// The hand has come to a slot: whether it is to leave the mirror. What is hot cools.
fn is_cold(key: SlotKey, around: &mut Around<'_>) -> bool {
    let home = around.map.location(key.volume, key.slot).unwrap_or(0);
    let leaves = around.space.is_hot_home(home) && around.map.heat(key).is_cold();
    if !leaves {
        around.map.cool(key);
    }
    leaves
}

/// From one home to another.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Way {
    pub(in crate::engine) from: u32,
    pub(in crate::engine) to: u32,
}
