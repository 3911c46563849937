//! What the drives of a settled pool hold, read anew with nothing but the decoders of the format and
//! the rules of `docs/disk-format.md`, and what must be so of it. The engine under test has no say in
//! this: where it is wrong about its own state, nothing here follows it.
//!
//! | file | what must be so |
//! |-|-|
//! | `logs` | tails begin batches that verify, or are the log's end; no batch of a term that no root knows, none behind a log's end; no record of the ring is older than what the map has let go |
//! | here | the root names the features that are used |
//! | `space` | extents, places and slots are each used once, or free |
//! | `homes` | every copy verifies; parity fits its data |

mod homes;
mod logs;
mod space;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ashlar_store::format::{
    ChunkCopy, Feature, Features, FormatError, Label, Leaf, Member, PLACE_NONE, PageId, Root,
    SegmentEntry, SegmentKind, TableEntry, TablePage, VolumeEntry, VolumeState,
};
use ashlar_store::sizes::{GRANULE, LABEL_AT, ROOT_AT, ROOT_BYTES};

pub(crate) use logs::check_order;

use super::drive::Shared;

/// Nodes of system tables: segments, slots in use, volumes, and more slots.
const SEGMENTS: u32 = 0;
const SLOTS: u32 = 1;
const VOLUMES: u32 = 2;
const MORE_SLOTS: std::ops::Range<u32> = 3..10;
const FIRST_VOLUME: u32 = 16;
/// Bytes of an entry of the tables of slots in use.
const SLOTS_BYTES: usize = 64;
/// Pages that a page of a higher level names.
const FANOUT: u32 = 128;

/// What the world knows of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// It holds what it was told to hold.
    Good,
    /// It lies, or has lost what it had acknowledged.
    Doubted,
    /// It cannot be read.
    Gone,
}

/// All drives as they lie there.
pub(crate) struct Media<'a> {
    drives: &'a [Shared],
    doubted: &'a BTreeSet<usize>,
}

impl<'a> Media<'a> {
    pub(crate) fn new(drives: &'a [Shared], doubted: &'a BTreeSet<usize>) -> Self {
        Self { drives, doubted }
    }

    /// Whether some drive lies.
    fn lies(&self) -> bool {
        !self.doubted.is_empty()
    }

    fn trust(&self, drive: usize) -> Trust {
        match self.drives[drive].borrow().is_silent() {
            true => Trust::Gone,
            false if self.doubted.contains(&drive) => Trust::Doubted,
            false => Trust::Good,
        }
    }

    fn read(&self, drive: usize, at: u64, bytes: usize) -> Option<Vec<u8>> {
        let drive = self.drives[drive].borrow();
        if drive.is_silent() || at + bytes as u64 > drive.pages.bytes() {
            return None;
        }
        let mut content = vec![0; bytes];
        drive.pages.read(at, &mut content).then_some(content)
    }

    /// The labels of all drives, by drive.
    fn labels(&self) -> BTreeMap<usize, Label> {
        let label = |drive: usize| {
            let mut found = LABEL_AT
                .into_iter()
                .filter_map(|at| Label::decode(&self.read(drive, at, GRANULE)?).ok()?);
            Some((drive, found.next()?))
        };
        (0..self.drives.len()).filter_map(label).collect()
    }

    /// The newest root that verifies.
    fn root(&self, label: &Label) -> Option<Root> {
        let root = |drive: usize, at: u64| {
            // Most are short.
            let mut lengths = [4 * GRANULE, ROOT_BYTES as usize].into_iter();
            let read = |bytes| Root::decode(&self.read(drive, at, bytes)?, label.salt).ok();
            let root = lengths.find_map(read)?;
            (root.pool == label.pool).then_some(root)
        };
        let excluded = |root: &Root| {
            let out = |member: &&Member| !member.state.in_service();
            root.members.iter().filter(out).count()
        };
        let drives = 0..self.drives.len();
        drives
            .flat_map(|drive| ROOT_AT.into_iter().filter_map(move |at| root(drive, at)))
            .max_by_key(|root| (root.generation, excluded(root)))
    }
}

/// The pool's newest root, and which drive each of its members is.
pub(crate) struct Pool {
    pub(crate) label: Label,
    pub(crate) root: Root,
    /// The drive of each member that is in service and can be read.
    seats: Vec<Option<(usize, Trust)>>,
}

impl Pool {
    /// What labels and roots say; `None` when none can be read.
    pub(crate) fn read(media: &Media<'_>) -> Option<Self> {
        let labels = media.labels();
        let label = labels.values().next()?.clone();
        let root = media.root(&label)?;
        let seat = |(index, member): (usize, &Member)| {
            let is_it =
                |label: &Label| label.drive == member.drive && usize::from(label.index) == index;
            let (&drive, _) = labels.iter().find(|(_, label)| is_it(label))?;
            let trust = media.trust(drive);
            (member.state.in_service() && trust != Trust::Gone).then_some((drive, trust))
        };
        let seats = root.members.iter().enumerate().map(seat).collect();
        Some(Self { label, root, seats })
    }

    /// Whether a drive is in service.
    pub(crate) fn serves(&self, drive: usize) -> bool {
        self.seats.iter().flatten().any(|&(seat, _)| seat == drive)
    }

    /// The drives of some copies that can be read, and the bytes at which these begin.
    fn places(&self, copies: &[ChunkCopy]) -> Vec<(usize, u64, Trust)> {
        let place = |copy: &ChunkCopy| {
            let (drive, trust) = self.seats.get(usize::from(copy.drive)).copied()??;
            Some((drive, self.label.sizes.extent_at(copy.extent), trust))
        };
        copies.iter().filter_map(place).collect()
    }
}

/// What a settled pool's drives hold.
pub(crate) struct Found {
    pub(crate) pool: Pool,
    /// Pages of the map, and where they are.
    pages: Vec<(PageId, TableEntry)>,
    segments: BTreeMap<u32, SegmentEntry>,
    /// Locations whose bits say that they are in use.
    slots: BTreeSet<u32>,
    volumes: BTreeMap<u32, VolumeEntry>,
    leaves: Vec<(PageId, Box<Leaf>)>,
}

impl Found {
    /// Reads everything, and checks it.
    ///
    /// # Errors
    /// What must not be so.
    pub(crate) fn audit(media: &Media<'_>) -> Result<Self, String> {
        let found = Self::read(media)?;
        found.check(media)?;
        Ok(found)
    }

    fn check(&self, media: &Media<'_>) -> Result<(), String> {
        self.check_features()?;
        self.check_logs(media)?;
        self.check_places()?;
        self.check_extents()?;
        self.check_slots()?;
        self.check_homes(media)
    }

    /// The root names what a program must know to read what is there.
    fn check_features(&self) -> Result<(), String> {
        let volumes = self.volumes.values();
        let used = volumes.flat_map(|entry| {
            let tiers = entry.hot.map(|_| Feature::Tiers);
            tiers
                .into_iter()
                .chain(entry.is_cache.then_some(Feature::Caches))
        });
        let (used, named): (Features, _) = (used.collect(), self.pool.root.features);
        match named.has(used) {
            true => Ok(()),
            false => Err(format!(
                "the pool uses the features {used}, and its root names {named}"
            )),
        }
    }

    /// Reads everything that the newest root names. Its logs are empty: the pool has settled.
    fn read(media: &Media<'_>) -> Result<Self, String> {
        let pool = Pool::read(media).ok_or("no label or no root can be read")?;
        let mut found = Self {
            pool,
            pages: Vec::new(),
            segments: BTreeMap::new(),
            slots: BTreeSet::new(),
            volumes: BTreeMap::new(),
            leaves: Vec::new(),
        };
        for top in found.pool.root.tops.clone() {
            let id = PageId {
                node: top.node,
                level: 2,
                index: top.index,
            };
            found.read_page(media, id, top.entry)?;
        }
        Ok(found)
    }

    fn read_page(
        &mut self,
        media: &Media<'_>,
        id: PageId,
        entry: TableEntry,
    ) -> Result<(), String> {
        if entry.place == PLACE_NONE {
            return Ok(());
        }
        self.pages.push((id, entry));
        let bytes = self.page(media, id, entry)?;
        if id.level == 0 {
            return self.keep(id, &bytes);
        }
        let table = TablePage::decode(&bytes).map_err(|error| format!("{id:?}: {error}"))?;
        for (child, &entry) in table.0.iter().enumerate() {
            let child = PageId {
                level: id.level - 1,
                index: id.index * FANOUT + child as u32,
                ..id
            };
            self.read_page(media, child, entry)?;
        }
        Ok(())
    }

    /// A page, of which every copy on a drive that does not lie must be good.
    fn page(&self, media: &Media<'_>, id: PageId, entry: TableEntry) -> Result<Vec<u8>, String> {
        let (segment, unit) = ((entry.place >> 16) as u32, entry.place & 0xFFFF);
        let mut meta = self.pool.root.meta.iter();
        let meta = meta.find(|meta| meta.id == segment).ok_or_else(|| {
            format!("{id:?} is in metadata segment {segment}, which is not there")
        })?;
        let mut good = None;
        for (drive, at, trust) in self.pool.places(&meta.columns) {
            let bytes = media.read(drive, at + unit * GRANULE as u64, GRANULE);
            let bytes = bytes.filter(|bytes| id.crc(self.pool.label.salt, bytes) == entry.crc);
            if bytes.is_none() && trust == Trust::Good {
                return Err(format!("the copy of {id:?} on drive {drive} is bad"));
            }
            good = good.or(bytes);
        }
        good.ok_or_else(|| format!("no copy of {id:?} is good"))
    }

    /// Keeps what a page of level 0 says.
    fn keep(&mut self, id: PageId, bytes: &[u8]) -> Result<(), String> {
        let bad = |error: FormatError| format!("{id:?}: {error}");
        match id.node {
            SEGMENTS => {
                let per_page = (GRANULE / SegmentEntry::BYTES) as u32;
                for (bytes, number) in bytes.chunks(SegmentEntry::BYTES).zip(id.index * per_page..)
                {
                    let entry = SegmentEntry::decode(bytes).map_err(bad)?;
                    if entry.kind != SegmentKind::Free {
                        self.segments.insert(number, entry);
                    }
                }
            }
            VOLUMES => {
                let per_page = (GRANULE / VolumeEntry::BYTES) as u32;
                let first = id.index * per_page + FIRST_VOLUME;
                for (bytes, number) in bytes.chunks(VolumeEntry::BYTES).zip(first..) {
                    let entry = VolumeEntry::decode(bytes).map_err(bad)?;
                    if entry.state != VolumeState::Free {
                        self.volumes.insert(number, entry);
                    }
                }
            }
            SLOTS => self.keep_slots(id.index, 0, bytes),
            node if MORE_SLOTS.contains(&node) => {
                self.keep_slots(id.index, node - MORE_SLOTS.start + 1, bytes);
            }
            _ => {
                let leaf = Leaf::decode(bytes).map_err(bad)?;
                self.leaves.push((id, leaf));
            }
        }
        Ok(())
    }

    /// Bits of slots in use, of table `table` of those tables.
    fn keep_slots(&mut self, page: u32, table: u32, bytes: &[u8]) {
        let per_page = (GRANULE / SLOTS_BYTES) as u32;
        for (bytes, segment) in bytes.chunks(SLOTS_BYTES).zip(page * per_page..) {
            let bits = (0..SLOTS_BYTES as u32 * 8)
                .filter(|bit| bytes[*bit as usize / 8] & 1 << (bit % 8) != 0);
            let slots = bits.map(|bit| table * SLOTS_BYTES as u32 * 8 + bit);
            self.slots.extend(slots.map(|slot| segment << 12 | slot));
        }
    }

    /// What is said of stopping, by volumes' names.
    pub(crate) fn stops(&self) -> BTreeMap<String, bool> {
        let live = self.volumes.values();
        let live = live.filter(|entry| entry.state == VolumeState::Live);
        live.map(|entry| (entry.name.clone(), entry.stops))
            .collect()
    }
}
