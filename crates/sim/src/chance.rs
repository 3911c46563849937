use std::time::Duration;

/// What keeps a stream aside apart from the one it comes from.
const ASIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// Randomness that follows from a seed.
#[derive(Debug)]
pub(crate) struct Chance(fastrand::Rng);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Another stream of randomness, which follows from this one.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.0.fork())
    }

    /// Another stream, which takes nothing from this one.
    pub(crate) fn aside(&self) -> Self {
        Self(fastrand::Rng::with_seed(self.0.clone().u64(..) ^ ASIDE))
    }

    /// 0 to `below` - 1; 0 when `below` is 0.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        if below == 0 { 0 } else { self.0.u64(..below) }
    }

    /// `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.u64(low..=high.max(low))
    }

    /// True in `per_mille` of a thousand cases.
    pub(crate) fn happens(&mut self, per_mille: u32) -> bool {
        self.0.u32(..1000) < per_mille
    }

    /// One of several.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.usize(..from.len())]
    }

    /// A time up to `most`, short ones more often.
    pub(crate) fn time(&mut self, most: Duration) -> Duration {
        let most = most.as_nanos() as u64;
        let scaled = most >> self.below(6);
        Duration::from_nanos(self.below(scaled.max(1)))
    }

    /// A size of 1 to `most`, of every magnitude alike.
    pub(crate) fn size(&mut self, most: usize) -> usize {
        let bits = u64::from(usize::BITS - most.leading_zeros());
        let limit = 1u64 << self.between(0, bits);
        self.between(1, limit.min(most as u64)) as usize
    }
}
