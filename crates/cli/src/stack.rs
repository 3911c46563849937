//! Puts devices together from their names.

use std::sync::Arc;

use ashlar_block::{BlockSize, ErrorKind};
use ashlar_device::{OpenError, Spec, open_with};
use ashlar_nvme_initiator::{Remote, local_host, url};
use ashlar_reactor::Opener;

use crate::exit::Failure;

/// A block size from the command line.
pub(crate) fn block_size(bytes: u32) -> Result<BlockSize, Failure> {
    BlockSize::from_bytes(bytes)
        .ok_or_else(|| Failure::usage(format!("--block {bytes}: a block has 512 or 4096 bytes")))
}

/// The device that `spec` names; `block` is the block size of what has none of its own.
pub(crate) fn open(spec: &Spec, block: BlockSize) -> Result<Arc<dyn Opener>, OpenError> {
    open_with(spec, block, &mut |text, _| remote(text))
}

fn remote(text: &str) -> Result<Arc<dyn Opener>, OpenError> {
    let config = url::parse(text, &local_host())
        .map_err(|error| OpenError::usage(text, error.to_string()))?;
    let remote = Remote::connect(config).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::Denied => format!("refused this host: {error}"),
            _ => error.to_string(),
        };
        OpenError::environment(text, why)
    })?;
    Ok(Arc::new(remote))
}
