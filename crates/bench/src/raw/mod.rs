//! A raw NVMe/TCP client: just enough of a host to drive a target as fast as a socket allows.
//!
//! [`link`] is one connection with one command at a time, [`host`] brings a controller up and opens
//! one I/O queue, [`load`] keeps that queue full. The load also drives the bare server, which
//! understands nothing but sizes and the place of the command identifier: both see the same bytes.

pub(crate) mod host;
mod link;
pub(crate) mod load;
#[cfg(test)]
mod tests;

pub(crate) use host::{Host, Queue};
pub(crate) use load::{Load, Wait};
