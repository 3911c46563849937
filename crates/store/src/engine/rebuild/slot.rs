//! What a walk does with a slot: reads all its copies, or puts it together; writes good granules over bad ones, and the
//! new column.

use ashlar_block::{Durability, Request};

use super::{Around, Job, Mend, Next, Rebuild, WalkIo};
use crate::engine::Owner;
use crate::engine::access::locks::SlotKey;
use crate::engine::base::To;
use crate::engine::invariant::invariant;
use crate::engine::parity::{For, Gathered, Wish};
use crate::engine::salvage::{Reader, Strip};
use crate::engine::space::{DriveByte, segment_and_slot};
use crate::format::{ChunkCopy, LOST_CRC};
use crate::ring::GranuleKey;
use crate::sizes::{GRANULE, UNIT_GRANULES};

impl Rebuild {
    pub(super) fn read_slot(&mut self, key: SlotKey, location: u32, around: &mut Around<'_>) {
        let (segment, slot) = segment_and_slot(location);
        let Some(shape) = around.space.shape(segment) else {
            return invariant!(
                around.base,
                "a walk has come to a slot of segment {segment}, which is not there"
            );
        };
        let is_cut = !shape.is_mirror();
        let columns = if is_cut {
            Vec::new()
        } else {
            self.walked_columns(segment, around.space)
        };
        let job = Job {
            key,
            location,
            copies: columns.iter().map(|&column| (column, None)).collect(),
            pending: columns.len(),
        };
        let place = self.jobs.iter().position(Option::is_none);
        let place = place.unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() - 1
        });
        self.jobs[place] = Some(job);
        if is_cut {
            return self.next.push_back(Next::Gather(Wish {
                who: For::Walk { job: place },
                key,
                location,
                granules: u16::MAX,
                bad: 0,
                crcs: [0; UNIT_GRANULES as usize],
            }));
        }
        for (copy, column) in columns.iter().enumerate() {
            let drive = usize::from(column.drive);
            let Some(buffer) = around.buffer(shape.strip_bytes()) else {
                return;
            };
            let at = shape.strip_at(around.identity.sizes(), *column, slot);
            let at = DriveByte { drive, byte: at };
            let reader = Reader::Walk { job: place, copy };
            self.next.push_back(Next::Read { reader, at, buffer });
        }
        if columns.is_empty() {
            self.end_job(place, around);
        }
    }

    pub(in crate::engine) fn copy_read(
        &mut self,
        job: usize,
        copy: usize,
        strip: Option<Strip>,
        around: &mut Around<'_>,
    ) {
        let Some(Some(state)) = self.jobs.get_mut(job) else {
            return invariant!(around.base, "job {job} of a walk is not there in copy_read");
        };
        state.copies[copy].1 = strip;
        state.pending -= 1;
        if state.pending == 0 {
            self.mend_slot(job, around);
        }
    }

    /// A drive has answered, or is out.
    pub(in crate::engine) fn io_done(&mut self, io: WalkIo, around: &mut Around<'_>) {
        match io {
            WalkIo::Write { job } => {
                let Some(Some(state)) = self.jobs.get_mut(job) else {
                    return invariant!(around.base, "job {job} of a walk is not there in io_done");
                };
                state.pending -= 1;
                if state.pending == 0 {
                    self.end_job(job, around);
                }
            }
            WalkIo::Flush => {
                self.pending -= 1;
                if self.pending == 0 {
                    self.record_columns(around);
                }
            }
        }
    }

    /// A slot with parity has been put together: writes what was bad, and the new column.
    pub(in crate::engine) fn slot_gathered(
        &mut self,
        place: usize,
        found: &Gathered,
        around: &mut Around<'_>,
    ) {
        let lost = found.lost() as u64;
        self.count_lost(lost, around);
        // Of what is known to be lost no drive lacks anything.
        self.unmended += found.newly_lost() as u64;
        let bad = found.bad().count() as u64;
        around.base.counters.repaired += bad;
        let Some(Some(job)) = self.jobs.get(place) else {
            return invariant!(
                around.base,
                "job {place} of a walk is not there, but its slot is put together"
            );
        };
        let leaf = around.map.leaf_of(job.key);
        let Some(mends) = found.mends(leaf, around.space, self) else {
            return invariant!(
                around.base,
                "a slot was put together of a segment that is not there"
            );
        };
        self.write_mended(place, mends, around);
    }

    /// Every copy has been read: writes good granules over bad ones, and the new column.
    fn mend_slot(&mut self, place: usize, around: &mut Around<'_>) {
        let Some(Some(job)) = self.jobs.get_mut(place) else {
            return invariant!(
                around.base,
                "job {place} of a walk is not there to be mended"
            );
        };
        let (key, location) = (job.key, job.location);
        let copies = std::mem::take(&mut job.copies);
        let (segment, slot) = segment_and_slot(location);
        let Some(shape) = around.space.shape(segment) else {
            return invariant!(
                around.base,
                "a slot of segment {segment} is to be mended, which is not there"
            );
        };
        let salt = around.identity.salt();
        let mut whole = vec![0; shape.strip_bytes()];
        let mut bad: Vec<(ChunkCopy, usize)> = Vec::new();
        for (inner, granule) in around.map.granules_of(key).enumerate() {
            let Some((_, crc)) = around.map.granule(key.volume, granule) else {
                continue;
            };
            let recorded = around.logs.has(GranuleKey {
                volume: key.volume,
                granule,
            });
            if crc == 0 || recorded {
                // Nothing, or the ring has it and will write it to every column.
                continue;
            }
            let bytes = inner * GRANULE..(inner + 1) * GRANULE;
            let good = |copy: &(ChunkCopy, Option<Strip>)| {
                let granule = copy.1.as_ref().and_then(|strip| strip.granule(inner));
                granule.is_some_and(|granule| salt.crc(granule) == crc)
            };
            let strip = copies.iter().find(|copy| good(copy));
            let strip = strip.and_then(|(_, strip)| strip.as_ref()?.granule(inner));
            let Some(granule) = strip else {
                for (column, _) in &copies {
                    around
                        .space
                        .note_bad(usize::from(column.drive), &mut around.base.counters);
                }
                self.count_lost(1, around);
                // Of what is known to be lost no drive lacks anything.
                self.unmended += u64::from(crc != LOST_CRC);
                continue;
            };
            whole[bytes].copy_from_slice(granule);
            let others = copies.iter().filter(|copy| !good(copy));
            bad.extend(others.map(|&(column, _)| (column, inner)));
        }
        drop(copies);
        for (column, _) in &bad {
            around
                .space
                .note_bad(usize::from(column.drive), &mut around.base.counters);
        }
        let mend = |column: ChunkCopy, bytes: std::ops::Range<usize>| {
            let at = shape.strip_at(around.identity.sizes(), column, slot) + bytes.start as u64;
            (usize::from(column.drive), at, whole[bytes].to_vec())
        };
        let granule = |inner: usize| inner * GRANULE..(inner + 1) * GRANULE;
        let bad = bad.into_iter();
        let mut writes: Vec<Mend> = bad
            .map(|(column, inner)| mend(column, granule(inner)))
            .collect();
        let repaired = writes.len() as u64;
        if let Some(&joining) = self.column_to_fill(segment, around.map.leaf_of(key)) {
            writes.push(mend(joining.column, 0..whole.len()));
        }
        around.base.counters.repaired += repaired;
        self.write_mended(place, writes, around);
    }

    /// No copy of so many granules is good: who waits for a scrub is told how many it has found.
    pub(super) fn count_lost(&mut self, lost: u64, around: &mut Around<'_>) {
        around.base.counters.lost += lost;
        if self.scrub.looks_at_all() {
            self.lost += lost;
        }
    }

    fn write_mended(&mut self, place: usize, writes: Vec<Mend>, around: &mut Around<'_>) {
        if let Some(Some(job)) = self.jobs.get_mut(place) {
            job.pending = writes.len();
        }
        if writes.is_empty() {
            return self.end_job(place, around);
        }
        let joining = self.joining_drive(place);
        for (drive, at, bytes) in writes {
            // How far a scrub has come is remembered without a flush; new columns are flushed, all at
            // once, before the map names them.
            let is_new = joining.is_some_and(|new| usize::from(new) == drive);
            let durability = match is_new || self.returns.is(drive) {
                true => Durability::Cached,
                false => Durability::Durable,
            };
            let Some(mut buffer) = around.buffer(bytes.len()) else {
                return;
            };
            buffer.copy_from_slice(&bytes);
            let range = around.space.drives.range(drive, at, buffer.len());
            let owner = Owner::Walk(WalkIo::Write { job: place });
            self.send(drive, owner, around, |tag| {
                Request::write(tag, range, buffer, durability)
            });
        }
    }

    /// The drive of the new column that a slot's segment gets: the segment has no other column there.
    fn joining_drive(&self, place: usize) -> Option<u16> {
        let job = self.jobs.get(place)?.as_ref()?;
        let (segment, _) = segment_and_slot(job.location);
        Some(self.joining.get(&segment)?.column.drive)
    }

    pub(super) fn end_job(&mut self, place: usize, around: &mut Around<'_>) {
        if let Some(job) = self.jobs.get_mut(place).and_then(Option::take) {
            self.let_slot_go(job.key, around);
        }
    }

    /// Sends a request to a drive that is in service, or on its way back, or waits for that.
    pub(super) fn send(
        &self,
        drive: usize,
        owner: Owner,
        around: &mut Around<'_>,
        request: impl FnOnce(u64) -> Request,
    ) {
        let to = To {
            drive,
            owner,
            is_out: !(around.space.drives.in_service(drive as u16) || self.returns.knows(drive)),
        };
        around.base.send(to, request);
    }
}
