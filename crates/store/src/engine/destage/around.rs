//! What destage may use, and what it looks up.

use ashlar_block::{IoBuffer, Request};

use super::Job;
use crate::engine::Owner;
use crate::engine::access::Access;
use crate::engine::access::locks::SlotKey;
use crate::engine::base::Base;
use crate::engine::class::Class;
use crate::engine::identity::Identity;
use crate::engine::invariant::invariant;
use crate::engine::journal::Journal;
use crate::engine::journal::logs::Logs;
use crate::engine::journal::tails::Tails;
use crate::engine::map::Map;
use crate::engine::mending;
use crate::engine::rebuild::Rebuild;
use crate::engine::reservations::reserving::Reserving;
use crate::engine::space::{Space, location, segment_and_slot};
use crate::engine::tier::walk::Way;
use crate::engine::tier::{self, Tiers};
use crate::engine::volumes::VolumeTable;
use crate::ring::{GranuleKey, Newest};

/// What destage may use.
pub(in crate::engine) struct Around<'a> {
    pub(in crate::engine) base: &'a mut Base,
    pub(in crate::engine) identity: &'a Identity,
    pub(in crate::engine) space: &'a mut Space,
    pub(in crate::engine) volumes: &'a VolumeTable,
    pub(in crate::engine) tiers: &'a mut Tiers,
    pub(in crate::engine) journal: &'a mut Journal,
    pub(in crate::engine) logs: &'a mut Logs,
    pub(in crate::engine) map: &'a mut Map,
    pub(in crate::engine) access: &'a mut Access,
    pub(in crate::engine) rebuild: &'a Rebuild,
}

impl Around<'_> {
    pub(super) fn reserving(&mut self) -> Reserving<'_> {
        Reserving {
            base: self.base,
            space: self.space,
            volumes: self.volumes,
            journal: self.journal,
            logs: self.logs,
            map: self.map,
        }
    }

    pub(super) fn mending(&mut self) -> mending::Around<'_> {
        mending::Around {
            base: self.base,
            identity: self.identity,
            space: self.space,
            logs: self.logs,
            map: self.map,
            rebuild: self.rebuild,
        }
    }

    pub(super) fn tiers(&mut self) -> (&mut Tiers, tier::Around<'_>) {
        let around = tier::Around {
            base: self.base,
            volumes: self.volumes,
            space: self.space,
            map: self.map,
        };
        (self.tiers, around)
    }

    /// Sends a request to a drive that is in service, or on its way back.
    pub(super) fn send(
        &mut self,
        drive: usize,
        owner: Owner,
        request: impl FnOnce(u64) -> Request,
    ) {
        self.mending().send(drive, owner, request);
    }

    pub(super) fn buffer(&mut self, bytes: usize) -> Option<IoBuffer> {
        self.base.buffer(self.logs, bytes)
    }

    /// Whether records of the ring keep the map log from letting go of what it soon should.
    pub(super) fn ring_holds_map(&self) -> bool {
        let tails = Tails {
            identity: self.identity,
            journal: self.journal,
            logs: self.logs,
            map: self.map,
            hold: u64::MAX,
        };
        tails.ring_holds_map()
    }

    /// A fresh hot home for a slot whose small writes leave the ring, if its tier takes it.
    pub(super) fn take_hot(&mut self, key: SlotKey) -> Option<u32> {
        let (tiers, mut around) = self.tiers();
        tiers.take_hot(key, &mut around)
    }

    /// Granules of a slot that the ring has.
    pub(super) fn recorded(&self, key: SlotKey) -> Vec<(usize, Newest)> {
        let volume = key.volume;
        let newest = |(i, granule)| {
            let found = self.logs.newest(GranuleKey { volume, granule });
            found.map(|newest| (i, newest))
        };
        let granules = self.map.granules_of(key);
        granules.enumerate().filter_map(newest).collect()
    }

    /// A fresh slot, on the reservation.
    pub(super) fn take_home(&mut self, key: SlotKey, class: Class) -> Option<u32> {
        let (segment, slot) = self.space.take_slot(class)?;
        self.reserving().unreserve(key);
        Some(location(segment, slot))
    }

    /// A fresh slot: on the reservation if there is one, else of those that only destage may take.
    pub(super) fn take_fresh(&mut self, key: SlotKey) -> Option<u32> {
        let Some(class) = self.volumes.class_of(key.volume) else {
            invariant!(self.base, "volume {} has records, but no homes", key.volume);
            return None;
        };
        let counted_on = self.space.reservations.of_class(class);
        let free = self.space.segments.free_slots(class);
        if !self.space.reservations.has(key) && free <= counted_on {
            return None;
        }
        let (segment, slot) = self.space.take_slot(class)?;
        self.reserving().unreserve(key);
        Some(location(segment, slot))
    }

    /// Whether what the ring has of a slot can go to the home that it has.
    pub(super) fn goes_in_place(&self, key: SlotKey, home: u32) -> bool {
        let segment = segment_and_slot(home).0;
        let is_mirror = |class: Class| !class.has_parity();
        let has_mirrors = self.volumes.class_of(key.volume).is_some_and(is_mirror);
        home != 0
            && self.space.is_readable(segment)
            && self.space.segments.class(segment).is_some_and(is_mirror)
            && (has_mirrors || self.space.is_hot_home(home))
    }

    /// A slot with a tier is home.
    pub(super) fn tell_tier_of(&mut self, job: &Job) {
        if !self.tiers.has(job.key.volume) {
            return;
        }
        if let Some(whole) = &job.whole {
            let way = Way {
                from: whole.old,
                to: job.location,
            };
            let (tiers, around) = self.tiers();
            tiers.moved(job.key.volume, way, &around);
        }
        let segment = segment_and_slot(job.location).0;
        let slot = self.rebuild.slot_cost(segment, self.space);
        let granules = self.map.grain(job.key.volume).granules();
        let bytes = match job.whole {
            Some(_) => slot,
            None => slot * job.granules.len() as u64 / granules,
        };
        self.tiers.spent_on(job.key.volume, bytes);
    }
}
