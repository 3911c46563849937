//! Answers to the kernel's questions about the one file.

use ashlar_block::Geometry;

use super::wire::{Attributes, AttributesOut, OpenOut, StatfsOut};

/// A regular file of root that others may not use.
const MODE: u32 = 0o100_600;
/// The root of the file system, which is the file.
const ROOT: u64 = 1;
/// Attributes never change: a year.
const LONG: u64 = 365 * 24 * 3600;

pub(super) fn attributes(geometry: &Geometry) -> AttributesOut {
    AttributesOut {
        valid: LONG,
        attributes: Attributes {
            inode: ROOT,
            size: geometry.bytes(),
            blocks: geometry.bytes() / 512,
            mode: MODE,
            links: 1,
            block_size: geometry.block_size.bytes(),
            ..Attributes::default()
        },
        ..AttributesOut::default()
    }
}

pub(super) fn open(flags: u32) -> OpenOut {
    OpenOut {
        flags,
        ..OpenOut::default()
    }
}

/// A loop device takes its granularity of discarding from the block size.
pub(super) fn statfs(geometry: &Geometry) -> StatfsOut {
    let block_size = geometry.block_size.bytes();
    StatfsOut {
        blocks: geometry.blocks,
        files: 1,
        block_size,
        name_length: 255,
        fragment_size: block_size,
        ..StatfsOut::default()
    }
}
