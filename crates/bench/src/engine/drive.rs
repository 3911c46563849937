//! Drives that count. Their content is sparse (a page of one repeated byte takes four bytes), their
//! time is simulated: a transfer occupies its drive for as long as its bytes take, and is answered a
//! latency later. So a run is the same on every machine, and as fast as the engine's own work.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

use ashlar_block::{
    BlockDevice, BlockSize, Completion, Description, Geometry, Moment, Operation, Request,
};

const PAGE: usize = 4096;

/// How fast a drive is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// From a transfer's end to its answer.
    pub(crate) latency: Duration,
    /// What a flush takes, behind everything before it.
    pub(crate) flush: Duration,
    /// Bytes a second.
    pub(crate) rate: u64,
    /// What each transfer takes besides its bytes.
    pub(crate) each: Duration,
}

impl Pace {
    /// A middling NVMe drive.
    pub(crate) const NVME: Self = Self {
        latency: Duration::from_micros(40),
        flush: Duration::from_micros(100),
        rate: 2_000_000_000,
        each: Duration::ZERO,
    };

    /// A SATA drive of a data centre: 40,000 small accesses a second.
    pub(crate) const SATA: Self = Self {
        latency: Duration::from_micros(60),
        flush: Duration::from_micros(300),
        rate: 460_000_000,
        each: Duration::from_micros(25),
    };
}

/// Operations and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) flushes: u64,
}

impl Count {
    /// What was added since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            flushes: self.flushes - before.flushes,
        }
    }
}

/// What all drives of a pool share.
#[derive(Default)]
pub(crate) struct Rig {
    now: Cell<u64>,
    count: Cell<Count>,
}

impl Rig {
    pub(crate) fn now(&self) -> Moment {
        Moment::from_nanos(self.now.get())
    }

    /// Time goes on to `to`; it never goes back.
    pub(crate) fn advance(&self, to: Moment) {
        self.now.set(self.now.get().max(to.as_nanos()));
    }

    pub(crate) fn count(&self) -> Count {
        self.count.get()
    }
}

/// What a drive holds, a number a page: 0 to 255 is a page of that byte, more is a page of `whole`.
struct Content {
    pages: Vec<u32>,
    whole: Vec<Box<[u8; PAGE]>>,
    free: Vec<u32>,
}

impl Content {
    fn store(&mut self, page: usize, bytes: &[u8]) {
        let old = self.pages[page];
        let is_plain = bytes[1..] == bytes[..bytes.len() - 1];
        if is_plain {
            if old > 255 {
                self.free.push(old - 256);
            }
            self.pages[page] = u32::from(bytes[0]);
            return;
        }
        let place = if old > 255 {
            old - 256
        } else if let Some(place) = self.free.pop() {
            place
        } else {
            self.whole.push(Box::new([0; PAGE]));
            self.whole.len() as u32 - 1
        };
        self.whole[place as usize].copy_from_slice(bytes);
        self.pages[page] = place + 256;
    }

    fn load(&self, page: usize, bytes: &mut [u8]) {
        match self.pages[page] {
            plain @ 0..=255 => bytes.fill(plain as u8),
            whole => bytes.copy_from_slice(&self.whole[whole as usize - 256][..]),
        }
    }
}

/// What outlives an engine.
#[derive(Clone)]
pub(crate) struct Medium {
    content: Rc<RefCell<Content>>,
    pages: u64,
}

impl Medium {
    pub(crate) fn new(bytes: u64) -> Self {
        let pages = bytes / PAGE as u64;
        let content = Content {
            pages: vec![0; pages as usize],
            whole: Vec::new(),
            free: Vec::new(),
        };
        Self {
            content: Rc::new(RefCell::new(content)),
            pages,
        }
    }
}

/// A drive on a medium.
pub(crate) struct Counting {
    medium: Medium,
    rig: Rc<Rig>,
    pace: Pace,
    /// When everything that it was given will be done, in nanoseconds.
    busy_until: u64,
    number: u64,
    /// Ends by time, then order; where they are in `flying`.
    ends: BinaryHeap<Reverse<(u64, u64, usize)>>,
    flying: slab::Slab<Completion>,
}

impl Counting {
    pub(crate) fn new(medium: Medium, rig: Rc<Rig>, pace: Pace) -> Self {
        Self {
            medium,
            rig,
            pace,
            busy_until: 0,
            number: 0,
            ends: BinaryHeap::new(),
            flying: slab::Slab::new(),
        }
    }

    fn carry_out(&self, request: &mut Request) {
        let mut count = self.rig.count.get();
        let first = request.range.start.0 as usize;
        let mut content = self.medium.content.borrow_mut();
        let pages = first..first + request.range.count as usize;
        match (request.op, &mut request.buffer) {
            (Operation::Read, Some(buffer)) => {
                count.reads += 1;
                count.read_bytes += buffer.len() as u64;
                for (page, bytes) in pages.zip(buffer.chunks_mut(PAGE)) {
                    content.load(page, bytes);
                }
            }
            (Operation::Write(_), Some(buffer)) => {
                count.writes += 1;
                count.written_bytes += buffer.len() as u64;
                for (page, bytes) in pages.zip(buffer.chunks(PAGE)) {
                    content.store(page, bytes);
                }
            }
            (Operation::Flush, _) => count.flushes += 1,
            _ => pages.for_each(|page| content.store(page, &[0; PAGE])),
        }
        self.rig.count.set(count);
    }

    fn nanos(&self, request: &Request) -> u64 {
        let bytes = request.buffer.as_ref().map_or(0, |b| b.len()) as u64;
        match request.op {
            Operation::Flush => self.pace.flush.as_nanos() as u64,
            _ => self.pace.each.as_nanos() as u64 + bytes * 1_000_000_000 / self.pace.rate,
        }
    }
}

impl BlockDevice for Counting {
    fn geometry(&self) -> Geometry {
        Geometry::plain(BlockSize::B4096, self.medium.pages)
    }

    fn submit(&mut self, mut request: Request) {
        self.carry_out(&mut request);
        let start = self.busy_until.max(self.rig.now.get());
        self.busy_until = start + self.nanos(&request);
        let end = self.busy_until + self.pace.latency.as_nanos() as u64;
        self.number += 1;
        let place = self.flying.insert(request.complete(Ok(())));
        self.ends.push(Reverse((end, self.number, place)));
    }

    fn poll(&mut self, _now: Moment, done: &mut Vec<Completion>) {
        let now = self.rig.now.get();
        while let Some(&Reverse((end, _, place))) = self.ends.peek()
            && end <= now
        {
            self.ends.pop();
            done.push(self.flying.remove(place));
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        let next = self.ends.peek();
        next.map(|&Reverse((end, ..))| Moment::from_nanos(end))
    }

    fn describe(&self) -> Description {
        Description::leaf("counting")
    }
}
