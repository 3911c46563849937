//! The journal: what is staged for the two logs, sealed batches on their way to drives, and the sequence of all of it.
//!
//! A record has a sequence from the moment that its batch is sealed. Batches of both logs are published in the order
//! of their sequences.

pub(super) mod append;
pub(super) mod logs;
pub(super) mod publish;
mod relog;
pub(super) mod tails;

use std::collections::VecDeque;
use std::ops::Range;

use super::access::locks::SlotKey;
use super::class::Class;
use super::map::{Change, Map, Relogged};
use crate::format::{LogId, MAX_CRCS, MAX_RECORDS, metadata_bytes};
use crate::ring::{Span, batch_bytes};
use crate::sizes::{GRANULE, Grain};

/// Part of a write on its way into the ring: granules of one unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    pub(crate) op: usize,
    pub(crate) volume: u32,
    pub(crate) first: u64,
    pub(crate) granules: u16,
    /// Where its bytes begin in the write's buffer.
    pub(crate) offset: usize,
}

impl Staged {
    pub(super) fn range(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.granules)
    }

    pub(super) fn span(&self) -> Span {
        Span {
            volume: self.volume,
            first: self.first,
            granules: self.granules,
        }
    }
}

/// Who cares that a change is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// A bypass write.
    Bypass(usize),
    /// The running destage.
    Destage,
    /// A clear, and which slot.
    Clear(usize, u64),
    /// A segment has come into being.
    Segment(u32, Class),
    /// A segment has other columns.
    Columns(u32),
    /// A segment is free.
    Released(u32),
    /// A segment of a pass-through volume is recorded.
    RawSegment,
    /// A segment of a pass-through volume is free.
    RawFreed(u32),
    /// A volume's entry has changed, and the order that asked for it, if one did.
    Volume(u32, Option<u64>),
    /// A page of a replica's plane; what relies on it comes behind it.
    Plane,
    /// A replica's entry has changed, and the order that asked for it, if one did.
    Replica(u32, Option<u64>),
}

/// A change of the map on its way into the map log.
#[derive(Clone, Debug)]
pub(crate) struct StagedChange {
    pub(crate) change: Change,
    pub(crate) then: Then,
    /// It and the next one happen together: they are in one batch.
    pub(crate) more: bool,
}

impl StagedChange {
    /// The order that it is the answer to, if any.
    pub(super) fn asked_by(&self) -> Option<u64> {
        match self.then {
            Then::Volume(_, id) | Then::Replica(_, id) => id,
            _ => None,
        }
    }
}

/// A batch of the ring.
pub(super) struct RingBatch {
    pieces: Vec<Staged>,
    crcs: Vec<u32>,
    /// Position of the first data block.
    data_at: u64,
}

/// A record of a batch of the ring.
#[derive(Clone, Copy)]
pub(super) struct RingRecord<'a> {
    pub(super) piece: &'a Staged,
    pub(super) sequence: u64,
    crcs: &'a [u32],
    /// Position of its first data block.
    at: u64,
}

impl RingBatch {
    /// Its records, the first of which has this sequence.
    pub(super) fn records(&self, first: u64) -> impl Iterator<Item = RingRecord<'_>> {
        let mut block = 0;
        self.pieces
            .iter()
            .zip(first..)
            .map(move |(piece, sequence)| {
                let crcs = &self.crcs[block..block + usize::from(piece.granules)];
                let at = self.data_at + (block * GRANULE) as u64;
                block += crcs.len();
                RingRecord {
                    piece,
                    sequence,
                    crcs,
                    at,
                }
            })
    }
}

pub(super) enum Content {
    Ring(RingBatch),
    Map {
        changes: Vec<StagedChange>,
        relogged: Vec<Relogged>,
    },
}

impl Content {
    /// The granules that it has records of.
    pub(super) fn spans(&self) -> Vec<Span> {
        match self {
            Self::Ring(batch) => batch.pieces.iter().map(Staged::span).collect(),
            Self::Map { .. } => Vec::new(),
        }
    }
}

/// A batch between its sealing and its publication.
pub(super) struct Sealed {
    pub(super) log: LogId,
    pub(super) at: u64,
    pub(super) first_sequence: u64,
    pub(super) records: u64,
    pub(super) durable: bool,
    pub(super) content: Content,
}

/// Pieces of writes for one batch of the ring.
pub(super) struct Pieces {
    pub(super) pieces: Vec<Staged>,
    pub(super) granules: usize,
}

/// Changes for one batch of the map log, and what they take of it.
pub(super) struct Changes {
    pub(super) changes: Vec<StagedChange>,
    pub(super) crcs: usize,
    pub(super) blocks: usize,
}

/// How batches of the map log are cut.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    /// Bytes of the largest.
    pub(super) bytes: usize,
    /// Also between changes that happen together (a canary).
    pub(super) splits: bool,
}

/// What is staged and sealed.
pub(super) struct Journal {
    /// The next sequence to be assigned; everything below `published` is published.
    sequence: u64,
    published: u64,
    pieces: VecDeque<Staged>,
    changes: VecDeque<StagedChange>,
    /// Sealed batches of both logs, in the order of their sequences.
    sealed: VecDeque<Sealed>,
}

impl Journal {
    /// All records below this sequence are in the logs.
    pub(super) fn new(sequence: u64) -> Self {
        Self {
            sequence,
            published: sequence,
            pieces: VecDeque::new(),
            changes: VecDeque::new(),
            sealed: VecDeque::new(),
        }
    }

    /// The sequence of the next record that is sealed.
    pub(super) const fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// Everything below it is published.
    pub(super) const fn published(&self) -> u64 {
        self.published
    }

    /// A part of a write is to go into the ring.
    pub(super) fn stage_piece(&mut self, piece: Staged) {
        self.pieces.push_back(piece);
    }

    /// A change of the map comes behind all that are staged.
    pub(super) fn stage(&mut self, change: StagedChange) {
        self.changes.push_back(change);
    }

    /// A change of the map comes before all that are staged.
    pub(super) fn stage_first(&mut self, change: StagedChange) {
        self.changes.push_front(change);
    }

    /// What was staged last, and what is staged next, become durable in one step.
    pub(super) fn join_last(&mut self) {
        if let Some(last) = self.changes.back_mut() {
            last.more = true;
        }
    }

    pub(super) fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Nothing is staged, and nothing sealed that is not published.
    pub(super) fn is_quiet(&self) -> bool {
        self.pieces.is_empty() && self.changes.is_empty() && self.sealed.is_empty()
    }

    /// Takes the pieces of the next batch of the ring, of at most so many bytes.
    pub(super) fn take_pieces(&mut self, bytes: usize) -> Pieces {
        let (mut records, mut granules) = (0, 0);
        for staged in &self.pieces {
            let more = granules + usize::from(staged.granules);
            if records + 1 > MAX_RECORDS || batch_bytes(records + 1, more) > bytes {
                break;
            }
            (records, granules) = (records + 1, more);
        }
        Pieces {
            pieces: self.pieces.drain(..records).collect(),
            granules,
        }
    }

    /// Takes the changes of the next batch of the map log.
    pub(super) fn take_changes(&mut self, cut: Cut) -> Changes {
        let (mut records, mut crcs, mut blocks) = (0, 0, 0);
        // Up to the last change that nothing has to be together with: a unit's fit any batch.
        let mut whole = (0, 0, 0);
        for staged in &self.changes {
            let (more_crcs, more_blocks) = staged.change.weight();
            (records, crcs, blocks) = (records + 1, crcs + more_crcs, blocks + more_blocks);
            let bytes = metadata_bytes(records, crcs) + blocks * GRANULE;
            let full = records > MAX_RECORDS || crcs > MAX_CRCS;
            if full || bytes > cut.bytes {
                break;
            }
            if !staged.more || cut.splits {
                whole = (records, crcs, blocks);
            }
            if staged.more && cut.splits {
                break;
            }
        }
        let (records, crcs, blocks) = whole;
        Changes {
            changes: self.changes.drain(..records).collect(),
            crcs,
            blocks,
        }
    }

    /// So many records are sealed: the sequence of the first.
    pub(super) fn assign(&mut self, records: u64) -> u64 {
        let first = self.sequence;
        self.sequence += records;
        first
    }

    /// A batch is on its way to its log.
    pub(super) fn push(&mut self, sealed: Sealed) {
        self.sealed.push_back(sealed);
    }

    /// The batch that is on its way to a log is durable; returns its position.
    pub(super) fn is_durable(&mut self, log: LogId) -> Option<u64> {
        let on_its_way = |sealed: &&mut Sealed| sealed.log == log && !sealed.durable;
        let sealed = self.sealed.iter_mut().find(on_its_way)?;
        sealed.durable = true;
        Some(sealed.at)
    }

    /// The next batch, if it is durable, is published now.
    pub(super) fn take_durable(&mut self) -> Option<Sealed> {
        let sealed = self.sealed.pop_front_if(|sealed| sealed.durable)?;
        self.published = sealed.first_sequence + sealed.records;
        Some(sealed)
    }

    /// Nothing more is published: takes the orders that wait for changes that have not been.
    pub(super) fn take_asked(&mut self) -> Vec<u64> {
        let sealed = std::mem::take(&mut self.sealed).into_iter();
        let on_their_way = sealed.flat_map(|sealed| match sealed.content {
            Content::Map { changes, .. } => changes,
            Content::Ring(_) => Vec::new(),
        });
        let changes = on_their_way.chain(self.changes.drain(..));
        changes.filter_map(|staged| staged.asked_by()).collect()
    }

    /// Whether a batch of the map log is not published yet.
    pub(super) fn has_sealed_changes(&self) -> bool {
        let is_map = |sealed: &Sealed| matches!(sealed.content, Content::Map { .. });
        self.sealed.iter().any(is_map)
    }

    /// Whether records of a slot of this grain are staged or being appended.
    pub(super) fn has_pieces_of(&self, grain: Grain, key: SlotKey) -> bool {
        let slot = grain.range(key.slot);
        let is_it = |piece: &Staged| {
            let (piece, volume) = (piece.range(), piece.volume);
            volume == key.volume && piece.start < slot.end && slot.start < piece.end
        };
        self.pieces_on_their_way().any(is_it)
    }

    /// Slots of which records are staged or being appended.
    pub(super) fn slots_on_their_way(&self, map: &Map) -> impl Iterator<Item = SlotKey> {
        self.pieces_on_their_way().flat_map(|piece| {
            let volume = piece.volume;
            let slots = map.grain(volume).slots_of(piece.range());
            slots.map(move |slot| SlotKey { volume, slot })
        })
    }

    /// Pieces that are staged or being appended.
    fn pieces_on_their_way(&self) -> impl Iterator<Item = &Staged> {
        let sealed = self.sealed.iter().flat_map(|sealed| match &sealed.content {
            Content::Ring(batch) => &batch.pieces[..],
            Content::Map { .. } => &[],
        });
        sealed.chain(&self.pieces)
    }
}
