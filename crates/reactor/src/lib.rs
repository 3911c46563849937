//! One thread a core over io_uring: the runtime glue of the data path.
//!
//! # Where it stands
//!
//! A [`Reactor`] is a ring, a buffer pool and a clock that belong to one thread. What runs the
//! thread (a target core, a lab worker) calls [`Reactor::turn`] in a loop; everything that does I/O
//! on that thread holds a [`Handle`] and one or more [`Port`]s, submits operations through them and
//! takes [`Event`]s out. Nothing here calls back: events wait in their port until they are taken,
//! so no code is ever re-entered.
//!
//! ```text
//! file device ─┐ Port::read/write/…                         ┌─ Port::next → Event{key, what}
//! connections ─┼──────────────▶ ring (one submit a turn) ───┼─▶ per-port queue
//! listener ────┘                                            └─ …
//! ```
//!
//! # Invariants
//!
//! * Memory the kernel may write (buffers, message headers, addresses) is owned by the ring's
//!   operation table until its completion arrived; dropping a reactor waits for that, or leaks it.
//! * On the read and write path there is no task, waker or allocation an operation: frames and
//!   batches are lent to the ring and come back with the event.
//! * An idle reactor sleeps in the kernel. It spins, without system calls, only where few commands
//!   share a wake-up or it costs more than the work that it is for, and events have lately come soon,
//!   unless it is told otherwise ([`Spin`]).
//! * Registered files and buffers are used where the kernel grants them, and done without
//!   otherwise.
//!
//! # Deliberately not here
//!
//! Protocols, block devices, and any policy about who runs on which core. The simulator does not
//! use this crate: the protocol state machines take bytes, completions and time as parameters.
//! `unsafe` lives in `ring`, `frame` and `net`.

mod clock;
mod file;
mod frame;
mod mail;
mod net;
mod opener;
mod options;
mod port;
mod process;
mod ring;
mod spin;
mod thread;
mod turn;

pub use clock::Clock;
pub use file::File;
pub use frame::{RecvFrame, SendBatch};
pub use mail::{Mailbox, Waker};
pub use net::{NetError, listen, stream_socket};
pub use opener::Opener;
pub use options::{Options, SetupError, Spin};
pub use port::{Event, Port, What};
pub use process::{AFTERLIFE, has_ended};
pub use thread::{available_cores, cpu_time, pin_to_core, raise_file_limit};
pub use turn::{Handle, Reactor};
