//! What an operator is shown.

use std::time::Duration;

use uuid::Uuid;

use super::class::Class;
use super::map::LostBlocks;
use super::space::Space;
use super::volumes::VolumeTable;
use super::{Counters, DriveReplies, DriveWait, VolumeInfo};
use crate::Layout;
use crate::format::{DriveClass, Features, Label, Reserve};
use crate::sizes::Grain;

/// A drive of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    pub drive: Uuid,
    /// Its class; none if the drive was not here at the import.
    pub class: Option<DriveClass>,
    /// Whether it is in service.
    pub in_service: bool,
    /// It was left out, is here again, and gets what is newer.
    pub returning: bool,
    /// Why it is not, if it was left out since the import.
    pub reason: Option<String>,
    /// Bytes that the pool can use of it.
    pub bytes: u64,
    /// Of these, in use by logs, map and segments.
    pub used_bytes: u64,
    /// It is being emptied.
    pub leaving: bool,
    /// Logs, the map or segments still have something on it.
    pub holds: bool,
    /// So has some segment of a volume.
    pub holds_homes: bool,
    /// Copies on it that did not verify or could not be read, since the import.
    pub bad_copies: u64,
    /// How it answers.
    pub replies: DriveReplies,
    /// What it cannot do now.
    pub wait: Option<DriveWait>,
}

/// Space for the homes of one layout and grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeStatus {
    /// The layout, `mirror` or `parity`.
    pub layout: Layout,
    /// Size of its slots.
    pub grain: Grain,
    /// The class of drives that they are on; any, without one.
    pub class: Option<DriveClass>,
    /// The volume whose hot home they are.
    pub hot_of: Option<u32>,
    /// Bytes of volumes that have homes, counted once.
    pub used_bytes: u64,
    /// Bytes that can be written before another segment must be made, counted once.
    pub free_bytes: u64,
    /// Bytes that all the segments that could still be made would hold, counted once.
    pub growth_bytes: u64,
}

/// Pass-through space of volumes over all drives in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeStatus {
    /// Columns of such a volume: the drives that may be given more, at most 8.
    pub columns: u8,
    /// Bytes that pass-through volumes of any number of columns have taken.
    pub used_bytes: u64,
    /// Bytes of the largest such volume that could still be made.
    pub free_bytes: u64,
}

/// A pool at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Why the engine has stopped, if it has.
    pub failure: Option<String>,
    /// Nothing is acknowledged until the node has stored which drives are left.
    pub waits_for_node: bool,
    pub members: Vec<MemberStatus>,
    /// The number that the next drive gets; none while no number is free.
    pub next_member: Option<u16>,
    /// Its label, as a drive has it.
    pub label: Label,
    /// What of the format it uses, or has used, that a program must know to read it.
    pub features: Features,
    pub volumes: Vec<VolumeInfo>,
    /// Its space for homes: mirrors by copies, of their default grain; then each other layout and
    /// grain that a volume has had; and if none has had parity, the widest that the drives allow. What
    /// one grows by is the same space that others would.
    pub homes: Vec<HomeStatus>,
    /// Its pass-through space.
    pub stripes: StripeStatus,
    /// Copies of the logs and the map: volumes survive one loss less, whatever their layout.
    pub log_copies: u8,
    /// Bytes of all drives that only the pool's own map may take.
    pub kept_bytes: u64,
    /// What is kept for repair, as it was wished.
    pub reserve: Reserve,
    /// Bytes of all drives that only a repair may take.
    pub reserve_bytes: u64,
    /// Some drive is not taken by the narrowest volume, so that a repair would find one.
    pub reserve_can_serve: bool,
    /// Some volume takes all drives: after a loss it goes on with narrower stripes or fewer copies.
    pub full_width: bool,
    /// How long it is until a repair begins by itself, if one waits.
    pub repair_in: Option<Duration>,
    /// How full the data ring is, 0 to 1.
    pub ring_fill: f64,
    /// How full the map log is, 0 to 1.
    pub map_fill: f64,
    /// Copies are being made anew.
    pub rebuilding: bool,
    /// How far a rebuild or scrub has come, 0 to 1.
    pub walk: Option<f64>,
    /// Whether some log chunk, map page or segment lacks a copy.
    pub degraded: bool,
    /// Blocks of which the pool has no good copy, and knows it: errors until they are written.
    pub lost: Vec<LostBlocks>,
    /// What has happened since the import.
    pub counters: Counters,
}

impl Space {
    /// The kinds of homes that an operator is shown.
    pub(super) fn home_classes(&self, volumes: &VolumeTable) -> Vec<Class> {
        let drives = self.drives.usable_count();
        let mirrors = (1..=4).map(Class::mirror);
        let mut classes: Vec<Class> = mirrors
            .clone()
            .filter(|class| class.columns() <= drives)
            .collect();
        let had = self.segments.home_classes();
        // A mirror for which drives are missing goes on with fewer copies: its space is shown.
        classes.extend(had.filter(|class| {
            let is_plain = mirrors.clone().any(|mirror| mirror == *class);
            !is_plain || class.columns() > drives && volumes.have_one_of(*class)
        }));
        // Where volumes may lie that have no homes yet.
        let wanted = volumes.values().filter_map(Class::of_volume);
        for class in wanted.filter(|class| class.media.is_some()) {
            if !classes.contains(&class) {
                classes.push(class);
            }
        }
        let widest = Layout::Parity {
            data: drives.saturating_sub(1).min(4) as u8,
            parity: 1,
        };
        let no_parity = !classes.iter().any(|class| class.has_parity());
        if no_parity && widest.is_possible() {
            let grain =
                widest.default_grain_on(self.drives.only_media().is_some_and(DriveClass::seeks));
            classes.extend(Class::of(widest, grain));
        }
        classes
    }

    /// What is in use and free of one kind.
    pub(super) fn home_status(&self, class: Class) -> HomeStatus {
        let segments = self.segments.of_class(class);
        let slot = class.grain.bytes();
        // A new segment gives first what destage counts on.
        let owed = self.owed_slots(class) * slot;
        let growth = self.growth_in_all(class) * self.sizes().segment_bytes();
        let growth = growth.saturating_sub(owed);
        HomeStatus {
            layout: class.layout(),
            grain: class.grain,
            class: class.media,
            hot_of: class.hot_of,
            used_bytes: segments.map_or(0, |segments| segments.used()) * slot,
            free_bytes: self.spare_slots(class) * slot,
            growth_bytes: growth,
        }
    }

    /// The space of pass-through volumes, which take so many bytes.
    pub(super) fn stripe_status(&self, used_bytes: u64) -> StripeStatus {
        let staying = self.drives.usable_count();
        let columns = staying.min(8);
        let segments = self.raw_room(columns);
        StripeStatus {
            columns: columns as u8,
            used_bytes,
            free_bytes: segments * columns as u64 * self.sizes().segment_bytes(),
        }
    }
}
