//! Files that are put back: copied by reference where the file system can, compared, and forgotten by
//! the page cache, so that what is read after that is read from the storage.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use ashlar_lab::LabError;
use rustix::fs::{Advice, fadvise, ioctl_ficlone};

/// Bytes compared at once.
const CHUNK: usize = 1 << 20;

/// Makes `to` a durable copy of `from`: whole, or not at all.
///
/// # Errors
/// Environment errors that name the file; a failed check if the copy is not the same.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), LabError> {
    let mut fresh = to.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    let done = copy_to_new(from, &fresh).and_then(|()| same(from, &fresh));
    if let Err(error) = done {
        // Half a copy is none.
        let _ = std::fs::remove_file(&fresh);
        return Err(error);
    }
    forget(&fresh)?;
    std::fs::rename(&fresh, to).map_err(|e| LabError::caused(to.display(), e))
}

fn copy_to_new(from: &Path, to: &Path) -> Result<(), LabError> {
    let caused = |path: &Path, e: std::io::Error| LabError::caused(path.display(), e);
    let mut source = File::open(from).map_err(|e| caused(from, e))?;
    let mut copy = File::create(to).map_err(|e| caused(to, e))?;
    if ioctl_ficlone(&copy, &source).is_err() {
        std::io::copy(&mut source, &mut copy).map_err(|e| caused(to, e))?;
    }
    let rights = source
        .metadata()
        .map_err(|e| caused(from, e))?
        .permissions();
    copy.set_permissions(rights).map_err(|e| caused(to, e))?;
    copy.sync_all().map_err(|e| caused(to, e))
}

/// Compares two files, byte by byte.
fn same(one: &Path, other: &Path) -> Result<(), LabError> {
    let open = |path: &Path| {
        let file = File::open(path).map_err(|e| LabError::caused(path.display(), e))?;
        Ok::<_, LabError>(BufReader::with_capacity(CHUNK, file))
    };
    let (mut left, mut right) = (open(one)?, open(other)?);
    let (mut a, mut b) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        let count = fill(&mut left, &mut a).map_err(|e| LabError::caused(one.display(), e))?;
        let found = fill(&mut right, &mut b).map_err(|e| LabError::caused(other.display(), e))?;
        if count != found || a[..count] != b[..count] {
            let (one, other) = (one.display(), other.display());
            return Err(LabError::check(format!("{other} is not the same as {one}")));
        }
        if count == 0 {
            return Ok(());
        }
    }
}

/// Reads until the buffer is full or nothing is left.
fn fill(from: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match from.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Makes a file, or all files of a folder, durable and drops them from the page cache.
///
/// # Errors
/// Environment errors that name the file.
pub(crate) fn forget(path: &Path) -> Result<(), LabError> {
    let caused = |e: std::io::Error| LabError::caused(path.display(), e);
    let about = std::fs::symlink_metadata(path).map_err(caused)?;
    if about.is_dir() {
        for entry in std::fs::read_dir(path).map_err(caused)? {
            forget(&entry.map_err(caused)?.path())?;
        }
        return Ok(());
    }
    if about.is_file() {
        let file = File::open(path).map_err(caused)?;
        file.sync_all().map_err(caused)?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| caused(e.into()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_whole_and_the_same_or_not_there() {
        let dir = tempfile::tempdir().expect("folder");
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&from, &data).expect("written");
        std::fs::write(&to, "old").expect("written");
        copy(&from, &to).expect("copied");
        assert_eq!(std::fs::read(&to).expect("read"), data);
        assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 2);
        let mut other = data.clone();
        other[2_999_999] ^= 1;
        std::fs::write(&to, &other).expect("written");
        assert_eq!(same(&from, &to).map_err(|e| e.exit_code()), Err(1));
        std::fs::write(&to, &data[1..]).expect("written");
        assert!(same(&from, &to).is_err());
        let missing = dir.path().join("none");
        assert_eq!(copy(&missing, &to).map_err(|e| e.exit_code()), Err(3));
        assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 2);
        forget(dir.path()).expect("forgotten");
    }
}
