//! Streams: requests each of which begins where an earlier one has ended. Logs, backups and scans are such.

use std::collections::{BTreeMap, HashMap};

/// From when on requests side by side are a stream.
#[derive(Clone, Copy, Debug)]
struct Threshold {
    requests: u32,
    /// So do fewer, of so many bytes together.
    bytes: u64,
}

/// A log writes a little at a time.
const WRITES: Threshold = Threshold {
    requests: 8,
    bytes: 512 << 10,
};
/// A few neighbours that are read are an index or a row, and worth to be kept.
const READS: Threshold = Threshold {
    requests: u32::MAX,
    bytes: 2 << 20,
};
/// Streams, and what may become one, that are followed: many more than 64, for every random request takes a
/// place until it is forgotten.
const FOLLOWED: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Stream {
    requests: u32,
    bytes: u64,
    /// When it was last continued, in requests.
    used: u64,
}

/// The streams that are followed, by the byte at which each goes on.
#[derive(Debug)]
pub struct Streams {
    from: Threshold,
    next: HashMap<u64, Stream>,
    by_use: BTreeMap<u64, u64>,
    clock: u64,
}

impl Streams {
    /// None yet, of what is read.
    pub fn of_reads() -> Self {
        Self::from(READS)
    }

    /// None yet, of what is written.
    pub fn of_writes() -> Self {
        Self::from(WRITES)
    }

    fn from(from: Threshold) -> Self {
        Self {
            from,
            next: HashMap::new(),
            by_use: BTreeMap::new(),
            clock: 0,
        }
    }

    /// A request for these bytes; whether it belongs to a stream.
    pub fn follow(&mut self, at: u64, bytes: u64) -> bool {
        self.clock += 1;
        let known = self.next.remove(&at);
        if let Some(known) = known {
            self.by_use.remove(&known.used);
        }
        let before = known.map_or((0, 0), |known| (known.requests, known.bytes));
        let stream = Stream {
            requests: before.0 + 1,
            bytes: before.1 + bytes,
            used: self.clock,
        };
        // Two that have met are one from now on.
        if let Some(met) = self.next.insert(at + bytes, stream) {
            self.by_use.remove(&met.used);
        }
        self.by_use.insert(self.clock, at + bytes);
        self.forget_oldest();
        stream.requests >= self.from.requests || stream.bytes >= self.from.bytes
    }

    fn forget_oldest(&mut self) {
        while self.next.len() > FOLLOWED {
            // What has become a stream stays longer than what was asked for once.
            let once = self.by_use.iter().take(FOLLOWED / 4);
            let once = once
                .map(|(&used, &at)| (used, at))
                .find(|(_, at)| self.next.get(at).is_some_and(|one| one.requests == 1));
            let oldest = self.by_use.first_key_value().map(|(&used, &at)| (used, at));
            let Some((used, at)) = once.or(oldest) else {
                return;
            };
            self.by_use.remove(&used);
            self.next.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_interleaved_streams_are_told_from_random_requests() {
        let mut streams = Streams::of_writes();
        let mut random = 1_u64;
        let (mut seen, mut mistaken) = (0, 0);
        for step in 0..200_u64 {
            for stream in 0..64 {
                seen += u32::from(streams.follow((stream << 32) | (step * 8192), 8192));
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let at = ((random >> 20) & !0xfff) | (1 << 60);
                mistaken += u32::from(streams.follow(at, 8192));
            }
        }
        assert_eq!(seen, 64 * (200 - WRITES.requests + 1));
        assert_eq!(mistaken, 0);
    }

    #[test]
    fn a_few_large_requests_are_a_stream() {
        for (mut streams, bytes) in [
            (Streams::of_writes(), 256 << 10),
            (Streams::of_reads(), 1 << 20),
        ] {
            assert!(!streams.follow(0, bytes));
            assert!(streams.follow(bytes, bytes));
            assert!(!streams.follow(0, 4096));
        }
    }
}
