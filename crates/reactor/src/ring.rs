//! The ring and the table of operations in flight. All memory that the kernel may touch is owned by
//! the table until the kernel has said that it is done.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use ashlar_block::{BufferPool, IoBuffer};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use rustix::net::SocketAddrAny;

use crate::frame::{RecvFrame, SendBatch};
use crate::mail::Waker;
use crate::options::{Options, SetupError};
use crate::port::{Event, Events, What};

/// Let the kernel wait for data before it tries to receive.
const RECVSEND_POLL_FIRST: u16 = 1;
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// So many operations do not wait for the end of a turn: a drive that is idle until its requests come all at once
/// answers all at once, and then the caller is busy while it is idle again.
const ENOUGH: usize = 8;
/// The same while drives have nothing: each moment until they have is lost.
const ENOUGH_WHEN_IDLE: usize = 2;

#[derive(Clone, Copy)]
pub(crate) enum Target {
    Registered(u32),
    Plain(RawFd),
}

pub(crate) enum FileOp {
    Read { offset: u64 },
    Write { offset: u64, durable: bool },
    Sync,
    Allocate { offset: u64, len: u64, mode: i32 },
}

pub(crate) enum Op {
    File {
        op: FileOp,
        buffer: Option<IoBuffer>,
    },
    Recv(Box<RecvFrame>),
    Send(Box<SendBatch>),
    Accept,
    Connect(Box<SocketAddrAny>),
    /// A wait until the file can be read from.
    Readable,
    /// Cancels the operation of this number.
    Cancel(u64),
    /// A read of the waker's eventfd.
    Wake(Box<[u8; 8]>),
    /// Cancels everything; only when the reactor ends.
    CancelAll,
}

/// Whether the kernel closes a registered file that is taken off its list. Before 6.13 it first waits for all requests
/// on registered files that were there before, such as an accept that never ends: sockets and locks on drives would
/// stay for as long as the process.
fn lets_go_of_files() -> bool {
    let name = rustix::system::uname();
    is_at_least(&name.release().to_string_lossy(), 6, 13)
}

fn is_at_least(release: &str, major: u32, minor: u32) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|digits| digits.parse().ok());
    (number().unwrap_or(0), number().unwrap_or(0)) >= (major, minor)
}

struct InFlight {
    op: Op,
    key: u64,
    events: Rc<Events>,
}

pub(crate) struct Ring {
    uring: IoUring,
    table: slab::Slab<InFlight>,
    pool: BufferPool,
    registered_regions: Option<usize>,
    free_files: Vec<u32>,
    waker: Waker,
    nothing: Rc<Events>,
    /// Operations that the kernel does not know of yet.
    queued: usize,
    /// Operations on files, queued ones included.
    drive_operations: usize,
    /// Those of them that the kernel does not know of yet.
    queued_for_drives: usize,
}

impl Ring {
    pub(crate) fn new(options: &Options) -> Result<Self, SetupError> {
        let uring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_clamp()
            .setup_cqsize(options.entries.saturating_mul(8))
            .build(options.entries)
            .map_err(|source| SetupError::new("cannot set up io_uring", source))?;
        let waker = Waker::new().map_err(|e| SetupError::new("cannot make an eventfd", e))?;
        let pool = BufferPool::new(options.pool_bytes);
        let submitter = uring.submitter();
        // Both registrations are for speed only; limits on locked memory or open files may refuse.
        let buffers = submitter.register_buffers_sparse(pool.max_regions() as u32);
        let has_files =
            lets_go_of_files() && submitter.register_files_sparse(options.files).is_ok();
        let free_files = has_files.then(|| (0..options.files).rev().collect());
        let mut ring = Self {
            uring,
            table: slab::Slab::with_capacity(options.entries as usize),
            registered_regions: buffers.ok().map(|()| 0),
            pool,
            free_files: free_files.unwrap_or_default(),
            waker,
            nothing: Rc::default(),
            queued: 0,
            drive_operations: 0,
            queued_for_drives: 0,
        };
        ring.arm_waker();
        Ok(ring)
    }

    pub(crate) fn pool(&self) -> &BufferPool {
        &self.pool
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    fn arm_waker(&mut self) {
        let target = Target::Plain(self.waker.fd().as_raw_fd());
        let events = self.nothing.clone();
        self.submit(Op::Wake(Box::new([0; 8])), target, 0, &events);
    }

    pub(crate) fn register_file(&mut self, fd: RawFd) -> Option<u32> {
        let slot = self.free_files.pop()?;
        match self.uring.submitter().register_files_update(slot, &[fd]) {
            Ok(_) => Some(slot),
            Err(_) => {
                self.free_files.push(slot);
                None
            }
        }
    }

    /// Gives the kernel what is queued, now.
    pub(crate) fn submit_queued(&mut self) {
        let _ = self.uring.submit();
    }

    pub(crate) fn unregister_file(&mut self, slot: u32) {
        if self
            .uring
            .submitter()
            .register_files_update(slot, &[-1])
            .is_ok()
        {
            self.free_files.push(slot);
        }
    }

    /// Queues an operation; it starts at the end of the turn, or with enough others.
    pub(crate) fn submit(&mut self, op: Op, target: Target, key: u64, events: &Rc<Events>) {
        if matches!(op, Op::File { .. }) {
            self.drive_operations += 1;
            self.queued_for_drives += 1;
        }
        let index = self.table.insert(InFlight {
            op,
            key,
            events: events.clone(),
        });
        let fixed = self.fixed_index(index);
        let (fd, flags) = match target {
            Target::Registered(slot) => (slot as RawFd, Flags::FIXED_FILE),
            Target::Plain(fd) => (fd, Flags::empty()),
        };
        let entry = entry(&mut self.table[index].op, Fd(fd), fixed);
        let entry = entry.flags(flags).user_data(index as u64);
        loop {
            // SAFETY: everything the entry points to is owned by the table (boxes and buffers,
            // whose addresses do not change) until its completion is reaped.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return self.submit_if_enough();
            }
            match self.uring.submit() {
                Ok(_) => {}
                // The kernel wants its completions taken first; they go to their ports.
                Err(error) if is_transient(&error) => {
                    self.reap();
                }
                Err(error) => {
                    return self.finish(index, -error.raw_os_error().unwrap_or(libc::EIO), 0);
                }
            }
        }
    }

    fn submit_if_enough(&mut self) {
        self.queued += 1;
        let are_idle = self.drive_operations == self.queued_for_drives;
        if self.queued >= ENOUGH || (are_idle && self.queued_for_drives >= ENOUGH_WHEN_IDLE) {
            self.none_is_queued();
            // What the kernel does not take now, it is offered again at the end of the turn.
            let _ = self.uring.submit();
        }
    }

    fn none_is_queued(&mut self) {
        (self.queued, self.queued_for_drives) = (0, 0);
    }

    /// Cancels the waits for a readable file that have this key and owner. Not for the fast path.
    pub(crate) fn cancel_readable(&mut self, key: u64, events: &Rc<Events>) {
        let is_meant = |flight: &InFlight| {
            matches!(flight.op, Op::Readable)
                && flight.key == key
                && Rc::ptr_eq(&flight.events, events)
        };
        let table = self.table.iter();
        let meant: Vec<usize> = table
            .filter_map(|(index, flight)| is_meant(flight).then_some(index))
            .collect();
        let nothing = self.nothing.clone();
        for index in meant {
            self.submit(Op::Cancel(index as u64), Target::Plain(-1), 0, &nothing);
        }
    }

    /// The registered-buffer index of the operation's buffer, if it has one.
    fn fixed_index(&mut self, index: usize) -> Option<u16> {
        let Op::File {
            buffer: Some(buffer),
            ..
        } = &self.table[index].op
        else {
            return None;
        };
        let (pool, region) = buffer.registration();
        if pool != self.pool.id() {
            return None;
        }
        self.register_regions(region);
        (region < self.registered_regions?).then_some(region as u16)
    }

    fn register_regions(&mut self, up_to: usize) {
        while let Some(next) = self.registered_regions.filter(|&next| next <= up_to) {
            let Some(region) = self.pool.region(next) else {
                return;
            };
            let iov = libc::iovec {
                iov_base: region.base.cast(),
                iov_len: region.bytes,
            };
            // SAFETY: the region lives as long as the pool, which the ring holds; its bytes are
            // only ever reached through `IoBuffer`s.
            let done = unsafe {
                self.uring
                    .submitter()
                    .register_buffers_update(next as u32, &[iov], None)
            };
            self.registered_regions = done.ok().map(|_| next + 1);
        }
    }

    /// Submits what is queued, without waiting, and runs the kernel's deferred work.
    pub(crate) fn kick(&mut self) -> io::Result<()> {
        let pending = {
            let mut queue = self.uring.submission();
            queue.sync();
            !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
        };
        if pending { self.enter(0, None) } else { Ok(()) }
    }

    /// Submits what is queued and sleeps for the first completion, at most `timeout`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.enter(1, timeout)
    }

    fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        self.none_is_queued();
        let result = match timeout {
            Some(timeout) => {
                let time = Timespec::new()
                    .sec(timeout.as_secs())
                    .nsec(timeout.subsec_nanos());
                self.uring
                    .submitter()
                    .submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
            None => self.uring.submit_and_wait(want),
        };
        match result.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) => Ok(()),
            // Timed out, interrupted, or completions must be reaped first.
            Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Whether a completion, deferred work or mail is waiting; looks at shared memory only.
    pub(crate) fn is_ready(&mut self) -> bool {
        let mut completions = self.uring.completion();
        completions.sync();
        let waiting = !completions.is_empty();
        drop(completions);
        waiting || self.uring.submission().taskrun() || self.waker.is_pending()
    }

    /// Moves completions to their ports; returns how many there were.
    pub(crate) fn reap(&mut self) -> usize {
        let mut count = 0;
        loop {
            let Some(completion) = self.uring.completion().next() else {
                return count;
            };
            count += 1;
            self.finish(
                completion.user_data() as usize,
                completion.result(),
                completion.flags(),
            );
        }
    }

    fn finish(&mut self, index: usize, result: i32, flags: u32) {
        let outcome = if result < 0 {
            Err(io::Error::from_raw_os_error(-result))
        } else {
            Ok(result as usize)
        };
        if let Some(InFlight {
            op: Op::Accept,
            key,
            events,
        }) = self.table.get(index)
        {
            // SAFETY: a successful accept gives a descriptor that nothing else owns.
            let fd = outcome.map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
            events.push(Event {
                key: *key,
                what: What::Accepted(fd),
            });
            if !cqueue::more(flags) {
                let InFlight { events, key, .. } = self.table.remove(index);
                let stopped = io::Error::from(io::ErrorKind::Interrupted);
                if result >= 0 {
                    events.push(Event {
                        key,
                        what: What::Accepted(Err(stopped)),
                    });
                }
            }
            return;
        }
        let Some(InFlight { op, key, events }) = self.table.try_remove(index) else {
            return;
        };
        let what = match op {
            Op::File { buffer, .. } => {
                self.drive_operations -= 1;
                What::File(outcome, buffer)
            }
            Op::Recv(frame) => What::Received(outcome, frame, cqueue::sock_nonempty(flags)),
            Op::Send(batch) => What::Sent(sent_whole(outcome, batch.gather.len()), batch),
            Op::Connect(_) => What::Connected(outcome.map(|_| ())),
            Op::Wake(_) => {
                self.waker.clear();
                return self.arm_waker();
            }
            Op::Readable => What::Readable(outcome.map(drop)),
            Op::Accept | Op::Cancel(_) | Op::CancelAll => return,
        };
        events.push(Event { key, what });
    }

    /// Cancels everything in flight and waits for it. What the kernel does not give back in time is
    /// leaked: freeing memory that it may still write would be worse.
    fn drain(&mut self) {
        let events = self.nothing.clone();
        self.submit(Op::CancelAll, Target::Plain(-1), 0, &events);
        let start = std::time::Instant::now();
        let waker_only = |table: &slab::Slab<InFlight>| {
            table
                .iter()
                .all(|(_, flight)| matches!(flight.op, Op::Wake(_)))
        };
        while !waker_only(&self.table) && start.elapsed() < DRAIN_LIMIT {
            if self.wait(Some(Duration::from_millis(100))).is_err() {
                break;
            }
            self.reap();
        }
        if !waker_only(&self.table) {
            std::mem::forget(std::mem::take(&mut self.table));
            std::mem::forget(self.pool.clone());
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
        // The waker's read may be armed again; its eight bytes are leaked for the same reason.
        std::mem::forget(std::mem::take(&mut self.table));
    }
}

fn is_transient(error: &io::Error) -> bool {
    let passing = [libc::EINTR, libc::EBUSY, libc::EAGAIN];
    error
        .raw_os_error()
        .is_some_and(|errno| passing.contains(&errno))
}

fn sent_whole(outcome: io::Result<usize>, len: usize) -> io::Result<()> {
    match outcome {
        Ok(sent) if sent == len => Ok(()),
        Ok(_) => Err(io::Error::from(io::ErrorKind::WriteZero)),
        Err(error) => Err(error),
    }
}

fn entry(op: &mut Op, target: Fd, fixed: Option<u16>) -> Entry {
    match op {
        Op::File { op, buffer } => file_entry(op, buffer.as_mut(), target, fixed),
        Op::Recv(frame) => {
            let poll_first = if frame.expect_idle {
                RECVSEND_POLL_FIRST
            } else {
                0
            };
            opcode::RecvMsg::new(target, frame.prepare())
                .ioprio(poll_first)
                .build()
        }
        Op::Send(batch) => {
            let flags = (libc::MSG_WAITALL | libc::MSG_NOSIGNAL) as u32;
            opcode::SendMsg::new(target, batch.prepare())
                .flags(flags)
                .build()
        }
        Op::Accept => opcode::AcceptMulti::new(target)
            .flags(libc::SOCK_CLOEXEC)
            .build(),
        Op::Connect(peer) => {
            opcode::Connect::new(target, peer.as_ptr().cast(), peer.addr_len()).build()
        }
        Op::Wake(bytes) => opcode::Read::new(target, bytes.as_mut_ptr(), 8).build(),
        Op::Readable => opcode::PollAdd::new(target, libc::POLLIN as u32).build(),
        Op::Cancel(number) => opcode::AsyncCancel::new(*number).build(),
        Op::CancelAll => opcode::AsyncCancel2::new(CancelBuilder::any()).build(),
    }
}

fn file_entry(op: &FileOp, buffer: Option<&mut IoBuffer>, target: Fd, fixed: Option<u16>) -> Entry {
    let (ptr, len) = buffer.map_or((std::ptr::null_mut(), 0), |b| {
        (b.as_mut_ptr(), b.len() as u32)
    });
    match *op {
        FileOp::Read { offset } => match fixed {
            Some(index) => opcode::ReadFixed::new(target, ptr, len, index)
                .offset(offset)
                .build(),
            None => opcode::Read::new(target, ptr, len).offset(offset).build(),
        },
        FileOp::Write { offset, durable } => {
            let flags = if durable { libc::RWF_DSYNC } else { 0 };
            match fixed {
                Some(index) => opcode::WriteFixed::new(target, ptr, len, index)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
                None => opcode::Write::new(target, ptr, len)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            }
        }
        FileOp::Sync => opcode::Fsync::new(target)
            .flags(FsyncFlags::DATASYNC)
            .build(),
        FileOp::Allocate { offset, len, mode } => opcode::Fallocate::new(target, len)
            .offset(offset)
            .mode(mode)
            .build(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_at_least;

    #[test]
    fn kernels_are_told_apart_by_their_first_two_numbers() {
        for old in ["5.10.0-8-amd64", "6.1.0", "6.12.117+deb13-amd64", "odd", ""] {
            assert!(!is_at_least(old, 6, 13), "{old}");
        }
        for new in ["6.13.0-rc1", "6.18.3", "7.0"] {
            assert!(is_at_least(new, 6, 13), "{new}");
        }
    }
}
