use std::ops::Range;

use bytes::Bytes;

use crate::IoBuffer;

enum Part {
    Head(Range<usize>),
    Payload(usize, Range<usize>),
    Shared(Bytes),
}

/// Bytes on their way out of a connection: headers gathered in one vector, payloads by reference to
/// their buffers, which it owns. Reused, it allocates nothing.
#[derive(Default)]
pub struct Gather {
    head: Vec<u8>,
    buffers: Vec<IoBuffer>,
    parts: Vec<Part>,
    bytes: usize,
}

impl Gather {
    /// Most parts it should take: below the kernel's IOV_MAX of 1,024.
    pub const MAX_PARTS: usize = 512;

    /// Bytes queued.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether the batch should be sent before more is added.
    pub fn is_full(&self) -> bool {
        self.parts.len() + 4 > Self::MAX_PARTS
    }

    /// Queues what `write` appends to the vector it is given.
    pub fn head(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.head.len();
        write(&mut self.head);
        let end = self.head.len();
        self.bytes += end - start;
        match self.parts.last_mut() {
            Some(Part::Head(range)) if range.end == start => range.end = end,
            _ => self.parts.push(Part::Head(start..end)),
        }
    }

    /// Queues part of a buffer that [`keep`](Self::keep) gave a place.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    pub fn payload(&mut self, place: usize, range: Range<usize>) {
        assert!(range.end <= self.buffers[place].len() && range.start <= range.end);
        self.bytes += range.len();
        self.parts.push(Part::Payload(place, range));
    }

    /// Queues bytes that others may hold, too: what goes to several peers is in memory once.
    pub fn shared(&mut self, bytes: Bytes) {
        self.bytes += bytes.len();
        self.parts.push(Part::Shared(bytes));
    }

    /// Keeps a buffer until the batch has been sent; returns its place for
    /// [`payload`](Self::payload).
    pub fn keep(&mut self, buffer: IoBuffer) -> usize {
        self.buffers.push(buffer);
        self.buffers.len() - 1
    }

    /// Empties the batch for reuse, releasing the buffers but not the vectors' memory.
    pub fn clear(&mut self) {
        self.head.clear();
        self.buffers.clear();
        self.parts.clear();
        self.bytes = 0;
    }

    /// Empties the batch for reuse and gives the kept buffers back, in the order in which they were
    /// kept: an initiator needs a write's data until the write is acknowledged.
    pub fn reclaim(&mut self) -> impl Iterator<Item = IoBuffer> + '_ {
        self.head.clear();
        self.parts.clear();
        self.bytes = 0;
        self.buffers.drain(..)
    }

    /// The bytes in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| match part {
            Part::Head(range) => &self.head[range.clone()],
            Part::Payload(place, range) => &self.buffers[*place][range.clone()],
            Part::Shared(bytes) => bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferPool;

    #[test]
    fn a_batch_keeps_order_and_merges_adjacent_headers() {
        let pool = BufferPool::new(1);
        let mut buffer = pool.get(4096).expect("fresh pool");
        buffer.fill(b'x');
        let mut batch = Gather::default();
        batch.head(|v| v.extend(b"ab"));
        batch.head(|v| v.extend(b"cd"));
        let place = batch.keep(buffer);
        batch.payload(place, 0..3);
        batch.shared(Bytes::from_static(b"yy"));
        batch.head(|v| v.extend(b"ef"));
        let chunks: Vec<&[u8]> = batch.chunks().collect();
        assert_eq!(chunks, [&b"abcd"[..], b"xxx", b"yy", b"ef"]);
        assert_eq!(batch.len(), 11);
        batch.clear();
        assert!(batch.is_empty() && pool.outstanding_bytes() == 0);
    }

    #[test]
    fn kept_buffers_come_back_in_order() {
        let pool = BufferPool::new(1);
        let mut batch = Gather::default();
        for len in [100, 200] {
            let place = batch.keep(pool.get(len).expect("fresh pool"));
            batch.payload(place, 0..len);
        }
        let lens: Vec<usize> = batch.reclaim().map(|buffer| buffer.len()).collect();
        assert_eq!(lens, [100, 200]);
        assert!(batch.is_empty() && batch.chunks().next().is_none());
    }
}
