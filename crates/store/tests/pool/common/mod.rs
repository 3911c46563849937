//! A pool on drives in memory, driven step by step.

pub mod model;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use ashlar_block::{
    BlockDevice, BlockRange, BlockSize, BufferPool, Completion, Description, Durability, ErrorKind,
    Geometry, IoError, Moment, Operation, Request,
};
use ashlar_store::format::{ChunkCopy, DriveClass, Label, Reserve, Root, Salt, TablePage};
use ashlar_store::sizes::ROOT_AT;
use ashlar_store::{
    Comeback, DrivePlan, DriveTable, Drives, Engine, Event, Grain, ImportOptions, Imported, Layout,
    Manage, Managed, Membership, Outbox, PoolError, PoolPlan, Sizes, VolumePlan, enlist, format,
    import,
};
use uuid::Uuid;

/// Seed of the pool's checksums.
pub const SALT: Salt = Salt(7);

/// Granules that are all the same.
pub fn fill(granules: usize, value: u8) -> Vec<u8> {
    vec![value; granules * 4096]
}

/// Granules that differ from each other.
pub fn pattern(granules: usize, seed: u8) -> Vec<u8> {
    (0..granules * 4096)
        .map(|i| (i / 4096) as u8 ^ seed.wrapping_add((i % 251) as u8))
        .collect()
}

/// Bytes of a drive that outlive the engine.
pub type Medium = Rc<RefCell<Vec<u8>>>;

/// Some operations.
pub type Rule = fn(Operation) -> bool;

/// Which operations of a drive fail, and how.
pub type Fault = Option<(Rule, ErrorKind)>;

/// Answers to commands, and to `Manage` requests.
pub type Answers = (Vec<Completion>, Vec<(u64, Result<Managed, IoError>)>);

/// What has happened to the drives, and what is to go wrong.
#[derive(Clone, Default)]
pub struct Seen {
    /// What was asked of which drive.
    pub log: Rc<RefCell<Vec<(usize, Operation)>>>,
    /// Where they were written, and how: drive and block.
    pub writes: Rc<RefCell<Vec<(usize, u64, Operation)>>>,
    /// Faults by drive.
    pub faults: [Rc<Cell<Fault>>; 8],
    /// A drive, of any number, that cannot be written.
    pub broken: Rc<Cell<Option<usize>>>,
    /// Blocks of drives that cannot be read until they are written.
    pub unreadable: Rc<RefCell<BTreeSet<(usize, u64)>>>,
    /// Blocks of drives that cannot be written.
    pub unwritable: Rc<RefCell<BTreeSet<(usize, u64)>>>,
    /// Which operations take their time until there is no such rule.
    pub held: Rc<Cell<Option<Rule>>>,
    /// Which of these go on before that.
    pub released: Rc<Cell<Option<Rule>>>,
    /// A drive that lets nothing go on that it holds.
    pub stuck: Rc<Cell<Option<usize>>>,
    /// Drives give space back: what is deallocated reads as something else from then on.
    pub deallocates: Rc<Cell<bool>>,
}

thread_local! {
    static LET_THROUGH: Cell<u32> = const { Cell::new(0) };
}

impl Seen {
    /// Holds what changes drives once so many have been let through.
    pub fn hold_after(&self, changes: u32) {
        LET_THROUGH.set(changes);
        self.held.set(Some(|op| {
            let changes = op != Operation::Read;
            let left = LET_THROUGH.get();
            LET_THROUGH.set(left.saturating_sub(u32::from(changes)));
            changes && left == 0
        }));
    }
}

/// A drive that does everything at once, durably.
struct Memory {
    medium: Medium,
    number: usize,
    seen: Seen,
    held: Vec<Request>,
    done: Vec<Completion>,
}

impl Memory {
    fn fault(&self, request: &Request) -> Result<(), IoError> {
        let fault = self.seen.faults.get(self.number).and_then(|f| f.get());
        if let Some((_, kind)) = fault.filter(|(hits, _)| hits(request.op)) {
            return Err(IoError::new(kind, "as told"));
        }
        if self.seen.broken.get() == Some(self.number) && request.op != Operation::Read {
            return Err(IoError::new(ErrorKind::Media, "as told"));
        }
        let mut unreadable = self.seen.unreadable.borrow_mut();
        let first = request.range.start.0;
        let mut blocks = (first..first + u64::from(request.range.count)).map(|b| (self.number, b));
        match request.op {
            Operation::Read if blocks.any(|block| unreadable.contains(&block)) => {
                return Err(IoError::new(ErrorKind::Media, "as told"));
            }
            Operation::Write(_)
                if blocks
                    .clone()
                    .any(|block| self.seen.unwritable.borrow().contains(&block)) =>
            {
                return Err(IoError::new(ErrorKind::Media, "as told"));
            }
            Operation::Write(_) => blocks.for_each(|block| {
                unreadable.remove(&block);
            }),
            _ => {}
        }
        Ok(())
    }
}

impl BlockDevice for Memory {
    fn geometry(&self) -> Geometry {
        let bytes = self.medium.borrow().len() as u64;
        Geometry {
            deallocates: self.seen.deallocates.get(),
            ..Geometry::plain(BlockSize::B4096, bytes / 4096)
        }
    }
    fn submit(&mut self, mut request: Request) {
        if self
            .seen
            .held
            .get()
            .is_some_and(|is_held| is_held(request.op))
        {
            return self.held.push(request);
        }
        let at = request.range.start.0 as usize * 4096;
        self.seen.log.borrow_mut().push((self.number, request.op));
        if let Err(error) = self.fault(&request) {
            return self.done.push(request.complete(Err(error)));
        }
        if let Operation::Write(_) = request.op {
            let write = (self.number, request.range.start.0, request.op);
            self.seen.writes.borrow_mut().push(write);
        }
        let mut medium = self.medium.borrow_mut();
        match request.op {
            Operation::WriteZeroes { .. } => {
                medium[at..at + request.range.count as usize * 4096].fill(0);
            }
            Operation::Deallocate => {
                medium[at..at + request.range.count as usize * 4096].fill(0xdd);
            }
            _ => {}
        }
        if let Some(buffer) = &mut request.buffer {
            let place = &mut medium[at..at + buffer.len()];
            match request.op {
                Operation::Read => buffer.copy_from_slice(place),
                _ => place.copy_from_slice(buffer),
            }
        }
        self.done.push(request.complete(Ok(())));
    }
    fn poll(&mut self, _now: Moment, done: &mut Vec<Completion>) {
        let released = match self.seen.held.get() {
            _ if self.seen.stuck.get() == Some(self.number) => |_| false,
            None => |_| true,
            Some(_) => self.seen.released.get().unwrap_or(|_| false),
        };
        let goes_on = |request: &mut Request| released(request.op);
        let requests: Vec<Request> = self.held.extract_if(.., goes_on).collect();
        for request in requests {
            self.submit(request);
        }
        done.append(&mut self.done);
    }
    fn describe(&self) -> Description {
        Description::leaf("memory")
    }
}

fn device(number: usize, medium: &Medium, seen: &Seen) -> Box<dyn BlockDevice> {
    Box::new(Memory {
        medium: medium.clone(),
        number,
        seen: seen.clone(),
        held: Vec::new(),
        done: Vec::new(),
    })
}

fn devices(media: &[Medium], seen: &Seen) -> Vec<Box<dyn BlockDevice>> {
    let numbered = media.iter().enumerate();
    let open = |(number, medium)| device(number, medium, seen);
    numbered.map(open).collect()
}

pub fn small_sizes() -> Sizes {
    Sizes {
        extent_shift: 16,
        chunk_extents: 8,
        ring_chunks: 4,
        map_chunks: 4,
        segment_slots: 16,
        batch_bytes: 128 << 10,
    }
}

/// The newest root that a drive has.
fn newest_root(medium: &Medium) -> Root {
    let medium = medium.borrow();
    let roots = ROOT_AT.map(|at| Root::decode(&medium[at as usize..], SALT));
    let roots = roots.into_iter().flatten();
    roots.max_by_key(|root| root.generation).expect("a root")
}

/// A byte of a drive.
#[derive(Clone, Copy)]
pub struct Spot {
    pub drive: usize,
    pub byte: usize,
}

/// Changes a bit there; the next time it is as it was.
pub fn flip(media: &[Medium], spots: &[Spot]) {
    for spot in spots {
        media[spot.drive].borrow_mut()[spot.byte + 100] ^= 1;
    }
}

/// Where the copies of a leaf of a volume's map begin, by the first drive's root. It is in the volume's first table.
pub fn leaf_spots(media: &[Medium], volume: u32, leaf: usize) -> Vec<Spot> {
    let root = newest_root(&media[0]);
    let spots = |place: u64| -> Vec<Spot> {
        let mut segments = root.meta.iter();
        let segment = segments.find(|segment| u64::from(segment.id) == place >> 16);
        let columns = segment.expect("its segment").columns.iter();
        let spot = |copy: &ChunkCopy| Spot {
            drive: copy.drive.into(),
            byte: (small_sizes().extent_at(copy.extent) + (place & 0xFFFF) * 4096) as usize,
        };
        columns.map(spot).collect()
    };
    let read = |place: u64| {
        let serves = |spot: &Spot| root.members[spot.drive].state.in_service();
        let pages = spots(place).into_iter().filter(serves).filter_map(|spot| {
            let medium = media[spot.drive].borrow();
            TablePage::decode(&medium[spot.byte..spot.byte + 4096]).ok()
        });
        let mut pages = pages.collect::<Vec<_>>();
        pages.pop().expect("a copy")
    };
    let top = root.tops.iter().find(|top| top.node == volume);
    let table = read(top.expect("its top").entry.place).0[0];
    spots(read(table.place).0[leaf].place)
}

/// Turns after which whatever is waited for will not come.
const MOST_TURNS: usize = 100_000;

/// A pool and its user.
pub struct Bench {
    pub media: Vec<Medium>,
    pub engine: Engine,
    pub seen: Seen,
    /// Requests that drives will still take before the process dies.
    pub budget: Option<usize>,
    /// Whether volumes that are made stop when a copy is missing.
    pub stops: bool,
    /// The class of new volumes.
    pub class: Option<DriveClass>,
    /// The class of new drives.
    pub new_class: DriveClass,
    /// Whether the engine may stop.
    pub may_fail: bool,
    drives: DriveTable,
    pub buffers: BufferPool,
    out: Outbox,
    now: Moment,
    next: u64,
}

impl Bench {
    pub fn new(drives: usize, bytes: usize) -> Self {
        Self::with_sizes(drives, bytes, small_sizes())
    }

    pub fn with_sizes(drives: usize, bytes: usize, sizes: Sizes) -> Self {
        Self::of_classes(&vec![DriveClass::Nvme; drives], bytes, sizes)
    }

    /// A pool of drives of these classes.
    pub fn of_classes(classes: &[DriveClass], bytes: usize, sizes: Sizes) -> Self {
        let drives = classes.len();
        let media: Vec<Medium> = (0..drives)
            .map(|_| Rc::new(RefCell::new(vec![0; bytes])))
            .collect();
        let plan = PoolPlan {
            name: "tank".into(),
            pool: Uuid::from_u128(1),
            salt: SALT,
            sizes,
            log_copies: drives.min(2) as u8,
            reserve: Reserve::None,
            drives: (0..drives)
                .map(|i| DrivePlan {
                    uuid: Uuid::from_u128(100 + i as u128),
                    class: classes[i],
                })
                .collect(),
        };
        let mut all = Drives::new(
            devices(&media, &Seen::default()),
            Box::new(|| Moment::ORIGIN),
        );
        format(&mut all, &plan).expect("format");
        Self::open(media)
    }

    pub fn open(media: Vec<Medium>) -> Self {
        Self::try_open(media, false).expect("import")
    }

    pub fn try_open(media: Vec<Medium>, degraded: bool) -> Result<Self, PoolError> {
        Self::open_with(
            media,
            &ImportOptions {
                degraded,
                ..ImportOptions::default()
            },
        )
    }

    pub fn open_with(media: Vec<Medium>, options: &ImportOptions) -> Result<Self, PoolError> {
        Self::open_seen(media, options, Seen::default())
    }

    /// The same, of drives to which something has happened already.
    pub fn open_seen(
        media: Vec<Medium>,
        options: &ImportOptions,
        seen: Seen,
    ) -> Result<Self, PoolError> {
        let drives = Drives::new(devices(&media, &seen), Box::new(|| Moment::ORIGIN));
        Self::open_drives(media, drives, options, seen)
    }

    /// The same, with this memory to read the drives.
    pub fn open_short(media: Vec<Medium>, buffers: BufferPool) -> Result<Self, PoolError> {
        let seen = Seen::default();
        let drives = Drives::new(devices(&media, &seen), Box::new(|| Moment::ORIGIN));
        let drives = drives.with_buffers(buffers);
        Self::open_drives(media, drives, &ImportOptions::default(), seen)
    }

    fn open_drives(
        media: Vec<Medium>,
        drives: Drives,
        options: &ImportOptions,
        seen: Seen,
    ) -> Result<Self, PoolError> {
        let Imported { engine, drives } = import(drives, options)?;
        Ok(Self {
            media,
            engine,
            seen,
            budget: None,
            stops: false,
            class: None,
            new_class: DriveClass::Nvme,
            may_fail: false,
            drives: DriveTable::new(drives),
            buffers: BufferPool::new(64 << 20),
            out: Outbox::default(),
            now: Moment::ORIGIN,
            next: 1,
        })
    }

    /// A drive as imports get it.
    pub fn device(medium: &Medium) -> Box<dyn BlockDevice> {
        device(0, medium, &Seen::default())
    }

    /// A drive with the label of the next member.
    fn enlist(&mut self, drive: Uuid, medium: Medium) -> (Medium, Drives) {
        let bytes = medium.borrow().len();
        let label = Label {
            drive,
            index: self.engine.next_member().expect("a number"),
            class: self.new_class,
            bytes: bytes as u64,
            ..self.engine.label().clone()
        };
        let mut new = Drives::new(
            vec![device(self.media.len(), &medium, &self.seen)],
            Box::new(|| Moment::ORIGIN),
        );
        enlist(&mut new, 0, &label).expect("enlist");
        (medium, new)
    }

    /// A drive with the label of the next member, and the process dies before it is one.
    pub fn enlist_only(&mut self, bytes: usize) -> Medium {
        self.enlist(Uuid::from_u128(300), Rc::new(RefCell::new(vec![0; bytes])))
            .0
    }

    /// Makes another drive a member.
    pub fn add_drive(&mut self, bytes: usize) {
        self.add_medium(Rc::new(RefCell::new(vec![0; bytes])));
    }

    /// Makes a drive a member that may have been one of another pool, or of this.
    pub fn add_medium(&mut self, medium: Medium) {
        let bytes = medium.borrow().len();
        let drive = Uuid::from_u128(200 + self.media.len() as u128);
        let (medium, new) = self.enlist(drive, medium);
        let member = self.engine.next_member().expect("a number");
        let opened = new.into_devices().pop().flatten().expect("it is open");
        self.drives.join(member.into(), opened);
        self.media.push(medium);
        let geometry = Geometry::plain(BlockSize::B4096, bytes as u64 / 4096);
        self.manage(Manage::AddDrive {
            drive,
            member,
            geometry,
            class: self.new_class,
        })
        .expect("add");
    }

    /// Has a drive that was left out take part again.
    pub fn readmit(&mut self, member: usize) -> Result<Managed, IoError> {
        let wish = self.readmission(member);
        self.manage(wish)
    }

    /// The wish that a drive that was left out takes part again; from now on it can be asked for something.
    pub fn readmission(&mut self, member: usize) -> Manage {
        let medium = &self.media[member];
        let open = || device(member, medium, &self.seen);
        let mut drives = Drives::new(vec![open()], Box::new(|| Moment::ORIGIN));
        let back = Comeback::read(&mut drives, 0).expect("a label");
        self.drives.join(member, open());
        Manage::ReadmitDrive(Box::new(back))
    }

    /// Another drive is in a drive's place, with nothing on it.
    pub fn wipe(&self, member: usize) {
        self.media[member].borrow_mut()[..1 << 20].fill(0);
    }

    /// The process dies and another imports the pool.
    pub fn restart(self) -> Self {
        Self::open(self.media)
    }

    /// The newest root, as the first drive has it.
    pub fn root(&self) -> Root {
        newest_root(&self.media[0])
    }

    /// Every drive and block that holds this granule.
    pub fn places(&self, granule: &[u8]) -> Vec<(usize, u64)> {
        let mut found = Vec::new();
        for (drive, medium) in self.media.iter().enumerate() {
            let medium = medium.borrow();
            let blocks = (0u64..).zip(medium.chunks(4096));
            found
                .extend(blocks.filter_map(|(at, block)| (block == granule).then_some((drive, at))));
        }
        found
    }

    /// Feeds the engine until nothing happens any more.
    pub fn run(&mut self, event: Event) -> Answers {
        let mut answers = Answers::default();
        let what = format!("{event:?}");
        self.engine.handle(self.now, event, &mut self.out);
        for _ in 0..MOST_TURNS {
            if !self.turn(&mut answers) {
                if !self.may_fail {
                    assert_eq!(self.engine.failure(), None);
                }
                return answers;
            }
        }
        let waiting: String = what.chars().take(200).collect();
        panic!("the engine never rests, {MOST_TURNS} turns after {waiting}")
    }

    /// Drives do what they are asked, and the engine is told; whether anything happened.
    pub fn turn(&mut self, (done, managed): &mut Answers) -> bool {
        for (drive, request) in self.out.io.drain(..) {
            match &mut self.budget {
                Some(0) => continue,
                Some(left) => *left -= 1,
                None => {}
            }
            let sent = self.drives.submit(drive, request);
            sent.expect("a drive in service");
        }
        done.append(&mut self.out.done);
        managed.append(&mut self.out.managed);
        let mut any = false;
        self.drives.poll(self.now, |drive, completion| {
            any = true;
            let event = Event::Done { drive, completion };
            self.engine.handle(self.now, event, &mut self.out);
        });
        if self.engine.next_deadline().is_some_and(|at| at <= self.now) {
            any = true;
            self.engine.handle(self.now, Event::Tick, &mut self.out);
        }
        any
    }

    /// What the node is to store that the engine has handed over since.
    pub fn membership(&mut self) -> Option<Membership> {
        self.out.membership.take()
    }

    /// Gives the engine something that it does when it runs next.
    pub fn post(&mut self, event: Event) {
        self.engine.post(self.now, event, &mut self.out);
    }

    /// Keeps writes of one granule in flight, all over a volume, until `done` or so many turns of every
    /// drive. Whether it was done.
    pub fn run_loaded(
        &mut self,
        (volume, granules): (u32, u64),
        turns: usize,
        done: impl Fn(&Engine) -> bool,
    ) -> bool {
        let (mut flying, mut next) = (0, 0u64);
        for _ in 0..turns {
            while flying < 128 {
                flying += 1;
                next += 1;
                let mut buffer = self.buffers.get(4096).expect("buffer");
                buffer.fill(next as u8);
                let range = BlockRange::new(next * 37 % granules, 1);
                let request = Request::write(1, range, buffer, Durability::Cached);
                let event = Event::Command { volume, request };
                self.engine.post(self.now, event, &mut self.out);
            }
            self.engine.handle(self.now, Event::Tick, &mut self.out);
            for (drive, request) in std::mem::take(&mut self.out.io) {
                self.drives.submit(drive, request).ok();
            }
            self.drives.poll(self.now, |drive, completion| {
                let event = Event::Done { drive, completion };
                self.engine.handle(self.now, event, &mut self.out);
            });
            assert_eq!(self.engine.failure(), None);
            flying -= self.out.done.drain(..).count();
            if done(&self.engine) {
                self.run(Event::Tick);
                return true;
            }
        }
        false
    }

    /// Lets time pass; returns what was answered by then.
    pub fn pass(&mut self, nanos: u64) -> Answers {
        self.later(nanos);
        self.run(Event::Tick)
    }

    /// The same, and the engine hears of it when something else happens.
    pub fn later(&mut self, nanos: u64) {
        self.now = Moment::from_nanos(self.now.as_nanos() + nanos);
    }

    pub fn manage(&mut self, what: Manage) -> Result<Managed, IoError> {
        self.next += 1;
        let (_, mut managed) = self.run(Event::Manage {
            id: self.next,
            what,
        });
        assert_eq!(managed.len(), 1);
        managed.remove(0).1
    }

    /// Answers to `Manage` requests that come together.
    pub fn manage_together<const N: usize>(
        &mut self,
        wishes: [Manage; N],
    ) -> Vec<Result<Managed, IoError>> {
        let first = self.next + 1;
        for what in wishes {
            self.next += 1;
            let event = Event::Manage {
                id: self.next,
                what,
            };
            self.engine.post(self.now, event, &mut self.out);
        }
        let (_, mut managed) = self.run(Event::Tick);
        assert_eq!(managed.len() as u64, self.next + 1 - first);
        managed.sort_by_key(|(id, _)| *id);
        managed.into_iter().map(|(_, answer)| answer).collect()
    }

    /// What is answered to a wish when the process dies after so many requests to drives.
    pub fn manage_cut(&mut self, what: Manage, budget: usize) -> Option<Result<Managed, IoError>> {
        self.next += 1;
        self.budget = Some(budget);
        let id = self.next;
        let (_, mut managed) = self.run(Event::Manage { id, what });
        managed.pop().map(|(_, answer)| answer)
    }

    pub fn volume(&mut self, granules: u64, copies: u8) -> u32 {
        self.volume_as(granules, Layout::Mirror { copies })
            .expect("create")
    }

    pub fn volume_as(&mut self, granules: u64, layout: Layout) -> Result<u32, IoError> {
        self.volume_of(granules, layout, None)
    }

    /// A volume that is not there yet.
    pub fn plan(&self, granules: u64, layout: Layout) -> VolumePlan {
        VolumePlan {
            name: format!("v{}", self.next),
            uuid: Uuid::from_u128(u128::from(self.next)),
            granules,
            layout,
            grain: None,
            stops: self.stops,
            class: self.class,
            is_cache: false,
            hot: None,
        }
    }

    pub fn volume_of(
        &mut self,
        granules: u64,
        layout: Layout,
        grain: Option<Grain>,
    ) -> Result<u32, IoError> {
        let plan = VolumePlan {
            grain,
            ..self.plan(granules, layout)
        };
        match self.manage(Manage::CreateVolume(plan))? {
            Managed::Volume(number) => Ok(number),
            other => panic!("{other:?}"),
        }
    }

    pub fn command(&mut self, volume: u32, request: Request) -> Completion {
        let (mut done, _) = self.run(Event::Command { volume, request });
        assert_eq!(done.len(), 1, "one answer");
        done.remove(0)
    }

    /// Gives the engine a command, and drives what it wants of them; nothing is waited for.
    pub fn begin(&mut self, volume: u32, request: Request) {
        let event = Event::Command { volume, request };
        self.engine.handle(self.now, event, &mut self.out);
        for (drive, request) in std::mem::take(&mut self.out.io) {
            let sent = self.drives.submit(drive, request);
            sent.expect("a drive in service");
        }
    }

    pub fn write(&mut self, volume: u32, first: u64, data: &[u8]) -> Result<(), IoError> {
        let request = self.request(first, data);
        self.command(volume, request).result
    }

    /// A write, to be given to the engine.
    pub fn request(&mut self, first: u64, data: &[u8]) -> Request {
        let mut buffer = self.buffers.get(data.len()).expect("buffer");
        buffer.copy_from_slice(data);
        let range = BlockRange::new(first, (data.len() / 4096) as u32);
        Request::write(1, range, buffer, Durability::Cached)
    }

    /// Writes `data` at all these places at once.
    pub fn write_at_once(&mut self, volume: u32, places: &[u64], data: &[u8]) {
        let mut requests: Vec<Request> = places.iter().map(|&at| self.request(at, data)).collect();
        let last = requests.pop().expect("a place");
        for request in requests {
            let event = Event::Command { volume, request };
            self.engine.handle(self.now, event, &mut self.out);
        }
        let request = last;
        let (done, _) = self.run(Event::Command { volume, request });
        assert_eq!(done.len(), places.len());
        assert!(done.iter().all(|one| one.result.is_ok()), "{done:?}");
    }

    pub fn read(&mut self, volume: u32, first: u64, granules: usize) -> Result<Vec<u8>, IoError> {
        let buffer = self.buffers.get(granules * 4096).expect("buffer");
        let done = self.command(
            volume,
            Request::read(1, BlockRange::new(first, granules as u32), buffer),
        );
        done.result.map(|()| done.buffer.expect("buffer").to_vec())
    }

    pub fn clear(&mut self, volume: u32, first: u64, granules: u32) -> Result<(), IoError> {
        self.without_data(volume, Operation::Deallocate, first, granules)
    }

    pub fn without_data(
        &mut self,
        volume: u32,
        op: Operation,
        first: u64,
        granules: u32,
    ) -> Result<(), IoError> {
        let request = Request {
            tag: 1,
            op,
            range: BlockRange::new(first, granules),
            buffer: None,
        };
        self.command(volume, request).result
    }
}
