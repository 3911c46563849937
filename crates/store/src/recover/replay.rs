//! From root and logs to the engine's state.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::BuildHasherDefault;

use ashlar_block::ErrorKind;

use super::replicas::replicas;
use crate::Layout;
use crate::drives::Drives;
use crate::engine::Parts;
use crate::engine::access::locks::SlotKey;
use crate::engine::class::{Class, Shape};
use crate::engine::extents::Extents;
use crate::engine::map::{
    Change, Content, ENTRY_SLOTS, FIRST_VOLUME, LostBlocks, Map, SEGMENTS, VOLUMES, leaf_id,
    leaf_limit, slot_bit, system_tables,
};
use crate::engine::raw::{self, Raw, RawSegment};
use crate::engine::space::{
    SegmentIds, Segments, location, segment_and_slot, segment_and_unit, unit_at,
};
use crate::engine::state::Drive;
use crate::error::{PoolError, lost_page};
use crate::format::{
    Chunk, ChunkCopy, Descriptor, DriveClass, Kind, LOST_CRC, Label, Leaf, Member, PLACE_NONE,
    PageId, Root, SegmentEntry, SegmentKind, TableEntry, TablePage, VolumeEntry, VolumeState,
};
use crate::ring::{GranuleKey, Index, LogBatch, Mix, Ring, Scanned, ScannedBatch};
use crate::sizes::{GRANULE, LEAF_GRANULES, UNIT_GRANULES};
use crate::{Canary, ImportOptions};

/// Slots whose leaves are read together.
const SLOTS_AT_A_TIME: usize = 4096;

struct Replay<'a> {
    drives: &'a mut Drives,
    label: &'a Label,
    root: &'a Root,
    map: Map,
    meta: Segments,
    /// Copies of pages that were bad: drive and byte.
    bad: BTreeSet<(usize, u64)>,
    /// Leaves of which no copy is good.
    lost: BTreeSet<PageId>,
    /// Segments of which too few columns are here.
    lost_segments: BTreeSet<u32>,
    /// For the last page that was read there was too little memory: it may be good.
    is_short: bool,
}

/// Builds the state.
pub(super) fn replay(
    drives: &mut Drives,
    (label, classes): (Label, Vec<Option<DriveClass>>),
    root: Root,
    ring: Scanned,
    map: Scanned,
    options: &ImportOptions,
) -> Result<Parts, PoolError> {
    let mut replay = Replay {
        drives,
        label: &label,
        root: &root,
        map: Map::default(),
        meta: Segments::new(label.sizes.segment_slots * UNIT_GRANULES as u32),
        bad: BTreeSet::new(),
        lost: BTreeSet::new(),
        lost_segments: BTreeSet::new(),
        is_short: false,
    };
    for segment in &root.meta {
        replay.meta.add(segment.id, segment.columns.clone());
    }
    replay.load_tables()?;
    replay.claim_places()?;
    replay.load_system()?;
    let touched = replay.touched(&map)?;
    replay.ensure_all(touched)?;
    for change in changes(&map) {
        let (sequence, change) = change?;
        replay.apply(sequence, &change);
    }
    let void = options.cage.sings(Canary::MoveVoidsRecords);
    let (index, mut ring_batches) = replay.index(&ring, &map, void)?;
    let segments = replay.segments()?;
    replay.lost_segments = segments.lost(&root.members);
    let unhomed = replay.unhomed(&ring, &index, options.leaf_bytes)?;
    let volumes = replay.volumes()?;
    let replicas = replicas(&replay.map, &volumes, [&ring, &map], options.cage)?;
    let mut losses = replay.map.lost_of_leaves(&replay.lost);
    losses.extend(ring.lost.iter().map(LostBlocks::of));
    let losses = LostBlocks::merged(losses);
    let Replay {
        map: pages,
        meta,
        bad,
        ..
    } = replay;
    let sizes = label.sizes;
    let ids = segments.entries.iter().map(|(id, _)| *id).collect();
    let segment_ids = SegmentIds::all_but(&ids);
    let raw = raw_volumes(&volumes, segments.raw, sizes.segment_slots)?;
    let mut extents = drive_extents(&label, &root, &segments.entries)?;
    extents.truncate(root.members.len());
    ring_batches
        .iter_mut()
        .for_each(|batch| batch.spans.shrink_to_fit());
    let members = root.members.len();
    Ok(Parts {
        drives: (0..members)
            .map(|i| Drive {
                geometry: drives.geometry(i),
                class: classes.get(i).copied().flatten(),
            })
            .collect(),
        members: root.members.clone(),
        generation: root.generation,
        term: root.term,
        sequence: root.next_sequence,
        ring: Ring::found(&sizes, &root.ring, &ring, ring_batches),
        map_log: Ring::found(
            &sizes,
            &root.map,
            &map,
            map.batches.iter().map(LogBatch::found).collect(),
        ),
        index,
        map: pages,
        extents,
        homes: segments.homes,
        segment_classes: segments.classes,
        segment_ids,
        raw,
        meta,
        meta_segments: root.meta.clone(),
        volumes,
        replicas,
        unhomed,
        returning: Vec::new(),
        losses,
        bad: bad.into_iter().map(|(drive, _)| drive).collect(),
        repaired: 0,
        buffer_bytes: options.memory(),
        leaf_bytes: options.leaf_bytes,
        repair_after: options.repair_after,
        drive_timeout: drives.timeout(),
        cage: options.cage,
        buffers: options.buffers.clone(),
        root: root.clone(),
        remembered: None,
        now: drives.now(),
        label,
    })
}

/// The map log's changes in order. A full log has millions: they are made when they are needed, not kept.
fn changes(map: &Scanned) -> impl Iterator<Item = Result<(u64, Change), PoolError>> {
    map.batches.iter().flat_map(|scanned| {
        let records = scanned.batch.records.iter();
        let sequenced = records.zip(scanned.batch.first_sequence..);
        sequenced.map(|(record, sequence)| Ok((sequence, change(scanned, record)?)))
    })
}

fn change(scanned: &ScannedBatch, record: &Descriptor) -> Result<Change, PoolError> {
    let strange = || {
        PoolError::Damaged(format!(
            "a record of the map log makes no sense: {record:?}"
        ))
    };
    let granules = usize::from(record.granules);
    let one_unit =
        record.first_granule % UNIT_GRANULES + u64::from(record.granules) <= UNIT_GRANULES;
    match record.kind {
        Kind::Place | Kind::Move if one_unit && record.block_or_location != 0 => {
            let first = record.first_crc as usize;
            let list = scanned
                .batch
                .crcs
                .get(first..first + granules)
                .ok_or_else(strange)?;
            let mut crcs = [0; UNIT_GRANULES as usize];
            crcs[..granules].copy_from_slice(list);
            Ok(Change::Place {
                moved: record.kind == Kind::Move,
                volume: record.volume,
                first: record.first_granule,
                granules: record.granules,
                new: record.block_or_location,
                old: record.old_location,
                crcs,
            })
        }
        Kind::Deallocate if one_unit => Ok(Change::Clear {
            volume: record.volume,
            first: record.first_granule,
            granules: record.granules,
            old: record.old_location,
        }),
        Kind::Entry if record.node < FIRST_VOLUME => {
            let blocks = scanned.batch.data_blocks() * GRANULE;
            let data = scanned
                .bytes
                .len()
                .checked_sub(blocks)
                .ok_or_else(strange)?;
            let at = data + record.block_or_location as usize * GRANULE;
            let bytes = scanned.bytes.get(at..at + GRANULE).ok_or_else(strange)?;
            let index = u32::try_from(record.first_granule).map_err(|_| strange())?;
            Ok(Change::Entry {
                table: record.node,
                index,
                bytes: bytes.to_vec(),
            })
        }
        _ => Err(strange()),
    }
}

struct FoundSegments {
    entries: Vec<(u32, SegmentEntry)>,
    homes: BTreeMap<Class, Segments>,
    classes: BTreeMap<u32, Class>,
    /// Segments of pass-through volumes, by volume and ordinal.
    raw: BTreeMap<u32, BTreeMap<u32, RawSegment>>,
}

impl FoundSegments {
    /// Those that too few of these members are left of to read them.
    fn lost(&self, members: &[Member]) -> BTreeSet<u32> {
        let lost = |&(&id, class): &(&u32, &Class)| {
            let segments = self.homes.get(class);
            segments.is_none_or(|segments| !is_readable(segments, id, *class, members))
        };
        let lost = self.classes.iter().filter(lost);
        lost.map(|(&id, _)| id).collect()
    }
}

/// Whether enough columns of a segment are on members in service to read it.
pub(super) fn is_readable(segments: &Segments, id: u32, class: Class, members: &[Member]) -> bool {
    let columns = segments.columns(id).unwrap_or_default();
    let serves = |column: &&ChunkCopy| {
        let member = members.get(usize::from(column.drive));
        member.is_some_and(|member| member.state.in_service())
    };
    let needed = match class.has_parity() {
        false => 1,
        true => columns.len() - usize::from(segments.parity(id)),
    };
    columns.iter().filter(serves).count() >= needed
}

impl Replay<'_> {
    fn load_tables(&mut self) -> Result<(), PoolError> {
        for top in &self.root.tops {
            let id = PageId {
                node: top.node,
                level: 2,
                index: top.index,
            };
            self.map.set_entry(id, top.entry);
            if top.entry.place == PLACE_NONE {
                continue;
            }
            self.load_table(id, top.entry)?;
            let children = self.map.children(id);
            for (&(child, entry), bytes) in children.iter().zip(self.pages(&children)) {
                match bytes {
                    Some(bytes) => self.map.table_loaded(child, TablePage::decode(&bytes)?),
                    None => self.load_table(child, entry)?,
                }
            }
        }
        Ok(())
    }

    fn load_table(&mut self, id: PageId, entry: TableEntry) -> Result<(), PoolError> {
        let bytes = self.page(id, entry)?;
        self.map.table_loaded(id, TablePage::decode(&bytes)?);
        Ok(())
    }

    /// A page from whichever copy is good.
    fn page(&mut self, id: PageId, entry: TableEntry) -> Result<Vec<u8>, PoolError> {
        let (segment, unit) = segment_and_unit(entry.place);
        let columns: Vec<ChunkCopy> = self.meta.columns(segment).unwrap_or_default().to_vec();
        for copy in &columns {
            let drive = usize::from(copy.drive);
            if !self.drives.is_here(drive) {
                continue;
            }
            let at = unit_at(&self.label.sizes, *copy, unit, GRANULE as u64);
            if let Some(bytes) = self.page_at((drive, at), id, entry.crc) {
                return Ok(bytes);
            }
        }
        let places = columns.iter();
        let places = places.map(|copy| self.drives.name(usize::from(copy.drive)));
        Err(PoolError::Damaged(lost_page(id, places)))
    }

    /// The copy of a page at this place, if it is good. When there is no memory to read it, it is not bad.
    fn page_at(&mut self, place: (usize, u64), id: PageId, crc: u32) -> Option<Vec<u8>> {
        let read = self.drives.read(place.0, place.1, GRANULE);
        if read
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::Exhausted)
        {
            self.is_short = true;
            return None;
        }
        let good = read
            .ok()
            .filter(|bytes| id.crc(self.label.salt, bytes) == crc);
        match good.is_some() {
            true => self.bad.remove(&place),
            false => self.bad.insert(place),
        };
        good
    }

    fn claim_places(&mut self) -> Result<(), PoolError> {
        let places: Vec<u64> = self.map.places().collect();
        for place in places {
            let (segment, unit) = segment_and_unit(place);
            if !self.meta.claim(segment, unit) {
                return Err(PoolError::Damaged(format!(
                    "two pages share the place {place:#x}"
                )));
            }
        }
        Ok(())
    }

    fn load_system(&mut self) -> Result<(), PoolError> {
        for node in system_tables() {
            let tops: Vec<u32> = self
                .root
                .tops
                .iter()
                .filter(|top| top.node == node)
                .map(|top| top.index)
                .collect();
            for index in tops {
                for (table, _) in self.map.children(PageId {
                    node,
                    level: 2,
                    index,
                }) {
                    for (id, _) in self.map.children(table) {
                        self.ensure(id)?;
                    }
                }
            }
        }
        self.map.system_loaded();
        Ok(())
    }

    /// Loads a page of level 0 if it was ever written and is not here. In the place of a leaf of which no copy is good
    /// comes one of lost blocks.
    fn ensure(&mut self, id: PageId) -> Result<(), PoolError> {
        let entry = self.map.entry(id);
        if self.map.is_loaded(id) || entry.place == PLACE_NONE {
            return Ok(());
        }
        self.is_short = false;
        match self.page(id, entry) {
            Ok(bytes) => self.put_page(id, &bytes),
            Err(PoolError::Damaged(_)) if id.node >= FIRST_VOLUME && !self.is_short => {
                self.map.lose(id);
                self.lost.insert(id);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn put_page(&mut self, id: PageId, bytes: &[u8]) -> Result<(), PoolError> {
        let content = if id.node < FIRST_VOLUME {
            let mut page = Box::new([0; GRANULE]);
            page.copy_from_slice(bytes);
            Content::System(page)
        } else {
            Content::Leaf(Leaf::decode(bytes)?)
        };
        self.map.loaded(id, content);
        Ok(())
    }

    /// Loads pages together, as far as they were ever written and are not here.
    fn ensure_all(&mut self, ids: impl IntoIterator<Item = PageId>) -> Result<(), PoolError> {
        let missing =
            |id: &PageId| !self.map.is_loaded(*id) && self.map.entry(*id).place != PLACE_NONE;
        let ids: BTreeSet<PageId> = ids.into_iter().filter(missing).collect();
        let entries: Vec<(PageId, TableEntry)> =
            ids.iter().map(|&id| (id, self.map.entry(id))).collect();
        for (&(id, _), bytes) in entries.iter().zip(self.pages(&entries)) {
            if let Some(bytes) = bytes {
                self.put_page(id, &bytes)?;
            }
        }
        // What did not verify is looked for on the other copies.
        for id in ids {
            self.ensure(id)?;
        }
        Ok(())
    }

    /// Reads one copy of each of these pages, all together; nothing where it is not good.
    fn pages(&mut self, wanted: &[(PageId, TableEntry)]) -> Vec<Option<Vec<u8>>> {
        let place = |entry: &TableEntry| {
            let (segment, unit) = segment_and_unit(entry.place);
            let columns = self.meta.columns(segment)?.iter();
            let here: Vec<&ChunkCopy> = columns
                .filter(|copy| self.drives.is_here(usize::from(copy.drive)))
                .collect();
            let copy = **here.get(unit as usize % here.len().max(1))?;
            let at = unit_at(&self.label.sizes, copy, unit, GRANULE as u64);
            Some((usize::from(copy.drive), at))
        };
        let places: Vec<Option<(usize, u64)>> =
            wanted.iter().map(|(_, entry)| place(entry)).collect();
        let known: Vec<(usize, u64)> = places.iter().flatten().copied().collect();
        let mut read = self.drives.read_granules(&known).into_iter();
        let mut found = Vec::with_capacity(wanted.len());
        for ((id, entry), place) in wanted.iter().zip(places) {
            let bytes = place.and_then(|_| read.next().flatten());
            let good = bytes.filter(|bytes| id.crc(self.label.salt, bytes) == entry.crc);
            found.push(good.or_else(|| self.page_at(place?, *id, entry.crc)));
        }
        found
    }

    /// Whether a change is in no written page: a page holds what came before the sequence that its table
    /// names.
    ///
    /// A leaf that is lost holds nothing: whatever the log still has of it is news.
    fn lacks(&self, id: PageId, sequence: u64) -> bool {
        sequence >= self.map.entry(id).sequence || self.lost.contains(&id)
    }

    /// The pages that lack changes of the log. Those are dirty once the log is replayed, so a running pool
    /// had them in memory, too; pages that hold all of it already are not read.
    fn touched(
        &self,
        map: &Scanned,
    ) -> Result<HashSet<PageId, BuildHasherDefault<Mix>>, PoolError> {
        let mut ids = HashSet::default();
        for change in changes(map) {
            let (sequence, change) = change?;
            let pages = Map::touched(&change).into_iter();
            ids.extend(pages.filter(|&id| self.lacks(id, sequence)));
        }
        Ok(ids)
    }

    /// Applies a change to those of its pages that do not hold it yet. They are here.
    fn apply(&mut self, sequence: u64, change: &Change) {
        for id in Map::touched(change) {
            if self.lacks(id, sequence) {
                self.map.apply_to(id, change, sequence);
            }
        }
        // Destage has said so of a record that it could not read.
        if let (Change::Place { crcs, .. }, Some(leaf)) = (change, change.leaf())
            && crcs.contains(&LOST_CRC)
        {
            self.map.expect_lost(leaf);
        }
    }

    /// The index: the ring's records, with what later changes of the map superseded left out. `void`: by
    /// moves, too.
    fn index(
        &self,
        ring: &Scanned,
        map: &Scanned,
        void: bool,
    ) -> Result<(Index, Vec<LogBatch>), PoolError> {
        let mut index = Index::default();
        let mut changes = changes(map).peekable();
        let mut batches = Vec::new();
        let is_older = |change: &Result<(u64, Change), PoolError>, than: u64| {
            change
                .as_ref()
                .map_or(true, |(sequence, _)| *sequence < than)
        };
        for scanned in &ring.batches {
            let mut records = scanned.batch.records.iter();
            // One of another kind has no blocks in the batch, and may be about any number of them.
            if let Some(record) = records.find(|record| record.kind != Kind::Data) {
                return Err(PoolError::Damaged(format!(
                    "a record of the ring makes no sense: it is no data, but {:?}",
                    record.kind
                )));
            }
            for (key, newest) in scanned.granules() {
                while let Some(change) = changes.next_if(|one| is_older(one, newest.sequence)) {
                    supersede(&mut index, &change?.1, void);
                }
                index.insert(key, newest);
            }
            batches.push(LogBatch::found_with_spans(scanned));
        }
        for change in changes {
            supersede(&mut index, &change?.1, void);
        }
        self.drop_orphans(&mut index, ring);
        for batch in &mut batches {
            batch.live = live(&index, batch);
        }
        Ok((index, batches))
    }

    /// Records of volumes that are gone mean nothing any more.
    fn drop_orphans(&self, index: &mut Index, ring: &Scanned) {
        for record in ring
            .batches
            .iter()
            .flat_map(|scanned| &scanned.batch.records)
        {
            let entry = record.volume.checked_sub(FIRST_VOLUME);
            let bytes = entry.and_then(|entry| self.map.entry_bytes(VOLUMES, entry));
            let state = bytes
                .and_then(|bytes| VolumeEntry::decode(bytes).ok())
                .map(|e| e.state);
            if matches!(state, Some(VolumeState::Live | VolumeState::Deleting)) {
                continue;
            }
            for granule in 0..u64::from(record.granules) {
                let key = GranuleKey {
                    volume: record.volume,
                    granule: record.first_granule + granule,
                };
                index.remove_older(key, u64::MAX);
            }
        }
    }

    /// Slots that have records in the ring and no home, or one in a segment that is lost. Their leaves are looked at some
    /// at a time, and those that are clean go again when they are more than a running pool would keep.
    fn unhomed(
        &mut self,
        ring: &Scanned,
        index: &Index,
        leaf_bytes: u64,
    ) -> Result<Vec<SlotKey>, PoolError> {
        let mut slots = BTreeSet::new();
        for record in ring
            .batches
            .iter()
            .flat_map(|scanned| &scanned.batch.records)
        {
            for granule in 0..u64::from(record.granules) {
                let granule = record.first_granule + granule;
                if index
                    .get(GranuleKey {
                        volume: record.volume,
                        granule,
                    })
                    .is_some()
                {
                    let slot = self.map.grain(record.volume).slot_of(granule);
                    slots.insert(SlotKey {
                        volume: record.volume,
                        slot,
                    });
                }
            }
        }
        let leaf = |map: &Map, key: &SlotKey| {
            let first = map.grain(key.volume).first(key.slot);
            leaf_id(key.volume, first / LEAF_GRANULES)
        };
        let limit = leaf_limit(leaf_bytes, self.map.mapped_bytes());
        let slots: Vec<SlotKey> = slots.into_iter().collect();
        let mut unhomed = Vec::new();
        for some in slots.chunks(SLOTS_AT_A_TIME) {
            let leaves: Vec<PageId> = some.iter().map(|key| leaf(&self.map, key)).collect();
            self.ensure_all(leaves)?;
            let homeless = |key: &SlotKey| {
                let home = self.map.location(key.volume, key.slot);
                home.is_some_and(|home| home == 0 || self.is_lost_home(home))
            };
            unhomed.extend(some.iter().copied().filter(homeless));
            // The first look at a page lets it stay, the second lets it go.
            let steps = 2 * self.map.leaves();
            self.map.evict(limit, steps);
        }
        Ok(unhomed)
    }

    fn is_lost_home(&self, home: u32) -> bool {
        self.lost_segments.contains(&segment_and_slot(home).0)
    }

    fn volumes(&self) -> Result<BTreeMap<u32, VolumeEntry>, PoolError> {
        let per_page = (GRANULE / VolumeEntry::BYTES) as u32;
        let mut volumes = BTreeMap::new();
        for page in self.map.system_pages(VOLUMES) {
            for index in page * per_page..(page + 1) * per_page {
                let Some(bytes) = self.map.entry_bytes(VOLUMES, index) else {
                    continue;
                };
                let entry = VolumeEntry::decode(bytes)?;
                if entry.state != VolumeState::Free {
                    volumes.insert(index + FIRST_VOLUME, entry);
                }
            }
        }
        Ok(volumes)
    }

    fn segments(&self) -> Result<FoundSegments, PoolError> {
        let per_page = (GRANULE / SegmentEntry::BYTES) as u32;
        let mut found = FoundSegments {
            entries: Vec::new(),
            homes: BTreeMap::new(),
            classes: BTreeMap::new(),
            raw: BTreeMap::new(),
        };
        for page in self.map.system_pages(SEGMENTS) {
            for id in page * per_page..(page + 1) * per_page {
                let Some(bytes) = self.map.entry_bytes(SEGMENTS, id) else {
                    continue;
                };
                let entry = SegmentEntry::decode(bytes)?;
                if entry.kind == SegmentKind::Free {
                    continue;
                }
                let columns = entry.columns.iter();
                let columns: Vec<ChunkCopy> = columns
                    .map(|&(drive, extent)| ChunkCopy { drive, extent })
                    .collect();
                if entry.kind == SegmentKind::Raw {
                    let parts = found.raw.entry(entry.volume).or_default();
                    parts.insert(entry.ordinal, RawSegment { id, columns });
                } else {
                    let class = Class::of_segment(&entry);
                    found.classes.insert(id, class);
                    let segments = found.homes.entry(class);
                    let segments = segments.or_insert_with(|| {
                        Segments::wanting(self.label.sizes.slots(class.grain), class.wanted())
                    });
                    segments.add_with_parity(id, columns, entry.parity);
                    self.claim_slots(id, segments);
                }
                found.entries.push((id, entry));
            }
        }
        Ok(found)
    }

    /// A segment's slots in use, an entry of a table of slots at a time.
    fn claim_slots(&self, id: u32, segments: &mut Segments) {
        for first in (0..segments.units()).step_by(ENTRY_SLOTS as usize) {
            let (table, index, _) = slot_bit(location(id, first));
            if let Some(bits) = self.map.entry_bytes(table, index) {
                let is_there = segments.claim_bits(id, first, bits);
                debug_assert!(is_there, "segment {id} was added just now");
            }
        }
    }
}

/// Pass-through volumes. What lies behind a volume's end, or belongs to none, a crash has left.
fn raw_volumes(
    volumes: &BTreeMap<u32, VolumeEntry>,
    found: BTreeMap<u32, BTreeMap<u32, RawSegment>>,
    slots: u32,
) -> Result<Raw, PoolError> {
    for (number, entry) in volumes {
        let (VolumeState::Live, Layout::Stripe { columns }) = (entry.state, entry.layout) else {
            continue;
        };
        let needed = raw::segments(columns, slots, entry.granules);
        let parts = found.get(number).into_iter().flatten().take(needed);
        let good = parts.zip(0..).take_while(|((ordinal, part), expected)| {
            *ordinal == expected && part.columns.len() == usize::from(columns)
        });
        if good.count() < needed {
            let name = &entry.name;
            let why = format!("volume {name} lacks a part of its space");
            return Err(PoolError::Damaged(why));
        }
    }
    let parts = found.into_iter();
    let parts = parts.map(|(volume, parts)| (volume, parts.into_values().collect()));
    Ok(Raw::new(parts.collect()))
}

fn live(index: &Index, batch: &LogBatch) -> u32 {
    let range = batch.at..batch.at + batch.bytes;
    let mut live = 0;
    let mut seen = BTreeSet::new();
    for span in &batch.spans {
        for granule in span.first..span.first + u64::from(span.granules) {
            let key = GranuleKey {
                volume: span.volume,
                granule,
            };
            let newest = index.get(key);
            if newest.is_some_and(|n| range.contains(&n.at)) && seen.insert(key) {
                live += 1;
            }
        }
    }
    live
}

fn supersede(index: &mut Index, change: &Change, by_moves: bool) {
    let (volume, first, granules) = match change {
        // What was on its way home may not have arrived.
        Change::Place { moved: true, .. } if !by_moves => return,
        Change::Entry { .. } => return,
        Change::Place {
            volume,
            first,
            granules,
            ..
        }
        | Change::Clear {
            volume,
            first,
            granules,
            ..
        } => (*volume, *first, *granules),
    };
    for granule in first..first + u64::from(granules) {
        index.remove_older(GranuleKey { volume, granule }, u64::MAX);
    }
}

/// Extents of each of a segment's columns.
fn entry_extents(sizes: &crate::Sizes, entry: &SegmentEntry) -> u32 {
    if entry.kind != SegmentKind::Parity {
        return sizes.segment_extents();
    }
    let shape = Shape {
        data: entry.columns.len() as u8 - entry.parity,
        parity: entry.parity,
        grain: entry.grain,
    };
    shape.extents(sizes)
}

/// Free extents: all but those of chunks, metadata segments and segments.
fn drive_extents(
    label: &Label,
    root: &Root,
    segments: &[(u32, SegmentEntry)],
) -> Result<Vec<Extents>, PoolError> {
    let mut free: Vec<Extents> = root
        .members
        .iter()
        .map(|m| Extents::new(m.extents))
        .collect();
    let sizes = &label.sizes;
    let mut claim = |drive: u16, extent: u32, count: u32, what: String| {
        let claimed = free
            .get_mut(usize::from(drive))
            .is_some_and(|e| e.claim(extent, count));
        if claimed {
            Ok(())
        } else {
            Err(PoolError::Damaged(format!(
                "{what} lies where something else does, or nowhere"
            )))
        }
    };
    let chunks: Vec<&Chunk> = root.ring.chunks.iter().chain(&root.map.chunks).collect();
    for (i, chunk) in chunks.into_iter().enumerate() {
        for copy in &chunk.copies {
            claim(
                copy.drive,
                copy.extent,
                sizes.chunk_extents,
                format!("log chunk {i}"),
            )?;
        }
    }
    for segment in &root.meta {
        for copy in &segment.columns {
            let what = format!("metadata segment {}", segment.id);
            claim(copy.drive, copy.extent, sizes.segment_extents(), what)?;
        }
    }
    for (id, entry) in segments {
        let extents = entry_extents(sizes, entry);
        for &(drive, extent) in &entry.columns {
            claim(drive, extent, extents, format!("segment {id}"))?;
        }
    }
    Ok(free)
}
