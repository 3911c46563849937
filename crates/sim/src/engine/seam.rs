//! What the world drives: the engine that ships, or a toy that shows that the world's checks work.

use ashlar_block::{BlockDevice, Completion, IoError, Moment, Request};
use ashlar_store::{Layout, Sizes};
use uuid::Uuid;

use super::profile::Canary;

/// Waits for devices: lets simulated time go on and returns it.
pub(crate) type Wait = Box<dyn FnMut() -> Moment>;
/// Drives as an engine gets them.
pub(crate) type Devices = Vec<Box<dyn BlockDevice>>;

pub enum Event {
    Command {
        volume: u32,
        request: Request,
    },
    Done {
        drive: usize,
        completion: Completion,
    },
    Manage {
        id: u64,
        what: Manage,
    },
    Tick,
}

#[derive(Default)]
pub struct Outbox {
    pub io: Vec<(usize, Request)>,
    pub done: Vec<Completion>,
    pub managed: Vec<(u64, Result<Managed, IoError>)>,
}

pub struct VolumePlan {
    pub name: String,
    pub uuid: Uuid,
    pub granules: u64,
    pub layout: Layout,
}

pub enum Manage {
    CreateVolume(VolumePlan),
    Settle,
}

pub enum Managed {
    Volume(u32),
    Done,
}

/// A pool to be made.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) pool: Uuid,
    pub(crate) salt: u32,
    pub(crate) sizes: Sizes,
    pub(crate) log_copies: u8,
    pub(crate) drives: usize,
}

/// An engine and its drives by member.
pub(crate) struct Running<S> {
    pub(crate) engine: S,
    pub(crate) devices: Vec<Option<Box<dyn BlockDevice>>>,
}

/// What a world needs of an engine.
pub(crate) trait Subject: Sized {
    /// Makes a pool.
    fn format(devices: Devices, wait: Wait, shape: &Shape) -> Result<(), String>;
    /// Brings a pool into service.
    fn import(devices: Devices, wait: Wait) -> Result<Running<Self>, String>;
    /// Takes an event.
    fn handle(&mut self, now: Moment, event: Event, out: &mut Outbox);
    /// When it wants a tick.
    fn next_deadline(&self) -> Option<Moment>;
    /// Its volumes: number and name.
    fn volumes(&self) -> Vec<(u32, String)>;
    /// Breaks something, if it is a test build.
    fn set_canary(&mut self, canary: Canary) {
        let _ = canary;
    }
}
