//! Looks at counters of volumes and drives now and then, beside what is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ashlar_lab::LabError;
use ashlar_oltp::versus::{Meter, Moved, Sample};

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Bytes read and written so far; nothing if it cannot be told now.
pub(super) type Counters = Box<dyn Fn() -> Option<(u64, u64)> + Send>;

/// What is looked at.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) side: Moved,
    pub(super) counters: Counters,
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
