//! Load of another kind than devices': users of a database. What it is stands in words that only its two ends
//! understand; who is let in, when it begins, who died and what is told meanwhile are as with devices.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::live::Counter;
use crate::{LabError, Progress};

/// Makes such load.
pub trait OtherLoad: Sync {
    /// Whether it can be made from here.
    ///
    /// # Errors
    /// Why not.
    fn look(&self, words: &str) -> Result<(), LabError>;

    /// Makes everything ready, waits for the start, and loads; what was measured, in words.
    ///
    /// # Errors
    /// It could not be made ready, or has failed.
    fn carry_out(&self, words: &str, start: &mut Start<'_>) -> Result<String, LabError>;
}

/// For agents that load devices only.
#[derive(Debug)]
pub struct NoOtherLoad;

impl OtherLoad for NoOtherLoad {
    fn look(&self, _: &str) -> Result<(), LabError> {
        Err(LabError::usage("this agent loads devices only"))
    }

    fn carry_out(&self, words: &str, _: &mut Start<'_>) -> Result<String, LabError> {
        self.look(words).map(|()| String::new())
    }
}

/// When a load begins, whether it is to end, and what it has done so far.
pub struct Start<'a> {
    pub(super) begin: &'a mut dyn FnMut() -> bool,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) counter: Arc<Counter>,
}

impl Start<'_> {
    /// Says that all is ready, and returns at the moment at which all begin; false: they are not to.
    pub fn wait(&mut self) -> bool {
        (self.begin)()
    }

    /// What says whether it is to end.
    pub fn progress(&self) -> Progress {
        Progress::silent().until(Arc::clone(&self.stop))
    }

    /// By which those who look on are told that so many more were done, with this sum of latencies in nanoseconds.
    pub fn counting(&self) -> impl Fn(u64, u64) + Sync + use<> {
        let counter = Arc::clone(&self.counter);
        move |done, ns| counter.add(done, ns)
    }
}
