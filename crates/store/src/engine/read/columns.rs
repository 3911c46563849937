//! Reads of neighbouring slots with parity. A column has their strips side by side, which belong to
//! pieces of the host's buffer that are not: they are read together, into memory of our own, and
//! copied.

use std::collections::BTreeSet;

use ashlar_block::{IoBuffer, IoError, Request};

use super::{Around, Reads, Source, Told};
use crate::engine::Owner;
use crate::engine::class::Class;
use crate::engine::invariant::invariant;
use crate::engine::segment_table::HomeSegment;
use crate::engine::space::segment_and_slot;
use crate::sizes::{GRANULE, UNIT_BYTES};

/// A part of a read as a column has it.
struct Strip {
    drive: usize,
    byte: u64,
    bytes: usize,
    /// Which part of the read it is.
    at: u32,
}

/// Strips of a read that a drive was asked for together.
#[derive(Clone, Copy)]
pub(in crate::engine) struct StripsOf {
    pub(in crate::engine) op: usize,
    /// The first of them.
    pub(in crate::engine) first: u32,
    pub(in crate::engine) drive: usize,
}

impl Reads {
    /// Begins to read parts that lie side by side on their columns; returns which those are.
    pub(super) fn read_strips(&mut self, op: usize, around: &mut Around<'_>) -> BTreeSet<u32> {
        let mut together = BTreeSet::new();
        for run in runs(self.strips(op, around)) {
            let bytes = run.iter().map(|strip| strip.bytes).sum();
            // Without memory each part is read by itself, into the host's.
            let buffer = (!around.base.is_short_of_memory(around.logs))
                .then(|| around.base.memory.get(bytes));
            let Some(buffer) = buffer.flatten() else {
                continue;
            };
            let (drive, first) = (run[0].drive, run[0].at);
            let range = around.space.drives.range(drive, run[0].byte, bytes);
            let parts: Vec<u32> = run.iter().map(|strip| strip.at).collect();
            together.extend(&parts);
            if let Some(read) = self.ops.get_mut(op) {
                read.pending += 1;
                read.strips.insert(first, parts);
            }
            around.send(drive, Owner::ReadStrips { op, first }, |tag| {
                Request::read(tag, range, buffer)
            });
        }
        together
    }

    /// The parts of a read that are strips of columns in service, in the order of the columns.
    fn strips(&self, op: usize, around: &Around<'_>) -> Vec<Strip> {
        let Some(read) = self.ops.get(op) else {
            return Vec::new();
        };
        let class = around.volumes.class_of(read.volume);
        if !class.is_some_and(Class::has_parity) {
            return Vec::new();
        }
        // Most are in one segment.
        let (mut last, mut found) = (0, None);
        let strip = |(at, part): (u32, &super::Part)| {
            let Source::Home(location, inner) = part.wanted[0].source else {
                return None;
            };
            let (segment, slot) = segment_and_slot(location);
            if segment != last {
                (last, found) = (segment, around.space.segments.get(segment));
            }
            let HomeSegment { shape, columns, .. } = found?;
            if shape.is_mirror() {
                return None;
            }
            let (column, row) = shape.place(inner as usize);
            let column = *columns.get(column)?;
            let byte =
                shape.strip_at(around.identity.sizes(), column, slot) + (row * GRANULE) as u64;
            around
                .space
                .drives
                .in_service(column.drive)
                .then_some(Strip {
                    drive: usize::from(column.drive),
                    byte,
                    bytes: part.buffer.len(),
                    at,
                })
        };
        let mut strips: Vec<Strip> = read.parts.iter().filter_map(strip).collect();
        strips.sort_unstable_by_key(|strip| (strip.drive, strip.byte));
        strips
    }

    pub(in crate::engine) fn strips_read(
        &mut self,
        of: StripsOf,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
        around: &mut Around<'_>,
    ) {
        let StripsOf { op, first, drive } = of;
        let Some(read) = self.ops.get_mut(op) else {
            return invariant!(around.base, "strips of read {op} are here, but it is not");
        };
        let mut rest = buffer.as_deref();
        for at in read.strips.remove(&first).unwrap_or_default() {
            let Some(read) = self.ops.get_mut(op) else {
                return invariant!(around.base, "read {op} ends while parts of it are here");
            };
            let Some(mut part) = read.parts.remove(at) else {
                continue;
            };
            if let Some((bytes, behind)) = rest.map(|rest| rest.split_at(part.buffer.len())) {
                rest = Some(behind);
                part.buffer.copy_from_slice(bytes);
            }
            part.drive = drive;
            self.part_read(op, at, part, Told::by(&result, false), around);
        }
        if let Some(read) = self.ops.get_mut(op) {
            read.pending -= 1;
        }
        self.end_if_done(op, around);
    }
}

/// Two or more strips side by side, of no more than 64 KiB.
fn runs(strips: Vec<Strip>) -> Vec<Vec<Strip>> {
    let mut runs: Vec<(Vec<Strip>, usize)> = Vec::new();
    for strip in strips {
        match runs.last_mut() {
            Some((run, bytes))
                if run.last().is_some_and(|last| last.is_before(&strip))
                    && *bytes + strip.bytes <= UNIT_BYTES as usize =>
            {
                *bytes += strip.bytes;
                run.push(strip);
            }
            _ => {
                let bytes = strip.bytes;
                runs.push((vec![strip], bytes));
            }
        }
    }
    let runs = runs.into_iter().map(|(run, _)| run);
    runs.filter(|run| run.len() > 1).collect()
}

impl Strip {
    fn is_before(&self, next: &Self) -> bool {
        self.drive == next.drive && self.byte + self.bytes as u64 == next.byte
    }
}
