//! Pass-through volumes (`stripe`): in place, without log, checksum or redundancy. What drives say is
//! what hosts hear.
//!
//! | file | what |
//! |-|-|
//! | `shape` | where granules are |
//! | `io` | commands: split, sent to drives, joined |
//! | `make` | space: taken, zeroed and recorded; given back |
//!
//! A drive's error is an error of the request that met it, and is counted where the drive is driven.
//! A failed read or write excludes no drive: logs, roots and checkpoints write to every drive in
//! service, so one that is gone leaves by that, and leaving out one that only lost a block of this
//! volume would cost the others their copies, and this volume everything it has there. A failed
//! *flush* does exclude: it also spoke for pages and homes that others had written there, and no later
//! one would. The volume then refuses everything until the pool is imported again.

mod io;
mod make;
mod shape;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ashlar_block::{BlockSize, Geometry, Request};
use slab::Slab;

use super::Owner;
use super::base::{Base, To};
use super::drives::Drives;
use super::identity::Identity;
use super::journal::logs::Logs;
use super::journal::{Journal, StagedChange};
use super::space::{DriveCounts, Space};
use super::volumes::VolumeTable;
use crate::format::{ChunkCopy, VolumeEntry};
use crate::{Layout, Sizes};
use io::{RawIo, RawOp};
use shape::Shape;

pub(super) use io::{Answer, of_drive};

/// A part of a volume: a run of slots on each of its columns.
#[derive(Clone, Debug)]
pub(crate) struct RawSegment {
    pub(crate) id: u32,
    pub(crate) columns: Vec<ChunkCopy>,
}

/// The parts of a volume, in order. Which drives they are on is counted as they change: there may be a million.
#[derive(Default)]
pub(crate) struct RawSegments {
    list: Vec<RawSegment>,
    on: DriveCounts,
    columns: u64,
    /// Segments that were walked over, for tests.
    steps: Cell<u64>,
}

impl RawSegments {
    fn len(&self) -> usize {
        self.list.len()
    }

    fn get(&self, at: usize) -> Option<&RawSegment> {
        self.list.get(at)
    }

    /// All from one on.
    fn from(&self, at: usize) -> &[RawSegment] {
        let rest = self.list.get(at..).unwrap_or_default();
        self.steps.set(self.steps.get() + rest.len() as u64);
        rest
    }

    fn extend(&mut self, more: Vec<RawSegment>) {
        for segment in &more {
            self.on.add(&segment.columns);
            self.columns += segment.columns.len() as u64;
        }
        self.list.extend(more);
    }

    fn split_off(&mut self, at: usize) -> Vec<RawSegment> {
        let tail = self.list.split_off(at.min(self.list.len()));
        for segment in &tail {
            self.on.remove(&segment.columns);
            self.columns -= segment.columns.len() as u64;
        }
        tail
    }
}

/// What the engine knows of pass-through volumes.
#[derive(Default)]
pub(crate) struct Raw {
    /// Commands under way, and the number of the last one, to know older from younger.
    ops: Slab<RawOp>,
    serial: u64,
    /// Segments by volume and ordinal, also of volumes that are being made or are gone.
    volumes: BTreeMap<u32, RawSegments>,
    /// Segments on their way back, by number: whose they were, and what they hold until then.
    freeing: BTreeMap<u32, (u32, Vec<ChunkCopy>)>,
    freeing_on: DriveCounts,
    /// Volumes being made or grown; the first one is worked on.
    makings: VecDeque<make::Making>,
    /// Volumes whose last segments can go once commands older than a serial are through.
    trims: Vec<(u32, u64)>,
    /// Changes that wait for room in the map log, and how many of segments are on their way.
    queue: VecDeque<StagedChange>,
    unpublished: usize,
    /// Volumes whose entry is about to change.
    changing: BTreeSet<u32>,
    /// Volumes whose flush has failed, and why.
    latched: BTreeMap<u32, String>,
}

/// Which I/O of a pass-through volume.
pub(super) type Io = RawIo;

/// Segments that a volume of so many granules has.
pub(crate) fn segments(columns: u8, slots: u32, granules: u64) -> usize {
    let shape = Shape {
        columns: u64::from(columns),
        slots: u64::from(slots),
    };
    shape.segments(granules)
}

impl Raw {
    pub(crate) fn new(volumes: BTreeMap<u32, Vec<RawSegment>>) -> Self {
        let counted = volumes.into_iter().map(|(volume, list)| {
            let mut segments = RawSegments::default();
            segments.extend(list);
            (volume, segments)
        });
        Self {
            volumes: counted.collect(),
            ..Self::default()
        }
    }

    /// Columns that a volume has.
    fn columns(&self, volume: u32) -> u64 {
        self.volumes
            .get(&volume)
            .map_or(0, |segments| segments.columns)
    }

    /// Drives that a volume is on.
    fn drives(&self, volume: u32) -> impl Iterator<Item = u16> {
        let segments = self.volumes.get(&volume).into_iter();
        segments.flat_map(|segments| segments.on.drives())
    }

    /// Segments that were walked over since the import, for tests.
    #[cfg(feature = "canary")]
    pub(super) fn steps(&self) -> u64 {
        self.volumes
            .values()
            .map(|segments| segments.steps.get())
            .sum()
    }

    /// A volume with columns on a drive.
    pub(super) fn volume_on(&self, drive: u16) -> Option<u32> {
        let mut volumes = self.volumes.iter();
        let found = volumes.find(|(_, segments)| segments.on.on(usize::from(drive)) > 0);
        found.map(|(&volume, _)| volume)
    }

    /// Columns of all segments that there are, or were until just now.
    pub(super) fn all_columns(&self) -> impl Iterator<Item = ChunkCopy> {
        let there = self.volumes.values().flat_map(|segments| &segments.list);
        let there = there.flat_map(|segment| segment.columns.iter().copied());
        let freeing = self.freeing.values().flat_map(|(_, columns)| columns);
        there.chain(freeing.copied())
    }

    /// Whether a volume is being made or grown.
    pub(super) fn is_making(&self) -> bool {
        !self.makings.is_empty()
    }

    /// Whether no command is under way.
    pub(super) fn has_no_commands(&self) -> bool {
        self.ops.is_empty()
    }

    /// What hosts are told of such a volume: nothing that its drives do not promise.
    pub(super) fn geometry(&self, volume: u32, granules: u64, drives: &Drives) -> Geometry {
        let on = self.drives(volume);
        let on = on.filter_map(|drive| drives.geometry(usize::from(drive)));
        let on: Vec<&Geometry> = on.collect();
        Geometry {
            optimal_blocks: crate::sizes::UNIT_GRANULES as u32,
            volatile_cache: on.iter().any(|geometry| geometry.volatile_cache),
            deallocates: on.iter().any(|geometry| geometry.deallocates),
            ..Geometry::plain(BlockSize::B4096, granules)
        }
    }

    /// Why a pass-through volume does not serve all its blocks, if it does not.
    pub(super) fn trouble(&self, volume: u32, drives: &Drives) -> Option<String> {
        if let Some(why) = self.latched.get(&volume) {
            return Some(why.clone());
        }
        let out = self.drives(volume);
        let out = out.filter(|&drive| !drives.in_service(drive));
        let out: Vec<String> = out.map(|drive| drive.to_string()).collect();
        let which = out.join(", ");
        (!out.is_empty()).then(|| format!("blocks on drives out of service ({which}) are lost"))
    }

    /// A drive is a member again that was left out. If that was since the import, what hosts had not had it flush by then
    /// may be gone, and no later flush would say so.
    pub(super) fn drive_returned(&mut self, drive: u16, drives: &Drives) {
        if drives.record().why_out(usize::from(drive)).is_none() {
            return;
        }
        let volumes = self.volumes.iter();
        let on = volumes.filter(|(_, segments)| segments.on.on(usize::from(drive)) > 0);
        for (&volume, _) in on {
            let why =
                format!("drive {drive} was out of service: what it had not flushed may be lost");
            self.latched.entry(volume).or_insert(why);
        }
    }

    /// Bytes that a pass-through volume takes of its drives.
    pub(super) fn bytes(&self, volume: u32, sizes: &Sizes) -> u64 {
        self.columns(volume) * sizes.segment_bytes()
    }

    /// Whether anything on a drive is, or was until just now, part of such a volume.
    pub(super) fn is_on(&self, drive: u16) -> bool {
        self.volume_on(drive).is_some() || self.freeing_on.on(usize::from(drive)) > 0
    }
}

/// What commands and space of pass-through volumes may use.
pub(super) struct Around<'a> {
    pub(super) base: &'a mut Base,
    pub(super) identity: &'a Identity,
    pub(super) space: &'a mut Space,
    pub(super) volumes: &'a mut VolumeTable,
    pub(super) journal: &'a mut Journal,
    pub(super) logs: &'a Logs,
}

impl Around<'_> {
    fn send(&mut self, drive: usize, owner: Owner, request: impl FnOnce(u64) -> Request) {
        let to = To::of(&self.space.drives, drive, owner);
        self.base.send(to, request);
    }

    fn shape(&self, volume: u32) -> Option<Shape> {
        let entry = self.volumes.get(&volume)?;
        Some(shape_of(entry, self.identity))
    }
}

fn shape_of(entry: &VolumeEntry, identity: &Identity) -> Shape {
    let columns = match entry.layout {
        Layout::Stripe { columns } => columns,
        // Not passed through: it is not asked for.
        Layout::Mirror { .. } | Layout::Parity { .. } => 1,
    };
    Shape {
        columns: u64::from(columns),
        slots: u64::from(identity.sizes().segment_slots),
    }
}
