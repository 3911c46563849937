//! A plane: a bit a granule (of a very large volume: a bit for a few), in pages as they are written.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::format::{PLANE_BITS, PLANE_WORDS, PlaneShape};

/// One page's bits.
#[derive(Clone, Debug)]
pub(super) struct Bits {
    pub(super) words: Box<[u64; PLANE_WORDS]>,
    pub(super) unsaved: Unsaved,
}

/// Why a page is to be staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsaved {
    /// It has not changed since it was.
    No,
    /// An order has changed it: the logs have nothing of that.
    Ordered,
    /// It says something of records, which the logs keep until it is durable.
    Recorded,
}

impl Bits {
    fn none() -> Self {
        Self {
            words: Box::new([0; PLANE_WORDS]),
            unsaved: Unsaved::No,
        }
    }

    fn count(&self) -> u64 {
        let words = self.words.iter();
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    fn is_set(&self, bit: u64) -> bool {
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// Sets or clears a bit; whether that changed it.
    fn put(&mut self, bit: u64, set: bool) -> bool {
        if self.is_set(bit) == set {
            return false;
        }
        self.words[(bit / 64) as usize] ^= 1 << (bit % 64);
        true
    }
}

/// The bits of one position.
#[derive(Clone, Debug)]
pub(super) struct Plane {
    pub(super) shape: PlaneShape,
    pages: BTreeMap<u32, Bits>,
    /// Bits that are set: there may be millions, and how many is asked often.
    set: u64,
}

impl Plane {
    pub(super) fn none(shape: PlaneShape) -> Self {
        Self {
            shape,
            pages: BTreeMap::new(),
            set: 0,
        }
    }

    /// Whether it has no page, not even one without a bit.
    pub(super) fn has_no_page(&self) -> bool {
        self.pages.is_empty()
    }

    /// A page as it was found.
    pub(super) fn found(&mut self, page: u32, words: Box<[u64; PLANE_WORDS]>) {
        let unsaved = Unsaved::No;
        let bits = Bits { words, unsaved };
        self.set += bits.count();
        let before = self.pages.insert(page, bits);
        self.set -= before.iter().map(Bits::count).sum::<u64>();
    }

    /// Sets the bits of these granules, as an order says.
    pub(super) fn set(&mut self, granules: &Range<u64>) {
        self.put(self.bits_of(granules), true);
    }

    /// The same, as a record says. Not only a page that this changes is to be staged soon: what it says may not be
    /// staged yet.
    pub(super) fn record(&mut self, granules: &Range<u64>) {
        let bits = self.bits_of(granules);
        if bits.is_empty() {
            return;
        }
        let pages = bits.start / PLANE_BITS..=(bits.end - 1) / PLANE_BITS;
        self.put(bits, true);
        for page in pages {
            let page = self.pages.get_mut(&(page as u32));
            if let Some(page) = page.filter(|page| page.unsaved == Unsaved::Ordered) {
                page.unsaved = Unsaved::Recorded;
            }
        }
    }

    /// The bits that say something of these granules.
    fn bits_of(&self, granules: &Range<u64>) -> Range<u64> {
        let shift = self.shape.shift;
        let end = granules.end.min(self.shape.granules);
        granules.start >> shift..(end + (1 << shift) - 1) >> shift
    }

    /// Clears the bits that say nothing of other granules than these.
    pub(super) fn clear(&mut self, granules: &Range<u64>) {
        let shift = self.shape.shift;
        // The last bit may be for fewer granules than others.
        let end = match granules.end >= self.shape.granules {
            true => (self.shape.granules + (1 << shift) - 1) >> shift,
            false => granules.end >> shift,
        };
        let start = (granules.start + (1 << shift) - 1) >> shift;
        self.put(start..end.max(start), false);
    }

    fn put(&mut self, bits: Range<u64>, set: bool) {
        let mut bit = bits.start;
        while bit < bits.end {
            let page = (bit / PLANE_BITS) as u32;
            let end = bits.end.min((bit / PLANE_BITS + 1) * PLANE_BITS);
            if !set && !self.pages.contains_key(&page) {
                bit = end;
                continue;
            }
            let one = self.pages.entry(page).or_insert_with(Bits::none);
            for bit in bit..end {
                let is_new = one.put(bit % PLANE_BITS, set);
                match (is_new, set) {
                    (true, true) => self.set += 1,
                    (true, false) => self.set -= 1,
                    (false, _) => {}
                }
                if is_new && one.unsaved == Unsaved::No {
                    one.unsaved = Unsaved::Ordered;
                }
            }
            bit = end;
        }
    }

    /// The granules whose bits are set, in order, in runs that do not touch.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let shift = self.shape.shift;
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (&page, bits) in &self.pages {
            for (word, &value) in bits.words.iter().enumerate() {
                let mut left = value;
                while left != 0 {
                    let low = u64::from(left.trailing_zeros());
                    left &= left - 1;
                    let bit = u64::from(page) * PLANE_BITS + word as u64 * 64 + low;
                    let end = ((bit + 1) << shift).min(self.shape.granules);
                    match runs.last_mut() {
                        Some(last) if last.end == bit << shift => last.end = end,
                        _ => runs.push(bit << shift..end),
                    }
                }
            }
        }
        runs
    }

    /// How many granules these are.
    pub(super) fn granules(&self) -> u64 {
        let PlaneShape { granules, shift } = self.shape;
        let Some(last) = granules.checked_sub(1).map(|last| last >> shift) else {
            return 0;
        };
        // The last bit may be for fewer granules than others.
        let page = self.pages.get(&((last / PLANE_BITS) as u32));
        let less = match page.is_some_and(|page| page.is_set(last % PLANE_BITS)) {
            true => ((last + 1) << shift) - granules,
            false => 0,
        };
        (self.set << shift) - less
    }

    /// Whether no bit is set.
    pub(super) const fn is_empty(&self) -> bool {
        self.set == 0
    }

    /// Pages that are to be staged, for any reason but this.
    pub(super) fn dirty_but(&self, reason: Unsaved) -> usize {
        let dirty = |bits: &&Bits| bits.unsaved != Unsaved::No && bits.unsaved != reason;
        self.pages.values().filter(dirty).count()
    }

    /// Takes what is to be staged: all that says something of records, and as many of the others as `left` says.
    pub(super) fn take_unsaved(&mut self, left: &mut usize) -> Vec<(u32, Box<[u64; PLANE_WORDS]>)> {
        let mut taken = Vec::new();
        for (&page, bits) in &mut self.pages {
            match bits.unsaved {
                Unsaved::No => continue,
                Unsaved::Ordered if *left == 0 => continue,
                Unsaved::Ordered => *left -= 1,
                Unsaved::Recorded => {}
            }
            bits.unsaved = Unsaved::No;
            taken.push((page, bits.words.clone()));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_plane_is_a_set_of_granules(
            steps in prop::collection::vec((any::<bool>(), 0u64..70_000, 1u64..300), 0..30),
        ) {
            let granules = 70_100;
            let mut plane = Plane::none(PlaneShape { granules, shift: 0 });
            let mut model = BTreeSet::new();
            for (sets, first, count) in steps {
                let range = first..(first + count).min(granules);
                match sets {
                    true => {
                        plane.set(&range);
                        model.extend(range);
                    }
                    false => {
                        plane.clear(&range);
                        range.for_each(|granule| { model.remove(&granule); });
                    }
                }
                let seen: BTreeSet<u64> = plane.ranges().into_iter().flatten().collect();
                prop_assert_eq!(&seen, &model);
                prop_assert_eq!(plane.is_empty(), model.is_empty());
                prop_assert_eq!(plane.granules(), model.len() as u64);
            }
        }

        #[test]
        fn a_coarse_plane_says_no_less(
            steps in prop::collection::vec((any::<bool>(), 0u64..4000, 1u64..300), 0..30),
            shift in 1u8..6,
        ) {
            let granules = 4_011;
            let mut plane = Plane::none(PlaneShape { granules, shift });
            let mut model = BTreeSet::new();
            for (sets, first, count) in steps {
                let range = first..(first + count).min(granules);
                match sets {
                    true => {
                        plane.set(&range);
                        model.extend(range);
                    }
                    false => {
                        plane.clear(&range);
                        range.for_each(|granule| { model.remove(&granule); });
                    }
                }
                let seen: BTreeSet<u64> = plane.ranges().into_iter().flatten().collect();
                prop_assert!(model.is_subset(&seen));
                prop_assert!(seen.iter().all(|&granule| granule < granules));
                prop_assert_eq!(plane.granules(), seen.len() as u64);
            }
            plane.clear(&(0..granules));
            prop_assert!(plane.is_empty());
            prop_assert_eq!(plane.granules(), 0);
        }
    }

    #[test]
    fn how_much_a_plane_says_costs_the_same_however_much_that_is() {
        const BITS: u64 = 1_000_000;
        let mut plane = Plane::none(PlaneShape {
            granules: 2 * BITS,
            shift: 0,
        });
        (0..BITS).for_each(|n| plane.set(&(2 * n..2 * n + 1)));
        let began = Instant::now();
        let is_all = (0..10_000).all(|_| plane.granules() == BITS);
        let took = began.elapsed();
        assert!(is_all && took < Duration::from_secs(5), "{took:?}");
    }

    #[test]
    fn a_page_that_is_found_counts_once_with_what_it_says_last() {
        let mut plane = Plane::none(PlaneShape {
            granules: 100,
            shift: 3,
        });
        let mut words = Box::new([0; PLANE_WORDS]);
        words[0] = 0b1_0000_0000_0011;
        plane.found(0, words.clone());
        assert_eq!(plane.granules(), 8 + 8 + 4);
        words[0] = 1;
        plane.found(0, words);
        assert_eq!(plane.granules(), 8);
    }
}
