//! What lies on a drive, byte by byte; `docs/disk-format.md` has the tables. No I/O here: every
//! structure is encoded to and decoded from bytes, and every decoder refuses what it cannot trust.

mod batch;
mod bytes;
mod entry;
mod label;
mod page;
mod root;

pub use batch::{Batch, BatchError, Descriptor, Kind, LogId, MAX_RECORDS, encode_batch, metadata_bytes};
pub use bytes::{FormatError, Salt};
pub use entry::{SegmentEntry, SegmentKind, VolumeEntry, VolumeState};
pub use label::{DriveClass, Label};
pub use page::{Leaf, PLACE_NONE, PageId, TableEntry, TablePage};
pub use root::{Chunk, ChunkCopy, LogState, Member, MemberState, MetaSegment, Root, TermStart, TopEntry};
