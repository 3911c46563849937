//! What coordinator and agent say to each other.

use std::time::Duration;

use ashlar_block::{BlockSize, Geometry};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Link;
use crate::live::Count;
use crate::measure::{Measured, Packed, Sample};
use crate::runner::Fill;
use crate::workload::Job;
use crate::{LabError, Machine, PrepareOptions, Prepared};

/// Both sides must have this one; a part means the same to both only then.
pub(super) const PROTOCOL: &str = "ashlar-agent-7";

/// From the coordinator.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    Hello {
        protocol: String,
    },
    Clock,
    Prepare {
        spec: String,
        options: PrepareOptions,
    },
    Fill(Fill),
    Part(Box<Part>),
    /// Whether a load of another kind can be made from there.
    Look(String),
    /// A share of such a load.
    Other(String),
    /// Of programs that it runs.
    Order(String),
    Go {
        at_ns: u64,
    },
    Stop,
}

/// An agent's share of a turn.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) spec: String,
    pub(super) size: Option<u64>,
    pub(super) pin: bool,
    pub(super) jobs: Vec<Job>,
}

/// From an agent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Hello {
        protocol: String,
        machine: Machine,
        /// Of the kernel that it runs on: agents with the coordinator's are on its machine.
        boot: String,
    },
    Clock(Reading),
    Prepared(Box<Found>),
    Filled,
    Ready,
    /// It works; what its threads have done in this turn until now.
    Alive(Count),
    Measured(Box<Home>),
    Looked,
    Ordered(String),
    /// What was measured of a load of another kind; and how long after the common moment it began.
    Other {
        words: String,
        late_ns: u64,
    },
    Refused {
        code: i32,
        text: String,
    },
}

/// An agent's clocks: one that only goes forward, of its own origin, and that of the wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reading {
    pub(super) steady_ns: u64,
    pub(super) wall_ns: u64,
}

/// A device as an agent sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Found {
    block_bytes: u32,
    blocks: u64,
    max_blocks: u32,
    deallocates: bool,
    description: String,
    holds: Option<String>,
    fresh: bool,
    file_system: Option<String>,
}

/// What an agent measured.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Home {
    reads: Packed,
    writes: Packed,
    flushes: Packed,
    trims: Packed,
    bytes: u64,
    series: Vec<Sample>,
    errors: u64,
    examples: Vec<String>,
    backlog_max: u64,
    missed: u64,
    lost_workers: u32,
    pub(super) cpu_pct: Option<f64>,
    /// Processor seconds of its load threads.
    load_cpu_s: f64,
    /// How long after the common moment it began.
    pub(super) late_ns: u64,
    pub(super) losses: Vec<String>,
}

impl Found {
    pub(super) fn of(prepared: Prepared) -> Self {
        let geometry = prepared.geometry;
        Self {
            block_bytes: geometry.block_size.bytes(),
            blocks: geometry.blocks,
            max_blocks: geometry.max_blocks,
            deallocates: geometry.deallocates,
            description: prepared.description,
            holds: prepared.holds,
            fresh: prepared.fresh,
            file_system: prepared.file_system,
        }
    }

    pub(super) fn prepared(self) -> Result<Prepared, LabError> {
        let bytes = self.block_bytes;
        let block_size = BlockSize::from_bytes(bytes);
        let none = || LabError::environment(format!("blocks of {bytes} bytes are not known"));
        Ok(Prepared {
            geometry: Geometry {
                max_blocks: self.max_blocks,
                deallocates: self.deallocates,
                ..Geometry::plain(block_size.ok_or_else(none)?, self.blocks)
            },
            description: self.description,
            holds: self.holds,
            fresh: self.fresh,
            file_system: self.file_system,
        })
    }
}

impl Home {
    pub(super) fn of(
        measured: Measured,
        losses: Vec<String>,
        late: Duration,
    ) -> Result<Self, LabError> {
        Ok(Self {
            reads: Packed::new(&measured.reads)?,
            writes: Packed::new(&measured.writes)?,
            flushes: Packed::new(&measured.flushes)?,
            trims: Packed::new(&measured.trims)?,
            bytes: measured.bytes,
            series: measured.series,
            errors: measured.errors,
            examples: measured.examples,
            backlog_max: measured.backlog_max,
            missed: measured.missed,
            lost_workers: measured.lost_workers,
            cpu_pct: measured.cpu_pct,
            load_cpu_s: measured.load_cpu_s,
            late_ns: u64::try_from(late.as_nanos()).unwrap_or(u64::MAX),
            losses,
        })
    }

    /// The figures; of processors, only what an agent on the coordinator's machine (`is_here`) used for its load. The
    /// machine's are told apart.
    pub(super) fn measured(&self, is_here: bool) -> Result<Measured, LabError> {
        Ok(Measured {
            reads: self.reads.unpack()?,
            writes: self.writes.unpack()?,
            flushes: self.flushes.unpack()?,
            trims: self.trims.unpack()?,
            bytes: self.bytes,
            series: self.series.clone(),
            errors: self.errors,
            examples: self.examples.clone(),
            backlog_max: self.backlog_max,
            missed: self.missed,
            lost_workers: self.lost_workers,
            cpu_pct: None,
            machine_cpu_s: None,
            load_cpu_s: if is_here { self.load_cpu_s } else { 0.0 },
            others_cpu_s: None,
        })
    }
}

impl Answer {
    pub(super) fn refused(error: &LabError) -> Self {
        Self::Refused {
            code: error.exit_code(),
            text: error.to_string(),
        }
    }
}

/// An agent's refusal, as it would have been without one.
pub(super) fn refusal(code: i32, text: String) -> LabError {
    match code {
        1 => LabError::check(text),
        2 => LabError::usage(text),
        _ => LabError::environment(text),
    }
}

pub(super) fn say<T: Serialize>(link: &mut dyn Link, word: &T) -> Result<(), LabError> {
    let text = serde_json::to_string(word).map_err(|error| LabError::caused("a message", error))?;
    link.send(&text)
}

pub(super) fn hear<T: DeserializeOwned>(
    link: &mut dyn Link,
    patience: Duration,
) -> Result<Option<T>, LabError> {
    let Some(text) = link.receive(patience)? else {
        return Ok(None);
    };
    let word = serde_json::from_str(&text);
    word.map(Some)
        .map_err(|error| LabError::caused("a message that is not understood", error))
}
