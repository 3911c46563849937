//! A subsystem's device, used without a connection: what others have reserved holds for such a user, too.

use std::sync::Arc;

use ashlar_block::{
    BlockDevice, Completion, Description, ErrorKind, Geometry, IoError, Moment, Operation, Request,
};
use ashlar_nvme::opcode::io;
use ashlar_reactor::{Handle, Opener};

use crate::reservation::{HostId, Known};
use crate::subsystem::Subsystem;

/// A host that never registers: no Connect has this identifier.
const STRANGER: HostId = [0; 16];

/// Opens a subsystem's only device as a host may use it that is not registered there.
pub(super) struct Strangers {
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) opener: Arc<dyn Opener>,
}

impl Opener for Strangers {
    fn geometry(&self) -> Geometry {
        self.opener.geometry()
    }

    fn open(&self, reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        Ok(Box::new(Stranger {
            device: self.opener.open(reactor)?,
            subsystem: self.subsystem.clone(),
            known: Known::default(),
            refused: Vec::new(),
        }))
    }

    fn describe(&self) -> Description {
        self.opener.describe()
    }
}

struct Stranger {
    device: Box<dyn BlockDevice>,
    subsystem: Arc<Subsystem>,
    known: Known,
    refused: Vec<Completion>,
}

impl Stranger {
    fn may(&self, op: Operation) -> bool {
        let opcode = match op {
            Operation::Read => io::READ,
            Operation::Write(_) => io::WRITE,
            Operation::Flush => io::FLUSH,
            Operation::WriteZeroes { .. } => io::WRITE_ZEROES,
            Operation::Deallocate => io::DATASET_MANAGEMENT,
        };
        let guards = self.subsystem.namespaces.iter();
        let mut guards = guards.filter_map(|namespace| namespace.guard.as_ref());
        guards.all(|guard| guard.admits(&STRANGER, &self.known, opcode))
    }
}

impl BlockDevice for Stranger {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn submit(&mut self, request: Request) {
        if self.may(request.op) {
            return self.device.submit(request);
        }
        let why = "another host has reserved the volume";
        let refused = request.complete(Err(IoError::new(ErrorKind::Denied, why)));
        self.refused.push(refused);
    }

    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        self.device.poll(now, done);
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.device.next_deadline()
    }

    fn describe(&self) -> Description {
        self.device.describe()
    }
}
