use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::TraceError;
use super::format::{
    ENTRY_BYTES, Entry, HEADER_BYTES, Kind, TraceHeader, decode_entry, decode_header,
};

/// A trace that was read: every entry, and where its data are.
#[derive(Debug)]
pub struct Trace {
    file: File,
    header: TraceHeader,
    entries: Vec<(Entry, u64)>,
    end: u64,
    cut_short: bool,
}

/// A trace in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How often recording began.
    pub openings: u64,
    /// From the first entry to the last.
    pub nanoseconds: u64,
    /// Reads that were submitted, where they are recorded.
    pub reads: u64,
    pub read_bytes: u64,
    /// Writes that were submitted.
    pub writes: u64,
    pub write_bytes: u64,
    /// Those that had to be durable when they completed (FUA).
    pub durable_writes: u64,
    pub zeroings: u64,
    pub deallocations: u64,
    /// Flushes that completed.
    pub flushes: u64,
    /// Requests that failed, flushes among them.
    pub failed: u64,
    /// Requests that never completed.
    pub unfinished: u64,
    /// Most changes between two completed flushes.
    pub longest_run: u64,
    /// Most bytes written between two completed flushes.
    pub longest_run_bytes: u64,
    /// The trace ends within an entry: the process was killed.
    pub cut_short: bool,
}

/// Something was made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// From its submission to its completion.
    pub span: Range<u64>,
    /// A flush, and not a durable write.
    pub is_flush: bool,
}

impl Synced {
    /// Whether one of these, sorted as [`Trace::syncs`] gives them, lies within a span of time.
    pub fn any_within(syncs: &[Self], span: &Range<u64>) -> bool {
        let first = syncs.partition_point(|sync| sync.span.start < span.start);
        let mut within = syncs[first..]
            .iter()
            .take_while(|sync| sync.span.start < span.end);
        within.any(|sync| sync.span.end <= span.end)
    }
}

/// Writes to certain places, and how they lie to pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Writes that touch the places.
    pub count: u64,
    /// Those that begin or end within an aligned page.
    pub splitting: u64,
    /// Bytes of the largest.
    pub largest: u64,
}

impl Trace {
    /// Reads a trace. The data are checked when they are used.
    ///
    /// # Errors
    /// It cannot be read, is no trace or of another version, or is damaged. An end within an entry is no
    /// damage.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|e| TraceError::caused("cannot be opened", e));
        file.and_then(Self::read).map_err(|error| error.of(path))
    }

    pub(super) fn read(file: File) -> Result<Self, TraceError> {
        let failed = |error| TraceError::caused("cannot be read", error);
        let mut input = BufReader::with_capacity(1 << 16, file.try_clone().map_err(failed)?);
        input.seek(SeekFrom::Start(0)).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut bytes = [0; HEADER_BYTES];
        input
            .read_exact(&mut bytes)
            .map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => TraceError::new("is no trace: it is too short"),
                _ => failed(error),
            })?;
        let header = decode_header(&bytes)?;
        let device_bytes = header.blocks * u64::from(header.block_size.bytes());
        let mut trace = Self {
            file,
            header,
            entries: Vec::new(),
            end: HEADER_BYTES as u64,
            cut_short: false,
        };
        let mut bytes = [0; ENTRY_BYTES];
        while trace.end < size {
            let data_at = trace.end + ENTRY_BYTES as u64;
            if data_at > size {
                trace.cut_short = true;
                break;
            }
            input.read_exact(&mut bytes).map_err(failed)?;
            let entry = decode_entry(&bytes, device_bytes).filter(|entry| trace.follows(entry));
            let Some(entry) = entry else {
                let why = format!("is damaged at byte {}", trace.end);
                return Err(TraceError::new(why));
            };
            if data_at + u64::from(entry.data_len) > size {
                trace.cut_short = true;
                break;
            }
            input.seek_relative(entry.data_len.into()).map_err(failed)?;
            trace.end = data_at + u64::from(entry.data_len);
            trace.entries.push((entry, data_at));
        }
        Ok(trace)
    }

    /// Whether an entry may come next: a trace begins with an opening, and stamps only grow.
    fn follows(&self, entry: &Entry) -> bool {
        match self.entries.last() {
            Some((last, _)) => entry.at > last.at,
            None => entry.kind == Kind::Opened,
        }
    }

    /// What it is of.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Bytes of the device.
    pub fn device_bytes(&self) -> u64 {
        self.header.blocks * u64::from(self.header.block_size.bytes())
    }

    /// Every entry, in order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter().map(|(entry, _)| entry)
    }

    /// Where its last whole entry ends.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn entry(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index).map(|(entry, _)| entry)
    }

    /// An entry's data, checked.
    pub(super) fn data(&self, index: usize) -> Result<Vec<u8>, TraceError> {
        let Some((entry, at)) = self.entries.get(index) else {
            return Ok(Vec::new());
        };
        let mut data = vec![0; entry.data_len as usize];
        self.file
            .read_exact_at(&mut data, *at)
            .map_err(|error| TraceError::caused("cannot be read", error))?;
        if crc32c::crc32c(&data) != entry.data_crc {
            return Err(TraceError::new(format!(
                "the data at byte {at} are damaged"
            )));
        }
        Ok(data)
    }

    /// When something was made durable: completed flushes, and completed durable writes and zeroings, by
    /// when they were submitted.
    pub fn syncs(&self) -> Vec<Synced> {
        let (mut begun, mut syncs) = (HashMap::new(), Vec::new());
        for entry in self.entries() {
            match entry.kind {
                Kind::Opened => begun.clear(),
                Kind::Flush => drop(begun.insert(entry.id, (entry.at, true))),
                Kind::Write | Kind::WriteZeroes if entry.flag => {
                    begun.insert(entry.id, (entry.at, false));
                }
                Kind::Done => {
                    if let Some((at, is_flush)) = begun.remove(&entry.id)
                        && !entry.flag
                    {
                        syncs.push(Synced {
                            span: at..entry.at,
                            is_flush,
                        });
                    }
                }
                Kind::Write | Kind::WriteZeroes | Kind::Deallocate | Kind::Read => {}
            }
        }
        syncs.sort_by_key(|sync| sync.span.start);
        syncs
    }

    /// How the writes to places of the device lie to pages of `page` bytes; the places are sorted.
    pub fn writes_to(&self, places: &[Range<u64>], page: u64) -> Writes {
        let mut found = Writes::default();
        for entry in self.entries().filter(|entry| entry.kind == Kind::Write) {
            let end = entry.offset + entry.len;
            let near = places.partition_point(|place| place.end <= entry.offset);
            if places.get(near).is_none_or(|place| place.start >= end) {
                continue;
            }
            let splits = entry.offset % page != 0 || end % page != 0;
            found.count += 1;
            found.splitting += u64::from(splits);
            found.largest = found.largest.max(entry.len);
        }
        found
    }

    pub fn summary(&self) -> Summary {
        let mut sum = Summary {
            cut_short: self.cut_short,
            ..Summary::default()
        };
        if let (Some((first, _)), Some((last, _))) = (self.entries.first(), self.entries.last()) {
            sum.nanoseconds = last.at - first.at;
        }
        let (mut pending, mut run, mut run_bytes) = (HashMap::new(), 0, 0);
        for entry in self.entries() {
            match entry.kind {
                Kind::Opened => {
                    sum.openings += 1;
                    sum.unfinished += pending.len() as u64;
                    pending.clear();
                    continue;
                }
                Kind::Done => {
                    let what = pending.remove(&entry.id);
                    sum.failed += u64::from(entry.flag);
                    if what == Some(Kind::Flush) && !entry.flag {
                        sum.flushes += 1;
                        (run, run_bytes) = (0, 0);
                    }
                    continue;
                }
                Kind::Read => {
                    sum.reads += 1;
                    sum.read_bytes += entry.len;
                    continue;
                }
                Kind::Write => {
                    sum.writes += 1;
                    sum.write_bytes += entry.len;
                    sum.durable_writes += u64::from(entry.flag);
                    run_bytes += entry.len;
                }
                Kind::WriteZeroes => sum.zeroings += 1,
                Kind::Deallocate => sum.deallocations += 1,
                Kind::Flush => {}
            }
            run += u64::from(entry.kind.modifies());
            sum.longest_run = sum.longest_run.max(run);
            sum.longest_run_bytes = sum.longest_run_bytes.max(run_bytes);
            pending.insert(entry.id, entry.kind);
        }
        sum.unfinished += pending.len() as u64;
        sum
    }
}
