//! A volume as a disk of this machine: attached, mounted, and taken down again.
//!
//! # Where it stands
//!
//! ```text
//! database ─ XFS, ext4 ─ /dev/loopN (direct) ─ FUSE, a file system of one file
//!                                                │ /dev/fuse
//!            guardian ── holds it, restarts ──▶ server ── Exchange ── a BlockDevice: our initiator
//!                     └─ holds it, lends it ──▶ a LocalSession in the volume's daemon ── Exchange ── the volume
//! ```
//!
//! A write of a database leaves the kernel as a FUSE request that the [server](serve) reads, becomes a
//! [`Request`](ashlar_block::Request) to the device that the server was handed, and its completion
//! becomes the reply. One thread and one ring do all of it. [`attach`] and [`detach`] put everything
//! around it up and take it down; the [guardian](guard) keeps it up. Where the volume's daemon is on this
//! machine, it is the server, on the volume's own core ([`local`]).
//!
//! Where the kernel has nvme-tcp of its own, none of this is needed: it is told to connect, and its block
//! device is mounted.
//!
//! # Invariants
//!
//! 1. A reply is sent only after the device has completed the request. A flush is submitted after
//!    everything that was answered before it arrived, so it covers it.
//! 2. What punches a hole reads as zeroes afterwards, whatever the device makes of "deallocate".
//! 3. The kernel is never told of an error that a shortage of our memory is the cause of: it waits.
//! 4. A server that dies costs a pause: the guardian's next one has the kernel send again what was not
//!    answered. Without a guardian and a server, all I/O fails at once. Neither ever hangs it.
//! 5. [`attach`] leaves nothing of an attempt that failed. [`detach`] with force ends in bounded time
//!    whatever state processes and volume are in.
//! 6. Nothing is formatted that is not empty, unless destroying it was asked for.
//!
//! # What it survives
//!
//! kill -9 of the server or the daemon at any moment, of the guardian (a server that dies is not replaced
//! then), of both (all I/O fails, `detach --force` clears up); a server that was stopped; and, as far as the
//! device does, a target that restarts.
//!
//! # Deliberately not here
//!
//! Which device it is: server and local session are handed an [`Opener`](ashlar_reactor::Opener), of our initiator or
//! of a volume. Who may attach, and which core it is: that is asked of the
//! volumes' [`Owner`](local::Owner).

// A line in the log is a `notice`, which cannot panic.
#![warn(clippy::print_stderr)]

mod attach;
mod control;
mod counters;
mod detach;
mod error;
mod format;
mod fuse;
mod guardian;
mod list;
pub mod local;
mod means;
mod nvme;
mod paths;
mod server;
mod state;
mod system;
mod trace;

pub use attach::{AttachOptions, Namespace, attach, check_mount_point, require_root};
pub use counters::{Tallies, Tally};
pub use detach::{DetachOptions, Force, attached_at, detach};
pub use error::{AttachError, AttachErrorKind};
pub use format::FileSystem;
pub use guardian::{announce, guard};
pub use list::{Attachment, Condition, list};
pub use means::{Means, Via, choose};
pub use nvme::{Controller, Fabrics};
pub use paths::{PathStatus, Paths};
pub use server::{ServerOptions, serve};
pub use state::{DEFAULT_FOLDER, Folder, Local, Phase, Processes, State};
pub use system::mounts::below as mounts_below;
pub use system::process::Process;
