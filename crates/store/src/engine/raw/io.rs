//! Commands of pass-through volumes.

use std::collections::BTreeMap;
use std::ops::Range;

use ashlar_block::{BlockRange, Durability, ErrorKind, IoBuffer, IoError, Operation, Request};

use super::shape::{Piece, Span};
use crate::engine::invariant::invariant;
use crate::engine::{Engine, Op, Owner};
use crate::format::ChunkCopy;

/// Most bytes of zeroes written at once to drives that cannot zero by themselves.
const ZEROES: u64 = 256 << 10;
/// I/Os of one clear that may be on their way before another segment is begun.
const CLEARS: usize = 16;

/// Which I/O.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum RawIo {
    /// A part of a transfer, by its offset in the request's buffer.
    Transfer {
        op: usize,
        offset: usize,
    },
    Flush {
        op: usize,
    },
    /// Zeroing or deallocating `bytes` of a drive from `at` on.
    Clear {
        op: usize,
        at: u64,
        bytes: u64,
    },
    /// Writing zeroes; `left` bytes from `at` on are to follow.
    Zeroes {
        op: usize,
        at: u64,
        left: u64,
    },
}

/// Whom an operation is for.
pub(super) enum Whom {
    Host(Request),
    /// The volume that is being made.
    Making,
}

/// A command of a pass-through volume on its way.
pub(in crate::engine) struct RawOp {
    pub(super) volume: u32,
    pub(super) serial: u64,
    whom: Whom,
    op: Operation,
    /// Parts of the buffer that are back, by offset.
    parts: BTreeMap<usize, IoBuffer>,
    /// I/Os on their way.
    pending: usize,
    /// Granules that a clear has still to begin.
    rest: Range<u64>,
    /// A drive that did not answer has kept a part of the buffer.
    is_torn: bool,
    error: Option<IoError>,
}

impl Engine {
    pub(in crate::engine) fn begin_raw(&mut self, volume: u32, request: Request) {
        if let Some(why) = self.raw.latched.get(&volume) {
            let error = IoError::new(ErrorKind::Latched, why.clone());
            return self.out.done.push(request.complete(Err(error)));
        }
        let (op, range) = (request.op, request.range);
        let granules = range.start.0..range.start.0 + u64::from(range.count);
        match op {
            Operation::Read | Operation::Write(_) => self.begin_transfer(volume, request),
            Operation::Flush => self.begin_raw_flush(volume, Whom::Host(request)),
            Operation::WriteZeroes { .. } | Operation::Deallocate => {
                self.begin_raw_clear(volume, Whom::Host(request), op, granules);
            }
        }
    }

    fn insert_raw(&mut self, volume: u32, whom: Whom, op: Operation, rest: Range<u64>) -> usize {
        let serial = self.waiting.next_serial();
        self.ops.insert(Op::Raw(RawOp {
            volume,
            serial,
            whom,
            op,
            parts: BTreeMap::new(),
            // Its beginning counts as one, so that it cannot end before.
            pending: 1,
            rest,
            is_torn: false,
            error: None,
        }))
    }

    fn raw_op(&mut self, op: usize) -> Option<&mut RawOp> {
        match self.ops.get_mut(op) {
            Some(Op::Raw(raw)) => Some(raw),
            _ => None,
        }
    }

    fn begin_transfer(&mut self, volume: u32, mut request: Request) {
        let (kind, range) = (request.op, request.range);
        let Some(buffer) = request.buffer.take() else {
            return self.out.done.push(request.complete(Ok(())));
        };
        let pieces = self.volumes.get(&volume).map(|entry| {
            let shape = self.raw_shape(entry);
            shape.pieces(range.start.0, u64::from(range.count))
        });
        let op = self.insert_raw(volume, Whom::Host(request), kind, 0..0);
        let mut buffer = Some(buffer);
        for piece in pieces.unwrap_or_default().into_iter().rev() {
            // From the end, so that each split leaves what comes before.
            let part = match (&mut buffer, piece.offset) {
                (whole, 0) => whole.take(),
                (Some(whole), offset) => Some(whole.split_off(offset)),
                (None, _) => None,
            };
            if let Some(part) = part {
                self.transfer(volume, op, kind, piece, part);
            }
        }
        self.raw_part_done(op, Ok(()));
    }

    /// Where a column of a volume's segment is.
    fn raw_column(&self, volume: u32, segment: u64, column: usize) -> Option<ChunkCopy> {
        let segments = self.raw.volumes.get(&volume)?;
        let segment = segments.get(usize::try_from(segment).ok()?)?;
        segment.columns.get(column).copied()
    }

    /// The drive and the byte on it, or why not.
    fn raw_place(
        &self,
        volume: u32,
        segment: u64,
        column: usize,
        at: u64,
    ) -> Result<(usize, u64), IoError> {
        let none = || IoError::new(ErrorKind::Internal, "a block without a place");
        let copy = self.raw_column(volume, segment, column).ok_or_else(none)?;
        if !self.space.drives.in_service(copy.drive) {
            return Err(self.out_of_service(copy.drive));
        }
        let at = self.identity.sizes().extent_at(copy.extent) + at;
        Ok((usize::from(copy.drive), at))
    }

    fn out_of_service(&self, drive: u16) -> IoError {
        let why = format!("drive {drive} is out of service, and nothing else has its blocks");
        IoError::new(ErrorKind::Media, why)
    }

    fn transfer(&mut self, volume: u32, op: usize, kind: Operation, piece: Piece, part: IoBuffer) {
        let Some(raw) = self.raw_op(op) else {
            return invariant!(self, "request {op} of a stripe is not there to be sent");
        };
        raw.pending += 1;
        let offset = piece.offset;
        match self.raw_place(volume, piece.segment, piece.column, piece.at) {
            Ok((drive, at)) => {
                let range = self.space.drives.range(drive, at, part.len());
                let owner = Owner::Raw(RawIo::Transfer { op, offset });
                self.send(drive, owner, |tag| Request {
                    tag,
                    op: kind,
                    range,
                    buffer: Some(part),
                });
            }
            Err(error) => self.transferred(op, offset, Some(part), Err(error)),
        }
    }

    fn transferred(
        &mut self,
        op: usize,
        offset: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        if let Some(raw) = self.raw_op(op) {
            match buffer {
                Some(buffer) => drop(raw.parts.insert(offset, buffer)),
                None => raw.is_torn = true,
            }
        }
        self.raw_part_done(op, result);
    }

    /// A flush of every drive that holds a part of the volume.
    pub(super) fn begin_raw_flush(&mut self, volume: u32, whom: Whom) {
        let op = self.insert_raw(volume, whom, Operation::Flush, 0..0);
        let drives: Vec<u16> = self.raw.drives(volume).collect();
        for drive in drives {
            if !self.space.drives.in_service(drive) {
                let error = self.out_of_service(drive);
                if let Some(raw) = self.raw_op(op) {
                    raw.error = Some(error);
                }
                continue;
            }
            if let Some(raw) = self.raw_op(op) {
                raw.pending += 1;
            }
            let owner = Owner::Raw(RawIo::Flush { op });
            self.send(usize::from(drive), owner, Request::flush);
        }
        self.raw_part_done(op, Ok(()));
    }

    pub(super) fn begin_raw_clear(
        &mut self,
        volume: u32,
        whom: Whom,
        op: Operation,
        granules: Range<u64>,
    ) {
        let op = self.insert_raw(volume, whom, op, granules);
        self.raw_part_done(op, Ok(()));
    }

    /// Begins what a clear has of its next segment.
    fn clear_segment(&mut self, op: usize) {
        let Some(Op::Raw(raw)) = self.ops.get(op) else {
            return invariant!(self, "clear {op} of a stripe is not there to go on");
        };
        let (volume, rest, kind) = (raw.volume, raw.rest.clone(), raw.op);
        let shape = self.volumes.get(&volume).map(|entry| self.raw_shape(entry));
        let begun = shape.map(|shape| {
            let segment = rest.start / shape.segment_granules();
            let next = ((segment + 1) * shape.segment_granules()).min(rest.end);
            (segment, next, shape.spans(segment, &rest))
        });
        let (segment, next, spans) = begun.unwrap_or((0, rest.end, Vec::new()));
        if let Some(raw) = self.raw_op(op) {
            raw.rest.start = next;
            raw.pending += 1;
        }
        for span in spans {
            self.clear_span(op, volume, segment, span, kind);
        }
        self.raw_part_done(op, Ok(()));
    }

    fn clear_span(&mut self, op: usize, volume: u32, segment: u64, span: Span, kind: Operation) {
        let place = self.raw_place(volume, segment, span.column, span.at);
        if let Some(raw) = self.raw_op(op) {
            raw.pending += 1;
        }
        match place {
            Ok((drive, at)) => self.send_clear(op, drive, at, span.bytes, kind),
            Err(error) => self.raw_part_done(op, Err(error)),
        }
    }

    fn send_clear(&mut self, op: usize, drive: usize, at: u64, bytes: u64, kind: Operation) {
        let shift = self.space.drives.shift(drive);
        let range = BlockRange::new(at >> shift, (bytes >> shift) as u32);
        let owner = Owner::Raw(RawIo::Clear { op, at, bytes });
        self.send(drive, owner, |tag| Request {
            tag,
            op: kind,
            range,
            buffer: None,
        });
    }

    /// Writes zeroes to a drive that does not zero by itself, piece by piece.
    fn write_zeroes(&mut self, op: usize, drive: usize, at: u64, bytes: u64) {
        let now = bytes.min(ZEROES);
        let durability = match self.raw_op(op).map(|raw| raw.op) {
            Some(Operation::WriteZeroes { durability, .. }) => durability,
            _ => Durability::Cached,
        };
        let Some(mut buffer) = self.base.memory.get(now as usize) else {
            let error = IoError::new(ErrorKind::Exhausted, "no buffer for zeroes");
            return self.raw_part_done(op, Err(error));
        };
        buffer.fill(0);
        let range = self.space.drives.range(drive, at, buffer.len());
        let owner = Owner::Raw(RawIo::Zeroes {
            op,
            at: at + now,
            left: bytes - now,
        });
        self.send(drive, owner, |tag| {
            Request::write(tag, range, buffer, durability)
        });
    }

    pub(in crate::engine) fn raw_io_done(
        &mut self,
        io: RawIo,
        drive: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        let result = result.map_err(|error| of_drive(drive, error));
        match io {
            RawIo::Transfer { op, offset } => self.transferred(op, offset, buffer, result),
            RawIo::Flush { op } => {
                if let Err(error) = &result {
                    // It also spoke for what the map and the homes have there.
                    self.drive_failed(drive, error);
                }
                self.raw_part_done(op, result);
            }
            RawIo::Clear { op, at, bytes } => match (&result, self.raw_op(op).map(|raw| raw.op)) {
                (Err(error), Some(kind)) if error.kind() == ErrorKind::Unsupported => match kind {
                    // Nothing has to happen.
                    Operation::Deallocate => self.raw_part_done(op, Ok(())),
                    _ => self.write_zeroes(op, drive, at, bytes),
                },
                _ => self.raw_part_done(op, result),
            },
            RawIo::Zeroes { op, at, left } if result.is_ok() && left > 0 => {
                self.write_zeroes(op, drive, at, left);
            }
            RawIo::Zeroes { op, .. } => self.raw_part_done(op, result),
        }
    }

    fn raw_part_done(&mut self, op: usize, result: Result<(), IoError>) {
        let Some(raw) = self.raw_op(op) else {
            return invariant!(
                self,
                "a part of request {op} of a stripe is done, but it is not there"
            );
        };
        if let Err(error) = result {
            raw.error.get_or_insert(error);
        }
        raw.pending -= 1;
        let goes_on = raw.error.is_none() && !raw.rest.is_empty();
        if goes_on && raw.pending < CLEARS {
            self.clear_segment(op);
        } else if raw.pending == 0 {
            self.end_raw(op);
        }
    }

    fn end_raw(&mut self, op: usize) {
        let Some(Op::Raw(raw)) = self.ops.try_remove(op) else {
            return invariant!(self, "request {op} of a stripe has ended twice");
        };
        let result = raw.error.map_or(Ok(()), Err);
        if let (Err(error), Operation::Flush) = (&result, raw.op) {
            let why = format!("a flush has failed, and what it was for may be lost: {error}");
            self.raw.latched.insert(raw.volume, why);
        }
        let mut request = match raw.whom {
            Whom::Making => return self.making_done(result),
            Whom::Host(request) => request,
        };
        let mut parts = raw.parts.into_values();
        let mut whole = parts.next();
        if raw.is_torn {
            return self.out.done.push(
                Request {
                    buffer: None,
                    ..request
                }
                .complete(result),
            );
        }
        for part in parts {
            if let Some(buffer) = &mut whole
                && buffer.join(part).is_err()
            {
                self.fail("a buffer did not fit together again".into());
            }
        }
        request.buffer = whole;
        self.out.done.push(request.complete(result));
    }
}

/// A drive's error, with the drive. That a part had no effect does not mean that the whole had none.
fn of_drive(drive: usize, error: IoError) -> IoError {
    let kind = match error.kind() {
        ErrorKind::NotSent | ErrorKind::Aborted => ErrorKind::Disconnected,
        kind => kind,
    };
    IoError::with_source(kind, format!("drive {drive}"), error)
}
