//! Reads through the engine against reads of its drives: the same loop, the same reactor, files.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_block::{
    BlockDevice, BlockRange, BlockSize, BufferPool, Completion, IoBuffer, Moment, Request,
};
use ashlar_device::{Spec, open};
use ashlar_reactor::{Handle, Opener, Options, Reactor, Spin};
use ashlar_store::{Layout, Manage, Sizes};
use serde::Serialize;

use super::cost::sequential;
use super::pool::{Ask, Devices, Pool, Wait, make};
use crate::failure::Failure;
use crate::figures::Spread;
use crate::signals::Temporary;

/// Commands in flight.
const DEPTH: usize = 32;
const DRIVES: u64 = 2;

/// Reads of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Reads {
    pub(crate) block_bytes: u32,
    pub(crate) depth: usize,
    /// Through the engine / of its drives, pair by pair.
    pub(crate) iops_ratio: Spread,
    pub(crate) engine_iops: Spread,
    pub(crate) drives_iops: Spread,
    /// Processor time of this thread for a read, in nanoseconds.
    pub(crate) engine_cpu_ns: Spread,
    pub(crate) drives_cpu_ns: Spread,
    pub(crate) goal: Option<f64>,
    /// Bytes of each drive, and of the volume.
    pub(crate) drive_bytes: u64,
    pub(crate) volume_bytes: u64,
}

struct Rig {
    handle: Handle,
    wait: std::rc::Rc<std::cell::RefCell<Reactor>>,
    openers: Vec<Arc<dyn Opener>>,
}

impl Rig {
    fn new(dir: &Path, bytes: u64) -> Result<(Self, Vec<Temporary>), Failure> {
        let options = Options {
            pool_bytes: 320 << 20,
            spin: Spin::Off,
            ..Options::default()
        };
        let reactor = Reactor::new(&options).map_err(Failure::doing("a reactor"))?;
        let (mut files, mut openers) = (Vec::new(), Vec::new());
        for drive in 0..DRIVES {
            let name = format!("reads-{}-{drive}.img", std::process::id());
            let file = Temporary::new(dir.join(name));
            let text = format!("file:{}?size={bytes}", file.path().display());
            let spec: Spec = text.parse().map_err(Failure::doing(&text))?;
            openers.push(open(&spec, BlockSize::B4096).map_err(Failure::doing(&text))?);
            files.push(file);
        }
        let rig = Self {
            handle: reactor.handle().clone(),
            wait: std::rc::Rc::new(std::cell::RefCell::new(reactor)),
            openers,
        };
        Ok((rig, files))
    }

    fn devices(&self) -> Result<Devices, Failure> {
        let open = |opener: &Arc<dyn Opener>| opener.open(&self.handle);
        let devices: Result<Devices, _> = self.openers.iter().map(open).collect();
        devices.map_err(Failure::doing("a drive of the bench"))
    }

    fn wait(&self) -> Wait {
        let (reactor, handle) = (self.wait.clone(), self.handle.clone());
        Box::new(move |until| {
            let soon = handle.now() + Duration::from_millis(10);
            let until = until.map_or(soon, |until| until.min(soon));
            // A ring that fails answers nothing more, and the load says so.
            let _ = reactor.borrow_mut().turn(Some(until));
            handle.now()
        })
    }
}

/// 8 KiB, which has a goal, and 4 KiB.
pub(crate) fn measure(
    dir: &Path,
    drive_bytes: u64,
    rounds: u32,
    length: Duration,
) -> Result<Vec<Reads>, Failure> {
    let (rig, _files) = Rig::new(dir, drive_bytes)?;
    let sizes = Sizes::for_drive(drive_bytes)
        .ok_or_else(|| Failure::usage("drives of at least 64 MiB are needed"))?;
    make(rig.devices()?, &mut rig.wait(), sizes)?;
    let buffers = Some(rig.handle.buffers());
    let mut pool = Pool::open(rig.devices()?, rig.wait(), rig.wait(), buffers)?;
    let volume_bytes = (drive_bytes / 2) >> 20 << 20;
    let volume = pool.volume(Layout::Mirror { copies: 2 }, None, volume_bytes)?;
    pool.load(volume, 8, sequential(volume_bytes / 4096, 256, 1))?;
    pool.manage(Manage::Drain)?;
    let mut bare = Bare {
        devices: rig.devices()?,
        buffers: rig.handle.buffers(),
        wait: rig.wait(),
    };
    let mut results = Vec::new();
    for (granules, goal) in [(2, Some(0.85)), (1, None)] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let random = fastrand::Rng::with_seed(u64::from(round));
            let through = timed(|| {
                let until = Instant::now() + length;
                let asks = random_reads(volume_bytes / 4096, granules, random.clone(), until);
                Ok(pool.load(volume, DEPTH, asks)?.commands)
            })?;
            let direct = timed(|| bare.read(granules, random.clone(), length))?;
            // The first round warms up.
            if round > 0 {
                ours.push(through);
                theirs.push(direct);
            }
        }
        let iops = |of: &[Timed]| of.iter().map(|t| t.iops).collect::<Vec<_>>();
        let cpu = |of: &[Timed]| Spread::of(&of.iter().map(|t| t.cpu_ns).collect::<Vec<_>>());
        results.push(Reads {
            block_bytes: granules * 4096,
            depth: DEPTH,
            iops_ratio: Spread::of_ratios(&iops(&ours), &iops(&theirs)),
            engine_iops: Spread::of(&iops(&ours)),
            drives_iops: Spread::of(&iops(&theirs)),
            engine_cpu_ns: cpu(&ours),
            drives_cpu_ns: cpu(&theirs),
            goal,
            drive_bytes,
            volume_bytes,
        });
    }
    Ok(results)
}

struct Timed {
    iops: f64,
    cpu_ns: f64,
}

fn timed(run: impl FnOnce() -> Result<u64, Failure>) -> Result<Timed, Failure> {
    let (start, cpu) = (Instant::now(), ashlar_reactor::cpu_time());
    let commands = run()?.max(1) as f64;
    let (seconds, cpu) = (
        start.elapsed(),
        ashlar_reactor::cpu_time().saturating_sub(cpu),
    );
    Ok(Timed {
        iops: commands / seconds.as_secs_f64(),
        cpu_ns: cpu.as_nanos() as f64 / commands,
    })
}

fn random_reads(
    granules: u64,
    step: u32,
    mut random: fastrand::Rng,
    until: Instant,
) -> impl FnMut() -> Option<Ask> {
    move || {
        (Instant::now() < until).then(|| Ask {
            write: false,
            first: random.u64(..granules / u64::from(step)) * u64::from(step),
            granules: step,
        })
    }
}

/// The drives by themselves.
struct Bare {
    devices: Devices,
    buffers: BufferPool,
    wait: Wait,
}

impl Bare {
    /// Random reads over the part of both drives that the engine's reads go to, more or less.
    fn read(
        &mut self,
        granules: u32,
        mut random: fastrand::Rng,
        length: Duration,
    ) -> Result<u64, Failure> {
        let until = Instant::now() + length;
        // Logs come first, then the volume's homes, up to a little more than half of the drive.
        let all = self.devices[0].geometry().blocks;
        let (from, blocks) = (all / 8, all * 3 / 8);
        let mut spare: Vec<IoBuffer> = Vec::new();
        let (mut flying, mut commands, mut turn) = (0, 0, 0);
        let mut done: Vec<Completion> = Vec::new();
        let mut now = Moment::ORIGIN;
        loop {
            while flying < DEPTH && Instant::now() < until {
                let buffer = spare
                    .pop()
                    .or_else(|| self.buffers.get(granules as usize * 4096));
                let buffer = buffer.ok_or_else(|| Failure::environment("no memory to read"))?;
                let first = random.u64(..blocks / u64::from(granules)) * u64::from(granules);
                let range = BlockRange::new(from + first, granules);
                turn += 1;
                let drive = turn % self.devices.len();
                self.devices[drive].submit(Request::read(turn as u64, range, buffer));
                flying += 1;
            }
            for device in &mut self.devices {
                device.poll(now, &mut done);
            }
            if flying == 0 {
                return Ok(commands);
            }
            if done.is_empty() {
                now = (self.wait)(None);
            }
            for completion in done.drain(..) {
                completion.result.map_err(Failure::doing("a drive"))?;
                spare.extend(completion.buffer);
                flying -= 1;
                commands += 1;
            }
        }
    }
}
