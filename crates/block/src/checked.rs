use crate::{
    AssociationId, BlockDevice, Completion, Description, ErrorKind, Geometry, HostId, IoError,
    Label, Moment, Operation, Provenance, Request,
};

/// The handle through which callers use a device: caches the geometry and refuses a malformed
/// request once, so that no layer below has to.
pub struct Checked<D> {
    device: D,
    geometry: Geometry,
    refused: Vec<Completion>,
}

impl<D: BlockDevice> Checked<D> {
    /// Wraps `device`.
    pub fn new(device: D) -> Self {
        let geometry = device.geometry();
        Self {
            device,
            geometry,
            refused: Vec::new(),
        }
    }

    /// The device itself.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn check(&self, request: &Request) -> Result<(), IoError> {
        self.geometry.check(request.range)?;
        let invalid = |why: &'static str| Err(IoError::new(ErrorKind::InvalidRequest, why));
        match (request.op, &request.buffer) {
            (Operation::Flush, None) => Ok(()),
            (Operation::Read | Operation::Write(_), Some(buffer)) => {
                if request.range.count == 0 || request.range.count > self.geometry.max_blocks {
                    return invalid("number of blocks");
                }
                if buffer.len() != self.geometry.range_bytes(request.range) {
                    return invalid("buffer length differs from the range");
                }
                Ok(())
            }
            (Operation::WriteZeroes { .. } | Operation::Deallocate, None) => Ok(()),
            _ => invalid("buffer missing or unexpected"),
        }
    }
}

impl<D: BlockDevice> BlockDevice for Checked<D> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request) {
        match self.check(&request) {
            Ok(()) => self.device.submit(request),
            Err(error) => self.refused.push(request.complete(Err(error))),
        }
    }

    fn submit_from(&mut self, request: Request, provenance: Provenance) {
        match self.check(&request) {
            Ok(()) => self.device.submit_from(request, provenance),
            Err(error) => self.refused.push(request.complete(Err(error))),
        }
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

    fn labels_writes(&self) -> bool {
        self.device.labels_writes()
    }

    fn label(&self, host: HostId, association: AssociationId) -> Option<Label> {
        self.device.label(host, association)
    }

    fn association_ended(&mut self, host: HostId, association: AssociationId) {
        self.device.association_ended(host, association);
    }
}
