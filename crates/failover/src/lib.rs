//! What a failover costs: replicated volumes, and databases on them, while something fails.
//!
//! # What it is for
//!
//! "How long is no client served, and is everything that was acknowledged there?" [`ha()`] has nodes of a cluster
//! killed, stopped, cut off and upgraded under a load that checks every block. [`FciSystem`] is a PostgreSQL that is kept
//! up on a replicated volume, as one of the topologies of [`faults`](ashlar_oltp::faults). [`versus()`] makes the storage
//! on which that is compared with a group of two.
//!
//! # Where it stands on a write's way
//!
//! Around it: it makes the cluster ([`testbed`](ashlar_testbed)), has the load made ([`lab`](ashlar_lab),
//! [`oltp`](ashlar_oltp)), and does to nodes what machines, drives and networks do to them.
//!
//! # Invariants
//!
//! * A round begins and ends with all copies in sync; what does not come back within its time is a failed check.
//! * Times without an answer are those of the client.
//! * Nodes are asked by their API alone, and of those that answer the newest term counts.
//! * What was made is taken away, also after an error; logs are kept if something is wrong.
//!
//! # Deliberately not here
//!
//! Reading the command line, and printing.

mod attached;
mod copied;
mod drives;
mod fci;
mod ha;
mod length;
mod places;
mod rounds;
mod versus;

pub use fci::{FciPlan, FciStatus, FciSystem};
pub use ha::{HaFault, HaPlan, HaResult, ha};
pub use places::{GroupPlace, GroupPlaces};
pub use rounds::{FaultsRun, ReadyRun};
pub use versus::versus;

use ashlar_node::model::{ReplicaState, ReplicaStatus};

/// Whether no copy misses anything.
fn all_in_sync(copies: &[ReplicaStatus]) -> bool {
    let mut states = copies.iter().map(|copy| copy.state);
    states.all(|state| state == ReplicaState::InSync)
}
