//! Wakes a thread that looks at something now and then, when there is something to see.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A bell: a ring that comes before the wait is not missed.
#[derive(Debug, Default)]
pub(super) struct Wake {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    pub(super) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for a ring, at most so long.
    pub(super) fn wait(&self, limit: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(rung, limit, |rung| !*rung);
        let (mut rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *rung = false;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_ring_before_the_wait_ends_it_at_once_and_only_it() {
        let wake = Wake::default();
        wake.ring();
        let begun = Instant::now();
        wake.wait(Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(30));
        let begun = Instant::now();
        wake.wait(Duration::from_millis(20));
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }
}
