//! Whether the backing device still has what is cached of it and clean: both devices have that, and whatever writes to the
//! one behind the cache's back changes the one alone. All of it that begins the device is compared, and of the rest some that
//! is drawn: what has changed a hundredth of what is cached is missed once in thirteen times. A copy from before lacks what
//! was written last, which may be next to nothing of what is cached: so some of that is compared, too, as far as it is there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ashlar_block::{IoBuffer, IoError};

use super::{Cache, Owner, Side};
use crate::layout::{HEAD, PAGE};

/// Granules that are drawn, and at most so many of those written last, a few of each page; and how many are read at a time.
const DRAWN: u64 = 256;
const LATELY: usize = 256;
const AT_A_TIME: usize = 32;

/// How far it is.
#[derive(Default)]
pub(super) struct Comparing {
    granules: Vec<u64>,
    next: usize,
    /// What one of the devices has of some, by their place among those; nothing of what it cannot read.
    one: BTreeMap<usize, Option<u32>>,
    under_way: usize,
    differs_at: Option<u64>,
}

/// Numbers that look drawn.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit.max(1)
    }
}

impl Cache {
    pub(super) fn begin_comparing(&mut self) -> Result<(), IoError> {
        let granules = self.to_compare();
        if let Some(comparing) = self.comparing() {
            comparing.granules = granules;
        }
        self.compare_more()
    }

    fn comparing(&mut self) -> Option<&mut Comparing> {
        self.opening.as_mut().map(|opening| &mut opening.comparing)
    }

    /// Clean granules, in order of address.
    fn to_compare(&self) -> Vec<u64> {
        let mut granules = self.drawn();
        granules.extend(self.written_lately());
        granules.into_iter().collect()
    }

    /// Of what is clean, what was written last.
    fn written_lately(&self) -> impl Iterator<Item = u64> {
        let mut pages: Vec<_> = self.pages.iter().collect();
        pages.sort_unstable_by_key(|(_, page)| Reverse(page.lately()));
        let granules = pages.into_iter().flat_map(|(number, page)| {
            let places = page.written_lately();
            places.map(move |at| number * PAGE + at as u64)
        });
        granules.take(LATELY)
    }

    /// Some that is drawn, and all of the head.
    fn drawn(&self) -> BTreeSet<u64> {
        let cache = self
            .header
            .as_ref()
            .map_or(0, |header| header.cache.as_u64_pair().1);
        let mut drawn =
            Drawn(cache ^ self.now.since(ashlar_block::Moment::ORIGIN).as_nanos() as u64);
        let clean = self.cached.saturating_sub(self.dirty);
        let mut places: Vec<u64> = match clean > DRAWN {
            true => (0..DRAWN).map(|_| drawn.below(clean)).collect(),
            false => (0..clean).collect(),
        };
        places.sort_unstable();
        let mut places = places.into_iter().peekable();
        let (mut granules, mut before) = (BTreeSet::new(), 0);
        for (&page, bits) in &self.pages {
            let count = bits.cached.count().saturating_sub(bits.newer.count());
            if page > 0 && places.peek().is_none_or(|&place| place >= before + count) {
                before += count;
                continue;
            }
            let clean = bits.cached.iter().filter(|&at| !bits.newer.get(at));
            for at in clean {
                let granule = page * PAGE + at as u64;
                let is_drawn = places.peek() == Some(&before);
                while places.next_if_eq(&before).is_some() {}
                if is_drawn || granule < HEAD {
                    granules.insert(granule);
                }
                before += 1;
            }
        }
        granules
    }

    /// Reads some more, as far as there is memory.
    fn compare_more(&mut self) -> Result<(), IoError> {
        loop {
            let Some(comparing) = self.comparing() else {
                return Ok(());
            };
            let (at, under_way) = (comparing.next, comparing.under_way);
            let granule = comparing.granules.get(at).copied();
            let Some(granule) = granule.filter(|_| comparing.differs_at.is_none()) else {
                let differs_at = comparing.differs_at;
                return match under_way {
                    0 => self.was_compared(differs_at),
                    _ => Ok(()),
                };
            };
            if under_way >= 2 * AT_A_TIME {
                return Ok(());
            }
            let buffers = [self.buffer(1), self.buffer(1)];
            let [Ok(fast), Ok(backing)] = buffers else {
                // What is under way lets go of some.
                return match under_way {
                    0 => self.was_compared(None),
                    _ => Ok(()),
                };
            };
            for (side, buffer) in [(Side::Fast, fast), (Side::Backing, backing)] {
                let range = self.range(side, granule, 1);
                let request = ashlar_block::Request::read(0, range, buffer);
                self.send(side, Owner::Compare(at), request);
            }
            if let Some(comparing) = self.comparing() {
                comparing.next += 1;
                comparing.under_way += 2;
            }
        }
    }

    /// One of two reads is done. What a device cannot read is as it was, as far as can be told.
    pub(super) fn read_to_compare(
        &mut self,
        at: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) -> Result<(), IoError> {
        let found = buffer.filter(|_| result.is_ok());
        let found = found.map(|buffer| crc32c::crc32c(&buffer));
        let Some(comparing) = self.comparing() else {
            return Ok(());
        };
        comparing.under_way -= 1;
        match comparing.one.remove(&at) {
            None => drop(comparing.one.insert(at, found)),
            Some(Some(other)) if found.is_some_and(|found| found != other) => {
                comparing.differs_at = comparing.granules.get(at).copied();
            }
            Some(_) => {}
        }
        self.compare_more()
    }
}

#[cfg(test)]
mod tests {
    use ashlar_block::{BlockSize, Geometry, Moment};

    use super::*;
    use crate::bits::Bits;
    use crate::cache::Page;
    use crate::lately::Lately;
    use crate::layout::{Layout, Said};

    /// A cache that was found with a page for each of these: the flush that has made its first granules clean last.
    fn found(turns: &[u64]) -> Cache {
        let layout = Layout::of_granules(turns.len() as u64 * PAGE);
        let geometry = Geometry::plain(BlockSize::B4096, layout.granules);
        let mut cache = Cache::new(layout, geometry, Moment::ORIGIN);
        for (number, &turn) in (0..).zip(turns) {
            let mut said = Said::default();
            (0..16).for_each(|at| said.cached.set(at, true));
            said.lately.add(turn, &said.cached);
            cache.flushes_were(turn);
            cache.pages.insert(number, Page::found(said));
        }
        cache
    }

    #[test]
    fn of_many_pages_those_are_compared_of_which_some_was_written_last() {
        let turns: Vec<u64> = (0..40).map(|page| 100 + page * 7 % 40).collect();
        let cache = found(&turns);
        let pages: BTreeSet<u64> = cache.written_lately().map(|at| at / PAGE).collect();
        let turns: BTreeSet<u64> = pages.iter().map(|&page| turns[page as usize]).collect();
        assert_eq!(turns, (124..140).collect());
        assert_eq!(cache.written_lately().count(), LATELY);
    }

    /// A page of before is older than what becomes clean now, whatever number its flush has.
    #[test]
    fn flushes_are_counted_on_across_lives() {
        for last in [9, u64::MAX] {
            let mut cache = found(&[9, last]);
            let mut written = Bits::default();
            written.set(5, true);
            let turn = cache.next_flush();
            assert_eq!(turn, last.saturating_add(1));
            let mut lately = Lately::default();
            lately.add(turn, &written);
            assert!(lately.turn() >= last);
        }
    }
}
