//! Where a file lies on its file system's device: FIEMAP.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use rustix::ioctl::{Updater, ioctl};

/// `_IOWR('f', 11, struct fiemap)`, without its extents.
const FIEMAP: u32 = 0xc020_660b;
/// Extents of one call.
const AT_A_TIME: usize = 256;
/// Most extents of a file: one in more pieces is refused.
const MOST: usize = 1 << 20;

const LAST: u32 = 0x1;
/// No place yet, or none that is the file's alone in blocks as they are: unknown, delayed, encoded, inline, tail.
const NOT_IN_PLACE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; AT_A_TIME],
}

const _: () = assert!(size_of::<RawExtent>() == 56 && size_of::<Fiemap>() == 32 + 56 * AT_A_TIME);

/// Consecutive bytes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first, from the beginning of the file system's device.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// Where a file's data lies. What the file system has not placed yet is left out.
///
/// # Errors
/// The file system cannot say, or the file is in too many pieces.
pub fn extents(file: &File) -> io::Result<Vec<Extent>> {
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let mut map = Fiemap {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped: 0,
            count: AT_A_TIME as u32,
            reserved: 0,
            extents: [RawExtent::default(); AT_A_TIME],
        };
        // SAFETY: the kernel reads and writes a `struct fiemap` with room for `count` extents, which is what `Fiemap`
        // is (its layout is checked above), and nothing beyond.
        unsafe { ioctl(file, Updater::<FIEMAP, Fiemap>::new(&mut map)) }?;
        let mapped = &map.extents[..(map.mapped as usize).min(AT_A_TIME)];
        let placed = mapped.iter().filter(|one| one.flags & NOT_IN_PLACE == 0);
        found.extend(placed.map(|one| Extent {
            offset: one.physical,
            bytes: one.length,
        }));
        let Some(last) = mapped.last() else {
            return Ok(found);
        };
        if last.flags & LAST != 0 {
            return Ok(found);
        }
        if found.len() > MOST {
            return Err(io::Error::other(format!("is in more than {MOST} pieces")));
        }
        start = last.logical + last.length.max(1);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_file_is_where_its_file_system_says() {
        let dir = tempfile::tempdir_in(".").expect("a folder");
        let path = dir.path().join("file");
        let file = File::create_new(&path).expect("a file");
        assert_eq!(extents(&file).ok().unwrap_or_default(), []);
        // Holes between, so that there are more extents than a call has room for.
        let pieces = AT_A_TIME as u64 * 2 + 5;
        for piece in 0..pieces {
            file.write_all_at(&[1; 4096], piece * 65536)
                .expect("written");
        }
        file.sync_all().expect("synced");
        let Ok(found) = extents(&file) else {
            eprintln!("SKIPPED: this file system has no FIEMAP");
            return;
        };
        let bytes: u64 = found.iter().map(|extent| extent.bytes).sum();
        assert!(bytes >= pieces * 4096, "{} extents", found.len());
        let mut places: Vec<u64> = found.iter().map(|extent| extent.offset).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), found.len(), "no place twice");
    }
}
