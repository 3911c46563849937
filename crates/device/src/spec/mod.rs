//! Device specifications: the texts by which people name devices. `docs/devices.md` has the
//! grammar for people.
//!
//! ```text
//! SPEC    = memory:SIZE | null:SIZE[?reads=zeroes|untouched]
//!         | [file:]PATH[?OPTION&…]          size=SIZE direct=on|off share=on|off allocate=on|off
//!                                           record=PATH record-limit=SIZE
//!         | stripe:[chunk=SIZE,]SPEC,SPEC…
//!         | hdd:[OPTION,…]SPEC | ssd:[OPTION,…]SPEC | faulty:[OPTION,…]SPEC
//!         | nvme-tcp://ADDRESS…             kept as it is
//!         | rbd:POOL/IMAGE[?conf=PATH&id=NAME]
//!         | [SPEC]                          brackets, where commas would be ambiguous
//! ```
//!
//! `parse` makes the tree, `text` takes texts apart, `assemble` opens what the tree says.

mod assemble;
mod parse;
#[cfg(test)]
mod tests;
mod text;

use std::path::Path;

use crate::RbdName;
use crate::faults::FaultPlan;
use crate::media::{ArrayModel, DiskModel, FlashModel};
use crate::record::Recording;
use crate::{FileOptions, NullReads};
pub use assemble::{Remotes, open, open_whole, open_with};

/// A device as text describes it.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// Memory of so many bytes.
    Memory(u64),
    /// Nothing, claiming so many bytes.
    Null(u64, NullReads),
    /// A file or block device.
    File(FileOptions),
    /// A device whose changes are written down.
    Recorded(Recording, Box<Spec>),
    /// Devices in chunks of so many bytes.
    Stripe(u64, Vec<Spec>),
    /// A device with the timing of a disk.
    Disk(DiskModel, Box<Spec>),
    /// A device with the timing of disks behind a controller.
    Array(ArrayModel, Box<Spec>),
    /// A device with the timing of a SATA SSD.
    Flash(FlashModel, Box<Spec>),
    /// A device with faults, by seed and rules.
    Faulty(FaultPlan, Box<Spec>),
    /// A remote namespace's URL, for a caller that knows the initiator.
    Remote(String),
    /// An image of a Ceph cluster.
    Rbd(RbdName),
}

impl Spec {
    /// Calls `change` for every file and block device in the tree.
    pub fn each_file(&mut self, change: &mut dyn FnMut(&mut FileOptions)) {
        match self {
            Self::File(options) => change(options),
            Self::Stripe(_, children) => children.iter_mut().for_each(|c| c.each_file(change)),
            Self::Recorded(_, child)
            | Self::Disk(_, child)
            | Self::Array(_, child)
            | Self::Flash(_, child)
            | Self::Faulty(_, child) => child.each_file(change),
            Self::Memory(_) | Self::Null(..) | Self::Remote(_) | Self::Rbd(_) => {}
        }
    }

    /// All files and block devices in the tree, which [`inspect`](crate::inspect) can look at
    /// before they are overwritten.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Self::File(options) => vec![&options.path],
            Self::Stripe(_, children) => children.iter().flat_map(Self::paths).collect(),
            Self::Recorded(_, child)
            | Self::Disk(_, child)
            | Self::Array(_, child)
            | Self::Flash(_, child)
            | Self::Faulty(_, child) => child.paths(),
            Self::Memory(_) | Self::Null(..) | Self::Remote(_) | Self::Rbd(_) => Vec::new(),
        }
    }
}
