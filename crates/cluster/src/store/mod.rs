//! Keys that a majority of machines agrees on: etcd's, or a store in memory for tests.

mod endpoint;
mod memory;

pub use endpoint::EtcdEndpoint;
pub use memory::Memory;
