use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ashlar_block::{
    BlockDevice, BlockRange, BlockSize, BufferPool, Completion, ErrorKind, Geometry, IoBuffer,
    IoError, Moment, Operation, Request,
};

use crate::ring::Copies;
use crate::sizes::GRANULE;

/// How long a drive may take for a request before it counts as failed, unless something else is said.
pub const DRIVE_REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Drives for work that is done step by step: making a pool, importing one. Requests of a batch are
/// on their way together; a batch is waited for.
pub struct Drives {
    devices: Vec<Option<Box<dyn BlockDevice>>>,
    /// Those that are not asked for anything for now, by their numbers.
    aside: BTreeMap<usize, Box<dyn BlockDevice>>,
    /// How people know them.
    names: Vec<String>,
    wait: Box<dyn FnMut() -> Moment>,
    buffers: BufferPool,
    now: Moment,
    /// A drive that has failed a write or a flush.
    broken: Option<usize>,
    /// How long a drive may take for a request.
    timeout: Duration,
    /// Drives that have not answered in that time: nothing more is asked of them.
    hung: BTreeSet<usize>,
    /// The tag of the next request. None comes twice, so that no answer is taken for another's.
    next_tag: u64,
}

/// Memory for the I/O of formats and imports.
const BUFFER_BYTES: usize = 64 << 20;
/// Most bytes read at a time.
const READ_BYTES: usize = 1 << 20;

impl Drives {
    /// Drives in any order. `wait` is called when no device has progressed: it lets time pass (a
    /// reactor's turn, a simulator's step) and says what time it is.
    pub fn new(devices: Vec<Box<dyn BlockDevice>>, wait: Box<dyn FnMut() -> Moment>) -> Self {
        Self {
            names: (0..devices.len()).map(name_by_place).collect(),
            devices: devices.into_iter().map(Some).collect(),
            aside: BTreeMap::new(),
            wait,
            buffers: BufferPool::new(BUFFER_BYTES),
            now: Moment::ORIGIN,
            broken: None,
            timeout: DRIVE_REPLY_TIMEOUT,
            hung: BTreeSet::new(),
            next_tag: 0,
        }
    }

    /// The same with drives that may take so long for a request, not 10 s.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How long a drive may take for a request.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same, with a name for each, as "drive /dev/sda", for what is said of it.
    #[must_use]
    pub fn with_names(self, names: Vec<String>) -> Self {
        Self { names, ..self }
    }

    /// How people know a drive.
    pub(crate) fn name(&self, drive: usize) -> String {
        let name = self.names.get(drive).cloned();
        name.unwrap_or_else(|| name_by_place(drive))
    }

    /// The same, with the owner's memory for their I/O instead of their own.
    #[must_use]
    pub fn with_buffers(self, buffers: BufferPool) -> Self {
        Self { buffers, ..self }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// The devices back; those of members that are missing are `None`.
    pub fn into_devices(self) -> Vec<Option<Box<dyn BlockDevice>>> {
        self.devices
    }

    /// The shape of a drive; of nothing for one that is missing.
    pub(crate) fn geometry(&self, drive: usize) -> Geometry {
        let device = self.devices.get(drive).and_then(Option::as_ref);
        device.map_or(Geometry::plain(BlockSize::B4096, 0), |device| {
            device.geometry()
        })
    }

    /// Whether there is a drive with this number.
    pub(crate) fn is_here(&self, drive: usize) -> bool {
        self.devices.get(drive).is_some_and(Option::is_some)
    }

    /// Whether a drive has answered whatever it was asked, in its time.
    pub fn answers(&self, drive: usize) -> bool {
        !self.hung.contains(&drive)
    }

    /// The drive that has failed a write or a flush, if one has.
    pub(crate) fn take_broken(&mut self) -> Option<usize> {
        self.broken.take()
    }

    /// From here on there is no such drive.
    pub(crate) fn leave_out(&mut self, drive: usize) {
        if let Some(place) = self.devices.get_mut(drive) {
            *place = None;
        }
    }

    /// Until it is put back there is no such drive.
    pub(crate) fn set_aside(&mut self, drive: usize) {
        if let Some(device) = self.devices.get_mut(drive).and_then(Option::take) {
            self.aside.insert(drive, device);
        }
    }

    /// Puts back what was set aside.
    pub(crate) fn put_back(&mut self) {
        for (drive, device) in std::mem::take(&mut self.aside) {
            if let Some(place @ None) = self.devices.get_mut(drive) {
                *place = Some(device);
            }
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// Sets the drives in another order; `order[i]` is where drive `i` is now, if it is here.
    pub(crate) fn arrange(&mut self, order: &[Option<usize>]) {
        let mut old = std::mem::take(&mut self.devices);
        let mut take = |from: &Option<usize>| old.get_mut((*from)?)?.take();
        self.devices = order.iter().map(&mut take).collect();
        let hung = |from: &Option<usize>| from.is_some_and(|from| self.hung.contains(&from));
        let hung = order.iter().enumerate().filter(|(_, from)| hung(from));
        self.hung = hung.map(|(drive, _)| drive).collect();
        let names = order.iter().enumerate();
        let names = names
            .map(|(drive, from)| from.map_or_else(|| name_by_place(drive), |from| self.name(from)));
        self.names = names.collect();
    }

    fn range(&self, drive: usize, at: u64, bytes: usize) -> BlockRange {
        let shift = self.geometry(drive).block_size.shift();
        BlockRange::new(at >> shift, (bytes >> shift) as u32)
    }

    fn buffer(&self, bytes: usize) -> Result<IoBuffer, IoError> {
        let none = || IoError::new(ErrorKind::Exhausted, "no memory for the pool's I/O");
        self.buffers.get(bytes).ok_or_else(none)
    }

    /// Reads `bytes` at `at`, both multiples of 4 KiB.
    pub(crate) fn read(&mut self, drive: usize, at: u64, bytes: usize) -> Result<Vec<u8>, IoError> {
        let mut all = Vec::with_capacity(bytes);
        while all.len() < bytes {
            let step = (bytes - all.len()).min(READ_BYTES);
            let range = self.range(drive, at + all.len() as u64, step);
            let buffer = self.buffer(step)?;
            let done = self
                .run(vec![(drive, Request::read(0, range, buffer))])
                .remove(0);
            done.result?;
            all.extend_from_slice(done.buffer.as_deref().unwrap_or(&[]));
        }
        Ok(all)
    }

    /// Reads a granule at each of these places, all together; nothing where one could not be read.
    pub(crate) fn read_granules(&mut self, places: &[(usize, u64)]) -> Vec<Option<Vec<u8>>> {
        let mut found = Vec::with_capacity(places.len());
        for some in places.chunks(READ_BYTES / GRANULE) {
            let read = self.read_together(some, GRANULE).into_iter();
            found.extend(read.map(|granule| granule.map(|buffer| buffer.to_vec())));
        }
        found
    }

    /// Reads so many bytes, 1 MiB at most, at each of these places, all at the same time; nothing where
    /// they could not be read.
    pub(crate) fn read_together(
        &mut self,
        places: &[(usize, u64)],
        bytes: usize,
    ) -> Vec<Option<IoBuffer>> {
        let mut batch = Vec::with_capacity(places.len());
        for &(drive, at) in places {
            if let Ok(buffer) = self.buffer(bytes) {
                let range = self.range(drive, at, bytes);
                batch.push((drive, Request::read(0, range, buffer)));
            }
        }
        if batch.len() < places.len() {
            return places.iter().map(|_| None).collect();
        }
        let content = |done: Completion| done.buffer.filter(|_| done.result.is_ok());
        self.run(batch).into_iter().map(content).collect()
    }

    /// Writes the same bytes to several places, durably: all of them or an error.
    pub(crate) fn write(&mut self, places: &[(usize, u64)], bytes: &[u8]) -> Result<(), IoError> {
        for (offset, step) in bytes.chunks(READ_BYTES).enumerate() {
            let mut batch = Vec::new();
            for &(drive, at) in places {
                let mut buffer = self.buffer(step.len())?;
                buffer.copy_from_slice(step);
                let range = self.range(drive, at + (offset * READ_BYTES) as u64, step.len());
                let durable = ashlar_block::Durability::Durable;
                batch.push((drive, Request::write(0, range, buffer, durable)));
            }
            self.all_done(batch)?;
        }
        Ok(())
    }

    /// Flushes every drive.
    pub(crate) fn flush(&mut self) -> Result<(), IoError> {
        let here = (0..self.len()).filter(|&drive| self.is_here(drive));
        let all = here.map(|drive| (drive, Request::flush(0))).collect();
        self.all_done(all)
    }

    fn all_done(&mut self, batch: Vec<(usize, Request)>) -> Result<(), IoError> {
        let asked: Vec<_> = batch.iter().map(|(drive, one)| (*drive, one.op)).collect();
        for ((drive, op), done) in asked.into_iter().zip(self.run(batch)) {
            let passes = |error: &IoError| will_pass(op, error);
            if done.result.as_ref().is_err_and(|error| !passes(error)) {
                self.broken = Some(drive);
            }
            done.result?;
        }
        Ok(())
    }

    /// Has a batch done; the completions are in its order.
    fn run(&mut self, batch: Vec<(usize, Request)>) -> Vec<Completion> {
        let mut done: Vec<Option<Completion>> = batch.iter().map(|_| None).collect();
        let mut open = batch.len();
        let first_tag = self.next_tag;
        self.next_tag += batch.len() as u64;
        let drives: Vec<usize> = batch.iter().map(|&(drive, _)| drive).collect();
        let mut completions = Vec::new();
        for (i, (drive, mut request)) in batch.into_iter().enumerate() {
            request.tag = first_tag + i as u64;
            match &mut self.devices[drive] {
                Some(_) if self.hung.contains(&drive) => {
                    completions.push(request.complete(Err(self.no_answer(drive))));
                }
                Some(device) => device.submit(request),
                None => {
                    let missing =
                        IoError::new(ErrorKind::NotSent, format!("drive {drive} is missing"));
                    completions.push(request.complete(Err(missing)));
                }
            }
        }
        // When each drive has answered last; the first wait tells what time it is.
        let mut heard: BTreeMap<usize, Moment> = BTreeMap::new();
        while open > 0 {
            for &drive in &drives {
                if let Some(device) = &mut self.devices[drive] {
                    device.poll(self.now, &mut completions);
                }
            }
            if completions.is_empty() {
                self.now = (self.wait)();
                for &drive in &drives {
                    heard.entry(drive).or_insert(self.now);
                    if let Some(device) = &mut self.devices[drive] {
                        device.poll(self.now, &mut completions);
                    }
                }
                let is_over = |drive: &usize| self.now >= heard[drive] + self.timeout;
                if completions.is_empty() && drives.iter().any(is_over) {
                    let silent = drives.iter().copied().filter(is_over).collect();
                    self.give_up(&silent, (&drives, &done, first_tag), &mut completions);
                }
            }
            for completion in completions.drain(..) {
                // An answer of an earlier batch finds no place.
                let at = completion.tag.checked_sub(first_tag);
                let at = at.map_or(usize::MAX, |at| at as usize);
                if let Some(place @ None) = done.get_mut(at) {
                    heard.insert(drives[at], self.now);
                    *place = Some(completion);
                    open -= 1;
                }
            }
        }
        done.into_iter().flatten().collect()
    }

    fn no_answer(&self, drive: usize) -> IoError {
        let seconds = self.timeout.as_secs_f64();
        let why = format!("{}: no answer for {seconds} s", self.name(drive));
        IoError::new(ErrorKind::Timeout, why)
    }

    /// The time of these drives is over: what they have not answered fails, and they are asked nothing more.
    fn give_up(
        &mut self,
        silent: &BTreeSet<usize>,
        (drives, done, first_tag): (&[usize], &[Option<Completion>], u64),
        completions: &mut Vec<Completion>,
    ) {
        for (i, (&drive, done)) in drives.iter().zip(done).enumerate() {
            if done.is_none() && silent.contains(&drive) {
                self.hung.insert(drive);
                completions.push(Completion {
                    tag: first_tag + i as u64,
                    buffer: None,
                    result: Err(self.no_answer(drive)),
                });
            }
        }
    }

    /// Refuses a drive that a pool cannot use.
    pub(crate) fn check(&self, drive: usize) -> Result<(), String> {
        let geometry = self.geometry(drive);
        let block = geometry.block_size;
        if block != BlockSize::B512 && block != BlockSize::B4096 {
            return Err(format!("blocks of {block} bytes"));
        }
        if geometry.range_bytes(BlockRange::new(0, geometry.max_blocks)) < READ_BYTES {
            return Err("it takes no requests of 1 MiB".into());
        }
        if geometry.bytes() < 8 * GRANULE as u64 {
            return Err(format!("it has only {} bytes", geometry.bytes()));
        }
        Ok(())
    }
}

impl Copies for Drives {
    fn is_here(&self, drive: usize) -> bool {
        Self::is_here(self, drive)
    }

    fn read(&mut self, drive: usize, at: u64, bytes: usize) -> Option<Vec<u8>> {
        Self::read(self, drive, at, bytes).ok()
    }

    fn read_together(&mut self, places: &[(usize, u64)], bytes: usize) -> Vec<Option<IoBuffer>> {
        Self::read_together(self, places, bytes)
    }

    fn write(&mut self, places: &[(usize, u64)], bytes: &[u8]) -> Result<(), IoError> {
        Self::write(self, places, bytes)
    }
}

/// A drive that has no name.
fn name_by_place(drive: usize) -> String {
    format!("drive {drive}")
}
/// Whether a drive may be able to do later what it could not: then it is not out, and who asked is told why. What a
/// flush was for may be lost by then.
fn will_pass(op: Operation, error: &IoError) -> bool {
    let may_pass = matches!(error.kind(), ErrorKind::Exhausted | ErrorKind::NoSpace);
    may_pass && matches!(op, Operation::Write(_))
}
