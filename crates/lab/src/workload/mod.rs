//! The load of one thread on one cell.
//!
//! Closed loop: `depth` accesses in flight; the next starts when one completes. Latency runs from
//! the moment the slot became free, so the time a request waits inside the device's `submit`
//! counts, and Little's law (depth = IOPS x mean latency) holds exactly.
//!
//! Open loop: access *k* of a thread is due at `start + phase + k x interval`, whatever the
//! device does. Latency runs from when it was *due*, so a stall is felt by all the accesses that
//! had to wait for it.
//!
//! Nothing is allocated for an access: slots, buffers and histograms are made before the first.

mod address;
mod content;
mod load;
mod pace;
mod skew;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use address::{Area, Walk};
pub(crate) use content::{Content, random_fill};
pub(crate) use load::{Load, Watcher};

use crate::CellSpec;
use crate::Pulse;
use crate::access::{Access, Share};
use crate::live::Counter;
use crate::measure::SeriesShape;

/// What one worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) cell: CellSpec,
    /// Which of the cell's threads this is.
    pub(crate) thread: u32,
    /// The device's logical block, in bytes.
    pub(crate) logical: u32,
    /// Where its accesses go.
    pub(crate) area: Area,
    /// Every write is durable before it counts.
    pub(crate) sync: bool,
    pub(crate) access: Access,
    /// Accesses a second of this thread, if the loop is open.
    pub(crate) rate: Option<f64>,
    pub(crate) warmup: Duration,
    pub(crate) measure: Duration,
    pub(crate) seed: u64,
    /// Set when it is to end before its time.
    #[serde(skip)]
    pub(crate) stop: Option<Arc<AtomicBool>>,
    /// Told of every answer.
    #[serde(skip)]
    pub(crate) pulse: Option<Arc<Pulse>>,
    /// Counts its accesses, if they are looked at meanwhile.
    #[serde(skip)]
    pub(crate) live: Option<Arc<Counter>>,
}

impl Job {
    pub(crate) fn is_stopped(&self) -> bool {
        let stop = self.stop.as_ref();
        stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    pub(crate) fn shape(&self) -> SeriesShape {
        SeriesShape::of(self.measure)
    }

    /// Logical blocks between one place of accesses and the next: the largest access fits.
    pub(crate) fn span(&self) -> u32 {
        self.access.largest(self.cell.block_bytes) / self.logical
    }

    /// Sizes of accesses.
    pub(crate) fn sizes(&self) -> Vec<Share> {
        match &self.access.sizes[..] {
            [] => vec![Share {
                bytes: self.cell.block_bytes,
                pct: 100,
            }],
            sizes => sizes.to_vec(),
        }
    }
}
