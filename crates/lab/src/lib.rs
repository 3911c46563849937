//! temp
mod ceiling;
mod cpu;
mod error;
mod machine;
mod measure;
mod plan;
mod progress;
pub mod result;
mod runner;
mod seam;
pub mod simulated;
pub mod stats;
mod steady;
pub mod units;
mod verify;
mod workload;

pub use error::LabError;
pub use machine::Machine;
pub use plan::*;
pub use progress::Progress;
pub use runner::{RunOutcome, run_plan, run_sweep};
pub use seam::*;
pub use verify::{Example, FailureClass, Failures};
