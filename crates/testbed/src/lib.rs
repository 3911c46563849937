//! The testbed: what the lab's procedures work on, made of this machine and taken away again.
//!
//! # What it is for
//!
//! The lab measures whatever it is handed ([`Stacks`](ashlar_lab::Stacks), [`Services`](ashlar_lab::Services)), and a
//! procedure says what is to fail. This room has the things themselves: [`stacks`] that are opened, [`service`]s and
//! [`pools`] that are served, agents over TCP ([`agent`], [`link`], [`own_agents`]) and their [`hosts`], also with an
//! [`instance`], this program's own commands as processes ([`process`]), mounted [`image`]s, and whole clusters in
//! network namespaces ([`nodes`]), also as what a volume of a scenario has its copies on ([`replicated`]).
//!
//! # Where it stands on a write's way
//!
//! Around it: a worker's event loop and its device are here, and so are the processes at the other end.
//!
//! ```text
//! lab, oltp, failover, torn ─▶ testbed ─┬─ stacks, service: devices and a target in this process
//!                                       ├─ process: `ashlar …` as a process ── pools, own_agents
//!                                       └─ nodes: etcd and `ashlar node`, each in a namespace
//! ```
//!
//! # Invariants
//!
//! * What was made is taken away by what made it, also after an error; a process of a starter that was killed is found
//!   again by the folder in which it works.
//! * Nothing that holds data is opened for writing unasked.
//! * A daemon is asked by its API alone, as an operator asks it.
//!
//! # Deliberately not here
//!
//! How a device is opened is handed in ([`stacks::Open`]): the room that assembles stacks knows the initiator. What
//! is done to all this, and what came of it, is with the procedures; reading the command line and printing are the
//! binary's.

pub mod agent;
mod capacity;
pub mod hosts;
pub mod image;
pub mod instance;
pub mod link;
pub mod nodes;
pub mod own_agents;
pub mod pools;
pub mod process;
pub mod replicated;
mod sample;
pub mod service;
pub mod stacks;
pub mod volumes;
pub mod worker;
