//! The words of NVMe and NVMe/TCP, both ways: what one side builds the other parses.
//!
//! # Where it stands
//!
//! A write arrives as bytes of a TCP stream. [`stream`] cuts them into PDUs ([`pdu`]), a command
//! capsule carries a submission queue entry ([`command`]), its outcome goes back as a completion
//! with a [`status`]. The target speaks the controller's half, the initiator the host's half, both
//! out of this crate, so a disagreement between them is a bug in one place. What a controller tells
//! about itself is in [`identify`], [`log`], [`feature`] and [`event`]; how a queue is connected, in
//! [`fabrics`].
//!
//! # Invariants
//!
//! * No I/O, no clock, no `unsafe`, no panic whatever the bytes are: everything here is fuzzable.
//! * Multi-byte fields are little-endian types from `zerocopy`; every structure's size, and every
//!   field's offset that a peer depends on, is asserted when the crate is compiled.
//! * Memory is bounded: [`stream::Receiver`] keeps less than 300 bytes a connection and checks a PDU's length
//!   before it keeps anything; a payload is handed on as it comes, never gathered.
//! * A structure is parsed only for what it says. Whether a command is *allowed* (does the
//!   namespace exist, is the range in it) is the owner's question.
//! * Names are the specification's. Where a comment names a section it means NVM Express Base 2.1,
//!   NVM Command Set 1.1 and NVMe/TCP Transport 1.1.
//!
//! # Deliberately not here
//!
//! PRPs, metadata and protection information (this transport has only SGLs, our namespaces no
//! metadata), authentication messages, TLS, the mapping between
//! a block device's errors and a [`status::Status`] (the target's), and every state machine but that of
//! the byte stream.

mod layout;

pub mod command;
pub mod event;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod pdu;
pub mod reservation;
pub mod status;
pub mod stream;
mod text;

pub use command::{Command, Completion, opcode};
pub use status::Status;
pub use text::escape;
