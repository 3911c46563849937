//! Extents, places and slots: each has one owner, or none.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_store::Layout;
use ashlar_store::format::{ChunkCopy, SegmentEntry, SegmentKind, VolumeEntry, VolumeState};
use ashlar_store::sizes::{GRANULE, UNIT_GRANULES};

use super::Found;

/// A run of extents of a member: first, one behind the last, and whose.
type Run = (u32, u32, String);

impl Found {
    /// Columns of data of a segment: 1 of a mirror, for each column has the whole slot.
    pub(super) fn data_columns(entry: &SegmentEntry) -> usize {
        match entry.kind {
            SegmentKind::Parity => entry.columns.len() - usize::from(entry.parity),
            _ => 1,
        }
    }

    /// Granules of a slot in one column.
    pub(super) fn rows(entry: &SegmentEntry) -> usize {
        (entry.grain.granules() as usize).div_ceil(Self::data_columns(entry))
    }

    fn extents_of(&self, entry: &SegmentEntry) -> u32 {
        let sizes = &self.pool.label.sizes;
        if entry.kind != SegmentKind::Parity {
            return sizes.segment_extents();
        }
        let bytes = u64::from(sizes.slots(entry.grain)) * (Self::rows(entry) * GRANULE) as u64;
        bytes.div_ceil(sizes.extent_bytes()) as u32
    }

    /// No two pages share a place, and each is in its segment.
    pub(super) fn check_places(&self) -> Result<(), String> {
        let units = u64::from(self.pool.label.sizes.segment_slots) * UNIT_GRANULES;
        let mut seen = BTreeMap::new();
        for (id, entry) in &self.pages {
            if let Some(other) = seen.insert(entry.place, id) {
                return Err(format!(
                    "{id:?} and {other:?} share place {:#x}",
                    entry.place
                ));
            }
            if entry.place & 0xFFFF >= units {
                return Err(format!("{id:?} is behind its segment's end"));
            }
        }
        Ok(())
    }

    /// What takes extents of each member.
    fn runs(&self) -> BTreeMap<u16, Vec<Run>> {
        let (root, sizes) = (&self.pool.root, &self.pool.label.sizes);
        let mut runs: BTreeMap<u16, Vec<Run>> = BTreeMap::new();
        let mut take = |copy: ChunkCopy, count: u32, whose: String| {
            let run = (copy.extent, copy.extent + count, whose);
            runs.entry(copy.drive).or_default().push(run);
        };
        for (name, log) in [("ring", &root.ring), ("map log", &root.map)] {
            for (number, chunk) in log.chunks.iter().enumerate() {
                for &copy in &chunk.copies {
                    take(copy, sizes.chunk_extents, format!("{name} chunk {number}"));
                }
            }
        }
        for meta in &root.meta {
            for &copy in &meta.columns {
                let whose = format!("metadata segment {}", meta.id);
                take(copy, sizes.segment_extents(), whose);
            }
        }
        for (number, entry) in &self.segments {
            for &(drive, extent) in &entry.columns {
                let copy = ChunkCopy { drive, extent };
                take(copy, self.extents_of(entry), format!("segment {number}"));
            }
        }
        runs
    }

    /// No two things share an extent, and none lies behind its drive's end.
    pub(super) fn check_extents(&self) -> Result<(), String> {
        for (member, mut runs) in self.runs() {
            let Some(known) = self.pool.root.members.get(usize::from(member)) else {
                return Err(format!(
                    "{} is on member {member}, which is not there",
                    runs[0].2
                ));
            };
            if !known.state.in_service() {
                // Whatever was there is of no interest any more.
                continue;
            }
            runs.sort();
            for pair in runs.windows(2) {
                if pair[1].0 < pair[0].1 {
                    let (first, second) = (&pair[0], &pair[1]);
                    return Err(format!(
                        "on member {member}, {first:?} and {second:?} overlap"
                    ));
                }
            }
            if let Some((_, end, whose)) = runs.last().filter(|run| run.1 > known.extents) {
                let has = known.extents;
                return Err(format!(
                    "{whose} ends at extent {end} of member {member}, of {has}"
                ));
            }
        }
        Ok(())
    }

    /// Extents in use of each member in service.
    pub(crate) fn used_extents(&self) -> Vec<Option<u32>> {
        let runs = self.runs();
        let used = |member: usize| {
            let runs = runs.get(&(member as u16)).into_iter().flatten();
            runs.map(|(first, end, _)| end - first).sum()
        };
        let members = self.pool.root.members.iter().enumerate();
        members
            .map(|(index, member)| member.state.in_service().then(|| used(index)))
            .collect()
    }

    /// Every slot is some volume's, once, and its bit says so, or free.
    pub(super) fn check_slots(&self) -> Result<(), String> {
        let mut mapped: BTreeMap<u32, String> = BTreeMap::new();
        for (id, leaf) in &self.leaves {
            let (grain, volume) = (leaf.grain(), id.node);
            let first = u64::from(id.index) * grain.slots_a_leaf() as u64;
            for (&location, slot) in leaf.locations().iter().zip(first..) {
                if location == 0 {
                    continue;
                }
                let whose = format!("slot {slot} of volume {volume}");
                let entry = self.volumes.get(&volume);
                let entry = entry.filter(|entry| entry.state == VolumeState::Live);
                let entry = entry.ok_or_else(|| format!("{whose} has a home, but no volume"))?;
                if entry.grain != grain || grain.first(slot) >= entry.granules {
                    return Err(format!("{whose} has a home, but is not of {entry:?}"));
                }
                self.check_location(location, volume, entry)
                    .map_err(|why| format!("{whose}: {why}"))?;
                if let Some(other) = mapped.insert(location, whose.clone()) {
                    return Err(format!("{whose} and {other} share location {location:#x}"));
                }
            }
        }
        let mapped: BTreeSet<u32> = mapped.into_keys().collect();
        if let Some(slot) = mapped.symmetric_difference(&self.slots).next() {
            let said = self.slots.contains(slot);
            return Err(format!(
                "location {slot:#x} is {} use, but its bit says otherwise",
                if said { "not in" } else { "in" }
            ));
        }
        Ok(())
    }

    /// A home is in a segment of its volume's kind, or in one of its hot home.
    fn check_location(&self, location: u32, id: u32, volume: &VolumeEntry) -> Result<(), String> {
        let (number, slot) = (location >> 12, location & 0xFFF);
        let segment = self.segments.get(&number);
        let segment = segment.ok_or_else(|| format!("there is no segment {number}"))?;
        let fits = match volume.layout {
            Layout::Mirror { copies } => {
                segment.kind == SegmentKind::Mirror && segment.copies == copies
            }
            Layout::Parity { data, parity } => {
                let kind = segment.kind == SegmentKind::Parity;
                kind && (segment.data, segment.copies) == (data, data + parity)
            }
            Layout::Stripe { .. } => false,
        };
        let is_hot = volume.hot.is_some_and(|hot| {
            let is_mirror = segment.kind == SegmentKind::Mirror && segment.copies == hot.copies;
            is_mirror && segment.volume == id
        });
        let fits = is_hot || fits && segment.volume == 0;
        let within = slot < self.pool.label.sizes.slots(segment.grain);
        match fits && within && segment.grain == volume.grain {
            true => Ok(()),
            false => Err(format!("it is in {segment:?}, slot {slot}: {volume:?}")),
        }
    }
}
