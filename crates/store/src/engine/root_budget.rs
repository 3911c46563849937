//! How much map a pool's root can name. A page of level 2, for 32 GiB of a volume, has an entry in the
//! root, and so has every metadata segment that pages lie in. A root has 256 KiB, and a pool that has
//! outgrown its root could never write another. So volumes are made and enlarged only as far as the root
//! would do if every one of them were full, with everything else in it at its largest; then no write
//! of a host can bring the pool there. A pool that was beyond that before goes on; nothing is added to it.
//!
//! There is room for all pages to move once, as they do when a drive goes. What an operator orders while they
//! move is refused where that would not do ([`Budget::check_move`]). A second loss meanwhile cannot be: above
//! about 90 % of the limit really mapped, the places of both moves could outgrow the root.

use std::iter::Sum;
use std::ops::Add;

use ashlar_block::IoError;

use super::checkpoint::MOST_PAGES;
use super::manage::refuse;
use super::map::{ENTRY_SLOTS, Map, SEGMENTS, SLOTS, VOLUMES};
use super::map::{FANOUT, MAX_VOLUMES, SLOT_TABLES, VolumeTables, entry_place};
use super::metadata::Metadata;
use super::replica::Replicas;
use super::volumes::VolumeTable;
use crate::format::{MAX_MEMBERS, MAX_SEGMENTS, MAX_TERMS, Root, RootParts, VolumeEntry};
use crate::format::{PageId, VolumeState};
use crate::sizes::{GRANULE, Grain, LEAF_GRANULES, ROOT_BYTES, UNIT_GRANULES};
use crate::{Layout, Sizes};

/// Granules of a GiB.
const GIB: u64 = (1 << 30) / GRANULE as u64;
/// Most GiB of a volume.
const MOST_GIB: u64 = (1 << 33) / GIB;

/// Pages of a map, by level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pages {
    leaves: u64,
    tables: u64,
    tops: u64,
}

impl Pages {
    /// Those of a node with so many pages of level 0.
    fn of(leaves: u64) -> Self {
        Self {
            leaves,
            tables: leaves.div_ceil(FANOUT.into()),
            tops: leaves.div_ceil(u64::from(FANOUT).pow(2)),
        }
    }

    /// Those of a volume of so many granules.
    fn of_volume(granules: u64) -> Self {
        Self::of(granules.div_ceil(LEAF_GRANULES))
    }

    /// Those of the system tables of a pool that has all the segments and volumes it can number.
    fn of_system(sizes: &Sizes) -> Self {
        let pages = |table: u32, entries: u32| {
            let (last, _): (PageId, _) = entry_place(table, entries - 1);
            Self::of(u64::from(last.index) + 1)
        };
        let slot_tables = sizes.slots(Grain::K8).div_ceil(ENTRY_SLOTS);
        let slots = (0..slot_tables.min(SLOT_TABLES)).map(|_| pages(SLOTS, MAX_SEGMENTS));
        let others = [pages(SEGMENTS, MAX_SEGMENTS), pages(VOLUMES, MAX_VOLUMES)];
        slots.chain(others).sum()
    }

    /// Places that they take at most. While a checkpoint writes pages, the places that they leave are
    /// not free, nor those of the one before as long as a reader is there.
    fn places(self) -> u64 {
        let tables = self.tables + self.tops;
        let all = self.leaves + tables;
        all + all.min(2 * (MOST_PAGES as u64 + tables))
    }

    /// Bytes of the root that names them, with everything else at its largest, in a pool whose logs and
    /// map have so many copies.
    fn root_bytes(self, sizes: &Sizes, copies: usize) -> u64 {
        // After a drive has gone, all pages move, and where they were is named until the last has left.
        let meta = 2 * self.places().div_ceil(units(sizes));
        let tops = self.tops;
        root_bytes(sizes, copies, Named { meta, tops })
    }
}

impl Add for Pages {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            leaves: self.leaves + other.leaves,
            tables: self.tables + other.tables,
            tops: self.tops + other.tops,
        }
    }
}

impl Sum for Pages {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// Pages of a metadata segment.
fn units(sizes: &Sizes) -> u64 {
    u64::from(sizes.segment_slots) * UNIT_GRANULES
}

/// What a root names most of.
#[derive(Clone, Copy)]
struct Named {
    /// Metadata segments.
    meta: u64,
    /// Pages of level 2.
    tops: u64,
}

/// Bytes of a root that names so much, and everything else at its largest.
fn root_bytes(sizes: &Sizes, copies: usize, named: Named) -> u64 {
    let Named { meta, tops } = named;
    Root::bytes_of(RootParts {
        members: MAX_MEMBERS as u64,
        chunks: u64::from(sizes.ring_chunks + sizes.map_chunks),
        terms: 2 * MAX_TERMS as u64,
        meta,
        tops,
        copies: copies as u64,
    })
}

/// A volume that is to be made, or to have another size.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) layout: Layout,
    pub(super) granules: u64,
    /// Which one it is; none if it is a new one.
    pub(super) volume: Option<u32>,
}

impl Wanted {
    /// A volume that is to be as this entry says.
    pub(super) fn of(volume: u32, entry: &VolumeEntry) -> Self {
        Self {
            layout: entry.layout,
            granules: entry.granules,
            volume: Some(volume),
        }
    }
}

/// Why it cannot be.
pub(super) struct Refusal {
    pub(super) why: IoError,
    /// It may be possible when what deleted or smaller volumes have left is cleared away.
    pub(super) clears: bool,
}

/// What volumes and the map have and may come to have.
pub(super) struct Budget<'a> {
    pub(super) sizes: &'a Sizes,
    pub(super) volumes: &'a VolumeTable,
    pub(super) replicas: &'a Replicas,
    pub(super) map: &'a Map,
    pub(super) metadata: &'a Metadata,
    /// Copies of logs and map.
    pub(super) copies: usize,
}

impl Budget<'_> {
    /// Refuses a volume for which the root might have no room.
    pub(super) fn check(&self, wanted: Wanted) -> Result<(), Refusal> {
        if let Layout::Stripe { .. } = wanted.layout {
            // Its segments are entries of a system table, which counts as full already.
            return Ok(());
        }
        self.check_beside(self.pages_promised(wanted.volume), wanted)
    }

    /// Refuses to make a volume a copy with so many pages of planes, for which the root might have no room.
    pub(super) fn check_replica(&self, wanted: Wanted, planes: u32) -> Result<(), Refusal> {
        let others = self.pages_promised(wanted.volume) + Pages::of(planes.into());
        self.check_beside(others, wanted)
    }

    fn check_beside(&self, others: Pages, wanted: Wanted) -> Result<(), Refusal> {
        let Wanted {
            layout,
            granules,
            volume,
        } = wanted;
        let copies = self.copies.max(usize::from(layout.survives()) + 1);
        let bytes = |granules| {
            let pages = others + self.pages_with(volume, granules);
            pages.root_bytes(self.sizes, copies)
        };
        let room = |granules| bytes(granules) <= ROOT_BYTES;
        if room(granules) {
            return Ok(());
        }
        // All below it fit, none above.
        let (mut most, mut beyond) = (0, MOST_GIB + 1);
        while most + 1 < beyond {
            let middle = (most + beyond) / 2;
            match room(middle * GIB) {
                true => most = middle,
                false => beyond = middle,
            }
        }
        let why = format!(
            "with this volume at {} GiB the maps of all volumes, full, could need a root of {} KiB, and \
             a pool's root has {} KiB: it can have {most} GiB at most",
            granules.div_ceil(GIB),
            bytes(granules).div_ceil(1024),
            ROOT_BYTES / 1024
        );
        let clears = self.has_remains();
        let why = match clears {
            true => format!(
                "{why}; more when what deleted or smaller volumes have left is cleared away, which has begun"
            ),
            false => why,
        };
        Err(Refusal {
            why: refuse(why),
            clears,
        })
    }

    /// Pages of all volumes, each at its full size, and of the system tables; without one of them.
    fn pages_promised(&self, without: Option<u32>) -> Pages {
        let others = self.volumes.iter().filter(|(n, _)| Some(**n) != without);
        let volumes = others.map(|(&number, entry)| self.pages_of(number, entry));
        volumes.sum::<Pages>() + Pages::of_system(self.sizes)
    }

    /// Pages of a volume at its full size: the one it has, or is getting.
    fn pages_of(&self, number: u32, entry: &VolumeEntry) -> Pages {
        let has = match (entry.layout, entry.state) {
            (Layout::Stripe { .. }, _) => return Pages::default(),
            (_, VolumeState::Gone) => 0,
            _ => entry.granules,
        };
        let gets = self.volumes.coming_size(number);
        self.pages_with(Some(number), has.max(gets)) + Pages::of(self.replicas.pages(number))
    }

    /// Pages of a volume of so many granules; of one that was larger, or is being deleted, no fewer than it
    /// still has.
    fn pages_with(&self, volume: Option<u32>, granules: u64) -> Pages {
        let full = Pages::of_volume(granules);
        let here = volume.map_or(VolumeTables::default(), |n| self.map.tables_of(n));
        let (tables, tops) = (here.tables as u64, here.tops as u64);
        let remains = if tables > full.tables {
            tables * u64::from(FANOUT)
        } else {
            0
        };
        Pages {
            leaves: full.leaves.max(remains),
            tables: full.tables.max(tables),
            tops: full.tops.max(tops),
        }
    }

    /// Whether volumes have tables behind their ends, or without being there any more.
    fn has_remains(&self) -> bool {
        self.volumes.iter().any(|(&number, entry)| {
            let live = matches!(entry.state, VolumeState::Live | VolumeState::Free);
            let full = Pages::of_volume(if live { entry.granules } else { 0 });
            let here = self.map.tables_of(number);
            here.tables as u64 > full.tables || here.tops as u64 > full.tops
        })
    }

    /// Refuses what would have all pages move while they are still moving for another reason, if the root
    /// might have no room for where they were then. Afterwards logs and map have so many copies.
    pub(super) fn check_move(&self, copies: usize) -> Result<(), IoError> {
        if !self.map.is_renewing() {
            return Ok(());
        }
        let used = self.map.places().count() as u64;
        let places = used + used.min(2 * MOST_PAGES as u64);
        let meta = self.metadata.segments().len() as u64 + places.div_ceil(units(self.sizes)) + 1;
        let tops = self.pages_promised(None).tops;
        let copies = copies.max(self.copies);
        if root_bytes(self.sizes, copies, Named { meta, tops }) <= ROOT_BYTES {
            return Ok(());
        }
        Err(refuse(
            "the pool's map is still moving after the last change of its drives: wait until that is done"
                .into(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::format::{
        Chunk, ChunkCopy, Feature, LogState, Member, MemberState, MetaSegment, RepairReserve, Salt,
        ScrubAt, TableEntry, TermStart, TopEntry,
    };

    fn sizes() -> Sizes {
        Sizes::for_drive(4 << 40).expect("sizes")
    }

    /// A root of so many metadata segments and tops, all else at its largest.
    fn root(sizes: &Sizes, copies: u16, named: Named) -> Root {
        let Named { meta, tops } = named;
        let copies = |extent| {
            let copy = |drive| ChunkCopy { drive, extent };
            (0..copies).map(copy).collect::<Vec<_>>()
        };
        let log = |chunks: u32| LogState {
            chunks: (0..chunks)
                .map(|extent| Chunk {
                    copies: copies(extent),
                })
                .collect(),
            tail_at: 0,
            tail_number: 1,
            tail_previous: 0,
            terms: (1..=MAX_TERMS as u64)
                .map(|term| TermStart {
                    term,
                    first_batch: term,
                })
                .collect(),
        };
        let member = |drive| Member {
            drive: Uuid::from_u128(drive),
            state: MemberState::Active,
            extents: 1 << 20,
        };
        Root {
            features: Feature::ALL.into_iter().collect(),
            pool: Uuid::from_u128(1),
            generation: 1,
            term: MAX_TERMS as u64,
            next_sequence: 1,
            map_sequence: 1,
            members: (0..MAX_MEMBERS as u128).map(member).collect(),
            reserve: RepairReserve::default(),
            ring: log(sizes.ring_chunks),
            map: log(sizes.map_chunks),
            meta: (0..meta as u32)
                .map(|id| MetaSegment {
                    id,
                    columns: copies(id),
                })
                .collect(),
            tops: (0..tops as u32)
                .map(|index| TopEntry {
                    node: 16,
                    index,
                    entry: TableEntry {
                        place: u64::from(index),
                        crc: 1,
                        sequence: 1,
                        slots: 0,
                        lost: 0,
                    },
                })
                .collect(),
            scrub: Some(ScrubAt {
                volume: 16,
                granule: 1,
            }),
        }
    }

    /// GiB that one volume could have.
    fn most(sizes: &Sizes, copies: usize) -> u64 {
        let fits = |gib: &u64| {
            let pages = Pages::of_system(sizes) + Pages::of_volume(gib * GIB);
            pages.root_bytes(sizes, copies) <= ROOT_BYTES
        };
        (0..200 << 10).rev().find(fits).expect("a volume")
    }

    #[test]
    fn a_root_at_the_limit_fits_and_one_beyond_does_not() {
        let sizes = sizes();
        for copies in 1..=4 {
            let gib = most(&sizes, copies);
            let pages = Pages::of_system(&sizes) + Pages::of_volume(gib * GIB);
            let meta = 2 * pages.places().div_ceil(units(&sizes));
            let full = root(
                &sizes,
                copies as u16,
                Named {
                    meta,
                    tops: pages.tops,
                },
            );
            let bytes = full.encode(Salt(7)).expect("it fits");
            let need = pages.root_bytes(&sizes, copies);
            assert_eq!(bytes.len() as u64, need.next_multiple_of(GRANULE as u64));
            assert!(ROOT_BYTES - need < 4096, "{copies} copies: {need} bytes");
            let spare = (ROOT_BYTES - need) / 32;
            let more = root(
                &sizes,
                copies as u16,
                Named {
                    meta,
                    tops: pages.tops + spare + 1,
                },
            );
            let error = more.encode(Salt(7)).expect_err("too large").to_string();
            assert!(error.contains("outgrown"), "{error}");
        }
    }

    #[test]
    fn the_limits_are_those_that_are_documented() {
        let tib = |copies| most(&sizes(), copies) >> 10;
        assert_eq!([1, 2, 3, 4].map(tib), [81, 60, 48, 39]);
    }
}
