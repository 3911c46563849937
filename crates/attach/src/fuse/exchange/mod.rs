//! Requests of the kernel on one side, requests to a block device on the other, and the replies between
//! them. No I/O: the caller carries messages, requests and completions.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use ashlar_block::{
    BlockRange, BufferPool, Completion, Durability, Geometry, IoBuffer, Operation, Request,
};
use slab::Slab;
use tracing::error;
use zerocopy::IntoBytes;

use crate::counters::{Counters, Kind};
use crate::fuse::request::{What, parse};
use crate::fuse::wire::{
    self, InHeader, InitIn, InitOut, OutHeader, WRITE_HEAD, WriteOut, init, open,
};
use crate::fuse::{answers, errno};
use crate::trace::Trace;

/// Largest transfer of a request; the kernel's default limit for FUSE.
pub(crate) const MAX_TRANSFER: usize = 1 << 20;
/// Requests that the kernel may have on their way at a time, and from where it thinks that there are
/// many. A loop device has 128.
const MAX_BACKGROUND: u16 = 256;
const PAGE: usize = 4096;
/// Data up to this size is copied out of the large buffer that it was read into, so that one such
/// buffer does for many requests.
const COPIED: usize = 64 << 10;
/// Parts of a zeroed range on their way at a time.
const ZEROES_AT_ONCE: u32 = 16;
/// Failures of one kind that are logged one by one.
const SAID: u64 = 16;
const EINVAL: i32 = 22;
const EIO: i32 = 5;
/// Memory for replies without data: more than the kernel asks for at a time.
const REPLIES: usize = 4 << 20;

/// Where a message is to be read to: aligned so that a write's data begins on a page.
pub(crate) const READ_AT: usize = PAGE - WRITE_HEAD;
/// Bytes to be read: the largest request.
pub(crate) const READ_BYTES: usize = WRITE_HEAD + MAX_TRANSFER;

/// What the kernel waits for.
struct Job {
    unique: u64,
    kind: Kind,
    bytes: u64,
    /// A read's reply: the head that its data is to be joined to.
    head: Option<IoBuffer>,
    /// Blocks of a range to be zeroed that no request was made for yet.
    rest: Range<u64>,
    deallocate: bool,
    /// Requests on their way.
    parts: u32,
    /// The first error, as the kernel gets it.
    error: Option<i32>,
}

/// See the module's documentation.
pub(crate) struct Exchange {
    geometry: Geometry,
    pool: BufferPool,
    /// For replies without data, which must not wait for memory.
    small: BufferPool,
    jobs: Slab<Job>,
    /// Reads that wait for memory: name, range, bytes.
    stalled: VecDeque<(u64, BlockRange, usize)>,
    requests: Vec<Request>,
    replies: Vec<IoBuffer>,
    counters: Counters,
    trace: Option<Trace>,
    /// The kernel's version does not suffice; said once.
    refused: Option<String>,
}

impl Exchange {
    /// An exchange over a device of this geometry, with at most `pool_bytes` of data on its way. The
    /// memory is its own: /dev/fuse refuses what is registered with a ring.
    pub(crate) fn new(geometry: Geometry, pool_bytes: usize, counters: Counters) -> Self {
        Self {
            geometry,
            pool: BufferPool::new(pool_bytes),
            small: BufferPool::new(REPLIES),
            jobs: Slab::new(),
            stalled: VecDeque::new(),
            requests: Vec::new(),
            replies: Vec::new(),
            counters,
            trace: None,
            refused: None,
        }
    }

    /// Writes down every request from now on.
    pub(crate) fn set_trace(&mut self, trace: Trace) {
        self.trace = Some(trace);
    }

    pub(crate) fn trace(&mut self) -> Option<&mut Trace> {
        self.trace.as_mut()
    }

    /// Requests for the device.
    pub(crate) fn requests(&mut self) -> std::vec::Drain<'_, Request> {
        self.requests.drain(..)
    }

    /// The memory for data on its way.
    #[cfg(test)]
    pub(crate) fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// Whether there are requests for the device.
    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// The first `most` whole messages for the kernel.
    pub(crate) fn replies(&mut self, most: usize) -> std::vec::Drain<'_, IoBuffer> {
        self.replies.drain(..most.min(self.replies.len()))
    }

    /// Whether there are messages for the kernel.
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Whether everything that was received has been answered, and taken as a reply.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.stalled.is_empty() && self.replies.is_empty()
    }

    /// Why the kernel cannot be served, if it cannot.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Asks the kernel to send again what an earlier server has read and not answered.
    pub(crate) fn ask_again(&mut self) {
        let length = size_of::<OutHeader>();
        if let Some(mut notice) = self.small.get(length) {
            let header = OutHeader {
                len: length as u32,
                error: wire::NOTIFY_RESEND,
                unique: 0,
            };
            notice.copy_from_slice(header.as_bytes());
            self.replies.push(notice);
        }
    }

    /// Takes a message of `message.len()` bytes that was read to a buffer's [`READ_AT`]. Gives the
    /// buffer back if it is not needed.
    pub(crate) fn received(&mut self, message: IoBuffer) -> Option<IoBuffer> {
        let asked = match parse(&message) {
            Ok(asked) => asked,
            Err(why) => {
                // It cannot be answered either: its name is not known for certain.
                error!("a message of the kernel is malformed: {}", why.0);
                return Some(message);
            }
        };
        let unique = asked.unique;
        match asked.what {
            What::Nothing => {}
            What::Init(ask) => self.init(unique, &ask),
            What::Attributes => {
                let attributes = answers::attributes(&self.geometry);
                self.answer(unique, 0, attributes.as_bytes());
            }
            What::Open => {
                let flags = open::DIRECT_IO | open::NO_FLUSH | open::PARALLEL_DIRECT_WRITES;
                self.answer(unique, 0, answers::open(flags).as_bytes());
            }
            What::Release => self.answer(unique, 0, &[]),
            What::Statfs => {
                let statfs = answers::statfs(&self.geometry);
                self.answer(unique, 0, statfs.as_bytes());
            }
            What::Refused(error) => self.answer(unique, error, &[]),
            What::Read { offset, size } => self.read(unique, offset, size),
            What::Write { offset, size } => return self.write(unique, offset, size, message),
            What::Flush => self.flush(unique),
            What::Zero {
                offset,
                length,
                deallocate,
            } => self.zero(unique, offset, length, deallocate),
        }
        Some(message)
    }

    fn init(&mut self, unique: u64, ask: &InitIn) {
        if ask.major != wire::MAJOR || ask.minor < wire::LEAST_MINOR {
            self.refused = Some(format!(
                "this kernel's FUSE is {}.{}; {}.{} is needed",
                ask.major,
                ask.minor,
                wire::MAJOR,
                wire::LEAST_MINOR
            ));
            return self.answer(unique, EIO, &[]);
        }
        let whole_pages = self.geometry.max_blocks as usize * self.block_bytes() as usize / PAGE;
        let pages = whole_pages.clamp(1, MAX_TRANSFER / PAGE);
        let wanted = init::ASYNC_READ
            | init::BIG_WRITES
            | init::ASYNC_DIO
            | init::ABORT_ERROR
            | init::MAX_PAGES
            | init::EXT;
        let out = InitOut {
            major: wire::MAJOR,
            minor: wire::NEWEST_MINOR,
            max_readahead: ask.max_readahead,
            flags: ask.flags & wanted,
            max_background: MAX_BACKGROUND,
            congestion_threshold: MAX_BACKGROUND,
            max_write: (pages * PAGE) as u32,
            time_granularity: 1,
            max_pages: pages as u16,
            flags2: ask.flags2 & init::HAS_RESEND,
            ..InitOut::default()
        };
        self.answer(unique, 0, out.as_bytes());
    }

    fn block_bytes(&self) -> u32 {
        self.geometry.block_size.bytes()
    }

    /// The blocks of a range of bytes, if it is one of whole blocks inside the device.
    fn blocks(&self, offset: u64, length: u64) -> Option<Range<u64>> {
        let block = u64::from(self.block_bytes());
        let end = offset.checked_add(length)?;
        let whole = offset.is_multiple_of(block) && length.is_multiple_of(block) && length > 0;
        (whole && end <= self.geometry.bytes()).then(|| offset / block..end / block)
    }

    fn transfer(&self, offset: u64, size: u32) -> Option<BlockRange> {
        let blocks = self.blocks(offset, size.into())?;
        let count = (blocks.end - blocks.start) as u32;
        (count <= self.geometry.max_blocks).then(|| BlockRange::new(blocks.start, count))
    }

    fn note(&mut self, kind: Kind, offset: u64, length: u64) {
        self.counters.arrived(kind, length);
        if let Some(trace) = &mut self.trace {
            trace.note(kind, offset, length);
        }
    }

    fn job(&self, unique: u64, kind: Kind, bytes: u64) -> Job {
        Job {
            unique,
            kind,
            bytes,
            head: None,
            rest: 0..0,
            deallocate: false,
            parts: 1,
            error: None,
        }
    }

    fn read(&mut self, unique: u64, offset: u64, size: u32) {
        self.note(Kind::Read, offset, size.into());
        let Some(range) = self.transfer(offset, size) else {
            return self.answer(unique, EINVAL, &[]);
        };
        let bytes = size as usize;
        if !self.stalled.is_empty() || !self.start_read(unique, range, bytes) {
            self.stalled.push_back((unique, range, bytes));
        }
    }

    /// A buffer to read a message into.
    pub(crate) fn message_buffer(&self) -> Option<IoBuffer> {
        Some(self.pool.get(READ_AT + READ_BYTES)?.split_off(READ_AT))
    }

    /// Makes a read's request; false if there is no memory for it.
    fn start_read(&mut self, unique: u64, range: BlockRange, bytes: usize) -> bool {
        // The header's last byte lies before a page's first, so that data is copied by whole pages.
        let head_at = PAGE - size_of::<OutHeader>();
        let Some(mut whole) = self.pool.get(PAGE + bytes) else {
            return false;
        };
        let mut head = whole.split_off(head_at);
        let data = head.split_off(size_of::<OutHeader>());
        let job = Job {
            head: Some(head),
            ..self.job(unique, Kind::Read, bytes as u64)
        };
        let key = self.jobs.insert(job) as u64;
        self.requests.push(Request::read(key, range, data));
        true
    }

    /// Starts what has waited for memory; after replies were sent.
    pub(crate) fn resume(&mut self) {
        while let Some((unique, range, bytes)) = self.stalled.pop_front() {
            if !self.start_read(unique, range, bytes) {
                return self.stalled.push_front((unique, range, bytes));
            }
        }
    }

    fn write(
        &mut self,
        unique: u64,
        offset: u64,
        size: u32,
        mut message: IoBuffer,
    ) -> Option<IoBuffer> {
        self.note(Kind::Write, offset, size.into());
        let Some(range) = self.transfer(offset, size) else {
            self.answer(unique, EINVAL, &[]);
            return Some(message);
        };
        let copy = match size as usize <= COPIED {
            true => self.pool.get(size as usize),
            false => None,
        };
        let (data, back) = match copy {
            Some(mut copy) => {
                copy.copy_from_slice(&message[WRITE_HEAD..]);
                (copy, Some(message))
            }
            None => (message.split_off(WRITE_HEAD), None),
        };
        let key = self.jobs.insert(self.job(unique, Kind::Write, size.into())) as u64;
        let request = Request::write(key, range, data, Durability::Cached);
        self.requests.push(request);
        back
    }

    fn flush(&mut self, unique: u64) {
        self.note(Kind::Flush, 0, 0);
        let key = self.jobs.insert(self.job(unique, Kind::Flush, 0)) as u64;
        self.requests.push(Request::flush(key));
    }

    /// A punched hole must read as zeroes, which a deallocated range need not: it is zeroed, and the
    /// device may give the space back.
    fn zero(&mut self, unique: u64, offset: u64, length: u64, deallocate: bool) {
        self.note(Kind::Zero, offset, length);
        let Some(blocks) = self.blocks(offset, length) else {
            return self.answer(unique, EINVAL, &[]);
        };
        let job = Job {
            rest: blocks,
            deallocate,
            parts: 0,
            ..self.job(unique, Kind::Zero, length)
        };
        let key = self.jobs.insert(job);
        self.zero_more(key);
    }

    fn zero_more(&mut self, key: usize) {
        let job = &mut self.jobs[key];
        while job.parts < ZEROES_AT_ONCE && !job.rest.is_empty() && job.error.is_none() {
            let left = job.rest.end - job.rest.start;
            let count = left.min(self.geometry.max_blocks.into()) as u32;
            self.requests.push(Request {
                tag: key as u64,
                op: Operation::WriteZeroes {
                    durability: Durability::Cached,
                    deallocate: job.deallocate,
                },
                range: BlockRange::new(job.rest.start, count),
                buffer: None,
            });
            job.rest.start += u64::from(count);
            job.parts += 1;
        }
    }

    /// Takes what has become of a request.
    pub(crate) fn completed(&mut self, completion: Completion) {
        let key = completion.tag as usize;
        let Some(job) = self.jobs.get_mut(key) else {
            return;
        };
        job.parts -= 1;
        if let Err(error) = &completion.result {
            let failures = self.counters.failed(job.kind);
            // A full pool fails every write: the log lies in memory and must not fill it.
            if failures <= SAID || failures.is_power_of_two() {
                let kind = job.kind.name();
                error!(kind, failures, "{kind} failure {failures}: {error}");
            }
            job.error.get_or_insert(errno::of(error.kind()));
        }
        if job.error.is_none() && !job.rest.is_empty() {
            return self.zero_more(key);
        }
        if job.parts > 0 {
            return;
        }
        let job = self.jobs.remove(key);
        self.counters.answered(job.kind);
        match (job.error, job.head, completion.buffer) {
            (Some(error), ..) => self.answer(job.unique, error, &[]),
            (None, Some(head), Some(data)) => self.answer_read(job.unique, head, data),
            (None, Some(_), None) => self.answer(job.unique, EIO, &[]),
            (None, None, _) if job.kind == Kind::Write => {
                let out = WriteOut {
                    size: job.bytes as u32,
                    padding: 0,
                };
                self.answer(job.unique, 0, out.as_bytes());
            }
            (None, None, _) => self.answer(job.unique, 0, &[]),
        }
    }

    fn answer_read(&mut self, unique: u64, mut head: IoBuffer, data: IoBuffer) {
        let header = OutHeader {
            len: (head.len() + data.len()) as u32,
            error: 0,
            unique,
        };
        head.copy_from_slice(header.as_bytes());
        match head.join(data) {
            Ok(()) => self.replies.push(head),
            // The device gave another buffer back than it was lent.
            Err(_) => self.answer(unique, EIO, &[]),
        }
    }

    /// Answers with `error` (an errno, 0 for none) and a body.
    fn answer(&mut self, unique: u64, error: i32, body: &[u8]) {
        let length = size_of::<OutHeader>() + body.len();
        let Some(mut reply) = self.small.get(length) else {
            error!("no memory for a reply");
            return;
        };
        let header = OutHeader {
            len: length as u32,
            error: -error,
            unique,
        };
        let (head, rest) = reply.split_at_mut(size_of::<OutHeader>());
        head.copy_from_slice(header.as_bytes());
        rest.copy_from_slice(body);
        self.replies.push(reply);
    }
}

const _: () =
    assert!(READ_AT.is_multiple_of(8) && READ_AT + READ_BYTES <= ashlar_block::REGION_BYTES);
const _: () = assert!(size_of::<InHeader>() < READ_BYTES);
