//! Strips that are read as a whole, and what can still be had of one in which something cannot be
//! read: each granule by itself. Otherwise one bad block would take its neighbours along, and what a
//! rebuild then leaves behind, or takes off a drive that leaves, would be less than the drives hold.

use ashlar_block::{ErrorKind, IoBuffer, IoError, Request};

use super::Owner;
use super::invariant::invariant;
use super::mending::{Around, Made, Mending};
use super::space::DriveByte;
use crate::sizes::GRANULE;

/// A strip as it was read.
pub(super) struct Strip {
    bytes: IoBuffer,
    /// Granules that cannot be read, as bits.
    holes: u16,
}

impl Strip {
    /// A granule of it, if it can be read.
    pub(super) fn granule(&self, granule: usize) -> Option<&[u8]> {
        let from = granule * GRANULE;
        let is_hole = self.holes >> granule & 1 != 0;
        let bytes = self.bytes.get(from..from + GRANULE);
        bytes.filter(|_| !is_hole)
    }
}

/// Who reads a strip.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reader {
    /// A scrub or rebuild of mirrors.
    Walk { job: usize, copy: usize },
    /// A slot with parity that is put together.
    Gather { gather: usize, column: usize },
}

/// A strip that is read granule by granule.
pub(super) struct Salvage {
    reader: Reader,
    drive: usize,
    /// Where it begins on its drive.
    byte: u64,
    strip: Strip,
    /// The granule that is being read.
    at: usize,
}

impl Mending {
    /// Reads so many bytes of a drive for a reader.
    pub(super) fn read_strip(
        &mut self,
        reader: Reader,
        at: DriveByte,
        buffer: IoBuffer,
        around: &mut Around<'_>,
    ) {
        let DriveByte { drive, byte } = at;
        let range = around.space.drives.range(drive, byte, buffer.len());
        let owner = Owner::Strip { reader, byte };
        around.send(drive, owner, |tag| Request::read(tag, range, buffer));
    }

    pub(super) fn strip_read(
        &mut self,
        reader: Reader,
        at: DriveByte,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
        around: &mut Around<'_>,
    ) {
        let DriveByte { drive, byte } = at;
        let Some(bytes) = buffer else {
            return self.strip_taken(reader, None, around);
        };
        // A drive that says nothing at all is not asked again for each granule.
        let may_be_partial = |error: &IoError| {
            let kind = error.kind();
            bytes.len() > GRANULE && matches!(kind, ErrorKind::Media | ErrorKind::Corrupt)
        };
        match result {
            Ok(()) => self.strip_taken(reader, Some(Strip { bytes, holes: 0 }), around),
            Err(error) if !may_be_partial(&error) => self.strip_taken(reader, None, around),
            Err(_) => {
                let strip = Strip { bytes, holes: 0 };
                let salvage = self.begin_salvage(Salvage {
                    reader,
                    drive,
                    byte,
                    strip,
                    at: 0,
                });
                self.read_next_granule(salvage, around);
            }
        }
    }

    fn read_next_granule(&mut self, id: usize, around: &mut Around<'_>) {
        let Some(salvage) = self.salvage(id) else {
            return invariant!(around.base, "salvage {id} is not there to go on");
        };
        let (drive, at) = (salvage.drive, salvage.at);
        let byte = salvage.byte + (at * GRANULE) as u64;
        let goes_on = at * GRANULE < salvage.strip.bytes.len()
            && around
                .rebuild
                .is_written(drive as u16, &around.space.drives);
        let buffer = goes_on.then(|| around.buffer(GRANULE)).flatten();
        // The end, or there is no more to be had: the drive is gone, or the memory.
        let Some(buffer) = buffer else {
            let Some(mut salvage) = self.end_salvage(id) else {
                return invariant!(around.base, "salvage {id} is not there to end");
            };
            salvage.strip.holes |= u16::MAX.checked_shl(at as u32).unwrap_or(0);
            return self.strip_taken(salvage.reader, Some(salvage.strip), around);
        };
        let range = around.space.drives.range(drive, byte, GRANULE);
        let owner = Owner::Salvage { salvage: id };
        around.send(drive, owner, |tag| Request::read(tag, range, buffer));
    }

    pub(super) fn granule_salvaged(
        &mut self,
        id: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
        around: &mut Around<'_>,
    ) {
        let Some(salvage) = self.salvage_mut(id) else {
            return invariant!(
                around.base,
                "a granule of salvage {id} is here, but it is not"
            );
        };
        let from = salvage.at * GRANULE;
        match buffer.filter(|_| result.is_ok()) {
            Some(granule) => {
                salvage.strip.bytes[from..from + GRANULE].copy_from_slice(&granule);
            }
            None => salvage.strip.holes |= 1 << salvage.at,
        }
        salvage.at += 1;
        self.read_next_granule(id, around);
    }

    fn strip_taken(&mut self, reader: Reader, strip: Option<Strip>, around: &mut Around<'_>) {
        match reader {
            // A walk ends with the engine.
            Reader::Walk { .. } if around.base.failed.is_some() => {}
            Reader::Walk { job, copy } => self.has_made(Made::Copy { job, copy, strip }),
            Reader::Gather { gather, column } => self.column_read(gather, column, strip, around),
        }
    }
}
