//! Names of commands and orders, so that their answers find the copy.

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

/// Names of one volume, each used again only after 2⁴⁰ others.
#[derive(Debug)]
pub(crate) struct Names {
    volume: u32,
    count: u64,
}

impl Names {
    pub(crate) const fn new(volume: u32) -> Self {
        Self { volume, count: 0 }
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.count = (self.count + 1) & COUNT_BITS;
        OURS | (self.volume as u64 & VOLUME_BITS) << VOLUME_AT | self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_it_is() {
        let mut names = Names::new(65_535);
        names.count = COUNT_BITS - 1;
        for _ in 0..3 {
            assert_eq!(volume_of(names.next()), Some(65_535));
        }
        assert_eq!(volume_of(17), None);
    }
}
