//! The kernel's table of what is mounted where. Names in it are bytes: any user who may mount something chooses them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) place: PathBuf,
    /// The file system's.
    pub(super) kind: String,
    options: String,
}

impl Mount {
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|word| word == option)
    }
}

/// All of it.
///
/// # Errors
/// It cannot be read; that does not say that nothing is mounted.
pub(super) fn table() -> Result<Vec<Mount>, String> {
    let table = std::fs::read("/proc/self/mounts");
    let table = table.map_err(|error| format!("/proc/self/mounts: {error}"))?;
    Ok(parse(&table))
}

fn parse(table: &[u8]) -> Vec<Mount> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(line)
        .collect()
}

fn line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ').skip(1);
    let place = OsString::from_vec(unescape(words.next()?));
    let mut text = || Some(String::from_utf8_lossy(words.next()?).into_owned());
    Some(Mount {
        place: place.into(),
        kind: text()?,
        options: text()?,
    })
}

/// What separates words and lines stands there as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::new(), word);
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.split_at_checked(3).filter(|_| first == b'\\');
        let byte = octal.and_then(|(digits, after)| {
            let digits = str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 8).ok()?, after))
        });
        let (byte, after) = byte.unwrap_or((first, after));
        plain.push(byte);
        rest = after;
    }
    plain
}

/// Whether something is mounted exactly there; an earlier version has mounted by links, and the kernel knows the `real`
/// path.
///
/// # Errors
/// As for [`table`].
pub(super) fn is_mounted(mount: &Path, real: Option<&Path>) -> Result<bool, String> {
    let is_there = |one: &Mount| one.place == mount || Some(&*one.place) == real;
    Ok(table()?.iter().any(is_there))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_whatever_its_name_and_those_of_others_have_in_it() {
        let table = b"x /home/u/\xff fuse rw 0 0\n\
            ashlar /srv/a\\040b\\011c\\012d\\134e\\0 xfs rw,pids 0 0\n";
        let [other, mount] = &parse(table)[..] else {
            panic!("two lines");
        };
        assert_eq!(
            other.place,
            Path::new(&OsString::from_vec(b"/home/u/\xff".to_vec()))
        );
        assert_eq!(mount.place, Path::new("/srv/a b\tc\nd\\e\\0"));
        assert!(mount.kind == "xfs" && mount.has("pids") && !mount.has("pid"));
    }
}
