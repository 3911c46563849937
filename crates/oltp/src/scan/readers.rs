//! Readers that begin together, and that can be called off.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress};

use super::check_readers;
use crate::database::{Canceller, Database, ServerPlace, Watcher};
use crate::generate::SCAN_FILLER;
use crate::schema::SCAN_TABLE;

/// While they read, it is asked this often whether they are to go on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Readers that are logged in.
pub(crate) struct Readers(Vec<Box<dyn Watcher>>);

/// How long they took.
pub(crate) struct Times {
    /// Until the last one had read everything.
    pub(crate) run: Duration,
    /// The quickest one by itself.
    pub(crate) quickest: Duration,
}

/// What a reader took, or why it did not reach the end.
type Read = Result<Duration, LabError>;

impl Readers {
    /// Logs them in.
    ///
    /// # Errors
    /// There can be no such number, or not all can log in.
    pub(crate) fn open(database: &dyn Database, readers: usize) -> Result<Self, LabError> {
        check_readers(readers)?;
        let all: Result<_, _> = (0..readers).map(|_| database.watcher()).collect();
        all.map(Self)
    }

    /// Where the database is.
    pub(crate) fn place(&mut self) -> Result<ServerPlace, LabError> {
        let place = self.0.first_mut().map(|watcher| watcher.place());
        place.ok_or_else(|| LabError::usage("--readers: at least one"))
    }

    /// Has each of them read the whole table once.
    ///
    /// # Errors
    /// The first one's that fails; that it was interrupted, if so.
    pub(crate) fn read(self, rows: i32, progress: &Progress) -> Result<Times, LabError> {
        let count = self.0.len();
        let barrier = Barrier::new(count);
        let cancellers: Vec<Canceller> = self.0.iter().map(|w| w.canceller()).collect();
        let (tell, told) = channel();
        let start = Instant::now();
        let reads = std::thread::scope(|scope| {
            for watcher in self.0 {
                let (barrier, tell) = (&barrier, tell.clone());
                scope.spawn(move || read(watcher, barrier, rows, &tell));
            }
            // What is left are the readers' own: one that is lost is noticed.
            drop(tell);
            collect(&told, &cancellers, progress)
        });
        let run = start.elapsed();
        if reads.len() < count {
            return Err(LabError::environment("a reader was lost"));
        }
        let times: Result<Vec<Duration>, LabError> = reads.into_iter().collect();
        match times {
            Ok(times) => Ok(Times {
                run,
                quickest: times.into_iter().min().unwrap_or(run),
            }),
            // One that was called off complains about that.
            Err(error) => Err(progress.go_on().err().unwrap_or(error)),
        }
    }
}

/// Waits for all of them, and calls them off if they are not to go on: again and again, since one whose
/// query has not begun hears nothing.
fn collect(told: &Receiver<Read>, cancellers: &[Canceller], progress: &Progress) -> Vec<Read> {
    let mut reads = Vec::new();
    loop {
        match told.recv_timeout(LOOK_EVERY) {
            Ok(read) => reads.push(read),
            Err(RecvTimeoutError::Disconnected) => return reads,
            Err(RecvTimeoutError::Timeout) => {
                if progress.go_on().is_err() {
                    cancellers.iter().for_each(|cancel| cancel());
                }
            }
        }
    }
}

/// Reads the whole table once.
fn read(mut watcher: Box<dyn Watcher>, barrier: &Barrier, rows: i32, tell: &Sender<Read>) {
    barrier.wait();
    let start = Instant::now();
    let letters = watcher.letters("filler");
    let sum = watcher.number(&format!("SELECT {letters} FROM {SCAN_TABLE}"));
    let expected = i64::from(rows) * i64::from(SCAN_FILLER);
    let read = sum.and_then(|found| match found == expected {
        true => Ok(start.elapsed()),
        false => Err(LabError::check(format!(
            "a reader of {SCAN_TABLE} found {found} letters instead of {expected}"
        ))),
    });
    // The receiver is there until all have sent.
    let _ = tell.send(read);
}
