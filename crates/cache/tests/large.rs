//! A device of more than 2 TiB in blocks of 512 bytes: what is zeroed is counted in more than 32 bits.
#![allow(clippy::unwrap_used)]

use ashlar_block::{BlockRange, BlockSize, Geometry, Moment, Operation, Request};
use ashlar_cache::{Cache, GRANULE, Header, Mark, Mode, Side};
use uuid::Uuid;

const GRANULES: u64 = 5 << 28;

fn cache() -> Cache {
    let header = Header {
        cache: Uuid::from_u128(5),
        granules: GRANULES,
        cache_bytes: 64 << 20,
        blocks: BlockSize::B4096,
        mode: Mode::WriteAround,
        mark: Mark::Off,
        head_crc: None,
        marked: None,
        identity: None,
        backing: "disk".to_owned(),
    };
    let geometry = Geometry {
        deallocates: true,
        ..Geometry::plain(BlockSize::B512, GRANULES * 8)
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
    let mut cache = cache();
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
