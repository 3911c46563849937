use std::time::Duration;

use ashlar_block::Moment;

/// Arrivals of an open loop: evenly spaced, counted, never stored.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    start: Moment,
    interval_ns: f64,
    /// Index of the next arrival.
    next: u64,
    /// More arrivals than this do not wait; the oldest are given up.
    limit: u64,
}

/// Arrivals that may wait at least, however low the rate.
const LEAST_LIMIT: u64 = 1000;

impl Pace {
    /// `rate` arrivals a second from `start` on; `phase` (0 to 1) shifts them by that share of an
    /// interval, so that threads take turns. As many as are due in one second may wait.
    pub(crate) fn new(start: Moment, rate: f64, phase: f64) -> Self {
        let interval_ns = 1e9 / rate;
        let shift = Duration::from_nanos((interval_ns * phase) as u64);
        Self {
            start: start + shift,
            interval_ns,
            next: 0,
            limit: LEAST_LIMIT.max(rate as u64),
        }
    }

    /// When the next arrival is due.
    pub(crate) fn due(&self) -> Moment {
        self.start + Duration::from_nanos((self.next as f64 * self.interval_ns) as u64)
    }

    /// Takes the next arrival if it is due.
    pub(crate) fn take(&mut self, now: Moment) -> Option<Moment> {
        let due = self.due();
        (due <= now).then(|| {
            self.next += 1;
            due
        })
    }

    /// How many are due and not taken.
    pub(crate) fn waiting(&self, now: Moment) -> u64 {
        if now < self.start {
            return 0;
        }
        let arrived = (now.since(self.start).as_nanos() as f64 / self.interval_ns) as u64 + 1;
        arrived.saturating_sub(self.next)
    }

    /// Gives up the oldest of those that wait beyond the limit; how many.
    pub(crate) fn give_up(&mut self, now: Moment) -> u64 {
        let excess = self.waiting(now).saturating_sub(self.limit);
        self.next += excess;
        excess
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn arrivals_do_not_wait_for_the_device() {
        let mut pace = Pace::new(ms(10), 1000.0, 0.5);
        assert_eq!(pace.take(ms(10)), None);
        let first = pace.take(ms(11)).expect("due at 10.5");
        assert_eq!(first.as_nanos(), 10_500_000);
        assert_eq!(pace.waiting(ms(20)), 9);
        assert_eq!(pace.take(ms(20)).map(Moment::as_nanos), Some(11_500_000));
        assert_eq!(pace.waiting(ms(0)), 0);
    }

    #[test]
    fn the_backlog_is_bounded() {
        let mut pace = Pace::new(ms(0), 1000.0, 0.0);
        assert_eq!(pace.give_up(ms(900)), 0);
        let given_up = pace.give_up(ms(5000));
        assert_eq!((given_up, pace.waiting(ms(5000))), (4001, 1000));
    }
}
