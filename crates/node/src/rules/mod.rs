//! What rules by file name: files of a file system on a volume that caches, and where they lie on it. It is looked
//! up where the file system is mounted; a daemon there does it by itself, again and again.

mod pattern;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ashlar_device::extents;

use crate::model::{ByteRange, ControlError, MOST_RULE_RANGES, RuleExtents, VolumeStatus};
use pattern::Pattern;

/// How often what a rule names is looked up again.
pub const RENEW_EVERY: Duration = Duration::from_secs(5);

const SECTOR: u64 = 512;

/// This machine, as rules remember who looks them up.
pub fn this_host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Where the files that a pattern names lie on a volume.
///
/// # Errors
/// Usage: the pattern makes no sense, begins with what is not there, or names files that are not on the volume.
/// Environment: the file system cannot say.
pub fn look_up(exclude: &str, volume: &VolumeStatus) -> Result<RuleExtents, ControlError> {
    let pattern = Pattern::new(exclude)?;
    let base = pattern.base()?;
    let start = start_on(&base, volume)
        .map_err(|why| ControlError::usage(format!("{exclude}: {}: {why}", base.display())))?;
    let files = pattern.files()?;
    let mut ranges = Vec::new();
    for path in &files {
        ranges.extend(ranges_of(path, start)?);
    }
    let ranges = merged(ranges);
    if ranges.len() > MOST_RULE_RANGES {
        let (pieces, most) = (ranges.len(), MOST_RULE_RANGES);
        return Err(ControlError::usage(format!(
            "{exclude}: its files are in {pieces} pieces, and a rule has room for {most}"
        )));
    }
    Ok(RuleExtents {
        files: files.len() as u64,
        ranges,
    })
}

fn ranges_of(path: &Path, start: u64) -> Result<Vec<ByteRange>, ControlError> {
    let about = |error| ControlError::environment(format!("{}: {error}", path.display()));
    let file = match File::open(path) {
        // It went meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        file => file.map_err(about)?,
    };
    let found = extents(&file).map_err(about)?.into_iter();
    let range = |extent: ashlar_device::Extent| ByteRange {
        offset: start + extent.offset,
        bytes: extent.bytes,
    };
    Ok(found.map(range).collect())
}

/// Ranges in order of address; those side by side are one.
fn merged(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.retain(|range| range.bytes > 0);
    ranges.sort_by_key(|range| range.offset);
    let mut merged: Vec<ByteRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.offset + last.bytes >= range.offset => {
                let end = (range.offset + range.bytes).max(last.offset + last.bytes);
                last.bytes = end - last.offset;
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// Where on the volume the file system begins that has a path.
fn start_on(path: &Path, volume: &VolumeStatus) -> Result<u64, String> {
    let device = fs::metadata(path).map_err(|error| error.to_string())?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let sys = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
    let sys = sys.map_err(|_| "its file system is on no disk".to_owned())?;
    let number = |path: PathBuf| -> Option<u64> {
        let text = fs::read_to_string(path).ok()?;
        text.trim().parse().ok()
    };
    let is_partition = sys.join("partition").exists();
    let disk = match sys.parent() {
        Some(disk) if is_partition => disk,
        _ => sys.as_path(),
    };
    let name = disk.file_name().unwrap_or_default().display().to_string();
    let name_of_volume = format!("{}/{}", volume.pool, volume.name);
    let uuid = fs::read_to_string(disk.join("uuid")).ok();
    if uuid.is_some_and(|uuid| uuid.trim() != volume.uuid.to_string()) {
        return Err(format!("is on /dev/{name}, which is not {name_of_volume}"));
    }
    let bytes = number(disk.join("size")).unwrap_or(0) * SECTOR;
    if bytes != volume.bytes {
        return Err(format!(
            "is on /dev/{name} of {bytes} bytes, and {name_of_volume} has {}: it is not that",
            volume.bytes
        ));
    }
    match is_partition {
        true => number(sys.join("start"))
            .map(|start| start * SECTOR)
            .ok_or_else(|| format!("/dev/{name}: where its partition begins is not known")),
        false => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        let range = |offset, bytes| ByteRange { offset, bytes };
        let made = vec![
            range(100, 10),
            range(0, 10),
            range(10, 5),
            range(12, 1),
            range(7, 0),
        ];
        assert_eq!(merged(made), [range(0, 15), range(100, 10)]);
    }
}
