use super::traces::{Access, Trace};

/// Pages of a database.
const PAGES: u64 = 50_000;
/// Where its log and what is scanned lie, in pages.
const LOG: u64 = 1 << 20;
const SCANNED: u64 = 1 << 21;
const ACCESSES: usize = 600_000;

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
/// halves.
pub(super) fn all(slot: u64) -> Vec<Trace> {
    vec![
        made("database", slot, database),
        made("log-and-scan", slot, log_and_scan),
        made("halves", slot, halves),
    ]
}

fn made(
    name: &str,
    slot: u64,
    more: impl Fn(&mut fastrand::Rng, &Zipf, &mut Vec<Access>),
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
