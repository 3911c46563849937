//! What the kernel demands of direct I/O on a file, and what a block device says about itself.

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;

use ashlar_block::{BlockSize, BufferPool};
use rustix::fs::{
    AtFlags, FallocateFlags, Stat, StatxFlags, fallocate, fstatfs, ioctl_blksszget, major, minor,
    statx,
};
use rustix::io::{Errno, pread};

use crate::OpenError;

/// Alignment of a buffer where the kernel does not say what it needs.
const SAFE_MEMORY_ALIGN: usize = 4096;

/// Alignments of direct I/O, in bytes.
pub(super) struct DirectLimits {
    pub(super) memory: usize,
    /// Of offset and length, if known.
    offset: Option<u32>,
}

/// Asks the kernel (`statx` since Linux 6.1, or the block device's logical block size).
pub(super) fn direct(
    fd: impl AsFd,
    block_device: bool,
    name: &str,
) -> Result<DirectLimits, OpenError> {
    let mask = StatxFlags::DIOALIGN;
    if let Ok(known) = statx(fd.as_fd(), c"", AtFlags::EMPTY_PATH, mask)
        && known.stx_mask & mask.bits() != 0
    {
        if known.stx_dio_mem_align == 0 {
            return Err(unsupported(name));
        }
        return Ok(DirectLimits {
            memory: known.stx_dio_mem_align as usize,
            offset: Some(known.stx_dio_offset_align),
        });
    }
    let offset = match block_device {
        true => ioctl_blksszget(fd).ok(),
        false => None,
    };
    Ok(DirectLimits {
        memory: SAFE_MEMORY_ALIGN,
        offset,
    })
}

/// Whether the file's content is memory, so that a transfer is a copy.
pub(super) fn is_in_memory(fd: impl AsFd) -> bool {
    // `TMPFS_MAGIC` of linux/magic.h.
    const TMPFS: i64 = 0x0102_1994;
    fstatfs(fd).is_ok_and(|fs| fs.f_type == TMPFS)
}

pub(super) fn unsupported(name: &str) -> OpenError {
    let why =
        "its file system does not support direct I/O; add direct=off to go through the page cache";
    OpenError::environment(name, why)
}

/// Refuses a block size that direct I/O cannot address; tries a read where the kernel did not say.
pub(super) fn check_block_size(
    fd: impl AsFd,
    limits: &DirectLimits,
    block_size: BlockSize,
    name: &str,
) -> Result<(), OpenError> {
    let block = block_size.bytes();
    let refuse = |needed: String| {
        let why = format!(
            "a block size of {block} bytes is smaller than its logical block{needed}; use larger blocks or direct=off"
        );
        Err(OpenError::environment(name, why))
    };
    match limits.offset {
        Some(offset) if offset > block => refuse(format!(" of {offset} bytes")),
        Some(_) => Ok(()),
        None => match read_one(fd, block) {
            Err(Errno::INVAL) => refuse(String::new()),
            Err(error) => Err(OpenError::environment(name, "cannot be read").with_source(error)),
            Ok(()) => Ok(()),
        },
    }
}

/// Reads the second block: its offset is no more aligned than the block size.
fn read_one(fd: impl AsFd, block: u32) -> Result<(), Errno> {
    let mut buffer = BufferPool::new(1).get(block as usize).ok_or(Errno::NOMEM)?;
    pread(fd, &mut buffer[..], u64::from(block)).map(drop)
}

/// Whether a hole can be punched: tried beyond the end, where it changes nothing.
pub(super) fn punches_holes(fd: impl AsFd, len: u64) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(fd, flags, len, 4096).is_ok()
}

/// The queue directory of a block device in sysfs; a partition has its disk's.
fn queue_directory(stat: &Stat) -> PathBuf {
    let device = format!(
        "/sys/dev/block/{}:{}",
        major(stat.st_rdev),
        minor(stat.st_rdev)
    );
    let device = PathBuf::from(device);
    match device.join("partition").exists() {
        true => device.join("../queue"),
        false => device.join("queue"),
    }
}

/// Whether the block device has a volatile write cache; when it cannot be known, it has.
pub(super) fn write_cache(stat: &Stat) -> bool {
    fs::read_to_string(queue_directory(stat).join("write_cache"))
        .map_or(true, |text| text.trim() != "write through")
}

/// Whether the block device takes discards.
pub(super) fn discards(stat: &Stat) -> bool {
    fs::read_to_string(queue_directory(stat).join("discard_max_bytes"))
        .is_ok_and(|text| text.trim() != "0")
}
