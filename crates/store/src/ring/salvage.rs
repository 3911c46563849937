//! What is left of a batch of which no copy is good as a whole, though it must have been acknowledged: its records, if
//! they verify on some copy, and each block of data from whichever copy has it.

use super::index::GranuleKey;
use super::scan::{ScannedBatch, Scanner};
use super::shape::Head;
use crate::format::{Batch, Descriptor, metadata_bytes};
use crate::sizes::GRANULE;

/// A batch that was put together.
pub(super) struct Salvaged {
    pub(super) batch: ScannedBatch,
    pub(super) crc: u32,
    /// Granules of its records whose blocks no copy has.
    pub(super) lost: Vec<GranuleKey>,
}

impl Scanner<'_> {
    /// Puts the batch at the head together; nothing if it may be the log's end, or no copy says what is in it.
    pub(super) fn salvage(&mut self, head: Head) -> Option<Salvaged> {
        self.damage(head)?;
        let copies = 0..self.shape.locate(head.at).0.len();
        let here: Vec<usize> = copies.filter(|&copy| self.is_here(copy, head.at)).collect();
        let (batch, mut bytes, crc) = here.iter().find_map(|&copy| self.records(copy, head))?;
        let data = metadata_bytes(batch.records.len(), batch.crcs.len());
        let (salt, crcs) = (self.of.salt, batch.block_crcs().collect::<Vec<u32>>());
        let mut lost = Vec::new();
        for (granule, (block, crc)) in granules(&batch).zip((data..).step_by(GRANULE).zip(crcs)) {
            let mut read = here.iter().filter_map(|&copy| {
                let found = self.block(copy, head.at + block as u64)?;
                (salt.crc(&found) == crc).then_some(found)
            });
            match read.next() {
                Some(found) => bytes[block..block + GRANULE].copy_from_slice(&found),
                None => lost.push(granule),
            }
        }
        let batch = ScannedBatch {
            at: head.at,
            len: bytes.len() as u64,
            batch,
            bytes,
            lacking: here,
        };
        Some(Salvaged { batch, crc, lost })
    }

    fn is_here(&self, copy: usize, at: u64) -> bool {
        let place = self.place(copy, at);
        place.is_some_and(|(drive, _)| self.copies.is_here(drive))
    }

    fn block(&mut self, copy: usize, at: u64) -> Option<Vec<u8>> {
        let (drive, start) = self.place(copy, at)?;
        self.copies.read(drive, start, GRANULE)
    }

    /// The records of the batch at the head, as a copy has them, its bytes with nothing in the place of data, and its
    /// checksum.
    fn records(&mut self, copy: usize, head: Head) -> Option<(Batch, Vec<u8>, u32)> {
        let limit = self.of.sizes.batch_bytes as usize;
        let left = self.shape.left_in_chunk(head.at) as usize;
        let (salt, log) = (self.of.salt, self.of.log);
        let mut bytes = self.block(copy, head.at)?;
        let len = Batch::peek(&bytes, salt, log, limit.min(left))?;
        loop {
            match Batch::decode_records(&bytes, salt, log, limit) {
                Ok((batch, crc)) if self.is_next(&batch, head) => {
                    bytes.truncate(metadata_bytes(batch.records.len(), batch.crcs.len()));
                    bytes.resize(len, 0);
                    return Some((batch, bytes, crc));
                }
                Ok(_) => return None,
                // Its metadata may be longer than what was read of it.
                Err(_) if bytes.len() < len => {
                    let more = self.block(copy, head.at + bytes.len() as u64)?;
                    bytes.extend(more);
                }
                Err(_) => return None,
            }
        }
    }
}

/// The granules of a batch's blocks, in their order.
fn granules(batch: &Batch) -> impl Iterator<Item = GranuleKey> {
    let with_data = batch.records.iter().filter(|one| one.data_blocks() > 0);
    with_data.flat_map(|record: &Descriptor| {
        let (volume, first) = (record.volume, record.first_granule);
        (0..record.data_blocks() as u64).map(move |granule| GranuleKey {
            volume,
            granule: first + granule,
        })
    })
}
