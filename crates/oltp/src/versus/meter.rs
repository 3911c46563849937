//! What a volume or a drive has moved, by the clock: read from its counters now and then.

use serde::{Deserialize, Serialize};

/// Which side a meter is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Moved {
    /// The instance's.
    Fci,
    /// The group's.
    Group,
}

/// Counters at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Seconds of Unix time.
    pub at: f64,
    /// Bytes read so far.
    pub read: u64,
    /// Bytes written so far.
    pub written: u64,
}

/// All that was seen of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Meter {
    /// What it is, in words.
    pub name: String,
    pub side: Moved,
    /// In the order of time.
    pub samples: Vec<Sample>,
}

impl Meter {
    /// Bytes read and written from one time to another, by what was seen before and after each.
    pub(super) fn between(&self, from: f64, to: f64) -> Option<(f64, f64)> {
        let (begin, end) = (self.at(from)?, self.at(to)?);
        Some(((end.0 - begin.0).max(0.0), (end.1 - begin.1).max(0.0)))
    }

    fn at(&self, time: f64) -> Option<(f64, f64)> {
        let after = self.samples.iter().position(|one| one.at >= time)?;
        let of = |one: &Sample| (one.read as f64, one.written as f64);
        let late = &self.samples[after];
        let Some(early) = after.checked_sub(1).map(|before| &self.samples[before]) else {
            return (late.at == time).then(|| of(late));
        };
        let share = (time - early.at) / (late.at - early.at).max(1e-9);
        let (a, b) = (of(early), of(late));
        Some((a.0 + (b.0 - a.0) * share, a.1 + (b.1 - a.1) * share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_moved_is_told_between_two_looks() {
        let sample = |at, read, written| Sample { at, read, written };
        let meter = Meter {
            name: "a".into(),
            side: Moved::Fci,
            samples: vec![
                sample(10.0, 0, 0),
                sample(11.0, 100, 10),
                sample(13.0, 300, 10),
            ],
        };
        assert_eq!(meter.between(10.5, 12.0), Some((150.0, 5.0)));
        assert_eq!(meter.between(9.0, 12.0), None, "nothing was seen before");
        assert_eq!(meter.between(12.0, 14.0), None, "nor after");
    }
}
