//! Group commit. What is staged while an append is on its way goes into the next batch; a batch is
//! durable when every copy has it; batches of both logs are published in the order of their
//! sequences, and only what is published is acknowledged or visible: a value once read must
//! survive.

use ashlar_block::{Durability, IoBuffer, Request};
use tracing::trace;

use super::logs::Logs;
use super::relog::Relog;
use super::{Changes, Content, Cut, Journal, Pieces, RingBatch, Sealed, Staged};
use crate::Canary;
use crate::engine::Owner;
use crate::engine::base::{Base, To};
use crate::engine::identity::Identity;
use crate::engine::invariant::invariant;
use crate::engine::map::{Change, Map, Relogged};
use crate::engine::space::Space;
use crate::engine::tier::Tiers;
use crate::engine::waiting::Waiting;
use crate::format::{Descriptor, Kind, LogId, metadata_bytes};
use crate::ring::{Composer, Records, Stamp, batch_bytes};
use crate::sizes::GRANULE;

/// What group commit may use.
pub(in crate::engine) struct Around<'a> {
    pub(in crate::engine) base: &'a mut Base,
    pub(in crate::engine) identity: &'a Identity,
    pub(in crate::engine) space: &'a Space,
    pub(in crate::engine) logs: &'a mut Logs,
    pub(in crate::engine) map: &'a Map,
    pub(in crate::engine) tiers: &'a mut Tiers,
    pub(in crate::engine) waiting: &'a Waiting,
}

/// How batches are sealed in this turn.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Sealing {
    /// Copies that the logs should have.
    pub(in crate::engine) copies: usize,
    /// No drive has failed without a durable root that says so.
    pub(in crate::engine) members_are_durable: bool,
    /// No page is to be written for another reason, so that padding may say again what old batches say.
    pub(in crate::engine) may_relog: bool,
}

impl Journal {
    /// Begins an append in each log that has something staged, no append on its way, and room.
    pub(in crate::engine) fn seal(&mut self, sealing: Sealing, around: &mut Around<'_>) {
        if self.has_pieces() && around.logs.can_append(LogId::Ring) {
            self.seal_ring(sealing, around);
        }
        // A place may name a slot whose copy on a drive that has just failed is torn. Should that
        // drive come back, it must be known to be out before the place can be found.
        let changes = self.has_changes() && sealing.members_are_durable;
        if changes && around.logs.can_append(LogId::Map) {
            self.seal_map(sealing, around);
        }
    }

    fn seal_ring(&mut self, sealing: Sealing, around: &mut Around<'_>) {
        let most = around.identity.sizes().batch_bytes as usize;
        let Pieces { pieces, granules } = self.take_pieces(most);
        let count = pieces.len();
        let writes = around.waiting.writes();
        let bytes = |piece: &Staged| writes.bytes_from(piece.op, piece.offset);
        if pieces.iter().any(|piece| bytes(piece).is_none()) {
            return invariant!(
                around.base,
                "a write has ended before its data was in the ring"
            );
        }
        let size = batch_bytes(count, granules);
        let Some(mut buffer) = around.base.buffer(around.logs, size) else {
            return;
        };
        let mut composer = Composer::new(&mut buffer, (count, granules), around.identity.salt());
        let metadata = metadata_bytes(count, granules);
        for piece in &pieces {
            composer.push(piece.span(), |to| {
                if let Some(bytes) = bytes(piece) {
                    to.copy_from_slice(&bytes[..to.len()]);
                }
            });
        }
        let mut records = composer.done();
        for (descriptor, piece) in records.descriptors.iter_mut().zip(&pieces) {
            descriptor.replica = writes.tag(piece.op);
        }
        for piece in &pieces {
            let bytes = u64::from(piece.granules) * GRANULE as u64;
            let copies = sealing.copies as u64;
            around.tiers.spent_on(piece.volume, bytes * copies);
        }
        around.base.counters.ring_batches += 1;
        let content = Content::Ring(RingBatch {
            pieces,
            crcs: records.crcs.clone(),
            data_at: around.logs.head(LogId::Ring) + metadata as u64,
        });
        self.append(LogId::Ring, records, buffer, content, around);
    }

    fn seal_map(&mut self, sealing: Sealing, around: &mut Around<'_>) {
        let batch = self.take_changes(Cut {
            bytes: around.identity.sizes().batch_bytes as usize,
            splits: around.identity.sings(Canary::SplitUnit),
        });
        let records = batch.changes.len();
        let metadata = metadata_bytes(records, batch.crcs);
        let size = metadata + batch.blocks * GRANULE;
        let Some(mut buffer) = around.base.buffer(around.logs, size) else {
            return;
        };
        let relogged = match sealing.may_relog {
            true => self.relog(&batch, around),
            false => Vec::new(),
        };
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
                let crc = around.identity.salt().crc(data);
                descriptors.push(change.descriptor(list.len(), block));
                list.push(crc);
                block += 1;
            } else {
                descriptors.push(change.descriptor(list.len(), 0));
                change.push_crcs(&mut list);
            }
        }
        for (descriptor, staged) in descriptors.iter_mut().zip(&changes) {
            descriptor.replica = around.waiting.tag_of(staged.then);
        }
        around.base.counters.map_batches += 1;
        let records = Records {
            descriptors,
            crcs: list,
        };
        let content = Content::Map { changes, relogged };
        self.append(LogId::Map, records, buffer, content, around);
    }

    /// What the padding of a batch says again: not while changes are on their way to the map.
    fn relog(&self, batch: &Changes, around: &Around<'_>) -> Vec<Relogged> {
        if self.has_sealed_changes() && !around.identity.sings(Canary::RelogTooEarly) {
            return Vec::new();
        }
        let relog = Relog {
            identity: around.identity,
            map: around.map,
            logs: around.logs,
            journal: self,
        };
        relog.fill(batch)
    }

    fn append(
        &mut self,
        log: LogId,
        records: Records,
        mut buffer: IoBuffer,
        content: Content,
        around: &mut Around<'_>,
    ) {
        let count = records.descriptors.len() as u64;
        let first_sequence = self.assign(count);
        let stamp = Stamp {
            log,
            salt: around.identity.salt(),
            term: around.space.drives.term(),
            first_sequence,
        };
        let spans = content.spans();
        let at = around.logs.append(stamp, records, spans, &mut buffer);
        trace!(?log, at, first_sequence, records = count, "batch sealed");
        self.push(Sealed {
            log,
            at,
            first_sequence,
            records: count,
            durable: around.identity.sings(Canary::PublishBeforeDurable),
            content,
        });
        around.write_copies(log, at, buffer);
    }

    /// A drive has written its copy of the batch on its way, or is out; whether there may be something to publish.
    pub(in crate::engine) fn appended(
        &mut self,
        log: LogId,
        buffer: Option<IoBuffer>,
        around: &mut Around<'_>,
    ) -> bool {
        let identity = around.identity;
        let early = identity.sings(Canary::AcknowledgeBeforeSecondCopy);
        let last = around.logs.copy_done(log);
        if !last && !early {
            return false;
        }
        if let Some(at) = self.is_durable(log) {
            trace!(?log, at, "batch durable");
            if let (LogId::Ring, Some(mut buffer)) = (log, buffer) {
                if identity.sings(Canary::TrustMemory) || identity.sings(Canary::FlipMemory) {
                    let last = buffer.len() - 1;
                    buffer[last] ^= 1;
                }
                let most = around.base.memory.io_bytes() / 4;
                around.logs.remember(at, buffer, most);
            }
        }
        true
    }
}

impl Around<'_> {
    fn write_copies(&mut self, log: LogId, at: u64, buffer: IoBuffer) {
        let (copies, offset) = self.logs.locate(log, at);
        let copies = self.space.drives.serving(copies);
        self.logs.wait_for_copies(log, copies.len());
        let mut buffers = vec![buffer];
        while buffers.len() < copies.len() {
            let Some(mut copy) = self.base.buffer(self.logs, buffers[0].len()) else {
                return;
            };
            copy.copy_from_slice(&buffers[0]);
            buffers.push(copy);
        }
        for (copy, buffer) in copies.into_iter().zip(buffers) {
            let drive = usize::from(copy.drive);
            let at = self.identity.sizes().extent_at(copy.extent) + offset;
            let range = self.space.drives.range(drive, at, buffer.len());
            let to = To::of(&self.space.drives, drive, Owner::Append(log));
            self.base.send(to, |tag| {
                Request::write(tag, range, buffer, Durability::Durable)
            });
        }
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
