//! The mark at the head of a backing device whose newest content is elsewhere.
//!
//! Every bit of the head is turned over, so no file system, partition table or volume manager is recognised there
//! and mounting it fails. The first sector that held only zeroes has a text that says why; a head without such a
//! sector has none. All of it can be undone without the cache.

use uuid::Uuid;

use crate::layout::HEAD_BYTES;

/// The mark is put in parts of this size.
pub(crate) const SECTOR: usize = 512;
const TEXT: &[u8] =
    b"ASHLAR CACHE: what is newest of this device is elsewhere, and what begins it was turned \
over. Do not write here. Flush the volume that caches it. Cache ";

/// Sectors of the head.
pub(crate) const SECTORS: usize = HEAD_BYTES / SECTOR;

/// A CRC32C of each sector of the mark as it was put: while that is taken away, a sector has this one, or holds what belongs
/// there.
#[derive(Clone, PartialEq, Eq)]
pub struct MarkSums(Box<[u32; SECTORS]>);

impl MarkSums {
    /// Of a head with the mark on it.
    pub(crate) fn of(marked: &[u8]) -> Self {
        let mut sectors = marked.chunks(SECTOR);
        Self::from_words(|_| sectors.next().map_or(0, crc32c::crc32c))
    }

    pub(crate) fn from_words(word: impl FnMut(usize) -> u32) -> Self {
        Self(Box::new(std::array::from_fn(word)))
    }

    pub(crate) fn words(&self) -> &[u32] {
        &self.0[..]
    }

    /// Whether this is what the mark had there.
    pub(crate) fn is_marked(&self, at: usize, sector: &[u8]) -> bool {
        self.0.get(at) == Some(&crc32c::crc32c(sector))
    }

    /// Whether a device begins with this mark over what is kept, or with that, sector by sector: it may be half put, or half
    /// taken away.
    pub(crate) fn fits(&self, found: &[u8], kept: &[u8]) -> bool {
        let sectors = found.chunks(SECTOR).zip(kept.chunks(SECTOR));
        let mut sectors = sectors.enumerate();
        found.len() == kept.len()
            && sectors.all(|(at, (found, kept))| found == kept || self.is_marked(at, found))
    }

    /// A head on which some of the mark may stand, without that; whether there was any.
    pub fn take_away(&self, head: &mut [u8]) -> bool {
        let mut any = false;
        for (at, sector) in head.chunks_mut(SECTOR).enumerate() {
            if self.is_marked(at, sector) {
                let plain = take_away(sector);
                sector.copy_from_slice(&plain);
                any = true;
            }
        }
        any
    }
}

impl std::fmt::Debug for MarkSums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MarkSums")
    }
}

/// The head with the mark on it.
pub fn put(head: &[u8], cache: Uuid) -> Vec<u8> {
    let mut marked: Vec<u8> = head.iter().map(|byte| !byte).collect();
    let empty = head
        .chunks(SECTOR)
        .position(|sector| sector.iter().all(|&byte| byte == 0));
    if let Some(empty) = empty {
        let at = empty * SECTOR;
        let text = [TEXT, cache.to_string().as_bytes()].concat();
        marked[at..at + SECTOR].fill(0);
        marked[at..at + text.len()].copy_from_slice(&text);
    }
    marked
}

/// The head without it.
pub fn take_away(marked: &[u8]) -> Vec<u8> {
    let mut head: Vec<u8> = marked.iter().map(|byte| !byte).collect();
    if let Some(at) = text_at(marked) {
        head[at..at + SECTOR].fill(0);
    }
    head
}

/// Whose mark this is, if there is one with a text.
pub fn whose(head: &[u8]) -> Option<Uuid> {
    let at = text_at(head)? + TEXT.len();
    let text = std::str::from_utf8(head.get(at..at + 36)?).ok()?;
    text.parse().ok()
}

fn text_at(head: &[u8]) -> Option<usize> {
    let mut sectors = head.chunks(SECTOR);
    sectors
        .position(|sector| sector.starts_with(TEXT))
        .map(|sector| sector * SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_hides_what_a_device_is_and_can_be_undone() {
        let mut head: Vec<u8> = (0..128 << 10).map(|at| (at % 251) as u8).collect();
        for zeroes in [None, Some(5), Some(255)] {
            if let Some(sector) = zeroes {
                head[sector * SECTOR..(sector + 1) * SECTOR].fill(0);
            }
            let marked = put(&head, Uuid::from_u128(3));
            let same = marked.iter().zip(&head).filter(|(a, b)| a == b).count();
            assert!(same <= SECTOR);
            assert_eq!(take_away(&marked), head);
            let sums = MarkSums::of(&marked);
            // Half of it is there.
            let (put, plain) = (&marked[..64 << 10], &head[64 << 10..]);
            let mut mixed = [put, plain].concat();
            assert!(sums.take_away(&mut mixed));
            assert_eq!(mixed, head);
            assert!(!sums.take_away(&mut mixed));
            assert_eq!(whose(&marked), zeroes.map(|_| Uuid::from_u128(3)));
        }
        assert_eq!(whose(&head), None);
    }
}
