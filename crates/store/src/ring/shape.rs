//! Positions in a log: a ring of chunks that batches fill one after another.
//!
//! A position counts bytes since the pool was made and never wraps: chunk `position / chunk_bytes`
//! lies in the log's chunk of that number modulo the number of chunks. A batch never spans chunks;
//! when less than the largest batch is left in a chunk, the next batch begins the next one. Writer
//! and reader both know this rule, so no mark is needed.

use crate::Sizes;
use crate::format::{Chunk, ChunkCopy};

/// The shape of a ring.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its chunks, and where each one's copies are.
    pub chunks: Vec<Chunk>,
    chunk_bytes: u64,
    batch_bytes: u64,
}

impl Shape {
    /// So many chunks of these sizes.
    pub fn new(sizes: &Sizes, chunks: Vec<Chunk>) -> Self {
        Self {
            chunks,
            chunk_bytes: sizes.chunk_bytes(),
            batch_bytes: u64::from(sizes.batch_bytes),
        }
    }

    /// Where the next batch begins after one at `at` of `bytes`.
    pub fn after(&self, at: u64, bytes: u64) -> u64 {
        let end = at + bytes;
        let left = self.chunk_bytes - (end - 1) % self.chunk_bytes - 1;
        if left < self.batch_bytes {
            end + left
        } else {
            end
        }
    }

    /// Number of the chunk in which a position lies, counted from the pool's beginning.
    pub fn chunk_number(&self, at: u64) -> u64 {
        at / self.chunk_bytes
    }

    /// The copies of a position's chunk and the byte within it.
    ///
    /// # Panics
    /// If there is no chunk; no root says so.
    pub fn locate(&self, at: u64) -> (&[ChunkCopy], u64) {
        let chunk = (self.chunk_number(at) % self.chunks.len() as u64) as usize;
        (&self.chunks[chunk].copies, at % self.chunk_bytes)
    }

    /// Bytes from a position to its chunk's end.
    pub fn left_in_chunk(&self, at: u64) -> u64 {
        self.chunk_bytes - at % self.chunk_bytes
    }

    /// Bytes of the whole log.
    pub fn bytes(&self) -> u64 {
        self.chunk_bytes * self.chunks.len() as u64
    }
}

/// Where a log's writer stands.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Position of the next batch.
    pub at: u64,
    pub number: u64,
    /// Header checksum of the batch before it.
    pub previous: u32,
}

/// Where a log ends, and what of it may be overwritten.
#[derive(Clone, Debug)]
pub struct Log {
    pub shape: Shape,
    /// Where the next batch goes.
    pub head: Head,
    /// Everything below is dead for every durable root and every reader.
    pub free_below: u64,
    /// Chunks are being given other copies: nothing is appended until the root knows.
    pub held: bool,
}

impl Log {
    /// Whether another batch may be written: its chunk holds nothing that is still needed.
    pub fn has_room(&self) -> bool {
        let head = self.shape.chunk_number(self.head.at);
        let tail = self.shape.chunk_number(self.free_below);
        !self.held && head < tail + self.shape.chunks.len() as u64
    }

    /// How full it is, 0 to 1, counting whole chunks as full once begun.
    pub fn fill(&self) -> f64 {
        let tail = self.shape.chunk_number(self.free_below) * self.shape.chunk_bytes;
        (self.head.at - tail) as f64 / self.shape.bytes() as f64
    }

    /// Moves on behind a batch of `bytes` whose header checksum is `crc`.
    pub fn advance(&mut self, bytes: u64, crc: u32) {
        self.head = Head {
            at: self.shape.after(self.head.at, bytes),
            number: self.head.number + 1,
            previous: crc,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        let sizes = Sizes {
            extent_shift: 16,
            chunk_extents: 8,
            ring_chunks: 4,
            map_chunks: 4,
            segment_slots: 16,
            batch_bytes: 128 << 10,
        };
        Shape::new(&sizes, vec![Chunk { copies: Vec::new() }; 4])
    }

    #[test]
    fn a_batch_never_spans_chunks() {
        let shape = shape();
        let chunk = 512 << 10;
        assert_eq!(shape.after(0, 8192), 8192);
        assert_eq!(shape.after(chunk - 8192, 8192), chunk);
        assert_eq!(
            shape.after(chunk - (128 << 10) - 4096, 4096),
            chunk - (128 << 10)
        );
        assert_eq!(shape.after(chunk - (128 << 10) - 4096, 8192), chunk);
    }

    #[test]
    fn a_chunk_is_written_again_only_when_its_batches_are_dead() {
        let mut log = Log {
            shape: shape(),
            head: Head {
                at: 0,
                number: 1,
                previous: 0,
            },
            free_below: 0,
            held: false,
        };
        let mut written = 0;
        while log.has_room() {
            log.advance(128 << 10, 7);
            written += 1;
        }
        assert_eq!(written, 16);
        log.free_below = (512 << 10) - 4096;
        assert!(!log.has_room());
        log.free_below = 512 << 10;
        assert!(log.has_room() && log.fill() > 0.7);
    }
}
