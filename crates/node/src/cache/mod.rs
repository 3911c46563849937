//! A cache on its core: the driver of [`ashlar_cache::Cache`], and the volume that hosts see as a device.
//!
//! ```text
//! connection, attachment ─▶ CacheOpener's device ─▶ Host ─┬─▶ a volume of the pool, the fast device
//!                              (by mail from other cores) └─▶ the backing device
//! ```
//!
//! It lives on the core of its pool, as a resident. The control plane speaks to it through a [`CacheLink`].

mod direct;
mod host;
mod link;
mod marked;
mod volume;

pub(crate) use direct::Direct;
pub(crate) use host::{Settled, Start};
pub(crate) use link::{CacheLink, CacheView};
pub use marked::MarkedDevice;
pub(crate) use volume::CacheOpener;
