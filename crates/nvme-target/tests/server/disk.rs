//! A disk in memory whose size changes, and that can hold commands back.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashlar_block::{
    BlockDevice, BlockSize, Completion, Description, ErrorKind, Geometry, IoError, Moment,
    Operation, Request,
};
use ashlar_reactor::{Handle, Opener};

#[derive(Default)]
pub struct Disk {
    blocks: AtomicU64,
    bytes: Mutex<Vec<u8>>,
    pub hold: AtomicBool,
    /// Requests that it was given.
    pub taken: AtomicUsize,
    /// Opened devices.
    pub open: AtomicUsize,
    /// How many more may be opened; then it fails.
    pub openings: AtomicU64,
}

impl Disk {
    pub fn new(blocks: u64) -> Arc<Self> {
        let disk = Self::default();
        disk.openings.store(u64::MAX, Ordering::SeqCst);
        disk.resize(blocks);
        Arc::new(disk)
    }

    pub fn resize(&self, blocks: u64) {
        let mut bytes = self.bytes.lock().expect("sound");
        bytes.resize(blocks as usize * 4096, 0);
        self.blocks.store(blocks, Ordering::SeqCst);
    }
}

/// The same disk, for the test and for the server.
pub struct Door(pub Arc<Disk>);

impl Opener for Door {
    fn geometry(&self) -> Geometry {
        Geometry::plain(BlockSize::B4096, self.0.blocks.load(Ordering::SeqCst))
    }

    fn open(&self, _: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        let left = &self.0.openings;
        let take = |n: u64| n.checked_sub(1);
        if left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .is_err()
        {
            return Err(IoError::new(ErrorKind::Exhausted, "no more openings"));
        }
        self.0.open.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Queue {
            geometry: self.geometry(),
            disk: self.0.clone(),
            waiting: Vec::new(),
        }))
    }

    fn describe(&self) -> Description {
        Description::leaf("test disk")
    }
}

struct Queue {
    disk: Arc<Disk>,
    geometry: Geometry,
    waiting: Vec<Request>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.disk.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl BlockDevice for Queue {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request) {
        self.disk.taken.fetch_add(1, Ordering::SeqCst);
        self.waiting.push(request);
    }

    fn poll(&mut self, _: Moment, done: &mut Vec<Completion>) {
        if self.waiting.is_empty() || self.disk.hold.load(Ordering::SeqCst) {
            return;
        }
        let mut bytes = self.disk.bytes.lock().expect("sound");
        for mut request in self.waiting.drain(..) {
            let from = self.geometry.range_offset(request.range) as usize;
            let place = &mut bytes[from..][..self.geometry.range_bytes(request.range)];
            match (request.op, request.buffer.as_deref_mut()) {
                (Operation::Read, Some(buffer)) => buffer.copy_from_slice(place),
                (Operation::Write(_), Some(buffer)) => place.copy_from_slice(buffer),
                _ => {}
            }
            done.push(request.complete(Ok(())));
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        // Nothing wakes the core when the hold is over.
        let held = !self.waiting.is_empty();
        held.then(|| ashlar_reactor::Clock.now() + Duration::from_millis(2))
    }

    fn describe(&self) -> Description {
        Description::leaf("test disk")
    }
}
