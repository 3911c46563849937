//! Runs of leaves: what a question for a digest is about.

use crate::ids::Leaf;

/// A run of leaves, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaves {
    first: Leaf,
    count: u32,
}

impl Leaves {
    /// So many at most: 2 GiB of a pool's volume.
    pub const MOST: u32 = 1024;

    /// `count` leaves from `first` on; `None` if that is none, more than [`MOST`](Self::MOST), or goes beyond 64 bits.
    pub const fn new(first: Leaf, count: u32) -> Option<Self> {
        if count == 0 || count > Self::MOST || first.0.checked_add(count as u64).is_none() {
            return None;
        }
        Some(Self { first, count })
    }

    pub const fn first(self) -> Leaf {
        self.first
    }

    /// How many.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// The one after the last.
    pub const fn end(self) -> Leaf {
        Leaf(self.first.0 + self.count as u64)
    }

    /// The leaf, if it is only one.
    pub const fn only(self) -> Option<Leaf> {
        match self.count {
            1 => Some(self.first),
            _ => None,
        }
    }

    pub fn iter(self) -> impl Iterator<Item = Leaf> {
        (self.first.0..self.end().0).map(Leaf)
    }

    /// The first, and what is behind it.
    pub const fn split(self) -> (Self, Option<Self>) {
        let first = Self { count: 1, ..self };
        (first, Self::new(first.end(), self.count - 1))
    }
}
