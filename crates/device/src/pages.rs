//! The memory device's pages, shared by all its queues: the room's only `unsafe`.
//!
//! Two queues may touch the same bytes at the same time, so unlocked copies would be data races:
//! undefined behaviour whatever the pointer's type, and torn blocks besides, which the contract
//! forbids. A table of reader-writer locks, picked by address, rules both out: bytes are only
//! touched under the lock of their shard. A shard is a multiple of any block, and at most one lock
//! is held at a time, so there is no order to keep and a large transfer may interleave with another
//! block by block. Uncontended locks cost 20 to 50 ns, 1 to 3 % of serving a
//! 4 KiB request.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes under one lock; addresses this far apart times [`LOCKS`] share one.
pub(crate) const SHARD_BYTES: usize = 256 << 10;
const LOCKS: usize = 1024;
const HUGE_PAGE: usize = 2 << 20;

/// Alone on its cache line: cores that work on different shards must not meet.
#[repr(align(64))]
#[derive(Default)]
struct Lock(RwLock<()>);

/// Zeroed memory that takes up space where it was written or populated.
pub(crate) struct Pages {
    base: NonNull<u8>,
    bytes: usize,
    locks: Box<[Lock]>,
}

// SAFETY: the mapping is plain memory owned by this value; its bytes are touched only under the
// shard's lock.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

struct Piece {
    offset: usize,
    len: usize,
    done: usize,
}

fn pieces(offset: usize, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done;
        let len = (SHARD_BYTES - at % SHARD_BYTES).min(len - done);
        let piece = Piece {
            offset: at,
            len,
            done,
        };
        done += len;
        (len > 0).then_some(piece)
    })
}

impl Pages {
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        );
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags)? };
        if bytes >= HUGE_PAGE {
            // For speed only: without huge pages every random access misses the TLB.
            // SAFETY: the range is the mapping just made; this advice does not change its content.
            let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        }
        let Some(base) = NonNull::new(base.cast()) else {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        };
        let locks = (0..LOCKS).map(|_| Lock::default()).collect();
        Ok(Self { base, bytes, locks })
    }

    /// Makes `len` bytes from `offset` on take up space, without changing them. False if there is
    /// no memory, or the kernel (before 5.14) cannot do it.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> bool {
        let piece = Piece {
            offset,
            len,
            done: 0,
        };
        let at = self.address(&piece);
        // SAFETY: the range was just checked to be inside the mapping; populating reads and writes
        // nothing as far as other users of the memory can tell.
        unsafe { madvise(at.cast::<c_void>(), len, Advice::LinuxPopulateWrite) }.is_ok()
    }

    fn lock(&self, piece: &Piece) -> &RwLock<()> {
        &self.locks[piece.offset / SHARD_BYTES % LOCKS].0
    }

    /// The piece's address.
    ///
    /// # Panics
    /// If it leaves the mapping: callers check ranges, and memory safety must not hang on that.
    fn address(&self, piece: &Piece) -> *mut u8 {
        assert!(piece.offset <= self.bytes && piece.len <= self.bytes - piece.offset);
        // SAFETY: the offset was just checked to be inside the mapping.
        unsafe { self.base.add(piece.offset).as_ptr() }
    }

    /// Copies out from `offset` on.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        for piece in pieces(offset, into.len()) {
            let from = self.address(&piece);
            let to = &mut into[piece.done..piece.done + piece.len];
            let _shared = self
                .lock(&piece)
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            // SAFETY: `from` has `len` bytes inside the mapping, which nothing writes while the
            // shard is locked for reading; `to` is an exclusive slice of other memory.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), piece.len) };
        }
    }

    /// Copies in from `offset` on.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        for piece in pieces(offset, from.len()) {
            let to = self.address(&piece);
            let from = &from[piece.done..piece.done + piece.len];
            let _alone = self
                .lock(&piece)
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            // SAFETY: `to` has `len` bytes inside the mapping, which nothing else touches while the
            // shard is locked for writing; `from` is a slice of other memory.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, piece.len) };
        }
    }

    /// Zeroes `len` bytes; gives whole shards back to the system.
    pub(crate) fn zero(&self, offset: usize, len: usize) {
        for piece in pieces(offset, len) {
            let at = self.address(&piece);
            let _alone = self
                .lock(&piece)
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            if piece.len == SHARD_BYTES {
                // SAFETY: a whole shard is whole pages of this private mapping, locked for
                // writing; dropped pages read as zeroes.
                if unsafe { madvise(at.cast::<c_void>(), piece.len, Advice::LinuxDontNeed) }.is_ok()
                {
                    continue;
                }
            }
            // SAFETY: as in `write`.
            unsafe { std::ptr::write_bytes(at, 0, piece.len) };
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` and nothing refers to it any more. It cannot fail
        // for a mapping that exists; if it did, the memory would be leaked.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_shards() {
        let all: Vec<_> = pieces(SHARD_BYTES - 512, SHARD_BYTES + 1024)
            .map(|p| (p.offset, p.len, p.done))
            .collect();
        let first = (SHARD_BYTES - 512, 512, 0);
        let second = (SHARD_BYTES, SHARD_BYTES, 512);
        let third = (2 * SHARD_BYTES, 512, SHARD_BYTES + 512);
        assert_eq!(all, [first, second, third]);
        assert_eq!(pieces(7, 0).count(), 0);
    }

    #[test]
    fn content_survives_across_shards_and_zeroing_is_exact() {
        let pages = Pages::new(4 * SHARD_BYTES).expect("memory");
        let data: Vec<u8> = (0..3 * SHARD_BYTES).map(|i| (i % 251) as u8 + 1).collect();
        pages.write(512, &data);
        let mut back = vec![0; data.len()];
        pages.read(512, &mut back);
        assert_eq!(back, data);
        pages.zero(1024, 2 * SHARD_BYTES);
        pages.read(512, &mut back);
        assert_eq!(back[..512], data[..512]);
        assert!(back[512..512 + 2 * SHARD_BYTES].iter().all(|&b| b == 0));
        assert_eq!(back[512 + 2 * SHARD_BYTES..], data[512 + 2 * SHARD_BYTES..]);
    }

    #[test]
    fn zeroing_part_of_a_page_leaves_the_rest() {
        let pages = Pages::new(2 * SHARD_BYTES).expect("memory");
        pages.write(0, &[7; 2 * SHARD_BYTES]);
        pages.zero(0, SHARD_BYTES - 512);
        pages.zero(SHARD_BYTES + 512, SHARD_BYTES - 512);
        let mut middle = [0; 1536];
        pages.read(SHARD_BYTES - 1024, &mut middle);
        assert!(middle[..512].iter().all(|&b| b == 0) && middle[512..].iter().all(|&b| b == 7));
    }

    #[test]
    #[should_panic]
    fn an_access_beyond_the_end_is_refused() {
        let pages = Pages::new(SHARD_BYTES).expect("memory");
        pages.read(SHARD_BYTES - 511, &mut [0; 512]);
    }
}
