//! Homes whose slots are cut over columns, with parity.
//!
//! A slot is one stripe: granule `i` is in row `i % rows` of column `i / rows`, and the
//! last columns hold the code of each row. A stripe is written as a whole and to fresh space,
//! always, and found only once its place is durable. So there is nothing to read in order to make
//! parity, no crash that leaves data and parity apart, and no cleaning either: a stripe that is
//! given up is free as a whole.
//!
//! | file | what |
//! |-|-|
//! | `code` | the arithmetic of columns |
//! | `row` | one row: what is good, what is solved, what is lost |
//! | `gather` | reads a slot's columns and puts it together |
//! | this one | writes a slot, and what the walk finds wrong with one |

mod code;
mod gather;
mod row;

use std::borrow::Cow;

use ashlar_block::{Durability, Request};

pub(crate) use gather::Gathered;
pub(super) use gather::{For, Gather, Wish};

use super::Owner;
use super::class::Shape;
use super::invariant::invariant;
use super::mending::Around;
use super::rebuild::{Mend, Rebuild};
use super::segment_table::HomeSegment;
use super::space::{Space, segment_and_slot};
use super::state::Joining;
use crate::format::{ChunkCopy, PageId};
use crate::sizes::GRANULE;

/// The strips of a slot: those of data, padded where the columns do not divide it.
fn data_strips(shape: Shape, bytes: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let strip = |column: usize| {
        let from = (column * shape.strip_bytes()).min(bytes.len());
        let to = (from + shape.strip_bytes()).min(bytes.len());
        let strip = &bytes[from..to];
        if strip.len() == shape.strip_bytes() {
            return Cow::Borrowed(strip);
        }
        let mut padded = strip.to_vec();
        padded.resize(shape.strip_bytes(), 0);
        Cow::Owned(padded)
    };
    (0..usize::from(shape.data)).map(strip).collect()
}

/// Puts the strip of column `which` (data first, then parity) into `out`.
fn fill_strip(data: &[Cow<'_, [u8]>], which: usize, out: &mut [u8]) {
    match data.get(which) {
        Some(strip) => out.copy_from_slice(strip),
        None => {
            let columns: Vec<&[u8]> = data.iter().map(|strip| &strip[..]).collect();
            out.copy_from_slice(&code::encode(&columns, which - columns.len()));
        }
    }
}

/// A segment's columns and shape once one that was being filled has joined.
pub(super) fn strips_with(found: HomeSegment<'_>, joining: Joining) -> (Vec<ChunkCopy>, Shape) {
    let (mut columns, mut shape) = (found.columns.to_vec(), found.shape);
    match columns.get_mut(joining.at) {
        Some(column) => *column = joining.column,
        None => {
            columns.push(joining.column);
            shape.parity += 1;
        }
    }
    (columns, shape)
}

/// Slots of a segment that are side by side, and what they hold from now on.
pub(super) struct Slots<'a> {
    pub(super) segment: u32,
    /// The first of them.
    pub(super) slot: u32,
    pub(super) bytes: &'a [&'a [u8]],
}

impl Space {
    /// Where a granule of a slot lies: its column, and the byte on that column's drive.
    pub(super) fn granule_at(&self, location: u32, granule: u32) -> Option<(ChunkCopy, u64)> {
        let (segment, slot) = segment_and_slot(location);
        let HomeSegment { shape, columns, .. } = self.segments.get(segment)?;
        let (column, row) = shape.place(granule as usize);
        let column = *columns.get(column)?;
        let at = shape.strip_at(self.sizes(), column, slot) + (row * GRANULE) as u64;
        Some((column, at))
    }
}

impl Slots<'_> {
    /// Writes slots that are side by side to every column of their segment, or every copy; returns
    /// how many writes that takes.
    pub(super) fn write(
        self,
        durability: Durability,
        owner: Owner,
        around: &mut Around<'_>,
    ) -> usize {
        let Slots {
            segment,
            slot,
            bytes: slots,
        } = self;
        let Some(shape) = around.space.shape(segment) else {
            invariant!(
                around.base,
                "slots of segment {segment} are written, which is not there"
            );
            return 0;
        };
        let columns = around.rebuild.columns_to_write(segment, around.space);
        let data: Vec<_> = slots.iter().map(|slot| data_strips(shape, slot)).collect();
        for &(column, which) in &columns {
            let Some(mut buffer) = around.buffer(shape.strip_bytes() * slots.len()) else {
                break;
            };
            let which = if shape.is_mirror() { 0 } else { which };
            for (data, out) in data.iter().zip(buffer.chunks_mut(shape.strip_bytes())) {
                fill_strip(data, which, out);
            }
            let drive = usize::from(column.drive);
            let at = shape.strip_at(around.identity.sizes(), column, slot);
            let range = around.space.drives.range(drive, at, buffer.len());
            around.send(drive, owner, |tag| {
                Request::write(tag, range, buffer, durability)
            });
        }
        columns.len()
    }
}

impl Gathered {
    /// What has to be written so that every column of a slot holds what it should: drive, byte and
    /// bytes, a granule or (of the column that is being filled) a strip each. `leaf` is the slot's.
    pub(super) fn mends(
        &self,
        leaf: PageId,
        space: &Space,
        rebuild: &Rebuild,
    ) -> Option<Vec<Mend>> {
        let (segment, slot) = segment_and_slot(self.location);
        let HomeSegment { shape, columns, .. } = space.segments.get(segment)?;
        let mut mends = Vec::new();
        for row in &self.rows {
            for &which in &row.bad {
                let (Some(&column), Some(Some(bytes))) =
                    (columns.get(which), row.columns.get(which))
                else {
                    continue;
                };
                if rebuild.is_written(column.drive, &space.drives) {
                    let at = shape.strip_at(space.sizes(), column, slot);
                    let at = at + (row.number * GRANULE) as u64;
                    mends.push((usize::from(column.drive), at, bytes.clone()));
                }
            }
        }
        let joining = rebuild.column_to_fill(segment, leaf);
        let joining = joining.filter(|joining| space.drives.in_service(joining.column.drive));
        if let Some(joining) = joining {
            let at = shape.strip_at(space.sizes(), joining.column, slot);
            let data = usize::from(shape.data);
            let strip = self
                .rows
                .iter()
                .flat_map(|row| row.column(joining.at, data));
            let strip: Vec<u8> = strip.collect();
            mends.push((usize::from(joining.column.drive), at, strip));
        }
        Some(mends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::Grain;

    #[test]
    fn strips_are_the_slot_and_its_code() {
        let shape = Shape {
            data: 3,
            parity: 1,
            grain: Grain::K64,
        };
        let bytes: Vec<u8> = (0..16 * GRANULE).map(|i| (i / GRANULE) as u8 + 1).collect();
        let strips = data_strips(shape, &bytes);
        assert_eq!(strips[0][..GRANULE], [1; GRANULE]);
        let last = &strips[2];
        assert_eq!(last[3 * GRANULE], 16);
        // 16 granules over 3 columns of 6 leave two of padding.
        assert!(last[4 * GRANULE..].iter().all(|&byte| byte == 0));
        let mut parity = vec![0xFF; shape.strip_bytes()];
        fill_strip(&strips, 3, &mut parity);
        assert_eq!((parity[0], parity[5 * GRANULE]), (1 ^ 7 ^ 13, 6 ^ 12));
    }
}
