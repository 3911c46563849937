use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ashlar_block::{Durability, ErrorKind, Geometry, IoError, Operation, Request};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::format::{
    ENTRY_BYTES, Entry, HEADER_BYTES, Kind, TraceHeader, encode_entry, encode_header,
};
use super::{Recording, Trace, TraceError};

/// The latest stamp of this process.
static LATEST: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds of CLOCK_MONOTONIC, as a trace's stamps are.
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A stamp later than all others of this process, and no earlier than the clock.
fn stamp() -> u64 {
    let now = monotonic();
    let next = |latest| Some(now.max(latest + 1));
    let before = LATEST.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    now.max(before.unwrap_or_else(|latest| latest) + 1)
}

/// One device's trace, shared by its queues.
pub(super) struct Recorder {
    path: PathBuf,
    limit: u64,
    reads: bool,
    shift: u32,
    state: Mutex<State>,
}

struct State {
    file: File,
    len: u64,
    next_id: u64,
    /// Why nothing more is recorded.
    ended: Option<String>,
}

impl Recorder {
    /// Begins a trace, or goes on with one of the same device.
    pub(super) fn open(recording: &Recording, geometry: &Geometry) -> Result<Self, TraceError> {
        let path = recording.trace.clone();
        let opened = Self::open_file(recording, geometry).map_err(|error| error.of(&path))?;
        let recorder = Self {
            path,
            limit: recording.limit,
            reads: recording.reads,
            shift: geometry.block_size.shift(),
            state: Mutex::new(opened),
        };
        let mut state = recorder.lock();
        recorder
            .append(&mut state, Entry::plain(Kind::Opened, 0), &[])
            .map_err(|error| TraceError::new(error.to_string()))?;
        drop(state);
        Ok(recorder)
    }

    fn open_file(recording: &Recording, geometry: &Geometry) -> Result<State, TraceError> {
        let failed = |error| TraceError::caused("cannot be written", error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&recording.trace)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                return Err(TraceError::new("another device is recorded there"));
            }
            Err(error) => return Err(failed(error.into())),
            Ok(()) => {}
        }
        let header = TraceHeader {
            block_size: geometry.block_size,
            blocks: geometry.blocks,
            volatile_cache: geometry.volatile_cache,
            has_reads: recording.reads,
            boot: boot(),
        };
        let is_new = file.metadata().map_err(failed)?.len() == 0;
        let len = match is_new {
            true => {
                file.write_all(&encode_header(&header)).map_err(failed)?;
                HEADER_BYTES as u64
            }
            false => continued(&file, &header)?,
        };
        // What a killed process had half appended was not submitted.
        file.set_len(len).map_err(failed)?;
        file.seek(SeekFrom::Start(len)).map_err(failed)?;
        Ok(State {
            file,
            len,
            next_id: 1,
            ended: None,
        })
    }

    pub(super) fn title(&self) -> String {
        format!("recorded to {}", self.path.display())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a request is about to be submitted, and gives its number; reads have none.
    pub(super) fn submitted(&self, request: &Request) -> Result<Option<u64>, IoError> {
        let (kind, flag) = match request.op {
            Operation::Read => return self.read(request).map(|()| None),
            Operation::Write(durability) => (Kind::Write, durability == Durability::Durable),
            Operation::WriteZeroes { durability, .. } => {
                (Kind::WriteZeroes, durability == Durability::Durable)
            }
            Operation::Deallocate => (Kind::Deallocate, false),
            Operation::Flush => (Kind::Flush, false),
        };
        let data = request.buffer.as_deref().unwrap_or(&[]);
        // Outside of the lock: it is the longest part.
        let data_crc = crc32c::crc32c(data);
        let mut state = self.lock();
        let id = state.next_id;
        let entry = Entry {
            flag,
            offset: request.range.start.0 << self.shift,
            len: u64::from(request.range.count) << self.shift,
            data_len: data.len() as u32,
            data_crc,
            ..Entry::plain(kind, id)
        };
        self.append(&mut state, entry, data)?;
        state.next_id += 1;
        Ok(Some(id))
    }

    /// Records a read, if it is to be. Nothing is lost with one that cannot be recorded, but a trace with gaps says
    /// nothing of what is read again: it fails like all else then.
    fn read(&self, request: &Request) -> Result<(), IoError> {
        if !self.reads {
            return Ok(());
        }
        let entry = Entry {
            offset: request.range.start.0 << self.shift,
            len: u64::from(request.range.count) << self.shift,
            ..Entry::plain(Kind::Read, 0)
        };
        self.append(&mut self.lock(), entry, &[])
    }

    /// Records that a request has completed.
    pub(super) fn done(&self, id: u64, failed: bool) -> Result<(), IoError> {
        let entry = Entry {
            flag: failed,
            ..Entry::plain(Kind::Done, id)
        };
        self.append(&mut self.lock(), entry, &[])
    }

    fn append(&self, state: &mut State, mut entry: Entry, data: &[u8]) -> Result<(), IoError> {
        if let Some(why) = &state.ended {
            return Err(IoError::new(ErrorKind::Latched, why.clone()));
        }
        let len = (ENTRY_BYTES + data.len()) as u64;
        if state.len + len > self.limit {
            let why = format!("has reached record-limit={}", self.limit);
            return Err(self.end(state, &why));
        }
        entry.at = stamp();
        let written = state
            .file
            .write_all(&encode_entry(&entry))
            .and_then(|()| state.file.write_all(data));
        if let Err(error) = written {
            // Half an entry at the end is passed over by readers; without it they are told less.
            let _ = state.file.set_len(state.len);
            return Err(self.end(state, &format!("cannot be appended to: {error}")));
        }
        state.len += len;
        Ok(())
    }

    /// From here on nothing is recorded, and so nothing is done.
    fn end(&self, state: &mut State, why: &str) -> IoError {
        let why = format!("trace {} {why}", self.path.display());
        state.ended = Some(why.clone());
        IoError::new(ErrorKind::Latched, why)
    }
}

/// Where a trace of the same device and boot is to be continued.
fn continued(file: &File, header: &TraceHeader) -> Result<u64, TraceError> {
    let file = file
        .try_clone()
        .map_err(|error| TraceError::caused("cannot be read", error))?;
    let trace = Trace::read(file)?;
    if trace.header().boot != header.boot {
        let why = "was recorded before this machine was booted; stamps would not compare";
        return Err(TraceError::new(why));
    }
    if trace.header().has_reads != header.has_reads {
        let why = match header.has_reads {
            true => "was begun without record-reads=on",
            false => "was begun with record-reads=on",
        };
        return Err(TraceError::new(why));
    }
    if trace.header() != header {
        return Err(TraceError::new("is the trace of another device"));
    }
    Ok(trace.end())
}

/// This boot's identifier; zeroes where the kernel has none.
fn boot() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] << 4 | pair[1]) as u8;
    }
    id
}
