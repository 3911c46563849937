//! The map in memory: pages of level 0 (leaves, system tables), the tables of where they are, and
//! what is newer here than on the drives.

mod evict;
mod heat;
pub(super) mod load;
mod lost;
mod page_reservations;
mod relog;
mod renew;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasherDefault;

use crate::engine::space::segment_and_slot;
use crate::format::{
    Leaf, PLACE_NONE, PageId, SegmentEntry, TableEntry, TablePage, TopEntry, VolumeEntry,
};
use crate::ring::Mix;
use crate::sizes::{GRANULE, Grain, LEAF_GRANULES, UNIT_GRANULES};
use evict::Clock;
pub use evict::LeafMemory;
pub(crate) use evict::leaf_limit;
use heat::Heat;
pub(crate) use heat::Touch;
use lost::Losses;
pub use lost::LostBlocks;
use page_reservations::PageReservations;
use relog::Changed;
pub(crate) use relog::Relogged;
use renew::Renewal;

/// System table of segments.
pub(crate) const SEGMENTS: u32 = 0;
/// System table of slots in use: bit `location & 0x1FF` of 64-byte entry `segment`. Of slots from
/// 512 on, where segments have so many, in further tables.
pub(crate) const SLOTS: u32 = 1;
/// System table of volumes.
pub(crate) const VOLUMES: u32 = 2;
/// System tables of slots 512 to 1,023, of 1,024 to 1,535, and so on up to 4,095.
const MORE_SLOTS: std::ops::Range<u32> = 3..10;
/// System table of copies of replicated volumes: an entry a page.
pub(crate) const REPLICAS: u32 = MORE_SLOTS.end;
/// System tables of slots.
pub(crate) const SLOT_TABLES: u32 = 1 + MORE_SLOTS.end - MORE_SLOTS.start;
/// The first volume's number; nodes below are system tables.
pub(crate) const FIRST_VOLUME: u32 = 16;
/// Volume numbers end here: entry pages are found at import by walking them.
pub(crate) const MAX_VOLUMES: u32 = 65_536;
/// Slots of an entry of these tables.
pub(crate) const ENTRY_SLOTS: u32 = 512;
const SLOTS_ENTRY: usize = 64;
/// Pages that a page of the level above names.
pub(crate) const FANOUT: u32 = 128;

/// One published change of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// These granules of one slot live in the slot at `new`. If `moved`, they come from the ring,
    /// whose records stay until the home is durable; otherwise they were durable there before this
    /// was written, and older records are void.
    Place {
        moved: bool,
        volume: u32,
        first: u64,
        granules: u16,
        new: u32,
        old: u32,
        crcs: [u32; UNIT_GRANULES as usize],
    },
    /// These granules of one slot read as zeroes.
    Clear {
        volume: u32,
        first: u64,
        granules: u16,
        old: u32,
    },
    /// An entry of a system table.
    Entry {
        table: u32,
        index: u32,
        bytes: Vec<u8>,
    },
}

/// What a level-0 page holds.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Leaf(Box<Leaf>),
    System(Box<[u8; GRANULE]>),
}

#[derive(Clone, Debug)]
struct Page {
    content: Content,
    /// Sequence from which on changes are in no written page, nor said again since.
    first_dirty: Option<u64>,
    /// Slots of a leaf that have changed since it was written.
    changed: Changed,
    /// It was looked at since the clock's hand came by.
    used: Cell<bool>,
    /// Of a leaf's slots; none of a leaf of which nothing is known.
    heat: Vec<Heat>,
}

#[derive(Clone, Debug)]
struct Table {
    page: TablePage,
    dirty: bool,
}

impl Table {
    /// Its bytes; `None` when it names nothing.
    fn encode(&self) -> Option<Vec<u8>> {
        let is_empty = self.page.0.iter().all(|entry| entry.place == PLACE_NONE);
        (!is_empty).then(|| {
            let mut bytes = vec![0; GRANULE];
            self.page.encode(&mut bytes);
            bytes
        })
    }
}

/// Tables of a node that are here or in the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeTables {
    /// Pages of level 1.
    pub(crate) tables: usize,
    /// Pages of level 2.
    pub(crate) tops: usize,
}

/// A leaf as a reader meets it.
pub(crate) enum LeafView<'a> {
    /// Never written: everything reads as zeroes.
    Absent,
    /// Here it is.
    Loaded(&'a Leaf),
    /// On the drives.
    OnDisk,
}

#[derive(Default)]
pub(crate) struct Map {
    pages: HashMap<PageId, Page, BuildHasherDefault<Mix>>,
    /// Level 1 and 2, all in memory.
    tables: BTreeMap<PageId, Table>,
    /// Where the pages of level 2 are.
    tops: BTreeMap<PageId, TableEntry>,
    dirty: BTreeSet<(u64, PageId)>,
    renewal: Renewal,
    /// Slots that have homes, by volume.
    mapped: BTreeMap<u32, u64>,
    /// Granules of slots that have homes, of all volumes.
    mapped_granules: u64,
    /// Grains of volumes, by number from the first; they never change.
    grains: Vec<Grain>,
    /// Which leaves are here.
    clock: Clock,
    /// Pages that there are, and that there will be.
    reserved: PageReservations,
    /// Changed leaves that nothing is left in: a checkpoint leaves them out.
    emptied: BTreeSet<PageId>,
    losses: Losses,
}

pub(crate) const fn leaf_id(volume: u32, leaf: u64) -> PageId {
    PageId {
        node: volume,
        level: 0,
        index: leaf as u32,
    }
}

const fn parent(id: PageId) -> PageId {
    PageId {
        node: id.node,
        level: id.level + 1,
        index: id.index / FANOUT,
    }
}

/// The system page and the byte range of an entry.
pub(crate) fn entry_place(table: u32, index: u32) -> (PageId, std::ops::Range<usize>) {
    let bytes = match table {
        SEGMENTS => SegmentEntry::BYTES,
        VOLUMES => VolumeEntry::BYTES,
        REPLICAS => GRANULE,
        _ => SLOTS_ENTRY,
    };
    let per_page = (GRANULE / bytes) as u32;
    let start = (index % per_page) as usize * bytes;
    let id = PageId {
        node: table,
        level: 0,
        index: index / per_page,
    };
    (id, start..start + bytes)
}

/// The system tables, those that others are read by first.
pub(crate) fn system_tables() -> impl Iterator<Item = u32> {
    [SEGMENTS, SLOTS, VOLUMES]
        .into_iter()
        .chain(MORE_SLOTS)
        .chain([REPLICAS])
}

/// The table, entry and bit of a slot in use.
pub(crate) const fn slot_bit(location: u32) -> (u32, u32, usize) {
    let (segment, slot) = segment_and_slot(location);
    let table = match slot / ENTRY_SLOTS {
        0 => SLOTS,
        more => MORE_SLOTS.start + more - 1,
    };
    (table, segment, (slot % ENTRY_SLOTS) as usize)
}

/// The page of a slot's bit.
fn slot_page(location: u32) -> Option<PageId> {
    let (table, segment, _) = slot_bit(location);
    (location != 0).then(|| entry_place(table, segment).0)
}

impl Map {
    /// The grain of a volume; 64 KiB if nothing is known of it.
    pub(crate) fn grain(&self, volume: u32) -> Grain {
        let index = volume.wrapping_sub(FIRST_VOLUME) as usize;
        self.grains.get(index).copied().unwrap_or(Grain::K64)
    }

    /// Learns a volume's grain from its entry, before anything of the volume is mapped.
    fn learn_grain(&mut self, index: u32, entry: &[u8]) {
        let index = index as usize;
        let known = VolumeEntry::decode(entry);
        let small = known.ok().filter(|entry| entry.grain != Grain::K64);
        let Some(entry) = small.filter(|_| index < MAX_VOLUMES as usize) else {
            return;
        };
        if self.grains.len() <= index {
            self.grains.resize(index + 1, Grain::K64);
        }
        self.grains[index] = entry.grain;
    }

    /// Learns what the pages of the volume table say that have been loaded, and counts what is mapped
    /// by it.
    pub(crate) fn system_loaded(&mut self) {
        let per_page = (GRANULE / VolumeEntry::BYTES) as u32;
        for page in self.system_pages(VOLUMES) {
            for index in page * per_page..(page + 1) * per_page {
                let entry = self.entry_bytes(VOLUMES, index).map(<[u8]>::to_vec);
                if let Some(entry) = entry {
                    self.learn_grain(index, &entry);
                }
            }
        }
        let slots = self.mapped.iter();
        self.mapped_granules = slots
            .map(|(&volume, slots)| slots * self.grain(volume).granules())
            .sum();
    }

    /// The leaf of a volume that covers `leaf` (its index).
    pub(crate) fn leaf(&self, volume: u32, leaf: u64) -> LeafView<'_> {
        let id = leaf_id(volume, leaf);
        match self.pages.get(&id) {
            Some(Page {
                content: Content::Leaf(leaf),
                used,
                ..
            }) => {
                used.set(true);
                LeafView::Loaded(leaf)
            }
            _ if self.entry(id).place == PLACE_NONE => LeafView::Absent,
            _ => LeafView::OnDisk,
        }
    }

    /// Location of a slot (0: none), or `None` when its leaf must be loaded first.
    pub(crate) fn location(&self, volume: u32, slot: u64) -> Option<u32> {
        let grain = self.grain(volume);
        match self.leaf(volume, grain.first(slot) / LEAF_GRANULES) {
            LeafView::Absent => Some(0),
            LeafView::Loaded(leaf) => {
                let at = grain.first(slot) % LEAF_GRANULES;
                Some(leaf.locations()[leaf.grain().slot_of(at) as usize])
            }
            LeafView::OnDisk => None,
        }
    }

    /// Location of its slot and checksum of a granule; `None` when the leaf must be loaded first.
    pub(crate) fn granule(&self, volume: u32, granule: u64) -> Option<(u32, u32)> {
        match self.leaf(volume, granule / LEAF_GRANULES) {
            LeafView::Absent => Some((0, 0)),
            LeafView::Loaded(leaf) => {
                let at = (granule % LEAF_GRANULES) as usize;
                let slot = leaf.grain().slot_of(at as u64) as usize;
                Some((leaf.locations()[slot], leaf.crcs[at]))
            }
            LeafView::OnDisk => None,
        }
    }

    /// Where a page is, according to its parent.
    pub(crate) fn entry(&self, id: PageId) -> TableEntry {
        if id.level == 2 {
            return self.tops.get(&id).copied().unwrap_or(TableEntry::NONE);
        }
        match self.tables.get(&parent(id)) {
            Some(table) => table.page.0[(id.index % FANOUT) as usize],
            None => TableEntry::NONE,
        }
    }

    /// A page was written to a fresh place: its parent says so from now on. Returns where it was.
    pub(crate) fn set_entry(&mut self, id: PageId, entry: TableEntry) -> TableEntry {
        let old = self.entry(id);
        self.renewal.left(old.place);
        if id.level == 2 {
            match entry.place {
                PLACE_NONE => self.tops.remove(&id),
                _ => self.tops.insert(id, entry),
            };
            return old;
        }
        if entry.place != PLACE_NONE {
            self.make_table(parent(id));
        }
        if let Some(table) = self.tables.get_mut(&parent(id)) {
            table.page.0[(id.index % FANOUT) as usize] = entry;
            table.dirty = true;
        }
        if id.level == 0 {
            self.losses.learn(id, entry.lost);
            match (old.place != PLACE_NONE, entry.place != PLACE_NONE) {
                (false, true) => self.reserved.came(id),
                (true, false) => self.reserved.went(id),
                _ => {}
            }
        }
        old
    }

    /// A page came from the drives.
    pub(crate) fn loaded(&mut self, id: PageId, content: Content) {
        if self.pages.contains_key(&id) {
            return;
        }
        if let Content::Leaf(leaf) = &content {
            self.clock.enter(id, leaf.grain());
            self.losses.found(id, leaf.lost_granules());
        }
        let page = Page {
            content,
            first_dirty: None,
            changed: Changed::default(),
            used: Cell::new(true),
            heat: Vec::new(),
        };
        self.pages.insert(id, page);
    }

    /// Whether a leaf may have had a change since this sequence.
    pub(crate) fn has_changed_since(&self, leaf: PageId, sequence: u64) -> bool {
        let page = self.pages.get(&leaf);
        let has_changed = page.is_some_and(|page| !page.changed.is_none());
        has_changed || self.entry(leaf).sequence > sequence
    }

    /// The sequence below which the oldest dirty page has all changes, if all that is published is in it. A leaf in
    /// which nothing has changed, and that only moves, has what it had: so one can tell what is newer.
    pub(crate) fn sequence_of_next(&self, published: u64) -> u64 {
        let Some(&(_, id)) = self.dirty.first() else {
            return published;
        };
        let page = self
            .pages
            .get(&id)
            .map(|page| (&page.content, page.changed));
        match page {
            Some((Content::Leaf(_), changed)) if changed.is_none() => self.entry(id).sequence,
            _ => published,
        }
    }

    /// Whether a page of level 0 is here.
    pub(crate) fn is_loaded(&self, id: PageId) -> bool {
        self.pages.contains_key(&id)
    }

    /// A table came from the drives.
    pub(crate) fn table_loaded(&mut self, id: PageId, page: TablePage) {
        let slots: u64 = page.0.iter().map(|entry| u64::from(entry.slots)).sum();
        *self.mapped.entry(id.node).or_default() += slots;
        self.reserved.came(id);
        self.tables.insert(id, Table { page, dirty: false });
        if id.level == 1 {
            for (page, entry) in self.children(id) {
                self.reserved.came(page);
                self.losses.learn(page, entry.lost);
            }
        }
    }

    /// Top entries, as a root lists them.
    pub(crate) fn tops(&self) -> Vec<TopEntry> {
        self.tops
            .iter()
            .map(|(id, &entry)| TopEntry {
                node: id.node,
                index: id.index,
                entry,
            })
            .collect()
    }

    /// Every place that a page of any level has.
    pub(crate) fn places(&self) -> impl Iterator<Item = u64> {
        let tables = self.tables.values().flat_map(|table| table.page.0.iter());
        tables
            .chain(self.tops.values())
            .map(|entry| entry.place)
            .filter(|&place| place != PLACE_NONE)
    }

    /// Pages that tables of `node` name on the level below `level`.
    pub(crate) fn children(&self, id: PageId) -> Vec<(PageId, TableEntry)> {
        let Some(table) = self.tables.get(&id) else {
            return Vec::new();
        };
        let below = |i: usize| PageId {
            node: id.node,
            level: id.level - 1,
            index: id.index * FANOUT + i as u32,
        };
        let entries = table.page.0.iter().enumerate();
        entries
            .filter(|(_, entry)| entry.place != PLACE_NONE)
            .map(|(i, &entry)| (below(i), entry))
            .collect()
    }

    fn page_mut(&mut self, id: PageId, sequence: u64) -> &mut Page {
        let is_dirty = |page: &Page| page.first_dirty.is_some();
        if !self.pages.get(&id).is_some_and(is_dirty) {
            self.hold(id);
        }
        let grain = self.grain(id.node);
        let clock = &mut self.clock;
        let page = self.pages.entry(id).or_insert_with(|| Page {
            content: if id.node < FIRST_VOLUME {
                Content::System(Box::new([0; GRANULE]))
            } else {
                clock.enter(id, grain);
                Content::Leaf(Leaf::empty(grain))
            },
            first_dirty: None,
            changed: Changed::default(),
            used: Cell::new(true),
            heat: Vec::new(),
        });
        if page.first_dirty.is_none() {
            page.first_dirty = Some(sequence);
            self.dirty.insert((sequence, id));
        }
        page
    }

    /// A leaf whose slot with this granule changes.
    fn leaf_mut(&mut self, id: PageId, granule: usize, sequence: u64) -> Option<&mut Leaf> {
        let page = self.page_mut(id, sequence);
        match &mut page.content {
            Content::Leaf(leaf) => {
                page.changed.insert(leaf.grain().slot_of(granule as u64));
                Some(leaf)
            }
            Content::System(_) => None,
        }
    }

    /// Whether the leaf that a change touches is here, or was never written.
    pub(crate) fn is_ready_for(&self, change: &Change) -> bool {
        let leaf = change.leaf();
        leaf.is_none_or(|id| !matches!(self.leaf(id.node, id.index.into()), LeafView::OnDisk))
    }

    /// Applies a change. The pages it touches are loaded, or were never written.
    pub(crate) fn apply(&mut self, change: &Change, sequence: u64) {
        for id in Self::touched(change) {
            self.apply_to(id, change, sequence);
        }
    }

    /// Applies to one of the pages that a change touches what the change says about it.
    pub(crate) fn apply_to(&mut self, id: PageId, change: &Change, sequence: u64) {
        match change {
            Change::Place {
                first,
                granules,
                new,
                crcs,
                ..
            } if id.node >= FIRST_VOLUME => {
                self.apply_place(id, *first, *new, &crcs[..usize::from(*granules)], sequence);
            }
            Change::Clear {
                first,
                granules,
                old,
                ..
            } if id.node >= FIRST_VOLUME => {
                self.apply_clear(id, *first, *granules, *old != 0, sequence);
            }
            Change::Place { new, old, .. } => {
                self.mark_slot(id, *old, false, sequence);
                self.mark_slot(id, *new, true, sequence);
            }
            Change::Clear { old, .. } => self.mark_slot(id, *old, false, sequence),
            Change::Entry {
                table,
                index,
                bytes,
            } => self.write_entry(*table, *index, bytes, sequence),
        }
    }

    /// The pages that a change touches.
    pub(crate) fn touched(change: &Change) -> Vec<PageId> {
        let others = match change {
            Change::Place { new, old, .. } => {
                let old = slot_page(*old).filter(|&old| slot_page(*new) != Some(old));
                [slot_page(*new), old]
            }
            Change::Clear { old, .. } => [slot_page(*old), None],
            Change::Entry { table, index, .. } => [Some(entry_place(*table, *index).0), None],
        };
        change
            .leaf()
            .into_iter()
            .chain(others.into_iter().flatten())
            .collect()
    }

    fn apply_place(&mut self, id: PageId, first: u64, new: u32, crcs: &[u32], sequence: u64) {
        let at = (first % LEAF_GRANULES) as usize;
        if let Some(leaf) = self.leaf_mut(id, at, sequence)
            && let Some(place) = leaf.crcs.get_mut(at..at + crcs.len())
        {
            place.copy_from_slice(crcs);
            let (before, grain) = leaf.set_location(at, new);
            self.count(id.node, grain, before, new);
        }
    }

    fn apply_clear(&mut self, id: PageId, first: u64, granules: u16, frees: bool, sequence: u64) {
        let at = (first % LEAF_GRANULES) as usize;
        if let Some(leaf) = self.leaf_mut(id, at, sequence)
            && let Some(place) = leaf.crcs.get_mut(at..at + usize::from(granules))
        {
            place.fill(0);
            if frees {
                let (before, grain) = leaf.set_location(at, 0);
                let is_blank = leaf.is_blank();
                self.count(id.node, grain, before, 0);
                if is_blank {
                    self.emptied.insert(id);
                }
            }
        }
    }

    fn count(&mut self, volume: u32, grain: Grain, before: u32, after: u32) {
        let mapped = self.mapped.entry(volume).or_default();
        let (more, less) = (u64::from(after != 0), u64::from(before != 0));
        *mapped = (*mapped + more).saturating_sub(less);
        let (more, less) = (more * grain.granules(), less * grain.granules());
        self.mapped_granules = (self.mapped_granules + more).saturating_sub(less);
    }

    /// Bytes of slots that have homes, of all volumes.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mapped_granules * GRANULE as u64
    }

    /// Slots of a volume that have homes.
    pub(crate) fn mapped(&self, volume: u32) -> u64 {
        self.mapped.get(&volume).copied().unwrap_or(0)
    }

    /// Slots with homes in a leaf that is here.
    pub(crate) fn slots_of(&self, id: PageId) -> u16 {
        match self.pages.get(&id).map(|page| &page.content) {
            Some(Content::Leaf(leaf)) => leaf
                .locations()
                .iter()
                .filter(|&&location| location != 0)
                .count() as u16,
            _ => 0,
        }
    }

    fn mark_slot(&mut self, page: PageId, location: u32, used: bool, sequence: u64) {
        let (table, segment, bit) = slot_bit(location);
        let (id, range) = entry_place(table, segment);
        if location == 0 || id != page {
            return;
        }
        if let Content::System(page) = &mut self.page_mut(id, sequence).content
            && let Some(byte) = page[range].get_mut(bit / 8)
        {
            let mask = 1 << (bit % 8);
            *byte = if used { *byte | mask } else { *byte & !mask };
        }
    }

    fn write_entry(&mut self, table: u32, index: u32, bytes: &[u8], sequence: u64) {
        let (id, range) = entry_place(table, index);
        if let Content::System(page) = &mut self.page_mut(id, sequence).content {
            let len = range.len().min(bytes.len());
            page[range.start..range.start + len].copy_from_slice(&bytes[..len]);
        }
        if table == VOLUMES {
            self.learn_grain(index, bytes);
        }
    }

    /// The bytes of a system table's entry, if its page is here.
    pub(crate) fn entry_bytes(&self, table: u32, index: u32) -> Option<&[u8]> {
        let (id, range) = entry_place(table, index);
        match &self.pages.get(&id)?.content {
            Content::System(page) => Some(&page[range]),
            Content::Leaf(_) => None,
        }
    }

    /// Indices of the pages of a system table that are here, in order.
    pub(crate) fn system_pages(&self, table: u32) -> BTreeSet<u32> {
        let ids = self.pages.keys().filter(|id| id.node == table);
        ids.map(|id| id.index).collect()
    }

    /// Sequence of the oldest change that no written page holds.
    pub(crate) fn oldest_dirty(&self) -> Option<u64> {
        self.dirty.first().map(|&(sequence, _)| sequence)
    }

    /// How many pages of level 0 wait to be written.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty.len()
    }

    /// Takes the oldest dirty page of level 0 to write it: its bytes, or `None` in their place when
    /// there is nothing in it any more. It counts as clean from here on.
    pub(crate) fn take_dirty(&mut self) -> Option<(PageId, Option<Vec<u8>>)> {
        let (_, id) = self.dirty.pop_first()?;
        self.let_go(id);
        self.emptied.remove(&id);
        self.losses.left(id);
        let page = self.pages.get_mut(&id)?;
        page.first_dirty = None;
        page.changed = Changed::default();
        let mut bytes = vec![0; GRANULE];
        match &page.content {
            Content::Leaf(leaf) => {
                if leaf.is_blank() {
                    return Some((id, None));
                }
                leaf.encode(&mut bytes);
            }
            Content::System(page) => bytes.copy_from_slice(&page[..]),
        }
        Some((id, Some(bytes)))
    }

    /// Takes the dirty tables of a level, in order; those that name nothing any more go, or every
    /// volume that ever was would keep its place in the root.
    pub(crate) fn take_dirty_tables(&mut self, level: u8) -> Vec<(PageId, Option<Vec<u8>>)> {
        let dirty = self
            .tables
            .iter_mut()
            .filter(|(id, t)| id.level == level && t.dirty);
        let taken: Vec<(PageId, Option<Vec<u8>>)> = dirty
            .map(|(id, table)| {
                table.dirty = false;
                (*id, table.encode())
            })
            .collect();
        for (id, _) in taken.iter().filter(|(_, bytes)| bytes.is_none()) {
            if self.tables.remove(id).is_some() {
                self.reserved.went(*id);
            }
        }
        taken
    }

    /// Whether a table waits to be written.
    pub(crate) fn has_dirty_tables(&self) -> bool {
        self.tables.values().any(|table| table.dirty)
    }

    /// The tables of a volume.
    pub(crate) fn tables_of(&self, volume: u32) -> VolumeTables {
        let level = |level| PageId {
            node: volume,
            level,
            index: 0,
        };
        let tops = self.tops.range(level(2)..level(3)).count();
        let high = self.tables.range(level(2)..level(3)).count();
        VolumeTables {
            tables: self.tables.range(level(1)..level(2)).count(),
            tops: tops.max(high),
        }
    }

    /// Where the last leaf of a volume that was ever written, or is here, ends, in granules.
    pub(crate) fn end(&self, volume: u32) -> u64 {
        let level = |level| PageId {
            node: volume,
            level,
            index: 0,
        };
        let tables = self.tables.range(level(1)..level(2)).map(|(&id, _)| id);
        let on_drives = tables
            .flat_map(|id| self.children(id))
            .map(|(id, _)| id.index);
        let here = self
            .dirty
            .iter()
            .filter(|(_, id)| id.node == volume && id.level == 0);
        let last = on_drives.chain(here.map(|(_, id)| id.index)).max();
        last.map_or(0, |last| (u64::from(last) + 1) * LEAF_GRANULES)
    }
}
