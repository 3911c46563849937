use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{
    BlockDevice, BlockRange, BlockSize, Completion, Durability, Moment, Operation, Request,
};
use ashlar_cache::{Cache, Header, Layout, Mark, Mode, Side};
use ashlar_device::media::{ArrayModel, DiskModel, FlashModel, Level, Media};
use ashlar_device::{Null, NullReads};
use ashlar_reactor::{Opener, Options, Reactor, Spin};
use uuid::Uuid;

use super::Load;
use crate::failure::Failure;

/// Granules of 4 KiB of the disk, 16 GiB.
const GRANULES: u64 = 4 << 20;
const CACHE_BYTES: u64 = 64 << 20;
const DISK: Setup = Setup {
    behind: Behind::Disk,
    granules: GRANULES,
    cache_bytes: None,
};
/// Granules of an access.
const ACCESS: u64 = 2;
/// Of the disk, what fits into the cache and is asked for when it is warm.
const WARM: u64 = (CACHE_BYTES / 4096) / 2;
/// Where accesses in order begin.
const IN_ORDER: u64 = 1 << 20;

/// How a cache is when a load begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing is in it.
    Cold,
    /// It has what is asked for.
    Warm,
    /// It has a part of what is asked for, here and there.
    Scattered,
    /// All that is in it is not written back.
    FullDirty,
}

impl State {
    /// How long a load runs before it is measured: the disk's own cache of writes empties, and what write-back owes is
    /// done.
    fn settles(self) -> Duration {
        match self {
            Self::FullDirty => Duration::from_secs(5),
            Self::Cold | Self::Warm | Self::Scattered => Duration::from_secs(2),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Scattered => "in part",
            Self::FullDirty => "full, dirty",
        }
    }
}

/// What is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// A disk of 10,000 rpm.
    Disk,
    /// Ten of them in RAID-5.
    Array,
}

impl Behind {
    fn media(self, granules: u64) -> Result<Arc<Media>, Failure> {
        let data = null(granules)?;
        Ok(match self {
            Self::Disk => Media::disk(data, DiskModel::TEN_K),
            Self::Array => Media::array(
                data,
                ArrayModel {
                    disk: DiskModel::TEN_K,
                    level: Level::Raid5,
                    disks: 10,
                },
            ),
        })
    }
}

/// A device and the cache that it gets, if any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) behind: Behind,
    /// Granules of 4 KiB that it has.
    pub(super) granules: u64,
    pub(super) cache_bytes: Option<u64>,
}

/// What came of a load.
pub(super) struct Outcome {
    pub(super) rate: f64,
    pub(super) seeks: f64,
}

/// A disk, perhaps behind a cache, and a clock.
pub(super) struct Rig {
    cache: Option<Cache>,
    fast: Box<dyn BlockDevice>,
    backing: Box<dyn BlockDevice>,
    media: Arc<Media>,
    // Dropped last: devices are of it.
    reactor: Reactor,
    now: Moment,
    random: fastrand::Rng,
    next: u64,
    warm: bool,
}

fn null(blocks: u64) -> Result<Arc<Null>, Failure> {
    Null::new(blocks * 4096, BlockSize::B4096, NullReads::Zeroes).map_err(Failure::environment)
}

impl Rig {
    /// A device, and a cache over it if it gets one.
    pub(super) fn of(setup: Setup) -> Result<Self, Failure> {
        let options = Options {
            pool_bytes: 128 << 20,
            spin: Spin::Off,
            ..Options::default()
        };
        let reactor = Reactor::new(&options).map_err(Failure::doing("a reactor"))?;
        let media = setup.behind.media(setup.granules)?;
        // As fast as a drive on PCIe, so that it is not what is waited for.
        let flash = FlashModel {
            link_rate: 3_000_000_000,
            link_overhead: Duration::from_nanos(500),
            read: Duration::from_micros(60),
            write: Duration::from_micros(20),
            random_writes: 200_000,
            sequential_writes: 1_500_000_000,
            ..FlashModel::DATA_CENTRE
        };
        let fast = Media::flash(null(setup.granules * 2)?, flash);
        let open = |device: &dyn Opener| {
            let opened = device.open(reactor.handle());
            opened.map_err(Failure::doing("a device"))
        };
        let mut rig = Self {
            cache: None,
            fast: open(&*fast)?,
            backing: open(&*media)?,
            media,
            reactor,
            now: Moment::from_nanos(1_000_000),
            random: fastrand::Rng::with_seed(7),
            next: IN_ORDER,
            warm: false,
        };
        if let Some(cache_bytes) = setup.cache_bytes {
            rig.put_cache(setup.granules, cache_bytes)?;
        }
        Ok(rig)
    }

    /// A disk alone.
    pub(super) fn disk(state: State) -> Result<Self, Failure> {
        let mut rig = Self::of(DISK)?;
        rig.warm = state == State::Warm;
        Ok(rig)
    }

    /// The same behind a cache.
    pub(super) fn cached(state: State) -> Result<Self, Failure> {
        let cache_bytes = Some(CACHE_BYTES);
        let mut rig = Self::of(Setup {
            cache_bytes,
            ..DISK
        })?;
        rig.warm = state == State::Warm;
        rig.prepare(state)?;
        Ok(rig)
    }

    fn put_cache(&mut self, granules: u64, cache_bytes: u64) -> Result<(), Failure> {
        let header = Header {
            cache: Uuid::from_u128(1),
            layout: Layout::of_granules(granules),
            cache_bytes,
            blocks: BlockSize::B4096,
            mode: Mode::WriteBack,
            mark: Mark::Off,
            head_crc: None,
            marked: None,
            is_untold: false,
            identity: None,
            backing: "disk".to_owned(),
        };
        let cache = Cache::create(header, self.backing.geometry(), self.now);
        self.cache = Some(cache.map_err(Failure::doing("a cache"))?);
        Ok(())
    }

    pub(super) fn cache(&mut self) -> Option<&mut Cache> {
        self.cache.as_mut()
    }

    pub(super) fn now(&self) -> Moment {
        self.now
    }

    pub(super) fn seeks(&self) -> u64 {
        self.media.seeks()
    }

    fn prepare(&mut self, state: State) -> Result<(), Failure> {
        let blocks = CACHE_BYTES / 4096 / ACCESS;
        match state {
            State::Cold => {}
            State::Warm => {
                // Not in order: a stream does not enter.
                let all = WARM / ACCESS;
                for place in (0..all).map(|at| at * 7919 % all * ACCESS) {
                    self.access(place, None)?;
                }
            }
            State::Scattered => {
                for _ in 0..blocks / 2 {
                    let place = IN_ORDER + self.random.u64(..15_000) * ACCESS;
                    self.access(place, None)?;
                }
            }
            State::FullDirty => {
                // More than it takes, and all at once: write-back has no time.
                let many = |rig: &mut Self| {
                    let place = rig.random.u64(..GRANULES / ACCESS / 4) * ACCESS;
                    rig.submit(1, place, Some(Durability::Durable))
                };
                for _ in 0..blocks / 64 * 5 / 4 {
                    for _ in 0..64 {
                        many(self)?;
                    }
                    self.complete(64)?;
                }
            }
        }
        Ok(())
    }

    fn access(&mut self, place: u64, write: Option<Durability>) -> Result<(), Failure> {
        self.submit(1, place, write)?;
        self.complete(1)
    }

    fn complete(&mut self, count: usize) -> Result<(), Failure> {
        let mut done = Vec::new();
        while done.len() < count {
            self.turn(&mut done)?;
        }
        Ok(())
    }

    fn submit(&mut self, tag: u64, place: u64, write: Option<Durability>) -> Result<(), Failure> {
        let op = write.map_or(Operation::Read, Operation::Write);
        self.request(tag, op, place..place + ACCESS)
    }

    /// Has granules read, written or flushed.
    pub(super) fn request(
        &mut self,
        tag: u64,
        op: Operation,
        granules: Range<u64>,
    ) -> Result<(), Failure> {
        let count = granules.end - granules.start;
        let mut buffer = None;
        if op.has_buffer() {
            let found = self.reactor.handle().buffers().get(count as usize * 4096);
            let none = || Failure::environment("no memory for a request");
            buffer = Some(found.ok_or_else(none)?);
        }
        let range = BlockRange::new(granules.start, count as u32);
        let request = Request {
            tag,
            op,
            range,
            buffer,
        };
        match &mut self.cache {
            Some(cache) => cache.submit(request),
            None => self.backing.submit(request),
        }
        Ok(())
    }

    /// Lets everything act at this moment; if nothing comes of it, the next moment at which something will.
    pub(super) fn turn(&mut self, done: &mut Vec<Completion>) -> Result<(), Failure> {
        let before = done.len();
        let Some(cache) = &mut self.cache else {
            self.backing.poll(self.now, done);
            if done.len() == before {
                self.now = next(self.now, [self.backing.next_deadline()])?;
            }
            return Ok(());
        };
        let (mut acted, mut io, mut ended) = (false, Vec::new(), Vec::new());
        for (side, device) in [
            (Side::Fast, &mut self.fast),
            (Side::Backing, &mut self.backing),
        ] {
            device.poll(self.now, &mut ended);
            for completion in ended.drain(..) {
                acted = true;
                cache.completed(side, completion);
            }
        }
        cache.advance(self.now);
        cache.take(&mut io, done);
        for (side, request) in io {
            acted = true;
            match side {
                Side::Fast => self.fast.submit(request),
                Side::Backing => self.backing.submit(request),
            }
        }
        if let Some(why) = cache.status().failure.filter(|_| !acted) {
            return Err(Failure::environment(why));
        }
        if !acted && done.len() == before {
            let deadlines = [
                self.fast.next_deadline(),
                self.backing.next_deadline(),
                cache.next_deadline(),
            ];
            self.now = next(self.now, deadlines)?;
        }
        Ok(())
    }

    fn place(&mut self, load: Load) -> u64 {
        if load.pattern.is_random() {
            let all = if self.warm { WARM } else { GRANULES };
            return self.random.u64(..all / ACCESS) * ACCESS;
        }
        self.next += ACCESS;
        self.next - ACCESS
    }

    /// Accesses a second, and seeks of each, of a load.
    pub(super) fn run(mut self, load: Load) -> Result<Outcome, Failure> {
        let write = load.pattern.durability();
        let from = self.now + load.state.settles();
        let (mut begun, mut seeks) = (self.now, self.media.seeks());
        let (mut finished, mut done) = (0, Vec::new());
        for tag in 0..load.depth {
            let place = self.place(load);
            self.submit(tag as u64, place, write)?;
        }
        while finished < load.count {
            self.turn(&mut done)?;
            for completion in std::mem::take(&mut done) {
                completion.result.map_err(Failure::doing("an access"))?;
                finished += 1;
                if begun < from {
                    (finished, begun, seeks) = (0, self.now, self.media.seeks());
                }
                let place = self.place(load);
                self.submit(completion.tag, place, write)?;
            }
        }
        let seeks = self.media.seeks() - seeks;
        Ok(Outcome {
            rate: load.count as f64 / self.now.since(begun).as_secs_f64(),
            seeks: seeks as f64 / load.count as f64,
        })
    }
}

fn next<const N: usize>(now: Moment, all: [Option<Moment>; N]) -> Result<Moment, Failure> {
    let next = all.into_iter().flatten().min();
    let stuck = || Failure::environment("nothing is under way, and nothing ends");
    // A moment that has come already is one at which something acts.
    next.map(|next| next.max(now + Duration::from_nanos(1)))
        .ok_or_else(stuck)
}
