//! A drive's medium: sparse memory, and what a power loss may leave instead of what reads see.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::Chance;

/// Unit in which the medium keeps versions: what the engine writes at once at least.
pub(crate) const PAGE: usize = 4096;
/// Unit at which writes tear.
pub(crate) const UNIT: usize = 512;

type Page = Box<[u8; PAGE]>;

/// What a page held before a write that is still in the cache.
struct Older {
    page: Option<Page>,
    write: u64,
}

/// Writes that a flush covers.
#[derive(Clone, Debug)]
pub(crate) struct Covered {
    below: u64,
    except: BTreeSet<u64>,
}

impl Covered {
    fn has(&self, write: u64) -> bool {
        write < self.below && !self.except.contains(&write)
    }
}

/// What a drive holds.
pub(crate) struct Pages {
    live: Vec<Option<Page>>,
    /// Pages with cached writes: what they were before each, oldest first.
    older: BTreeMap<usize, Vec<Older>>,
    /// Cached writes whose completion was not seen.
    open: BTreeSet<u64>,
    /// Cached writes that were acknowledged.
    acknowledged: BTreeSet<u64>,
    next_write: u64,
    /// Units that cannot be read until they are written.
    bad: BTreeSet<u64>,
}

impl Pages {
    pub(crate) fn new(bytes: u64) -> Self {
        let mut live = Vec::new();
        live.resize_with(bytes as usize / PAGE, || None);
        Self {
            live,
            older: BTreeMap::new(),
            open: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            next_write: 0,
            bad: BTreeSet::new(),
        }
    }

    /// Bytes of the medium.
    pub(crate) fn bytes(&self) -> u64 {
        (self.live.len() * PAGE) as u64
    }

    /// A cached write begins; it has this number.
    pub(crate) fn begin_cached(&mut self) -> u64 {
        let write = self.next_write;
        self.next_write += 1;
        self.open.insert(write);
        write
    }

    /// The completion of a cached write was seen, or the cache has taken it whole.
    pub(crate) fn complete(&mut self, write: u64) {
        self.open.remove(&write);
    }

    /// A flush begins: what it will cover.
    pub(crate) fn begin_flush(&self) -> Covered {
        Covered {
            below: self.next_write,
            except: self.open.clone(),
        }
    }

    /// A cached write was done, and the one that asked for it is told so.
    pub(crate) fn acknowledge(&mut self, write: u64) {
        self.acknowledged.insert(write);
    }

    /// Whether the cache holds something that was acknowledged.
    pub(crate) fn may_lose_acknowledged(&self) -> bool {
        let mut older = self.older.values().flatten();
        older.any(|one| self.acknowledged.contains(&one.write))
    }

    /// A flush ends.
    pub(crate) fn flush(&mut self, covered: &Covered) {
        if self.open.is_empty() {
            self.acknowledged.retain(|&write| write >= covered.below);
        }
        self.older.retain(|_, older| {
            let keep_from = older.iter().rposition(|one| covered.has(one.write));
            older.drain(..keep_from.map_or(0, |at| at + 1));
            !older.is_empty()
        });
    }

    /// Reads; false if a unit is bad.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let mut done = 0;
        while done < into.len() {
            let (page, offset) = split(at + done as u64);
            let part = (PAGE - offset).min(into.len() - done);
            let target = &mut into[done..done + part];
            match &self.live[page] {
                Some(bytes) => target.copy_from_slice(&bytes[offset..offset + part]),
                None => target.fill(0),
            }
            done += part;
        }
        let units = at / UNIT as u64..(at + into.len() as u64).div_ceil(UNIT as u64);
        self.bad.is_empty() || self.bad.range(units).next().is_none()
    }

    /// Writes; `cached` is the write's number if it goes to the cache.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8], cached: Option<u64>) {
        self.put(at, bytes.len(), cached, |page, offset, from, part| {
            let page = page.get_or_insert_with(|| Box::new([0; PAGE]));
            page[offset..offset + part].copy_from_slice(&bytes[from..from + part]);
        });
    }

    /// Writes zeroes.
    pub(crate) fn zero(&mut self, at: u64, len: usize, cached: Option<u64>) {
        self.put(at, len, cached, |page, offset, _, part| {
            if part == PAGE {
                *page = None;
            } else if let Some(page) = page {
                page[offset..offset + part].fill(0);
            }
        });
    }

    fn put(
        &mut self,
        at: u64,
        len: usize,
        cached: Option<u64>,
        mut change: impl FnMut(&mut Option<Page>, usize, usize, usize),
    ) {
        let mut done = 0;
        while done < len {
            let (index, offset) = split(at + done as u64);
            let part = (PAGE - offset).min(len - done);
            match cached {
                Some(write) => self.older.entry(index).or_default().push(Older {
                    page: self.live[index].clone(),
                    write,
                }),
                None => drop(self.older.remove(&index)),
            }
            change(&mut self.live[index], offset, done, part);
            done += part;
        }
        if !self.bad.is_empty() {
            let units = at / UNIT as u64..(at + len as u64) / UNIT as u64;
            self.bad.retain(|unit| !units.contains(unit));
        }
    }

    /// The power fails: of what the cache held, some units are lost, whatever their order.
    pub(crate) fn lose_cache(&mut self, chance: &mut Chance) {
        let lose = chance.pick(&[0, 100, 500, 900, 1000]);
        let whole_pages = chance.happens(300);
        for (index, older) in std::mem::take(&mut self.older) {
            let pick = |chance: &mut Chance| {
                let lost = chance.happens(lose);
                lost.then(|| chance.below(older.len() as u64) as usize)
            };
            if whole_pages {
                if let Some(at) = pick(chance) {
                    self.live[index] = older[at].page.clone();
                }
                continue;
            }
            let mut page = self.live[index]
                .take()
                .unwrap_or_else(|| Box::new([0; PAGE]));
            for unit in (0..PAGE).step_by(UNIT) {
                let Some(at) = pick(chance) else { continue };
                match &older[at].page {
                    Some(old) => page[unit..unit + UNIT].copy_from_slice(&old[unit..unit + UNIT]),
                    None => page[unit..unit + UNIT].fill(0),
                }
            }
            self.live[index] = Some(page);
        }
        self.open.clear();
        self.acknowledged.clear();
    }

    /// A random page of those that hold something.
    pub(crate) fn used_page(&self, chance: &mut Chance) -> Option<u64> {
        let used = || self.live.iter().enumerate().filter(|(_, p)| p.is_some());
        let choice = chance.below(used().count() as u64) as usize;
        used().nth(choice).map(|(index, _)| (index * PAGE) as u64)
    }

    /// Flips a bit, beneath everything that watches.
    pub(crate) fn flip(&mut self, at: u64, bit: u32) {
        let (index, offset) = split(at);
        if let Some(page) = &mut self.live[index] {
            page[offset] ^= 1 << (bit % 8);
        }
        self.older.remove(&index);
    }

    /// Makes the unit at `at` unreadable until it is written.
    pub(crate) fn spoil(&mut self, at: u64) {
        self.bad.insert(at / UNIT as u64);
    }

    /// Pages of which the cache holds something.
    #[cfg(test)]
    pub(crate) fn volatile_pages(&self) -> usize {
        self.older.len()
    }
}

fn split(at: u64) -> (usize, usize) {
    ((at / PAGE as u64) as usize, (at % PAGE as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(pages: &Pages, at: u64) -> u8 {
        let mut bytes = [0; UNIT];
        assert!(pages.read(at, &mut bytes));
        assert!(bytes.iter().all(|&byte| byte == bytes[0]));
        bytes[0]
    }

    /// What a unit may hold after a power loss.
    fn outcomes(prepare: impl Fn(&mut Pages)) -> BTreeSet<u8> {
        let after = |seed| {
            let mut pages = Pages::new(1 << 20);
            prepare(&mut pages);
            pages.lose_cache(&mut Chance::new(seed));
            unit(&pages, UNIT as u64)
        };
        (0..200).map(after).collect()
    }

    fn cached(pages: &mut Pages, byte: u8, seen: bool) {
        let write = pages.begin_cached();
        pages.write(0, &[byte; PAGE], Some(write));
        if seen {
            pages.complete(write);
        }
    }

    #[test]
    fn a_power_loss_takes_what_was_not_flushed() {
        let two = |pages: &mut Pages| {
            pages.write(0, &[1; PAGE], None);
            cached(pages, 2, true);
            cached(pages, 3, true);
        };
        assert_eq!(outcomes(two), BTreeSet::from([1, 2, 3]));
        let flushed = |pages: &mut Pages| {
            cached(pages, 2, true);
            let covered = pages.begin_flush();
            cached(pages, 3, true);
            pages.flush(&covered);
        };
        assert_eq!(outcomes(flushed), BTreeSet::from([2, 3]));
        let forced = |pages: &mut Pages| {
            cached(pages, 2, true);
            pages.write(0, &[4; PAGE], None);
        };
        assert_eq!(outcomes(forced), BTreeSet::from([4]));
    }

    #[test]
    fn a_flush_covers_only_completions_that_were_seen() {
        let unseen = |pages: &mut Pages| {
            cached(pages, 2, false);
            let covered = pages.begin_flush();
            pages.flush(&covered);
        };
        assert_eq!(outcomes(unseen), BTreeSet::from([0, 2]));
    }

    #[test]
    fn units_are_lost_one_by_one() {
        let mut mixed = false;
        for seed in 0..50 {
            let mut pages = Pages::new(1 << 20);
            pages.write(0, &[1; PAGE], None);
            cached(&mut pages, 2, true);
            pages.lose_cache(&mut Chance::new(seed));
            let units: BTreeSet<u8> = (0..8).map(|u| unit(&pages, u * UNIT as u64)).collect();
            mixed |= units.len() == 2;
            assert_eq!(pages.volatile_pages(), 0);
        }
        assert!(mixed);
    }

    #[test]
    fn a_spoiled_unit_reads_again_when_it_was_written() {
        let mut pages = Pages::new(1 << 20);
        pages.spoil(600);
        assert!(!pages.read(0, &mut [0; PAGE]) && pages.read(0, &mut [0; UNIT]));
        pages.write(UNIT as u64, &[5; UNIT], None);
        assert_eq!(unit(&pages, UNIT as u64), 5);
    }
}
