//! Parts of a read whose drive is slow, or has not answered at all: they are read elsewhere. The drive keeps
//! their memory meanwhile, so they get other, and the read is put together at its end.

use ashlar_block::{ErrorKind, IoError};

use super::columns::StripsOf;
use super::{Around, Part, ReadOp, Reads, Source};
use crate::engine::space::segment_and_slot;
use crate::sizes::GRANULE;

impl Reads {
    /// Reads a part elsewhere whose drive is slow; false if there is no other place.
    pub(in crate::engine) fn part_elsewhere(
        &mut self,
        op: usize,
        at: u32,
        around: &mut Around<'_>,
    ) -> bool {
        let Some(read) = self.ops.get_mut(op) else {
            return false;
        };
        let Some(mut part) = read.parts.remove(at) else {
            return false;
        };
        let lies_elsewhere = !part.is_patient && around.lies_elsewhere(&part);
        let buffer = lies_elsewhere.then(|| around.base.memory.get(part.wanted.len() * GRANULE));
        let Some(buffer) = buffer.flatten() else {
            self.put_part(op, at, part);
            return false;
        };
        part.slow |= 1 << part.drive;
        part.buffer = buffer;
        self.put_part(op, at, part);
        if let Some(read) = self.ops.get_mut(op) {
            read.is_scattered = true;
        }
        self.start_part(op, at, around);
        // Not before: as where a part's answer is here.
        if let Some(read) = self.ops.get_mut(op) {
            read.pending -= 1;
        }
        self.end_if_done(op, around);
        true
    }

    /// The same for parts that one request reads into memory of our own.
    pub(in crate::engine) fn strips_elsewhere(
        &mut self,
        of: StripsOf,
        around: &mut Around<'_>,
    ) -> bool {
        let StripsOf { op, first, drive } = of;
        let Some(read) = self.ops.get(op) else {
            return false;
        };
        let parts = read.strips.get(&first).cloned().unwrap_or_default();
        let is_movable = {
            let mut theirs = read.parts.iter().filter(|(at, _)| parts.contains(at));
            theirs.all(|(_, part)| around.other_columns(part, drive))
        };
        if parts.is_empty() || !is_movable {
            return false;
        }
        if let Some(read) = self.ops.get_mut(op) {
            read.strips.remove(&first);
        }
        for at in parts {
            let Some(read) = self.ops.get_mut(op) else {
                return true;
            };
            if let Some(mut part) = read.parts.remove(at) {
                part.slow |= 1 << drive;
                part.drive = drive;
                self.put_part(op, at, part);
                self.start_part(op, at, around);
            }
        }
        if let Some(read) = self.ops.get_mut(op) {
            read.pending -= 1;
        }
        self.end_if_done(op, around);
        true
    }

    /// Nothing else is left that could be read: a drive that was only slow is asked once more, and waited for.
    pub(super) fn lose_unless_slow(
        &mut self,
        op: usize,
        at: u32,
        mut part: Part,
        around: &mut Around<'_>,
    ) {
        if part.slow == 0 {
            return self.lose_part(op, at, part, around);
        }
        part.slow = 0;
        part.is_patient = true;
        self.put_part(op, at, part);
        self.start_part(op, at, around);
    }

    /// Other memory for a part whose drive has kept what it was given; false if there is none.
    pub(super) fn replace_buffer(
        &mut self,
        op: usize,
        part: &mut Part,
        around: &mut Around<'_>,
    ) -> bool {
        let buffer = around.base.memory.get(part.wanted.len() * GRANULE);
        let has_some = buffer.is_some();
        part.done = !has_some;
        if let Some(buffer) = buffer {
            part.buffer = buffer;
        }
        if let Some(read) = self.ops.get_mut(op) {
            read.is_scattered = true;
            if !has_some {
                read.error = Some(no_memory());
            }
        }
        has_some
    }

    /// Puts the parts of a read together in memory of our own.
    pub(super) fn end_scattered(&mut self, mut read: ReadOp, around: &mut Around<'_>) {
        let bytes = read.request.range.count as usize * GRANULE;
        let mut whole = around.base.memory.get(bytes);
        let mut is_whole = whole.is_some();
        for (at, part) in read.parts.0 {
            let from = at as usize * GRANULE;
            let to = whole.as_mut();
            let to = to.and_then(|whole| whole.get_mut(from..from + part.buffer.len()));
            match to {
                Some(to) => to.copy_from_slice(&part.buffer),
                None => is_whole = false,
            }
        }
        read.request.buffer = whole;
        let result = match (read.error, is_whole) {
            (Some(error), _) => Err(error),
            (None, true) => Ok(()),
            (None, false) => Err(no_memory()),
        };
        around.base.complete(read.request, result);
    }
}

impl Around<'_> {
    /// Whether a part can be read without the drive that it is being read from, and others that are slow.
    fn lies_elsewhere(&self, part: &Part) -> bool {
        let asked = part.tried | part.slow | 1 << part.drive;
        let copies = self.copies(part.wanted[0].source);
        let quick = |drive: usize| asked & 1 << drive == 0 && !self.base.drive_io.is_slow(drive);
        copies.iter().any(|&(drive, _)| quick(drive)) || self.other_columns(part, part.drive)
    }

    /// Whether enough other columns of a slot with parity answer.
    fn other_columns(&self, part: &Part, slow: usize) -> bool {
        let Source::Home(location, _) = part.wanted[0].source else {
            return false;
        };
        let segment = segment_and_slot(location).0;
        let found = self.space.segments.get(segment);
        found.is_some_and(|found| {
            let others = found.columns.iter().filter(|copy| {
                let drive = usize::from(copy.drive);
                self.space.drives.in_service(copy.drive)
                    && drive != slow
                    && !self.base.drive_io.is_slow(drive)
            });
            let is_cut = !found.shape.is_mirror() && part.tried == 0;
            is_cut && others.count() >= usize::from(found.shape.data)
        })
    }
}

fn no_memory() -> IoError {
    IoError::new(ErrorKind::Exhausted, "no memory to answer a read")
}
