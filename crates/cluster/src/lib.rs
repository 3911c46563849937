//! Who is in the cluster, who decides, and how nodes reach each other outside the data path.
//!
//! # Where it stands
//!
//! ```text
//! cluster.toml ─▶ ClusterConfig ─▶ Cluster ─ HTTP ─▶ etcd: which cluster, who is in it and lives, one key a volume
//!                                    │  ▲
//!      connections for replication,  │  │  the same from them, and deaths
//!      orders                        ▼  │
//!                                   peers                                parent ─ certify ─▶ peers
//! ```
//!
//! One thread with a runtime of its own, apart from the cores that serve hosts. No byte of a volume passes here: a
//! connection that has proven itself is handed on as a socket, with its TLS if nodes have certificates.
//!
//! `trust` is what nodes know each other by, `peer` what they say, `members` who they are: a list in the quorum that
//! nodes join with a token and leave, or the file that all have.
//! `together` has the swaps by which volumes of a group change their owner wait for each other, and be one transaction.
//!
//! # Invariants
//!
//! 1. A process has an incarnation that no other process of its node ever had.
//! 2. A swap is sent to the quorum once; if its answer does not come, its outcome is unknown, and said to be.
//! 3. A store that is another cluster's, or was emptied, is neither believed nor changed.
//! 4. Both ends of a connection have shown that they know the key, or have a certificate of the cluster in the name that
//!    they say, in this connection, before anything is done for it; a token is the exception, and good once.
//! 5. A process is certified dead only in its own node's name; what is certified dead speaks for its node no more.
//! 6. What is asked is answered exactly once.
//! 7. A number is never given to two nodes, and a token lets in one machine.
//!
//! # Faults it survives
//!
//! A quorum that is away, slow, silent about outcomes, emptied, or another one; peers that are gone, stopped, of another
//! cluster, version, key or name; strangers at the replication port; callers and called that panic.
//!
//! # Deliberately not here
//!
//! What orders mean, what flows over a data connection, when a volume changes hands: the daemon and the protocol know.
//! TLS to an etcd of others, which belongs on a network that only the cluster uses. Processes: who runs etcd is `cli`.

// What is to be said is a trace event: `eprintln` panics when nothing reads it.
#![warn(clippy::print_stderr)]

mod certify;
mod cluster;
mod config;
mod deliver;
mod doubt;
mod heads;
mod join;
mod key;
mod members;
mod peer;
mod problem;
mod remembered;
mod shared;
mod status;
mod store;
mod together;
mod trust;
mod versions;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use ashlar_replica::{Incarnation, NodeId, VolumeId};
pub use certify::certify;
pub use cluster::{Cluster, Local, volume_id};
pub use config::{ClusterConfig, NodeConfig, QuorumConfig};
pub use doubt::{doubt_volumes_at, expect_no_recovery, expect_recovery};
pub use heads::{Head, HeldHead};
pub use key::{Key, SHORTEST_KEY};
pub use members::{
    EtcdMember, Founding, Home, Joined, LIES_IN, NewToken, Newcomer, QuorumMember, QuorumRole,
    Role, answers, found, join,
};
pub use problem::{Kind, OrderError, Problem};
pub use remembered::Remembered;
pub use status::{ClusterStatus, PeerStatus, QuorumStatus};
pub use store::{EtcdEndpoint, Memory};
pub use trust::{Cipher, Identity, PeerSocket, Trust};
pub use versions::Versions;

/// What is behind these locks is whole after every statement, whatever has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
