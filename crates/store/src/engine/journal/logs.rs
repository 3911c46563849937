//! The two logs, the data ring and the map log: what is in them, what of it is newest, and what is remembered of
//! the ring to spare reads.
//!
//! When they are written is [`append`](super::append)'s matter, and which of it is needed no more
//! [`checkpoint`](crate::engine::checkpoint)'s; in which order it is published, [`journal`](super)'s.

use ashlar_block::IoBuffer;

use crate::engine::rebuild::readmit::without;
use crate::format::{Chunk, ChunkCopy, LogId, LogState};
use crate::ring::{GranuleKey, Index, LogBatch, Newest, Recent, Records, Ring, Span, Stamp};

/// How full the map log may be for what can wait: beyond, it is destage's until a checkpoint has emptied it.
const MAP_LIMIT: f64 = 0.8;

/// A position in each log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Positions {
    pub(in crate::engine) ring: u64,
    pub(in crate::engine) map: u64,
}

impl Positions {
    pub(in crate::engine) const fn of(self, log: LogId) -> u64 {
        match log {
            LogId::Ring => self.ring,
            LogId::Map => self.map,
        }
    }
}

/// Numbers of the next batches: they tell whether anything was appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Numbers {
    ring: u64,
    map: u64,
}

/// Both logs.
pub(in crate::engine) struct Logs {
    ring: Ring,
    map: Ring,
    /// The newest record of every granule that the ring has and the homes do not.
    index: Index,
    recent: Recent,
}

impl Logs {
    /// As the import has found them.
    pub(in crate::engine) fn found(ring: Ring, map: Ring, index: Index) -> Self {
        Self {
            ring,
            map,
            index,
            recent: Recent::default(),
        }
    }

    const fn side(&self, log: LogId) -> &Ring {
        match log {
            LogId::Ring => &self.ring,
            LogId::Map => &self.map,
        }
    }

    fn side_mut(&mut self, log: LogId) -> &mut Ring {
        match log {
            LogId::Ring => &mut self.ring,
            LogId::Map => &mut self.map,
        }
    }

    fn both(&self) -> impl Iterator<Item = &Ring> {
        [&self.ring, &self.map].into_iter()
    }
}

impl Logs {
    /// Whether the next batch can be appended at once.
    pub(in crate::engine) fn can_append(&self, log: LogId) -> bool {
        !self.is_appending(log) && self.side(log).log.has_room()
    }

    pub(in crate::engine) const fn is_appending(&self, log: LogId) -> bool {
        self.side(log).appending > 0
    }

    /// Position of the next batch.
    pub(in crate::engine) const fn head(&self, log: LogId) -> u64 {
        self.side(log).log.head.at
    }

    pub(in crate::engine) const fn next_numbers(&self) -> Numbers {
        Numbers {
            ring: self.ring.log.head.number,
            map: self.map.log.head.number,
        }
    }

    /// Number of the next batch of the ring.
    pub(in crate::engine) const fn next_of_ring(&self) -> u64 {
        self.ring.log.head.number
    }

    /// Makes a batch of these records the next one; returns its position. It is to be written to all its copies.
    pub(in crate::engine) fn append(
        &mut self,
        stamp: Stamp,
        records: Records,
        spans: Vec<Span>,
        buffer: &mut [u8],
    ) -> u64 {
        let side = self.side_mut(stamp.log);
        side.append(stamp, records, spans, buffer)
    }

    /// Where the copies of a position's chunk are, and the byte within each.
    pub(in crate::engine) fn locate(&self, log: LogId, at: u64) -> (&[ChunkCopy], u64) {
        self.side(log).log.shape.locate(at)
    }

    /// The append on its way is written to so many copies.
    pub(in crate::engine) fn wait_for_copies(&mut self, log: LogId, copies: usize) {
        self.side_mut(log).appending = copies;
    }

    /// One copy has the append on its way, or never will. Whether it was the last.
    pub(in crate::engine) fn copy_done(&mut self, log: LogId) -> bool {
        self.side_mut(log).copy_done()
    }
}

/// What the ring holds.
impl Logs {
    /// The newest record of a granule, if the ring has one.
    pub(in crate::engine) fn newest(&self, key: GranuleKey) -> Option<Newest> {
        self.index.get(key)
    }

    /// Whether the ring has a record of a granule.
    pub(in crate::engine) fn has(&self, key: GranuleKey) -> bool {
        self.index.get(key).is_some()
    }

    /// Whether the ring has a record of any granule of a leaf of the map.
    pub(in crate::engine) fn has_of_leaf(&self, volume: u32, leaf: u64) -> bool {
        self.index.knows_leaf(volume, leaf)
    }

    /// Whether many short-lived engines have left their terms in a log: a root has room for only so
    /// many, and a tail that moves on forgets them.
    pub(in crate::engine) fn has_many_terms(&self) -> bool {
        const MANY: usize = 8;
        self.terms() > MANY
    }

    /// Whether everything that was written to the ring is home.
    pub(in crate::engine) fn is_all_home(&self) -> bool {
        self.index.is_empty()
    }

    /// A record of a granule is published; the one before is void.
    pub(in crate::engine) fn publish(&mut self, key: GranuleKey, newest: Newest) {
        if let Some(old) = self.index.insert(key, newest) {
            self.ring.forget(old.at);
        }
    }

    /// A granule's record is void, or home, if it is older than this sequence.
    pub(in crate::engine) fn supersede(&mut self, key: GranuleKey, sequence: u64) {
        if let Some(old) = self.index.remove_older(key, sequence) {
            self.ring.forget(old.at);
        }
    }

    /// Batches of the ring that have the newest record of some granule, the oldest first.
    pub(in crate::engine) fn live_batches(&self) -> impl Iterator<Item = &LogBatch> {
        self.ring.batches.iter().filter(|batch| batch.live > 0)
    }

    /// Whether a batch of the ring has the newest record of a granule.
    pub(in crate::engine) fn is_newest_in(&self, batch: &LogBatch, key: GranuleKey) -> bool {
        let newest = self.index.get(key);
        newest.is_some_and(|one| one.at >= batch.at && one.at < batch.at + batch.bytes)
    }

    /// Whether two positions of the ring are of one chunk.
    pub(in crate::engine) fn is_one_chunk(&self, a: u64, b: u64) -> bool {
        let shape = &self.ring.log.shape;
        shape.chunk_number(a) == shape.chunk_number(b)
    }

    /// Sequence of the oldest record that recovery would find in the ring.
    pub(in crate::engine) fn oldest_in_ring(&self) -> Option<u64> {
        self.ring.batches.front().map(|batch| batch.first_sequence)
    }
}

/// What is remembered of the ring.
impl Logs {
    /// A batch of the ring is durable: what was written is remembered, as long as all of it is at most so many bytes.
    pub(in crate::engine) fn remember(&mut self, at: u64, batch: IoBuffer, most: usize) {
        self.recent.keep(at, batch, most);
    }

    /// Copies the granule at a position of the ring, if it is remembered. It may have changed in memory since.
    pub(in crate::engine) fn recall(&self, at: u64, into: &mut [u8]) -> bool {
        self.recent.copy(at, into)
    }

    /// What is remembered of a position's batch is wrong.
    pub(in crate::engine) fn distrust(&mut self, at: u64) {
        self.recent.forget(at);
    }

    /// Memory is needed: the oldest batch is remembered no more. Whether there was one.
    pub(in crate::engine) fn forget_oldest(&mut self) -> bool {
        self.recent.forget_oldest()
    }

    pub(in crate::engine) fn remembered_bytes(&self) -> usize {
        self.recent.bytes()
    }
}

/// How full they are.
impl Logs {
    /// 0 to 1.
    pub(in crate::engine) fn fill(&self, log: LogId) -> f64 {
        self.side(log).log.fill()
    }

    /// Whether the map log is too full for what can wait.
    pub(in crate::engine) fn is_map_busy(&self) -> bool {
        self.map.log.fill() > MAP_LIMIT
    }

    pub(in crate::engine) fn map_bytes(&self) -> u64 {
        self.map.log.shape.bytes()
    }

    pub(in crate::engine) fn map_chunks(&self) -> usize {
        self.map.log.shape.chunks.len()
    }

    /// Sequence of the first record of the newest so many bytes of the map log, if it has had so many.
    pub(in crate::engine) fn map_sequence_within(&self, bytes: u64) -> Option<u64> {
        let from = self.map.log.head.at.checked_sub(bytes)?;
        self.map.batch_from(from).map(|batch| batch.first_sequence)
    }

    /// The part of a log that lies behind a position.
    pub(in crate::engine) fn part_behind(&self, log: LogId, at: u64) -> f64 {
        let log = &self.side(log).log;
        (log.head.at - at) as f64 / log.shape.bytes() as f64
    }

    /// Whether more than the `part`th part of either log lies behind the first record from this sequence on.
    pub(in crate::engine) fn is_far_behind(&self, sequence: u64, part: u64) -> bool {
        self.both().any(|side| {
            let head = side.log.head.at;
            let kept = head - side.position_of(sequence).min(head);
            kept > side.log.shape.bytes() / part
        })
    }
}

/// Where they begin, and what may be written over.
impl Logs {
    /// Drops batches of the ring that no recovery needs: all their granules have newer records or homes, and all
    /// below this sequence is published.
    pub(in crate::engine) fn trim_ring(&mut self, published: u64) {
        self.ring.trim(published);
        self.recent.forget_below(self.ring.tail_at());
    }

    /// Position of the oldest batch of the ring.
    pub(in crate::engine) fn ring_tail(&self) -> u64 {
        self.ring.tail_at()
    }

    /// Position of the map log's first batch with records from this sequence on.
    pub(in crate::engine) fn map_tail(&self, sequence: u64) -> u64 {
        self.map.position_of(sequence)
    }

    /// Below these, chunks are free already.
    pub(in crate::engine) const fn free_below(&self) -> Positions {
        Positions {
            ring: self.ring.log.free_below,
            map: self.map.log.free_below,
        }
    }

    /// Whether a whole chunk lies between where a log begins and where it would.
    pub(in crate::engine) fn frees_a_chunk(&self, log: LogId, from: u64, tail: u64) -> bool {
        let shape = &self.side(log).log.shape;
        shape.chunk_number(tail) > shape.chunk_number(from)
    }

    /// A log for a root that lets it begin at this position.
    pub(in crate::engine) fn state(&self, log: LogId, tail: u64) -> LogState {
        self.side(log).state(tail)
    }

    /// A root with these tails is durable. What is below is written over once no reader is left: see
    /// [`free`](Self::free).
    pub(in crate::engine) fn rooted(&mut self, tails: Positions) {
        self.map.drop_below(tails.map);
        self.ring.drop_terms();
        self.map.drop_terms();
    }

    /// Nothing reads a log below a position any more.
    pub(in crate::engine) fn free(&mut self, log: LogId, below: u64) {
        self.side_mut(log).log.free_below = below;
    }

    /// The most terms that batches of one log are of.
    pub(in crate::engine) fn terms(&self) -> usize {
        self.ring.terms.len().max(self.map.terms.len())
    }
}

impl Logs {
    /// The chunks of both.
    pub(in crate::engine) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.both().flat_map(|side| &side.log.shape.chunks)
    }

    pub(in crate::engine) fn chunks_of(&self, log: LogId) -> &[Chunk] {
        &self.side(log).log.shape.chunks
    }

    /// What a drive had of them is old.
    pub(in crate::engine) fn leave_drive(&mut self, drive: u16) {
        for side in [&mut self.ring, &mut self.map] {
            for chunk in &mut side.log.shape.chunks {
                without(&mut chunk.copies, drive);
            }
        }
    }

    /// Nothing is appended until a root names other copies; returns the chunks that hold nothing, which may be given
    /// some. A log that is empty goes on in its next chunk, so that the one that it was in may, too.
    pub(in crate::engine) fn hold(&mut self, log: LogId) -> Vec<usize> {
        let side = self.side_mut(log);
        let at = side.log.head.at;
        if side.batches.is_empty() && at > 0 {
            side.log.head.at += side.log.shape.left_in_chunk(at);
        }
        side.log.held = true;
        let (shape, head) = (&side.log.shape, side.log.head.at);
        let tail = shape.chunk_number(side.tail_at().min(side.log.free_below));
        let is_begun = shape.left_in_chunk(head) < shape.left_in_chunk(0);
        let is_used = is_begun || !side.batches.is_empty();
        let first = shape.chunk_number(head) + u64::from(is_used);
        let count = shape.chunks.len() as u64;
        let free = first..(tail + count).max(first);
        free.map(|chunk| (chunk % count) as usize).collect()
    }

    /// The root that names the copies of this moment is durable.
    pub(in crate::engine) fn go_on(&mut self) {
        self.ring.log.held = false;
        self.map.log.held = false;
    }

    /// A chunk that holds nothing has these copies from now on.
    pub(in crate::engine) fn set_copies(
        &mut self,
        log: LogId,
        chunk: usize,
        copies: Vec<ChunkCopy>,
    ) {
        self.side_mut(log).log.shape.chunks[chunk].copies = copies;
    }
}
