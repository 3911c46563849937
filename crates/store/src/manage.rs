use ashlar_block::Geometry;
use uuid::Uuid;

use crate::comeback::Comeback;
use crate::format::{DriveClass, Reserve};
use crate::sizes::Grain;
use crate::{HotTier, Layout};
use crate::{ReplicaChange, ReplicaIdentity, ReplicaSize};

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    /// Its name within the pool: 1 to 64 letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// Its identity for hosts.
    pub uuid: Uuid,
    /// Size in granules of 4 KiB.
    pub granules: u64,
    /// How it is laid out.
    pub layout: Layout,
    /// Size of its slots; `None` for its layout's default, and always for a `stripe`.
    pub grain: Option<Grain>,
    /// It takes no writes while a copy is missing that no drive can take.
    pub stops: bool,
    /// Drives of this class hold it; `None` for the class with most room, in a pool of several.
    pub class: Option<DriveClass>,
    /// It holds what a cache keeps of another device.
    pub is_cache: bool,
    /// What is small and hot of it lies there.
    pub hot: Option<HotTier>,
}

/// What an operator may wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manage {
    /// A new volume.
    CreateVolume(VolumePlan),
    /// Delete a volume; its space comes back in the background.
    DeleteVolume { volume: u32 },
    /// Another size. Making it smaller gives the space behind the new end back. One of several copies only grows, while
    /// nothing is kept of what others miss.
    ResizeVolume {
        volume: u32,
        /// The new size in granules.
        granules: u64,
    },
    /// What a volume does while a copy is missing that no drive can take.
    SetStops {
        volume: u32,
        /// It takes no writes then.
        stops: bool,
    },
    /// A volume becomes one of several copies of a replicated one. All it holds is committed.
    MakeReplica {
        volume: u32,
        /// Who the copy is.
        identity: ReplicaIdentity,
        /// Its size in granules from then on, no less than it has, in the same durable step; `None` for the size that it
        /// has.
        granules: Option<u64>,
    },
    /// What a copy has promised changes.
    ChangeReplica {
        /// The volume's number.
        volume: u32,
        /// How. One at a time a volume.
        change: ReplicaChange,
    },
    /// A copy remembers how large the volume was said to be.
    NoteSize {
        /// The volume's number.
        volume: u32,
        /// How large.
        size: ReplicaSize,
    },
    /// Move everything home and write a root; answered when both logs are empty.
    Drain,
    /// A drive that has been given this pool's label takes part from now on.
    AddDrive {
        drive: Uuid,
        /// Its number among the members, as its label has it: [`Status::next_member`](crate::Status::next_member).
        member: u16,
        geometry: Geometry,
        class: DriveClass,
    },
    /// A drive that was left out is here again, and takes part from now on. It is at its member's index for the
    /// engine's requests; answered when what is newer than it was written to it.
    ReadmitDrive(Box<Comeback>),
    /// Move what a drive holds elsewhere; then it is out. Goes on in the background.
    RemoveDrive {
        /// Its member index.
        member: usize,
    },
    /// Begin what waits for its time: copies of what lost drives held.
    Repair,
    /// Keep so much for repair from now on.
    SetReserve {
        /// How much.
        reserve: Reserve,
    },
    /// Read and verify every copy of everything that is mapped, and mend what is bad.
    Scrub,
}

/// The answer to a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Managed {
    /// The number of the new volume.
    Volume(u32),
    Done,
    /// Everything has been read.
    Scrubbed {
        /// Granules of which no copy was good.
        lost: u64,
    },
}
