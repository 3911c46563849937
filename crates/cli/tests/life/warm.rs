//! A cache that is killed is as warm as it was when it is back: a database's reads need not find that out.

use std::time::{Duration, Instant};

use crate::cache::{backing, make, shown};
use crate::host::Host;
use crate::node::{Node, Room};
use crate::random::Random;

/// Blocks of 4 KiB of the device; a sixth of them may be cached, which is half of what is read.
const BLOCKS: u64 = (48 << 20) / 4096;
const CACHE: &str = "8MiB";
const READS: usize = 2000;
/// What must be left of the hit ratio, from the first read after a death on.
const LEFT: f64 = 0.95;
/// A hit ratio that there is something to lose of.
const WARM: f64 = 0.3;
/// A cache's own bits are on their way for two seconds; more is as good as in the cache.
const SETTLED: Duration = Duration::from_secs(3);

/// Where 8 KiB are read: two of three times in one half, of these two of three in a half of that, and so on.
fn skewed(random: &mut Random) -> u64 {
    let mut among = BLOCKS / 2;
    while among > 64 && random.below(3) != 0 {
        among /= 2;
    }
    // Spread, so that what is used often does not lie together.
    random.below(among) * 2_654_435_761 % (BLOCKS / 2) * 2
}

/// The share of the same reads, every time, that the cache had.
fn hit_ratio(node: &Node) -> f64 {
    let counts = || {
        let cache = shown(node)["cache"].clone();
        let count = |name: &str| cache[name].as_u64().expect("a number") as f64;
        (count("read_hits"), count("read_misses"))
    };
    let before = counts();
    let mut host = Host::connect(node.address, &node.nqn()).expect("served");
    let mut random = Random::new(7);
    for _ in 0..READS {
        host.submit_read(0, skewed(&mut random), 2).expect("sent");
        let done = host.next().expect("an answer");
        assert!(done.status.is_success(), "{:?}", done.status);
    }
    let after = counts();
    let (hits, misses) = (after.0 - before.0, after.1 - before.1);
    assert!(hits + misses >= READS as f64, "{hits} and {misses}");
    hits / (hits + misses)
}

#[test]
fn a_killed_cache_is_as_warm_as_before() {
    let room = Room::new();
    let (_, spec) = backing(&room, "old");
    let node = Node::start(&room);
    make(&room, &node, &spec, &["--cache", CACHE]);
    for _ in 0..2 {
        hit_ratio(&node);
    }
    // A busy machine puts less into a cache in that time: what is read again and again is there in the end.
    let mut ratios = (0..10).map(|_| hit_ratio(&node));
    let before = ratios.find(|ratio| *ratio > WARM).unwrap_or(0.0);
    std::thread::sleep(SETTLED);
    node.kill();
    let died = Instant::now();
    let node = Node::start(&room);
    let after = hit_ratio(&node);
    let took = died.elapsed();
    println!("hits {before:.3} before, {after:.3} after, {took:?} from the kill");
    assert!((WARM..0.99).contains(&before), "{before}: nothing to lose");
    assert!(after >= before * LEFT, "{after} of {before}");
    node.end();
}
