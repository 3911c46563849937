//! Slots with parity on their way home: never in place, always as a whole. What such a slot keeps is
//! read from where it was, written with the rest to a fresh home, flushed, and only then does the map
//! say so: what is kept is in no ring, and a crash in between must find it in its old place.

use ashlar_block::{Durability, IoBuffer};

use super::{Around, Destage, Job, Next};
use crate::Canary;
use crate::engine::access::locks::SlotKey;
use crate::engine::invariant::invariant;
use crate::engine::journal::{StagedChange, Then};
use crate::engine::map::Change;
use crate::engine::parity::{For, Gathered, Slots, Wish};
use crate::engine::space::segment_and_slot;
use crate::engine::state::Retired;
use crate::engine::tier::walk::Way;
use crate::engine::{DestageIo, Owner};
use crate::format::LOST_CRC;
use crate::sizes::{GRANULE, UNIT_GRANULES};

/// A slot that moves to a fresh home with all its granules.
pub(super) struct Whole {
    /// Where it was; 0 for nowhere.
    pub(super) old: u32,
    /// Checksums of all its granules, 0 for those that were never written.
    crcs: [u32; UNIT_GRANULES as usize],
    /// Its change of place is staged.
    pub(super) placed: bool,
    /// Something that it keeps cannot be read, and it does not have to move.
    stays: bool,
    pub(super) is_locked: bool,
}

impl Whole {
    /// What was to come to a granule is lost.
    pub(super) fn lose(&mut self, granule: usize) {
        self.crcs[granule] = LOST_CRC;
    }
}

impl Destage {
    /// A slot with parity is never written in place: it goes to a fresh home with what it keeps.
    pub(in crate::engine) fn collect_whole(
        &mut self,
        key: SlotKey,
        way: Way,
        is_locked: bool,
        around: &mut Around<'_>,
    ) {
        let bytes = around.map.grain(key.volume).bytes() as usize;
        let Some(mut buffer) = around.buffer(bytes) else {
            return;
        };
        buffer.fill(0);
        let granules = around.recorded(key);
        let mut crcs = [0; UNIT_GRANULES as usize];
        for (crc, granule) in crcs.iter_mut().zip(around.map.granules_of(key)) {
            let Some((_, known)) = around.map.granule(key.volume, granule) else {
                return invariant!(
                    around.base,
                    "slot {} of volume {} moves, but its leaf is not here",
                    key.slot,
                    key.volume
                );
            };
            *crc = known;
        }
        for (i, newest) in &granules {
            crcs[*i] = newest.crc;
        }
        self.jobs.push(Job {
            key,
            location: way.to,
            lost: 0,
            buffer,
            granules,
            has_lost: false,
            whole: Some(Whole {
                old: way.from,
                crcs,
                placed: false,
                stays: false,
                is_locked,
            }),
        });
    }

    /// Reads what a slot keeps from where it was.
    pub(super) fn read_kept(&mut self, job: usize, around: &mut Around<'_>) {
        let Some(state) = self.jobs.get(job) else {
            return invariant!(
                around.base,
                "job {job} of this round of destage is not there"
            );
        };
        let Some(whole) = &state.whole else {
            return;
        };
        let mut wish = Wish {
            who: For::Destage { job },
            key: state.key,
            location: whole.old,
            granules: 0,
            bad: 0,
            crcs: [0; UNIT_GRANULES as usize],
        };
        for (i, &crc) in whole.crcs.iter().enumerate() {
            let recorded = state.granules.iter().any(|(granule, _)| *granule == i);
            if crc != 0 && !recorded {
                wish.granules |= 1 << i;
                wish.crcs[i] = crc;
            }
        }
        if wish.granules != 0 && whole.old != 0 {
            self.pending += 1;
            self.next.push_back(Next::Gather(wish));
        }
    }

    /// What a slot keeps has been put together. What is lost stays so: zeroes go with its checksum.
    pub(in crate::engine) fn job_gathered(
        &mut self,
        job: usize,
        found: &Gathered,
        around: &mut Around<'_>,
    ) {
        self.pending -= 1;
        let Some(state) = self.jobs.get_mut(job) else {
            return invariant!(
                around.base,
                "what slot {job} keeps is here, but its job is not"
            );
        };
        let recorded: Vec<usize> = state.granules.iter().map(|(granule, _)| *granule).collect();
        for i in (0..state.buffer.len() / GRANULE).filter(|i| !recorded.contains(i)) {
            if let Some(bytes) = found.granule(i) {
                state.buffer[i * GRANULE..(i + 1) * GRANULE].copy_from_slice(bytes);
            }
        }
        let (key, old) = (state.key, state.whole.as_ref().map_or(0, |whole| whole.old));
        let lost = found.lost() as u64;
        // Its old home may yet be read, or mended.
        let in_place = lost > 0 && around.goes_in_place(key, old);
        let comes = lost > 0
            && old != 0
            && around
                .rebuild
                .has_coming_column(segment_and_slot(old).0, around.space);
        let stays = lost > 0 && recorded.is_empty() || in_place || comes;
        if in_place && !recorded.is_empty() {
            self.in_place.insert(key);
        } else if comes && !recorded.is_empty() {
            self.awaits_drive.insert(key);
        }
        match self.jobs.get_mut(job).and_then(|job| job.whole.as_mut()) {
            Some(whole) if stays => whole.stays = true,
            _ => around.base.counters.lost += lost,
        }
        self.write_jobs_if_read(around);
    }

    /// Writes them to their fresh homes, those side by side together.
    pub(super) fn write_wholes(&mut self, around: &mut Around<'_>) {
        let jobs = self.jobs.iter_mut();
        let moves = |whole: &Whole| !whole.stays;
        let wholes = jobs.filter(|job| job.whole.as_ref().is_some_and(moves));
        // Their bytes are not asked for again.
        let mut wholes: Vec<(u32, IoBuffer)> = wholes
            .map(|job| (job.location, job.buffer.split_off(0)))
            .collect();
        wholes.sort_unstable_by_key(|&(home, _)| home);
        let homes: Vec<u32> = wholes.iter().map(|&(home, _)| home).collect();
        for run in around.space.runs_of_homes(&homes) {
            let (segment, slot) = segment_and_slot(homes[run.start]);
            let slots: Vec<&[u8]> = wholes[run].iter().map(|(_, bytes)| &bytes[..]).collect();
            let owner = Owner::Destage(DestageIo::Write);
            let slots = Slots {
                segment,
                slot,
                bytes: &slots,
            };
            self.pending += slots.write(Durability::Cached, owner, &mut around.mending());
        }
        if around.identity.sings(Canary::PlaceBeforeColumns) {
            self.place_whole(around);
        }
    }

    /// Slots written as a whole are on the drives: only now may the map say so, for what they keep
    /// is in no ring.
    pub(super) fn place_whole(&mut self, around: &mut Around<'_>) {
        for job in 0..self.jobs.len() {
            let state = &self.jobs[job];
            let arrived = around.space.is_readable(segment_and_slot(state.location).0);
            let state = &mut self.jobs[job];
            let moves = |whole: &&mut Whole| !whole.placed && !whole.stays;
            let Some(whole) = state.whole.as_mut().filter(moves) else {
                continue;
            };
            if !arrived {
                continue;
            }
            whole.placed = true;
            let grain = around.map.grain(state.key.volume);
            let change = Change::Place {
                moved: true,
                volume: state.key.volume,
                first: grain.first(state.key.slot),
                granules: grain.granules() as u16,
                new: state.location,
                old: whole.old,
                crcs: whole.crcs,
            };
            self.unpublished += 1;
            around.journal.stage_first(StagedChange {
                change,
                then: Then::Destage,
                more: false,
            });
        }
    }

    /// The drives under a fresh home have gone before the slot was there: the ring keeps it.
    pub(super) fn give_up_whole(&mut self, job: &Job, around: &mut Around<'_>) {
        around.access.retire(Retired::Slot(job.location));
        around.reserving().reserve_if_kept(job.key);
        self.let_job_go(job.key, job.is_locked(), around);
    }
}
