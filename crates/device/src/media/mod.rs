//! Devices with the timing of real media, over a device that holds the data.
//!
//! A model (`disk`, `array`, `flash`) decides *when* a command is done; the device below does *what* it
//! asks; a command completes when both have happened. All queues of a device share its model, as
//! they would share the arm or the channels. Models know no clock: time comes with `poll`, so a
//! test or a simulator can run hours in a moment and get the same answer every time.
//! `docs/devices.md` names where the parameters come from.

mod array;
mod disk;
mod flash;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_block::{BlockDevice, Description, Durability, Geometry, IoError, Moment, Operation};
use ashlar_reactor::{Handle, Opener};

pub use array::{ArrayModel, Level};
pub use disk::DiskModel;
pub use flash::FlashModel;

/// Which command of which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    queue: usize,
    flight: usize,
}

/// What the medium has to do for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Read,
    Write(Durability),
    Flush,
    /// Bookkeeping only.
    Deallocate,
}

impl From<Operation> for Work {
    fn from(op: Operation) -> Self {
        match op {
            Operation::Read => Self::Read,
            Operation::Write(durability)
            | Operation::WriteZeroes {
                durability,
                deallocate: false,
            } => Self::Write(durability),
            Operation::Flush => Self::Flush,
            Operation::Deallocate | Operation::WriteZeroes { .. } => Self::Deallocate,
        }
    }
}

/// A command as a model sees it: bytes, and when it arrived.
#[derive(Clone, Copy, Debug)]
struct Command {
    id: Id,
    work: Work,
    offset: u64,
    len: u64,
    arrival: Moment,
}

/// The timing of one medium. Time never runs backwards from call to call.
trait Model: Send {
    /// Takes a command that arrives now.
    fn admit(&mut self, command: Command);
    /// Appends what is done by `now`.
    fn advance(&mut self, now: Moment, finished: &mut Vec<Id>);
    /// When `advance` will have something to do.
    fn next_event(&self) -> Option<Moment>;
    /// How often an arm had to move.
    fn seeks(&self) -> u64 {
        0
    }
}

/// What the queues of one device share: the model, and each queue's finished commands.
struct Engine {
    model: Box<dyn Model>,
    finished: Vec<Vec<usize>>,
    scratch: Vec<Id>,
}

impl Engine {
    fn advance(&mut self, now: Moment) {
        self.model.advance(now, &mut self.scratch);
        for id in self.scratch.drain(..) {
            self.finished[id.queue].push(id.flight);
        }
    }
}

#[derive(Clone)]
struct SharedEngine(Arc<Mutex<Engine>>);

impl SharedEngine {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device with the timing of a medium.
pub struct Media {
    child: Arc<dyn Opener>,
    engine: SharedEngine,
    title: String,
    volatile_cache: bool,
}

impl Media {
    /// `child` as a disk. The device spans the disk's whole stroke, however small it is, so that a
    /// scaled-down experiment seeks as far as a full one.
    pub fn disk(child: Arc<dyn Opener>, model: DiskModel) -> Arc<Self> {
        let timing = disk::Disk::new(model, child.geometry().bytes());
        let title = model.to_string();
        Self::over(child, Box::new(timing), title, model.cached_writes > 0)
    }

    /// `child` as disks behind a controller, each with its share of what `child` has.
    pub fn array(child: Arc<dyn Opener>, model: ArrayModel) -> Arc<Self> {
        let timing = array::Array::new(model, child.geometry().bytes());
        let cached = model.disk.cached_writes > 0;
        Self::over(child, Box::new(timing), model.to_string(), cached)
    }

    /// How often an arm had to move so far.
    pub fn seeks(&self) -> u64 {
        self.engine.lock().model.seeks()
    }

    /// `child` as a SATA SSD.
    pub fn flash(child: Arc<dyn Opener>, model: FlashModel) -> Arc<Self> {
        let timing = flash::Flash::new(model);
        // A SATA drive reports its write cache whether or not capacitors protect it.
        Self::over(child, Box::new(timing), model.to_string(), true)
    }

    fn over(
        child: Arc<dyn Opener>,
        model: Box<dyn Model>,
        title: String,
        volatile_cache: bool,
    ) -> Arc<Self> {
        let engine = Engine {
            model,
            finished: Vec::new(),
            scratch: Vec::new(),
        };
        let volatile_cache = volatile_cache || child.geometry().volatile_cache;
        Arc::new(Self {
            child,
            engine: SharedEngine(Arc::new(Mutex::new(engine))),
            title,
            volatile_cache,
        })
    }
}

impl Opener for Media {
    fn geometry(&self) -> Geometry {
        Geometry {
            volatile_cache: self.volatile_cache,
            ..self.child.geometry()
        }
    }

    fn open(&self, reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        let child = self.child.open(reactor)?;
        Ok(Box::new(queue::MediaQueue::new(self, child)))
    }

    fn describe(&self) -> Description {
        Description::over(self.title.clone(), vec![self.child.describe()])
    }

    fn names(&self) -> Vec<String> {
        self.child.names()
    }
}
