//! Which volumes of a world cache a device, and what befalls that.

use std::time::Duration;

use ashlar_block::BlockSize;
use ashlar_cache::Mode;
use ashlar_store::{Grain, Layout};

use super::{HEAD, is_always_newest};
use crate::chance::Chance;
use crate::engine::layouts::{Facts, SLOT};
use crate::engine::plan::{Fate, Plan, Spread, Wish};
use crate::engine::profile::Profile;

/// Keeps this apart from what else is drawn from a pool's number.
const CACHES: u64 = 0x6361_6368;
/// Most granules of a device, and least: what the mark replaces, and then some.
const MOST: u64 = 1500;
const LEAST: u64 = HEAD + 2 * SLOT;

/// How a volume caches a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheWish {
    pub(crate) mode: Mode,
    /// Bytes that may be cached.
    pub(crate) bytes: u64,
    /// Of the device.
    pub(crate) sectors: BlockSize,
    /// Of a thousand runs of granules of the device, those that hold something already.
    pub(crate) filled: u32,
    /// Of a thousand answers of the device, those that come late, behind others.
    pub(crate) late: u32,
}

/// What befalls a device that a volume caches, or its cache.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CacheFate {
    /// The device stops answering for a while.
    Stall(Duration),
    /// Of most of what it is asked for it says that it cannot now; a flush that fails loses what it had.
    Short(Duration),
    /// The device is gone, until the node fails.
    Die,
    /// A sector cannot be read until it is written.
    Spoil { pick: u64 },
    /// An operator has everything written back.
    Flush,
    /// An operator keeps a range out of the cache.
    Exclude { first: u64, count: u64 },
    /// And lets it in again.
    Include,
    /// An operator deletes the volume, and has another one cache the device.
    Again,
    /// An operator gives up what only the cache has.
    GiveUp,
}

impl CacheFate {
    /// Whether it is the device that it befalls.
    pub(crate) const fn is_of_the_device(self) -> bool {
        matches!(
            self,
            Self::Stall(_) | Self::Short(_) | Self::Die | Self::Spoil { .. }
        )
    }
}

impl Plan {
    /// Has volumes cache devices, in some worlds; not drawn from the chance that everything else is drawn from, so that
    /// older seeds without any stay what they were.
    pub(crate) fn draw_caches(&mut self, profile: &Profile) {
        let seed = (self.shape.pool.as_u128() >> 64) as u64;
        let mut chance = Chance::new(seed ^ CACHES).aside();
        // What rots there has no second copy: a cache without its header, or its bits, is none.
        if !chance.happens(profile.caches) || self.is_rotten() {
            return;
        }
        let frail = self.frail();
        // In a full pool one volume at least is to give back space, when everything is given up.
        let first = usize::from(self.overcommitted);
        let mut more = 0;
        for volume in first..self.wishes.len() {
            let is_raw = Facts::of(self.wishes[volume].layout).raw;
            if is_raw || frail.contains(&volume) || chance.happens(300) {
                continue;
            }
            let wish = &mut self.wishes[volume];
            make_cache(wish, &mut chance);
            more += wish.of_pool(wish.granules) * 4096 + 3 * self.shape.sizes.segment_bytes();
            self.draw_cache_fates(volume, &mut chance);
            self.draw_agains(volume, profile, &mut chance);
        }
        if !self.overcommitted {
            self.make_room_for(more);
        }
        self.fates.sort_by_key(|(at, _)| *at);
    }

    /// An operator has another volume cache the device.
    fn draw_agains(&mut self, volume: usize, profile: &Profile, chance: &mut Chance) {
        if profile.agains > 0 {
            for _ in 0..chance.between(1, profile.agains) {
                let at = chance.below(self.habits.commands);
                let what = CacheFate::Again;
                self.fates.push((at, Fate::Cache { volume, what }));
            }
        }
    }

    fn draw_cache_fates(&mut self, volume: usize, chance: &mut Chance) {
        let commands = self.habits.commands;
        let granules = self.wishes[volume].granules;
        for _ in 0..chance.below(7) {
            let at = chance.below(commands);
            let what = match chance.below(14) {
                0 | 1 => CacheFate::Stall(chance.time(Duration::from_secs(2))),
                2 => CacheFate::Stall(chance.time(Duration::from_secs(40))),
                3..=5 => {
                    let most = Duration::from_secs(chance.pick(&[1, 3, 30]));
                    CacheFate::Short(chance.time(most))
                }
                6 => CacheFate::Die,
                7 => CacheFate::Spoil {
                    pick: chance.below(1 << 20),
                },
                8 | 9 => CacheFate::Flush,
                10 => CacheFate::Exclude {
                    first: chance.below(granules),
                    count: chance.between(1, 64),
                },
                11 => CacheFate::Include,
                12 => CacheFate::Again,
                _ if volume > 0 => CacheFate::GiveUp,
                _ => CacheFate::Again,
            };
            self.fates.push((at, Fate::Cache { volume, what }));
            if matches!(what, CacheFate::Die) {
                // A daemon finds it again when it is started.
                let back = at + chance.pick(&[0, 5, 40]);
                self.fates.push((
                    back,
                    Fate::Crash {
                        power: chance.happens(300),
                    },
                ));
            }
        }
        let mode = self.wishes[volume].cache.map(|wish| wish.mode);
        if mode.is_some_and(is_always_newest) {
            self.draw_losses(volume, chance);
        }
        // A cache flushes its device after seconds: hosts are there for as long, and flush, too.
        if chance.happens(500) {
            self.habits.pause = Duration::from_millis(chance.pick(&[5, 30]));
            self.habits.flushes = self.habits.flushes.max(chance.pick(&[0, 100, 300]));
        }
    }
}

impl Plan {
    /// What hosts have written around a cache is lost with flushes that fail, of theirs and others; and perhaps the node
    /// fails before a host was told.
    fn draw_losses(&mut self, volume: usize, chance: &mut Chance) {
        for _ in 0..chance.below(6) {
            let at = chance.below(self.habits.commands);
            let most = Duration::from_millis(chance.pick(&[3, 30, 300]));
            let what = CacheFate::Short(chance.time(most));
            self.fates.push((at, Fate::Cache { volume, what }));
            if chance.happens(500) {
                let what = CacheFate::Flush;
                self.fates.push((at + 1, Fate::Cache { volume, what }));
            }
            if chance.happens(300) {
                let power = chance.happens(300);
                let soon = at + chance.pick(&[3, 6, 20]);
                self.fates.push((soon, Fate::Crash { power }));
            }
        }
    }
}

fn make_cache(wish: &mut Wish, chance: &mut Chance) {
    let losses = Facts::of(wish.layout).losses as u8;
    wish.layout = Layout::Mirror { copies: losses + 1 };
    wish.grain = Some(Grain::K8);
    wish.granules = wish.granules.clamp(LEAST, MOST);
    wish.most = wish.granules;
    wish.spread = Spread::NONE;
    wish.hot = None;
    let part = chance.pick(&[1, 2, 4, 8]);
    wish.cache = Some(CacheWish {
        mode: chance.pick(&[
            Mode::WriteBack,
            Mode::WriteBack,
            Mode::WriteBack,
            Mode::WriteThrough,
            Mode::WriteAround,
        ]),
        bytes: (wish.granules / part).max(1) * 4096,
        sectors: chance.pick(&[BlockSize::B512, BlockSize::B4096]),
        filled: chance.pick(&[0, 300, 1000]),
        late: chance.pick(&[0, 50, 500, 800]),
    });
}
