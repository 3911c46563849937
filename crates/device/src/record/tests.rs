use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ashlar_block::{BlockRange, BlockSize, Durability, ErrorKind, Operation, Request};

use super::*;
use crate::testing::Bench;
use crate::{Spec, open};

const BLOCK: usize = 4096;

struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("directory");
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str, options: &str) -> String {
        let dir = self.dir.path().display();
        format!("file:{dir}/{name}?size=1m&record={dir}/{name}.trace{options}")
    }

    fn bench(&self, name: &str) -> Bench {
        bench(&self.text(name, ""))
    }

    fn trace(&self, name: &str) -> Trace {
        Trace::open(&self.path(&format!("{name}.trace"))).expect("a trace")
    }

    fn image(&self, trace: &Trace, cut: &PowerCut) -> (Image, Vec<u8>) {
        let out = self.path("image");
        let image = write_image(trace, 0, cut, None, &out).expect("image");
        let bytes = std::fs::read(&out).expect("read");
        std::fs::remove_file(&out).expect("removed");
        (image, bytes)
    }
}

fn bench(text: &str) -> Bench {
    let spec: Spec = text.parse().expect(text);
    Bench::open(&*open(&spec, BlockSize::B4096).expect(text))
}

fn write(bench: &mut Bench, at: u64, blocks: u32, fill: u8, durability: Durability) {
    let range = BlockRange::new(at, blocks);
    bench.write(range, fill, durability).expect("write");
}

fn at_the_end(trace: &Trace, seed: u64) -> PowerCut {
    PowerCut {
        at: trace.entries().last().expect("entries").at,
        seed,
        tear: 4096,
    }
}

#[test]
fn what_is_done_is_told_and_counted() {
    let world = World::new();
    let mut device = world.bench("a");
    write(&mut device, 0, 4, 1, Durability::Cached);
    write(&mut device, 8, 2, 2, Durability::Durable);
    let zeroes = Operation::WriteZeroes {
        durability: Durability::Cached,
        deallocate: false,
    };
    device.zero(zeroes, BlockRange::new(0, 1)).expect("zeroes");
    device.flush().expect("flush");
    device
        .zero(Operation::Deallocate, BlockRange::new(4, 4))
        .expect("deallocates");
    assert_eq!(device.read(BlockRange::new(1, 1)).expect("read")[0], 1);
    let trace = world.trace("a");
    let sum = trace.summary();
    let counted = (sum.writes, sum.write_bytes, sum.durable_writes);
    assert_eq!(counted, (2, 6 * BLOCK as u64, 1));
    let counted = (sum.zeroings, sum.deallocations, sum.flushes, sum.failed);
    assert_eq!(counted, (1, 1, 1, 0));
    assert_eq!((sum.openings, sum.unfinished, sum.longest_run), (1, 0, 3));
    assert_eq!(sum.longest_run_bytes, 6 * BLOCK as u64);
    assert!(!sum.cut_short);
    let kinds: Vec<Kind> = trace.entries().map(|entry| entry.kind).collect();
    let begin = [Kind::Opened, Kind::Write, Kind::Done, Kind::Write];
    assert_eq!(kinds[..4], begin);
    assert_eq!(kinds.len(), 11, "a read is not recorded");
    let places = [0..BLOCK as u64, 9 * BLOCK as u64..10 * BLOCK as u64];
    let found = trace.writes_to(&places, 2 * BLOCK as u64);
    assert_eq!((found.count, found.splitting), (2, 0));
    assert_eq!(trace.writes_to(&places[1..], 1 << 16).splitting, 1);
    let syncs = trace.syncs();
    let flushes: Vec<bool> = syncs.iter().map(|sync| sync.is_flush).collect();
    assert_eq!(flushes, [false, true], "the durable write, the flush");
    let (first, second) = (&syncs[0].span, &syncs[1].span);
    assert!(Synced::any_within(&syncs, &(first.start..first.end)));
    assert!(Synced::any_within(&syncs, &(first.end..second.end)));
    assert!(!Synced::any_within(
        &syncs,
        &(first.start + 1..second.end - 1)
    ));
    assert!(!Synced::any_within(&syncs, &(second.end..u64::MAX)));
}

#[test]
fn reads_are_recorded_where_that_is_asked_for() {
    let world = World::new();
    let text = world.text("a", "&record-reads=on");
    let mut device = bench(&text);
    write(&mut device, 0, 2, 1, Durability::Cached);
    device.read(BlockRange::new(1, 3)).expect("read");
    drop(device);
    // It goes on as what it was begun as.
    let spec: Spec = world.text("a", "").parse().expect("a device");
    let refused = open(&spec, BlockSize::B4096).err().expect("no reads");
    assert!(refused.to_string().contains("begun with record-reads=on"));
    let mut device = bench(&text);
    device.read(BlockRange::new(0, 1)).expect("read");
    let trace = world.trace("a");
    let reads = trace.entries().filter(|entry| entry.kind == Kind::Read);
    let places: Vec<(u64, u64)> = reads.map(|entry| (entry.offset, entry.len)).collect();
    let block = BLOCK as u64;
    assert_eq!(places, [(block, 3 * block), (0, block)]);
    let sum = trace.summary();
    assert_eq!((sum.reads, sum.read_bytes), (2, 4 * block));
    assert_eq!((sum.writes, sum.unfinished, sum.longest_run), (1, 0, 1));
    let (counts, _) = world.image(&trace, &at_the_end(&trace, 1));
    assert_eq!(counts.there + counts.missing + counts.torn, 1);
}

#[test]
fn what_was_flushed_is_there_and_the_rest_may_be() {
    let world = World::new();
    let mut device = world.bench("a");
    write(&mut device, 0, 8, 1, Durability::Cached);
    device.flush().expect("flush");
    write(&mut device, 0, 2, 2, Durability::Cached);
    write(&mut device, 2, 2, 3, Durability::Durable);
    write(&mut device, 1, 1, 4, Durability::Cached);
    let trace = world.trace("a");
    let mut seen: [BTreeSet<u8>; 8] = Default::default();
    let mut halves = BTreeSet::new();
    for seed in 0..200 {
        let cut = at_the_end(&trace, seed);
        let (counts, bytes) = world.image(&trace, &cut);
        assert_eq!(counts.settled, 2);
        assert_eq!(counts.there + counts.missing + counts.torn, 2);
        for (block, seen) in seen.iter_mut().enumerate() {
            let bytes = &bytes[block * BLOCK..][..BLOCK];
            assert!(bytes.iter().all(|&b| b == bytes[0]), "a torn block");
            seen.insert(bytes[0]);
        }
        halves.insert((bytes[0], bytes[BLOCK]));
        assert_eq!(world.image(&trace, &cut).1, bytes, "seed {seed} differs");
    }
    let sets: Vec<Vec<u8>> = seen.iter().map(|s| s.iter().copied().collect()).collect();
    assert_eq!(sets[0], [1, 2]);
    assert_eq!(sets[1], [1, 2, 4]);
    assert_eq!(sets[2..4], [[3], [3]], "durable by itself");
    assert_eq!(sets[4..], [[1], [1], [1], [1]]);
    assert!(halves.contains(&(1, 2)) && halves.contains(&(2, 1)), "torn");
}

#[test]
fn a_cut_in_the_middle_knows_nothing_of_what_came_later() {
    let world = World::new();
    let mut device = world.bench("a");
    for fill in 1..=20 {
        write(&mut device, u64::from(fill), 1, fill, Durability::Cached);
        if fill % 5 == 0 {
            device.flush().expect("flush");
        }
    }
    let trace = world.trace("a");
    let stamps: Vec<u64> = trace.entries().map(|entry| entry.at).collect();
    for (index, &at) in stamps.iter().enumerate() {
        let cut = PowerCut {
            at,
            seed: index as u64,
            tear: 512,
        };
        let (counts, bytes) = world.image(&trace, &cut);
        let before: Vec<Entry> = trace.entries().take(index + 1).copied().collect();
        let begun = before.iter().filter(|e| e.kind == Kind::Write).count();
        let flushed = before.iter().filter(|e| e.kind == Kind::Flush);
        let mut whole = flushed.count() as u64 * 5;
        if before.last().is_some_and(|entry| entry.kind == Kind::Flush) {
            // Submitted, and not complete.
            whole -= 5;
        }
        assert_eq!(counts.settled, whole, "at entry {index}");
        for block in 1..=20usize {
            let bytes = &bytes[block * BLOCK..][..BLOCK];
            let new = bytes.iter().filter(|&&b| b == block as u8).count();
            let old = bytes.iter().filter(|&&b| b == 0).count();
            assert_eq!(old + new, BLOCK);
            assert!(block as u64 > whole || old == 0, "flushed and lost");
            assert!(block <= begun || new == 0, "from the future");
        }
    }
    let span = stamps[5]..=stamps[30];
    let traces = [trace];
    for seed in 0..20 {
        let moment = PowerCut::moment(&traces, &span, seed).expect("one");
        assert!(stamps[5..=30].contains(&moment));
        assert_eq!(PowerCut::moment(&traces, &span, seed).ok(), Some(moment));
    }
    let later = stamps[stamps.len() - 1] + 1..=u64::MAX;
    assert!(PowerCut::moment(&traces, &later, 3).is_err());
}

#[test]
fn requests_in_flight_together_land_in_either_order() {
    let world = World::new();
    let mut device = world.bench("a");
    let request = |tag: u64, fill: u8| {
        let mut buffer = device.buffer(BLOCK);
        buffer.fill(fill);
        Request::write(tag, BlockRange::new(0, 1), buffer, Durability::Cached)
    };
    let both = vec![request(1, 7), request(2, 8)];
    device.run_all(both);
    let trace = world.trace("a");
    let ends: BTreeSet<u8> = (0..100)
        .map(|seed| world.image(&trace, &at_the_end(&trace, seed)).1[0])
        .collect();
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), [0, 7, 8]);
    // Both there: the second one's coin says which is the later one.
    let both_there = (0..200).filter_map(|seed| {
        let (counts, bytes) = world.image(&trace, &at_the_end(&trace, seed));
        (counts.there == 2).then_some(bytes[0])
    });
    assert_eq!(both_there.collect::<BTreeSet<_>>().len(), 2);
}

#[test]
fn a_base_is_what_the_device_held_before() {
    let world = World::new();
    let mut plain = bench(&format!("file:{}?size=1m", world.path("a").display()));
    plain
        .write(BlockRange::new(0, 16), 9, Durability::Durable)
        .expect("write");
    drop(plain);
    let base = world.path("base");
    std::fs::copy(world.path("a"), &base).expect("copy");
    let mut device = world.bench("a");
    write(&mut device, 3, 1, 5, Durability::Durable);
    device
        .zero(Operation::Deallocate, BlockRange::new(8, 2))
        .expect("deallocates");
    device.flush().expect("flush");
    let trace = world.trace("a");
    let out = world.path("image");
    write_image(&trace, 0, &at_the_end(&trace, 1), Some(&base), &out).expect("image");
    let (image, real) = (std::fs::read(&out), std::fs::read(world.path("a")));
    assert!(image.expect("image") == real.expect("device"));
    let again = write_image(&trace, 0, &at_the_end(&trace, 1), Some(&base), &out);
    assert!(again.expect_err("is there").is_environment());
    std::fs::remove_file(&out).expect("removed");
    std::fs::write(&base, [0; 512]).expect("write");
    let error = write_image(&trace, 0, &at_the_end(&trace, 1), Some(&base), &out);
    assert!(
        error
            .expect_err("size")
            .to_string()
            .contains("has 512 bytes")
    );
}

#[test]
fn a_full_trace_is_the_devices_error() {
    let world = World::new();
    let mut device = bench(&world.text("a", "&record-limit=10k"));
    write(&mut device, 0, 1, 1, Durability::Cached);
    write(&mut device, 1, 1, 2, Durability::Cached);
    let error = device
        .write(BlockRange::new(2, 1), 3, Durability::Cached)
        .expect_err("no room");
    assert_eq!(error.kind(), ErrorKind::Latched);
    assert!(error.to_string().contains("record-limit=10240"), "{error}");
    assert!(device.flush().is_err(), "and everything after it");
    assert_eq!(device.read(BlockRange::new(1, 1)).expect("read")[0], 2);
    assert_eq!(device.read(BlockRange::new(2, 1)).expect("read")[0], 0);
    assert_eq!(world.trace("a").summary().writes, 2);
}

#[test]
fn a_recording_goes_on_but_not_over_what_is_not_known() {
    let world = World::new();
    let mut device = world.bench("a");
    write(&mut device, 0, 1, 1, Durability::Cached);
    let text = world.text("b", "").replace("b.trace", "a.trace");
    let spec: Spec = text.parse().expect("spec");
    let error = open(&spec, BlockSize::B4096).err().expect("is in use");
    assert!(error.to_string().contains("another device is recorded"));
    drop(device);
    // A killed process leaves half an entry.
    let path = world.path("a.trace");
    let file = std::fs::OpenOptions::new().append(true).open(&path);
    io::Write::write_all(&mut file.expect("open"), &[2; 30]).expect("append");
    assert!(world.trace("a").summary().cut_short);
    let mut device = world.bench("a");
    write(&mut device, 0, 1, 2, Durability::Durable);
    drop(device);
    let trace = world.trace("a");
    let sum = trace.summary();
    assert_eq!((sum.openings, sum.writes, sum.cut_short), (2, 2, false));
    assert_eq!(world.image(&trace, &at_the_end(&trace, 0)).1[0], 2);
    // Without the first write's completion what the second opening found is not known.
    let bytes = std::fs::read(&path).expect("read");
    let done = format::HEADER_BYTES + 2 * format::ENTRY_BYTES + BLOCK;
    let mut unknown = bytes[..done].to_vec();
    unknown.extend_from_slice(&bytes[done + format::ENTRY_BYTES..]);
    std::fs::write(&path, unknown).expect("write");
    let trace = world.trace("a");
    let cut = at_the_end(&trace, 0);
    let error = write_image(&trace, 0, &cut, None, &world.path("image"));
    let error = error.expect_err("not known").to_string();
    assert!(error.contains("whose outcome is not known"), "{error}");
}

#[test]
fn devices_of_one_process_share_a_clock() {
    let world = World::new();
    let (mut a, mut b) = (world.bench("a"), world.bench("b"));
    let before = monotonic();
    for _ in 0..50 {
        write(&mut a, 0, 1, 1, Durability::Cached);
        write(&mut b, 0, 1, 1, Durability::Cached);
    }
    let after = monotonic();
    let (a, b) = (world.trace("a"), world.trace("b"));
    let stamps = |trace: &Trace| -> Vec<u64> { trace.entries().skip(1).map(|e| e.at).collect() };
    let (a, b) = (stamps(&a), stamps(&b));
    let all: BTreeSet<u64> = a.iter().chain(&b).copied().collect();
    assert_eq!(all.len(), 200, "no two are equal");
    assert!(a.chunks(2).zip(b.chunks(2)).all(|(a, b)| a[1] < b[0]));
    assert!(all.first() >= Some(&before) && all.last() <= Some(&(after + 1000)));
}

#[test]
fn what_is_no_trace_is_refused() {
    let world = World::new();
    let mut device = world.bench("a");
    write(&mut device, 0, 1, 1, Durability::Cached);
    device.flush().expect("flush");
    drop(device);
    let path = world.path("a.trace");
    let good = std::fs::read(&path).expect("read");
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        std::fs::write(&path, bytes).expect("write");
        Trace::open(&path).map(drop).map_err(|e| e.to_string())
    };
    let complaint = |outcome: Result<(), String>| outcome.expect_err("damaged");
    assert!(complaint(refused(&|b| b.truncate(10))).contains("too short"));
    assert!(complaint(refused(&|b| b[0] = 0)).contains("is no trace"));
    assert!(complaint(refused(&|b| b[8] = 3)).contains("of version 3"));
    assert!(complaint(refused(&|b| b[8] = 2)).contains("header is damaged"));
    assert!(complaint(refused(&|b| b[30] ^= 1)).contains("header is damaged"));
    assert!(complaint(refused(&|b| b[64] = 99)).contains("damaged at byte 64"));
    assert!(complaint(refused(&|b| b[112 + 24] ^= 1)).contains("damaged at byte 112"));
    refused(&|b| b.truncate(good.len() - 1)).expect("an end within an entry");
    refused(&|b| b[112 + 48 + 7] ^= 1).expect("data are checked when used");
    let trace = Trace::open(&path).expect("a trace");
    let cut = at_the_end(&trace, 0);
    let error = write_image(&trace, 0, &cut, None, &world.path("image"));
    assert!(error.expect_err("data").to_string().contains("are damaged"));
    std::fs::write(&path, &good).expect("write");
    let other = world.text("a", "").replace("size=1m", "size=1m&direct=off");
    let shorter = world.text("b", "").replace("1m", "2m");
    let shorter = shorter.replace("b.trace", "a.trace");
    assert!(open(&other.parse().expect("spec"), BlockSize::B4096).is_ok());
    let error = open(&shorter.parse().expect("spec"), BlockSize::B4096);
    assert!(
        error
            .err()
            .expect("size")
            .to_string()
            .contains("another device")
    );
    no_random_bytes_panic(&path, &good);
}

fn no_random_bytes_panic(path: &Path, good: &[u8]) {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..300 {
        std::fs::write(path, good).expect("write");
        let file = std::fs::OpenOptions::new().write(true).open(path);
        let at = random.usize(..good.len()) as u64;
        let file = file.expect("open");
        file.write_all_at(&[random.u8(..)], at).expect("write");
        if let Ok(trace) = Trace::open(path) {
            let _ = (trace.summary(), at_the_end(&trace, 1).landings(&trace, 0));
        }
    }
}
