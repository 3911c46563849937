//! A batch of data, put together in the buffer that is written.

use super::batches::{Records, Span};
use crate::format::{Descriptor, Kind, Salt, metadata_bytes};
use crate::sizes::GRANULE;

/// The bytes of a batch with so many records of so many granules in all.
pub const fn batch_bytes(records: usize, granules: usize) -> usize {
    metadata_bytes(records, granules) + granules * GRANULE
}

/// Records of data and their bytes.
#[derive(Debug)]
pub struct Composer<'a> {
    salt: Salt,
    buffer: &'a mut [u8],
    data: std::ops::Range<usize>,
    records: Vec<Descriptor>,
    crcs: Vec<u32>,
}

impl<'a> Composer<'a> {
    /// Into a buffer of [`batch_bytes`] for so many records and granules.
    pub fn new(buffer: &'a mut [u8], (records, granules): (usize, usize), salt: Salt) -> Self {
        let data = metadata_bytes(records, granules);
        Self {
            salt,
            buffer,
            data: data..data,
            records: Vec::with_capacity(records),
            crcs: Vec::with_capacity(granules),
        }
    }

    /// Adds a record of these granules; `fill` puts their bytes where they go.
    ///
    /// # Panics
    /// If these are more granules than were announced.
    pub fn push(&mut self, span: Span, fill: impl FnOnce(&mut [u8])) {
        let first_crc = self.crcs.len() as u32;
        self.data = self.data.end..self.data.end + usize::from(span.granules) * GRANULE;
        let data = &mut self.buffer[self.data.clone()];
        fill(data);
        self.crcs
            .extend(data.chunks(GRANULE).map(|g| self.salt.crc(g)));
        self.records.push(Descriptor {
            kind: Kind::Data,
            granules: span.granules,
            volume: span.volume,
            first_granule: span.first,
            node: 1,
            first_crc,
            block_or_location: first_crc,
            old_location: 0,
            replica: None,
        });
    }

    /// Its records and checksums, for [`Ring::append`](super::Ring::append).
    pub fn done(self) -> Records {
        Records {
            descriptors: self.records,
            crcs: self.crcs,
        }
    }
}
