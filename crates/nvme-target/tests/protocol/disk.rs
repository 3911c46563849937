//! An in-memory block device that can hold its completions back, fail, and tell what it was asked.

use std::cell::RefCell;
use std::rc::Rc;

use ashlar_block::{
    AssociationId, BlockDevice, BlockRange, BlockSize, Completion, Description, ErrorKind,
    Geometry, HostId, IoError, Label, Moment, Operation, Provenance, Request,
};

/// The medium, shared by the queues that cores open on it.
pub struct Medium {
    pub geometry: Geometry,
    pub bytes: Vec<u8>,
    /// Every operation executed, in order.
    pub log: Vec<(Operation, BlockRange)>,
    /// While set, no request completes.
    pub hold: bool,
    /// What every request but a read fails with, and every read.
    pub fail_writes: Option<ErrorKind>,
    pub fail_reads: Option<ErrorKind>,
    /// It labels writes: with how many requests it has executed.
    pub labels: bool,
    /// If this is set, with this instead.
    pub label: Option<u64>,
    /// Of what modified it, in order.
    pub provenances: Vec<Provenance>,
    /// Associations that have ended.
    pub ended: Vec<(HostId, AssociationId)>,
}

#[derive(Clone)]
pub struct Disk(pub Rc<RefCell<Medium>>);

impl Disk {
    pub fn new(geometry: Geometry) -> Self {
        Self(Rc::new(RefCell::new(Medium {
            bytes: vec![0; geometry.bytes() as usize],
            geometry,
            log: Vec::new(),
            hold: false,
            fail_writes: None,
            fail_reads: None,
            labels: false,
            label: None,
            provenances: Vec::new(),
            ended: Vec::new(),
        })))
    }

    /// The same, which labels writes.
    pub fn labelling(self) -> Self {
        self.0.borrow_mut().labels = true;
        self
    }

    pub fn take_provenances(&self) -> Vec<Provenance> {
        std::mem::take(&mut self.0.borrow_mut().provenances)
    }

    /// A disk of `blocks` blocks with a volatile cache that deallocates.
    pub fn plain(size: BlockSize, blocks: u64) -> Self {
        Self::new(Geometry {
            volatile_cache: true,
            deallocates: true,
            atomic_blocks: 4,
            ..Geometry::plain(size, blocks)
        })
    }

    pub fn queue(&self) -> Box<dyn BlockDevice> {
        Box::new(DiskQueue {
            disk: self.clone(),
            waiting: Vec::new(),
        })
    }

    pub fn hold(&self) {
        self.0.borrow_mut().hold = true;
    }

    pub fn release(&self) {
        self.0.borrow_mut().hold = false;
    }

    pub fn take_log(&self) -> Vec<(Operation, BlockRange)> {
        std::mem::take(&mut self.0.borrow_mut().log)
    }

    pub fn geometry(&self) -> Geometry {
        self.0.borrow().geometry
    }
}

struct DiskQueue {
    disk: Disk,
    waiting: Vec<Request>,
}

impl BlockDevice for DiskQueue {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn submit(&mut self, request: Request) {
        self.waiting.push(request);
    }

    fn poll(&mut self, _now: Moment, done: &mut Vec<Completion>) {
        let mut medium = self.disk.0.borrow_mut();
        if medium.hold {
            return;
        }
        for request in self.waiting.drain(..) {
            done.push(medium.execute(request));
        }
    }

    fn describe(&self) -> Description {
        Description::leaf("scripted disk")
    }

    fn labels_writes(&self) -> bool {
        self.disk.0.borrow().labels
    }

    fn label(&self, _: HostId, _: AssociationId) -> Option<Label> {
        let medium = self.disk.0.borrow();
        assert!(medium.labels, "it is asked in vain");
        let writes = medium.label.unwrap_or(medium.log.len() as u64);
        Some(Label { epoch: 1, writes })
    }

    fn submit_from(&mut self, request: Request, provenance: Provenance) {
        self.disk.0.borrow_mut().provenances.push(provenance);
        self.submit(request);
    }

    fn association_ended(&mut self, host: HostId, association: AssociationId) {
        self.disk.0.borrow_mut().ended.push((host, association));
    }
}

impl Medium {
    fn execute(&mut self, mut request: Request) -> Completion {
        self.log.push((request.op, request.range));
        let failure = match request.op {
            Operation::Read => self.fail_reads,
            _ => self.fail_writes,
        };
        if let Some(kind) = failure {
            return request.complete(Err(IoError::new(kind, "scripted")));
        }
        let from = self.geometry.range_offset(request.range) as usize;
        let place = &mut self.bytes[from..][..self.geometry.range_bytes(request.range)];
        match (request.op, request.buffer.as_deref_mut()) {
            (Operation::Read, Some(buffer)) => buffer.copy_from_slice(place),
            (Operation::Write(_), Some(buffer)) => place.copy_from_slice(buffer),
            (Operation::WriteZeroes { .. } | Operation::Deallocate, _) => place.fill(0),
            _ => {}
        }
        request.complete(Ok(()))
    }
}
