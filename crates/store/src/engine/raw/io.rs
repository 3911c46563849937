//! Commands of pass-through volumes.

use std::collections::BTreeMap;
use std::ops::Range;

use ashlar_block::{BlockRange, Durability, ErrorKind, IoBuffer, IoError, Operation, Request};

use super::shape::{Piece, Span};
use super::{Around, Raw};
use crate::engine::Owner;
use crate::engine::invariant::invariant;
use crate::engine::space::DriveByte;

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

impl RawIo {
    /// Whether it is a flush: one that fails has also spoken for what the map and the homes have on its drive.
    pub(in crate::engine) fn is_flush(self) -> bool {
        matches!(self, Self::Flush { .. })
    }
}

/// A drive's answer to one.
pub(in crate::engine) struct Answer {
    pub(in crate::engine) drive: usize,
    pub(in crate::engine) buffer: Option<IoBuffer>,
    pub(in crate::engine) result: Result<(), IoError>,
}

/// Whom an operation is for.
pub(super) enum Whom {
    Host(Request),
    /// The volume that is being made.
    Making,
}

/// A command of a pass-through volume on its way.
pub(super) struct RawOp {
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

impl Raw {
    /// A host's command has come.
    pub(in crate::engine) fn begin(
        &mut self,
        volume: u32,
        request: Request,
        around: &mut Around<'_>,
    ) {
        if let Some(why) = self.latched.get(&volume) {
            let error = IoError::new(ErrorKind::Latched, why.clone());
            return around.base.complete(request, Err(error));
        }
        let (op, range) = (request.op, request.range);
        let granules = range.start.0..range.start.0 + u64::from(range.count);
        match op {
            Operation::Read | Operation::Write(_) => self.begin_transfer(volume, request, around),
            Operation::Flush => self.begin_flush(volume, Whom::Host(request), around),
            Operation::WriteZeroes { .. } | Operation::Deallocate => {
                self.begin_clear(volume, Whom::Host(request), op, granules, around);
            }
        }
    }

    fn insert(&mut self, volume: u32, whom: Whom, op: Operation, rest: Range<u64>) -> usize {
        self.serial += 1;
        self.ops.insert(RawOp {
            volume,
            serial: self.serial,
            whom,
            op,
            parts: BTreeMap::new(),
            // Its beginning counts as one, so that it cannot end before.
            pending: 1,
            rest,
            is_torn: false,
            error: None,
        })
    }

    fn begin_transfer(&mut self, volume: u32, mut request: Request, around: &mut Around<'_>) {
        let (kind, range) = (request.op, request.range);
        let Some(buffer) = request.buffer.take() else {
            return around.base.complete(request, Ok(()));
        };
        let shape = around.shape(volume);
        let pieces = shape.map(|shape| shape.pieces(range.start.0, u64::from(range.count)));
        let op = self.insert(volume, Whom::Host(request), kind, 0..0);
        let mut buffer = Some(buffer);
        for piece in pieces.unwrap_or_default().into_iter().rev() {
            // From the end, so that each split leaves what comes before.
            let part = match (&mut buffer, piece.offset) {
                (whole, 0) => whole.take(),
                (Some(whole), offset) => Some(whole.split_off(offset)),
                (None, _) => None,
            };
            if let Some(part) = part {
                self.transfer(op, piece, part, around);
            }
        }
        self.part_done(op, Ok(()), around);
    }

    /// The drive and the byte on it of a column of a volume's segment, or why not.
    fn place(
        &self,
        volume: u32,
        segment: u64,
        span: Span,
        around: &Around<'_>,
    ) -> Result<DriveByte, IoError> {
        let segments = self.volumes.get(&volume);
        let segment = usize::try_from(segment).ok();
        let segment = segments.and_then(|segments| segments.get(segment?));
        let copy = segment.and_then(|segment| segment.columns.get(span.column));
        let none = || IoError::new(ErrorKind::Internal, "a block without a place");
        let copy = copy.ok_or_else(none)?;
        if !around.space.drives.in_service(copy.drive) {
            return Err(out_of_service(copy.drive));
        }
        Ok(DriveByte {
            drive: usize::from(copy.drive),
            byte: around.identity.sizes().extent_at(copy.extent) + span.at,
        })
    }

    fn transfer(&mut self, op: usize, piece: Piece, part: IoBuffer, around: &mut Around<'_>) {
        let Some(raw) = self.ops.get_mut(op) else {
            return invariant!(
                around.base,
                "request {op} of a stripe is not there to be sent"
            );
        };
        raw.pending += 1;
        let (volume, kind, offset) = (raw.volume, raw.op, piece.offset);
        match self.place(volume, piece.segment, piece.span(), around) {
            Ok(DriveByte { drive, byte }) => {
                let range = around.space.drives.range(drive, byte, part.len());
                let owner = Owner::Raw(RawIo::Transfer { op, offset });
                around.send(drive, owner, |tag| Request {
                    tag,
                    op: kind,
                    range,
                    buffer: Some(part),
                });
            }
            Err(error) => self.transferred(op, offset, Some(part), Err(error), around),
        }
    }

    fn transferred(
        &mut self,
        op: usize,
        offset: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
        around: &mut Around<'_>,
    ) {
        if let Some(raw) = self.ops.get_mut(op) {
            match buffer {
                Some(buffer) => drop(raw.parts.insert(offset, buffer)),
                None => raw.is_torn = true,
            }
        }
        self.part_done(op, result, around);
    }

    /// A flush of every drive that holds a part of the volume.
    pub(super) fn begin_flush(&mut self, volume: u32, whom: Whom, around: &mut Around<'_>) {
        let op = self.insert(volume, whom, Operation::Flush, 0..0);
        let drives: Vec<u16> = self.drives(volume).collect();
        for drive in drives {
            if !around.space.drives.in_service(drive) {
                let error = out_of_service(drive);
                if let Some(raw) = self.ops.get_mut(op) {
                    raw.error = Some(error);
                }
                continue;
            }
            if let Some(raw) = self.ops.get_mut(op) {
                raw.pending += 1;
            }
            let owner = Owner::Raw(RawIo::Flush { op });
            around.send(usize::from(drive), owner, Request::flush);
        }
        self.part_done(op, Ok(()), around);
    }

    pub(super) fn begin_clear(
        &mut self,
        volume: u32,
        whom: Whom,
        op: Operation,
        granules: Range<u64>,
        around: &mut Around<'_>,
    ) {
        let op = self.insert(volume, whom, op, granules);
        self.part_done(op, Ok(()), around);
    }

    /// Begins what a clear has of its next segment.
    fn clear_segment(&mut self, op: usize, around: &mut Around<'_>) {
        let Some(raw) = self.ops.get(op) else {
            return invariant!(around.base, "clear {op} of a stripe is not there to go on");
        };
        let rest = raw.rest.clone();
        let begun = around.shape(raw.volume).map(|shape| {
            let segment = rest.start / shape.segment_granules();
            let next = ((segment + 1) * shape.segment_granules()).min(rest.end);
            (segment, next, shape.spans(segment, &rest))
        });
        let (segment, next, spans) = begun.unwrap_or((0, rest.end, Vec::new()));
        if let Some(raw) = self.ops.get_mut(op) {
            raw.rest.start = next;
            raw.pending += 1;
        }
        for span in spans {
            self.clear_span(op, segment, span, around);
        }
        self.part_done(op, Ok(()), around);
    }

    fn clear_span(&mut self, op: usize, segment: u64, span: Span, around: &mut Around<'_>) {
        let Some(raw) = self.ops.get_mut(op) else {
            return invariant!(
                around.base,
                "clear {op} of a stripe has gone while it began"
            );
        };
        raw.pending += 1;
        let (volume, kind) = (raw.volume, raw.op);
        let (drive, at) = match self.place(volume, segment, span, around) {
            Ok(DriveByte { drive, byte }) => (drive, byte),
            Err(error) => return self.part_done(op, Err(error), around),
        };
        let (bytes, shift) = (span.bytes, around.space.drives.shift(drive));
        let range = BlockRange::new(at >> shift, (bytes >> shift) as u32);
        let owner = Owner::Raw(RawIo::Clear { op, at, bytes });
        around.send(drive, owner, |tag| Request {
            tag,
            op: kind,
            range,
            buffer: None,
        });
    }

    /// Writes zeroes to a drive that does not zero by itself, piece by piece.
    fn write_zeroes(&mut self, op: usize, to: DriveByte, bytes: u64, around: &mut Around<'_>) {
        let DriveByte { drive, byte: at } = to;
        let now = bytes.min(ZEROES);
        let durability = match self.ops.get_mut(op).map(|raw| raw.op) {
            Some(Operation::WriteZeroes { durability, .. }) => durability,
            _ => Durability::Cached,
        };
        let Some(mut buffer) = around.base.memory.get(now as usize) else {
            let error = IoError::new(ErrorKind::Exhausted, "no buffer for zeroes");
            return self.part_done(op, Err(error), around);
        };
        buffer.fill(0);
        let range = around.space.drives.range(drive, at, buffer.len());
        let owner = Owner::Raw(RawIo::Zeroes {
            op,
            at: at + now,
            left: bytes - now,
        });
        around.send(drive, owner, |tag| {
            Request::write(tag, range, buffer, durability)
        });
    }

    /// A drive has answered.
    pub(in crate::engine) fn io_done(
        &mut self,
        io: RawIo,
        answer: Answer,
        around: &mut Around<'_>,
    ) {
        let Answer {
            drive,
            buffer,
            result,
        } = answer;
        match io {
            RawIo::Transfer { op, offset } => self.transferred(op, offset, buffer, result, around),
            RawIo::Flush { op } => self.part_done(op, result, around),
            RawIo::Clear { op, at, bytes } => {
                match (&result, self.ops.get_mut(op).map(|raw| raw.op)) {
                    (Err(error), Some(kind)) if error.kind() == ErrorKind::Unsupported => {
                        match kind {
                            // Nothing has to happen.
                            Operation::Deallocate => self.part_done(op, Ok(()), around),
                            _ => {
                                self.write_zeroes(op, DriveByte { drive, byte: at }, bytes, around)
                            }
                        }
                    }
                    _ => self.part_done(op, result, around),
                }
            }
            RawIo::Zeroes { op, at, left } if result.is_ok() && left > 0 => {
                self.write_zeroes(op, DriveByte { drive, byte: at }, left, around);
            }
            RawIo::Zeroes { op, .. } => self.part_done(op, result, around),
        }
    }

    fn part_done(&mut self, op: usize, result: Result<(), IoError>, around: &mut Around<'_>) {
        let Some(raw) = self.ops.get_mut(op) else {
            return invariant!(
                around.base,
                "a part of request {op} of a stripe is done, but it is not there"
            );
        };
        if let Err(error) = result {
            raw.error.get_or_insert(error);
        }
        raw.pending -= 1;
        let goes_on = raw.error.is_none() && !raw.rest.is_empty();
        if goes_on && raw.pending < CLEARS {
            self.clear_segment(op, around);
        } else if raw.pending == 0 {
            self.end(op, around);
        }
    }

    fn end(&mut self, op: usize, around: &mut Around<'_>) {
        let Some(raw) = self.ops.try_remove(op) else {
            return invariant!(around.base, "request {op} of a stripe has ended twice");
        };
        let result = raw.error.map_or(Ok(()), Err);
        if let (Err(error), Operation::Flush) = (&result, raw.op) {
            let why = format!("a flush has failed, and what it was for may be lost: {error}");
            self.latched.insert(raw.volume, why);
        }
        let mut request = match raw.whom {
            Whom::Making => return self.making_done(result, around),
            Whom::Host(request) => request,
        };
        let mut parts = raw.parts.into_values();
        let mut whole = parts.next();
        if raw.is_torn {
            return around.base.complete(request, result);
        }
        for part in parts {
            if let Some(buffer) = &mut whole
                && buffer.join(part).is_err()
            {
                around
                    .base
                    .fail("a buffer did not fit together again".into());
            }
        }
        request.buffer = whole;
        around.base.complete(request, result);
    }
}

fn out_of_service(drive: u16) -> IoError {
    let why = format!("drive {drive} is out of service, and nothing else has its blocks");
    IoError::new(ErrorKind::Media, why)
}

/// A drive's error, with the drive. That a part had no effect does not mean that the whole had none.
pub(in crate::engine) fn of_drive(drive: usize, error: IoError) -> IoError {
    let kind = match error.kind() {
        ErrorKind::NotSent | ErrorKind::Aborted => ErrorKind::Disconnected,
        kind => kind,
    };
    IoError::with_source(kind, format!("drive {drive}"), error)
}
