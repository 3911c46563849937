//! Which bytes of a request a piece of it is about.

use std::ops::Range;

use crate::layout::GRANULE;

/// The bytes that a request and a piece of it have in common.
pub(super) struct Shared {
    pub(super) in_request: Range<usize>,
    pub(super) in_piece: Range<usize>,
}

impl Shared {
    pub(super) fn of(request: &Range<u64>, first: u64, bytes: usize) -> Self {
        let piece = first * GRANULE as u64;
        let from = request.start.max(piece);
        let to = request.end.min(piece + bytes as u64).max(from);
        let within = |start: u64| (from - start) as usize..(to - start) as usize;
        Self {
            in_request: within(request.start),
            in_piece: within(piece),
        }
    }
}
