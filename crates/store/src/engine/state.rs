//! The engine's state, and what can be asked of it.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::{BlockSize, BufferPool, Geometry, Moment};
use slab::Slab;
use tracing::warn;

use super::access::Access;
use super::access::locks::SlotKey;
use super::add_log_copies::AddLogCopies;
use super::base::Base;
use super::checkpoint::Checkpoint;
use super::class::Class;
use super::destage::Destage;
use super::drive_io::DriveIo;
use super::drives::Drives;
use super::extents::Extents;
use super::identity::Identity;
use super::journal::Journal;
use super::journal::logs::Logs;
use super::map::{LostBlocks, Map};
use super::memory::Memory;
use super::mending::Mending;
use super::metadata::Metadata;
use super::raw::Raw;
use super::rebuild::Rebuild;
use super::replica::{Copy, Replicas};
use super::roots::Roots;
use super::segment_table::SegmentTable;
use super::space::{Found, SegmentIds, Segments, Space};
use super::tier::{Homes, TierStatus, Tiers};
use super::upkeep::Upkeep;
use super::upkeep::reserve::Kept;
use super::volumes::VolumeTable;
use super::waiting::Waiting;
use super::{Op, Outbox};
use crate::Layout;
use crate::comeback::Returning;
use crate::format::{
    ChunkCopy, DriveClass, Label, LogId, Member, MetaSegment, Root, VolumeEntry, VolumeState,
};
use crate::membership::Membership;
use crate::ring::{Index, Ring};
use crate::sizes::{Grain, UNIT_GRANULES};
use crate::{Cage, Canary, ReplicaIdentity, ReplicaPromise, ReplicaSize, ReplicaTag};

/// Numbers of segments in a pool that is to run out of them.
const FEW_SEGMENTS: u32 = 40;

/// What is given up and waits for its readers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Retired {
    /// A slot of a mirror or parity segment.
    Slot(u32),
    /// A place of a metadata page.
    Place(u64),
    /// A log below a position.
    Log(LogId, u64),
}

/// A column that is being filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joining {
    pub(crate) column: ChunkCopy,
    /// Which column of a parity segment it is.
    pub(crate) at: usize,
}

/// A drive as the engine sees it.
pub(crate) struct Drive {
    pub(crate) geometry: Geometry,
    /// Its class, by its label; none if that is not here.
    pub(crate) class: Option<DriveClass>,
}

/// What has happened since the import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Copies of a granule that did not verify, or could not be read.
    pub bad_copies: u64,
    /// Of these, how many were written again from a good one.
    pub repaired: u64,
    /// Scrubs that have reached the end.
    pub scrubs: u64,
    /// Granules of which no copy was good.
    pub lost: u64,
    /// Granules that had changed in memory since the ring has them.
    pub bad_memory: u64,
    /// Granules moved from the ring to their homes.
    pub destaged: u64,
    /// Slots written past the ring.
    pub bypassed: u64,
    /// Batches of the data ring.
    pub ring_batches: u64,
    /// Batches of the map log.
    pub map_batches: u64,
    /// Metadata pages written.
    pub pages: u64,
    /// Roots written.
    pub roots: u64,
    /// Segments that held nothing and went back to their drives.
    pub released: u64,
    /// Leaves of the map read from drives.
    pub loaded: u64,
    /// Leaves of the map that had to make room in memory.
    pub evicted: u64,
}

/// One imported pool.
pub struct Engine {
    pub(super) now: Moment,
    pub(super) out: Outbox,
    pub(super) identity: Identity,
    pub(super) base: Base,
    pub(super) space: Space,
    pub(super) roots: Roots,
    pub(super) rebuild: Rebuild,
    pub(super) add_log_copies: AddLogCopies,
    /// Of the command that is taken in now.
    pub(super) tag: Option<ReplicaTag>,
    pub(super) replicas: Replicas,
    pub(super) ops: Slab<Op>,
    pub(super) journal: Journal,
    pub(super) logs: Logs,

    pub(super) map: Map,
    pub(super) access: Access,

    pub(super) raw: Raw,

    pub(super) volumes: VolumeTable,
    pub(super) waiting: Waiting,
    pub(super) mending: Mending,
    pub(super) destage: Destage,
    pub(super) tiers: Tiers,
    pub(super) checkpoint: Checkpoint,
}

/// What recovery hands over.
pub(crate) struct Parts {
    pub(crate) label: Label,
    pub(crate) drives: Vec<Drive>,
    pub(crate) members: Vec<Member>,
    pub(crate) generation: u64,
    pub(crate) term: u64,
    pub(crate) sequence: u64,
    pub(crate) ring: Ring,
    pub(crate) map_log: Ring,
    pub(crate) index: Index,
    pub(crate) map: Map,
    pub(crate) extents: Vec<Extents>,
    pub(crate) homes: BTreeMap<Class, Segments>,
    pub(crate) segment_classes: BTreeMap<u32, Class>,
    pub(crate) segment_ids: SegmentIds,
    pub(crate) raw: Raw,
    pub(crate) meta: Segments,
    pub(crate) meta_segments: Vec<MetaSegment>,
    pub(crate) volumes: BTreeMap<u32, VolumeEntry>,
    pub(crate) replicas: BTreeMap<u32, Copy>,
    pub(crate) unhomed: Vec<SlotKey>,
    /// Members that were left out and are here with what they had.
    pub(crate) returning: Vec<Returning>,
    /// Of what the import has read: what no good copy is here of.
    pub(crate) losses: Vec<LostBlocks>,
    /// Drives on which the import has met bad copies, once a copy.
    pub(crate) bad: Vec<usize>,
    /// Of these, how many were written again from a good one.
    pub(crate) repaired: u64,
    pub(crate) buffer_bytes: usize,
    pub(crate) leaf_bytes: u64,
    /// The owner's memory, if the engine is to use it.
    pub(crate) buffers: Option<BufferPool>,
    pub(crate) repair_after: Duration,
    /// How long a drive may take for a request.
    pub(crate) drive_timeout: Duration,
    pub(crate) cage: Cage,
    /// The root that the import has made durable.
    pub(crate) root: Root,
    /// What the node has stored of the pool, or may have; `None` if it remembers nothing.
    pub(crate) remembered: Option<Vec<Membership>>,
    pub(crate) now: Moment,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Self {
        let identity = Identity::new(parts.label, parts.cage);
        let found = Found {
            drives: Drives::new(parts.drives, parts.members, parts.extents)
                .at_root(parts.generation, parts.term),
            segments: SegmentTable::new(parts.homes, parts.segment_classes, parts.segment_ids),
            metadata: Metadata::new(parts.meta, parts.meta_segments),
            upkeep: Upkeep::new(Kept::new(&parts.root)),
        };
        let counters = Counters {
            repaired: parts.repaired,
            ..Counters::default()
        };
        let memory = Memory::new(parts.buffer_bytes, parts.buffers);
        let mut engine = Self {
            now: parts.now,
            out: Outbox::default(),
            base: Base::new(DriveIo::new(parts.drive_timeout), memory, counters),
            space: Space::new(&identity, found),
            identity,
            roots: Roots::new(parts.root, parts.remembered),
            rebuild: Rebuild::new(parts.repair_after, parts.returning),
            add_log_copies: AddLogCopies::default(),
            tag: None,
            replicas: Replicas::found(parts.replicas, parts.sequence),
            ops: Slab::new(),
            journal: Journal::new(parts.sequence),
            logs: Logs::found(parts.ring, parts.map_log, parts.index),
            map: parts.map.with_leaf_bytes(parts.leaf_bytes),
            access: Access::default(),
            raw: parts.raw,
            volumes: VolumeTable::new(parts.volumes),
            waiting: Waiting::default(),
            mending: Mending::default(),
            destage: Destage::default(),
            tiers: Tiers::default(),
            checkpoint: Checkpoint::default(),
        };
        if engine.identity.sings(Canary::TagWithoutGeneration) {
            engine.base.drive_io.forget_generations();
        }
        if engine.identity.sings(Canary::FewSegments) {
            engine.space.segments.end_ids_at(FEW_SEGMENTS);
        }
        engine.space.drives_changed();
        engine.tiers.know(&engine.volumes);
        engine.hold_replica_pages();
        for key in parts.unhomed {
            engine.reserve(key);
        }
        for LostBlocks {
            volume,
            first,
            blocks,
            lost,
        } in parts.losses
        {
            warn!("volume {volume}: {lost} of {blocks} blocks from {first} on are lost");
        }
        for drive in parts.bad {
            engine.space.note_bad(drive, &mut engine.base.counters);
        }
        engine.space.close_lost_segments();
        let copies = engine.log_copies();
        engine.space.keep_places(&engine.map, copies);
        engine.give_back_orphans();
        engine.resume_deletions();
        engine.resume_shrinks();
        engine.want_copies_of_volumes();
        engine.begin_repairs();
        engine.space.look_for_empty();
        engine
            .volumes
            .stops_admission_check(&engine.space, &engine.rebuild);
        engine.discard_all_free();
        engine
    }

    /// When `handle` must be called next even if nothing happens.
    pub fn next_deadline(&self) -> Option<Moment> {
        if self.base.drive_io.has_unsent() {
            return Some(self.now);
        }
        if self.base.failed.is_some() {
            return self.base.drive_io.deadline();
        }
        if self.base.again {
            return Some(self.now);
        }
        let discard = self.space.upkeep.discards().deadline();
        let deadlines = [
            self.destage_deadline(),
            self.tiers.deadline(self.now),
            self.repair_deadline(),
            self.rebuild.rests_until(self.now),
            self.renewal_deadline(),
            self.checkpoint
                .deadline(self.now, &self.journal, &self.logs),
            self.replica_deadline(),
            self.base.drive_io.deadline(),
            discard.filter(|_| !self.add_log_copies.is_waiting()),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Why the engine has stopped, if it has.
    pub fn failure(&self) -> Option<&str> {
        self.base.failed.why()
    }

    /// The shape of a volume in service.
    pub fn geometry(&self, volume: u32) -> Option<Geometry> {
        let entry = self.volumes.get(&volume)?;
        if entry.state != VolumeState::Live {
            return None;
        }
        let plain = Geometry::plain(BlockSize::B4096, entry.granules);
        Some(match entry.layout {
            Layout::Mirror { .. } | Layout::Parity { .. } => Geometry {
                atomic_blocks: UNIT_GRANULES as u32,
                optimal_blocks: UNIT_GRANULES as u32,
                volatile_cache: false,
                deallocates: true,
                ..plain
            },
            Layout::Stripe { .. } => self.raw_geometry(volume, entry.granules),
        })
    }

    /// Drives that were left out since the import, and why.
    pub fn losses(&self) -> &[(usize, String)] {
        self.space.drives.record().losses()
    }

    /// The pool's drives.
    pub fn members(&self) -> &[Member] {
        self.space.drives.members()
    }

    /// What has happened since the import.
    pub fn counters(&self) -> Counters {
        self.base.counters
    }

    /// How full the data ring and the map log are, 0 to 1.
    pub fn log_fill(&self) -> (f64, f64) {
        (self.logs.fill(LogId::Ring), self.logs.fill(LogId::Map))
    }

    /// The volumes that are not gone.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let homes = Homes {
            volumes: &self.volumes,
            space: &self.space,
        };
        let known = self.volumes.iter();
        known
            .filter(|(_, entry)| !matches!(entry.state, VolumeState::Free | VolumeState::Gone))
            .map(|(&number, entry)| VolumeInfo {
                number,
                name: entry.name.clone(),
                uuid: entry.uuid,
                granules: entry.granules,
                used_bytes: self.used_bytes(number),
                layout: entry.layout,
                grain: Class::of_volume(entry).map(|class| class.grain),
                trouble: self.raw_trouble(number),
                deleting: entry.state == VolumeState::Deleting,
                stops: entry.stops,
                class: entry.class,
                is_cache: entry.is_cache,
                replica: self.replica_identity(number),
                promise: self.replica_promise(number),
                said: self.replica_size(number),
                tier: self.tiers.status(number, entry, homes),
                stopped: self.volumes.stop_reason(number),
            })
            .collect()
    }

    /// What is the matter with each volume that is not gone.
    pub fn volume_conditions(&self) -> Vec<VolumeCondition> {
        let known = self.volumes.iter();
        known
            .filter(|(_, entry)| !matches!(entry.state, VolumeState::Free | VolumeState::Gone))
            .map(|(&number, entry)| VolumeCondition {
                number,
                name: entry.name.clone(),
                trouble: self.raw_trouble(number),
                stopped: self.volumes.stop_reason(number),
            })
            .collect()
    }

    fn used_bytes(&self, volume: u32) -> u64 {
        if self.is_raw(volume) {
            return self.raw_bytes(volume);
        }
        let waiting = self.space.reservations.of_volume(volume);
        (self.map.mapped(volume) + waiting) * self.map.grain(volume).bytes()
    }

    /// The pool's label, as its first drive has it.
    pub fn label(&self) -> &Label {
        self.identity.label()
    }

    /// The class that a volume has homes in, beside a hot one; none if there is no such volume, or if it is passed through.
    pub(super) fn class_of(&self, volume: u32) -> Option<Class> {
        self.volumes.class_of(volume)
    }
}

/// Whether a volume serves as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeCondition {
    pub number: u32,
    pub name: String,
    /// As [`VolumeInfo::trouble`].
    pub trouble: Option<String>,
    /// As [`VolumeInfo::stopped`].
    pub stopped: Option<String>,
}

/// A volume as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    pub number: u32,
    pub name: String,
    /// Its identity for hosts.
    pub uuid: uuid::Uuid,
    /// Size in granules of 4 KiB.
    pub granules: u64,
    /// Bytes of its slots that have homes, or will have; of a `stripe`, bytes it takes of drives.
    pub used_bytes: u64,
    /// How it is laid out.
    pub layout: Layout,
    /// Size of its slots; none if it is passed through.
    pub grain: Option<Grain>,
    /// Why it does not serve all its blocks by itself, whatever the pool's state: a `stripe` that
    /// has lost a drive, or whose flush has failed.
    pub trouble: Option<String>,
    /// Its space is being given back.
    pub deleting: bool,
    /// It takes no writes while a copy is missing that no drive can take.
    pub stops: bool,
    /// Why it takes none now.
    pub stopped: Option<String>,
    /// Drives of this class hold it; of any, without one.
    pub class: Option<DriveClass>,
    /// It holds what a cache keeps of another device.
    pub is_cache: bool,
    /// Which copy of a replicated volume it is.
    pub replica: Option<ReplicaIdentity>,
    /// What that copy has promised.
    pub promise: Option<ReplicaPromise>,
    /// How large the replicated volume was said to be, as the copy remembers.
    pub said: Option<ReplicaSize>,
    /// Its hot home, if it has one.
    pub tier: Option<TierStatus>,
}
