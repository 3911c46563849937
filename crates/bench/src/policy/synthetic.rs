use std::collections::{BTreeMap, HashMap, VecDeque};

use super::traces::{Access, Trace};

/// Pages of a database.
const PAGES: u64 = 50_000;
/// Where its log and what is scanned lie, in pages.
const LOG: u64 = 1 << 20;
const SCANNED: u64 = 1 << 21;
/// Of a trace; tests are not optimised.
const ACCESSES: usize = if cfg!(test) { 150_000 } else { 600_000 };

/// Pages by how often they are asked for: Zipf's law.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(exponent: f64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=PAGES).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self(weights.collect())
    }

    fn page(&self, random: &mut fastrand::Rng) -> u64 {
        let at = random.f64() * self.0.last().copied().unwrap_or(0.0);
        let rank = self.0.partition_point(|&sum| sum < at) as u64;
        // Neighbours in rank are none on the disk.
        rank.min(PAGES - 1) * 7919 % PAGES
    }
}

/// Made-up traces, the same every time: a database's pages; those between a log and a scan; those asked for in
/// halves; those that a server's memory does not have.
pub(super) fn all(slot: u64) -> Vec<Trace> {
    vec![
        made("database", slot, database),
        made("log-and-scan", slot, log_and_scan),
        made("halves", slot, halves),
        made("behind-memory", slot, Memory::default().behind()),
    ]
}

fn made(
    name: &str,
    slot: u64,
    mut more: impl FnMut(&mut fastrand::Rng, &Zipf, &mut Vec<Access>),
) -> Trace {
    let (mut random, zipf) = (fastrand::Rng::with_seed(1), Zipf::new(0.9));
    let mut accesses = Vec::new();
    while accesses.len() < ACCESSES {
        more(&mut random, &zipf, &mut accesses);
    }
    for access in &mut accesses {
        (access.first, access.bytes) = (access.first * slot / 2, access.bytes * slot / 2);
    }
    Trace {
        name: name.to_owned(),
        slot,
        accesses,
    }
}

/// Halves of pages, from one and how many.
fn access(first: u64, bytes: u64, is_write: bool) -> Access {
    Access {
        first,
        bytes,
        is_write,
    }
}

fn database(random: &mut fastrand::Rng, zipf: &Zipf, into: &mut Vec<Access>) {
    into.push(access(zipf.page(random) * 2, 2, random.u8(..10) < 3));
}

/// A server's memory: what is read is what has not been asked for lately, and what is changed is written later.
#[derive(Default)]
struct Memory {
    /// When a page was last asked for.
    asked: HashMap<u64, u64>,
    /// What is there, the longest unasked for first.
    pages: BTreeMap<u64, u64>,
    changed: VecDeque<u64>,
    clock: u64,
}

impl Memory {
    const PAGES: usize = PAGES as usize / 10;

    fn behind(mut self) -> impl FnMut(&mut fastrand::Rng, &Zipf, &mut Vec<Access>) {
        move |random, zipf, into| {
            let page = zipf.page(random);
            self.clock += 1;
            let before = self.asked.insert(page, self.clock);
            let was_here = before.and_then(|at| self.pages.remove(&at)).is_some();
            self.pages.insert(self.clock, page);
            if !was_here {
                into.push(access(page * 2, 2, false));
            }
            if self.pages.len() > Self::PAGES {
                self.pages.pop_first();
            }
            if random.u8(..10) < 3 {
                self.changed.push_back(page);
            }
            if self.changed.len() > Self::PAGES / 4 {
                let page = self.changed.pop_front();
                into.extend(page.map(|page| access(page * 2, 2, true)));
            }
        }
    }
}

fn log_and_scan(random: &mut fastrand::Rng, zipf: &Zipf, into: &mut Vec<Access>) {
    let at = into.len() as u64;
    match random.u8(..100) {
        0..14 => into.push(access((LOG + at) * 2, 2, true)),
        14..43 => into.push(access((SCANNED + at) * 2, 2, false)),
        _ => database(random, zipf, into),
    }
}

fn halves(random: &mut fastrand::Rng, zipf: &Zipf, into: &mut Vec<Access>) {
    let first = zipf.page(random) * 2;
    into.push(access(first, 1, false));
    into.push(access(first + 1, 1, false));
}
