//! What the world drives: the engine that ships, or a toy that shows that the world's checks work.

use std::rc::Rc;
use std::time::Duration;

use ashlar_block::{BlockDevice, BufferPool, IoBuffer, Moment, REGION_BYTES};
use ashlar_store::format::{DriveClass, Label, Member, MemberState, Reserve, Salt};
use ashlar_store::{
    Cage, Canary, DrivePlan, Drives, Engine, HomeStatus, ImportOptions, Layout, NodeMemory,
    PoolPlan, Sizes, VolumeInfo, enlist,
};
use uuid::Uuid;

use super::audit::{Found, Media};
use super::plan;

pub(crate) use ashlar_store::{DRIVE_REPLY_TIMEOUT, Event, Manage, Managed, Outbox, VolumePlan};

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
    /// How many of them, the last ones, are faster than the others.
    pub(crate) fast: usize,
}

impl Shape {
    fn class(&self, drive: usize) -> DriveClass {
        match self.fast == 0 || drive >= self.drives - self.fast {
            true => DriveClass::Nvme,
            false => DriveClass::Hdd,
        }
    }
}

/// How a pool is to be brought into service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    /// The operator knows that drives are gone.
    pub(crate) degraded: bool,
    /// The operator goes on without what no copy is left of.
    pub(crate) accept_data_loss: bool,
    /// What is broken on purpose.
    pub(crate) canary: Option<Canary>,
    /// Bytes of memory for leaves of the map, 0 for the default.
    pub(crate) leaf_bytes: u64,
    /// How long after a loss repair begins.
    pub(crate) repair_after: Duration,
    /// What the node remembers, if it does.
    pub(crate) memory: Option<Rc<dyn NodeMemory>>,
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
    fn volumes(&self) -> Vec<Known>;
    /// Units of 64 KiB that a volume could still get, if it knows.
    fn room(&self, _: &plan::Wish) -> Option<u64> {
        None
    }
    /// Drives in service, if it knows.
    fn drives_in_service(&self) -> Option<usize> {
        let seats = self.seats()?;
        Some(seats.iter().filter(|seat| seat.in_service()).count())
    }
    /// Its members, if it has any.
    fn seats(&self) -> Option<Vec<Seat>> {
        None
    }

    /// The number that the next drive gets; none while no number is free.
    fn next_seat(&self) -> Option<u16> {
        self.seats().map(|seats| seats.len() as u16)
    }
    /// Gives a drive with this identity its label, so that it can become a member.
    fn enlist(&self, _: Uuid, _: Box<dyn BlockDevice>, _: Wait) -> Result<(), String> {
        Err("this engine takes no drives".into())
    }
    /// Whether it says that nothing lacks a copy.
    fn is_whole(&self) -> bool {
        false
    }
    /// Copies that its logs should have.
    fn log_copies(&self) -> usize {
        0
    }
    /// Whether copies are being made.
    fn is_rebuilding(&self) -> bool {
        false
    }
    /// Why it has stopped, if it has.
    fn stopped(&self) -> Option<String> {
        None
    }
    /// Reads what the drives of a settled pool hold, and checks it, if it knows how.
    ///
    /// # Errors
    /// What must not be so.
    fn audit(&self, _: &Media<'_>) -> Result<Option<Found>, String> {
        Ok(None)
    }
    /// Whether slots are on their way between homes: they have two then.
    fn is_moving(&self) -> bool {
        false
    }
    /// Bytes of slots that have moved to hot homes, and from there.
    fn moved(&self) -> (u64, u64) {
        (0, 0)
    }
    /// Blocks that it says are lost.
    fn lost(&self) -> u64 {
        0
    }
    /// What is taken and no volume's, when nothing is on its way.
    fn leak(&self) -> Option<String> {
        None
    }
}

/// A member of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    /// The drive of the world, and which time it joins.
    pub(crate) drive: (usize, u64),
    pub(crate) state: MemberState,
    /// It was left out, and gets what is newer.
    pub(crate) returns: bool,
    /// Extents that are in use, as far as the engine knows.
    pub(crate) used: u32,
}

impl Seat {
    pub(crate) fn in_service(self) -> bool {
        self.state.in_service() || self.returns
    }
}

/// A drive's identity, the `time`th time that it joins.
pub(crate) fn identity(drive: usize, time: u64) -> Uuid {
    Uuid::from_u64_pair(drive as u64, JOINED + time)
}

/// Identities of volumes and pools are others.
const JOINED: u64 = 3;

/// A volume as an engine knows it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) number: u32,
    pub(crate) name: String,
    /// Its size, if the engine keeps it.
    pub(crate) granules: Option<u64>,
    /// Bytes that it holds, if the engine counts them.
    pub(crate) used: Option<u64>,
    /// Its space is being given back; hosts are refused.
    pub(crate) deleting: bool,
    /// It takes no writes while a copy is missing that no drive can take.
    pub(crate) stops: bool,
    /// It takes none now.
    pub(crate) stopped: bool,
}

/// Bytes of a unit.
const UNIT_BYTES: u64 = 64 << 10;

/// Memory of an engine.
const ENGINE_BYTES: usize = 128 << 20;

thread_local! {
    static MEMORY: BufferPool = BufferPool::new(2 * ENGINE_BYTES);
    static USED_UP: (BufferPool, Option<IoBuffer>) = {
        let pool = BufferPool::new(REGION_BYTES);
        let all = pool.get(REGION_BYTES);
        (pool, all)
    };
}

/// Memory for engines and users, the same for all worlds that a thread lives through: to make it
/// anew for each would take longer than their lives.
pub(crate) fn memory() -> BufferPool {
    MEMORY.with(BufferPool::clone)
}

/// Memory that others have, all of it, and do not give back.
pub(crate) fn used_up() -> BufferPool {
    USED_UP.with(|(pool, _)| pool.clone())
}

impl Subject for Engine {
    fn format(devices: Devices, wait: Wait, shape: &Shape) -> Result<(), String> {
        let drive = |index: usize| DrivePlan {
            uuid: identity(index, 0),
            class: shape.class(index),
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
            accept_data_loss: wish.accept_data_loss,
            repair_after: wish.repair_after,
            memory: wish.memory,
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
            used: Some(v.used_bytes - self.bytes_counted_twice(v.number)),
            deleting: v.deleting,
            stops: v.stops,
            stopped: v.stopped.is_some(),
        };
        Engine::volumes(self).into_iter().map(known).collect()
    }

    fn room(&self, wish: &plan::Wish) -> Option<u64> {
        let usual = wish
            .layout
            .default_grain_on(wish.class.is_some_and(DriveClass::seeks));
        let grain = wish.grain.unwrap_or(usual);
        let homes = self.status().homes;
        let ours = |home: &&HomeStatus| {
            let alike = (home.layout, home.grain, home.class) == (wish.layout, grain, wish.class);
            alike && home.hot_of.is_none()
        };
        let home = homes.iter().find(ours)?;
        Some((home.free_bytes + home.growth_bytes) / UNIT_BYTES)
    }

    fn seats(&self) -> Option<Vec<Seat>> {
        let shift = self.label().sizes.extent_shift;
        let members = self.status().members.into_iter();
        let used = members.map(|member| (member.used_bytes >> shift, member.returning));
        let seat = |(member, (used, returns)): (&Member, (u64, bool))| {
            let (drive, time) = member.drive.as_u64_pair();
            Seat {
                drive: (drive as usize, time - JOINED),
                state: member.state,
                returns,
                used: used as u32,
            }
        };
        Some(self.members().iter().zip(used).map(seat).collect())
    }

    fn next_seat(&self) -> Option<u16> {
        self.next_member()
    }

    fn enlist(&self, drive: Uuid, device: Box<dyn BlockDevice>, wait: Wait) -> Result<(), String> {
        let label = Label {
            drive,
            index: self.next_member().unwrap_or_default(),
            bytes: device.geometry().bytes(),
            ..self.label().clone()
        };
        let mut drives = Drives::new(vec![device], wait).with_buffers(memory());
        enlist(&mut drives, 0, &label).map_err(|error| error.to_string())
    }

    fn is_whole(&self) -> bool {
        let status = self.status();
        let leaves = status.members.iter().any(|member| member.leaving);
        let works = status.rebuilding || status.walk.is_some();
        status.failure.is_none() && !status.degraded && !works && !leaves
    }

    fn log_copies(&self) -> usize {
        self.status().log_copies.into()
    }

    fn is_rebuilding(&self) -> bool {
        Engine::is_rebuilding(self)
    }

    fn stopped(&self) -> Option<String> {
        self.failure().map(str::to_owned)
    }

    fn audit(&self, media: &Media<'_>) -> Result<Option<Found>, String> {
        Found::audit(media).map(Some)
    }

    fn is_moving(&self) -> bool {
        Engine::is_moving(self)
    }

    fn moved(&self) -> (u64, u64) {
        let volumes = Engine::volumes(self).into_iter();
        let tallies = volumes.filter_map(|volume| Some(volume.tier?.tally));
        tallies.fold((0, 0), |(to, from), tally| {
            (to + tally.promoted_bytes, from + tally.demoted_bytes)
        })
    }

    fn lost(&self) -> u64 {
        self.status().lost.iter().map(|one| one.lost).sum()
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
}
