//! Volumes with two homes: a mirror for what is small and hot, and the volume's own layout for all else. The
//! map says where a slot is, and the segment there says how it lies, so a slot is in either.
//!
//! | what | goes |
//! |-|-|
//! | whole slots of a host's write | to the capacity; where the mirror is on faster drives, hot ones stay there |
//! | smaller writes, as they leave the ring | to the mirror while it has room; else only hot ones |
//! | slots that are read often | to the mirror, where it is on faster drives ([`walk`]) |
//! | slots that are cold | to the capacity, when the mirror fills up ([`walk`]) |
//!
//! Nothing counts on the mirror: a write is let in when the *capacity* has room for it, and what the mirror does
//! not take goes there. So a full mirror stops nothing, and how much of it is in use is a matter of speed only.
//!
//! The mirror's segments are one volume's alone: what is in use of them is what is hot.

pub(super) mod walk;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use ashlar_block::{IoError, Moment};

use super::access::locks::SlotKey;
use super::base::Base;
use super::class::Class;
use super::drives::Drives;
use super::journal::StagedChange;
use super::manage::refuse;
use super::map::{Map, Touch};
use super::space::{Space, location};
use super::volumes::VolumeTable;
use crate::format::{DriveClass, VolumeEntry, VolumeState};
use crate::manage::VolumePlan;
use crate::sizes::{GRANULE, Grain};
use crate::{Layout, Share};

/// From which part of its share on, in percent, a mirror gives cold slots up; and down to which.
const HIGH: u64 = 90;
const LOW: u64 = 80;
/// From so many writes, or reads, on a slot is hot.
const HOT: u8 = 2;
/// A request of so many granules is one of a scan, and says nothing of what is hot.
const SCAN: u64 = 64;
/// Slots that wait to be promoted.
const WISHES: usize = 64;
/// Of the bytes that hosts move, the part that is promoted at most.
const PROMOTED: u64 = 10;
/// What may be promoted at once after a while without promotions.
const CREDIT: u64 = 1 << 20;

/// What has happened to a tier since the import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierTally {
    /// Slots that hosts' reads have found at home, in the mirror or not.
    pub reads: u64,
    /// Of these, in the mirror.
    pub hits: u64,
    /// Bytes of slots that have moved to the mirror.
    pub promoted_bytes: u64,
    /// Bytes of slots that have moved from it.
    pub demoted_bytes: u64,
    /// Bytes that hosts have written.
    pub user_bytes: u64,
    /// Bytes that drives were given for it, in the ring and at home: all copies and parity, without the map.
    pub device_bytes: u64,
}

/// A volume's tier at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierStatus {
    /// How its hot home is laid out.
    pub layout: Layout,
    /// The drives that hold that; any, without one.
    pub class: Option<DriveClass>,
    /// How much of the volume may be there.
    pub share: Share,
    /// The same in bytes.
    pub limit_bytes: u64,
    /// Bytes that are there.
    pub hot_bytes: u64,
    /// Cold slots are leaving it.
    pub is_demoting: bool,
    /// What has happened since the import.
    pub tally: TierTally,
}

/// A volume's tier as the engine has it in memory.
#[derive(Default)]
struct Tier {
    /// It has been fuller than it may be, and gives cold slots up.
    is_demoting: bool,
    /// A slot has found no room, or may come, and there may be more room.
    wants_room: bool,
    /// Slots on their way out in this round.
    leaving: u64,
    /// The granule that the clock's hand has come to, and how often it has come round without a find.
    hand: u64,
    laps: u8,
    /// Slots that are read often.
    wishes: VecDeque<u64>,
    /// Bytes that may be promoted.
    credit: u64,
    tally: TierTally,
}

/// All volumes' tiers, and the moves between them.
#[derive(Default)]
pub(super) struct Tiers {
    of: BTreeMap<u32, Tier>,
    /// When the round of moves that is under way began.
    began: Option<Moment>,
    rests_until: Moment,
}

/// What tiers look at.
#[derive(Clone, Copy)]
pub(super) struct Homes<'a> {
    pub(super) volumes: &'a VolumeTable,
    pub(super) space: &'a Space,
}

impl Homes<'_> {
    /// Slots that a volume has in its hot home.
    fn hot_slots(self, volume: u32) -> u64 {
        let class = self.volumes.hot_class(volume);
        class.map_or(0, |class| self.space.segments.taken_slots(class))
    }

    /// Whether a volume's hot home is on faster drives than its others.
    fn is_across(self, volume: u32) -> bool {
        let (hot, all) = (
            self.volumes.hot_class(volume),
            self.volumes.class_of(volume),
        );
        let media = |class: Option<Class>| class.and_then(|class| class.media);
        match (media(hot), media(all)) {
            (Some(hot), Some(all)) => hot < all,
            _ => false,
        }
    }
}

/// What tiers may use.
pub(super) struct Around<'a> {
    pub(super) base: &'a mut Base,
    pub(super) volumes: &'a VolumeTable,
    pub(super) space: &'a mut Space,
    pub(super) map: &'a mut Map,
}

impl Around<'_> {
    fn homes(&self) -> Homes<'_> {
        Homes {
            volumes: self.volumes,
            space: self.space,
        }
    }
}

/// Slots of homes that a host's command is about.
pub(super) struct Read<'a> {
    pub(super) bytes: u64,
    /// Each with its home.
    pub(super) slots: &'a [(u64, u32)],
}

impl Tiers {
    /// Learns which volumes have tiers: one has come or gone.
    pub(super) fn know(&mut self, volumes: &VolumeTable) {
        let live = volumes.iter();
        let live =
            live.filter(|(_, entry)| entry.state == VolumeState::Live && entry.hot.is_some());
        let live: Vec<u32> = live.map(|(&number, _)| number).collect();
        self.of.retain(|number, _| live.contains(number));
        for number in live {
            self.of.entry(number).or_default();
        }
    }

    /// Whether a volume has a tier that is told of reads and writes.
    pub(super) fn has(&self, volume: u32) -> bool {
        !self.of.is_empty() && self.of.contains_key(&volume)
    }

    /// Begins to demote when a tier is too full, and ends when it is not any more.
    fn admission_check(&mut self, volume: u32, homes: Homes<'_>) {
        if let Some(tier) = self.of.get_mut(&volume) {
            let (slots, limit) = (homes.hot_slots(volume), homes.volumes.hot_limit(volume));
            let percent = slots.saturating_sub(tier.leaving) * 100;
            tier.is_demoting = match tier.is_demoting {
                true => percent > limit * LOW,
                false => percent >= limit * HIGH,
            };
        }
    }

    /// Whether a volume's tier is below where it begins to give slots up.
    fn has_hot_room(&mut self, volume: u32, homes: Homes<'_>) -> bool {
        self.admission_check(volume, homes);
        let tier = self.of.get(&volume);
        tier.is_some_and(|tier| !tier.is_demoting)
    }

    fn want_room(&mut self, volume: u32) {
        if let Some(tier) = self.of.get_mut(&volume) {
            tier.wants_room = true;
        }
    }

    /// A fresh hot home for a slot whose small writes leave the ring, if its tier takes it.
    pub(super) fn take_hot(&mut self, key: SlotKey, around: &mut Around<'_>) -> Option<u32> {
        if !self.of.contains_key(&key.volume) {
            return None;
        }
        let homes = around.homes();
        let takes = self.has_hot_room(key.volume, homes) || around.map.heat(key).writes() >= HOT;
        if !takes || homes.hot_slots(key.volume) >= homes.volumes.hot_limit(key.volume) {
            return None;
        }
        let class = homes.volumes.hot_class(key.volume)?;
        let found = around.space.take_slot(class);
        if found.is_none() {
            self.want_room(key.volume);
        }
        found.map(|(segment, slot)| location(segment, slot))
    }

    /// The hot home for these slots of a write that covers them, if they are to go there: hot ones, where that
    /// is on faster drives. On the same drives parity costs fewer bytes than a mirror.
    pub(super) fn hot_class_for(
        &mut self,
        volume: u32,
        slots: Range<u64>,
        around: &Around<'_>,
    ) -> Option<Class> {
        let homes = around.homes();
        if !self.of.contains_key(&volume) || !homes.is_across(volume) {
            return None;
        }
        let class = homes.volumes.hot_class(volume)?;
        let count = slots.end - slots.start;
        let few = count * class.grain.granules() < SCAN;
        let is_hot = |slot| {
            let key = SlotKey { volume, slot };
            let home = around.map.location(volume, slot).unwrap_or(0);
            around.space.is_hot_home(home) || around.map.heat(key).writes() >= HOT
        };
        if !few || !slots.clone().all(is_hot) {
            return None;
        }
        let fits = homes.hot_slots(volume) + count <= homes.volumes.hot_limit(volume);
        if fits && around.space.spare_slots(class) < count {
            self.want_room(volume);
            return None;
        }
        fits.then_some(class)
    }

    /// Space for hot homes that found too little, as far as their shares go: the records that make it.
    pub(super) fn provision(&mut self, around: &mut Around<'_>) -> Vec<StagedChange> {
        let wanting = self.of.iter_mut().filter(|(_, tier)| tier.wants_room);
        let mut made = Vec::new();
        for (&volume, tier) in wanting {
            let volumes = around.volumes;
            let (Some(class), Some(all)) = (volumes.hot_class(volume), volumes.class_of(volume))
            else {
                continue;
            };
            tier.wants_room = false;
            let space = &mut *around.space;
            let spare = space.spare_slots(class);
            let taken = space.segments.taken_slots(class);
            let enough = spare >= u64::from(space.sizes().slots(class.grain)) / 2
                || taken + spare >= volumes.hot_limit(volume);
            // The capacity has the first claim on what is left of the drives that it shares.
            let would_starve = all.media == class.media && space.growth(all) < 2;
            if !enough && !would_starve && !space.segments.is_coming(class) {
                made.extend(space.add_segment(class));
            }
        }
        made
    }

    /// A host's write is let in.
    pub(super) fn written(&mut self, volume: u32, granules: Range<u64>, around: &mut Around<'_>) {
        if !self.of.contains_key(&volume) {
            return;
        }
        let bytes = (granules.end - granules.start) * GRANULE as u64;
        let is_scan = granules.end - granules.start >= SCAN;
        self.tally(volume, |tally| tally.user_bytes += bytes);
        self.earn(volume, bytes);
        if is_scan {
            return;
        }
        let grain = around.map.grain(volume);
        let may_enter = !grain.divides(&granules) || around.homes().is_across(volume);
        if may_enter {
            self.want_room(volume);
        }
        for slot in grain.slots_of(granules) {
            around.map.warm(SlotKey { volume, slot }, Touch::Write);
        }
    }

    /// A host reads a volume's homes.
    pub(super) fn read(&mut self, volume: u32, read: Read<'_>, around: &mut Around<'_>) {
        let Read { bytes, slots } = read;
        let is_scan = bytes >= SCAN * GRANULE as u64;
        self.earn(volume, bytes);
        for &(slot, home) in slots {
            let is_hit = around.space.is_hot_home(home);
            self.tally(volume, |tally| {
                tally.reads += 1;
                tally.hits += u64::from(is_hit);
            });
            let key = SlotKey { volume, slot };
            if is_scan {
                continue;
            }
            around.map.warm(key, Touch::Read);
            let homes = around.homes();
            if !is_hit && around.map.heat(key).reads() >= HOT && homes.is_across(volume) {
                self.wish_for(key, homes);
            }
        }
    }

    /// Drives were given so many bytes for a volume.
    pub(super) fn spent_on(&mut self, volume: u32, bytes: u64) {
        self.tally(volume, |tally| tally.device_bytes += bytes);
    }

    fn tally(&mut self, volume: u32, count: impl FnOnce(&mut TierTally)) {
        if let Some(tier) = self.of.get_mut(&volume) {
            count(&mut tier.tally);
        }
    }

    fn earn(&mut self, volume: u32, bytes: u64) {
        if let Some(tier) = self.of.get_mut(&volume) {
            tier.credit = (tier.credit + bytes / PROMOTED).min(CREDIT);
        }
    }

    fn wish_for(&mut self, key: SlotKey, homes: Homes<'_>) {
        if !self.has_hot_room(key.volume, homes) {
            return;
        }
        if let Some(tier) = self.of.get_mut(&key.volume)
            && tier.wishes.len() < WISHES
            && !tier.wishes.contains(&key.slot)
        {
            tier.wishes.push_back(key.slot);
        }
    }

    /// A volume's tier as it is shown.
    pub(super) fn status(
        &self,
        volume: u32,
        entry: &VolumeEntry,
        homes: Homes<'_>,
    ) -> Option<TierStatus> {
        let hot = entry.hot?;
        let slot = entry.grain.bytes();
        let tier = self.of.get(&volume);
        Some(TierStatus {
            layout: hot.layout(),
            class: hot.class.or(entry.class),
            share: hot.share,
            limit_bytes: homes.volumes.hot_limit(volume) * slot,
            hot_bytes: homes.hot_slots(volume) * slot,
            is_demoting: tier.is_some_and(|tier| tier.is_demoting),
            tally: tier.map(|tier| tier.tally).unwrap_or_default(),
        })
    }
}

/// Whether a new volume may have the hot home that it wants, with its others on drives of this class.
pub(super) fn check_hot(
    plan: &VolumePlan,
    class: Option<DriveClass>,
    grain: Grain,
    drives: &Drives,
) -> Result<(), IoError> {
    let (Some(hot), layout) = (plan.hot, plan.layout) else {
        return Ok(());
    };
    let mirror = hot.layout();
    if let Layout::Stripe { .. } = layout {
        return Err(refuse(format!(
            "{layout} is passed through and has no hot home"
        )));
    }
    if plan.is_cache {
        return Err(refuse(
            "what a cache keeps is hot already: it has no hot home".to_owned(),
        ));
    }
    if !mirror.takes(grain) || !mirror.is_possible() {
        return Err(refuse(format!("hot home {mirror}: 1 to 4 copies")));
    }
    if mirror.survives() < layout.survives() {
        return Err(refuse(format!(
            "hot home {mirror} survives {} lost drives, {layout} {}: it would be the weaker part",
            mirror.survives(),
            layout.survives()
        )));
    }
    let all = class.or_else(|| drives.only_media());
    let wanted = hot.class.or(all);
    drives.check_layout(mirror, hot.class.or(class))?;
    let is_slower = wanted.zip(all).is_some_and(|(wanted, all)| wanted > all);
    let is_same = wanted == all;
    let is_mirror = matches!(layout, Layout::Mirror { .. });
    if is_slower || is_same && is_mirror {
        let name = |class: Option<DriveClass>| class.map_or("any".to_owned(), |c| c.to_string());
        return Err(refuse(format!(
            "hot home {mirror} on drives of class {} is no faster than {layout} on class {}",
            name(wanted),
            name(all)
        )));
    }
    Ok(())
}
