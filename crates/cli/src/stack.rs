//! Puts devices together from their names.

use std::sync::Arc;

use ashlar_block::BlockSize;
use ashlar_device::{FileDevice, FileOptions, Memory};
use ashlar_reactor::Opener;

use crate::exit::Failure;

/// A block size from the command line.
pub(crate) fn block_size(bytes: u32) -> Result<BlockSize, Failure> {
    BlockSize::from_bytes(bytes)
        .ok_or_else(|| Failure::usage(format!("--block {bytes}: a block has 512 or 4096 bytes")))
}

/// The device that `spec` names.
pub(crate) fn open(spec: &str, block: BlockSize) -> Result<Arc<dyn Opener>, Failure> {
    if let Some(size) = spec.strip_prefix("memory:") {
        let size = ashlar_device::parse_size(size).map_err(Failure::usage)?;
        return Ok(Memory::new(size, block).map_err(Failure::environment)?);
    }
    let path = spec.strip_prefix("file:").unwrap_or(spec);
    let (path, size) = path.split_once("?size=").unwrap_or((path, ""));
    let mut options = FileOptions::new(path);
    if !size.is_empty() {
        options.size = Some(ashlar_device::parse_size(size).map_err(Failure::usage)?);
    }
    Ok(FileDevice::open(&options, block).map_err(Failure::environment)?)
}
