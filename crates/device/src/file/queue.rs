use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ashlar_block::{
    BlockDevice, Completion, Description, Durability, ErrorKind, Geometry, IoBuffer, IoError,
    Moment, Operation, Request,
};
use ashlar_reactor::{Event, File, Handle, Port, What};
use rustix::fs::{fdatasync, fstatvfs};
use rustix::io::{ReadWriteFlags, pread, pwritev2};
use slab::Slab;

use super::{Medium, fault};

/// How often an operation that was merely interrupted is tried again.
const TRIES: u8 = 100;

/// How often a write that ended early is tried again as a whole.
const SHORT_TRIES: u8 = 3;

/// Longest transfer that is done at once in memory: what is longer takes long enough to be worth another
/// thread.
const AT_ONCE: u64 = 64 << 10;

/// One core's way to the medium.
pub(super) struct FileQueue {
    medium: Arc<Medium>,
    file: File,
    port: Port,
    flights: Slab<Flight>,
    done: Vec<Completion>,
}

struct Flight {
    /// Without its buffer while the ring has that.
    request: Request,
    step: Step,
    tries: u8,
    /// The request's buffer, while another stands in for it in the ring.
    bounced: Option<IoBuffer>,
}

/// What the ring is doing for a request.
#[derive(Clone, Copy)]
enum Step {
    /// The read or write itself.
    Transfer,
    /// Giving the range's space back.
    Punch,
    /// Zeroing the range in the file system.
    ZeroRange,
    /// Writing zeroes: `len` bytes at `at`, of which the range has more to come.
    Fill { at: u64, len: usize },
    /// Making all durable: a flush, or the end of durable zeroes.
    Sync,
}

impl FileQueue {
    pub(super) fn new(medium: Arc<Medium>, reactor: &Handle) -> Result<Self, IoError> {
        let fd = medium.fd.try_clone().map_err(|error| {
            IoError::with_source(ErrorKind::Exhausted, medium.name.clone(), error)
        })?;
        Ok(Self {
            file: reactor.adopt(fd),
            port: reactor.port(),
            medium,
            flights: Slab::new(),
            done: Vec::new(),
        })
    }

    fn first_step(&self, op: Operation) -> Option<Step> {
        let no_punch = self.medium.no_punch_hole.load(Ordering::Relaxed);
        match op {
            Operation::Read | Operation::Write(_) => Some(Step::Transfer),
            Operation::Flush => Some(Step::Sync),
            Operation::Deallocate => (!no_punch).then_some(Step::Punch),
            Operation::WriteZeroes {
                deallocate: true, ..
            } if !no_punch => Some(Step::Punch),
            Operation::WriteZeroes { .. } => Some(Step::ZeroRange),
        }
    }

    /// Offset and length of the request's range, in bytes.
    fn extent(&self, request: &Request) -> (u64, u64) {
        let geometry = &self.medium.geometry;
        let len = u64::from(request.range.count) << geometry.block_size.shift();
        (geometry.range_offset(request.range), len)
    }

    /// Starts the flight's step, with `buffer` for those that need one.
    fn start(&mut self, index: usize, buffer: Option<IoBuffer>) {
        let key = index as u64;
        let flight = &self.flights[index];
        let (offset, len) = self.extent(&flight.request);
        match (flight.step, buffer) {
            (Step::Transfer, buffer @ Some(_)) | (Step::Sync, buffer)
                if self.medium.in_memory && len <= AT_ONCE =>
            {
                self.do_at_once(index, offset, buffer);
            }
            (Step::Transfer, Some(buffer)) => match flight.request.op {
                Operation::Write(durability) => {
                    let durable = durability == Durability::Durable;
                    self.port.write(&self.file, offset, buffer, durable, key);
                }
                _ => self.port.read(&self.file, offset, buffer, key),
            },
            (Step::Fill { at, .. }, Some(buffer)) => {
                self.port.write(&self.file, at, buffer, false, key);
            }
            (Step::Punch, _) => self.port.punch_hole(&self.file, offset, len, key),
            (Step::ZeroRange, _) if self.medium.no_zero_range.load(Ordering::Relaxed) => {
                self.fill(index, offset, None);
            }
            (Step::ZeroRange, _) => self.port.zero_range(&self.file, offset, len, key),
            (Step::Sync, _) => self.port.sync(&self.file, key),
            (Step::Transfer | Step::Fill { .. }, None) => {
                let error = self.error(index, ErrorKind::Internal, None);
                self.finish(index, Err(error), None);
            }
        }
    }

    /// Transfers or syncs without the ring, for a file in memory: the kernel has no way to it that does not
    /// block, so the ring would wake a thread for every copy, and that one this.
    fn do_at_once(&mut self, index: usize, offset: u64, mut buffer: Option<IoBuffer>) {
        let outcome = match (self.flights[index].request.op, &mut buffer) {
            (Operation::Write(durability), Some(buffer)) => {
                let mut flags = ReadWriteFlags::empty();
                flags.set(ReadWriteFlags::DSYNC, durability == Durability::Durable);
                pwritev2(&self.file, &[IoSlice::new(buffer)], offset, flags)
            }
            (_, Some(buffer)) => pread(&self.file, &mut buffer[..], offset),
            (_, None) => fdatasync(&self.file).map(|()| 0),
        };
        self.arrived(index, outcome.map_err(io::Error::from), buffer);
    }

    /// Writes the next part of the range's zeroes, in the largest pieces a request may have.
    fn fill(&mut self, index: usize, at: u64, zeroes: Option<IoBuffer>) {
        let (offset, all) = self.extent(&self.flights[index].request);
        let geometry = &self.medium.geometry;
        let most = u64::from(geometry.max_blocks) << geometry.block_size.shift();
        let len = (offset + all - at).min(most) as usize;
        let zeroes = zeroes.or_else(|| {
            let mut fresh = self.port.handle().buffers().get(len)?;
            fresh.fill(0);
            Some(fresh)
        });
        let Some(mut zeroes) = zeroes else {
            let error = self.error(index, ErrorKind::Exhausted, None);
            return self.finish(index, Err(error), None);
        };
        zeroes.truncate(len);
        self.step(index, Step::Fill { at, len }, Some(zeroes));
    }

    fn step(&mut self, index: usize, step: Step, buffer: Option<IoBuffer>) {
        self.flights[index].step = step;
        self.start(index, buffer);
    }

    fn arrived(&mut self, index: usize, outcome: io::Result<usize>, buffer: Option<IoBuffer>) {
        let Some(flight) = self.flights.get_mut(index) else {
            return;
        };
        match outcome {
            Ok(bytes) => self.succeeded(index, bytes, buffer),
            Err(error) if fault::is_transient(&error) && flight.tries < TRIES => {
                flight.tries += 1;
                self.start(index, buffer);
            }
            Err(error) => self.failed(index, error, buffer),
        }
    }

    fn succeeded(&mut self, index: usize, bytes: usize, buffer: Option<IoBuffer>) {
        let flight = &self.flights[index];
        let (offset, all) = self.extent(&flight.request);
        match flight.step {
            Step::Transfer if bytes as u64 == all => self.finish(index, Ok(()), buffer),
            Step::Fill { at, len } if bytes == len => match at + len as u64 {
                next if next < offset + all => self.fill(index, next, buffer),
                _ => self.zeroed(index),
            },
            Step::Transfer | Step::Fill { .. } if self.may_go_on(index) => {
                // What has stopped a write says so when it is asked again.
                self.flights[index].tries += 1;
                self.start(index, buffer);
            }
            Step::Transfer | Step::Fill { .. } => self.cut_short(index, bytes, buffer),
            Step::Punch | Step::ZeroRange => self.zeroed(index),
            Step::Sync => self.finish(index, Ok(()), None),
        }
    }

    /// Whether a transfer that ended early is tried again.
    fn may_go_on(&self, index: usize) -> bool {
        let flight = &self.flights[index];
        flight.request.op != Operation::Read && flight.tries < SHORT_TRIES
    }

    /// The range reads as zeroes; durably, if that was asked for.
    fn zeroed(&mut self, index: usize) {
        match self.flights[index].request.op {
            Operation::WriteZeroes {
                durability: Durability::Durable,
                ..
            } => self.step(index, Step::Sync, None),
            _ => self.finish(index, Ok(()), None),
        }
    }

    /// A transfer that ended early: the disk is full, or the file is shorter than it was.
    fn cut_short(&mut self, index: usize, bytes: usize, buffer: Option<IoBuffer>) {
        let reading = self.flights[index].request.op == Operation::Read;
        let full = !reading && fstatvfs(&self.file).is_ok_and(|fs| fs.f_bavail == 0);
        let kind = match full {
            true => ErrorKind::NoSpace,
            false => ErrorKind::Media,
        };
        let what = format!("only {bytes} bytes were transferred");
        let error = self.error(index, kind, Some(io::Error::other(what)));
        self.lost(index, kind);
        self.finish(index, Err(error), buffer);
    }

    fn failed(&mut self, index: usize, error: io::Error, buffer: Option<IoBuffer>) {
        let unsupported = fault::is_unsupported(&error);
        match self.flights[index].step {
            Step::Punch if unsupported => {
                self.medium.no_punch_hole.store(true, Ordering::Relaxed);
                match self.flights[index].request.op {
                    Operation::Deallocate => self.finish(index, Ok(()), None),
                    _ => self.step(index, Step::ZeroRange, None),
                }
            }
            Step::ZeroRange if unsupported => {
                self.medium.no_zero_range.store(true, Ordering::Relaxed);
                self.step(index, Step::ZeroRange, None);
            }
            _ => {
                let kind = fault::kind(&error);
                let error = self.error(index, kind, Some(error));
                self.lost(index, kind);
                self.finish(index, Err(error), buffer);
            }
        }
    }

    /// Latches the device if the failure may have swallowed earlier writes: the kernel reports a
    /// lost page to one sync only. A direct write that found no space, or no memory, has lost nothing else.
    fn lost(&self, index: usize, kind: ErrorKind) {
        let flight = &self.flights[index];
        let syncs = match (flight.step, flight.request.op) {
            (Step::Sync, _) => true,
            (_, Operation::Write(Durability::Durable)) => {
                let passes = matches!(kind, ErrorKind::NoSpace | ErrorKind::Exhausted);
                !passes || !self.medium.direct
            }
            _ => false,
        };
        if syncs {
            self.medium.latch();
        }
    }

    /// The error for a flight: path, operation, offset and length.
    fn error(&self, index: usize, kind: ErrorKind, source: Option<io::Error>) -> IoError {
        let request = &self.flights[index].request;
        let (offset, len) = self.extent(request);
        let name = &self.medium.name;
        let context = match request.op {
            Operation::Flush => format!("{name}: flush"),
            Operation::Read => format!("{name}: read of {len} bytes at {offset}"),
            Operation::Write(_) => format!("{name}: write of {len} bytes at {offset}"),
            Operation::WriteZeroes { .. } => format!("{name}: zeroing {len} bytes at {offset}"),
            Operation::Deallocate => format!("{name}: deallocating {len} bytes at {offset}"),
        };
        match source {
            Some(source) => IoError::with_source(kind, context, source),
            None => IoError::new(kind, context),
        }
    }

    fn finish(&mut self, index: usize, result: Result<(), IoError>, buffer: Option<IoBuffer>) {
        let mut flight = self.flights.remove(index);
        let reading = flight.request.op == Operation::Read;
        flight.request.buffer = match (flight.bounced, buffer) {
            (Some(mut own), Some(lent)) => {
                if reading && result.is_ok() {
                    own.copy_from_slice(&lent);
                }
                Some(own)
            }
            (Some(own), None) => Some(own),
            (None, lent) if flight.request.op.has_buffer() => lent,
            _ => None,
        };
        // Between this request's start and end another one may have failed to be made durable.
        let result = match result {
            Ok(()) if self.medium.is_latched() => Err(self.medium.latched_error()),
            result => result,
        };
        self.done.push(flight.request.complete(result));
    }

    /// The buffer to lend to the ring, and the request's own if it cannot be that: parts of a split
    /// buffer may start anywhere.
    fn lend(&self, request: &mut Request) -> Result<(Option<IoBuffer>, Option<IoBuffer>), IoError> {
        let Some(own) = request.buffer.take() else {
            return Ok((None, None));
        };
        if (own.as_ptr() as usize).is_multiple_of(self.medium.memory_align) {
            return Ok((Some(own), None));
        }
        let Some(mut lent) = self.port.handle().buffers().get(own.len()) else {
            request.buffer = Some(own);
            let context = format!("{}: no aligned buffer", self.medium.name);
            return Err(IoError::new(ErrorKind::Exhausted, context));
        };
        if request.op != Operation::Read {
            lent.copy_from_slice(&own);
        }
        Ok((Some(lent), Some(own)))
    }
}

#[cfg(test)]
impl FileQueue {
    /// Lets a request fail as if the kernel had reported `error`.
    pub(super) fn inject(&mut self, mut request: Request, error: io::Error) {
        let buffer = request.buffer.take();
        let step = self.first_step(request.op).expect("needs the ring");
        let index = self.flights.insert(Flight {
            request,
            step,
            tries: 0,
            bounced: None,
        });
        self.arrived(index, Err(error), buffer);
    }
}

impl BlockDevice for FileQueue {
    fn geometry(&self) -> Geometry {
        self.medium.geometry
    }

    fn submit(&mut self, mut request: Request) {
        if self.medium.is_latched() {
            let error = self.medium.latched_error();
            return self.done.push(request.complete(Err(error)));
        }
        let empty = request.range.count == 0 && request.op != Operation::Flush;
        let Some(step) = self.first_step(request.op).filter(|_| !empty) else {
            return self.done.push(request.complete(Ok(())));
        };
        match self.lend(&mut request) {
            Ok((buffer, bounced)) => {
                let index = self.flights.insert(Flight {
                    request,
                    step,
                    tries: 0,
                    bounced,
                });
                self.start(index, buffer);
            }
            Err(error) => self.done.push(request.complete(Err(error))),
        }
    }

    fn poll(&mut self, _now: Moment, done: &mut Vec<Completion>) {
        while let Some(Event { key, what }) = self.port.next() {
            if let What::File(outcome, buffer) = what {
                self.arrived(key as usize, outcome, buffer);
            }
        }
        done.append(&mut self.done);
    }

    fn describe(&self) -> Description {
        self.medium.describe()
    }
}
