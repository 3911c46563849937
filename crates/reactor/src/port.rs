use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use ashlar_block::IoBuffer;
use rustix::net::SocketAddrAny;

use crate::file::File;
use crate::frame::{RecvFrame, SendBatch};
use crate::ring::{FileOp, Op};
use crate::turn::Handle;

/// Something that a [`Port`] asked for has happened.
pub struct Event {
    /// The key that the operation was submitted with.
    pub key: u64,
    /// What happened.
    pub what: What,
}

/// What happened, with everything that had been lent to the ring.
pub enum What {
    /// A file operation is done: bytes transferred (zero for flush and the like).
    File(io::Result<usize>, Option<IoBuffer>),
    /// Bytes arrived; 0 when the peer has closed its side. The flag says that more are waiting.
    Received(io::Result<usize>, Box<RecvFrame>, bool),
    /// A batch was sent whole, or the connection is broken.
    Sent(io::Result<()>, Box<SendBatch>),
    /// A connection was accepted. On an error the listener has stopped accepting.
    Accepted(io::Result<OwnedFd>),
    /// A connect has succeeded or failed.
    Connected(io::Result<()>),
    /// The file can be read from, or has ended. An error: the wait was cancelled.
    Readable(io::Result<()>),
}

#[derive(Default)]
pub(crate) struct Events(RefCell<VecDeque<Event>>);

impl Events {
    pub(crate) fn push(&self, event: Event) {
        self.0.borrow_mut().push_back(event);
    }
}

/// A queue of events and the right to submit operations whose events go there.
pub struct Port {
    handle: Handle,
    events: Rc<Events>,
}

impl Port {
    pub(crate) fn new(handle: Handle) -> Self {
        Self {
            handle,
            events: Rc::default(),
        }
    }

    /// The reactor it belongs to.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The oldest event not yet taken.
    pub fn next(&self) -> Option<Event> {
        self.events.0.borrow_mut().pop_front()
    }

    /// Reads `buffer.len()` bytes at `offset`.
    pub fn read(&self, file: &File, offset: u64, buffer: IoBuffer, key: u64) {
        self.file_op(file, FileOp::Read { offset }, Some(buffer), key);
    }

    /// Writes the buffer at `offset`; with `durable`, completes when it survives a power loss
    /// (RWF_DSYNC).
    pub fn write(&self, file: &File, offset: u64, buffer: IoBuffer, durable: bool, key: u64) {
        self.file_op(file, FileOp::Write { offset, durable }, Some(buffer), key);
    }

    /// Makes completed writes durable (fdatasync).
    pub fn sync(&self, file: &File, key: u64) {
        self.file_op(file, FileOp::Sync, None, key);
    }

    /// Gives `len` bytes at `offset` back; they read as zeroes (FALLOC_FL_PUNCH_HOLE).
    pub fn punch_hole(&self, file: &File, offset: u64, len: u64, key: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        self.file_op(file, FileOp::Allocate { offset, len, mode }, None, key);
    }

    /// Makes `len` bytes at `offset` read as zeroes and keeps their space (FALLOC_FL_ZERO_RANGE).
    pub fn zero_range(&self, file: &File, offset: u64, len: u64, key: u64) {
        let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        self.file_op(file, FileOp::Allocate { offset, len, mode }, None, key);
    }

    /// Waits until the file can be read from, for a caller that reads it by system calls that do not block.
    pub fn readable(&self, file: &File, key: u64) {
        self.handle
            .submit(Op::Readable, file.target(), key, &self.events);
    }

    /// Ends the waits of [`readable`](Self::readable) with this key: their events come, as errors.
    pub fn cancel_readable(&self, key: u64) {
        self.handle.cancel_readable(key, &self.events);
    }

    fn file_op(&self, file: &File, op: FileOp, buffer: Option<IoBuffer>, key: u64) {
        let target = file.target();
        self.handle
            .submit(Op::File { op, buffer }, target, key, &self.events);
    }

    /// Receives into the frame.
    pub fn recv(&self, socket: &File, frame: Box<RecvFrame>, key: u64) {
        self.handle
            .submit(Op::Recv(frame), socket.target(), key, &self.events);
    }

    /// Sends the batch whole.
    pub fn send(&self, socket: &File, batch: Box<SendBatch>, key: u64) {
        self.handle
            .submit(Op::Send(batch), socket.target(), key, &self.events);
    }

    /// Accepts connections until the listener fails or is closed: one event each.
    pub fn accept(&self, listener: &File, key: u64) {
        self.handle
            .submit(Op::Accept, listener.target(), key, &self.events);
    }

    /// Connects the socket.
    pub fn connect(&self, socket: &File, peer: SocketAddr, key: u64) {
        let peer = Box::new(SocketAddrAny::from(peer));
        self.handle
            .submit(Op::Connect(peer), socket.target(), key, &self.events);
    }
}
