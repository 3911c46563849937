//! Verify mode: every logical block that the lab writes carries its address, the generation of
//! the write and a checksum, so that what a read brings is not just right or wrong but *how*
//! wrong: lost, stale, torn, misplaced, foreign, corrupt.
//!
//! Every thread reads and writes only its own region, and no access overlaps another in flight,
//! so there is always exactly one generation a block may hold (or, after a failed write, a known
//! range of them).

mod model;
mod stamp;
mod tally;

pub(crate) use model::Model;
pub(crate) use tally::Tally;
pub use tally::{Example, FailureClass, Failures};
