//! What is asked of this machine: its tools, its tables of mounts, loop devices and processes.

pub(crate) mod connections;
pub(crate) mod loops;
pub(crate) mod memory;
pub(crate) mod mounts;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod tool;
pub(crate) mod users;
