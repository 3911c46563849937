//! What homes hold: every copy, and parity.

use ashlar_store::format::{ChunkCopy, SegmentEntry, SegmentKind};
use ashlar_store::sizes::GRANULE;

use super::{Found, Media, Trust};

/// The polynomial of the field of 256 elements that the second column of parity is made in.
const POLYNOMIAL: u8 = 0x1D;

/// A slot's home.
struct Home<'a> {
    segment: &'a SegmentEntry,
    slot: u32,
    /// Of its granules.
    crcs: &'a [u32],
    /// The volume has one copy.
    is_alone: bool,
}

impl Found {
    /// Every granule with a checksum verifies on every copy that does not lie; every stripe whose
    /// columns can all be read satisfies its parity.
    pub(super) fn check_homes(&self, media: &Media<'_>) -> Result<(), String> {
        for (id, leaf) in &self.leaves {
            let granules = leaf.grain().granules() as usize;
            let slots = leaf.locations().iter().zip(leaf.crcs.chunks(granules));
            for (slot, (&location, crcs)) in slots.enumerate() {
                let Some(segment) = self.segments.get(&(location >> 12)) else {
                    continue;
                };
                // Its hot home may have more copies than the home that a granule was lost in.
                let volume = self.volumes.get(&id.node);
                let is_alone = volume.is_some_and(|entry| entry.layout.survives() == 0);
                let home = Home {
                    segment,
                    slot: location & 0xFFF,
                    crcs,
                    is_alone,
                };
                self.check_home(media, &home)
                    .map_err(|why| format!("{id:?}, slot {slot} at {location:#x}: {why}"))?;
            }
        }
        Ok(())
    }

    fn check_home(&self, media: &Media<'_>, home: &Home<'_>) -> Result<(), String> {
        let &Home {
            segment,
            slot,
            crcs,
            is_alone,
        } = home;
        let rows = Self::rows(segment);
        let bytes = rows * GRANULE;
        let data = Self::data_columns(segment);
        let mut strips = Vec::new();
        for (column, &(drive, extent)) in segment.columns.iter().enumerate() {
            let copy = ChunkCopy { drive, extent };
            let place = self.pool.places(&[copy]).pop();
            let Some((drive, at, Trust::Good)) = place else {
                continue;
            };
            let at = at + u64::from(slot) * bytes as u64;
            let strip = media.read(drive, at, bytes);
            let strip = strip.ok_or_else(|| format!("drive {drive} has a hole at byte {at}"))?;
            let crcs = match segment.kind {
                SegmentKind::Parity => crcs.chunks(rows).nth(column).filter(|_| column < data),
                _ => Some(crcs),
            };
            let granules = crcs.unwrap_or_default().iter().zip(strip.chunks(GRANULE));
            if is_alone && media.lies() {
                // What rot has taken of the only copy is lost, also where it has moved since.
                continue;
            }
            for (row, (&crc, granule)) in granules.enumerate() {
                if crc != 0 && self.pool.label.salt.crc(granule) != crc {
                    return Err(format!(
                        "granule {row} of column {column}, drive {drive}, is bad"
                    ));
                }
            }
            strips.push(strip);
        }
        if segment.kind != SegmentKind::Parity || strips.len() < segment.columns.len() {
            return Ok(());
        }
        let (data, parity) = strips.split_at(data);
        for (which, column) in parity.iter().enumerate() {
            if *column != code(data, which, bytes) {
                return Err(format!("column {which} of parity does not fit its data"));
            }
        }
        Ok(())
    }
}

/// A column of parity: the sum of all columns, or that of each times 2 to the power of its number.
fn code(data: &[Vec<u8>], which: usize, bytes: usize) -> Vec<u8> {
    let mut sum = vec![0u8; bytes];
    for column in data.iter().rev() {
        for (sum, byte) in sum.iter_mut().zip(column) {
            if which > 0 {
                let carry = if *sum & 0x80 != 0 { POLYNOMIAL } else { 0 };
                *sum = *sum << 1 ^ carry;
            }
            *sum ^= byte;
        }
    }
    sum
}
