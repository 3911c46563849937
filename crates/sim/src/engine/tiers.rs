//! Volumes of a world that have a hot home beside their others: on the same drives, or on faster ones that the
//! world gets for it.

use ashlar_store::format::DriveClass;
use ashlar_store::{HotTier, Layout, Share};

use super::layouts::Facts;
use super::plan::{Plan, Wish};
use super::profile::Profile;
use crate::chance::Chance;

/// Keeps this apart from what else is drawn from a pool's number.
const TIERS: u64 = 0x7469_6572;
/// Of a thousand worlds with tiers, those that have faster drives for them.
const ACROSS: u32 = 600;

impl Plan {
    /// Gives volumes hot homes, in some worlds; not drawn from the chance that everything else is drawn from, so
    /// that older seeds without any stay what they were.
    pub(crate) fn draw_tiers(&mut self, profile: &Profile) {
        let seed = (self.shape.pool.as_u128() >> 64) as u64;
        let mut chance = Chance::new(seed ^ TIERS).aside();
        if !chance.happens(profile.tiers) {
            return;
        }
        let wider = |wish: &Wish| Facts::of(wish.layout).losses + 1;
        let most = self.wishes.iter().map(wider).max().unwrap_or(1).min(4);
        // What is alone stays so: what rots there has no second copy, and that is its point.
        let can_grow = !self.overcommitted && !self.remembers && self.drives.len() > 1;
        if chance.happens(ACROSS) && can_grow {
            let size = self.drives[0];
            self.shape.fast = most;
            self.drives.extend(std::iter::repeat_n(size, most));
            self.shape.drives = self.drives.len();
        }
        let class = (self.shape.fast > 0).then_some(DriveClass::Nvme);
        let mut more = 0;
        for wish in &mut self.wishes {
            if self.shape.fast > 0 {
                wish.class = Some(DriveClass::Hdd);
            }
            let facts = Facts::of(wish.layout);
            if facts.raw || chance.happens(200) {
                continue;
            }
            wish.hot = Share::of_percent(chance.pick(&[5, 20, 20, 50, 90])).map(|share| HotTier {
                copies: (facts.losses + 1).min(4) as u8,
                class,
                share,
            });
            more += wish.most * 4096 + 3 * self.shape.sizes.segment_bytes();
        }
        if !self.overcommitted {
            self.make_room_for(more);
        }
    }

    /// What else was drawn since may have made a mirror of a volume: beside one a mirror makes no sense.
    pub(crate) fn trim_tiers(&mut self) {
        let across = self.shape.fast > 0;
        for wish in &mut self.wishes {
            let losses = Facts::of(wish.layout).losses;
            let is_mirror = matches!(wish.layout, Layout::Mirror { .. });
            let fits = |hot: &HotTier| usize::from(hot.copies) > losses && (across || !is_mirror);
            wish.hot = wish.hot.filter(fits);
        }
    }
}
