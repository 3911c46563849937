//! The kernel's FUSE protocol, as far as a file system that is one regular file needs it. No I/O.

mod answers;
pub(crate) mod carrier;
mod errno;
pub(crate) mod exchange;
pub(crate) mod request;
pub(crate) mod wire;
