//! Where the bytes of granules are, and from which drive they are read.

use ashlar_block::Request;

use super::Part;
use crate::Canary;
use crate::engine::Owner;
use crate::engine::access::Access;
use crate::engine::base::{Base, To};
use crate::engine::class::Shape;
use crate::engine::identity::Identity;
use crate::engine::journal::logs::Logs;
use crate::engine::map::Map;
use crate::engine::mending::Mending;
use crate::engine::segment_table::HomeSegment;
use crate::engine::space::{Space, segment_and_slot};
use crate::engine::tier::Tiers;
use crate::engine::volumes::VolumeTable;
use crate::format::{ChunkCopy, LogId};
use crate::ring::GranuleKey;
use crate::sizes::GRANULE;

/// Where a granule's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
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
pub(super) struct Wanted {
    pub(super) source: Source,
    pub(super) crc: u32,
}

/// What hosts' reads may use.
pub(in crate::engine) struct Around<'a> {
    pub(in crate::engine) base: &'a mut Base,
    pub(in crate::engine) identity: &'a Identity,
    pub(in crate::engine) space: &'a mut Space,
    pub(in crate::engine) volumes: &'a VolumeTable,
    pub(in crate::engine) tiers: &'a Tiers,
    pub(in crate::engine) logs: &'a mut Logs,
    pub(in crate::engine) map: &'a mut Map,
    pub(in crate::engine) access: &'a mut Access,
    pub(in crate::engine) mending: &'a mut Mending,
}

impl Around<'_> {
    pub(super) fn send(
        &mut self,
        drive: usize,
        owner: Owner,
        request: impl FnOnce(u64) -> Request,
    ) {
        let to = To::of(&self.space.drives, drive, owner);
        self.base.send(to, request);
    }

    pub(super) fn look_up(&self, volume: u32, granule: u64) -> Option<Wanted> {
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
    pub(super) fn runs(&self, wanted: &[Wanted]) -> Vec<(usize, usize)> {
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
    pub(super) fn copies(&self, source: Source) -> Vec<(usize, u64)> {
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
    pub(super) fn choose_copy(&self, source: Source, tried: u64) -> Option<(usize, u64)> {
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

    pub(super) fn fill_from_memory(&mut self, part: &mut Part) -> bool {
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
                        self.base.distrust(self.logs, at);
                        return false;
                    }
                }
                Source::Home(..) | Source::Lost => return false,
            }
        }
        true
    }
}
