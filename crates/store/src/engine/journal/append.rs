//! Group commit. What is staged while an append is on its way goes into the next batch; a batch is
//! durable when every copy has it; batches of both logs are published in the order of their
//! sequences, and only what is published is acknowledged or visible: a value once read must
//! survive.

use ashlar_block::{Durability, IoBuffer, IoError, Request};
use tracing::trace;

use super::relog::Relog;
use super::{Changes, Content, Cut, Pieces, Sealed, Staged, StagedChange, Then};
use crate::engine::access::locks::SlotKey;
use crate::engine::invariant::invariant;
use crate::engine::map::{Change, Relogged};
use crate::engine::replica::Published;
use crate::engine::state::Retired;
use crate::engine::{Engine, Owner};
use crate::format::{Descriptor, Kind, LogId, metadata_bytes};
use crate::ring::{Composer, GranuleKey, Newest, Records, Stamp, batch_bytes};
use crate::sizes::GRANULE;
use crate::{Canary, ReplicaTag};

impl Engine {
    /// Begins an append in each log that has something staged, no append on its way, and room.
    pub(in crate::engine) fn seal_batches(&mut self) {
        self.check_segments();
        if self.base.failed.is_some() {
            return;
        }
        if self.journal.has_pieces() && self.logs.can_append(LogId::Ring) {
            self.seal_ring();
        }
        // A place may name a slot whose copy on a drive that has just failed is torn. Should that
        // drive come back, it must be known to be out before the place can be found.
        let changes = self.journal.has_changes() && self.roots.members_are_durable();
        if changes && self.logs.can_append(LogId::Map) {
            self.seal_map();
        }
    }

    fn seal_ring(&mut self) {
        let most = self.identity.sizes().batch_bytes as usize;
        let Pieces { pieces, granules } = self.journal.take_pieces(most);
        let count = pieces.len();
        let is_there = |piece: &Staged| {
            self.waiting
                .writes()
                .bytes_from(piece.op, piece.offset)
                .is_some()
        };
        if !pieces.iter().all(is_there) {
            return invariant!(self, "a write has ended before its data was in the ring");
        }
        let Some(mut buffer) = self.buffer(batch_bytes(count, granules)) else {
            return;
        };
        let mut composer = Composer::new(&mut buffer, (count, granules), self.identity.salt());
        let metadata = metadata_bytes(count, granules);
        for piece in &pieces {
            composer.push(piece.span(), |to| {
                let bytes = self.waiting.writes().bytes_from(piece.op, piece.offset);
                if let Some(bytes) = bytes {
                    to.copy_from_slice(&bytes[..to.len()]);
                }
            });
        }
        let mut records = composer.done();
        for (descriptor, piece) in records.descriptors.iter_mut().zip(&pieces) {
            descriptor.replica = self.waiting.writes().tag(piece.op);
        }
        let copies = self.log_copies() as u64;
        for piece in &pieces {
            let bytes = u64::from(piece.granules) * GRANULE as u64;
            self.tiers.spent_on(piece.volume, bytes * copies);
        }
        let at = self.logs.head(LogId::Ring);
        self.base.counters.ring_batches += 1;
        let content = Content::Ring {
            pieces,
            crcs: records.crcs.clone(),
            data_at: at + metadata as u64,
        };
        self.append(LogId::Ring, records, buffer, content);
    }

    fn seal_map(&mut self) {
        let batch = self.journal.take_changes(Cut {
            bytes: self.identity.sizes().batch_bytes as usize,
            splits: self.identity.sings(Canary::SplitUnit),
        });
        let records = batch.changes.len();
        let metadata = metadata_bytes(records, batch.crcs);
        let Some(mut buffer) = self.buffer(metadata + batch.blocks * GRANULE) else {
            return;
        };
        let relogged = self.relog(&batch);
        let changes = batch.changes;
        let again = relogged.iter().flat_map(|one| &one.places);
        let all = changes.iter().map(|staged| &staged.change).chain(again);
        let (mut descriptors, mut list, mut block) = (Vec::with_capacity(records), Vec::new(), 0);
        for change in all {
            if let Change::Entry { bytes, .. } = change {
                let to = metadata + block * GRANULE;
                let data = &mut buffer[to..to + GRANULE];
                data[..bytes.len()].copy_from_slice(bytes);
                data[bytes.len()..].fill(0);
                let crc = self.identity.salt().crc(data);
                descriptors.push(change.descriptor(list.len(), block));
                list.push(crc);
                block += 1;
            } else {
                descriptors.push(change.descriptor(list.len(), 0));
                change.push_crcs(&mut list);
            }
        }
        for (descriptor, staged) in descriptors.iter_mut().zip(&changes) {
            descriptor.replica = self.tag_of(staged.then);
        }
        self.base.counters.map_batches += 1;
        let records = Records {
            descriptors,
            crcs: list,
        };
        let content = Content::Map { changes, relogged };
        self.append(LogId::Map, records, buffer, content);
    }

    /// What the padding of a batch says again: not while pages are to be written for another reason, nor while changes
    /// are on their way to the map.
    fn relog(&self, batch: &Changes) -> Vec<Relogged> {
        let in_flight =
            self.journal.has_sealed_changes() && !self.identity.sings(Canary::RelogTooEarly);
        if in_flight || self.rebuild.renewal().is_under_way() || self.checkpoint.is_under_way() {
            return Vec::new();
        }
        let relog = Relog {
            identity: &self.identity,
            map: &self.map,
            logs: &self.logs,
            journal: &self.journal,
        };
        relog.fill(batch)
    }

    fn append(&mut self, log: LogId, records: Records, mut buffer: IoBuffer, content: Content) {
        let count = records.descriptors.len() as u64;
        let first_sequence = self.journal.assign(count);
        let stamp = Stamp {
            log,
            salt: self.identity.salt(),
            term: self.space.drives.term(),
            first_sequence,
        };
        let spans = content.spans();
        let at = self.logs.append(stamp, records, spans, &mut buffer);
        trace!(?log, at, first_sequence, records = count, "batch sealed");
        self.journal.push(Sealed {
            log,
            at,
            first_sequence,
            records: count,
            durable: self.identity.sings(Canary::PublishBeforeDurable),
            content,
        });
        self.write_copies(log, at, buffer);
    }

    fn write_copies(&mut self, log: LogId, at: u64, buffer: IoBuffer) {
        let (copies, offset) = self.logs.locate(log, at);
        let copies = self.space.drives.serving(copies);
        self.logs.wait_for_copies(log, copies.len());
        let mut buffers = vec![buffer];
        while buffers.len() < copies.len() {
            let Some(mut copy) = self.buffer(buffers[0].len()) else {
                return;
            };
            copy.copy_from_slice(&buffers[0]);
            buffers.push(copy);
        }
        for (copy, buffer) in copies.into_iter().zip(buffers) {
            let drive = usize::from(copy.drive);
            let range = self.space.drives.range(
                drive,
                self.identity.sizes().extent_at(copy.extent) + offset,
                buffer.len(),
            );
            self.send(drive, Owner::Append(log), |tag| {
                Request::write(tag, range, buffer, Durability::Durable)
            });
        }
    }

    pub(in crate::engine) fn append_done(
        &mut self,
        log: LogId,
        drive: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        if let Err(error) = result {
            self.drive_failed(drive, &error);
        }
        let early = self.identity.sings(Canary::AcknowledgeBeforeSecondCopy);
        let last = self.logs.copy_done(log);
        if !last && !early {
            return;
        }
        if let Some(at) = self.journal.is_durable(log) {
            trace!(?log, at, "batch durable");
            if let (LogId::Ring, Some(mut buffer)) = (log, buffer) {
                if self.identity.sings(Canary::TrustMemory)
                    || self.identity.sings(Canary::FlipMemory)
                {
                    let last = buffer.len() - 1;
                    buffer[last] ^= 1;
                }
                let most = self.base.memory.io_bytes() / 4;
                self.logs.remember(at, buffer, most);
            }
        }
        self.publish_durable();
    }

    /// Publishes what is durable, in order; but nothing while a drive has left without the others
    /// knowing it durably.
    pub(in crate::engine) fn publish_durable(&mut self) {
        while self.journal.has_durable()
            && (self.roots.members_are_durable()
                || self.identity.sings(Canary::AcknowledgeBeforeExclusion))
            && self.base.failed.is_none()
        {
            if let Some(sealed) = self.journal.publish() {
                self.publish(sealed);
            }
        }
    }

    fn publish(&mut self, sealed: Sealed) {
        let until = self.journal.published();
        trace!(log = ?sealed.log, at = sealed.at, until, "batch published");
        let mut sequence = sealed.first_sequence;
        match sealed.content {
            Content::Ring {
                pieces,
                crcs,
                data_at,
            } => {
                let mut block = 0;
                for piece in pieces {
                    self.publish_piece(
                        &piece,
                        sequence,
                        &crcs[block..],
                        data_at + (block * GRANULE) as u64,
                    );
                    block += usize::from(piece.granules);
                    sequence += 1;
                    self.write_step(|writes, _, around| writes.part_done(piece.op, around));
                }
            }
            Content::Map { changes, relogged } => {
                for staged in changes {
                    self.publish_change(staged, sequence);
                    sequence += 1;
                }
                for one in relogged {
                    self.map.relogged(&one);
                }
            }
        }
    }

    fn publish_piece(&mut self, piece: &Staged, sequence: u64, crcs: &[u32], at: u64) {
        for i in 0..u64::from(piece.granules) {
            let key = GranuleKey {
                volume: piece.volume,
                granule: piece.first + i,
            };
            let newest = Newest {
                sequence,
                at: at + i * GRANULE as u64,
                crc: crcs[i as usize],
            };
            self.logs.publish(key, newest);
        }
        let volume = piece.volume;
        let tag = self.waiting.writes().tag(piece.op);
        let change = published(piece.first, piece.granules, sequence, tag);
        self.replicas.changed(volume, &change);
        for slot in self.map.grain(volume).slots_of(piece.range()) {
            self.check_reserved(SlotKey { volume, slot });
        }
    }

    fn publish_change(&mut self, staged: StagedChange, sequence: u64) {
        let StagedChange { change, then, .. } = staged;
        let tag = self.tag_of(then);
        if !self.map.is_ready_for(&change) {
            return self.fail("a leaf of the map has gone before its change came".into());
        }
        self.map.apply(&change, sequence);
        match &change {
            Change::Place {
                moved,
                volume,
                first,
                granules,
                old,
                ..
            } => {
                // Destage drops its own records when the homes are durable.
                if !moved {
                    self.supersede(*volume, *first, *granules, sequence);
                    if let Then::Bypass(_) = then {
                        self.replicas
                            .changed(*volume, &published(*first, *granules, sequence, tag));
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
                self.supersede(*volume, *first, *granules, sequence);
                self.replicas
                    .changed(*volume, &published(*first, *granules, sequence, tag));
                self.release_slot(*old);
            }
            Change::Entry { .. } => {}
        }
        match then {
            Then::Bypass(op) => {
                self.write_step(|writes, _, around| writes.bypass_published(op, around));
            }
            Then::Destage => self.destage_published(),
            Then::Clear(op, slot) => {
                self.clear_step(|clears, around| clears.published(op, slot, around));
            }
            Then::Columns(id) => self.columns_published(id),
            Then::Segment(id, class) => self.segment_published(id, class),
            Then::Released(id) => self.segment_released(id),
            Then::RawSegment => self.raw.recorded(),
            Then::RawFreed(id) => {
                let (raw, mut around) = self.raw();
                raw.freed(id, &mut around);
            }
            Then::Volume(number, id) => self.volume_published(number, id),
            Then::Plane => {}
            Then::Replica(volume, id) => self.replicas.entry_published(volume, id, &mut self.base),
        }
    }

    /// The tag of the command that a change belongs to.
    fn tag_of(&self, then: Then) -> Option<ReplicaTag> {
        match then {
            Then::Bypass(op) => self.waiting.writes().tag_of_bypass(op),
            Then::Clear(op, _) => self.waiting.clears().tag(op),
            _ => None,
        }
    }

    fn supersede(&mut self, volume: u32, first: u64, granules: u16, sequence: u64) {
        for granule in first..first + u64::from(granules) {
            self.logs
                .supersede(GranuleKey { volume, granule }, sequence);
        }
    }

    fn release_slot(&mut self, location: u32) {
        if location == 0 {
            return;
        }
        self.access.retire(Retired::Slot(location));
    }
}

fn published(first: u64, granules: u16, sequence: u64, tag: Option<ReplicaTag>) -> Published {
    Published {
        granules: first..first + u64::from(granules),
        sequence,
        tag,
    }
}

impl Change {
    /// Checksums and data blocks that its record needs.
    pub(in crate::engine) fn weight(&self) -> (usize, usize) {
        match self {
            Self::Place { granules, .. } => (usize::from(*granules), 0),
            Self::Clear { .. } => (0, 0),
            Self::Entry { .. } => (1, 1),
        }
    }

    fn push_crcs(&self, list: &mut Vec<u32>) {
        if let Self::Place { crcs, granules, .. } = self {
            list.extend_from_slice(&crcs[..usize::from(*granules)]);
        }
    }

    fn descriptor(&self, first_crc: usize, block: usize) -> Descriptor {
        let plain = Descriptor {
            kind: Kind::Deallocate,
            granules: 1,
            volume: 0,
            first_granule: 0,
            node: 1,
            first_crc: 0,
            block_or_location: 0,
            old_location: 0,
            replica: None,
        };
        match self {
            Self::Place {
                moved,
                volume,
                first,
                granules,
                new,
                old,
                ..
            } => Descriptor {
                kind: if *moved { Kind::Move } else { Kind::Place },
                granules: *granules,
                volume: *volume,
                first_granule: *first,
                first_crc: first_crc as u32,
                block_or_location: *new,
                old_location: *old,
                ..plain
            },
            Self::Clear {
                volume,
                first,
                granules,
                old,
            } => Descriptor {
                granules: *granules,
                volume: *volume,
                first_granule: *first,
                old_location: *old,
                ..plain
            },
            Self::Entry { table, index, .. } => Descriptor {
                kind: Kind::Entry,
                first_granule: u64::from(*index),
                node: *table,
                first_crc: first_crc as u32,
                block_or_location: block as u32,
                ..plain
            },
        }
    }
}
