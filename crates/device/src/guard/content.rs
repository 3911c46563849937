//! What is in a device or file: labels, then anything that is not zero.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::{Finding, FindingKind};

const SAMPLE_BYTES: u64 = 64 << 10;
const SAMPLES: u64 = 4096;

/// A label, as libblkid's `blkid` knows hundreds of. Where the tool is missing, the content speaks.
pub(super) fn signature(path: &Path) -> Option<Finding> {
    let output = Command::new("blkid")
        .args(["-p", "-o", "export"])
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    // Its exit code says: found, nothing found (2), or several labels that contradict (8).
    match output.status.code() {
        Some(0) => describe(&String::from_utf8_lossy(&output.stdout)),
        Some(8) => Some(Finding::new(
            FindingKind::Signature,
            "holds several labels at once",
        )),
        _ => None,
    }
}

fn describe(export: &str) -> Option<Finding> {
    let value = |key: &str| {
        let mut lines = export.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    let label = match value("LABEL").or(value("PART_ENTRY_NAME")) {
        Some(label) => format!(" labelled `{label}`"),
        None => String::new(),
    };
    let what = match (value("TYPE"), value("USAGE"), value("PTTYPE")) {
        (Some(kind), Some("filesystem"), _) => format!("holds a file system: {kind}{label}"),
        (Some(kind), _, _) => format!("holds a label: {kind}{label}"),
        (None, _, Some(table)) => format!("holds a partition table: {table}"),
        _ => return None,
    };
    Some(Finding::new(FindingKind::Signature, what))
}

/// Anything that is not zero.
pub(super) fn data(file: &File, whole: bool) -> io::Result<Option<Finding>> {
    let end = seek(file, SeekFrom::End(0))?;
    let first = match whole {
        true => first_in_extents(file, end)?,
        false => first_in_samples(file, end)?,
    };
    Ok(first.map(|at| {
        let text = format!("holds data: byte {at} is not zero");
        Finding::new(FindingKind::Data, text)
    }))
}

/// Looks at both ends first, where labels are, then at evenly spread places.
fn first_in_samples(file: &File, end: u64) -> io::Result<Option<u64>> {
    let stride = (end / SAMPLES).max(SAMPLE_BYTES);
    let last = end.saturating_sub(SAMPLE_BYTES);
    let places = [0, last]
        .into_iter()
        .chain((0..end).step_by(stride as usize));
    for at in places {
        if let Some(found) = first_in(file, at, (at + SAMPLE_BYTES).min(end))? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Looks at everything that is not a hole.
fn first_in_extents(file: &File, end: u64) -> io::Result<Option<u64>> {
    let mut at = 0;
    while at < end {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // Without extents, all of it may be data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error.into()),
        };
        let stop = seek(file, SeekFrom::Hole(start)).unwrap_or(end);
        if let Some(found) = first_in(file, start, stop)? {
            return Ok(Some(found));
        }
        at = stop.max(start + 1);
    }
    Ok(None)
}

/// The first byte in the range that is not zero.
fn first_in(file: &File, start: u64, end: u64) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; SAMPLE_BYTES as usize];
    let mut at = start;
    while at < end {
        let want = (end - at).min(SAMPLE_BYTES) as usize;
        let got = file.read_at(&mut buffer[..want], at)?;
        if got == 0 {
            return Ok(None);
        }
        if let Some(inside) = buffer[..got].iter().position(|&byte| byte != 0) {
            return Ok(Some(at + inside as u64));
        }
        at += got as u64;
    }
    Ok(None)
}
