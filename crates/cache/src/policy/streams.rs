//! Streams: requests each of which begins where an earlier one has ended. Logs, backups and scans are such.

use std::collections::{BTreeMap, HashMap};

/// Requests side by side that make a stream.
const REQUESTS: u32 = 8;
/// So do fewer, of so many bytes together.
const BYTES: u64 = 512 << 10;
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

impl Stream {
    fn is_one(&self) -> bool {
        self.requests >= REQUESTS || self.bytes >= BYTES
    }
}

/// The streams that are followed, by the byte at which each goes on.
#[derive(Debug, Default)]
pub struct Streams {
    next: HashMap<u64, Stream>,
    by_use: BTreeMap<u64, u64>,
    clock: u64,
}

impl Streams {
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
        stream.is_one()
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
        let mut streams = Streams::default();
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
        assert_eq!(seen, 64 * (200 - REQUESTS + 1));
        assert_eq!(mistaken, 0);
    }

    #[test]
    fn a_few_large_requests_are_a_stream() {
        let mut streams = Streams::default();
        assert!(!streams.follow(0, 256 << 10));
        assert!(streams.follow(256 << 10, 256 << 10));
        assert!(!streams.follow(0, 4096));
    }
}
