//! What the lab asks of the room that assembles stacks and runs event loops. The lab itself opens no
//! device, file or socket for I/O; it drives what these traits hand it.

use std::path::PathBuf;

use ashlar_block::{BlockDevice, BufferPool, Geometry, Moment};
use serde::{Deserialize, Serialize};

use crate::result::Capacity;
use crate::{LabError, Pool};

/// Opens what `--on` names. Implemented by the room that assembles stacks.
pub trait Stacks: Send + Sync {
    /// Looks at (and, for a file that does not exist, makes) what `spec` names. Called once a
    /// configuration, before anything is opened. Refuses what cannot be used with an error that
    /// names it; leaves the decision about data it finds to the lab ([`Prepared::holds`]).
    fn prepare(&self, spec: &str, options: &PrepareOptions) -> Result<Prepared, LabError>;

    /// Opens `spec` for one worker. Called on the worker's own thread, after it was pinned; every
    /// object opened for one spec sees the same medium.
    fn open(&self, spec: &str, options: &OpenOptions) -> Result<Box<dyn Worker>, LabError>;
}

/// How [`Stacks::prepare`] is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrepareOptions {
    /// Bytes to make a new file with, if the spec itself does not say.
    pub size: Option<u64>,
    /// The run will write to what is there (what is new is filled in any case).
    pub writes: bool,
    /// The user allowed overwriting what is there.
    pub destroy_data: bool,
}

/// What [`Stacks::prepare`] found.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The assembled device's shape.
    pub geometry: Geometry,
    /// The stack as a tree, for the report.
    pub description: String,
    /// What is there that a write would destroy ("ext4 file system, label `data`"); `None` when
    /// it is new or empty.
    pub holds: Option<String>,
    /// This call made it (a new file, new memory): there is nothing to lose and nothing to read.
    /// The lab then fills it even for reads alone, since unwritten space reads faster than data.
    pub fresh: bool,
    /// Kind of the file system that backing files lie on, if any ("xfs", "tmpfs").
    pub file_system: Option<String>,
}

/// How [`Stacks::open`] is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Which of the cell's threads this is, from 0.
    pub thread: usize,
    /// How many threads the cell has.
    pub threads: usize,
    /// The processor the thread is pinned to, if it is.
    pub cpu: Option<usize>,
    /// Bytes to make a new file with, as in [`PrepareOptions::size`].
    pub size: Option<u64>,
    /// The most requests that will be in flight.
    pub depth: usize,
    /// The worker's pool must be able to give out this many bytes of buffers.
    pub buffer_bytes: usize,
    /// The worker will write.
    pub writes: bool,
}

/// One thread's device plus its event loop.
pub trait Worker {
    fn device(&mut self) -> &mut dyn BlockDevice;

    /// Where buffers for its requests come from.
    fn buffers(&self) -> BufferPool;

    /// The time, on a monotonic clock. Its origin is the worker's own.
    fn now(&self) -> Moment;

    /// Submits what is queued and waits until something may have completed or `deadline` passes;
    /// then the caller polls the device. A deadline that has passed means: do not wait. May
    /// return early.
    fn turn(&mut self, deadline: Option<Moment>) -> Result<(), LabError>;
}

/// Serves stacks over the network, for configurations that say `remote = true`.
pub trait Services: Send + Sync {
    /// Starts a server for `spec` on loopback and returns when it is ready. Dropping the result
    /// stops the server and frees the stack.
    fn serve(&self, spec: &str, options: &PrepareOptions) -> Result<Box<dyn Service>, LabError>;

    /// Makes a pool of new drives with a volume, and serves that. Dropping the result ends it.
    fn pool(&self, pool: &PoolStack) -> Result<Box<dyn Service>, LabError> {
        let layout = &pool.pool.layout;
        Err(LabError::environment(format!(
            "{layout}: this build has no pools"
        )))
    }
}

/// A volume of a pool of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStack {
    /// What it is made of.
    pub pool: Pool,
    /// Bytes of the volume.
    pub bytes: u64,
    /// A folder for everything.
    pub dir: PathBuf,
}

/// A running server.
pub trait Service {
    /// What to give to [`Stacks::open`] to reach it (`nvme-tcp://ADDRESS:PORT/NQN?ns=1`).
    fn url(&self) -> &str;

    /// What of its drives could be data, if it is a pool of the run's own.
    fn capacity(&self) -> Option<Capacity> {
        None
    }

    /// How what it serves since the last look is not what was asked for: a figure of that time is of something else.
    fn unlike(&self) -> Option<String> {
        None
    }
}

/// For runs without remote configurations: refuses them.
pub struct NoServices;

impl Services for NoServices {
    fn serve(&self, spec: &str, _: &PrepareOptions) -> Result<Box<dyn Service>, LabError> {
        Err(LabError::environment(format!(
            "{spec}: this build cannot serve a stack for a remote configuration"
        )))
    }
}
