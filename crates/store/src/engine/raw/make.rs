//! Space of pass-through volumes. All of it is taken, zeroed and flushed before anything is recorded;
//! then the segments are recorded, and last the volume's entry, which is what makes them count. What
//! goes, goes the other way round: the entry, then the segments, and then their extents are free.
//! So a crash leaves a volume as it was or as it will be, and perhaps segments that no volume
//! reaches into, which the next import frees.

use std::ops::Range;

use ashlar_block::{Durability, ErrorKind, IoError, Operation};

use super::io::{RawOp, Whom};
use super::{Around, Raw, RawSegment, RawSegments, shape_of};
use crate::engine::invariant::invariant;
use crate::engine::journal::{StagedChange, Then};
use crate::engine::manage::segment_change;
use crate::engine::map::{Change, FIRST_VOLUME, VOLUMES};
use crate::format::{ChunkCopy, DriveClass, SegmentEntry, SegmentKind, VolumeEntry, VolumeState};
use crate::sizes::Grain;

/// Records of segments on their way at a time: each takes a block of the map log.
const RECORDS: usize = 32;

/// A volume that is being made or grown.
pub(super) struct Making {
    volume: u32,
    /// What its entry will be.
    entry: VolumeEntry,
    /// Who asked.
    id: u64,
    /// Segments that it had before.
    had: usize,
    /// Granules that must read as zeroes first.
    fresh: Range<u64>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Zeroing,
    Flushing,
}

/// What a segment lies over.
#[derive(Clone, Copy)]
struct Over {
    columns: usize,
    /// The drives that it may lie on; any, without one.
    class: Option<DriveClass>,
}

impl Raw {
    /// Whether no change is on its way.
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.unpublished == 0
    }

    /// Begins to make a volume, or to grow one to what `entry` says.
    pub(in crate::engine) fn grow(
        &mut self,
        volume: u32,
        entry: VolumeEntry,
        id: u64,
        around: &mut Around<'_>,
    ) -> Result<(), IoError> {
        let before = around.volumes.get(&volume).map_or(0, |old| old.granules);
        let had = self.volumes.get(&volume).map_or(0, RawSegments::len);
        let shape = shape_of(&entry, around.identity);
        let wanted = shape.segments(entry.granules).saturating_sub(had);
        let over = Over {
            columns: shape.columns as usize,
            class: entry.class,
        };
        let fresh = self.take(volume, wanted, over, around)?;
        self.volumes.entry(volume).or_default().extend(fresh);
        self.changing.insert(volume);
        self.makings.push_back(Making {
            volume,
            fresh: before..entry.granules,
            entry,
            id,
            had,
            phase: Phase::Waiting,
        });
        Ok(())
    }

    /// Takes so many segments, all or none; on the drives that the volume is on, while they have
    /// room.
    fn take(
        &mut self,
        volume: u32,
        wanted: usize,
        over: Over,
        around: &mut Around<'_>,
    ) -> Result<Vec<RawSegment>, IoError> {
        let known = self.volumes.get(&volume);
        let mut home: Vec<u16> = known
            .and_then(|segments| segments.get(0))
            .map(|segment| segment.columns.iter().map(|copy| copy.drive).collect())
            .unwrap_or_default();
        let mut taken = Vec::new();
        while taken.len() < wanted {
            let Some(segment) = around.take_segment(&home, over) else {
                around.untake(taken);
                let of = over
                    .class
                    .map(|class| format!(" of class {class}"))
                    .unwrap_or_default();
                let why = format!("the pool's drives{of} have no room for as much more");
                return Err(IoError::new(ErrorKind::NoSpace, why));
            };
            if home.is_empty() {
                home = segment.columns.iter().map(|copy| copy.drive).collect();
            }
            taken.push(segment);
        }
        Ok(taken)
    }

    /// Everything about pass-through volumes that can start, starts.
    pub(in crate::engine) fn advance(&mut self, around: &mut Around<'_>) {
        self.begin_making(around);
        self.advance_trims(around);
        self.stage_queued(around);
    }

    fn begin_making(&mut self, around: &mut Around<'_>) {
        let Some(making) = self.makings.front_mut() else {
            return;
        };
        if making.phase == Phase::Waiting {
            making.phase = Phase::Zeroing;
            let (volume, fresh) = (making.volume, making.fresh.clone());
            let zero = Operation::WriteZeroes {
                durability: Durability::Cached,
                deallocate: true,
            };
            self.begin_clear(volume, Whom::Making, zero, fresh, around);
        }
    }

    pub(super) fn making_done(&mut self, result: Result<(), IoError>, around: &mut Around<'_>) {
        let Some(making) = self.makings.front_mut() else {
            return invariant!(around.base, "a stripe is zeroed, but none is being made");
        };
        match (result, making.phase) {
            (Err(error), _) => self.give_up_making(error, around),
            (Ok(()), Phase::Flushing) => self.record_made(around),
            (Ok(()), _) => {
                making.phase = Phase::Flushing;
                let volume = making.volume;
                self.begin_flush(volume, Whom::Making, around);
            }
        }
    }

    /// Nothing has been recorded: it is as if it had not been asked for.
    fn give_up_making(&mut self, error: IoError, around: &mut Around<'_>) {
        let Some(making) = self.makings.pop_front() else {
            return invariant!(
                around.base,
                "no stripe is being made that could be given up"
            );
        };
        let volume = making.volume;
        self.changing.remove(&volume);
        if let Some(segments) = self.volumes.get_mut(&volume) {
            let fresh = segments.split_off(making.had);
            around.untake(fresh);
        }
        if making.had == 0 {
            self.volumes.remove(&volume);
            self.latched.remove(&volume);
            around.volumes.remove(&volume);
        }
        around.base.answer(making.id, Err(error));
    }

    fn record_made(&mut self, around: &mut Around<'_>) {
        let Some(making) = self.makings.pop_front() else {
            return invariant!(
                around.base,
                "no stripe is being made that could be recorded"
            );
        };
        let segments = self.volumes.get(&making.volume);
        let fresh = segments.map_or(&[][..], |segments| segments.from(making.had));
        let fresh = fresh.iter().zip(making.had..);
        let records = fresh.map(|(segment, ordinal)| {
            let entry = SegmentEntry {
                kind: SegmentKind::Raw,
                copies: segment.columns.len() as u8,
                data: 0,
                parity: 0,
                grain: Grain::K64,
                class: None,
                volume: making.volume,
                ordinal: ordinal as u32,
                columns: segment
                    .columns
                    .iter()
                    .map(|copy| (copy.drive, copy.extent))
                    .collect(),
            };
            segment_change(segment.id, &entry, Then::RawSegment)
        });
        self.queue.extend(records);
        self.queue_volume(making.volume, &making.entry, Some(making.id));
    }

    /// A volume's entry is to change, behind what is queued.
    fn queue_volume(&mut self, volume: u32, entry: &VolumeEntry, id: Option<u64>) {
        let mut bytes = vec![0; VolumeEntry::BYTES];
        entry.encode(&mut bytes);
        self.queue.push_back(StagedChange {
            change: Change::Entry {
                table: VOLUMES,
                index: volume - FIRST_VOLUME,
                bytes,
            },
            then: Then::Volume(volume, id),
            more: false,
        });
    }

    /// Lets changes into the map log, as long as destage keeps its share of it.
    fn stage_queued(&mut self, around: &mut Around<'_>) {
        while self.unpublished < RECORDS && !around.logs.is_map_busy() {
            let Some(staged) = self.queue.pop_front() else {
                return;
            };
            let counts = matches!(staged.then, Then::RawSegment | Then::RawFreed(_));
            self.unpublished += usize::from(counts);
            around.journal.stage(staged);
        }
    }

    pub(in crate::engine) fn recorded(&mut self) {
        self.unpublished -= 1;
    }

    /// A segment's entry is free, durably, and nothing is on its way there: its extents are free.
    pub(in crate::engine) fn freed(&mut self, id: u32, around: &mut Around<'_>) {
        self.unpublished -= 1;
        if let Some((_, columns)) = self.freeing.remove(&id) {
            self.freeing_on.remove(&columns);
            around.give_extents(&columns);
            around.space.segments.give_id(id);
        }
    }

    /// Another size.
    pub(in crate::engine) fn resize(
        &mut self,
        id: u64,
        volume: u32,
        entry: VolumeEntry,
        around: &mut Around<'_>,
    ) -> Result<(), IoError> {
        let trimming = self.trims.iter().any(|&(other, _)| other == volume);
        if trimming || self.is_changing(volume) {
            return Err(IoError::new(
                ErrorKind::InvalidRequest,
                format!("volume {volume} is still getting the size it was given before"),
            ));
        }
        let before = around.volumes.get(&volume).map_or(0, |old| old.granules);
        if entry.granules > before {
            return self.grow(volume, entry, id, around);
        }
        self.changing.insert(volume);
        self.queue_volume(volume, &entry, Some(id));
        // Nothing behind the new end is let in from now on.
        around.volumes.insert(volume, entry);
        Ok(())
    }

    /// Whether another entry of a volume is on its way.
    pub(in crate::engine) fn is_changing(&self, volume: u32) -> bool {
        self.changing.contains(&volume)
    }

    /// A volume begins to be deleted: what waits for older commands must wait for younger ones too.
    pub(in crate::engine) fn is_deleted(&mut self, volume: u32) {
        self.trims.retain(|&(other, _)| other != volume);
    }

    /// A volume's entry is durable: what it does not reach into can go, once what is under way
    /// there is through.
    pub(in crate::engine) fn published(&mut self, volume: u32, state: VolumeState) {
        self.changing.remove(&volume);
        self.trims.retain(|&(other, _)| other != volume);
        if state == VolumeState::Gone {
            self.latched.remove(&volume);
            return;
        }
        self.serial += 1;
        self.trims.push((volume, self.serial));
    }

    fn advance_trims(&mut self, around: &Around<'_>) {
        for (volume, serial) in self.trims.clone() {
            let older = |raw: &RawOp| raw.volume == volume && raw.serial < serial;
            if !self.ops.iter().any(|(_, raw)| older(raw)) {
                self.trims.retain(|&(other, _)| other != volume);
                self.give_back(volume, around);
            }
        }
    }

    /// What a crash has left of volumes that were being made or deleted. Nothing is under way.
    pub(in crate::engine) fn give_back_orphans(&mut self, around: &Around<'_>) {
        let deleting = around.volumes.iter();
        let deleting = deleting
            .filter(|(volume, entry)| {
                entry.state == VolumeState::Deleting && around.volumes.is_raw(**volume)
            })
            .map(|(&volume, _)| volume);
        let known = self.volumes.keys().copied();
        let all: std::collections::BTreeSet<u32> = known.chain(deleting).collect();
        for volume in all {
            self.give_back(volume, around);
        }
    }

    /// Frees the segments that a volume does not reach into.
    fn give_back(&mut self, volume: u32, around: &Around<'_>) {
        let entry = around.volumes.get(&volume).cloned();
        let needed = match &entry {
            Some(entry) if entry.state == VolumeState::Live => {
                shape_of(entry, around.identity).segments(entry.granules)
            }
            _ => 0,
        };
        let mut tail = Vec::new();
        if let Some(segments) = self.volumes.get_mut(&volume) {
            tail = segments.split_off(needed);
            if segments.len() == 0 {
                self.volumes.remove(&volume);
            }
        }
        for segment in tail {
            let change = segment_change(
                segment.id,
                &SegmentEntry::free(),
                Then::RawFreed(segment.id),
            );
            self.queue.push_back(change);
            self.freeing_on.add(&segment.columns);
            self.freeing.insert(segment.id, (volume, segment.columns));
        }
        if let Some(mut entry) = entry.filter(|entry| entry.state == VolumeState::Deleting) {
            entry.state = VolumeState::Gone;
            self.queue_volume(volume, &entry, None);
        }
    }

    /// The engine has stopped: whose orders wait.
    pub(in crate::engine) fn take_asked(&mut self) -> Vec<u64> {
        let makings = std::mem::take(&mut self.makings);
        let queued = std::mem::take(&mut self.queue);
        let queued = queued.iter().filter_map(StagedChange::asked_by);
        let makings = makings.into_iter().map(|making| making.id);
        makings.chain(queued).collect()
    }
}

impl Around<'_> {
    fn take_segment(&mut self, home: &[u16], over: Over) -> Option<RawSegment> {
        let Over { columns, class } = over;
        let extents = self.identity.sizes().segment_extents();
        let rooms = self.space.drives.only(self.space.raw_rooms(), class);
        let at_home = |(drive, &room): (usize, &u32)| match home.contains(&(drive as u16)) {
            true => room,
            false => 0,
        };
        let at_home: Vec<u32> = rooms.iter().enumerate().map(at_home).collect();
        let found = self.space.drives.take_columns(&at_home, columns, extents);
        let found = found.or_else(|| self.space.drives.take_columns(&rooms, columns, extents));
        let mut found = found?;
        found.sort_by_key(|copy| copy.drive);
        match self.space.segments.take_id() {
            Some(id) => Some(RawSegment { id, columns: found }),
            None => {
                self.give_extents(&found);
                None
            }
        }
    }

    /// Gives back what no record names.
    fn untake(&mut self, segments: Vec<RawSegment>) {
        for segment in segments {
            self.give_extents(&segment.columns);
            self.space.segments.give_id(segment.id);
        }
    }

    fn give_extents(&mut self, columns: &[ChunkCopy]) {
        let count = self.identity.sizes().segment_extents();
        for &copy in columns {
            self.space.give_extents(copy, count, self.base.now);
        }
    }
}
