//! A ring: a log of batches, with several copies, that is written round and round.
//!
//! The engine has two, for data and for changes of its map; what else keeps acknowledged writes until they are
//! somewhere better may use the same. No I/O, no clock, no volumes, no map: the user brings the buffers, has them
//! written where [`Shape::locate`] says, and tells when that is done.
//!
//! # What it promises
//!
//! * A batch is found again, whole, by [`scan`] as long as one of its copies verifies, whatever was torn behind it. So
//!   a user that acknowledges when *every* copy in service has it loses nothing to a crash with the loss of
//!   all copies but one.
//! * A *torn tail* is not damage: the last batch may be on some copies, in parts or not at all. What a
//!   successor proves to have been acknowledged *is*: then nothing is changed, and the reader is told. A user that can
//!   live with lost granules is told which those are, as long as records verify ([`Source::salvages`]).
//! * Old laps need no zeroing: a batch counts with the next number, the header checksum of its predecessor and
//!   the term that its number must have, and nothing of an earlier lap has these.
//! * A *term* begins with every writer, in the root before its first batch; so a batch that a crash left
//!   behind the end, or that a drive brings back later, is none of the new writer's.
//!
//! # What its user does
//!
//! 1. [`scan`] from what the root says, then [`complete_copies`], then a root with a new term, then [`Ring::found`].
//! 2. A batch put together by a [`Composer`], and [`Ring::append`] when [`Log::has_room`] and no append is on its
//!    way: one at a time, and what comes meanwhile goes into the next batch. The bytes go durably to all copies in
//!    service, whose number is [`Ring::appending`] from then on; [`Ring::copy_done`] for each. Then publish, in the
//!    order of sequences: [`Index::insert`], and [`Ring::forget`] for what that supersedes.
//! 3. When a granule is home, or has a newer record, [`Ring::forget`]. [`Ring::trim`] moves the tail over what is
//!    dead, a root says so ([`Ring::state`]), and only when that is durable and no reader is left behind it may
//!    [`Log::free_below`] follow: what is below is written over.

mod batches;
mod compose;
mod index;
mod recent;
mod salvage;
mod scan;
mod shape;

pub use batches::{LogBatch, Records, Ring, Span, Stamp};
pub use compose::{Composer, batch_bytes};
pub(crate) use index::Mix;
pub use index::{GranuleKey, Index, Newest};
pub use recent::Recent;
pub use scan::{Copies, Scanned, ScannedBatch, Source, complete_copies, scan};
pub use shape::{Head, Log, Shape};
