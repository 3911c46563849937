use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use ashlar_block::{
    Completion, ErrorKind, Geometry, IoError, Moment, Operation, Provenance, Request,
};
use ashlar_copy::NameCount;
use ashlar_reactor::{Handle, Mailbox, Opener};
use ashlar_store::{Comeback, DriveErrors, DriveTable, Engine, Event, Manage, Managed, Outbox};
use slab::Slab;
use tracing::error;

use super::link::{ANSWER_TIMEOUT, Mail, NewDrive, PoolLink, RemotePort, View};
use super::memory::Memory;
use super::news::News;
use super::pace::Paces;
use super::sound::Soundness;
use crate::replica::Replicated;

mod replicas;
#[cfg(test)]
mod tests;

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The hosts that live on this thread, by number.
    static HERE: RefCell<BTreeMap<u64, Rc<RefCell<EngineDriver>>>> = const { RefCell::new(BTreeMap::new()) };
}

/// What has gone through a pool since it was imported, in operations and bytes.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Bytes that hosts have read.
    pub user_read_bytes: u64,
    /// Bytes that hosts have written.
    pub user_written_bytes: u64,
    /// Bytes read from drives.
    pub device_read_bytes: u64,
    /// Bytes written to drives.
    pub device_written_bytes: u64,
    /// By volume.
    pub volumes: BTreeMap<u32, VolumeTraffic>,
    /// The volumes in service and their shapes.
    pub geometries: Vec<(u32, Geometry)>,
    /// By member: reads and writes that have failed.
    pub errors: Vec<DriveErrors>,
}

/// Operations of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Operations {
    pub count: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Of those, failed.
    pub errors: u64,
    /// Sum of their times, in nanoseconds.
    pub nanos: u64,
}

/// What a volume's hosts have done.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeTraffic {
    /// Commands on their way.
    pub in_flight: u64,
    pub read: Operations,
    pub write: Operations,
    pub flush: Operations,
    /// Deallocations and writes of zeroes.
    pub deallocate: Operations,
}

impl VolumeTraffic {
    /// The count that an operation belongs to.
    pub(crate) fn operations_mut(&mut self, op: Operation) -> &mut Operations {
        match op {
            Operation::Read => &mut self.read,
            Operation::Write(_) => &mut self.write,
            Operation::Flush => &mut self.flush,
            Operation::WriteZeroes { .. } | Operation::Deallocate => &mut self.deallocate,
        }
    }
}

enum From {
    Local(usize),
    Remote(Arc<RemotePort>),
}

/// A command on its way through the engine.
struct Pending {
    from: From,
    tag: u64,
    volume: u32,
    op: Operation,
    bytes: u64,
    begun: Moment,
}

/// An engine and its drives, on one thread.
pub struct EngineDriver {
    engine: Engine,
    drives: DriveTable,
    reactor: Handle,
    mail: Mailbox<Mail>,
    out: Outbox,
    now: Moment,
    pending: Slab<Pending>,
    ports: Slab<Vec<Completion>>,
    waiting: Slab<Sender<Result<Managed, IoError>>>,
    /// Something was posted that `handle` must follow.
    posted: bool,
    traffic: Traffic,
    news: News,
    paces: Paces,
    soundness: Soundness,
    /// Copies of replicated volumes that are in service, by volume.
    replicas: BTreeMap<u32, Replicated>,
    /// Volumes that are copies, in service or not.
    copies: BTreeSet<u32>,
    /// By what these, one after the other, count what they ask the engine.
    names: NameCount,
    /// Orders that make copies of volumes, without an answer.
    making: BTreeMap<u64, u32>,
    /// What remembers which drives serve, if anything does.
    memory: Option<Memory>,
}

impl EngineDriver {
    /// Opens the drives on this thread's reactor and settles the engine here.
    ///
    /// # Errors
    /// A drive that cannot be opened.
    pub fn settle(
        engine: Engine,
        drives: &[Option<Arc<dyn Opener>>],
        reactor: &Handle,
        link: &PoolLink,
    ) -> Result<Rc<RefCell<Self>>, IoError> {
        let mut opened = Vec::new();
        for drive in drives {
            opened.push(match drive {
                Some(drive) => Some(drive.open(reactor)?),
                None => None,
            });
        }
        let soundness = Soundness::of(&engine);
        let described = opened.iter().map(|drive| Some(drive.as_ref()?.describe()));
        let news = News::new(&engine, described);
        let copies = engine
            .replicas()
            .list()
            .into_iter()
            .map(|(volume, _)| volume);
        let driver = Rc::new(RefCell::new(Self {
            copies: copies.collect(),
            names: NameCount::default(),
            making: BTreeMap::new(),
            engine,
            drives: DriveTable::new(opened),
            reactor: reactor.clone(),
            mail: link.mail.clone(),
            out: Outbox::default(),
            now: reactor.now(),
            pending: Slab::new(),
            ports: Slab::new(),
            waiting: Slab::new(),
            posted: true,
            traffic: Traffic::default(),
            news,
            paces: Paces::default(),
            soundness,
            replicas: BTreeMap::new(),
            memory: None,
        }));
        HERE.with_borrow_mut(|here| here.insert(link.number, driver.clone()));
        Ok(driver)
    }

    /// From now on which drives serve is remembered there.
    pub fn remember_in(&mut self, memory: Memory) {
        self.memory = Some(memory);
    }

    /// The driver of a pool, if it lives on this thread.
    pub(super) fn here(link: &PoolLink) -> Option<Rc<RefCell<Self>>> {
        HERE.with_borrow(|here| here.get(&link.number).cloned())
    }

    /// Takes the pool off this thread; its drives are let go with the last volume.
    pub fn leave(link: &PoolLink) {
        HERE.with_borrow_mut(|here| here.remove(&link.number));
    }

    /// A link for a driver that will settle on the thread of `reactor`.
    pub fn link(reactor: &Handle) -> PoolLink {
        PoolLink {
            mail: Mailbox::new(reactor.waker()),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            patience: ANSWER_TIMEOUT,
        }
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

    /// A volume as hosts see it: a copy has its register besides.
    pub(super) fn geometry(&self, volume: u32) -> Option<Geometry> {
        let whole = self.engine.geometry(volume)?;
        let register = u64::from(self.copies.contains(&volume));
        let replica = self.replicas.get(&volume);
        let own = || whole.blocks.saturating_sub(register);
        Some(Geometry {
            blocks: replica.map_or_else(own, |one| one.size().hosts()),
            ..whole
        })
    }

    pub(super) fn local_command(&mut self, port: usize, volume: u32, request: Request) {
        self.command(From::Local(port), volume, request, None);
    }

    /// The same, of a host's connection of this core.
    pub(super) fn labelled_command(
        &mut self,
        port: usize,
        volume: u32,
        request: Request,
        provenance: Provenance,
    ) {
        self.command(From::Local(port), volume, request, Some(provenance));
    }

    fn command(
        &mut self,
        from: From,
        volume: u32,
        mut request: Request,
        provenance: Option<Provenance>,
    ) {
        self.traffic.volumes.entry(volume).or_default().in_flight += 1;
        let key = self.pending.insert(Pending {
            from,
            tag: request.tag,
            volume,
            op: request.op,
            bytes: u64::from(request.range.count) * 4096,
            begun: self.now,
        });
        request.tag = key as u64;
        if self.copies.contains(&volume) {
            return self.replica_command(volume, request, provenance);
        }
        self.post(Event::Command { volume, request });
    }

    fn post(&mut self, event: Event) {
        self.engine.post(self.now, event, &mut self.out);
        self.posted = true;
    }

    /// Does everything that can be done now.
    pub fn turn(&mut self, now: Moment) {
        self.now = now;
        self.read_mail();
        self.poll_drives();
        self.turn_replicas();
        let mut deadlines = self
            .engine
            .next_deadline()
            .into_iter()
            .chain(self.news.due());
        if !self.posted && !deadlines.any(|at| at <= now) {
            return;
        }
        self.posted = false;
        self.engine.handle(now, Event::Tick, &mut self.out);
        self.send();
        // What was submitted in this turn goes out in this turn.
        self.poll_drives();
        self.deliver();
        self.turn_replicas();
        self.news.tell(&self.engine, now);
        if self.paces.look(&self.engine, now) {
            self.soundness.look(&self.engine);
        }
        self.drives.close_unused(|drive| self.engine.uses(drive));
    }

    /// When `turn` must be called next even if nothing happens.
    pub fn next_deadline(&self) -> Option<Moment> {
        if self.posted {
            return Some(self.now);
        }
        let drives = self.drives.next_deadline().into_iter();
        let own = self
            .engine
            .next_deadline()
            .into_iter()
            .chain(self.news.due())
            .chain(self.replicas.values().filter_map(Replicated::next_deadline));
        drives.chain(own).min()
    }

    fn read_mail(&mut self) {
        while let Some(mail) = self.mail.take() {
            match mail {
                Mail::Command {
                    port,
                    volume,
                    request,
                } => {
                    self.command(From::Remote(port), volume, request, None);
                }
                Mail::Manage { what, reply } => {
                    if let Manage::DeleteVolume { volume } = what {
                        self.paces.deleting(&self.engine, volume, self.now);
                        self.end_replica(volume);
                        self.copies.remove(&volume);
                    }
                    let id = self.waiting.insert(reply) as u64;
                    if let Manage::MakeReplica { volume, .. } = what
                        && self.copies.insert(volume)
                    {
                        self.making.insert(id, volume);
                    }
                    self.post(Event::Manage { id, what });
                }
                Mail::AddDrive { drive, reply } => self.add_drive(drive, reply),
                Mail::Readmit {
                    back,
                    opener,
                    reply,
                } => drop(reply.send(self.readmit(back, &*opener))),
                Mail::Replica { volume, mail } => self.replica_mail(volume, mail),
                Mail::Stored(membership) => self.post(Event::Remembered(membership)),
                // The asker may have gone.
                Mail::Look { reply } => drop(reply.send(self.view())),
            }
        }
    }

    fn add_drive(&mut self, drive: NewDrive, reply: Sender<Result<Managed, IoError>>) {
        let NewDrive {
            uuid: drive,
            member,
            class,
            opener,
        } = drive;
        match opener.open(&self.reactor) {
            Ok(device) => {
                let geometry = device.geometry();
                let id = self.waiting.insert(reply) as u64;
                let what = Manage::AddDrive {
                    drive,
                    member,
                    geometry,
                    class,
                };
                self.post(Event::Manage { id, what });
                // The engine has decided. A drive that it refuses must not take the place of the next
                // member: what is meant for one drive would go to another.
                let index = usize::from(member);
                let taken = self.engine.members().get(index);
                if taken.is_some_and(|taken| taken.drive == drive) {
                    self.news.joined(&self.engine, index, &device.describe());
                    self.drives.join(index, device);
                }
            }
            // The asker may have gone.
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// A drive that was left out is here again: it is opened where its member is. What is newer than it comes later.
    fn readmit(&mut self, back: Box<Comeback>, opener: &dyn Opener) -> Result<Managed, IoError> {
        let drive = back.label.drive;
        let members = self.engine.members();
        let member = members.iter().position(|member| member.drive == drive);
        let busy = || {
            let why = format!("drive {drive} still has requests that it has not answered");
            IoError::new(ErrorKind::InvalidRequest, why)
        };
        let Some(member) = member.filter(|&member| !self.drives.is_open(member)) else {
            return Err(busy());
        };
        if !self.drives.reopen(member, opener.open(&self.reactor)?) {
            return Err(busy());
        }
        let (reply, answer) = channel();
        let id = self.waiting.insert(reply) as u64;
        let what = Manage::ReadmitDrive(back);
        self.post(Event::Manage { id, what });
        if self.engine.uses(member) {
            return Ok(Managed::Done);
        }
        self.drives.close(member);
        self.deliver();
        answer.try_recv().unwrap_or_else(|_| Err(busy()))
    }

    fn view(&mut self) -> View {
        let status = self.engine.status();
        self.soundness.look(&self.engine);
        let progress = self.paces.progress(&self.engine, &status, self.now);
        let volumes = status.volumes.iter().map(|volume| volume.number);
        let geometries = volumes.filter_map(|number| Some((number, self.geometry(number)?)));
        View {
            traffic: Traffic {
                geometries: geometries.collect(),
                device_read_bytes: self.drives.bytes().read,
                device_written_bytes: self.drives.bytes().written,
                errors: self.drives.errors(),
                ..self.traffic.clone()
            },
            progress,
            doubts: self.soundness.doubts(&status),
            status,
        }
    }

    fn poll_drives(&mut self) {
        let (engine, out, now) = (&mut self.engine, &mut self.out, self.now);
        self.drives.poll(now, |drive, completion| {
            engine.post(now, Event::Done { drive, completion }, out);
            self.posted = true;
        });
    }

    fn send(&mut self) {
        for (drive, request) in std::mem::take(&mut self.out.io) {
            if let Err(missing) = self.drives.submit(drive, request) {
                let completion = missing.completion();
                self.post(Event::Done { drive, completion });
            }
        }
    }

    fn deliver(&mut self) {
        if let (Some(membership), Some(memory)) = (self.out.membership.take(), &self.memory)
            && !memory.store(membership)
        {
            error!("the thread that stores which drives serve has died: writes may wait for it");
        }
        for (id, answer) in std::mem::take(&mut self.out.managed) {
            if let Some(volume) = ashlar_copy::volume_of(id) {
                if let Some(replica) = self.replicas.get_mut(&volume) {
                    replica.managed(id, answer);
                }
                continue;
            }
            if let Some(volume) = self.making.remove(&id)
                && answer.is_err()
            {
                // The engine has refused: it is a volume of hosts as before.
                self.copies.remove(&volume);
            }
            if let Some(reply) = self.waiting.try_remove(id as usize) {
                // The asker may have gone.
                let _ = reply.send(answer);
            }
        }
        for mut completion in std::mem::take(&mut self.out.done) {
            if let Some(volume) = ashlar_copy::volume_of(completion.tag) {
                if let Some(replica) = self.replicas.get_mut(&volume) {
                    replica.completed(completion);
                }
                continue;
            }
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
        let volume = self.traffic.volumes.entry(pending.volume).or_default();
        volume.in_flight = volume.in_flight.saturating_sub(1);
        let operations = volume.operations_mut(pending.op);
        operations.count += 1;
        operations.bytes += pending.bytes;
        operations.errors += u64::from(failed);
        let nanos = self.now.since(pending.begun).as_nanos();
        operations.nanos += u64::try_from(nanos).unwrap_or(u64::MAX);
        match pending.op {
            Operation::Read => self.traffic.user_read_bytes += pending.bytes,
            Operation::Write(_) => self.traffic.user_written_bytes += pending.bytes,
            _ => {}
        }
    }
}
