//! Where the granules of a pass-through volume are: chunks of a slot, round robin over the columns.

use std::ops::Range;

use crate::sizes::{GRANULE, UNIT_BYTES, UNIT_GRANULES};

/// A volume's columns, and the slots that a segment has in each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) columns: u64,
    pub(super) slots: u64,
}

/// Part of a transfer: granules that lie together in one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Which of the volume's segments.
    pub(super) segment: u64,
    pub(super) column: usize,
    /// Where in the segment's column, in bytes.
    pub(super) at: u64,
    /// Where in the transfer, in bytes.
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// What a range has of one column of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) column: usize,
    /// Where in the column, in bytes.
    pub(super) at: u64,
    pub(super) bytes: u64,
}

impl Shape {
    /// Granules of a segment.
    pub(super) fn segment_granules(self) -> u64 {
        self.columns * self.slots * UNIT_GRANULES
    }

    /// Segments that a volume of so many granules has.
    pub(super) fn segments(self, granules: u64) -> usize {
        granules.div_ceil(self.segment_granules()) as usize
    }

    /// A transfer cut where its columns change; what lies together stays together.
    pub(super) fn pieces(self, first: u64, granules: u64) -> Vec<Piece> {
        let (mut found, end) = (Vec::<Piece>::new(), first + granules);
        let mut granule = first;
        while granule < end {
            let chunk = granule / UNIT_GRANULES;
            let next = ((chunk + 1) * UNIT_GRANULES).min(end);
            let row = chunk / self.columns;
            let piece = Piece {
                segment: row / self.slots,
                column: (chunk % self.columns) as usize,
                at: row % self.slots * UNIT_BYTES + granule % UNIT_GRANULES * GRANULE as u64,
                offset: (granule - first) as usize * GRANULE,
                bytes: (next - granule) as usize * GRANULE,
            };
            match found.last_mut() {
                Some(last) if last.goes_on_in(&piece) => last.bytes += piece.bytes,
                _ => found.push(piece),
            }
            granule = next;
        }
        found
    }

    /// What `range` (granules, not empty) has of a segment: at most one span a column, since
    /// a column's chunks of one segment lie together.
    pub(super) fn spans(self, segment: u64, range: &Range<u64>) -> Vec<Span> {
        let base = segment * self.segment_granules();
        let first = range.start.max(base) - base;
        let end = range.end.min(base + self.segment_granules());
        let Some(last) = end.checked_sub(base + 1).filter(|last| *last >= first) else {
            return Vec::new();
        };
        let columns = (0..self.columns).filter_map(|column| self.span(column, first, last));
        columns.collect()
    }

    /// What granules `first` to `last` of a segment have of a column.
    fn span(self, column: u64, first: u64, last: u64) -> Option<Span> {
        let (from, to) = (first / UNIT_GRANULES, last / UNIT_GRANULES);
        let start = from + (column + self.columns - from % self.columns) % self.columns;
        let end = to.checked_sub((to + self.columns - column) % self.columns)?;
        if start > end {
            return None;
        }
        let before = match start == from {
            true => first % UNIT_GRANULES,
            false => 0,
        };
        let behind = match end == to {
            true => last % UNIT_GRANULES + 1,
            false => UNIT_GRANULES,
        };
        let at = start / self.columns * UNIT_BYTES + before * GRANULE as u64;
        let stop = end / self.columns * UNIT_BYTES + behind * GRANULE as u64;
        Some(Span {
            column: column as usize,
            at,
            bytes: stop - at,
        })
    }
}

impl Piece {
    pub(super) fn span(self) -> Span {
        Span {
            column: self.column,
            at: self.at,
            bytes: self.bytes as u64,
        }
    }

    fn goes_on_in(&self, next: &Self) -> bool {
        (self.segment, self.column) == (next.segment, next.column)
            && self.at + self.bytes as u64 == next.at
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The granules, one by one: segment, column, byte in it.
    fn granules(pieces: &[Piece]) -> Vec<(u64, usize, u64)> {
        let each = |piece: &Piece| {
            let piece = *piece;
            let ats = (piece.at..piece.at + piece.bytes as u64).step_by(GRANULE);
            ats.map(move |at| (piece.segment, piece.column, at))
        };
        pieces.iter().flat_map(each).collect()
    }

    #[test]
    fn chunks_go_round() {
        let shape = Shape {
            columns: 3,
            slots: 2,
        };
        assert_eq!((shape.segments(96), shape.segments(97)), (1, 2));
        let places = granules(&shape.pieces(0, 200));
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), 200);
        let slot = UNIT_BYTES;
        for (granule, place) in [
            (0, (0, 0, 0)),
            (16, (0, 1, 0)),
            (47, (0, 2, slot - 4096)),
            (48, (0, 0, slot)),
            (96, (1, 0, 0)),
        ] {
            assert_eq!(places[granule], place, "{granule}");
        }
    }

    #[test]
    fn pieces_cover_a_transfer_in_order() {
        for columns in 1..=4 {
            let shape = Shape { columns, slots: 3 };
            let whole = granules(&shape.pieces(0, 512));
            for (first, count) in [(0, 1), (5, 40), (15, 2), (16, 16), (100, 256)] {
                let pieces = shape.pieces(first, count);
                let mut offset = 0;
                for piece in &pieces {
                    assert_eq!(piece.offset, offset);
                    offset += piece.bytes;
                }
                let expected = &whole[first as usize..(first + count) as usize];
                assert_eq!(granules(&pieces), expected);
            }
        }
        let single = Shape {
            columns: 1,
            slots: 512,
        };
        assert_eq!(single.pieces(3, 256).len(), 1, "what lies together is one");
    }

    #[test]
    fn spans_are_the_same_granules() {
        for columns in 1..=4 {
            let shape = Shape { columns, slots: 2 };
            for first in 0..70 {
                for end in first + 1..140 {
                    let mut found = BTreeSet::new();
                    for segment in 0..140 / shape.segment_granules() + 1 {
                        for span in shape.spans(segment, &(first..end)) {
                            let ats = (span.at..span.at + span.bytes).step_by(GRANULE);
                            found.extend(ats.map(|at| (segment, span.column, at)));
                        }
                    }
                    let pieces = shape.pieces(first, end - first);
                    let expected: BTreeSet<_> = granules(&pieces).into_iter().collect();
                    assert_eq!(found, expected, "{columns}: {first}..{end}");
                }
            }
        }
    }
}
