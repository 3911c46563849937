use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on a monotonic clock, in nanoseconds since an origin its owner chose.
///
/// State machines take it as a parameter and never read a clock, so a simulator can own time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The clock's origin.
    pub const ORIGIN: Moment = Moment(0);

    /// A moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, by: Duration) -> Moment {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanos))
    }
}

impl Sub for Moment {
    type Output = Duration;
    fn sub(self, earlier: Moment) -> Duration {
        self.since(earlier)
    }
}
