//! Where a stripe's blocks are: chunk by chunk, round robin.

use ashlar_block::BlockRange;

/// The arithmetic of a stripe over `children` devices in chunks of `chunk` blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) chunk: u64,
    pub(super) children: u64,
}

/// A range on one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) child: usize,
    pub(super) range: BlockRange,
}

impl Layout {
    /// The range's pieces in the order of the stripe's addresses, each inside one chunk.
    pub(super) fn pieces(self, range: BlockRange) -> impl Iterator<Item = Piece> {
        let mut at = range.start.0;
        let end = at + u64::from(range.count);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (chunk, inside) = (at / self.chunk, at % self.chunk);
            let count = (self.chunk - inside).min(end - at);
            at += count;
            let start = chunk / self.children * self.chunk + inside;
            Some(Piece {
                child: (chunk % self.children) as usize,
                range: BlockRange::new(start, count as u32),
            })
        })
    }

    /// What of the range lies on `child`: always one run of its blocks, possibly empty.
    pub(super) fn on_child(self, range: BlockRange, child: usize) -> BlockRange {
        let start = self.position(range.start.0, child as u64);
        let end = self.position(range.start.0 + u64::from(range.count), child as u64);
        BlockRange::new(start, (end - start) as u32)
    }

    /// The address on `child` of its first block that is not before the stripe's block `at`.
    fn position(self, at: u64, child: u64) -> u64 {
        let (chunk, inside) = (at / self.chunk, at % self.chunk);
        let (row, column) = (chunk / self.children, chunk % self.children);
        row * self.chunk
            + match column.cmp(&child) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Equal => inside,
                std::cmp::Ordering::Greater => self.chunk,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_and_runs_agree(
            chunk in 1u64..20, children in 1u64..5, start in 0u64..500, count in 0u32..300,
        ) {
            let layout = Layout { chunk, children };
            let range = BlockRange::new(start, count);
            let mut blocks: Vec<Vec<u64>> = vec![Vec::new(); children as usize];
            for piece in layout.pieces(range) {
                let end = piece.range.start.0 + u64::from(piece.range.count);
                blocks[piece.child].extend(piece.range.start.0..end);
            }
            for (child, blocks) in blocks.iter().enumerate() {
                let run = layout.on_child(range, child);
                let expected: Vec<u64> = (run.start.0..run.start.0 + u64::from(run.count)).collect();
                prop_assert_eq!(blocks, &expected);
            }
        }
    }
}
