//! A pool on its core: the engine's driver, and the volumes as devices.
//!
//! The engine and the drives live on one core's thread, in an [`EngineDriver`]. A volume opened on that
//! thread calls it directly; one opened on another core sends its commands by mail. The control
//! plane speaks to it through a [`PoolLink`].

mod class;
mod created;
mod driver;
mod link;
mod memory;
mod news;
mod pace;
mod room;
mod setup;
mod sound;
mod volume;

pub use created::CreatedFiles;
pub use driver::{EngineDriver, Operations, Traffic, VolumeTraffic};
pub(crate) use link::{CopyDecider, RemotePort, ReplicaMail};
pub use link::{NewDrive, PoolLink, View};
pub use memory::{Memory, Remember};
pub(crate) use pace::Pace;
pub use pace::{Progress, Reclaim};
pub use room::{merged, room_of, scarcest};
pub use setup::{
    Found, HowToImport, ImportedPool, Joined, OpenDrive, Opening, add, create, fit, import,
    missing, open_drives, probe, readmit, reserve_of,
};
pub(crate) use setup::{label_of_taken, open_drive, split_class};
pub use sound::Doubts;
pub use volume::VolumeOpener;
