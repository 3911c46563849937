//! An engine so simple that it is right: one log that never wraps, on one drive, one append at a
//! time. With a [`Lie`] it is wrong in one way, which the world must notice.

mod disk;
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;

use ashlar_block::{
    BlockDevice, BlockRange, BufferPool, Completion, Durability, ErrorKind, IoBuffer, IoError,
    Moment, Operation, Request,
};

use super::seam::{
    Devices, Event, Known, Manage, Managed, Outbox, Running, Shape, Subject, VolumePlan, Wait,
    Wish, memory,
};
use disk::{Disk, GRANULE, Record};

/// What a toy does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    None,
    /// Answers a write before it is durable.
    AnswerEarly,
    /// Lets reads see a write before it is durable.
    PublishEarly,
    /// Leaves writes in the drive's cache.
    NoForce,
    /// Logs every granule by itself.
    Split,
    /// Takes every header at the log's end for a record.
    TrustTail,
    /// Finds a granule where its neighbour is.
    Neighbour,
    /// Keeps the old content of a granule.
    Stale,
    /// Never answers some command.
    Forget,
    /// Answers a flush twice.
    Twice,
}

/// Chooses a lie by type, since a world makes its engines itself.
pub(crate) trait Liar {
    const LIE: Lie;
}

enum Job {
    Append {
        record: Record,
        /// The command, if it is the record's last part.
        request: Option<Request>,
        manage: Option<u64>,
    },
    Settle(u64),
}

struct Reading {
    request: Request,
    left: usize,
    failed: bool,
}

pub(crate) struct Toy<L> {
    disk: Disk,
    member: usize,
    pool: BufferPool,
    volumes: Vec<(u32, String)>,
    map: BTreeMap<(u32, u64), u64>,
    /// What may be read although it is not durable: [`Lie::PublishEarly`].
    early: BTreeMap<(u32, u64), Vec<u8>>,
    jobs: VecDeque<Job>,
    /// The job whose record is being written.
    writing: Option<Job>,
    readings: BTreeMap<u64, Reading>,
    /// Part of a read: which, and where in its buffer.
    parts: BTreeMap<u64, (u64, usize)>,
    next_tag: u64,
    liar: PhantomData<L>,
}

impl<L: Liar> Toy<L> {
    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    fn command(&mut self, volume: u32, request: Request, out: &mut Outbox) {
        let range = request.range;
        match request.op {
            Operation::Read => self.read(volume, request, out),
            Operation::Flush => {
                if L::LIE == Lie::Twice {
                    out.done.push(Request::flush(request.tag).complete(Ok(())));
                }
                out.done.push(request.complete(Ok(())));
            }
            _ => {
                let data = request.buffer.as_deref().map(<[u8]>::to_vec);
                self.append(volume, range, data, request);
            }
        }
    }

    fn append(&mut self, volume: u32, range: BlockRange, data: Option<Vec<u8>>, request: Request) {
        let whole = Record {
            volume,
            first: range.start.0,
            count: range.count,
            data,
            name: None,
        };
        let records = match L::LIE {
            Lie::Split => whole.split(),
            _ => vec![whole],
        };
        let last = records.len() - 1;
        let mut request = Some(request);
        for (index, record) in records.into_iter().enumerate() {
            let request = if index == last { request.take() } else { None };
            self.jobs.push_back(Job::Append {
                record,
                request,
                manage: None,
            });
        }
    }

    fn manage(&mut self, id: u64, what: Manage) {
        self.jobs.push_back(match what {
            Manage::CreateVolume(VolumePlan { name, .. }) => Job::Append {
                record: Record {
                    volume: 16 + self.volumes.len() as u32,
                    first: 0,
                    count: 0,
                    data: None,
                    name: Some(name),
                },
                request: None,
                manage: Some(id),
            },
            _ => Job::Settle(id),
        });
    }

    /// Starts the next job if none is on its way.
    fn work(&mut self, out: &mut Outbox) {
        while self.writing.is_none() {
            match self.jobs.pop_front() {
                None => return,
                Some(Job::Settle(id)) => out.managed.push((id, Ok(Managed::Done))),
                Some(mut job) => {
                    if let Job::Append { record, manage, .. } = &mut job {
                        if manage.is_some() {
                            // Volumes may have been made since.
                            record.volume = 16 + self.volumes.len() as u32;
                        }
                        let record = record.clone();
                        self.write(&record, out);
                    }
                    if let (Lie::AnswerEarly, Job::Append { request, .. }) = (L::LIE, &mut job)
                        && let Some(request) = request.take()
                    {
                        out.done.push(request.complete(Ok(())));
                    }
                    self.writing = Some(job);
                }
            }
        }
    }

    fn write(&mut self, record: &Record, out: &mut Outbox) {
        let bytes = self.disk.encode(record);
        let Some(mut buffer) = self.pool.get(bytes.len()) else {
            return;
        };
        buffer.copy_from_slice(&bytes);
        let range = self.disk.range(self.disk.end, bytes.len());
        let durability = match L::LIE {
            Lie::NoForce => Durability::Cached,
            _ => Durability::Durable,
        };
        let request = Request::write(0, range, buffer, durability);
        out.io.push((self.member, request));
        if let (Lie::PublishEarly, Some(data)) = (L::LIE, &record.data) {
            for (index, granule) in data.chunks(GRANULE as usize).enumerate() {
                let key = (record.volume, record.first + index as u64);
                self.early.insert(key, granule.to_vec());
            }
        }
    }

    /// The record at `at` takes effect.
    fn publish(&mut self, record: &Record, at: u64) {
        if let Some(name) = &record.name {
            self.volumes.push((record.volume, name.clone()));
        }
        for index in 0..u64::from(record.count) {
            let granule = record.first + index;
            let key = (record.volume, granule);
            self.early.remove(&key);
            let strange = granule % 7 == 3 && record.count > 1;
            match &record.data {
                None => drop(self.map.remove(&key)),
                Some(_) if L::LIE == Lie::Stale && strange && self.map.contains_key(&key) => {}
                Some(_) => {
                    let other = index > 0 && L::LIE == Lie::Neighbour && strange;
                    let place = at + GRANULE * (1 + index - u64::from(other));
                    self.map.insert(key, place);
                }
            }
        }
    }

    fn written(&mut self, completion: Completion, out: &mut Outbox) {
        let Some(Job::Append {
            record,
            request,
            manage,
        }) = self.writing.take()
        else {
            return;
        };
        if let Err(error) = completion.result {
            if let Some(request) = request {
                out.done.push(request.complete(Err(error)));
            }
            return;
        }
        let at = self.disk.advance(&record);
        self.publish(&record, at);
        if let Some(id) = manage {
            out.managed.push((id, Ok(Managed::Volume(record.volume))));
        }
        if let Some(request) = request
            && !(L::LIE == Lie::Forget && request.tag % 50 == 7)
        {
            out.done.push(request.complete(Ok(())));
        }
    }

    fn read(&mut self, volume: u32, mut request: Request, out: &mut Outbox) {
        if let Some(buffer) = request.buffer.as_deref_mut() {
            buffer.fill(0);
        }
        let tag = self.tag();
        let mut left = 0;
        for index in 0..u64::from(request.range.count) {
            let granule = request.range.start.0 + index;
            let at = index as usize * GRANULE as usize;
            if let Some(early) = self.early.get(&(volume, granule))
                && let Some(buffer) = request.buffer.as_deref_mut()
            {
                buffer[at..at + early.len()].copy_from_slice(early);
                continue;
            }
            let Some(&place) = self.map.get(&(volume, granule)) else {
                continue;
            };
            let Some(buffer) = self.pool.get(GRANULE as usize) else {
                continue;
            };
            let part = self.tag();
            self.parts.insert(part, (tag, at));
            let range = self.disk.range(place, GRANULE as usize);
            out.io
                .push((self.member, Request::read(part, range, buffer)));
            left += 1;
        }
        let reading = Reading {
            request,
            left,
            failed: false,
        };
        if left == 0 {
            reading.finish(out);
        } else {
            self.readings.insert(tag, reading);
        }
    }

    fn fetched(&mut self, completion: Completion, out: &mut Outbox) {
        let Some((tag, at)) = self.parts.remove(&completion.tag) else {
            return;
        };
        let Some(reading) = self.readings.get_mut(&tag) else {
            return;
        };
        reading.take(at, completion.result.is_ok(), completion.buffer.as_ref());
        if reading.left == 0
            && let Some(reading) = self.readings.remove(&tag)
        {
            reading.finish(out);
        }
    }
}

impl Reading {
    fn take(&mut self, at: usize, fine: bool, bytes: Option<&IoBuffer>) {
        self.left -= 1;
        self.failed |= !fine;
        if let (Some(buffer), Some(bytes)) = (self.request.buffer.as_deref_mut(), bytes)
            && let Some(target) = buffer.get_mut(at..at + bytes.len())
        {
            target.copy_from_slice(bytes);
        }
    }

    fn finish(self, out: &mut Outbox) {
        let result = match self.failed {
            true => Err(IoError::new(ErrorKind::Media, "toy")),
            false => Ok(()),
        };
        out.done.push(self.request.complete(result));
    }
}

impl<L: Liar> Subject for Toy<L> {
    fn format(mut devices: Devices, mut wait: Wait, _: &Shape) -> Result<(), String> {
        let pool = memory();
        for (index, device) in devices.iter_mut().enumerate() {
            disk::write_label(device, &pool, &mut wait, index)?;
        }
        Ok(())
    }

    fn import(mut devices: Devices, mut wait: Wait, _: Wish) -> Result<Running<Self>, String> {
        let pool = memory();
        let mut members: Vec<Option<Box<dyn BlockDevice>>> = Vec::new();
        members.resize_with(devices.len(), || None);
        for mut device in devices.drain(..) {
            let index = disk::read_label(&mut device, &pool, &mut wait)?;
            members[index] = Some(device);
        }
        let Some(device) = &mut members[0] else {
            return Err("no drive 0".into());
        };
        let mut toy = Self {
            disk: Disk::new(device.geometry()),
            member: 0,
            pool,
            volumes: Vec::new(),
            map: BTreeMap::new(),
            early: BTreeMap::new(),
            jobs: VecDeque::new(),
            writing: None,
            readings: BTreeMap::new(),
            parts: BTreeMap::new(),
            next_tag: 0,
            liar: PhantomData,
        };
        let trust = L::LIE == Lie::TrustTail;
        while let Some(record) = toy.disk.next(device, &toy.pool, &mut wait, trust)? {
            let at = toy.disk.advance(&record);
            toy.publish(&record, at);
        }
        Ok(Running {
            engine: toy,
            devices: members,
        })
    }

    fn handle(&mut self, _: Moment, event: Event, out: &mut Outbox) {
        match event {
            Event::Command { volume, request }
            | Event::Record {
                volume, request, ..
            } => self.command(volume, request, out),
            Event::Done { completion, .. } if completion.tag == 0 => self.written(completion, out),
            Event::Done { completion, .. } => self.fetched(completion, out),
            Event::Manage { id, what } => self.manage(id, what),
            Event::Remembered(_) | Event::Tick => {}
        }
        self.work(out);
    }

    fn next_deadline(&self) -> Option<Moment> {
        None
    }

    fn volumes(&self) -> Vec<Known> {
        let known = |(number, name): &(u32, String)| Known {
            stops: false,
            stopped: false,
            number: *number,
            name: name.clone(),
            granules: None,
            used: None,
            deleting: false,
        };
        self.volumes.iter().map(known).collect()
    }
}
