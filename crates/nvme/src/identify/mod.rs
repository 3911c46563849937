//! Identify data structures (Base 2.1, 5.1.13; NVM Command Set 1.1, 4.1.5).
//!
//! Each structure is its bytes on the wire with public fields: fill a default one to build it,
//! `parse` to read it. Fields keep the specification's names, so its tables can be read beside them.

mod controller;
mod lists;
mod namespace;
mod small;

pub use controller::{IdentifyController, PowerState, anacap, cmic, ctratt, lpa, oacs, oncs, sgls};
pub use lists::{
    NamespaceDescriptors, NamespaceIdentity, controller_list, namespace_list,
    parse_controller_list, parse_namespace_list,
};
pub use namespace::{IdentifyNamespace, LbaFormat, dlfeat, nsfeat};
pub use small::{IndependentNamespace, NSTAT_READY, NvmController, NvmNamespace};

/// Bytes of every Identify data structure.
pub const BYTES: usize = 4096;

/// NMIC bit 0: the namespace may be attached to several controllers.
pub const NMIC_SHARED: u8 = 1 << 0;

/// CNS values: which structure Identify returns.
pub mod cns {
    /// Identify Namespace of the NVM command set.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Identify Namespace of one I/O command set.
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// Identify Controller of one I/O command set.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// Active Namespace ID list of one I/O command set.
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    /// I/O Command Set Independent Identify Namespace.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// Allocated Namespace ID list.
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    /// Identify Namespace of an allocated namespace.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controllers that a namespace is attached to.
    pub const NAMESPACE_CONTROLLERS: u8 = 0x12;
    /// Controllers of the subsystem.
    pub const CONTROLLERS: u8 = 0x13;
    /// Identify I/O Command Set.
    pub const COMMAND_SETS: u8 = 0x1c;
}
