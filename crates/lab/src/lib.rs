//! The lab: measures block storage and says what a difference is worth.
//!
//! # What it is for
//!
//! "What does this storage do to my database?" as tables and plots: sweeps of pattern x block x
//! threads x depth over one or more configurations, scenarios that repeat published experiments,
//! verification of every block, comparison, and reports. [`run_sweep`] and [`run_scenario`] are
//! the entries; `docs/lab.md` documents what they write.
//!
//! # Where it stands on a write's way
//!
//! At the very top, in the place of the database: it opens devices through [`Stacks`], one a
//! thread, and drives them through the [`block`](ashlar_block) contract. Which stack that is, and
//! which event loop turns below it, the lab does not know.
//!
//! ```text
//! plan -> runner -> threads -> workload (closed or open loop) -> Worker -> BlockDevice
//!            |                            |-- verify: stamp writes, check reads
//!            `-> result -> stats, flags -> export, report, compare
//! ```
//!
//! # Invariants
//!
//! * Nothing is allocated for an access; the generator does millions of accesses a second a core,
//!   measures that itself at the start of every run, and flags results near it.
//! * Configurations are measured in turn, repeat by repeat, with the same addresses (by seed), so
//!   that a pair of neighbours differs in the configuration only.
//! * In verify mode no access overlaps another in flight: what a block must hold is always known.
//! * What goes wrong while measuring (a failed access, a lost worker) is reported and marked, and
//!   the rest of the run is kept.
//! * Data that is found on a device is never overwritten unasked.
//!
//! # Deliberately not here
//!
//! Opening files, sockets or servers ([`Stacks`], [`Services`] are implemented by the room
//! that assembles stacks), and any clock but the worker's: [`simulated`] devices with virtual time run
//! the same code.

mod access;
pub mod agent;
mod ceiling;
mod compare;
mod cpu;
mod error;
mod export;
mod folder;
mod head;
mod journal;
mod latency;
mod live;
mod machine;
mod measure;
mod others;
mod plan;
mod procedure;
mod progress;
mod published;
mod report;
pub mod result;
mod result_file;
mod runner;
pub mod scenario;
mod schedule;
mod seam;
pub mod simulated;
pub mod stats;
mod steady;
pub mod units;
mod verify;
pub mod vocabulary;
mod workload;

pub use access::{Access, Distribution, Share};
pub use compare::{
    A_RUN_IS_PARTIAL, Comparable, Comparison, Figure, Figures, Row, differ, machine_cautions,
};
pub use cpu::CpuTicks;
pub use error::LabError;
pub use export::{Interval, Latencies, LatencyLog, check_out_dir, new_out_dir, write_whole};
pub use folder::{LONGEST_SOCKET, OwnFolder, check_length, remove_left};
pub use head::{Head, Kind, UNFINISHED};
pub use journal::{Agents, Command, Journal, Origin, Turn};
pub use live::Tempo;
pub use machine::Machine;
pub use measure::Packed;
pub use plan::{
    CellSpec, ClientPlace, Configuration, Matrix, Pattern, Pool, Precondition, SweepPlan,
};
pub use procedure::{Conditioning, Procedure};
pub use progress::Progress;
pub use report::{chart, page, render_index, short};
pub use result_file::{ResultFile, keys, kind_in};
pub use runner::{
    Endurance, EndurePlan, Endured, Found, Means, Pulse, RunOutcome, run_plan, run_sweep,
};
pub use scenario::{
    SHIPPED, Scale, ScenarioFile, ScenarioOptions, find_text, run_scenario, scenario_text,
};
pub use schedule::{Asked, Measurement, Nest, Schedule, Workload, carry_out};
pub use seam::{
    NoServices, OpenOptions, PoolStack, PrepareOptions, Prepared, Service, Services, Stacks, Worker,
};
pub use verify::{Example, FailureClass, Failures};
