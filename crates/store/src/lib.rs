//! The storage engine: drives become pools, pools give volumes.
pub mod format;
mod layout;
pub mod sizes;

pub use layout::Layout;
pub use sizes::Sizes;
