//! Space that is kept for repair: users' homes are never put there, so that after the loss of a drive
//! what it held finds room on the others. It is not a place but an amount, spread over the drives by
//! their size: each then has its share of what another loses.
//!
//! A loss *spends* it: what the lost drive would have given to the pool is no longer kept, or the
//! pool would promise less than before although everything has been repaired. Until the repair has
//! taken its extents they stay out of users' reach. A drive that is added brings it back.

use ashlar_block::{ErrorKind, IoError};

use crate::engine::rebuild::Rebuild;
use crate::engine::space::Space;
use crate::engine::volumes::VolumeTable;
use crate::format::{RepairReserve, Reserve, Root, VolumeState};
use crate::{HotTier, Layout};

/// What makes use of the space that there is.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Users<'a> {
    pub(in crate::engine) volumes: &'a VolumeTable,
    pub(in crate::engine) rebuild: &'a Rebuild,
}

/// What is kept, by drive.
#[derive(Default)]
pub(crate) struct Kept {
    /// As roots say it.
    wish: RepairReserve,
    /// Extents of each member, for repair alone.
    extents: Vec<u32>,
}

impl Kept {
    /// What the root says of it.
    pub(in crate::engine) fn wish(&self) -> RepairReserve {
        self.wish
    }

    pub(crate) fn new(root: &Root) -> Self {
        Self {
            wish: root.reserve,
            extents: Vec::new(),
        }
    }
}

impl Space {
    /// Extents of a drive that users' homes may not take: those of the pool's own map, and those
    /// kept for repair.
    pub(in crate::engine) fn kept_extents(&self, drive: usize) -> u32 {
        self.map_extents(drive) + self.reserved_extents(drive)
    }

    /// Extents of a drive that only the pool's own map may take. What it will take as soon as there is
    /// a volume is among them from the beginning: no volume is promised it.
    pub(in crate::engine) fn map_extents(&self, drive: usize) -> u32 {
        let segment = self.sizes().segment_extents();
        let has = self.metadata.columns_on(drive) * segment;
        let all = self.drives.extents(drive) / 64 + 3 * segment;
        all.saturating_sub(has).max(self.least_map_extents())
    }

    /// Extents of a drive that the map may take only in order to move: else it could not leave a drive
    /// that is lost or to be emptied.
    pub(in crate::engine) fn least_map_extents(&self) -> u32 {
        2 * self.sizes().segment_extents()
    }

    /// Extents of a drive that are kept for repair.
    pub(in crate::engine) fn reserved_extents(&self, drive: usize) -> u32 {
        self.upkeep.kept().extents.get(drive).copied().unwrap_or(0)
    }

    /// Extents of the drives that stay, largest first.
    pub(in crate::engine) fn sizes_of_staying(&self) -> Vec<u32> {
        let members = self.drives.members().iter().enumerate();
        let staying = members.filter(|(drive, _)| self.drives.stays(*drive as u16));
        let mut sizes: Vec<u32> = staying.map(|(_, member)| member.extents).collect();
        sizes.sort_unstable_by_key(|&size| u32::MAX - size);
        sizes
    }

    /// Bytes kept for repair, of all drives.
    pub(in crate::engine) fn reserve_bytes(&self) -> u64 {
        let extents = self
            .upkeep
            .kept()
            .extents
            .iter()
            .map(|&extents| u64::from(extents));
        extents.sum::<u64>() * self.sizes().extent_bytes()
    }

    /// Another amount is to be kept; whatever was spent is forgotten.
    pub(in crate::engine) fn set_reserve(
        &mut self,
        reserve: Reserve,
        of: Users<'_>,
    ) -> Result<(), IoError> {
        let sizes = self.sizes_of_staying();
        let all: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
        let too_much = match reserve {
            Reserve::None | Reserve::Auto => false,
            Reserve::Drives(drives) => drives as usize >= sizes.len(),
            Reserve::Extents(extents) => u64::from(extents) >= all,
        };
        if too_much {
            return Err(IoError::new(
                ErrorKind::InvalidRequest,
                format!("that reserve would leave nothing of {} drives", sizes.len()),
            ));
        }
        self.upkeep.kept_mut().wish = RepairReserve {
            wish: reserve,
            spent: 0,
        };
        self.spread_reserve(of);
        Ok(())
    }

    /// A drive was lost: what it would have given is no longer kept.
    pub(in crate::engine) fn spend_reserve(&mut self, extents: u32, of: Users<'_>) {
        let spent = &mut self.upkeep.kept_mut().wish.spent;
        *spent = spent.saturating_add(extents);
        self.spread_reserve(of);
    }

    /// A drive was added.
    pub(in crate::engine) fn restore_reserve(&mut self, extents: u32, of: Users<'_>) {
        let spent = &mut self.upkeep.kept_mut().wish.spent;
        *spent = spent.saturating_sub(extents);
        self.spread_reserve(of);
    }

    /// Whether there is a drive beside those that a stripe or all copies take: else nothing that is
    /// kept could ever be used. Without volumes yet, for two copies.
    pub(in crate::engine) fn reserve_can_serve(&self, volumes: &VolumeTable) -> bool {
        let staying = self.sizes_of_staying().len();
        let widths = widths(volumes);
        widths.first().map_or(2, |&narrowest| narrowest) < staying
    }

    /// Whether some volume takes all the drives there are: after a loss it goes on with narrower
    /// stripes, or fewer copies, whatever is kept.
    pub(in crate::engine) fn has_full_width(&self, volumes: &VolumeTable) -> bool {
        let staying = self.sizes_of_staying().len();
        widths(volumes)
            .last()
            .is_some_and(|&widest| widest >= staying)
    }

    /// Works out anew what each drive keeps: drives or volumes have come or gone.
    pub(in crate::engine) fn spread_reserve(&mut self, of: Users<'_>) {
        let sizes = self.sizes_of_staying();
        let first = |count: usize| sizes.iter().take(count).map(|&size| u64::from(size)).sum();
        let target: u64 = match self.upkeep.kept().wish.wish {
            Reserve::None => 0,
            Reserve::Auto if self.reserve_can_serve(of.volumes) => first(1),
            Reserve::Auto => 0,
            Reserve::Drives(drives) => first(drives as usize),
            Reserve::Extents(extents) => u64::from(extents),
        };
        let spent = u64::from(self.upkeep.kept().wish.spent).min(target);
        let owed = if spent > 0 {
            self.owed_extents(of.rebuild)
        } else {
            0
        };
        let kept = target - spent + owed.min(spent);
        let all: u64 = first(sizes.len());
        // Columns are taken whole, and a few at a time are one too many for a drive.
        let column = u64::from(self.sizes().segment_extents());
        let share = |drive: usize| {
            let size = u64::from(self.drives.extents(drive));
            if kept == 0 || !self.drives.stays(drive as u16) {
                return 0;
            }
            let share = (size * kept).div_ceil(all.max(1)).next_multiple_of(column);
            (share + column).min(size) as u32
        };
        self.upkeep.kept_mut().extents = (0..self.drives.count()).map(share).collect();
    }

    /// Extents that a repair will take for homes: until it has begun.
    fn owed_extents(&self, rebuild: &Rebuild) -> u64 {
        let staying = self.sizes_of_staying().len();
        let owed = |id: u32| {
            let found = self.segments.get(id)?;
            let columns = found.columns.iter();
            let there = columns.filter(|copy| self.drives.stays(copy.drive)).count();
            let lacks = there < found.wanted_columns() && there < staying;
            let waits = lacks && !rebuild.is_joining(id) && self.is_readable(id);
            waits.then(|| u64::from(found.shape.extents(self.sizes())))
        };
        let ids = self.segments.ids().into_iter();
        ids.filter_map(owed).sum()
    }
}

/// Columns of the volumes that survive losses, each width once.
fn widths(volumes: &VolumeTable) -> Vec<usize> {
    let live = volumes.values();
    let live = live.filter(|entry| entry.state == VolumeState::Live);
    let layouts = live.flat_map(|entry| {
        let hot = entry.hot.map(HotTier::layout);
        std::iter::once(entry.layout).chain(hot)
    });
    let redundant = layouts.filter(|layout| layout.survives() > 0);
    let mut widths: Vec<usize> = redundant.map(Layout::drives).collect();
    widths.sort_unstable();
    widths.dedup();
    widths
}
