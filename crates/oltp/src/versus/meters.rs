//! Looks at counters of volumes and drives now and then, beside what is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ashlar_lab::LabError;

use super::{Meter, Moved, Sample};

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Bytes read and written so far; nothing if it cannot be told now.
pub type Counters = Box<dyn Fn() -> Option<(u64, u64)> + Send>;

/// What is looked at.
pub struct Source {
    /// What it is, in words.
    pub name: String,
    pub side: Moved,
    /// How it is asked.
    pub counters: Counters,
}

/// A thread that looks.
pub(super) struct Meters {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Meter>>,
}

impl Meters {
    pub(super) fn start(sources: Vec<Source>) -> Result<Self, LabError> {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = std::thread::Builder::new().name("meters".into());
        let thread = thread.spawn(move || look(&sources, &until));
        let thread = thread.map_err(|error| LabError::caused("a thread", error))?;
        Ok(Self { over, thread })
    }

    /// What was seen.
    pub(super) fn end(self) -> Vec<Meter> {
        self.over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or_default()
    }
}

fn look(sources: &[Source], over: &AtomicBool) -> Vec<Meter> {
    let empty = |source: &Source| Meter {
        name: source.name.clone(),
        side: source.side,
        samples: Vec::new(),
    };
    let mut meters: Vec<Meter> = sources.iter().map(empty).collect();
    loop {
        // Once more after the end: what came last is between two looks.
        let is_last = over.load(Ordering::SeqCst);
        for (source, meter) in sources.iter().zip(&mut meters) {
            let counters = (source.counters)();
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            if let (Some((read, written)), Ok(now)) = (counters, now) {
                meter.samples.push(Sample {
                    at: now.as_secs_f64(),
                    read,
                    written,
                });
            }
        }
        if is_last {
            return meters;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn what_answers_is_looked_at_until_after_the_end() {
        let moved = Arc::new(AtomicU64::new(7));
        let seen = Arc::clone(&moved);
        let source = |name: &str, counters: Counters| Source {
            name: name.into(),
            side: Moved::Fci,
            counters,
        };
        let sources = vec![
            source(
                "counts",
                Box::new(move || Some((seen.load(Ordering::SeqCst), 1))),
            ),
            source("is silent", Box::new(|| None)),
        ];
        let meters = Meters::start(sources).expect("a thread");
        // What is moved last is in the last look, which comes after the end.
        moved.store(9, Ordering::SeqCst);
        let all = meters.end();
        let read = |at: usize| -> Vec<u64> { all[at].samples.iter().map(|one| one.read).collect() };
        assert_eq!(read(0).last(), Some(&9), "{all:?}");
        assert!(read(1).is_empty() && all[1].name == "is silent");
    }
}
