//! Ranges of granules, and sets of them.

use std::collections::BTreeMap;
use std::fmt;

/// A run of granules (4 KiB each), at least one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    first: u64,
    count: u32,
}

impl Extent {
    /// `count` granules from `first` on; `None` if that is none, or goes beyond 64 bits.
    pub const fn new(first: u64, count: u32) -> Option<Self> {
        if count == 0 || first.checked_add(count as u64).is_none() {
            return None;
        }
        Some(Self { first, count })
    }

    /// The first granule.
    pub const fn first(self) -> u64 {
        self.first
    }

    /// How many granules.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// One past the last granule.
    pub const fn end(self) -> u64 {
        self.first + self.count as u64
    }

    /// Whether the two share a granule.
    pub const fn overlaps(self, other: Self) -> bool {
        self.first < other.end() && other.first < self.end()
    }

    /// What both have.
    pub fn common(self, other: Self) -> Option<Self> {
        Self::between(self.first.max(other.first), self.end().min(other.end()))
    }

    /// Each granule.
    pub fn granules(self) -> std::ops::Range<u64> {
        self.first..self.end()
    }

    /// Pieces of at most `most` granules.
    pub fn pieces(self, most: u32) -> impl Iterator<Item = Self> {
        let most = u64::from(most.max(1));
        let starts = (self.first..self.end()).step_by(most as usize);
        starts.filter_map(move |first| Self::between(first, self.end().min(first + most)))
    }

    /// The first `most` granules, and what is behind them.
    pub fn split(self, most: u32) -> (Self, Option<Self>) {
        let count = self.count.min(most.max(1));
        let first = Self { count, ..self };
        (first, Self::new(first.end(), self.count - count))
    }

    /// From `first` to before `end`, in one piece of at most `u32::MAX` granules.
    fn between(first: u64, end: u64) -> Option<Self> {
        let count = end.checked_sub(first)?;
        Self::new(first, u32::try_from(count).unwrap_or(u32::MAX))
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.first, self.count)
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "granules {}+{}", self.first, self.count)
    }
}

/// A set of granules, as runs in order that neither touch nor overlap. What an absent copy misses may be millions of runs,
/// and changes anywhere: no change moves what is behind it.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct ExtentSet {
    /// By its first granule, where each run ends.
    runs: BTreeMap<u64, u64>,
    granules: u64,
}

#[derive(Clone, Copy)]
struct Run {
    first: u64,
    end: u64,
}

impl Run {
    const fn of(first: u64, end: u64) -> Self {
        Self { first, end }
    }
}

impl ExtentSet {
    pub const fn new() -> Self {
        Self {
            runs: BTreeMap::new(),
            granules: 0,
        }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// How many granules.
    pub const fn granules(&self) -> u64 {
        self.granules
    }

    fn each(&self) -> impl Iterator<Item = Run> {
        self.runs.iter().map(|(&first, &end)| Run::of(first, end))
    }

    /// The last run that begins before this.
    fn before(&self, granule: u64) -> Option<Run> {
        self.runs
            .range(..granule)
            .next_back()
            .map(|(&first, &end)| Run::of(first, end))
    }

    /// The first run that ends behind this.
    fn ends_after(&self, granule: u64) -> Option<Run> {
        let before = self.before(granule).filter(|run| run.end > granule);
        before.or_else(|| {
            self.runs
                .range(granule..)
                .next()
                .map(|(&first, &end)| Run::of(first, end))
        })
    }

    fn put(&mut self, run: Run) {
        self.granules += run.end - run.first;
        self.runs.insert(run.first, run.end);
    }

    fn take(&mut self, run: Run) {
        self.granules -= run.end - run.first;
        self.runs.remove(&run.first);
    }

    /// Each run, in order, in pieces that an [`Extent`] can say.
    pub fn iter(&self) -> impl Iterator<Item = Extent> {
        self.each().flat_map(|run| {
            let starts = (run.first..run.end).step_by(u32::MAX as usize);
            starts.filter_map(move |first| Extent::between(first, run.end))
        })
    }

    /// Whether a granule is in it.
    pub fn has(&self, granule: u64) -> bool {
        self.ends_after(granule)
            .is_some_and(|run| run.first <= granule)
    }

    /// Whether it shares a granule with `extent`.
    pub fn overlaps(&self, extent: Extent) -> bool {
        let run = self.ends_after(extent.first());
        run.is_some_and(|run| run.first < extent.end())
    }

    /// Adds a run.
    pub fn insert(&mut self, extent: Extent) {
        let mut run = Run {
            first: extent.first(),
            end: extent.end(),
        };
        // One that touches it becomes one with it.
        while let Some(old) = self.before(extent.end().saturating_add(1)) {
            if old.end < extent.first() {
                break;
            }
            run.first = run.first.min(old.first);
            run.end = run.end.max(old.end);
            self.take(old);
        }
        self.put(run);
    }

    /// Takes a run out.
    pub fn remove(&mut self, extent: Extent) {
        let mut behind = None;
        while let Some(old) = self.before(extent.end()) {
            if old.end <= extent.first() {
                break;
            }
            self.take(old);
            if old.end > extent.end() {
                let first = extent.end();
                behind = Some(Run { first, ..old });
            }
            if old.first < extent.first() {
                let end = extent.first();
                self.put(Run { end, ..old });
            }
        }
        behind.into_iter().for_each(|run| self.put(run));
    }

    /// Takes out everything from `end` on.
    pub fn clip(&mut self, end: u64) {
        let gone = self.runs.split_off(&end);
        let gone: u64 = gone.iter().map(|(first, end)| end - first).sum();
        self.granules -= gone;
        if let Some(last) = self.before(end).filter(|last| last.end > end) {
            self.take(last);
            self.put(Run { end, ..last });
        }
    }

    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        other.iter().for_each(|extent| self.insert(extent));
    }

    /// The first piece of at most `most` granules that are not before `from`.
    pub fn front_from(&self, from: u64, most: u32) -> Option<Extent> {
        let run = self.ends_after(from)?;
        let first = run.first.max(from);
        Extent::between(first, run.end.min(first + u64::from(most.max(1))))
    }

    /// What `extent` begins with that is not in it. An error is where what it begins with ends, that is in it.
    pub(crate) fn apart_from(&self, extent: Extent) -> Result<Extent, u64> {
        let Some(run) = self.ends_after(extent.first()) else {
            return Ok(extent);
        };
        Extent::between(extent.first(), run.first.min(extent.end())).ok_or(run.end)
    }

    /// The same or more, in at most `most` runs: the closest neighbours become one. What is uncertain may
    /// be said too large, never too small.
    #[must_use]
    pub fn coarsened(&self, most: usize) -> Self {
        let most = most.max(1);
        if self.runs.len() <= most {
            return self.clone();
        }
        let pairs = self.each().zip(self.each().skip(1));
        let mut gaps: Vec<u64> = pairs.map(|(one, next)| next.first - one.end).collect();
        let spare = self.runs.len() - most;
        let (_, &mut largest, _) = gaps.select_nth_unstable(spare - 1);
        let (mut coarse, mut last) = (Self::new(), None::<Run>);
        for run in self.each() {
            match &mut last {
                Some(last) if run.first - last.end <= largest => last.end = run.end,
                last => last
                    .replace(run)
                    .into_iter()
                    .for_each(|run| coarse.put(run)),
            }
        }
        last.into_iter().for_each(|run| coarse.put(run));
        coarse
    }
}

impl FromIterator<Extent> for ExtentSet {
    fn from_iter<I: IntoIterator<Item = Extent>>(from: I) -> Self {
        let mut set = Self::new();
        from.into_iter().for_each(|extent| set.insert(extent));
        set
    }
}

impl From<Extent> for ExtentSet {
    fn from(extent: Extent) -> Self {
        Self::from_iter([extent])
    }
}

impl fmt::Debug for ExtentSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_of_extents_is_a_set_of_granules(
            steps in prop::collection::vec((any::<bool>(), 0u64..60, 1u32..9), 0..40),
            most in 1usize..6,
        ) {
            let (mut set, mut model) = (ExtentSet::new(), BTreeSet::new());
            for (adds, first, count) in steps {
                let extent = Extent::new(first, count).expect("an extent");
                if adds {
                    set.insert(extent);
                    model.extend(extent.granules());
                } else {
                    set.remove(extent);
                    extent.granules().for_each(|granule| { model.remove(&granule); });
                }
                let seen: BTreeSet<u64> = set.iter().flat_map(Extent::granules).collect();
                prop_assert_eq!(&seen, &model);
                prop_assert_eq!(set.granules(), model.len() as u64);
                prop_assert!((0..80).all(|granule| set.has(granule) == model.contains(&granule)));
                let touches = extent.granules().any(|granule| model.contains(&granule));
                prop_assert_eq!(set.overlaps(extent), touches);
                prop_assert!(set.each().zip(set.each().skip(1)).all(|(one, next)| one.end < next.first));
            }
            let mut clipped = set.clone();
            clipped.clip(30);
            prop_assert_eq!(clipped.granules(), model.range(..30).count() as u64);
            prop_assert!((0..80).all(|granule| clipped.has(granule) == (granule < 30 && model.contains(&granule))));
            let coarse = set.coarsened(most);
            prop_assert!(coarse.runs() <= most.max(1));
            prop_assert_eq!(coarse.granules(), coarse.iter().map(|one| u64::from(one.count())).sum::<u64>());
            prop_assert!(model.iter().all(|&granule| coarse.has(granule)));
            for from in 0..70 {
                let next = model.range(from..).next();
                let piece = set.front_from(from, 3);
                prop_assert_eq!(piece.map(Extent::first), next.copied());
                prop_assert!(piece.iter().flat_map(|it| it.granules()).all(|it| model.contains(&it)));
                let extent = Extent::new(from, 5).expect("an extent");
                match set.apart_from(extent) {
                    Ok(apart) => prop_assert!(
                        apart.first() == from
                            && apart.granules().all(|it| !model.contains(&it))
                            && (apart == extent || model.contains(&apart.end()))
                    ),
                    Err(end) => prop_assert!(
                        !model.contains(&end) && (from..end).all(|it| model.contains(&it))
                    ),
                }
            }
        }
    }

    #[test]
    fn an_extent_ends_within_64_bits() {
        assert!(Extent::new(u64::MAX, 1).is_none());
        assert!(Extent::new(u64::MAX - 1, 1).is_some());
        assert!(Extent::new(5, 0).is_none());
        let pieces: Vec<_> = Extent::new(3, 5).expect("an extent").pieces(2).collect();
        assert_eq!(format!("{pieces:?}"), "[3+2, 5+2, 7+1]");
    }
}
