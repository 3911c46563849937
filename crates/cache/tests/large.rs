//! Large devices: one of more than 2 TiB in blocks of 512 bytes, where what is zeroed is counted in more than 32 bits; and
//! one of 1 TiB of which something is cached everywhere.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use ashlar_block::{BlockRange, BlockSize, BufferPool, Geometry, Moment, Operation, Request};
use ashlar_cache::{Cache, GRANULE, Header, Layout, Mark, Mode, Side};
use uuid::Uuid;

const GRANULES: u64 = 5 << 28;
/// Granules of a page of bits.
const PAGE: u64 = 8192;

fn cache(granules: u64, cache_bytes: u64) -> Cache {
    let header = Header {
        cache: Uuid::from_u128(5),
        layout: Layout::of_granules(granules),
        cache_bytes,
        blocks: BlockSize::B4096,
        mode: Mode::WriteAround,
        mark: Mark::Off,
        head_crc: None,
        marked: None,
        is_untold: false,
        identity: None,
        backing: "disk".to_owned(),
    };
    let geometry = Geometry {
        deallocates: true,
        ..Geometry::plain(BlockSize::B512, granules * 8)
    };
    Cache::create(header, geometry, Moment::ORIGIN).unwrap()
}

/// Lets the devices do all that they are asked for; what was zeroed, in blocks, and what hosts are answered.
fn run(cache: &mut Cache) -> (Vec<BlockRange>, Vec<bool>) {
    let (mut zeroed, mut answers) = (Vec::new(), Vec::new());
    loop {
        cache.advance(Moment::ORIGIN);
        let (mut io, mut done) = (Vec::new(), Vec::new());
        cache.take(&mut io, &mut done);
        answers.extend(done.iter().map(|one| one.result.is_ok()));
        if io.is_empty() {
            return (zeroed, answers);
        }
        for (side, request) in io {
            if side == Side::Backing && matches!(request.op, Operation::WriteZeroes { .. }) {
                zeroed.push(request.range);
            }
            let completion = request.complete(Ok(()));
            cache.completed(side, completion);
        }
    }
}

#[test]
fn two_tebibytes_and_more_are_zeroed_in_parts() {
    let mut cache = cache(GRANULES, 64 << 20);
    run(&mut cache);
    assert!(cache.is_open());
    // The first is what a request can say in all; the last ends inside a part.
    for (first, granules) in [(64, 1 << 29), (0, GRANULES), (7, (1 << 29) + 3)] {
        assert!(granules * GRANULE as u64 >= 2 << 40);
        cache.submit(Request {
            tag: 1,
            op: Operation::Deallocate,
            range: BlockRange::new(first, granules as u32),
            buffer: None,
        });
        let (zeroed, answers) = run(&mut cache);
        assert_eq!(answers, [true]);
        let mut next = first * 8;
        for range in zeroed {
            assert_eq!(range.start.0, next);
            next += u64::from(range.count);
        }
        assert_eq!(next, (first + granules) * 8);
    }
}

/// A device that takes 10 ms to zero a MiB.
#[test]
fn hosts_do_not_wait_for_all_that_is_zeroed() {
    let mut cache = cache(GRANULES, 64 << 20);
    run(&mut cache);
    let buffers = BufferPool::new(2 << 20);
    let mebibytes = 256;
    cache.submit(Request {
        tag: 1,
        op: Operation::Deallocate,
        range: BlockRange::new(0, mebibytes * 256),
        buffer: None,
    });
    let (mut now, mut asked, mut longest, mut reads) = (Moment::ORIGIN, None, Duration::ZERO, 0);
    loop {
        if asked.is_none() {
            let buffer = buffers.get(GRANULE).unwrap();
            cache.submit(Request::read(2, BlockRange::new(1 << 20, 1), buffer));
            asked = Some(now);
        }
        cache.advance(now);
        let (mut io, mut done) = (Vec::new(), Vec::new());
        cache.take(&mut io, &mut done);
        for answer in done {
            if answer.tag == 1 {
                assert!(reads > 30, "{reads}");
                assert!(longest <= Duration::from_millis(100), "{longest:?}");
                return assert!(now.since(Moment::ORIGIN) < Duration::from_secs(3));
            }
            longest = longest.max(now.since(asked.take().unwrap()));
            reads += 1;
        }
        for (side, request) in io {
            if side == Side::Backing && matches!(request.op, Operation::WriteZeroes { .. }) {
                now = now + Duration::from_micros(10_000 * u64::from(request.range.count) / 2048);
            }
            cache.it_is(now);
            cache.completed(side, request.complete(Ok(())));
        }
    }
}

/// A cache that has something of each of so many pages, all of it recorded.
fn touched(pages: u64) -> Cache {
    let mut cache = cache(pages * PAGE, pages * 2 * 8192);
    let buffers = BufferPool::new(2 << 20);
    run(&mut cache);
    for page in 0..pages {
        cache.submit(Request::read(
            page,
            BlockRange::new(page * PAGE + page * 31 % PAGE, 1),
            buffers.get(GRANULE).unwrap(),
        ));
        run(&mut cache);
    }
    assert_eq!(cache.status().cached_bytes, pages * GRANULE as u64);
    cache
}

/// The least time that a hundred turns take, of several tries.
fn hundred_turns(cache: &mut Cache) -> Duration {
    let time = |_| {
        let from = Instant::now();
        (0..100).for_each(|_| cache.advance(Moment::ORIGIN));
        from.elapsed()
    };
    (0..20).map(time).min().unwrap()
}

#[test]
fn a_turn_takes_no_longer_for_a_larger_cache() {
    let (mut small, mut large) = (touched(16), touched(1 << 15));
    let (least, most) = (hundred_turns(&mut small), hundred_turns(&mut large));
    assert!(most < 10 * least, "{most:?} and {least:?} of a small one");
}

/// What is cached of 1 TiB, some of each 32 MiB of it.
#[test]
fn a_page_of_bits_takes_little_memory_and_that_is_counted() {
    let pages = 1 << 15;
    let mut cache = touched(pages);
    run(&mut cache);
    let each = cache.status().page_bytes / pages as usize;
    // A KiB for what can be read here, and one for what the page says.
    assert!((1024..2400).contains(&each), "{each}");
}

#[test]
fn pages_that_become_due_at_once_are_written_a_few_at_a_time() {
    // More than the memory of a cache has room for.
    let pages = (1 << 15) + 100;
    let mut cache = touched(pages);
    cache.advance(Moment::ORIGIN + Duration::from_secs(3));
    let (mut written, mut io, mut done) = (0, Vec::new(), Vec::new());
    loop {
        cache.take(&mut io, &mut done);
        let status = cache.status();
        assert_eq!(status.failure, None);
        assert!(io.len() <= 256, "{} at a time", io.len());
        if io.is_empty() {
            break;
        }
        for (side, request) in io.drain(..) {
            let is_write = matches!(request.op, Operation::Write(_));
            written += u64::from(is_write && side == Side::Fast);
            cache.completed(side, request.complete(Ok(())));
        }
        cache.advance(Moment::ORIGIN);
    }
    assert_eq!(written, pages);
}
