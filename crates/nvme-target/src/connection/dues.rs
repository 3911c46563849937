//! Whether a host gets on with what it owes: data that it was asked for, and the rest of a PDU.

use std::time::Duration;

use ashlar_block::Moment;

/// A host that owes bytes and sends fewer than this a second is slow. A hundredth of the slowest link in use
/// for storage, and a buffer of 1 MiB is back within a minute.
pub(crate) const LEAST_BYTES_PER_SECOND: usize = 16 << 10;
/// How long that is counted before it is judged.
const WINDOW: Duration = Duration::from_millis(500);

/// What a connection's host has paid.
#[derive(Debug, Default)]
pub(crate) struct Dues {
    /// Since when bytes are counted; `None` while it owes nothing.
    since: Option<Moment>,
    /// Bytes received since then.
    paid: usize,
    /// Since when it has been slow.
    slow_since: Option<Moment>,
}

impl Dues {
    /// It has sent so many bytes.
    pub(crate) fn pay(&mut self, bytes: usize) {
        self.paid += bytes;
    }

    /// It owes nothing now.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Counts from anew: it could not pay, or its bytes were not read.
    pub(crate) fn restart(&mut self) {
        self.since = None;
    }

    /// Looks at the clock. Time counts from the first look that finds that it `owes`.
    pub(crate) fn look(&mut self, now: Moment, owes: bool) {
        if !owes {
            return self.clear();
        }
        let Some(since) = self.since else {
            (self.since, self.paid) = (Some(now), 0);
            return;
        };
        let counted = now.since(since);
        if counted < WINDOW {
            return;
        }
        let enough = LEAST_BYTES_PER_SECOND as u128 * counted.as_millis() / 1000;
        if self.paid as u128 >= enough {
            self.slow_since = None;
        } else {
            self.slow_since.get_or_insert(since);
        }
        (self.since, self.paid) = (Some(now), 0);
    }

    /// Whether it was slow when that was judged last.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow_since.is_some()
    }

    /// For how long it has been slow.
    pub(crate) fn slow_for(&self, now: Moment) -> Duration {
        self.slow_since
            .map_or(Duration::ZERO, |since| now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pennies_are_slow_and_a_pause_is_made_good() {
        let mut dues = Dues::default();
        let mut now = Moment::ORIGIN;
        let mut live = |dues: &mut Dues, bytes: usize, times: usize| {
            for _ in 0..times {
                dues.pay(bytes);
                now = now + Duration::from_millis(100);
                dues.look(now, true);
            }
            now
        };
        live(&mut dues, 4, 20);
        assert!(dues.is_slow());
        let now = live(&mut dues, 2000, 20);
        assert!(!dues.is_slow());
        let end = live(&mut dues, 0, 20);
        assert!(
            dues.slow_for(end) >= Duration::from_secs(1),
            "{:?}",
            end.since(now)
        );
        dues.look(end, false);
        assert!(!dues.is_slow());
    }
}
