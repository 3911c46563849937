//! An engine with its drives, and what loads it: the engine's driver without sockets.

use std::time::Duration;

use ashlar_block::{BlockDevice, BlockRange, BufferPool, Durability, IoBuffer, Moment, Request};
use ashlar_store::format::{DriveClass, Reserve, Salt};
use ashlar_store::{
    DrivePlan, DriveTable, Drives, Engine, Event, Grain, HotTier, ImportOptions, Imported, Layout,
    Manage, Managed, Outbox, PoolPlan, Sizes, VolumePlan, format, import,
};
use uuid::Uuid;

use crate::failure::Failure;

/// Granules of a leaf of the map.
pub(crate) const LEAF: u64 = ashlar_store::sizes::LEAF_GRANULES;
/// Memory for an engine's I/O.
const ENGINE_BYTES: usize = 64 << 20;
/// Memory for a load's own buffers.
const LOAD_BYTES: usize = 96 << 20;
/// What is waited for, at most, in the time of the drives.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(3600);

pub(crate) type Devices = Vec<Box<dyn BlockDevice>>;

/// Lets time pass until the given moment, or until something may have happened, and says what time
/// it is.
pub(crate) type Wait = Box<dyn FnMut(Option<Moment>) -> Moment>;

/// A pool in service.
pub(crate) struct Pool {
    pub(crate) engine: Engine,
    drives: DriveTable,
    wait: Wait,
    now: Moment,
    out: Outbox,
    buffers: BufferPool,
    next_id: u64,
    /// Something was posted that a turn must follow.
    posted: bool,
}

/// A command of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) write: bool,
    pub(crate) first: u64,
    pub(crate) granules: u32,
}

/// A command that comes at its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) after: Duration,
    pub(crate) volume: u32,
    pub(crate) ask: Ask,
}

/// What a load has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
    /// Time that passed for the drives.
    pub(crate) time: Duration,
    /// The longest time that nothing was answered.
    pub(crate) longest_silence: Duration,
    /// The fullest that the ring and the map log were.
    pub(crate) ring_fill: f64,
    pub(crate) map_fill: f64,
}

/// Makes a pool.
pub(crate) fn make(devices: Devices, wait: &mut Wait, sizes: Sizes) -> Result<(), Failure> {
    let classes = vec![DriveClass::Nvme; devices.len()];
    make_of(devices, &classes, wait, sizes)
}

/// Makes a pool of drives of these classes.
pub(crate) fn make_of(
    devices: Devices,
    classes: &[DriveClass],
    wait: &mut Wait,
    sizes: Sizes,
) -> Result<(), Failure> {
    let count = devices.len();
    let plan = PoolPlan {
        name: "bench".into(),
        pool: Uuid::from_u128(1),
        salt: Salt(0x5eed),
        sizes,
        log_copies: count.min(2) as u8,
        reserve: Reserve::None,
        drives: (classes.iter().enumerate())
            .map(|(drive, &class)| DrivePlan {
                uuid: Uuid::from_u128(100 + drive as u128),
                class,
            })
            .collect(),
    };
    let mut own = std::mem::replace(wait, Box::new(|_| Moment::ORIGIN));
    let mut drives = Drives::new(devices, Box::new(move || own(None)));
    format(&mut drives, &plan).map_err(Failure::doing("a pool for the bench"))
}

impl Pool {
    /// Imports the pool on these drives.
    pub(crate) fn open(
        devices: Devices,
        mut import_wait: Wait,
        mut wait: Wait,
        buffers: Option<BufferPool>,
    ) -> Result<Self, Failure> {
        let mut drives = Drives::new(devices, Box::new(move || import_wait(None)));
        if let Some(buffers) = &buffers {
            drives = drives.with_buffers(buffers.clone());
        }
        let options = ImportOptions {
            buffer_bytes: ENGINE_BYTES,
            buffers: buffers.clone(),
            ..ImportOptions::default()
        };
        let imported = import(drives, &options).map_err(Failure::doing("import"))?;
        let Imported { engine, drives } = imported;
        let now = wait(Some(Moment::ORIGIN));
        Ok(Self {
            engine,
            drives: DriveTable::new(drives),
            wait,
            now,
            out: Outbox::default(),
            buffers: buffers.unwrap_or_else(|| BufferPool::new(LOAD_BYTES)),
            next_id: 0,
            posted: false,
        })
    }

    /// One turn: what the drives have answered, what follows from it. True if anything has happened.
    fn turn(&mut self) -> bool {
        self.poll();
        let mut busy = std::mem::take(&mut self.posted);
        let due = self.engine.next_deadline();
        busy |= due.is_some_and(|at| at <= self.now);
        self.engine.handle(self.now, Event::Tick, &mut self.out);
        for (drive, request) in std::mem::take(&mut self.out.io) {
            busy = true;
            if let Err(missing) = self.drives.submit(drive, request) {
                let completion = missing.completion();
                let event = Event::Done { drive, completion };
                self.engine.post(self.now, event, &mut self.out);
                self.posted = true;
            }
        }
        // What was submitted in this turn goes out in this turn.
        self.poll();
        busy || !self.out.done.is_empty() || !self.out.managed.is_empty()
    }

    /// Gives the engine what the drives have answered; true if that was anything.
    fn poll(&mut self) -> bool {
        let (mut any, now) = (false, self.now);
        self.drives.poll(now, |drive, completion| {
            any = true;
            let event = Event::Done { drive, completion };
            self.engine.post(now, event, &mut self.out);
        });
        self.posted |= any;
        any
    }

    /// Lets time pass until a device or the engine wants a turn.
    fn pass(&mut self) {
        self.pass_until(None);
    }

    /// Or until a moment.
    fn pass_until(&mut self, at_most: Option<Moment>) {
        let both = [self.drives.next_deadline(), self.engine.next_deadline()];
        let all = both.into_iter().chain([at_most]).flatten();
        self.now = (self.wait)(all.min());
    }

    /// Has a wish fulfilled.
    pub(crate) fn manage(&mut self, what: Manage) -> Result<Managed, Failure> {
        self.next_id += 1;
        let event = Event::Manage {
            id: self.next_id,
            what,
        };
        self.engine.post(self.now, event, &mut self.out);
        let begun = self.now;
        loop {
            let busy = self.turn();
            if let Some((_, answer)) = self.out.managed.pop() {
                return answer.map_err(Failure::doing("the engine"));
            }
            self.check(begun)?;
            if !busy {
                self.pass();
            }
        }
    }

    /// Another volume.
    pub(crate) fn volume(
        &mut self,
        layout: Layout,
        grain: Option<Grain>,
        bytes: u64,
    ) -> Result<u32, Failure> {
        let plan = VolumePlan {
            grain,
            ..self.plan(layout, bytes)
        };
        self.create(plan)
    }

    /// Another volume with a hot home.
    pub(crate) fn tiered_volume(
        &mut self,
        layout: Layout,
        hot: Option<HotTier>,
        bytes: u64,
    ) -> Result<u32, Failure> {
        let plan = VolumePlan {
            hot,
            ..self.plan(layout, bytes)
        };
        self.create(plan)
    }

    pub(crate) fn plan(&self, layout: Layout, bytes: u64) -> VolumePlan {
        VolumePlan {
            name: format!("v{}", self.next_id),
            uuid: Uuid::from_u128(1000 + u128::from(self.next_id)),
            granules: bytes / 4096,
            layout,
            grain: None,
            stops: false,
            class: None,
            is_cache: false,
            hot: None,
        }
    }

    pub(crate) fn create(&mut self, plan: VolumePlan) -> Result<u32, Failure> {
        match self.manage(Manage::CreateVolume(plan))? {
            Managed::Volume(number) => Ok(number),
            other => Err(Failure::environment(format!("a volume: {other:?}"))),
        }
    }

    fn check(&self, since: Moment) -> Result<(), Failure> {
        if let Some(why) = self.engine.failure() {
            return Err(Failure::environment(format!("the engine stopped: {why}")));
        }
        if self.now.since(since) > ENGINE_TIMEOUT {
            return Err(Failure::environment("the engine no longer answers"));
        }
        Ok(())
    }

    /// Keeps `depth` commands of `volume` in flight until `next` has no more.
    pub(crate) fn load(
        &mut self,
        volume: u32,
        depth: usize,
        mut next: impl FnMut() -> Option<Ask>,
    ) -> Result<Seen, Failure> {
        let begun = self.now;
        let (mut flying, mut over, mut number) = (0, false, 0_u64);
        let mut heard = begun;
        let mut seen = Seen::default();
        let mut spare: Vec<IoBuffer> = Vec::new();
        loop {
            while flying < depth && !over {
                let Some(ask) = next() else {
                    over = true;
                    break;
                };
                number += 1;
                seen.bytes += u64::from(ask.granules) * 4096;
                let request = self.request(ask, number, &mut spare)?;
                let event = Event::Command { volume, request };
                self.engine.post(self.now, event, &mut self.out);
                flying += 1;
            }
            let busy = self.turn();
            let (ring, map) = self.engine.log_fill();
            seen.ring_fill = seen.ring_fill.max(ring);
            seen.map_fill = seen.map_fill.max(map);
            if !self.out.done.is_empty() {
                seen.longest_silence = seen.longest_silence.max(self.now.since(heard));
                heard = self.now;
            }
            for completion in self.out.done.drain(..) {
                completion.result.map_err(Failure::doing("a command"))?;
                flying -= 1;
                seen.commands += 1;
                spare.extend(completion.buffer);
            }
            if flying == 0 && over {
                seen.time = self.now.since(begun);
                return Ok(seen);
            }
            self.check(heard)?;
            if !busy {
                self.pass();
            }
        }
    }

    /// Commands that come at their times, whatever has been answered; `told` is called with each and how long it took.
    pub(crate) fn paced(
        &mut self,
        mut next: impl FnMut() -> Option<Timed>,
        mut told: impl FnMut(&Ask, Duration),
    ) -> Result<(), Failure> {
        let begun = self.now;
        let mut coming = next();
        let mut flying = slab::Slab::new();
        let mut spare: Vec<IoBuffer> = Vec::new();
        while coming.is_some() || !flying.is_empty() {
            while let Some(one) = coming.filter(|one| begun + one.after <= self.now) {
                let number = flying.insert(one) as u64;
                let request = self.request(one.ask, number, &mut spare)?;
                let volume = one.volume;
                let event = Event::Command { volume, request };
                self.engine.post(self.now, event, &mut self.out);
                coming = next();
            }
            let busy = self.turn();
            for completion in self.out.done.drain(..) {
                completion.result.map_err(Failure::doing("a command"))?;
                let one = flying.remove(completion.tag as usize);
                told(&one.ask, self.now.since(begun + one.after));
                spare.extend(completion.buffer);
            }
            self.check(
                flying
                    .iter()
                    .next()
                    .map_or(self.now, |(_, one)| begun + one.after),
            )?;
            if !busy {
                self.pass_until(coming.map(|one| begun + one.after));
            }
        }
        Ok(())
    }

    /// A volume whose homes are on drives of a class.
    pub(crate) fn volume_on(
        &mut self,
        class: DriveClass,
        layout: Layout,
        bytes: u64,
    ) -> Result<u32, Failure> {
        let plan = VolumePlan {
            class: Some(class),
            ..self.plan(layout, bytes)
        };
        self.create(plan)
    }

    fn request(
        &self,
        ask: Ask,
        number: u64,
        spare: &mut Vec<IoBuffer>,
    ) -> Result<Request, Failure> {
        let range = BlockRange::new(ask.first, ask.granules);
        let bytes = ask.granules as usize * 4096;
        let recycled = spare.pop().filter(|buffer| buffer.len() == bytes);
        let buffer = match recycled {
            Some(buffer) => buffer,
            None => {
                let mut fresh = self
                    .buffers
                    .get(bytes)
                    .ok_or_else(|| Failure::environment("no memory for the load"))?;
                fresh.fill(0x40 | number as u8 & 0x3f);
                fresh
            }
        };
        Ok(match ask.write {
            true => Request::write(number, range, buffer, Durability::Cached),
            false => Request::read(number, range, buffer),
        })
    }
}
