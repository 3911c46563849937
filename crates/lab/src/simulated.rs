//! Devices without I/O, for tests of the lab and of what uses it: a medium in memory whose
//! service times are a model and whose clock is virtual, so that a second of load passes in
//! milliseconds and a seed replays it.
//!
//! Each worker has a clock of its own. The service model is that of one server a worker: a request
//! takes `service` time, and a device works at `parallel` requests at once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ashlar_block::{
    BlockDevice, BlockSize, BufferPool, Completion, Description, ErrorKind, Geometry, IoError,
    Moment, Operation, Request,
};

use crate::{LabError, OpenOptions, PrepareOptions, Prepared, Stacks, Worker};

/// A simulated device's behaviour.
#[derive(Clone, Debug)]
pub struct Model {
    /// Logical block.
    pub block_size: BlockSize,
    /// Capacity in logical blocks.
    pub blocks: u64,
    /// Time to serve a read, plus up to a tenth at random.
    pub read: Duration,
    /// Time to serve a write, likewise.
    pub write: Duration,
    /// Requests served at once (a worker).
    pub parallel: usize,
    /// Every n-th write is acknowledged and dropped; 0: none.
    pub lose_every: u64,
    /// Every n-th request fails; 0: none.
    pub fail_every: u64,
    /// After this many requests the worker's event loop fails; 0: never.
    pub die_after: u64,
    /// What a guard would find.
    pub holds: Option<String>,
    /// Whether it says that it is new.
    pub fresh: bool,
}

impl Model {
    /// A sound device of `bytes` with 4 KiB blocks that serves `parallel` requests at once in
    /// `service` each.
    pub fn new(bytes: u64, service: Duration, parallel: usize) -> Self {
        Self {
            block_size: BlockSize::B4096,
            blocks: bytes / 4096,
            read: service,
            write: service,
            parallel,
            lose_every: 0,
            fail_every: 0,
            die_after: 0,
            holds: None,
            fresh: false,
        }
    }
}

type Medium = Arc<Mutex<HashMap<u64, Box<[u8]>>>>;

/// Simulated stacks by name.
#[derive(Default)]
pub struct Simulated {
    devices: HashMap<String, (Model, Medium)>,
}

impl Simulated {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a device under `spec`.
    #[must_use]
    pub fn with(mut self, spec: &str, model: Model) -> Self {
        self.devices
            .insert(spec.to_owned(), (model, Medium::default()));
        self
    }

    fn find(&self, spec: &str) -> Result<&(Model, Medium), LabError> {
        self.devices
            .get(spec)
            .ok_or_else(|| LabError::environment(format!("{spec}: no such simulated device")))
    }
}

impl Stacks for Simulated {
    fn prepare(&self, spec: &str, _: &PrepareOptions) -> Result<Prepared, LabError> {
        let (model, _) = self.find(spec)?;
        Ok(Prepared {
            geometry: Geometry::plain(model.block_size, model.blocks),
            description: format!("simulated {spec}"),
            holds: model.holds.clone(),
            fresh: model.fresh,
            file_system: None,
        })
    }

    fn open(&self, spec: &str, options: &OpenOptions) -> Result<Box<dyn Worker>, LabError> {
        let (model, medium) = self.find(spec)?;
        let device = Device {
            model: model.clone(),
            medium: medium.clone(),
            rng: fastrand::Rng::with_seed(options.thread as u64),
            servers: vec![Moment::ORIGIN; model.parallel.max(1)],
            queue: BinaryHeap::new(),
            waiting: HashMap::new(),
            now: Moment::ORIGIN,
            count: 0,
            writes: 0,
        };
        Ok(Box::new(SimulatedWorker {
            device,
            pool: BufferPool::new(options.buffer_bytes * 2 + (4 << 20)),
        }))
    }
}

struct SimulatedWorker {
    device: Device,
    pool: BufferPool,
}

struct Device {
    model: Model,
    medium: Medium,
    rng: fastrand::Rng,
    /// When each server is free.
    servers: Vec<Moment>,
    queue: BinaryHeap<Reverse<(Moment, u64)>>,
    waiting: HashMap<u64, Request>,
    now: Moment,
    count: u64,
    writes: u64,
}

impl Worker for SimulatedWorker {
    fn device(&mut self) -> &mut dyn BlockDevice {
        &mut self.device
    }

    fn buffers(&self) -> BufferPool {
        self.pool.clone()
    }

    fn now(&self) -> Moment {
        self.device.now
    }

    fn turn(&mut self, deadline: Option<Moment>) -> Result<(), LabError> {
        let device = &mut self.device;
        if device.model.die_after > 0 && device.count > device.model.die_after {
            return Err(LabError::environment("simulated event loop died"));
        }
        // A turn costs a little, so time passes even when nothing is awaited.
        let floor = device.now + Duration::from_nanos(100);
        let next = device.queue.peek().map(|Reverse((at, _))| *at);
        let wake = match (next, deadline) {
            (Some(next), Some(deadline)) => next.min(deadline),
            (Some(at), None) | (None, Some(at)) => at,
            (None, None) => floor,
        };
        device.now = wake.max(floor);
        Ok(())
    }
}

impl Device {
    fn serve(&mut self, request: &mut Request) -> Result<(), IoError> {
        self.count += 1;
        let every = |n: u64, count: u64| n > 0 && count.is_multiple_of(n);
        if every(self.model.fail_every, self.count) {
            return Err(IoError::new(ErrorKind::Media, "simulated failure"));
        }
        let bytes = self.model.block_size.bytes() as usize;
        let mut medium = self.medium.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(buffer) = request.buffer.as_mut() else {
            return Ok(());
        };
        if request.op.modifies() {
            self.writes += 1;
            if every(self.model.lose_every, self.writes) {
                return Ok(());
            }
        }
        for (block, lba) in buffer.chunks_exact_mut(bytes).zip(request.range.start.0..) {
            match request.op {
                Operation::Read => match medium.get(&lba) {
                    Some(data) => block.copy_from_slice(data),
                    None => block.fill(0),
                },
                _ => drop(medium.insert(lba, block.to_vec().into_boxed_slice())),
            }
        }
        Ok(())
    }
}

impl BlockDevice for Device {
    fn geometry(&self) -> Geometry {
        Geometry::plain(self.model.block_size, self.model.blocks)
    }

    fn submit(&mut self, request: Request) {
        let base = if request.op.modifies() {
            self.model.write
        } else {
            self.model.read
        };
        let service = base + base.mul_f64(self.rng.f64() / 10.0);
        let Some(server) = self.servers.iter_mut().min() else {
            return;
        };
        *server = (*server).max(self.now) + service;
        self.queue.push(Reverse((*server, request.tag)));
        self.waiting.insert(request.tag, request);
    }

    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        self.now = self.now.max(now);
        while self.queue.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, tag))) = self.queue.pop() else {
                return;
            };
            let Some(mut request) = self.waiting.remove(&tag) else {
                continue;
            };
            let result = self.serve(&mut request);
            done.push(request.complete(result));
        }
    }

    fn describe(&self) -> Description {
        Description::leaf("simulated")
    }
}
