//! Where files lie on their disk, as `filefrag` tells.

use std::ops::Range;
use std::path::Path;

use ashlar_lab::LabError;
use ashlar_testbed::process::tool;

/// Where the files below a folder lie on their disk, sorted and joined.
pub(super) fn extents(folder: &Path) -> Result<Vec<Range<u64>>, LabError> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let caused = |e| LabError::caused(folder.display(), e);
        for entry in std::fs::read_dir(&folder).map_err(caused)? {
            let path = entry.map_err(caused)?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path.display().to_string()),
            }
        }
    }
    let mut found = Vec::new();
    for some in files.chunks(256) {
        let mut words = vec!["-s", "-e", "-b4096"];
        words.extend(some.iter().map(String::as_str));
        found.extend(tool("filefrag", &words)?.lines().filter_map(extent));
    }
    found.sort_by_key(|place: &Range<u64>| place.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for place in found {
        match joined.last_mut() {
            Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
            _ => joined.push(place),
        }
    }
    Ok(joined)
}

/// An extent in a line of `filefrag -e -b4096`: `0:  0..  255:  34816..  35071:  256: …`; none if it has no
/// place yet.
fn extent(line: &str) -> Option<Range<u64>> {
    if line.contains("unknown_loc") || line.contains("inline") {
        return None;
    }
    let mut fields = line.split(':');
    fields.next()?.trim().parse::<u64>().ok()?;
    let (from, to) = fields.nth(1)?.split_once("..")?;
    let from: u64 = from.trim().parse().ok()?;
    let to: u64 = to.trim().parse().ok()?;
    Some(from * 4096..(to + 1) * 4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_read_from_filefrag() {
        let line = "   3:      768..    1023:      34816..     35071:    256:             last,eof";
        assert_eq!(extent(line), Some(34816 * 4096..35072 * 4096));
        for other in [
            " ext:     logical_offset:        physical_offset: length:   expected: flags:",
            "File size of /mnt/a is 8192 (2 blocks of 4096 bytes)",
            "/mnt/a: 1 extent found",
            "   0:        0..       1:          0..         1:      2:             last,unknown_loc,delalloc,eof",
            "",
        ] {
            assert_eq!(extent(other), None, "{other}");
        }
    }
}
