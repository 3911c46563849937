//! Whether a block device answers, as the kernel counts.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the kernel counts of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    answered: u64,
    /// Requests that are on their way.
    waiting: u64,
}

/// Watches a device for answers.
pub(crate) struct Progress {
    last: Counts,
    /// When something was answered, or nothing was on its way.
    since: Instant,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            last: Counts::default(),
            since: Instant::now(),
        }
    }

    /// For how long requests to `device` have waited without one being answered.
    pub(crate) fn silent_for(&mut self, device: &Path) -> Duration {
        self.note(counts(device).unwrap_or_default())
    }

    fn note(&mut self, now: Counts) -> Duration {
        if now.waiting == 0 || now.answered != self.last.answered {
            self.since = Instant::now();
        }
        self.last = now;
        self.since.elapsed()
    }
}

fn counts(device: &Path) -> Option<Counts> {
    let path = Path::new("/sys/block").join(device.file_name()?);
    parse(&fs::read_to_string(path.join("stat")).ok()?)
}

/// `/sys/block/NAME/stat`: reads are field 1, writes 5, on their way 9, discards 12, flushes 16.
fn parse(text: &str) -> Option<Counts> {
    let fields: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
    let of = |number: usize| fields.get(number - 1).copied();
    Some(Counts {
        answered: of(1)? + of(5)? + of(12).unwrap_or(0) + of(16).unwrap_or(0),
        waiting: of(9)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_silent_while_it_owes_answers_and_gives_none() {
        let line = "3 0 24 1 5 0 40 2 7 3 3 11 0 0 0 13 1";
        let found = parse(line).expect("a line of the kernel's");
        assert_eq!((found.answered, found.waiting), (3 + 5 + 11 + 13, 7));
        assert_eq!(parse("1 2 3"), None);
        let mut progress = Progress::new();
        let ago = Duration::from_secs(5);
        let at = |answered, waiting| Counts { answered, waiting };
        progress.note(at(1, 2));
        progress.since -= ago;
        assert!(progress.note(at(1, 2)) >= ago);
        assert!(progress.note(at(2, 1)) < ago, "one was answered");
        progress.since -= ago;
        assert!(progress.note(at(2, 0)) < ago, "none is owed");
    }
}
