//! The opened drives of a pool in service: what every driver of an engine has, whatever its time comes from.

use std::fmt;

use ashlar_block::{BlockDevice, Completion, ErrorKind, IoError, Moment, Operation, Request};

/// Set in the tag of a read that is with a drive: a completion says no more of what it completes, for a write gives
/// its buffer back, too. The engine's tags are below it.
const READ: u64 = 1 << 63;

/// Opened drives, at the numbers of their members. Takes what an engine asks for
/// ([`Outbox::io`](crate::Outbox::io)) and says what the drives have answered, for
/// [`Event::Done`](crate::Event::Done).
#[derive(Default)]
pub struct DriveTable {
    places: Vec<Place>,
    polled: Vec<Completion>,
    bytes: DriveBytes,
}

/// What went to and came from drives, those that have left included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveBytes {
    /// Read, or asked for.
    pub read: u64,
    pub written: u64,
}

/// Requests of one drive that have failed; not those that it could not do just then, for these say nothing of what
/// it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveErrors {
    pub reads: u64,
    /// All others.
    pub writes: u64,
}

#[derive(Default)]
struct Place {
    device: Option<Box<dyn BlockDevice>>,
    /// Requests that the drive has.
    flying: u32,
    errors: DriveErrors,
}

impl Place {
    fn of(device: Option<Box<dyn BlockDevice>>) -> Self {
        Self {
            device,
            ..Self::default()
        }
    }

    /// The drive has answered; the tag is the engine's again.
    fn answered(&mut self, completion: &mut Completion) {
        self.flying = self.flying.saturating_sub(1);
        let is_read = completion.tag & READ != 0;
        completion.tag &= !READ;
        let is_error =
            |error: &IoError| !matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Exhausted);
        if completion.result.as_ref().is_err_and(is_error) {
            match is_read {
                true => self.errors.reads += 1,
                false => self.errors.writes += 1,
            }
        }
    }
}

/// A request for a drive that is not here.
#[derive(Debug)]
pub struct Missing {
    drive: usize,
    request: Request,
}

impl Missing {
    /// What an engine is told of it.
    pub fn completion(self) -> Completion {
        let why = format!("drive {} is missing", self.drive);
        let error = IoError::new(ErrorKind::NotSent, why);
        self.request.complete(Err(error))
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { op, range, .. } = self.request;
        let drive = self.drive;
        write!(
            f,
            "the engine asks drive {drive}, which is missing, for {op:?} of {range}"
        )
    }
}

impl DriveTable {
    /// These drives; those of members that are missing are `None`.
    pub fn new(devices: Vec<Option<Box<dyn BlockDevice>>>) -> Self {
        Self {
            places: devices.into_iter().map(Place::of).collect(),
            ..Self::default()
        }
    }

    /// Places, with a drive or without.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether a member's drive is open.
    pub fn is_open(&self, member: usize) -> bool {
        let place = self.places.get(member);
        place.is_some_and(|place| place.device.is_some())
    }

    /// A drive is the member's from now on: of a new member behind the last, too.
    pub fn join(&mut self, member: usize, device: Box<dyn BlockDevice>) {
        if member >= self.places.len() {
            self.places.resize_with(member + 1, Place::default);
        }
        self.places[member] = Place::of(Some(device));
    }

    /// A member's drive is open again; false if there is no such member, or if its drive is open.
    pub fn reopen(&mut self, member: usize, device: Box<dyn BlockDevice>) -> bool {
        let place = self.places.get_mut(member);
        let place = place.filter(|place| place.device.is_none());
        place.map(|place| place.device = Some(device)).is_some()
    }

    /// Lets go of a member's drive; what it has not answered is never answered.
    pub fn close(&mut self, member: usize) {
        if let Some(place) = self.places.get_mut(member) {
            place.device = None;
            place.flying = 0;
        }
    }

    /// Lets go of drives that have no request and that `is_used` does not name: they may be pulled, or used for
    /// something else.
    pub fn close_unused(&mut self, is_used: impl Fn(usize) -> bool) {
        for (member, place) in self.places.iter_mut().enumerate() {
            if place.flying == 0 && !is_used(member) {
                place.device = None;
            }
        }
    }

    /// There are no more members than so many.
    pub fn truncate(&mut self, members: usize) {
        self.places.truncate(members);
    }

    /// A member's drive.
    pub fn device(&mut self, member: usize) -> Option<&mut (dyn BlockDevice + 'static)> {
        self.places.get_mut(member)?.device.as_deref_mut()
    }

    /// Hands a drive what it is asked for.
    ///
    /// # Errors
    /// It is not here: the request back.
    pub fn submit(&mut self, drive: usize, mut request: Request) -> Result<(), Missing> {
        let place = self.places.get_mut(drive);
        let Some((device, flying)) =
            place.and_then(|place| Some((place.device.as_mut()?, &mut place.flying)))
        else {
            return Err(Missing { drive, request });
        };
        debug_assert_eq!(request.tag & READ, 0, "a tag of the table's own");
        let bytes = request.buffer.as_ref().map_or(0, |buffer| buffer.len());
        match request.op {
            Operation::Read => self.bytes.read += bytes as u64,
            _ => self.bytes.written += bytes as u64,
        }
        if request.op == Operation::Read {
            request.tag |= READ;
        }
        *flying += 1;
        device.submit(request);
        Ok(())
    }

    /// Hands on what drives have answered, in the order of their numbers.
    pub fn poll(&mut self, now: Moment, mut tell: impl FnMut(usize, Completion)) {
        for (drive, place) in self.places.iter_mut().enumerate() {
            let Some(device) = &mut place.device else {
                continue;
            };
            device.poll(now, &mut self.polled);
            for mut completion in self.polled.drain(..) {
                place.answered(&mut completion);
                tell(drive, completion);
            }
        }
    }

    /// When [`poll`](Self::poll) must be called next even if nothing happens.
    pub fn next_deadline(&self) -> Option<Moment> {
        let devices = self.places.iter().filter_map(|place| place.device.as_ref());
        devices.filter_map(|device| device.next_deadline()).min()
    }

    /// What has gone to and come from drives.
    pub fn bytes(&self) -> DriveBytes {
        self.bytes
    }

    /// By member: what has failed since its drive joined.
    pub fn errors(&self) -> Vec<DriveErrors> {
        self.places.iter().map(|place| place.errors).collect()
    }
}

#[cfg(test)]
mod tests {
    use ashlar_block::{BlockRange, BlockSize, BufferPool, Description, Geometry};

    use super::*;

    /// Answers what it is asked at the next poll: reads of block 1 fail, of block 2 there is no memory for.
    #[derive(Default)]
    struct Device(Vec<Request>);

    impl BlockDevice for Device {
        fn geometry(&self) -> Geometry {
            Geometry::plain(BlockSize::B4096, 8)
        }

        fn describe(&self) -> Description {
            Description::leaf("a device")
        }

        fn submit(&mut self, request: Request) {
            self.0.push(request);
        }

        fn poll(&mut self, _: Moment, done: &mut Vec<Completion>) {
            done.extend(self.0.drain(..).map(|request| {
                let error = |kind| Err(IoError::new(kind, "no"));
                let result = match request.range.start.0 {
                    1 => error(ErrorKind::Media),
                    2 => error(ErrorKind::Exhausted),
                    _ => Ok(()),
                };
                request.complete(result)
            }));
        }
    }

    fn read(tag: u64, block: u64) -> Request {
        let buffer = BufferPool::new(8192).get(4096).expect("memory");
        Request::read(tag, BlockRange::new(block, 1), buffer)
    }

    #[test]
    fn what_a_drive_answers_is_told_with_the_engine_s_tag_and_counted() {
        let mut table = DriveTable::new(vec![None]);
        table.join(1, Box::new(Device::default()));
        for block in 0..3 {
            table.submit(1, read(7 + block, block)).expect("it is open");
        }
        table.close_unused(|_| false);
        assert!(table.is_open(1), "it has requests");
        let mut told = Vec::new();
        table.poll(Moment::ORIGIN, |drive, done| told.push((drive, done.tag)));
        assert_eq!(told, [(1, 7), (1, 8), (1, 9)]);
        let failed = DriveErrors {
            reads: 1,
            writes: 0,
        };
        assert_eq!(table.errors(), [DriveErrors::default(), failed]);
        assert_eq!(table.bytes().read, 3 * 4096);
        table.close_unused(|_| false);
        assert!(!table.is_open(1));
        assert!(table.reopen(1, Box::new(Device::default())));
        assert!(!table.reopen(1, Box::new(Device::default())), "it is open");
        assert_eq!(table.errors()[1], failed);
        // What is closed with requests does not answer them: the next one of this member has none.
        table.submit(1, read(7, 0)).expect("it is open");
        table.close(1);
        assert!(table.reopen(1, Box::new(Device::default())));
        table.close_unused(|_| false);
        assert!(!table.is_open(1), "it waits for a drive that is gone");
    }

    #[test]
    fn a_drive_that_is_missing_gives_the_request_back() {
        let mut table = DriveTable::new(vec![None]);
        for drive in [0, 1] {
            let missing = table.submit(drive, read(9, 3)).expect_err("no drive");
            let text = missing.to_string();
            assert!(
                text.contains(&format!("asks drive {drive}, which is missing")),
                "{text}"
            );
            let completion = missing.completion();
            assert_eq!(completion.tag, 9);
            assert_eq!(
                completion.result.map_err(|error| error.kind()),
                Err(ErrorKind::NotSent)
            );
        }
    }
}
