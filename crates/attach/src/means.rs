//! By what means a volume becomes a disk of this machine.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::AttachError;
use crate::nvme::FABRICS;

/// A means that can be had here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// The kernel's own nvme-tcp.
    Nvme,
    /// A FUSE file under a loop device, served by the volume's daemon or through our initiator.
    Fuse,
}

/// A means as one asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Via {
    /// The best that there is.
    #[default]
    Auto,
    /// The kernel's own nvme-tcp.
    Nvme,
    /// A FUSE file under a loop device.
    Fuse,
    /// The same, and through our initiator even where the volume's daemon could serve it.
    Initiator,
}

/// Chooses, and says why no better one was: for `fuse` without how, which is decided later.
///
/// # Errors
/// Environment: what was asked for cannot be had.
pub fn choose(via: Via) -> Result<(Means, String), AttachError> {
    let fabrics = Path::new(FABRICS).exists();
    match (via, fabrics) {
        (Via::Fuse | Via::Initiator, _) => Ok((Means::Fuse, "asked for".into())),
        (Via::Nvme, true) => Ok((Means::Nvme, "nvme: asked for".into())),
        (Via::Auto, true) => Ok((Means::Nvme, "nvme: the kernel's own".into())),
        (Via::Auto, false) => Ok((
            Means::Fuse,
            format!("{FABRICS} is not there (kernel module nvme-tcp)"),
        )),
        (Via::Nvme, false) => Err(AttachError::environment(format!(
            "--via nvme: {FABRICS} is not there: load the kernel module nvme-tcp, or use --via fuse"
        ))),
    }
}
