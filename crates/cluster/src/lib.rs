//! Who is in the cluster, who decides, and how nodes reach each other outside the data path.

mod certify;
mod cluster;
mod config;
mod key;
mod problem;
mod remembered;
mod status;
mod store;

pub use certify::certify;
pub use cluster::{Cluster, Local, volume_id};
pub use config::{ClusterConfig, NodeConfig, QuorumConfig};
pub use key::{Key, SHORTEST_KEY};
pub use problem::{Kind, OrderError, Problem};
pub use remembered::Remembered;
pub use status::{ClusterStatus, PeerStatus, QuorumStatus};
pub use store::{EtcdEndpoint, Memory};
