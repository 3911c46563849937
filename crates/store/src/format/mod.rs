//! What lies on a drive, byte by byte; `docs/disk-format.md` has the tables. No I/O here: every
//! structure is encoded to and decoded from bytes, and every decoder refuses what it cannot trust.

mod batch;
mod bytes;
mod entry;
mod features;
pub mod fuzzing;
mod label;
mod page;
mod record;
mod replica;
mod root;
mod root_codec;
#[cfg(test)]
mod tests;

pub use batch::{Batch, BatchError, LogId, MAX_CRCS, MAX_RECORDS, encode_batch, metadata_bytes};
pub use bytes::{COUNTER_LIMIT, FormatError, Salt};
pub use entry::{MAX_SEGMENTS, SegmentEntry, SegmentKind, VolumeEntry, VolumeState};
pub use features::{Feature, Features};
pub use label::{DriveClass, Label};
pub use page::{LOST_CRC, Leaf, PLACE_NONE, PageId, TableEntry, TablePage};
pub use record::{Descriptor, Kind};
pub use replica::{PLANE_BITS, PLANE_WORDS, PlanePage, PlaneShape, ReplicaEntry, ReplicaPage};
pub use root::{
    Chunk, ChunkCopy, LogState, MAX_CHUNKS, MAX_COPIES, MAX_MEMBERS, MAX_TERMS, Member,
    MemberState, MetaSegment, RepairReserve, Reserve, Root, ScrubAt, TermStart, TopEntry,
};
pub(crate) use root_codec::RootParts;
