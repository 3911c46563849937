//! Clocks of machines, compared.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::words::Reading;

/// A process's clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> Reading {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        Reading {
            steady_ns: self.steady_ns(),
            wall_ns: nanoseconds(wall.unwrap_or_default()),
        }
    }

    pub(super) fn steady_ns(&self) -> u64 {
        nanoseconds(self.origin.elapsed())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How far another machine's clocks are ahead of ours: known to half the time that asking took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ahead {
    pub(super) steady_ns: i64,
    pub(super) wall_ns: i64,
    pub(super) error_ns: u64,
}

/// One question and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) before: Reading,
    pub(super) theirs: Reading,
    pub(super) after: Reading,
}

impl Asked {
    /// They read their clock somewhere between our two readings: in the middle, as far as is known.
    pub(super) fn ahead(&self) -> Ahead {
        let Self {
            before,
            theirs,
            after,
        } = self;
        // Theirs may be any number.
        let ahead = |theirs: u64, ours: u64| theirs.wrapping_sub(ours) as i64;
        let took = after.steady_ns.saturating_sub(before.steady_ns);
        Ahead {
            steady_ns: ahead(theirs.steady_ns, before.steady_ns.midpoint(after.steady_ns)),
            wall_ns: ahead(theirs.wall_ns, before.wall_ns.midpoint(after.wall_ns)),
            error_ns: took.div_ceil(2),
        }
    }
}

/// The best of several answers: the one that is known best.
pub(super) fn best(all: impl IntoIterator<Item = Ahead>) -> Option<Ahead> {
    all.into_iter().min_by_key(|ahead| ahead.error_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(steady_ns: u64, wall_ns: u64) -> Reading {
        Reading { steady_ns, wall_ns }
    }

    #[test]
    fn the_quickest_answer_tells_most() {
        let slow = Asked {
            before: at(1_000, 50_000),
            theirs: at(9_900, 20_900),
            after: at(2_000, 51_000),
        };
        let quick = Asked {
            before: at(3_000, 52_000),
            theirs: at(11_550, 22_050),
            after: at(3_100, 52_100),
        };
        let found = best([slow.ahead(), quick.ahead()]).expect("two");
        assert_eq!(
            found,
            Ahead {
                steady_ns: 8_500,
                wall_ns: -30_000,
                error_ns: 50
            }
        );
        // What was so cannot be further off than the error says.
        assert_eq!(slow.ahead().error_ns, 500);
        assert!((slow.ahead().steady_ns - 8_500).unsigned_abs() <= 500);
    }

    #[test]
    fn an_answer_may_be_any_number() {
        let asked = |theirs| Asked {
            before: at(1_000, 50_000),
            theirs: at(theirs, theirs),
            after: at(2_000, 51_000),
        };
        for theirs in [0, 1 << 63, u64::MAX] {
            assert_eq!(asked(theirs).ahead().error_ns, 500);
        }
    }
}
