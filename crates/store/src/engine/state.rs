//! The engine's state, and what can be asked of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use ashlar_block::{BlockSize, BufferPool, Geometry, Moment};
use tracing::warn;

use super::access::Access;
use super::access::locks::SlotKey;
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
use super::map::{LeafView, LostBlocks, Map};
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
use super::{DriveReplies, DriveWait, HomeStatus, LeafMemory, MemberStatus, Status, clear};
use crate::Layout;
use crate::comeback::Returning;
use crate::format::{
    ChunkCopy, DriveClass, Label, LogId, Member, MemberState, MetaSegment, Root, VolumeEntry,
    VolumeState,
};
use crate::membership::Membership;
use crate::ring::{GranuleKey, Index, Ring};
use crate::sizes::{GRANULE, Grain, LEAF_GRANULES, UNIT_GRANULES};
use crate::{Cage, Canary, ReplicaIdentity, ReplicaPromise, ReplicaSize};

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
    /// It has everything but what is in leaves of the map that could not be read.
    pub(crate) is_filled: bool,
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
    pub(super) identity: Identity,
    pub(super) base: Base,
    pub(super) space: Space,
    pub(super) roots: Roots,
    pub(super) rebuild: Rebuild,
    pub(super) replicas: Replicas,
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
            base: Base::new(
                parts.now,
                DriveIo::new(parts.drive_timeout),
                memory,
                counters,
            ),
            space: Space::new(&identity, found),
            identity,
            roots: Roots::new(parts.root, parts.remembered),
            rebuild: Rebuild::new(parts.repair_after, parts.returning),
            replicas: Replicas::found(parts.replicas, parts.sequence),
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
        engine.replicas.hold_pages(&mut engine.map);
        for key in parts.unhomed {
            engine.reserving().reserve(key);
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
        let (raw, around) = engine.raw();
        raw.give_back_orphans(&around);
        let found = clear::Found {
            volumes: &engine.volumes,
            space: &engine.space,
            map: &engine.map,
        };
        for clear in found.interrupted() {
            engine.waiting.begin_clear(clear);
        }
        engine.roots.add_log_copies.want_those_of(&engine.volumes);
        engine.begin_repairs();
        engine.space.look_for_empty();
        engine
            .volumes
            .stops_admission_check(&engine.space, &engine.rebuild);
        engine.space.discard_all_free(engine.base.now);
        engine
    }

    /// The pool at this moment.
    pub fn status(&self) -> Status {
        let extent = self.identity.sizes().extent_bytes();
        let (holds, holds_homes) = (self.holding().drives(), self.holding().homes_on());
        let taken = self.volumes.keys();
        let taken = taken.map(|&volume| self.raw.bytes(volume, self.identity.sizes()));
        let taken = taken.sum();
        let members = self
            .space
            .drives
            .members()
            .iter()
            .enumerate()
            .map(|(index, member)| {
                let free = self.space.drives.free(index).free();
                let free = free + self.space.upkeep.discards().taken(index);
                MemberStatus {
                    drive: member.drive,
                    class: self.space.drives.class(index),
                    in_service: self.serves(index),
                    returning: self.rebuild.returns().knows(index),
                    reason: match self.rebuild.returns().knows(index) {
                        true => Some("it is here again, and gets what it has missed".to_owned()),
                        false => self.space.drives.record().why_out(index).map(str::to_owned),
                    },
                    bytes: u64::from(member.extents) * extent,
                    used_bytes: u64::from(member.extents.saturating_sub(free)) * extent,
                    leaving: member.state == MemberState::Leaving
                        || !member.state.in_service() && self.serves(index),
                    holds: holds.contains(&(index as u16)),
                    holds_homes: holds_homes.contains(&(index as u16)),
                    bad_copies: self.space.drives.record().bad_copies(index),
                    replies: self.replies(index),
                    wait: self.drive_wait(index),
                }
            });
        Status {
            waits_for_node: self.waits_for_its_node(),
            failure: self.base.failed.why().map(str::to_owned),
            next_member: self.next_member(),
            members: members.collect(),
            label: self.identity.label().clone(),
            features: self.roots.features.durable(),
            volumes: self.volumes(),
            homes: self.homes(),
            stripes: self.space.stripe_status(taken),
            log_copies: self.log_copies() as u8,
            kept_bytes: (0..self.space.drives.count())
                .map(|drive| u64::from(self.space.map_extents(drive)) * extent)
                .sum(),
            reserve: self.space.upkeep.kept().wish().wish,
            reserve_bytes: self.space.reserve_bytes(),
            reserve_can_serve: self.space.reserve_can_serve(&self.volumes),
            full_width: self.space.has_full_width(&self.volumes),
            repair_in: self
                .rebuild
                .deadline(self.base.now)
                .map(|at| at.since(self.base.now)),
            ring_fill: self.logs.fill(LogId::Ring),
            map_fill: self.logs.fill(LogId::Map),
            rebuilding: self.is_rebuilding(),
            walk: self.walk_progress(),
            degraded: self.is_degraded(),
            lost: self.map.lost_blocks(),
            counters: self.base.counters,
        }
    }

    /// Its space for homes, as [`Status::homes`] has it.
    pub fn homes(&self) -> Vec<HomeStatus> {
        let classes = self.space.home_classes(&self.volumes).into_iter();
        let status = |class| self.space.home_status(class);
        classes.map(status).collect()
    }

    /// What the map takes of memory.
    pub fn leaf_memory(&self) -> LeafMemory {
        self.map.leaf_memory()
    }

    /// Whether anything lacks a copy that it should have.
    pub fn is_degraded(&self) -> bool {
        let copies = self.log_copies();
        let mut chunks = self.logs.chunks();
        let logs = chunks.any(|chunk| self.space.drives.serving(&chunk.copies).len() < copies);
        let mut maps = self.space.metadata.segments().iter();
        let maps = maps.any(|segment| {
            let short = self.space.drives.serving(&segment.columns).len() < copies;
            short && !self.space.metadata.is_emptied(segment.id)
        });
        logs || maps || self.space.segments.are_short()
    }

    /// Whether copies are missing that a walk is making, or is about to.
    pub fn is_rebuilding(&self) -> bool {
        self.rebuild.is_rebuilding(self.base.now)
    }

    /// How far a walk has come, 0 to 1.
    pub fn walk_progress(&self) -> Option<f64> {
        self.rebuild.progress(self.base.now, &self.volumes)
    }

    /// When `handle` must be called next even if nothing happens.
    pub fn next_deadline(&self) -> Option<Moment> {
        if self.base.drive_io.has_unsent() {
            return Some(self.base.now);
        }
        if self.base.failed.is_some() {
            return self.base.drive_io.deadline();
        }
        if self.base.again {
            return Some(self.base.now);
        }
        let renewal = self.rebuild.renewal().deadline(self.base.now);
        let discard = self.space.upkeep.discards().deadline();
        let deadlines = [
            self.destage.deadline(self.base.now, &self.logs),
            self.tiers.deadline(self.base.now),
            self.rebuild.deadline(self.base.now),
            self.rebuild.rests_until(self.base.now),
            renewal.filter(|_| self.map.is_renewing()),
            self.checkpoint
                .deadline(self.base.now, &self.journal, &self.logs),
            self.replicas.deadline(&self.logs),
            self.base.drive_io.deadline(),
            discard.filter(|_| !self.roots.add_log_copies.is_waiting()),
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
            Layout::Stripe { .. } => self
                .raw
                .geometry(volume, entry.granules, &self.space.drives),
        })
    }

    /// Whether a scrub is wanted or under way, interrupted or not.
    pub fn has_scrub(&self) -> bool {
        self.rebuild.scrub().is_there()
    }

    /// Drives that were left out since the import, and why.
    pub fn losses(&self) -> &[(usize, String)] {
        self.space.drives.record().losses()
    }

    /// What a drive cannot do now.
    pub fn drive_wait(&self, member: usize) -> Option<DriveWait> {
        self.base.drive_io.wait_of(member, self.base.now)
    }

    /// How a member answers.
    pub fn replies(&self, member: usize) -> DriveReplies {
        self.base.drive_io.replies(member, self.base.now)
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
                used_bytes: match self.volumes.is_raw(number) {
                    true => self.raw.bytes(number, self.identity.sizes()),
                    false => {
                        let waiting = self.space.reservations.of_volume(number);
                        (self.map.mapped(number) + waiting) * self.map.grain(number).bytes()
                    }
                },
                layout: entry.layout,
                grain: Class::of_volume(entry).map(|class| class.grain),
                trouble: self.raw.trouble(number, &self.space.drives),
                deleting: entry.state == VolumeState::Deleting,
                stops: entry.stops,
                class: entry.class,
                is_cache: entry.is_cache,
                replica: self.replicas.identity(number),
                promise: self.replicas.promise(number),
                said: self.replicas.size(number),
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
                trouble: self.raw.trouble(number, &self.space.drives),
                stopped: self.volumes.stop_reason(number),
            })
            .collect()
    }

    /// How much of a volume's used bytes is counted twice just now. Takes as long as slots wait for homes: for checks.
    pub fn bytes_counted_twice(&self, volume: u32) -> u64 {
        self.space.counted_twice(&self.map, volume) * self.map.grain(volume).bytes()
    }

    /// Checksums of granules as they are visible now, seeded with the pool's salt, 0 for what reads as zeroes; none while
    /// a leaf of the map that has some of them is not in memory.
    pub fn checksums(&self, volume: u32, granules: Range<u64>) -> Option<Vec<u32>> {
        let sum = |granule| match self.logs.newest(GranuleKey { volume, granule }) {
            Some(newest) => Some(newest.crc),
            None => self.map.granule(volume, granule).map(|(_, crc)| crc),
        };
        granules.map(sum).collect()
    }

    /// The same, as they would be without a seed; none for a granule of which the stored checksum does not tell: two
    /// values are stored as the same.
    pub fn plain_checksums(&self, volume: u32, granules: Range<u64>) -> Option<Vec<Option<u32>>> {
        let zeroes = crc32c::crc32c(&[0; GRANULE]);
        // The checksum of so many bytes is the plain one with something on top that only depends on the seed.
        let seeded = crc32c::crc32c_append(self.identity.salt().0, &[0; GRANULE]) ^ zeroes;
        let plain = |sum| match sum {
            0 => Some(zeroes),
            u32::MAX => None,
            sum => Some(sum ^ seeded),
        };
        let sums = match self.identity.sings(Canary::DigestWithoutRing) {
            true => {
                let sum = |granule| self.map.granule(volume, granule).map(|(_, crc)| crc);
                granules.map(sum).collect()
            }
            false => self.checksums(volume, granules),
        };
        sums.map(|sums: Vec<u32>| sums.into_iter().map(plain).collect())
    }

    /// Whether nothing is written of granules of one leaf of the map: they read as zeroes. What has been written may
    /// read so, too.
    pub fn is_unwritten(&self, volume: u32, granules: Range<u64>) -> bool {
        let leaf = granules.start / LEAF_GRANULES;
        let in_ring = self.logs.has_of_leaf(volume, leaf);
        let ignored = self.identity.sings(Canary::DigestWithoutRing);
        (!in_ring || ignored) && matches!(self.map.leaf(volume, leaf), LeafView::Absent)
    }

    /// Everything below this sequence is published: it grows with each change that can be seen.
    pub const fn published(&self) -> u64 {
        self.journal.published()
    }

    /// Granules that a volume can still be given, as far as can be told: slots that are free, and segments that can be
    /// made.
    pub fn free_granules(&self, volume: u32) -> u64 {
        let Some(class) = self.volumes.class_of(volume) else {
            return 0;
        };
        let more = self.space.growth(class) * u64::from(self.identity.sizes().slots(class.grain));
        (self.space.spare_slots(class) + more) * class.grain.granules()
    }

    /// The pool's copies of replicated volumes.
    pub const fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    /// The same, to tell them what they are to remember.
    pub const fn replicas_mut(&mut self) -> &mut Replicas {
        &mut self.replicas
    }

    /// A copy has made something durable: how far the pool has come.
    pub fn replica_comes_to(&mut self, volume: u32) -> u64 {
        let published = self.journal.published();
        self.replicas.comes_to(volume, published);
        published
    }

    /// The pool's label, as its first drive has it.
    pub fn label(&self) -> &Label {
        self.identity.label()
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
