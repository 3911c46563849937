use std::sync::atomic::{AtomicU64, Ordering};

/// Whether acknowledged writes may still be in the remote device's volatile cache; shared by all
/// objects over one namespace, because a flush through any of them covers the writes of all.
///
/// Time is cut into generations, one a flush. A write acknowledged in generation `g` is covered by
/// every flush that began at the end of `g` or later.
#[derive(Debug)]
pub struct Unflushed {
    generation: AtomicU64,
    /// The last generation in which a write was acknowledged.
    written: AtomicU64,
    /// Everything up to this generation was flushed.
    flushed: AtomicU64,
}

impl Default for Unflushed {
    fn default() -> Self {
        Self {
            generation: AtomicU64::new(1),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
        }
    }
}

impl Unflushed {
    /// A write that may be in the cache has been acknowledged. Mostly only reads shared memory.
    pub fn wrote(&self) {
        let generation = self.generation.load(Ordering::Acquire);
        if self.written.load(Ordering::Relaxed) < generation {
            self.written.fetch_max(generation, Ordering::AcqRel);
        }
    }

    /// A flush begins; the number is for [`flushed`](Self::flushed).
    pub fn begin(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::AcqRel)
    }

    /// The flush that began with this number has succeeded.
    pub fn flushed(&self, number: u64) {
        self.flushed.fetch_max(number, Ordering::AcqRel);
    }

    /// Whether a power loss of the remote device could lose acknowledged writes.
    pub fn any(&self) -> bool {
        self.written.load(Ordering::Acquire) > self.flushed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_flush_that_began_after_a_write_covers_it() {
        let unflushed = Unflushed::default();
        assert!(!unflushed.any());
        unflushed.wrote();
        let first = unflushed.begin();
        unflushed.wrote();
        unflushed.flushed(first);
        assert!(
            unflushed.any(),
            "the second write came after the flush began"
        );
        let second = unflushed.begin();
        assert!(unflushed.any(), "a flush that only began covers nothing");
        unflushed.flushed(second);
        assert!(!unflushed.any());
    }
}
