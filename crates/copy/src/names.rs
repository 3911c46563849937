//! Names of commands and orders, so that their answers find the copy.

use std::cell::Cell;
use std::rc::Rc;

/// Names of copies have this bit, those of others do not.
const OURS: u64 = 1 << 63;
const VOLUME_AT: u32 = 40;
const VOLUME_BITS: u64 = (1 << 23) - 1;
const COUNT_BITS: u64 = (1 << VOLUME_AT) - 1;

/// The volume whose copy has given this name to a command or order; none if it is no copy's.
pub const fn volume_of(name: u64) -> Option<u32> {
    if name & OURS == 0 {
        return None;
    }
    Some((name >> VOLUME_AT & VOLUME_BITS) as u32)
}

/// By what the copies of a pool count their names, one copy of a volume after the other: it outlives them. What the pool
/// answers late, of one that was stopped, has then the name of nothing that the next one has asked for.
#[derive(Clone, Debug, Default)]
pub struct NameCount(Rc<Cell<u64>>);

impl NameCount {
    fn next(&self) -> u64 {
        let next = (self.0.get() + 1) & COUNT_BITS;
        self.0.set(next);
        next
    }
}

/// Names of one volume, each used again only after 2⁴⁰ others.
#[derive(Debug)]
pub(crate) struct Names {
    volume: u32,
    count: NameCount,
}

impl Names {
    pub(crate) const fn new(volume: u32, count: NameCount) -> Self {
        Self { volume, count }
    }

    pub(crate) fn next(&mut self) -> u64 {
        OURS | (u64::from(self.volume) & VOLUME_BITS) << VOLUME_AT | self.count.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_it_is() {
        let count = NameCount(Rc::new(Cell::new(COUNT_BITS - 1)));
        let mut names = Names::new(65_535, count);
        for _ in 0..3 {
            assert_eq!(volume_of(names.next()), Some(65_535));
        }
        assert_eq!(volume_of(17), None);
    }
}
