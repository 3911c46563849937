//! A read: the ring's newest record, else the home, else zeroes; every granule verified; a copy that
//! does not verify is looked up again, read elsewhere, and written again from a good one.

pub(super) mod columns;
mod mend;
mod slow;

use std::collections::{BTreeMap, BTreeSet};

use ashlar_block::{ErrorKind, IoBuffer, IoError, Request};

use super::access::guard::Guard;
use super::access::locks::SlotKey;
use super::class::Shape;
use super::invariant::invariant;
use super::parity::{For, Gathered, Wish};
use super::segment_table::HomeSegment;
use super::space::segment_and_slot;
use super::tier;
use super::{Engine, Op, Owner, Waiter};
use crate::Canary;
use crate::format::{ChunkCopy, LogId, Salt};
use crate::ring::GranuleKey;
use crate::sizes::{GRANULE, UNIT_GRANULES};

/// Where a granule's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Nowhere: zeroes.
    Zero,
    /// At this position of the ring.
    Ring(u64),
    /// In the slot at this location, at this granule of it.
    Home(u32, u32),
    /// Not known: what the map said of it is lost.
    Lost,
}

/// What a granule should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    source: Source,
    crc: u32,
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
pub(super) struct ReadOp {
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

/// A granule being written again on the copies that were bad.
pub(crate) struct Repair {
    key: SlotKey,
    pending: usize,
}

impl Engine {
    pub(super) fn begin_read(&mut self, volume: u32, request: Request) {
        // Its leaves stay until it ends: a copy that is bad is looked up again.
        let first = request.range.start.0;
        let granules = first..first + u64::from(request.range.count);
        self.map.pin(volume, granules);
        let op = self.ops.insert(Op::Read(ReadOp {
            volume,
            request,
            guard: None,
            parts: Parts::default(),
            strips: BTreeMap::new(),
            pending: 0,
            stale: false,
            is_scattered: false,
            error: None,
        }));
        self.plan_read(op);
    }

    /// Plans a read whose leaves are all here; otherwise loads them and comes back.
    pub(super) fn plan_read(&mut self, op: usize) {
        let Some(Op::Read(read)) = self.ops.get(op) else {
            return invariant!(self, "read {op} is not there in plan_read");
        };
        let (volume, range) = (read.volume, read.request.range);
        let first = range.start.0;
        let mut wanted = Vec::with_capacity(range.count as usize);
        for granule in first..first + u64::from(range.count) {
            match self.look_up(volume, granule) {
                Some(found) => wanted.push(found),
                None => {
                    let granules = first..first + u64::from(range.count);
                    let missing = self.map.missing_leaves(volume, granules);
                    return missing
                        .into_iter()
                        .for_each(|page| self.load(page, Waiter::Read(op)));
                }
            }
        }
        self.tell_tier(volume, first, &wanted);
        let guard = self.access.enter();
        let runs = self.runs(&wanted);
        let Some(Op::Read(read)) = self.ops.get_mut(op) else {
            return invariant!(self, "read {op} has gone while it was planned");
        };
        read.guard = Some(guard);
        let Some(mut buffer) = read.request.buffer.take() else {
            return self.end_read(op);
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
            _ => self.read_strips(op),
        };
        for (start, _) in runs {
            if !together.contains(&(start as u32)) {
                self.start_part(op, start as u32);
            }
        }
        self.end_read_if_done(op);
    }

    /// Tells a volume's tier which slots are read, and where they are.
    fn tell_tier(&mut self, volume: u32, first: u64, wanted: &[Wanted]) {
        if !self.tiers.has(volume) {
            return;
        }
        let grain = self.map.grain(volume);
        let home = |(granule, wanted): (u64, &Wanted)| match wanted.source {
            Source::Home(location, _) => Some((grain.slot_of(granule), location)),
            _ => None,
        };
        let mut slots: Vec<(u64, u32)> = (first..).zip(wanted).filter_map(home).collect();
        slots.dedup();
        let read = tier::Read {
            bytes: (wanted.len() * GRANULE) as u64,
            slots: &slots,
        };
        self.slots_read(volume, read);
    }

    fn look_up(&self, volume: u32, granule: u64) -> Option<Wanted> {
        let (location, crc) = self.map.granule(volume, granule)?;
        if let Some(newest) = self.logs.newest(GranuleKey { volume, granule }) {
            return Some(Wanted {
                source: Source::Ring(newest.at),
                crc: newest.crc,
            });
        }
        let is_zero = crc == 0 || location == 0 && self.identity.sings(Canary::LostReadsAsZeroes);
        Some(if is_zero {
            Wanted {
                source: Source::Zero,
                crc,
            }
        } else if location == 0 {
            Wanted {
                source: Source::Lost,
                crc,
            }
        } else {
            let inner = self.map.grain(volume).inner(granule) as u32;
            Wanted {
                source: Source::Home(location, inner),
                crc,
            }
        })
    }

    /// Start and length of runs that are contiguous where they lie.
    fn runs(&self, wanted: &[Wanted]) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        let mut last = (0, None);
        for (i, granule) in wanted.iter().enumerate() {
            if let Source::Home(location, _) = granule.source
                && let (segment, _) = segment_and_slot(location)
                && segment != last.0
            {
                last = (segment, self.space.shape(segment));
            }
            match runs.last_mut() {
                Some((_, len)) if self.follows(wanted[i - 1].source, granule.source, last.1) => {
                    *len += 1;
                }
                _ => runs.push((i, 1)),
            }
        }
        runs
    }

    /// Whether one lies right behind the other, whose segment has this shape.
    fn follows(&self, before: Source, after: Source, shape: Option<Shape>) -> bool {
        match (before, after) {
            (Source::Zero, Source::Zero) => true,
            (Source::Ring(a), Source::Ring(b)) => {
                b == a + GRANULE as u64 && self.logs.is_one_chunk(a, b)
            }
            (Source::Home(a, i), Source::Home(b, j)) => shape.is_some_and(|shape| {
                if !shape.is_mirror() {
                    let same = shape.place(i as usize).0 == shape.place(j as usize).0;
                    return a == b && j == i + 1 && same;
                }
                (a == b && j == i + 1)
                    || (b == a + 1
                        && a >> 12 == b >> 12
                        && j == 0
                        && i as usize + 1 == shape.granules())
            }),
            _ => false,
        }
    }

    /// Drive and byte of every copy of a granule's source that can be read.
    fn copies(&self, source: Source) -> Vec<(usize, u64)> {
        match source {
            Source::Zero | Source::Lost => Vec::new(),
            Source::Ring(at) => {
                let (copies, offset) = self.logs.locate(LogId::Ring, at);
                let place =
                    |copy: &ChunkCopy| self.identity.sizes().extent_at(copy.extent) + offset;
                let copies = self.space.drives.serving(copies);
                copies
                    .iter()
                    .map(|copy| (usize::from(copy.drive), place(copy)))
                    .collect()
            }
            Source::Home(location, inner) => {
                let found = self.space.segments.get(segment_and_slot(location).0);
                found.map_or_else(Vec::new, |found| self.copies_in(found, location, inner))
            }
        }
    }

    /// The same of a granule in a segment.
    fn copies_in(&self, found: HomeSegment<'_>, location: u32, inner: u32) -> Vec<(usize, u64)> {
        let HomeSegment { shape, columns, .. } = found;
        if !shape.is_mirror() {
            let place = self.space.granule_at(location, inner);
            let place = place.filter(|(column, _)| self.space.drives.in_service(column.drive));
            let place = place.map(|(column, at)| (usize::from(column.drive), at));
            return place.into_iter().collect();
        }
        let (_, slot) = segment_and_slot(location);
        let offset = u64::from(inner) * GRANULE as u64;
        let place = |copy: &ChunkCopy| shape.strip_at(self.identity.sizes(), *copy, slot) + offset;
        let copies = columns.iter();
        copies
            .filter(|copy| self.space.drives.in_service(copy.drive))
            .map(|copy| (usize::from(copy.drive), place(copy)))
            .collect()
    }

    /// The copy to read next: copies share the reads between them, and none is read twice.
    fn choose_copy(&self, source: Source, tried: u64) -> Option<(usize, u64)> {
        if let Source::Home(location, inner) = source
            && let (segment, slot) = segment_and_slot(location)
            && let Some(HomeSegment { shape, columns, .. }) = self.space.segments.get(segment)
            && shape.is_mirror()
        {
            // Nearly every read: nothing is allocated for it.
            let offset = u64::from(inner) * GRANULE as u64;
            let serving = columns
                .iter()
                .filter(|copy| self.space.drives.in_service(copy.drive));
            let turn = location as usize % serving.clone().count().max(1);
            let in_turn = serving.clone().skip(turn).chain(serving.take(turn));
            let mut untried = in_turn.filter(|copy| tried & 1 << copy.drive == 0);
            let quick = |copy: &&ChunkCopy| !self.base.drive_io.is_slow(usize::from(copy.drive));
            let copy = untried.clone().find(quick).or_else(|| untried.next())?;
            let at = shape.strip_at(self.identity.sizes(), *copy, slot) + offset;
            return Some((usize::from(copy.drive), at));
        }
        let copies = self.copies(source);
        let turn = match source {
            Source::Ring(at) => at as usize / GRANULE,
            _ => 0,
        };
        let count = copies.len();
        let in_turn = (0..count).map(|i| copies[(turn + i) % count]);
        let mut untried = in_turn.filter(|&(drive, _)| tried & 1 << drive == 0);
        let quick = |&(drive, _): &(usize, u64)| !self.base.drive_io.is_slow(drive);
        untried.clone().find(quick).or_else(|| untried.next())
    }

    fn start_part(&mut self, op: usize, at: u32) {
        let Some(part) = self.read_part(op, at) else {
            return invariant!(self, "read {op} has no part {at} to begin");
        };
        let (source, asked) = (part.wanted[0].source, part.tried | part.slow);
        let may_be_here = part.tried == 0 && !matches!(source, Source::Home(..));
        if may_be_here && let Some(mut part) = self.take_part(op, at) {
            part.done = self.fill_from_memory(&mut part);
            let done = part.done;
            self.put_part(op, at, part);
            if done {
                return;
            }
        }
        let Some((drive, byte)) = self.choose_copy(source, asked) else {
            if let Some(part) = self.take_part(op, at) {
                self.solve_part(op, at, part);
            }
            return;
        };
        let Some(Op::Read(read)) = self.ops.get_mut(op) else {
            return invariant!(self, "read {op} is not there in start_part");
        };
        read.pending += 1;
        let Some(part) = read.parts.get_mut(at) else {
            return invariant!(self, "read {op} has lost part {at}");
        };
        part.drive = drive;
        // The buffer travels with the I/O and is put back when it returns.
        let buffer = part.buffer.split_off(0);
        let range = self.space.drives.range(drive, byte, buffer.len());
        self.send(drive, Owner::ReadPart { op, at }, |tag| {
            Request::read(tag, range, buffer)
        });
    }

    fn fill_from_memory(&mut self, part: &mut Part) -> bool {
        let salt = self.identity.salt();
        let trusts = self.identity.sings(Canary::TrustMemory);
        for (wanted, bytes) in part.wanted.iter().zip(part.buffer.chunks_mut(GRANULE)) {
            match wanted.source {
                Source::Zero => bytes.fill(0),
                Source::Ring(at) => {
                    if !self.logs.recall(at, bytes) {
                        return false;
                    }
                    if salt.crc(bytes) != wanted.crc && !trusts {
                        self.distrust_memory(at);
                        return false;
                    }
                }
                Source::Home(..) | Source::Lost => return false,
            }
        }
        true
    }

    /// What is remembered of the ring has changed: the drives have what was written.
    pub(super) fn distrust_memory(&mut self, at: u64) {
        self.base.counters.bad_memory += 1;
        self.logs.distrust(at);
    }

    fn read_part(&self, op: usize, at: u32) -> Option<&Part> {
        match self.ops.get(op) {
            Some(Op::Read(read)) => read.parts.get(at),
            _ => None,
        }
    }

    fn take_part(&mut self, op: usize, at: u32) -> Option<Part> {
        match self.ops.get_mut(op) {
            Some(Op::Read(read)) => read.parts.remove(at),
            _ => None,
        }
    }

    fn put_part(&mut self, op: usize, at: u32, part: Part) {
        if let Some(Op::Read(read)) = self.ops.get_mut(op) {
            read.parts.insert(at, part);
        }
    }

    pub(super) fn read_part_done(
        &mut self,
        op: usize,
        at: u32,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        let salt = self.identity.salt();
        let Some(Op::Read(read)) = self.ops.get_mut(op) else {
            return invariant!(self, "a part of read {op} is here, but it is not");
        };
        let Some(part) = read.parts.get_mut(at) else {
            return invariant!(self, "read {op} has no part {at} that was read");
        };
        let buffer = match buffer {
            // Nearly every read: nothing is to be written again.
            Some(buffer) if result.is_ok() && part.tried == 0 && part.are_good(salt, &buffer) => {
                part.buffer = buffer;
                part.done = true;
                read.pending -= 1;
                return self.end_read_if_done(op);
            }
            other => other,
        };
        let Some(mut part) = self.take_part(op, at) else {
            return invariant!(self, "read {op} has lost part {at}");
        };
        let has_memory = match buffer {
            Some(buffer) => {
                part.buffer = buffer;
                true
            }
            None => self.replace_buffer(op, &mut part),
        };
        let told = Told::by(&result, part.wanted.len() == 1);
        match has_memory {
            true => self.part_read(op, at, part, told),
            false => self.put_part(op, at, part),
        }
        // Not before: what is read again may be here at once, and the read must not end with that.
        if let Some(Op::Read(read)) = self.ops.get_mut(op) {
            read.pending -= 1;
        }
        self.end_read_if_done(op);
    }

    /// A part's bytes are here, or cannot be read where they were.
    fn part_read(&mut self, op: usize, at: u32, mut part: Part, told: Told) {
        if told == Told::Bytes && part.are_good(self.identity.salt(), &part.buffer) {
            part.done = true;
            self.mend(op, at, &part);
            self.put_part(op, at, part);
        } else {
            self.retry_part(op, at, part, told);
        }
    }

    /// Granule by granule: what is good stays, what is bad is read from another copy, and what may be
    /// either is read by itself. But when anything of it has changed since the read was planned, all
    /// of the read is planned again: what is good may be older than what is there now, and a write that
    /// is atomic is seen whole or not at all.
    fn retry_part(&mut self, op: usize, at: u32, mut part: Part, told: Told) {
        let is_stale = self.is_stale(op, at, &part);
        let Some(Op::Read(read)) = self.ops.get_mut(op) else {
            return invariant!(self, "read {op} is not there in retry_part");
        };
        let mixes = is_stale && self.identity.sings(Canary::MixVersions);
        read.stale |= is_stale && !mixes;
        if read.stale {
            part.done = true;
            return self.put_part(op, at, part);
        }
        for i in (0..part.wanted.len()).rev() {
            let buffer = part.buffer.split_off(i * GRANULE);
            let wanted = part.wanted[i];
            let good = told == Told::Bytes && self.identity.salt().crc(&buffer) == wanted.crc;
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
                let now = volume_granule.and_then(|(volume, at)| self.look_up(volume, at));
                single.wanted = vec![now.unwrap_or(wanted)];
                (single.tried, single.slow) = (0, 0);
            } else if told != Told::Nothing {
                self.space.note_bad(single.drive, &mut self.base.counters);
                single.tried |= 1 << single.drive;
            }
            self.put_part(op, here, single);
            self.start_part(op, here);
        }
    }

    /// Whether granules of a part have another place or content than when the read was planned.
    fn is_stale(&self, op: usize, at: u32, part: &Part) -> bool {
        let Some((volume, first)) = self.granule_of(op, at) else {
            return false;
        };
        let mut wanted = (first..).zip(&part.wanted);
        let here = |granule| self.look_up(volume, granule);
        wanted.any(|(granule, wanted)| here(granule).is_some_and(|now| now != *wanted))
    }

    /// The volume and the granule that a part of a read begins at.
    fn granule_of(&self, op: usize, at: u32) -> Option<(u32, u64)> {
        match self.ops.get(op) {
            Some(Op::Read(read)) => Some((read.volume, read.request.range.start.0 + u64::from(at))),
            _ => None,
        }
    }

    /// Begins a read again from its plan.
    fn replan_read(&mut self, op: usize) {
        let Some(Op::Read(read)) = self.ops.get_mut(op) else {
            return invariant!(self, "read {op} is not there in replan_read");
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
                read.request.buffer = self.base.memory.get(bytes);
                read.request.buffer.is_some()
            }
        };
        if let Some(guard) = guard {
            self.access.leave(guard);
        }
        if !fits {
            self.fail(MISFIT.into());
            return self.fail_read(op);
        }
        self.plan_read(op);
    }

    /// No copy is left to be read: in a parity segment, the other columns may tell.
    fn solve_part(&mut self, op: usize, at: u32, part: Part) {
        let (Source::Home(location, inner), Some(Op::Read(read))) =
            (part.wanted[0].source, self.ops.get_mut(op))
        else {
            return self.lose_unless_slow(op, at, part);
        };
        let segment = segment_and_slot(location).0;
        let granule = read.request.range.start.0 + u64::from(at);
        let key = SlotKey {
            volume: read.volume,
            slot: self.map.grain(read.volume).slot_of(granule),
        };
        let shape = self.space.shape(segment);
        let Some(shape) = shape.filter(|shape| !shape.is_mirror()) else {
            return self.lose_unless_slow(op, at, part);
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
        if let Some(Op::Read(read)) = self.ops.get_mut(op) {
            read.pending += 1;
        }
        self.gather(wish);
    }

    /// The columns of a parity slot have been put together.
    pub(super) fn part_gathered(&mut self, op: usize, at: u32, found: &Gathered) {
        let Some(Op::Read(read)) = self.ops.get_mut(op) else {
            return invariant!(self, "columns of read {op} are here, but it is not");
        };
        read.pending -= 1;
        let Some(mut part) = read.parts.remove(at) else {
            return invariant!(self, "read {op} has no part {at} that was put together");
        };
        let mut all = true;
        for (i, wanted) in part.wanted.iter().enumerate() {
            let Source::Home(_, inner) = wanted.source else {
                continue;
            };
            let salt = self.identity.salt();
            let bytes = found.granule(inner as usize);
            match bytes.filter(|bytes| salt.crc(bytes) == wanted.crc) {
                Some(bytes) => part.buffer[i * GRANULE..(i + 1) * GRANULE].copy_from_slice(bytes),
                None => all = false,
            }
        }
        if all {
            part.done = true;
            self.mend(op, at, &part);
            self.put_part(op, at, part);
        } else {
            self.lose_unless_slow(op, at, part);
        }
        self.end_read_if_done(op);
    }

    /// No copy is left. In an engine that has stopped, perhaps only for that: drives that it does without
    /// may have a good one.
    fn lose_part(&mut self, op: usize, at: u32, mut part: Part) {
        part.done = true;
        if matches!(self.ops.get(op), Some(Op::Read(read)) if read.stale) {
            // It will be read again, where it is then.
            return self.put_part(op, at, part);
        }
        self.base.counters.lost += u64::from(self.base.failed.is_none());
        if let Some(Op::Read(read)) = self.ops.get_mut(op) {
            let granule = read.request.range.start.0 + u64::from(at);
            let lost = || format!("volume {}, granule {granule}: no copy is good", read.volume);
            read.error = Some(match self.base.failed.why() {
                Some(why) => IoError::new(ErrorKind::Latched, why.to_owned()),
                None => IoError::new(ErrorKind::Corrupt, lost()),
            });
        }
        self.put_part(op, at, part);
    }

    fn end_read_if_done(&mut self, op: usize) {
        if let Some(Op::Read(read)) = self.ops.get(op)
            && read.pending == 0
            && read.parts.iter().all(|(_, part)| part.done)
        {
            match read.stale && read.error.is_none() {
                true => self.replan_read(op),
                false => self.end_read(op),
            }
        }
    }

    /// The engine has stopped before it knew where to read.
    pub(super) fn fail_read(&mut self, op: usize) {
        if let Some(Op::Read(read)) = self.ops.get_mut(op) {
            let why = self.base.failed.why().unwrap_or_default().to_owned();
            read.error = Some(IoError::new(ErrorKind::Latched, why));
        }
        self.end_read(op);
    }

    fn end_read(&mut self, op: usize) {
        let Some(Op::Read(mut read)) = self.ops.try_remove(op) else {
            return invariant!(self, "read {op} has ended twice");
        };
        if let Some(guard) = read.guard {
            self.access.leave(guard);
        }
        let first = read.request.range.start.0;
        let end = first + u64::from(read.request.range.count);
        self.map.unpin(read.volume, first..end);
        if read.is_scattered {
            return self.end_scattered(read);
        }
        if !read.join() {
            self.fail(MISFIT.into());
        }
        let result = read.error.map_or(Ok(()), Err);
        self.base.complete(read.request, result);
    }
}
