use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use ashlar_block::{
    BlockDevice, BlockSize, Completion, ErrorKind, Geometry, IoError, Moment, Operation, Request,
};
use ashlar_cache::{Cache, Header, Identity, Layout, Other, Side};
use ashlar_nvme_target::server::Resident;
use ashlar_reactor::{Handle, Mailbox, Opener};
use slab::Slab;
use tracing::{info, warn};
use uuid::Uuid;

use super::link::{CacheLink, CacheView, Mail};
use crate::pool::{RemotePort, VolumeTraffic};

/// Rounds of a turn: devices that answer at once must not keep the core.
const ROUNDS: usize = 8;

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The hosts that live on this thread, by number.
    static HERE: RefCell<BTreeMap<u64, Rc<RefCell<Host>>>> = const { RefCell::new(BTreeMap::new()) };
}

/// A cache that is to come into service.
pub(crate) enum Start {
    /// One that does not exist yet.
    New(Header),
    /// One that does, and how its backing device is called now.
    Known {
        id: Uuid,
        layout: Layout,
        /// Size of the blocks that hosts see.
        blocks: BlockSize,
        backing: String,
        /// What tells that device from others, and what becomes of another.
        identity: Identity,
        other: Other,
        /// A flush has failed of which no host was told.
        is_untold: bool,
    },
}

impl Start {
    /// How the backing device is called.
    fn backing_name(&self) -> String {
        match self {
            Self::New(header) => header.backing.clone(),
            Self::Known { backing, .. } => backing.clone(),
        }
    }

    fn begin(self, backing: Geometry, now: Moment) -> Result<Cache, IoError> {
        match self {
            Self::New(header) => Cache::create(header, backing, now),
            Self::Known {
                id,
                layout,
                blocks,
                backing: name,
                identity,
                other,
                is_untold,
            } => {
                let cache = Cache::open(id, layout, backing, &name, now)?;
                let cache = cache.seen_in(blocks).over(identity, other);
                Ok(cache.after_loss(is_untold))
            }
        }
    }
}

enum From {
    Local(usize),
    Remote(Arc<RemotePort>),
}

/// A command on its way through the cache.
struct Pending {
    from: From,
    tag: u64,
    op: Operation,
    bytes: u64,
    begun: Moment,
}

/// A flush under way, and who waits for it.
struct Flush {
    number: u64,
    waiting: Vec<Sender<Result<(), IoError>>>,
}

/// Requests that a device has.
#[derive(Default)]
struct Outstanding {
    count: usize,
    /// When it has answered last, or was sent the first of them.
    heard: Moment,
}

impl Outstanding {
    fn sent(&mut self, now: Moment) {
        if self.count == 0 {
            self.heard = now;
        }
        self.count += 1;
    }

    fn answered(&mut self, now: Moment) {
        self.count = self.count.saturating_sub(1);
        self.heard = now;
    }

    /// For how long it has answered none of them.
    fn silent(&self, now: Moment) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            _ => now.since(self.heard),
        }
    }
}

/// A cache and its devices, on one thread.
pub(super) struct Host {
    cache: Cache,
    fast: Box<dyn BlockDevice>,
    backing: Box<dyn BlockDevice>,
    backing_name: String,
    /// Requests that are with the devices.
    flying: usize,
    at_backing: Outstanding,
    mail: Mailbox<Mail>,
    now: Moment,
    /// There is more to do at once.
    posted: bool,
    pending: Slab<Pending>,
    ports: Slab<Vec<Completion>>,
    flush: Option<Flush>,
    flushes: u64,
    opening: Vec<Sender<Result<(), IoError>>>,
    resting: Option<Vec<Sender<()>>>,
    traffic: VolumeTraffic,
    /// What the log has been told of the backing device.
    trouble: Option<String>,
    /// The cache looks through its space for what a crash has left there.
    is_sweeping: bool,
    /// Of the blocks that hosts see.
    block_shift: u32,
}

/// A host as the target's core polls it.
pub(crate) struct Settled {
    host: Rc<RefCell<Host>>,
    link: CacheLink,
}

impl Settled {
    /// Opens both devices on this thread's reactor, and begins to open the cache here. With what hosts will see.
    ///
    /// # Errors
    /// A device that cannot be opened, or does not fit.
    pub(crate) fn settle(
        start: Start,
        fast: &dyn Opener,
        backing: &dyn Opener,
        reactor: &Handle,
    ) -> Result<(Self, Geometry), IoError> {
        let (fast, backing) = (fast.open(reactor)?, backing.open(reactor)?);
        let now = reactor.now();
        let backing_name = start.backing_name();
        let cache = start.begin(backing.geometry(), now)?;
        let geometry = cache.geometry();
        let link = CacheLink {
            mail: Mailbox::new(reactor.waker()),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        };
        let host = Rc::new(RefCell::new(Host {
            cache,
            fast,
            backing,
            backing_name,
            flying: 0,
            at_backing: Outstanding::default(),
            mail: link.mail.clone(),
            now,
            posted: true,
            pending: Slab::new(),
            ports: Slab::new(),
            flush: None,
            flushes: 0,
            opening: Vec::new(),
            resting: None,
            traffic: VolumeTraffic::default(),
            trouble: None,
            is_sweeping: false,
            block_shift: geometry.block_size.shift(),
        }));
        HERE.with_borrow_mut(|here| here.insert(link.number, host.clone()));
        Ok((Self { host, link }, geometry))
    }

    /// How other threads reach it.
    pub(crate) fn link(&self) -> CacheLink {
        self.link.clone()
    }
}

impl Resident for Settled {
    fn poll(&mut self, now: Moment) {
        self.host.borrow_mut().turn(now);
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.host.borrow().next_deadline()
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        HERE.with_borrow_mut(|here| here.remove(&self.link.number));
    }
}

/// Answers all who wait for a flush; whether any is still there.
fn is_heard(waiting: Vec<Sender<Result<(), IoError>>>, result: &Result<(), IoError>) -> bool {
    let again = || match result {
        Ok(()) => Ok(()),
        Err(error) => Err(IoError::new(error.kind(), error.context().to_owned())),
    };
    let heard = waiting.into_iter().map(|reply| reply.send(again()).is_ok());
    heard.fold(false, |any, one| any | one)
}

impl Host {
    /// The host of a cache, if it lives on this thread.
    pub(super) fn here(link: &CacheLink) -> Option<Rc<RefCell<Self>>> {
        HERE.with_borrow(|here| here.get(&link.number).cloned())
    }

    pub(super) fn add_port(&mut self) -> usize {
        self.ports.insert(Vec::new())
    }

    pub(super) fn remove_port(&mut self, port: usize) {
        self.ports.try_remove(port);
    }

    pub(super) fn take_done(&mut self, port: usize, into: &mut Vec<Completion>) {
        if let Some(done) = self.ports.get_mut(port) {
            into.append(done);
        }
    }

    /// Whether something waits to be taken by [`take_done`](Self::take_done).
    pub(super) fn has_done(&self, port: usize) -> bool {
        self.ports.get(port).is_some_and(|done| !done.is_empty())
    }

    /// The moment of the last turn.
    pub(super) fn now(&self) -> Moment {
        self.now
    }

    pub(super) fn local_command(&mut self, port: usize, request: Request) {
        self.command(From::Local(port), request);
    }

    fn command(&mut self, from: From, mut request: Request) {
        self.traffic.in_flight += 1;
        let key = self.pending.insert(Pending {
            from,
            tag: request.tag,
            op: request.op,
            bytes: u64::from(request.range.count) << self.block_shift,
            begun: self.now,
        });
        request.tag = key as u64;
        self.cache.submit(request);
        self.posted = true;
    }

    /// Does everything that can be done now.
    pub(super) fn turn(&mut self, now: Moment) {
        self.now = now;
        self.cache.it_is(now);
        self.read_mail();
        self.posted = false;
        for round in 0.. {
            let mut done = Vec::new();
            self.fast.poll(now, &mut done);
            self.completed(Side::Fast, &mut done);
            self.backing.poll(now, &mut done);
            self.completed(Side::Backing, &mut done);
            self.cache.advance(now);
            let mut io = Vec::new();
            self.cache.take(&mut io, &mut done);
            self.deliver(done);
            if io.is_empty() {
                break;
            }
            self.send(io);
            if round == ROUNDS {
                self.posted = true;
                break;
            }
        }
        self.answer();
        self.log_trouble();
        self.log_sweep();
    }

    fn log_sweep(&mut self) {
        let sweeps = self.cache.is_open() && self.cache.unswept_bytes() > 0;
        if std::mem::replace(&mut self.is_sweeping, sweeps) && !sweeps && self.cache.is_open() {
            let device = &self.backing_name;
            info!(
                device,
                "the cache of {device} has given back what space a crash may have left behind"
            );
        }
    }

    /// Once for each trouble, not for each time that it is tried again.
    fn log_trouble(&mut self) {
        let now = self.cache.trouble();
        if now == self.trouble.as_deref() {
            return;
        }
        let device = &self.backing_name;
        match now {
            Some(why) => warn!(device, "backing device {device} fails: {why}"),
            None => info!(
                device,
                "backing device {device} does what it is asked again"
            ),
        }
        self.trouble = now.map(str::to_owned);
    }

    /// When `turn` must be called next even if nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        if self.posted {
            return Some(self.now);
        }
        let devices = [&self.fast, &self.backing];
        let devices = devices.into_iter().filter_map(|one| one.next_deadline());
        devices.chain(self.cache.next_deadline()).min()
    }

    fn completed(&mut self, side: Side, done: &mut Vec<Completion>) {
        for completion in done.drain(..) {
            self.flying = self.flying.saturating_sub(1);
            if side == Side::Backing {
                self.at_backing.answered(self.now);
            }
            self.cache.completed(side, completion);
        }
    }

    fn send(&mut self, io: Vec<(Side, Request)>) {
        if self.resting.is_some() {
            // The cache goes nowhere from here; what it has promised is where it must be.
            return;
        }
        for (side, request) in io {
            self.flying += 1;
            match side {
                Side::Fast => self.fast.submit(request),
                Side::Backing => {
                    self.at_backing.sent(self.now);
                    self.backing.submit(request);
                }
            }
        }
    }

    fn read_mail(&mut self) {
        while let Some(mail) = self.mail.take() {
            // The sender may have gone: its answer is dropped then.
            match mail {
                Mail::Command(port, request) => self.command(From::Remote(port), request),
                Mail::Flush(reply) => self.begin_flush(reply),
                Mail::Opened(reply) => self.opening.push(reply),
                Mail::Rest(reply) => self.resting.get_or_insert_default().push(reply),
                Mail::Look(reply) => drop(reply.send(CacheView {
                    status: self.cache.status(),
                    traffic: self.traffic,
                    silent: self.at_backing.silent(self.now),
                })),
                Mail::SetRule(id, granules) => self.cache.set_rule(id, granules),
                Mail::RemoveRule(id) => self.cache.remove_rule(id),
                Mail::Newer(reply) => drop(reply.send(self.cache.dirty_ranges())),
            }
        }
    }

    /// One at a time: who comes meanwhile waits for the same.
    fn begin_flush(&mut self, reply: Sender<Result<(), IoError>>) {
        if let Some(flush) = &mut self.flush {
            return flush.waiting.push(reply);
        }
        self.flushes += 1;
        self.cache.flush(self.flushes);
        self.flush = Some(Flush {
            number: self.flushes,
            waiting: vec![reply],
        });
    }

    fn answer(&mut self) {
        for (number, result) in self.cache.take_answers() {
            // One that a crash has interrupted ends with a number that no flush waits for.
            if let Some(flush) = self.flush.take_if(|flush| flush.number == number)
                && !is_heard(flush.waiting, &result)
            {
                self.cache.was_not_heard(number);
            }
        }
        if !self.opening.is_empty() {
            self.answer_opening();
        }
        if let Some(waiting) = self.resting.as_mut().filter(|_| self.flying == 0) {
            for reply in waiting.drain(..) {
                let _ = reply.send(());
            }
        }
    }

    fn answer_opening(&mut self) {
        let failure = self.cache.status().failure;
        if !self.cache.is_open() && failure.is_none() {
            return;
        }
        for reply in std::mem::take(&mut self.opening) {
            let refused = |why| IoError::new(ErrorKind::InvalidRequest, why);
            drop(reply.send(failure.clone().map(refused).map_or(Ok(()), Err)));
        }
    }

    fn deliver(&mut self, done: Vec<Completion>) {
        for mut completion in done {
            let Some(pending) = self.pending.try_remove(completion.tag as usize) else {
                continue;
            };
            self.count(&pending, completion.result.is_err());
            completion.tag = pending.tag;
            match pending.from {
                From::Local(port) => {
                    if let Some(done) = self.ports.get_mut(port) {
                        done.push(completion);
                    }
                }
                From::Remote(port) => port.put(completion),
            }
        }
    }

    fn count(&mut self, pending: &Pending, failed: bool) {
        self.traffic.in_flight = self.traffic.in_flight.saturating_sub(1);
        let nanos = self.now.since(pending.begun).as_nanos();
        let operations = self.traffic.operations_mut(pending.op);
        operations.count += 1;
        operations.bytes += pending.bytes;
        operations.errors += u64::from(failed);
        operations.nanos += u64::try_from(nanos).unwrap_or(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_device_is_silent_while_it_answers_nothing_that_it_has() {
        let at = |seconds| Moment::default() + Duration::from_secs(seconds);
        let mut device = Outstanding::default();
        assert_eq!(device.silent(at(9)), Duration::ZERO, "it has nothing");
        device.sent(at(10));
        device.sent(at(12));
        assert_eq!(device.silent(at(13)), Duration::from_secs(3));
        device.answered(at(14));
        assert_eq!(device.silent(at(20)), Duration::from_secs(6));
        device.answered(at(20));
        assert_eq!(device.silent(at(30)), Duration::ZERO);
        device.sent(at(30));
        assert_eq!(device.silent(at(31)), Duration::from_secs(1));
    }

    #[test]
    fn a_flush_is_heard_if_one_who_asked_for_it_waits() {
        let result = Err(IoError::new(ErrorKind::Media, "lost"));
        let (gone, _) = channel();
        assert!(!is_heard(vec![gone.clone()], &result));
        let (here, answer) = channel();
        assert!(is_heard(vec![here, gone], &result));
        assert!(answer.recv().is_ok_and(|told| told.is_err()));
    }
}
