//! Aligned I/O memory with owners: pools of regions, slots of power-of-two classes, and buffers
//! that can be split among several owners and joined again.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Size and alignment of a region, the unit in which a pool grows and a ring registers memory.
pub const REGION_BYTES: usize = 2 << 20;
const MIN_CLASS_SHIFT: u32 = 12;
const CLASSES: usize = (REGION_BYTES.trailing_zeros() - MIN_CLASS_SHIFT + 1) as usize;
const MAX_SLOTS: usize = REGION_BYTES >> MIN_CLASS_SHIFT;

static NEXT_POOL: AtomicU64 = AtomicU64::new(1);

/// A bounded supply of [`IoBuffer`]s, normally one a core. Cloning shares it.
#[derive(Clone)]
pub struct BufferPool(Arc<Pool>);

struct Pool {
    id: u64,
    regions: Box<[OnceLock<Region>]>,
    grown: AtomicUsize,
    free: Mutex<FreeLists>,
}

struct FreeLists {
    by_class: [Vec<Slot>; CLASSES],
    /// Class of each region and how many of its slots are free.
    regions: Vec<RegionUse>,
    outstanding_bytes: usize,
}

struct RegionUse {
    class: usize,
    free: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    region: u32,
    index: u32,
}

struct Region {
    base: NonNull<u8>,
    /// Owners of each slot's memory: more than one after a split.
    owners: Box<[AtomicU32]>,
}

// SAFETY: a region is plain memory; who may touch which bytes is decided by the `IoBuffer`s, which
// own disjoint ranges.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out only the base address and the atomic counters.
unsafe impl Sync for Region {}

const fn region_layout() -> Layout {
    match Layout::from_size_align(REGION_BYTES, REGION_BYTES) {
        Ok(layout) => layout,
        Err(_) => panic!("the region size is a power of two"),
    }
}

impl Region {
    fn allocate() -> Option<Self> {
        // SAFETY: the layout has a size above zero.
        let base = NonNull::new(unsafe { alloc_zeroed(region_layout()) })?;
        let owners = (0..MAX_SLOTS).map(|_| AtomicU32::new(0)).collect();
        Some(Self { base, owners })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this layout, and no `IoBuffer` is left: each
        // holds the pool that holds this region.
        unsafe { dealloc(self.base.as_ptr(), region_layout()) }
    }
}

/// Where a region lies, for registering it with a kernel ring.
#[derive(Clone, Copy, Debug)]
pub struct RegionAddress {
    /// Its index in the pool.
    pub index: usize,
    /// Its first byte.
    pub base: *mut u8,
    /// Its length in bytes.
    pub bytes: usize,
}

fn class_of(bytes: usize) -> Option<usize> {
    let rounded = bytes
        .max(1 << MIN_CLASS_SHIFT)
        .checked_next_power_of_two()?;
    let class = (rounded.trailing_zeros() - MIN_CLASS_SHIFT) as usize;
    (class < CLASSES).then_some(class)
}

const fn class_bytes(class: usize) -> usize {
    1 << (class + MIN_CLASS_SHIFT as usize)
}

impl BufferPool {
    /// A pool that will hold at most `limit_bytes`, rounded up to whole regions of 2 MiB. Memory is
    /// taken as it is needed and kept.
    pub fn new(limit_bytes: usize) -> Self {
        let regions = limit_bytes.div_ceil(REGION_BYTES).max(1);
        Self(Arc::new(Pool {
            id: NEXT_POOL.fetch_add(1, Ordering::Relaxed),
            regions: (0..regions).map(|_| OnceLock::new()).collect(),
            grown: AtomicUsize::new(0),
            free: Mutex::new(FreeLists {
                by_class: Default::default(),
                regions: Vec::new(),
                outstanding_bytes: 0,
            }),
        }))
    }

    /// A buffer of `len` bytes (1 to 2 MiB), aligned to at least 4 KiB, with undefined content;
    /// `None` when the pool is exhausted or `len` is out of bounds.
    pub fn get(&self, len: usize) -> Option<IoBuffer> {
        let class = class_of(len)?;
        let mut free = self.0.lock();
        let (slot, class) = self.0.take(&mut free, class)?;
        free.outstanding_bytes += class_bytes(class);
        drop(free);
        let region = self.0.region(slot.region);
        region.owners[slot.index as usize].store(1, Ordering::Relaxed);
        // SAFETY: `index < REGION_BYTES / class_bytes`, so the slot lies inside the region.
        let ptr = unsafe { region.base.add(slot.index as usize * class_bytes(class)) };
        Some(IoBuffer {
            pool: self.0.clone(),
            slot,
            ptr,
            len,
        })
    }

    /// A number that tells this pool from every other in the process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The most regions the pool can ever hold.
    pub fn max_regions(&self) -> usize {
        self.0.regions.len()
    }

    /// How many regions it holds now; grows only.
    pub fn region_count(&self) -> usize {
        self.0.grown.load(Ordering::Acquire)
    }

    /// Where region `index` lies, if the pool has grown that far.
    pub fn region(&self, index: usize) -> Option<RegionAddress> {
        let region = self.0.regions.get(index)?.get()?;
        Some(RegionAddress {
            index,
            base: region.base.as_ptr(),
            bytes: REGION_BYTES,
        })
    }

    /// Bytes in buffers that have not been dropped.
    pub fn outstanding_bytes(&self) -> usize {
        self.0.lock().outstanding_bytes
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "BufferPool {{ id: {}, regions: {} }}",
            self.id(),
            self.region_count()
        )
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, FreeLists> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn region(&self, index: u32) -> &Region {
        match self.regions[index as usize].get() {
            Some(region) => region,
            None => unreachable!("slots are only made for regions that exist"),
        }
    }

    /// A free slot of `class`, or of the next larger one when the pool cannot grow.
    fn take(&self, free: &mut FreeLists, class: usize) -> Option<(Slot, usize)> {
        if free.by_class[class].is_empty() {
            self.refill(free, class);
        }
        let class = (class..CLASSES).find(|&class| !free.by_class[class].is_empty())?;
        let slot = free.by_class[class].pop()?;
        free.regions[slot.region as usize].free -= 1;
        Some((slot, class))
    }

    /// Grows by a region, or turns one that is wholly free over to `class`.
    fn refill(&self, free: &mut FreeLists, class: usize) {
        let slots = REGION_BYTES / class_bytes(class);
        let region = if free.regions.len() < self.regions.len() {
            let index = free.regions.len();
            let Some(region) = Region::allocate() else {
                return;
            };
            if self.regions[index].set(region).is_err() {
                unreachable!("regions are added under the lock, in order");
            }
            free.regions.push(RegionUse { class, free: slots });
            self.grown.store(index + 1, Ordering::Release);
            index
        } else {
            let idle = |r: &RegionUse| r.free == REGION_BYTES / class_bytes(r.class);
            let Some(index) = free.regions.iter().position(idle) else {
                return;
            };
            let old = free.regions[index].class;
            free.by_class[old].retain(|slot| slot.region as usize != index);
            free.regions[index] = RegionUse { class, free: slots };
            index
        };
        let slot = |index: usize| Slot {
            region: region as u32,
            index: index as u32,
        };
        free.by_class[class].extend((0..slots).rev().map(slot));
    }

    fn release(&self, slot: Slot) {
        let mut free = self.lock();
        let entry = &mut free.regions[slot.region as usize];
        entry.free += 1;
        let class = entry.class;
        free.outstanding_bytes -= class_bytes(class);
        free.by_class[class].push(slot);
    }
}

/// Aligned memory for one request, owned. Returns to its pool when the last part of it is dropped,
/// from any thread.
pub struct IoBuffer {
    pool: Arc<Pool>,
    slot: Slot,
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: an `IoBuffer` owns its bytes exclusively, like a `Vec<u8>`.
unsafe impl Send for IoBuffer {}
// SAFETY: `&IoBuffer` allows reading only.
unsafe impl Sync for IoBuffer {}

impl IoBuffer {
    /// The pool's number and the region's index, by which a ring knows registered memory.
    pub fn registration(&self) -> (u64, usize) {
        (self.pool.id, self.slot.region as usize)
    }

    /// Shortens the buffer to `len` bytes; the rest is out of use until the memory is freed.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Splits off the bytes from `at` on; both parts are owned separately.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    pub fn split_off(&mut self, at: usize) -> IoBuffer {
        assert!(at <= self.len, "split at {at} of {}", self.len);
        self.owners().fetch_add(1, Ordering::Relaxed);
        // SAFETY: `at <= len`, so the result is inside the slot or one past its end.
        let ptr = unsafe { self.ptr.add(at) };
        let tail = IoBuffer {
            pool: self.pool.clone(),
            slot: self.slot,
            ptr,
            len: self.len - at,
        };
        self.len = at;
        tail
    }

    /// Joins what [`split_off`](Self::split_off) split; gives `tail` back if it does not follow
    /// directly.
    pub fn join(&mut self, tail: IoBuffer) -> Result<(), IoBuffer> {
        let same = Arc::ptr_eq(&self.pool, &tail.pool) && self.slot.region == tail.slot.region;
        let follows = self.ptr.as_ptr() as usize + self.len == tail.ptr.as_ptr() as usize;
        if !(same && self.slot.index == tail.slot.index && follows) {
            return Err(tail);
        }
        self.len += tail.len;
        Ok(())
    }

    fn owners(&self) -> &AtomicU32 {
        &self.pool.region(self.slot.region).owners[self.slot.index as usize]
    }
}

impl Drop for IoBuffer {
    fn drop(&mut self) {
        let owners = self.owners();
        // The sole owner needs no read-modify-write: no other thread can add an owner.
        let last =
            owners.load(Ordering::Acquire) == 1 || owners.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            self.pool.release(self.slot);
        }
    }
}

impl Deref for IoBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr..ptr+len` lies in a live region (the pool is held), was initialised with
        // zeroes, and belongs to this buffer alone.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for IoBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl DerefMut for IoBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl fmt::Debug for IoBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_distinct_and_come_back() {
        let pool = BufferPool::new(2 * REGION_BYTES);
        let mut held: Vec<IoBuffer> = (0..8).filter_map(|_| pool.get(5000)).collect();
        assert_eq!(held.len(), 8);
        for (i, buffer) in held.iter_mut().enumerate() {
            assert_eq!(buffer.as_ptr() as usize % 4096, 0);
            buffer.fill(i as u8);
        }
        assert!(
            held.iter()
                .enumerate()
                .all(|(i, b)| b.iter().all(|&x| x == i as u8))
        );
        assert_eq!(pool.outstanding_bytes(), 8 * 8192);
        held.clear();
        assert_eq!(pool.outstanding_bytes(), 0);
    }

    #[test]
    fn an_exhausted_pool_says_so_and_recovers() {
        let pool = BufferPool::new(REGION_BYTES);
        let all: Vec<_> = (0..2).filter_map(|_| pool.get(1 << 20)).collect();
        assert_eq!(all.len(), 2);
        assert!(pool.get(4096).is_none());
        drop(all);
        // The region is turned over to another class rather than starving it for ever.
        let small: Vec<_> = (0..512).filter_map(|_| pool.get(4096)).collect();
        assert_eq!(small.len(), 512);
        drop(small);
        assert!(pool.get(2 << 20).is_some());
        assert!(pool.get((2 << 20) + 1).is_none());
    }

    #[test]
    fn split_parts_keep_the_memory_until_the_last_goes() {
        let pool = BufferPool::new(REGION_BYTES);
        let mut head = pool.get(8192).expect("fresh pool");
        let base = head.as_ptr();
        let mut tail = head.split_off(4096);
        tail.fill(7);
        head.fill(9);
        assert_eq!((head.len(), tail.len()), (4096, 4096));
        let other = pool.get(8192).expect("room");
        assert!(head.join(other).is_err());
        head.join(tail).expect("adjacent");
        assert_eq!((head.len(), head.as_ptr()), (8192, base));
        assert_eq!((head[0], head[4096]), (9, 7));
        let tail = head.split_off(100);
        drop(head);
        assert_eq!(pool.outstanding_bytes(), 8192);
        drop(tail);
        assert_eq!(pool.outstanding_bytes(), 0);
    }
}
