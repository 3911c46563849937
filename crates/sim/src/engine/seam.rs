//! What the world drives: the engine that ships, or a toy that shows that the world's checks work.

use std::time::Duration;

use ashlar_block::{BlockDevice, BufferPool, Moment};
use ashlar_store::format::{DriveClass, Reserve, Salt};
use ashlar_store::{
    Cage, Canary, DrivePlan, Drives, Engine, Grain, ImportOptions, Layout, PoolPlan, Sizes,
    VolumeInfo,
};
use uuid::Uuid;

pub(crate) use ashlar_store::{Event, Manage, Managed, Outbox, VolumePlan};

/// Waits for devices: lets simulated time go on and returns it.
pub(crate) type Wait = Box<dyn FnMut() -> Moment>;
/// Drives as an engine gets them.
pub(crate) type Devices = Vec<Box<dyn BlockDevice>>;

/// A pool to be made.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) pool: Uuid,
    pub(crate) salt: u32,
    pub(crate) sizes: Sizes,
    pub(crate) log_copies: u8,
    /// What is kept for repair.
    pub(crate) reserve: Reserve,
    pub(crate) drives: usize,
}

/// How a pool is to be brought into service.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    /// The operator knows that drives are gone.
    pub(crate) degraded: bool,
    /// What is broken on purpose.
    pub(crate) canary: Option<Canary>,
    /// Bytes of memory for leaves of the map, 0 for the default.
    pub(crate) leaf_bytes: u64,
    /// How long after a loss repair begins.
    pub(crate) repair_after: Duration,
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
    fn import(devices: Devices, wait: Wait, wish: Wish) -> Result<Running<Self>, String>;
    /// Takes an event that is not the last of a turn.
    fn post(&mut self, now: Moment, event: Event, out: &mut Outbox) {
        self.handle(now, event, out);
    }
    /// Takes an event.
    fn handle(&mut self, now: Moment, event: Event, out: &mut Outbox);
    /// When it wants a tick.
    fn next_deadline(&self) -> Option<Moment>;
    /// Its volumes.
    fn volumes(&self) -> Vec<Known>;
    /// Units of 64 KiB that a volume of this layout and grain could still get, if it knows.
    fn room(&self, _: Layout, _: Option<Grain>) -> Option<u64> {
        None
    }
    /// Drives in service, if it knows.
    fn drives_in_service(&self) -> Option<usize> {
        None
    }
    /// What is taken and nobody's, when nothing is on its way.
    fn leak(&self) -> Option<String> {
        None
    }
    /// Whether everything has all its copies, on drives that stay.
    fn is_whole(&self) -> bool {
        true
    }
}

/// A volume as an engine knows it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) number: u32,
    pub(crate) name: String,
    /// Its size, if the engine keeps it.
    pub(crate) granules: Option<u64>,
    /// Its space is being given back; hosts are refused.
    pub(crate) deleting: bool,
}

/// Bytes of a unit.
const UNIT_BYTES: u64 = 64 << 10;

/// Memory of an engine.
const ENGINE_BYTES: usize = 128 << 20;

thread_local! {
    static MEMORY: BufferPool = BufferPool::new(2 * ENGINE_BYTES);
}

/// Memory for engines and users, the same for all worlds that a thread lives through: to make it
/// anew for each would take longer than their lives.
pub(crate) fn memory() -> BufferPool {
    MEMORY.with(BufferPool::clone)
}

impl Subject for Engine {
    fn format(devices: Devices, wait: Wait, shape: &Shape) -> Result<(), String> {
        let drive = |index: usize| DrivePlan {
            uuid: Uuid::from_u64_pair(index as u64, 3),
            class: DriveClass::Nvme,
        };
        let plan = PoolPlan {
            name: "tank".into(),
            pool: shape.pool,
            salt: Salt(shape.salt),
            sizes: shape.sizes,
            log_copies: shape.log_copies,
            reserve: shape.reserve,
            drives: (0..shape.drives).map(drive).collect(),
        };
        let mut drives = Drives::new(devices, wait).with_buffers(memory());
        ashlar_store::format(&mut drives, &plan).map_err(|error| error.to_string())
    }

    fn import(devices: Devices, wait: Wait, wish: Wish) -> Result<Running<Self>, String> {
        let drives = Drives::new(devices, wait).with_buffers(memory());
        let options = ImportOptions {
            buffer_bytes: ENGINE_BYTES,
            buffers: Some(memory()),
            leaf_bytes: wish.leaf_bytes,
            degraded: wish.degraded,
            repair_after: wish.repair_after,
            rename: None,
            cage: Cage::new(wish.canary),
        };
        let imported = ashlar_store::import(drives, &options);
        let imported = imported.map_err(|error| error.to_string())?;
        Ok(Running {
            engine: imported.engine,
            devices: imported.drives,
        })
    }

    fn post(&mut self, now: Moment, event: Event, out: &mut Outbox) {
        Engine::post(self, now, event, out);
    }

    fn handle(&mut self, now: Moment, event: Event, out: &mut Outbox) {
        Engine::handle(self, now, event, out);
    }

    fn next_deadline(&self) -> Option<Moment> {
        Engine::next_deadline(self)
    }

    fn volumes(&self) -> Vec<Known> {
        let known = |v: VolumeInfo| Known {
            number: v.number,
            name: v.name,
            granules: Some(v.granules),
            deleting: v.deleting,
        };
        Engine::volumes(self).into_iter().map(known).collect()
    }

    fn room(&self, layout: Layout, grain: Option<Grain>) -> Option<u64> {
        let grain = grain.unwrap_or(layout.default_grain());
        let homes = self.status().homes;
        let mut homes = homes.iter();
        let home = homes.find(|home| (home.layout, home.grain) == (layout, grain))?;
        Some((home.free_bytes + home.growth_bytes) / UNIT_BYTES)
    }

    fn drives_in_service(&self) -> Option<usize> {
        let members = self.members().iter();
        Some(members.filter(|member| member.state.in_service()).count())
    }

    fn leak(&self) -> Option<String> {
        let status = self.status();
        let homed = |info: &&VolumeInfo| !matches!(info.layout, Layout::Stripe { .. });
        let theirs = status.volumes.iter().filter(homed);
        let theirs: u64 = theirs.map(|info| info.used_bytes).sum();
        let taken: u64 = status.homes.iter().map(|home| home.used_bytes).sum();
        (taken != theirs && !status.degraded)
            .then(|| format!("{taken} bytes of homes are taken, {theirs} are volumes'"))
    }

    fn is_whole(&self) -> bool {
        let status = self.status();
        let leaving = status.members.iter().any(|member| member.leaving);
        !status.degraded && !status.rebuilding && !leaving
    }
}
