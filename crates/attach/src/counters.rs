//! What has arrived at an attached volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// What a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes of the volume.
    Read,
    /// Bytes for the volume.
    Write,
    /// What was written is to be durable.
    Flush,
    /// A range is to read as zeroes; its space may be given back.
    Zero,
}

impl Kind {
    /// As traces and messages name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Zero => "zero",
        }
    }
}

/// Requests of one kind, since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Bytes that they covered.
    pub bytes: u64,
    /// Requests to the volume that failed.
    pub errors: u64,
}

/// What has arrived at an attached volume since its server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tallies {
    pub read: Tally,
    pub write: Tally,
    /// Flushes; they cover no bytes.
    pub flush: Tally,
    /// Ranges to be zeroed: discards are among them.
    pub zero: Tally,
}

#[derive(Default)]
struct Cell {
    arrived: AtomicU64,
    answered: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

/// Counts; written by the thread that serves, read by any.
#[derive(Clone, Default)]
pub(crate) struct Counters(Arc<[Cell; 4]>);

/// Only one thread writes, so no read-modify-write is needed.
fn add(cell: &AtomicU64, count: u64) {
    let old = cell.load(Ordering::Relaxed);
    cell.store(old.wrapping_add(count), Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn arrived(&self, kind: Kind, bytes: u64) {
        let cell = &self.0[kind as usize];
        add(&cell.arrived, 1);
        add(&cell.bytes, bytes);
    }

    pub(crate) fn answered(&self, kind: Kind) {
        add(&self.0[kind as usize].answered, 1);
    }

    /// Counts a failure; how many of the kind there are now.
    pub(crate) fn failed(&self, kind: Kind) -> u64 {
        let errors = &self.0[kind as usize].errors;
        add(errors, 1);
        errors.load(Ordering::Relaxed)
    }

    pub(crate) fn tallies(&self) -> Tallies {
        let tally = |kind: Kind| {
            let cell = &self.0[kind as usize];
            let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
            Tally {
                arrived: load(&cell.arrived),
                answered: load(&cell.answered),
                bytes: load(&cell.bytes),
                errors: load(&cell.errors),
            }
        };
        Tallies {
            read: tally(Kind::Read),
            write: tally(Kind::Write),
            flush: tally(Kind::Flush),
            zero: tally(Kind::Zero),
        }
    }
}
