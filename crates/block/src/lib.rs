//! The contract between whatever wants blocks and whatever has them.
//!
//! # Architecture
//!
//! Every layer a write walks through, the NVMe target's backend, a stripe, a file, a remote
//! namespace, is a [`BlockDevice`]: an object that belongs to *one* thread, takes owned
//! [`Request`]s and hands back owned [`Completion`]s when polled. This crate knows no other room
//! and does no I/O.
//!
//! ```text
//! owner (target core, lab worker) ── submit(Request{tag, op, range, buffer}) ──▶ BlockDevice
//!                                 ◀─ poll(now, &mut done) ── Completion{tag, buffer, result} ─┘
//! ```
//!
//! # I/O model
//!
//! * **Threads.** A device object is not shared: each core opens its own (a *queue*, in NVMe's
//!   words). Objects over the same medium agree through the medium.
//! * **Progress.** `submit` may only queue. `poll` makes progress; after the last `submit` of a
//!   turn the owner polls at least once before it sleeps. There is no task, waker or allocation a
//!   command.
//! * **Buffers.** A request owns its [`IoBuffer`] until its completion gives it back, so a device
//!   (or the kernel behind it) can never write into memory that has been reused.
//!   There is no cancellation: a submitted request always completes, once.
//! * **Ordering.** None between requests in flight together, even overlapping ones: an
//!   overlapping read may return either content, overlapping writes may land in either order, block
//!   by block. A request submitted after a completion was *returned by* `poll` sees its effect,
//!   through any queue of the same medium.
//! * **Durability.** See [`Durability`]. A `Flush` covers every write whose completion the owner
//!   had seen before it submitted the flush. After a failed flush a device stays failed
//!   ([`ErrorKind::Latched`]): a later success would be a lie. A remote namespace that lost its
//!   connection over unflushed writes fails one flush ([`ErrorKind::Disconnected`]): what was
//!   written before may be gone, and later flushes speak only for what came after.
//! * **Late duplicates.** A host that loses an association sends its writes again by another, while the
//!   first ones may still come. A device that is served on several nodes tells late ones by their
//!   [`Label`] ([`BlockDevice::labels_writes`]); the others take requests without.
//! * **Crash.** Writes not yet durable may be there, be lost, or be torn at
//!   [`Geometry::atomic_blocks`]; nothing else changes.
//!
//! # Error model
//!
//! One [`IoError`]: a kind for programs, a context for people, a source. A failed request's effect
//! on its own blocks is undefined (old, new, or a mixture of whole atomic units); other blocks are
//! untouched. [`ErrorKind::Disconnected`] means the outcome is unknown.
//!
//! # Deliberately not here
//!
//! Scrub, rebuild, resync, replacing a drive: methods of concrete types, never of the contract.
//! `unsafe` appears in one file, [`buffer`](BufferPool), because kernel I/O needs aligned memory
//! whose parts have different owners.

mod buffer;
mod checked;
mod describe;
mod device;
mod error;
mod gather;
mod geometry;
mod moment;
mod provenance;
mod range;

pub use buffer::{BufferPool, IoBuffer, REGION_BYTES, RegionAddress};
pub use checked::Checked;
pub use describe::Description;
pub use device::{BlockDevice, Completion, Durability, Operation, Request};
pub use error::{ErrorKind, IoError};
pub use gather::Gather;
pub use geometry::{BlockSize, Geometry};
pub use moment::Moment;
pub use provenance::{AssociationId, HostId, Label, Provenance, Registrant};
pub use range::{BlockRange, Lba};
