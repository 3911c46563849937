use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ashlar_device::record::{Entry, Kind};

use crate::failure::Failure;

/// Bytes of a block in a trace that is text.
const SECTOR: u64 = 512;

/// Bytes that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) first: u64,
    pub(super) bytes: u64,
    pub(super) is_write: bool,
}

/// Accesses in their order.
pub(super) struct Trace {
    pub(super) name: String,
    /// Bytes of a slot.
    pub(super) slot: u64,
    pub(super) accesses: Vec<Access>,
}

impl Access {
    /// Slots that it touches.
    pub(super) fn slots(&self, slot: u64) -> impl Iterator<Item = u32> + use<> {
        let (first, end) = (self.first / slot, (self.first + self.bytes).div_ceil(slot));
        (first..end).map(|slot| slot as u32)
    }
}

/// Files of a folder that may be traces, by name. Texts for people are none.
pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(Failure::doing(dir.display()))? {
        let path = entry.map_err(Failure::doing(dir.display()))?.path();
        let is_text = path.extension().is_some_and(|end| end == "md");
        if path.is_file() && !is_text {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        let dir = dir.display();
        return Err(Failure::environment(format!("{dir}: has no traces")));
    }
    Ok(files)
}

/// What a file holds, without its compression.
fn content(path: &Path) -> Result<Vec<u8>, Failure> {
    let program = match path.extension().and_then(|end| end.to_str()) {
        Some("zst") => "zstd",
        Some("xz") => "xz",
        Some("gz") => "gzip",
        _ => return std::fs::read(path).map_err(Failure::doing(path.display())),
    };
    let about = format!("{program} -dc {}", path.display());
    let done = Command::new(program)
        .arg("-dc")
        .arg(path)
        .output()
        .map_err(Failure::doing(&about))?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => {
            let why = String::from_utf8_lossy(&done.stderr);
            Err(Failure::environment(format!("{about}: {}", why.trim())))
        }
    }
}

impl Trace {
    /// Reads a trace: text with first sector and sectors on each line, 32-bit little-endian numbers of slots, or what
    /// `record=` of a device has written down.
    pub(super) fn read(path: &Path, slot: u64) -> Result<Self, Failure> {
        if is_recorded(path).map_err(Failure::doing(path.display()))? {
            return Self::recorded(path, slot);
        }
        let bytes = content(path)?;
        let is_text = bytes
            .iter()
            .take(4096)
            .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
        let accesses = match is_text && !bytes.is_empty() {
            true => sectors(&bytes),
            false => numbers(&bytes, slot),
        };
        let accesses = accesses.and_then(|all| fits(all, slot));
        let name = path.file_stem().unwrap_or_default();
        Ok(Self {
            name: name.display().to_string(),
            slot,
            accesses: accesses.map_err(Failure::doing(path.display()))?,
        })
    }
}

impl Trace {
    /// A device's reads and writes. One without reads says little of what is read again, and is refused.
    fn recorded(path: &Path, slot: u64) -> Result<Self, Failure> {
        let trace = ashlar_device::record::Trace::open(path).map_err(Failure::environment)?;
        if !trace.header().has_reads {
            let why = "has no reads: record it with record-reads=on";
            return Err(Failure::environment(format!("{}: {why}", path.display())));
        }
        let moved = |entry: &&Entry| matches!(entry.kind, Kind::Read | Kind::Write);
        let accesses = trace.entries().filter(moved).map(|entry| Access {
            first: entry.offset,
            bytes: entry.len,
            is_write: entry.kind == Kind::Write,
        });
        let accesses = fits(accesses.collect(), slot);
        let name = path.file_stem().unwrap_or_default();
        Ok(Self {
            name: name.display().to_string(),
            slot,
            accesses: accesses.map_err(Failure::doing(path.display()))?,
        })
    }
}

fn is_recorded(path: &Path) -> std::io::Result<bool> {
    let mut begins = Vec::new();
    File::open(path)?.take(8).read_to_end(&mut begins)?;
    Ok(begins == *b"ASHTRACE")
}

fn sectors(text: &[u8]) -> Result<Vec<Access>, String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let lines = text.lines().enumerate();
    let access = |(line, text): (usize, &str)| {
        let mut words = text.split_whitespace().map(str::parse::<u64>);
        match (words.next(), words.next()) {
            (Some(Ok(first)), Some(Ok(sectors)))
                if sectors > 0 && first < 1 << 48 && sectors < 1 << 20 =>
            {
                Ok(Access {
                    first: first * SECTOR,
                    bytes: sectors * SECTOR,
                    is_write: false,
                })
            }
            _ => Err(format!(
                "line {}: `{text}`: must begin with a sector and a number of sectors",
                line + 1
            )),
        }
    };
    lines.map(access).collect()
}

fn numbers(bytes: &[u8], slot: u64) -> Result<Vec<Access>, String> {
    let (words, rest) = bytes.as_chunks::<4>();
    if words.is_empty() || !rest.is_empty() {
        let len = bytes.len();
        return Err(format!(
            "{len} bytes are neither text nor 32-bit numbers of slots"
        ));
    }
    let access = |word: &[u8; 4]| Access {
        first: u64::from(u32::from_le_bytes(*word)) * slot,
        bytes: slot,
        is_write: false,
    };
    Ok(words.iter().map(access).collect())
}

/// All slots must have a 32-bit number.
fn fits(all: Vec<Access>, slot: u64) -> Result<Vec<Access>, String> {
    let last = all
        .iter()
        .map(|access| (access.first + access.bytes) / slot);
    match last.max() {
        Some(last) if last >= u64::from(u32::MAX) => Err(format!(
            "slot {last} has no 32-bit number: --slot is too small"
        )),
        _ => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ashlar_block::{BlockRange, BlockSize, Durability, Request};
    use ashlar_device::{Spec, open};
    use ashlar_reactor::{Options, Reactor};

    use super::*;

    #[test]
    fn both_forms_are_read_and_others_refused_by_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).expect("written");
            Trace::read(&path, 8192)
        };
        let text = file("text", b"16 1 0 0\n31 2 0 1\n").expect("a trace");
        let slots = |trace: &Trace| -> Vec<Vec<u32>> {
            let all = trace.accesses.iter();
            all.map(|one| one.slots(8192).collect()).collect()
        };
        assert_eq!(slots(&text), [vec![1], vec![1, 2]]);
        let binary = file("binary", &[7, 0, 0, 0, 0, 1, 0, 0]).expect("a trace");
        assert_eq!(slots(&binary), [vec![7], vec![256]]);
        for (name, bytes, why) in [
            ("odd", &[1, 2, 3][..], "3 bytes"),
            ("none", b"", "0 bytes"),
            ("prose", b"1 2\nnot a trace\n", "line 2"),
            ("nothing", b"5 0\n", "line 1"),
            ("no.zst", b"12 1\n", "zstd"),
        ] {
            let error = file(name, bytes).err().expect(name).to_string();
            assert!(error.contains(name) && error.contains(why), "{error}");
        }
        let error = files(&dir.path().join("missing")).expect_err("none");
        assert!(error.to_string().contains("missing"));
    }

    /// A write of two blocks, and a read of one, of a device that is recorded to `trace`.
    fn record(dir: &Path, trace: &str, options: &str) {
        let dir = dir.display();
        let text = format!("file:{dir}/device?size=1m&record={dir}/{trace}{options}");
        let spec: Spec = text.parse().expect("a device");
        let opener = open(&spec, BlockSize::B4096).expect("a device");
        let mut reactor = Reactor::new(&Options::default()).expect("io_uring");
        let mut device = opener.open(reactor.handle()).expect("it opens");
        let buffer = |bytes| reactor.handle().buffers().get(bytes).expect("memory");
        let write = (BlockRange::new(2, 2), buffer(8192), Durability::Cached);
        let write = Request::write(1, write.0, write.1, write.2);
        let read = Request::read(2, BlockRange::new(3, 1), buffer(4096));
        for request in [write, read] {
            device.submit(request);
            let mut done = Vec::new();
            while done.is_empty() {
                let until = reactor.handle().now() + Duration::from_millis(10);
                reactor.turn(Some(until)).expect("a turn");
                device.poll(reactor.handle().now(), &mut done);
            }
        }
    }

    #[test]
    fn what_was_recorded_of_a_device_is_a_trace_if_it_has_reads() {
        let dir = tempfile::tempdir().expect("a folder");
        record(dir.path(), "db.trace", "&record-reads=on");
        let trace = Trace::read(&dir.path().join("db.trace"), 8192).expect("a trace");
        let first = Access {
            first: 8192,
            bytes: 8192,
            is_write: true,
        };
        let second = Access {
            first: 12288,
            bytes: 4096,
            is_write: false,
        };
        assert_eq!(trace.accesses, [first, second]);
        assert_eq!(trace.name, "db");
        record(dir.path(), "changes", "");
        let refused = Trace::read(&dir.path().join("changes"), 8192);
        let why = refused.err().expect("no reads").to_string();
        assert!(why.contains("record-reads=on"), "{why}");
    }
}
