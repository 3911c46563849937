//! A read: the ring's newest record, else the home, else zeroes; every granule verified; a copy that
//! does not verify is looked up again, read elsewhere, and written again from a good one.

pub(super) mod columns;
mod mend;
mod places;
mod slow;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ashlar_block::{ErrorKind, IoBuffer, IoError, Request};
use slab::Slab;

use super::Owner;
use super::access::guard::Guard;
use super::access::locks::SlotKey;
use super::invariant::invariant;
use super::parity::{For, Gathered, Wish};
use super::space::segment_and_slot;
use crate::Canary;
use crate::format::{PageId, Salt};
use crate::sizes::{GRANULE, UNIT_GRANULES};
pub(super) use places::Around;
use places::{Source, Wanted};

/// Hosts' reads under way.
#[derive(Default)]
pub(super) struct Reads {
    ops: Slab<ReadOp>,
    /// What follows from their steps for others.
    next: VecDeque<Next>,
}

/// What is to be done next for a read.
pub(super) enum Next {
    /// A page of the map is wanted.
    Load { page: PageId, op: usize },
    /// A slot is to be put together.
    Gather(Wish),
    /// A slot is locked no more.
    Unlock(SlotKey),
    /// A volume's tier is to know which slots are read, and at which homes.
    Tell {
        volume: u32,
        bytes: u64,
        slots: Vec<(u64, u32)>,
    },
}

/// What an I/O has told of the granules that it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Here they are.
    Bytes,
    /// The only one cannot be read.
    Bad,
    /// One of several cannot be read: nothing of any of them.
    Nothing,
}

impl Told {
    fn by(result: &Result<(), IoError>, is_alone: bool) -> Self {
        match (result, is_alone) {
            (Ok(()), _) => Self::Bytes,
            (Err(_), true) => Self::Bad,
            (Err(_), false) => Self::Nothing,
        }
    }
}

/// A run of granules that one I/O reads.
struct Part {
    buffer: IoBuffer,
    wanted: Vec<Wanted>,
    /// Drives whose copies have failed, as bits; and the one being read.
    tried: u64,
    drive: usize,
    /// Drives that were asked and are slow to answer, as bits; none once nothing else is left to be asked.
    slow: u64,
    is_patient: bool,
    done: bool,
}

impl Part {
    /// Whether these bytes are what they should be.
    fn are_good(&self, salt: Salt, bytes: &[u8]) -> bool {
        let granules = bytes.chunks(GRANULE);
        granules
            .zip(&self.wanted)
            .all(|(bytes, wanted)| salt.crc(bytes) == wanted.crc)
    }
}

/// The parts of a read, by first granule counted from the request's: nearly always one, so they are in a row.
#[derive(Default)]
struct Parts(Vec<(u32, Part)>);

impl Parts {
    fn insert(&mut self, at: u32, part: Part) {
        let place = self.0.partition_point(|&(other, _)| other < at);
        self.0.insert(place, (at, part));
    }

    fn place(&self, at: u32) -> Option<usize> {
        self.0.binary_search_by_key(&at, |&(at, _)| at).ok()
    }

    fn get(&self, at: u32) -> Option<&Part> {
        Some(&self.0[self.place(at)?].1)
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut Part> {
        let place = self.place(at)?;
        Some(&mut self.0[place].1)
    }

    fn remove(&mut self, at: u32) -> Option<Part> {
        let place = self.place(at)?;
        Some(self.0.remove(place).1)
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &Part)> {
        self.0.iter().map(|(at, part)| (*at, part))
    }
}

/// A host's read.
struct ReadOp {
    volume: u32,
    request: Request,
    guard: Option<Guard>,
    parts: Parts,
    /// Parts that one I/O reads, by the first of them.
    strips: BTreeMap<u32, Vec<u32>>,
    /// Parts whose I/O is on its way.
    pending: usize,
    /// Some of it has another place or content than when it was planned: it is planned again.
    stale: bool,
    /// A drive has kept a piece of the host's buffer: the parts lie in memory of several owners.
    is_scattered: bool,
    error: Option<IoError>,
}

/// Why the engine stops when a read's parts are not what its buffer was split into.
const MISFIT: &str = "a read's buffer did not fit together again";

impl ReadOp {
    /// Puts the host's buffer together again; false when its parts do not fit.
    fn join(&mut self) -> bool {
        let parts = std::mem::take(&mut self.parts.0);
        let Some(buffer) = &mut self.request.buffer else {
            return parts.is_empty();
        };
        parts
            .into_iter()
            .all(|(_, part)| buffer.join(part.buffer).is_ok())
    }
}

impl Reads {
    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// What is to be done next.
    pub(super) fn take_next(&mut self) -> Option<Next> {
        self.next.pop_front()
    }

    pub(super) fn begin(&mut self, volume: u32, request: Request, around: &mut Around<'_>) {
        // Its leaves stay until it ends: a copy that is bad is looked up again.
        let first = request.range.start.0;
        let granules = first..first + u64::from(request.range.count);
        around.map.pin(volume, granules);
        let op = self.ops.insert(ReadOp {
            volume,
            request,
            guard: None,
            parts: Parts::default(),
            strips: BTreeMap::new(),
            pending: 0,
            stale: false,
            is_scattered: false,
            error: None,
        });
        self.plan(op, around);
    }

    /// Plans a read whose leaves are all here; otherwise loads them and comes back.
    fn plan(&mut self, op: usize, around: &mut Around<'_>) {
        let Some(read) = self.ops.get(op) else {
            return invariant!(around.base, "read {op} is not there in plan");
        };
        let (volume, range) = (read.volume, read.request.range);
        let first = range.start.0;
        let mut wanted = Vec::with_capacity(range.count as usize);
        for granule in first..first + u64::from(range.count) {
            match around.look_up(volume, granule) {
                Some(found) => wanted.push(found),
                None => {
                    let granules = first..first + u64::from(range.count);
                    let missing = around.map.missing_leaves(volume, granules);
                    let load = |page| Next::Load { page, op };
                    return self.next.extend(missing.into_iter().map(load));
                }
            }
        }
        if around.tiers.has(volume) {
            self.tell_tier(volume, first, &wanted, around);
        }
        let guard = around.access.enter();
        let runs = around.runs(&wanted);
        let Some(read) = self.ops.get_mut(op) else {
            return invariant!(around.base, "read {op} has gone while it was planned");
        };
        read.guard = Some(guard);
        let Some(mut buffer) = read.request.buffer.take() else {
            return self.end(op, around);
        };
        read.parts.0.reserve_exact(runs.len());
        for &(start, _) in runs.iter().rev() {
            let part = Part {
                buffer: buffer.split_off(start * GRANULE),
                // What is before it is left to those before it.
                wanted: match start {
                    0 => std::mem::take(&mut wanted),
                    _ => wanted.split_off(start),
                },
                tried: 0,
                drive: 0,
                slow: 0,
                is_patient: false,
                done: false,
            };
            read.parts.insert(start as u32, part);
        }
        read.request.buffer = Some(buffer);
        let together = match runs.len() {
            0 | 1 => BTreeSet::new(),
            _ => self.read_strips(op, around),
        };
        for (start, _) in runs {
            if !together.contains(&(start as u32)) {
                self.start_part(op, start as u32, around);
            }
        }
        self.end_if_done(op, around);
    }

    /// Tells a volume's tier which slots are read, and where they are.
    fn tell_tier(&mut self, volume: u32, first: u64, wanted: &[Wanted], around: &Around<'_>) {
        let grain = around.map.grain(volume);
        let home = |(granule, wanted): (u64, &Wanted)| match wanted.source {
            Source::Home(location, _) => Some((grain.slot_of(granule), location)),
            _ => None,
        };
        let mut slots: Vec<(u64, u32)> = (first..).zip(wanted).filter_map(home).collect();
        slots.dedup();
        self.next.push_back(Next::Tell {
            volume,
            bytes: (wanted.len() * GRANULE) as u64,
            slots,
        });
    }

    fn start_part(&mut self, op: usize, at: u32, around: &mut Around<'_>) {
        let Some(part) = self.part(op, at) else {
            return invariant!(around.base, "read {op} has no part {at} to begin");
        };
        let (source, asked) = (part.wanted[0].source, part.tried | part.slow);
        let may_be_here = part.tried == 0 && !matches!(source, Source::Home(..));
        if may_be_here && let Some(mut part) = self.take_part(op, at) {
            part.done = around.fill_from_memory(&mut part);
            let done = part.done;
            self.put_part(op, at, part);
            if done {
                return;
            }
        }
        let Some((drive, byte)) = around.choose_copy(source, asked) else {
            if let Some(part) = self.take_part(op, at) {
                self.solve_part(op, at, part, around);
            }
            return;
        };
        let Some(read) = self.ops.get_mut(op) else {
            return invariant!(around.base, "read {op} is not there in start_part");
        };
        read.pending += 1;
        let Some(part) = read.parts.get_mut(at) else {
            return invariant!(around.base, "read {op} has lost part {at}");
        };
        part.drive = drive;
        // The buffer travels with the I/O and is put back when it returns.
        let buffer = part.buffer.split_off(0);
        let range = around.space.drives.range(drive, byte, buffer.len());
        around.send(drive, Owner::ReadPart { op, at }, |tag| {
            Request::read(tag, range, buffer)
        });
    }

    fn part(&self, op: usize, at: u32) -> Option<&Part> {
        self.ops.get(op)?.parts.get(at)
    }

    fn take_part(&mut self, op: usize, at: u32) -> Option<Part> {
        self.ops.get_mut(op)?.parts.remove(at)
    }

    fn put_part(&mut self, op: usize, at: u32, part: Part) {
        if let Some(read) = self.ops.get_mut(op) {
            read.parts.insert(at, part);
        }
    }

    pub(super) fn part_done(
        &mut self,
        op: usize,
        at: u32,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
        around: &mut Around<'_>,
    ) {
        let salt = around.identity.salt();
        let Some(read) = self.ops.get_mut(op) else {
            return invariant!(around.base, "a part of read {op} is here, but it is not");
        };
        let Some(part) = read.parts.get_mut(at) else {
            return invariant!(around.base, "read {op} has no part {at} that was read");
        };
        let buffer = match buffer {
            // Nearly every read: nothing is to be written again.
            Some(buffer) if result.is_ok() && part.tried == 0 && part.are_good(salt, &buffer) => {
                part.buffer = buffer;
                part.done = true;
                read.pending -= 1;
                return self.end_if_done(op, around);
            }
            other => other,
        };
        let Some(mut part) = self.take_part(op, at) else {
            return invariant!(around.base, "read {op} has lost part {at}");
        };
        let has_memory = match buffer {
            Some(buffer) => {
                part.buffer = buffer;
                true
            }
            None => self.replace_buffer(op, &mut part, around),
        };
        let told = Told::by(&result, part.wanted.len() == 1);
        match has_memory {
            true => self.part_read(op, at, part, told, around),
            false => self.put_part(op, at, part),
        }
        // Not before: what is read again may be here at once, and the read must not end with that.
        if let Some(read) = self.ops.get_mut(op) {
            read.pending -= 1;
        }
        self.end_if_done(op, around);
    }

    /// A part's bytes are here, or cannot be read where they were.
    fn part_read(
        &mut self,
        op: usize,
        at: u32,
        mut part: Part,
        told: Told,
        around: &mut Around<'_>,
    ) {
        if told == Told::Bytes && part.are_good(around.identity.salt(), &part.buffer) {
            part.done = true;
            self.mend(op, at, &part, around);
            self.put_part(op, at, part);
        } else {
            self.retry_part(op, at, part, told, around);
        }
    }

    /// Granule by granule: what is good stays, what is bad is read from another copy, and what may be
    /// either is read by itself. But when anything of it has changed since the read was planned, all
    /// of the read is planned again: what is good may be older than what is there now, and a write that
    /// is atomic is seen whole or not at all.
    fn retry_part(
        &mut self,
        op: usize,
        at: u32,
        mut part: Part,
        told: Told,
        around: &mut Around<'_>,
    ) {
        let is_stale = self.is_stale(op, at, &part, around);
        let Some(read) = self.ops.get_mut(op) else {
            return invariant!(around.base, "read {op} is not there in retry_part");
        };
        let mixes = is_stale && around.identity.sings(Canary::MixVersions);
        read.stale |= is_stale && !mixes;
        if read.stale {
            part.done = true;
            return self.put_part(op, at, part);
        }
        for i in (0..part.wanted.len()).rev() {
            let buffer = part.buffer.split_off(i * GRANULE);
            let wanted = part.wanted[i];
            let good = told == Told::Bytes && around.identity.salt().crc(&buffer) == wanted.crc;
            let mut single = Part {
                buffer,
                wanted: vec![wanted],
                tried: part.tried,
                drive: part.drive,
                slow: part.slow,
                is_patient: part.is_patient,
                done: good,
            };
            let here = at + i as u32;
            if good {
                self.put_part(op, here, single);
                continue;
            }
            if mixes {
                let volume_granule = self.granule_of(op, here);
                let now = volume_granule.and_then(|(volume, at)| around.look_up(volume, at));
                single.wanted = vec![now.unwrap_or(wanted)];
                (single.tried, single.slow) = (0, 0);
            } else if told != Told::Nothing {
                around
                    .space
                    .note_bad(single.drive, &mut around.base.counters);
                single.tried |= 1 << single.drive;
            }
            self.put_part(op, here, single);
            self.start_part(op, here, around);
        }
    }

    /// Whether granules of a part have another place or content than when the read was planned.
    fn is_stale(&self, op: usize, at: u32, part: &Part, around: &Around<'_>) -> bool {
        let Some((volume, first)) = self.granule_of(op, at) else {
            return false;
        };
        let mut wanted = (first..).zip(&part.wanted);
        let here = |granule| around.look_up(volume, granule);
        wanted.any(|(granule, wanted)| here(granule).is_some_and(|now| now != *wanted))
    }

    /// The volume and the granule that a part of a read begins at.
    fn granule_of(&self, op: usize, at: u32) -> Option<(u32, u64)> {
        let read = self.ops.get(op)?;
        Some((read.volume, read.request.range.start.0 + u64::from(at)))
    }

    /// Begins a read again from its plan.
    fn replan(&mut self, op: usize, around: &mut Around<'_>) {
        let Some(read) = self.ops.get_mut(op) else {
            return invariant!(around.base, "read {op} is not there in replan");
        };
        let guard = read.guard.take();
        read.stale = false;
        read.strips.clear();
        let fits = match std::mem::take(&mut read.is_scattered) {
            false => read.join(),
            true => {
                // What it had is read again, into memory that is whole.
                read.parts = Parts::default();
                let bytes = read.request.range.count as usize * GRANULE;
                read.request.buffer = around.base.memory.get(bytes);
                read.request.buffer.is_some()
            }
        };
        if let Some(guard) = guard {
            around.access.leave(guard);
        }
        if !fits {
            around.base.fail(MISFIT.into());
            return self.fail_op(op, around);
        }
        self.plan(op, around);
    }

    /// No copy is left to be read: in a parity segment, the other columns may tell.
    fn solve_part(&mut self, op: usize, at: u32, part: Part, around: &mut Around<'_>) {
        let (Source::Home(location, inner), Some(read)) =
            (part.wanted[0].source, self.ops.get_mut(op))
        else {
            return self.lose_unless_slow(op, at, part, around);
        };
        let segment = segment_and_slot(location).0;
        let granule = read.request.range.start.0 + u64::from(at);
        let key = SlotKey {
            volume: read.volume,
            slot: around.map.grain(read.volume).slot_of(granule),
        };
        let shape = around.space.shape(segment);
        let Some(shape) = shape.filter(|shape| !shape.is_mirror()) else {
            return self.lose_unless_slow(op, at, part, around);
        };
        let mut wish = Wish {
            who: For::Read { op, at },
            key,
            location,
            granules: 0,
            bad: 0,
            crcs: [0; UNIT_GRANULES as usize],
        };
        for (wanted, granule) in part.wanted.iter().zip(inner as usize..) {
            wish.granules |= 1 << granule;
            wish.crcs[granule] = wanted.crc;
        }
        if part.tried | part.slow != 0 {
            wish.bad = 1 << shape.place(inner as usize).0;
        }
        self.put_part(op, at, part);
        if let Some(read) = self.ops.get_mut(op) {
            read.pending += 1;
        }
        self.next.push_back(Next::Gather(wish));
    }

    /// The columns of a parity slot have been put together.
    pub(super) fn part_gathered(
        &mut self,
        op: usize,
        at: u32,
        found: &Gathered,
        around: &mut Around<'_>,
    ) {
        let Some(read) = self.ops.get_mut(op) else {
            return invariant!(around.base, "columns of read {op} are here, but it is not");
        };
        read.pending -= 1;
        let Some(mut part) = read.parts.remove(at) else {
            return invariant!(
                around.base,
                "read {op} has no part {at} that was put together"
            );
        };
        let mut all = true;
        for (i, wanted) in part.wanted.iter().enumerate() {
            let Source::Home(_, inner) = wanted.source else {
                continue;
            };
            let salt = around.identity.salt();
            let bytes = found.granule(inner as usize);
            match bytes.filter(|bytes| salt.crc(bytes) == wanted.crc) {
                Some(bytes) => part.buffer[i * GRANULE..(i + 1) * GRANULE].copy_from_slice(bytes),
                None => all = false,
            }
        }
        if all {
            part.done = true;
            self.mend(op, at, &part, around);
            self.put_part(op, at, part);
        } else {
            self.lose_unless_slow(op, at, part, around);
        }
        self.end_if_done(op, around);
    }

    /// No copy is left. In an engine that has stopped, perhaps only for that: drives that it does without
    /// may have a good one.
    fn lose_part(&mut self, op: usize, at: u32, mut part: Part, around: &mut Around<'_>) {
        part.done = true;
        if self.ops.get(op).is_some_and(|read| read.stale) {
            // It will be read again, where it is then.
            return self.put_part(op, at, part);
        }
        around.base.counters.lost += u64::from(around.base.failed.is_none());
        if let Some(read) = self.ops.get_mut(op) {
            let granule = read.request.range.start.0 + u64::from(at);
            let lost = || format!("volume {}, granule {granule}: no copy is good", read.volume);
            read.error = Some(match around.base.failed.why() {
                Some(why) => IoError::new(ErrorKind::Latched, why.to_owned()),
                None => IoError::new(ErrorKind::Corrupt, lost()),
            });
        }
        self.put_part(op, at, part);
    }

    fn end_if_done(&mut self, op: usize, around: &mut Around<'_>) {
        if let Some(read) = self.ops.get(op)
            && read.pending == 0
            && read.parts.iter().all(|(_, part)| part.done)
        {
            match read.stale && read.error.is_none() {
                true => self.replan(op, around),
                false => self.end(op, around),
            }
        }
    }

    /// A page is here that a read has waited for.
    pub(super) fn page_is_here(&mut self, op: usize, around: &mut Around<'_>) {
        match around.base.failed.is_some() {
            true => self.fail_op(op, around),
            false => self.plan(op, around),
        }
    }

    /// The engine has stopped before it knew where to read.
    pub(super) fn fail_op(&mut self, op: usize, around: &mut Around<'_>) {
        if let Some(read) = self.ops.get_mut(op) {
            let why = around.base.failed.why().unwrap_or_default().to_owned();
            read.error = Some(IoError::new(ErrorKind::Latched, why));
        }
        self.end(op, around);
    }

    fn end(&mut self, op: usize, around: &mut Around<'_>) {
        let Some(mut read) = self.ops.try_remove(op) else {
            return invariant!(around.base, "read {op} has ended twice");
        };
        if let Some(guard) = read.guard {
            around.access.leave(guard);
        }
        let first = read.request.range.start.0;
        let end = first + u64::from(read.request.range.count);
        around.map.unpin(read.volume, first..end);
        if read.is_scattered {
            return self.end_scattered(read, around);
        }
        if !read.join() {
            around.base.fail(MISFIT.into());
        }
        let result = read.error.map_or(Ok(()), Err);
        around.base.complete(read.request, result);
    }
}
