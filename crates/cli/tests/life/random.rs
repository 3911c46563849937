//! Numbers from a printed seed.

/// xorshift64*.
pub struct Random(u64);

impl Random {
    /// From `ASHLAR_SEED`, else from the clock; says which.
    pub fn of_this_run(test: &str) -> Self {
        let given = std::env::var("ASHLAR_SEED").ok();
        let clock = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |now| now.as_nanos() as u64)
        };
        let seed = given
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(clock);
        println!("{test}: ASHLAR_SEED={seed}");
        Self::new(seed)
    }

    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }
}

/// Whether the long rounds are to be run: `make soak`.
pub fn is_soak() -> bool {
    std::env::var_os("ASHLAR_SOAK").is_some()
}

/// A number of rounds, and the same for `make soak`.
pub fn rounds(usual: u64, soak: u64) -> u64 {
    if is_soak() { soak } else { usual }
}
