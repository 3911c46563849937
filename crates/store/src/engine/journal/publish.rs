//! Publication: what a durable batch says can be seen from now on.

use super::{RingRecord, StagedChange, Then};
use crate::ReplicaTag;
use crate::engine::access::Access;
use crate::engine::access::locks::SlotKey;
use crate::engine::base::Base;
use crate::engine::destage::Destage;
use crate::engine::journal::Journal;
use crate::engine::journal::logs::Logs;
use crate::engine::map::{Change, Map};
use crate::engine::replica::{Published, Replicas};
use crate::engine::reservations::reserving::Reserving;
use crate::engine::space::Space;
use crate::engine::state::Retired;
use crate::engine::volumes::VolumeTable;
use crate::engine::waiting::Waiting;
use crate::ring::{GranuleKey, Newest};
use crate::sizes::GRANULE;

/// What changes as a record is published, and what tells how.
pub(in crate::engine) struct Publishing<'a> {
    pub(in crate::engine) base: &'a mut Base,
    pub(in crate::engine) space: &'a mut Space,
    pub(in crate::engine) volumes: &'a VolumeTable,
    pub(in crate::engine) journal: &'a Journal,
    pub(in crate::engine) logs: &'a mut Logs,
    pub(in crate::engine) map: &'a mut Map,
    pub(in crate::engine) access: &'a mut Access,
    pub(in crate::engine) replicas: &'a mut Replicas,
    pub(in crate::engine) waiting: &'a Waiting,
    pub(in crate::engine) destage: &'a Destage,
}

impl Publishing<'_> {
    /// A record of the ring is the newest of its granules.
    pub(in crate::engine) fn piece(&mut self, record: &RingRecord<'_>) {
        let RingRecord {
            piece,
            sequence,
            crcs,
            at,
        } = *record;
        let volume = piece.volume;
        for (i, (granule, &crc)) in (0..).zip(piece.range().zip(crcs)) {
            let newest = Newest {
                sequence,
                at: at + i * GRANULE as u64,
                crc,
            };
            self.logs.publish(GranuleKey { volume, granule }, newest);
        }
        let tag = self.waiting.writes().tag(piece.op);
        let change = published(piece.first, piece.granules, sequence, tag);
        self.replicas.changed(volume, &change);
        for slot in self.map.grain(volume).slots_of(piece.range()) {
            self.check_reserved(SlotKey { volume, slot });
        }
    }

    fn check_reserved(&mut self, key: SlotKey) {
        let mut reserving = Reserving {
            base: self.base,
            space: self.space,
            volumes: self.volumes,
            journal: self.journal,
            logs: self.logs,
            map: self.map,
        };
        reserving.check(key, self.destage);
    }

    /// A change of the map takes effect; false if it cannot, and the pool stops.
    #[must_use]
    pub(in crate::engine) fn change(&mut self, staged: &StagedChange, sequence: u64) -> bool {
        let StagedChange { change, then, .. } = staged;
        if !self.map.is_ready_for(change) {
            let why = "a leaf of the map has gone before its change came";
            self.base.fail(why.into());
            return false;
        }
        self.map.apply(change, sequence);
        match change {
            Change::Place {
                moved,
                volume,
                first,
                granules,
                old,
                ..
            } => {
                let tag = self.waiting.tag_of(*then);
                let what = published(*first, *granules, sequence, tag);
                // Destage drops its own records when the homes are durable.
                if !moved {
                    self.supersede(*volume, &what);
                    if let Then::Bypass(_) = then {
                        self.replicas.changed(*volume, &what);
                    }
                }
                self.release_slot(*old);
            }
            Change::Clear {
                volume,
                first,
                granules,
                old,
            } => {
                let tag = self.waiting.tag_of(*then);
                let what = published(*first, *granules, sequence, tag);
                self.supersede(*volume, &what);
                self.replicas.changed(*volume, &what);
                self.release_slot(*old);
            }
            Change::Entry { .. } => {}
        }
        true
    }

    fn supersede(&mut self, volume: u32, change: &Published) {
        for granule in change.granules.clone() {
            let key = GranuleKey { volume, granule };
            self.logs.supersede(key, change.sequence);
        }
    }

    fn release_slot(&mut self, location: u32) {
        if location != 0 {
            self.access.retire(Retired::Slot(location));
        }
    }
}

fn published(first: u64, granules: u16, sequence: u64, tag: Option<ReplicaTag>) -> Published {
    Published {
        granules: first..first + u64::from(granules),
        sequence,
        tag,
    }
}
