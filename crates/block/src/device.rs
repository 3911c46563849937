use crate::{
    AssociationId, BlockRange, Description, Geometry, HostId, IoBuffer, IoError, Label, Moment,
    Provenance,
};

/// When a write may be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// When a later read returns it; a flush makes it durable.
    Cached,
    /// When it survives a power loss (NVMe's Force Unit Access).
    Durable,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Fill the buffer from the range.
    Read,
    /// Store the buffer in the range.
    Write(Durability),
    /// Make every completed write durable. Has an empty range and no buffer.
    Flush,
    /// Make the range read as zeroes; no buffer.
    WriteZeroes {
        /// As for a write.
        durability: Durability,
        /// The space may be given back.
        deallocate: bool,
    },
    /// Give the range's space back; it then reads as before or as zeroes. No buffer.
    Deallocate,
}

impl Operation {
    /// Whether the operation carries a buffer.
    pub const fn has_buffer(self) -> bool {
        matches!(self, Self::Read | Self::Write(_))
    }

    /// Whether the operation changes the medium.
    pub const fn modifies(self) -> bool {
        !matches!(self, Self::Read | Self::Flush)
    }
}

/// One command on its way down.
#[derive(Debug)]
pub struct Request {
    /// The owner's name for it, given back in the completion. Devices only carry it.
    pub tag: u64,
    /// What to do.
    pub op: Operation,
    /// Which blocks. Empty for a flush, at most [`Geometry::max_blocks`] for reads and writes.
    pub range: BlockRange,
    /// Exactly the range's bytes for reads and writes, otherwise nothing.
    pub buffer: Option<IoBuffer>,
}

impl Request {
    /// A read of `range` into `buffer`.
    pub fn read(tag: u64, range: BlockRange, buffer: IoBuffer) -> Self {
        Self {
            tag,
            op: Operation::Read,
            range,
            buffer: Some(buffer),
        }
    }

    /// A write of `buffer` to `range`.
    pub fn write(tag: u64, range: BlockRange, buffer: IoBuffer, durability: Durability) -> Self {
        Self {
            tag,
            op: Operation::Write(durability),
            range,
            buffer: Some(buffer),
        }
    }

    pub fn flush(tag: u64) -> Self {
        Self {
            tag,
            op: Operation::Flush,
            range: BlockRange::default(),
            buffer: None,
        }
    }

    /// The completion of this request with `result`.
    pub fn complete(self, result: Result<(), IoError>) -> Completion {
        Completion {
            tag: self.tag,
            buffer: self.buffer,
            result,
        }
    }
}

/// One command on its way back up.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// The request's buffer; for a successful read it holds the data, after an error its content
    /// is undefined.
    pub buffer: Option<IoBuffer>,
    /// What became of it.
    pub result: Result<(), IoError>,
}

/// A device as one thread sees it. The crate's documentation says what it promises.
///
/// Callers go through [`Checked`](crate::Checked), which refuses malformed requests once, so an
/// implementation may rely on ranges inside the geometry and buffers of the range's length.
pub trait BlockDevice {
    /// The device's shape and promises. Constant for the life of the object.
    fn geometry(&self) -> Geometry;

    /// Takes a request. Never blocks; may only queue.
    fn submit(&mut self, request: Request);

    /// Makes progress and appends what has completed to `done`. Never blocks. Called after the
    /// last `submit` of a turn, after every wake-up, and at [`next_deadline`](Self::next_deadline).
    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>);

    /// When `poll` must be called next even if nothing wakes the owner.
    fn next_deadline(&self) -> Option<Moment> {
        None
    }

    /// What the device is made of.
    fn describe(&self) -> Description;

    /// Whether what modifies the device must come with labels, by
    /// [`submit_from`](Self::submit_from). Constant for the life of the object.
    fn labels_writes(&self) -> bool {
        false
    }

    /// The label of an association's commands once its host is known to use it still.
    /// `None` while the device knows none. Asked often; never blocks.
    fn label(&self, _host: HostId, _association: AssociationId) -> Option<Label> {
        None
    }

    /// As [`submit`](Self::submit): whose the request is, and how old it may be, which counts for what modifies. All of
    /// hosts comes so to a device that [labels writes](Self::labels_writes).
    fn submit_from(&mut self, request: Request, _provenance: Provenance) {
        self.submit(request);
    }

    /// An association has ended: nothing of it is in devices, and nothing more of it will come. Told to one
    /// core's object, and at least once unless the device is taken away before.
    fn association_ended(&mut self, _host: HostId, _association: AssociationId) {}
}

impl<D: BlockDevice + ?Sized> BlockDevice for Box<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }
    fn submit(&mut self, request: Request) {
        (**self).submit(request);
    }
    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        (**self).poll(now, done);
    }
    fn next_deadline(&self) -> Option<Moment> {
        (**self).next_deadline()
    }
    fn describe(&self) -> Description {
        (**self).describe()
    }
    fn labels_writes(&self) -> bool {
        (**self).labels_writes()
    }
    fn label(&self, host: HostId, association: AssociationId) -> Option<Label> {
        (**self).label(host, association)
    }
    fn submit_from(&mut self, request: Request, provenance: Provenance) {
        (**self).submit_from(request, provenance);
    }
    fn association_ended(&mut self, host: HostId, association: AssociationId) {
        (**self).association_ended(host, association);
    }
}
