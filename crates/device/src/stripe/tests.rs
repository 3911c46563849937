use ashlar_block::{BlockRange, BlockSize, Durability, ErrorKind, Operation, Request};
use proptest::prelude::*;

use super::*;
use crate::Memory;
use crate::faults::{Action, Affects, FaultControl, Faulty, Rule, Trigger};
use crate::testing::Bench;

fn memories(sizes: &[u64], block_size: BlockSize) -> Vec<Arc<dyn Opener>> {
    let memory = |&bytes| Memory::new(bytes, block_size).expect("memory") as Arc<dyn Opener>;
    sizes.iter().map(memory).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u32, u8),
    Zero(u64, u32),
    Read(u64, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let extent = (0u64..1000, 1u32..200);
    let step = (extent, any::<u8>(), 0..4).prop_map(|((at, count), fill, what)| match what {
        0 | 1 => Step::Write(at, count, fill),
        2 => Step::Zero(at, count),
        _ => Step::Read(at, count),
    });
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_stripe_holds_what_one_device_would(
        steps in steps(), chunk in 1u64..40, children in 1usize..5,
    ) {
        let stripe = Stripe::new(memories(&vec![256 << 10; children], BlockSize::B512), chunk * 512)
            .expect("stripe");
        let blocks = stripe.geometry().blocks;
        let mut bench = Bench::open(&*stripe);
        let mut model = vec![0u8; blocks as usize * 512];
        for (number, step) in steps.into_iter().enumerate() {
            let (Step::Write(at, count, _) | Step::Zero(at, count) | Step::Read(at, count)) = step;
            let at = at % blocks;
            let range = BlockRange::new(at, u64::from(count).min(blocks - at) as u32);
            let bytes = at as usize * 512..(at as usize + range.count as usize) * 512;
            match step {
                Step::Write(_, _, fill) => {
                    let mut buffer = bench.buffer(bytes.len());
                    for (i, block) in buffer.chunks_mut(512).enumerate() {
                        block.fill(fill.wrapping_add(i as u8));
                    }
                    let (base, durability) = (buffer.as_ptr(), Durability::Cached);
                    model[bytes].copy_from_slice(&buffer);
                    let done = bench.run(Request::write(number as u64, range, buffer, durability));
                    done.result.expect("write");
                    let buffer = done.buffer.expect("comes back");
                    prop_assert_eq!((buffer.as_ptr(), done.tag), (base, number as u64));
                    prop_assert_eq!(buffer.len(), range.count as usize * 512);
                }
                Step::Zero(..) => {
                    bench.zero(Operation::Deallocate, range).expect("deallocate");
                    model[bytes].fill(0);
                }
                Step::Read(..) => prop_assert_eq!(&bench.read(range).expect("read"), &model[bytes]),
            }
        }
        let all: Vec<u8> = (0..blocks).step_by(128)
            .flat_map(|at| {
                let count = (blocks - at).min(128) as u32;
                bench.read(BlockRange::new(at, count)).expect("read")
            })
            .collect();
        prop_assert_eq!(all, model);
    }
}

#[test]
fn many_requests_at_once_come_back_once_each() {
    let stripe = Stripe::new(memories(&[1 << 20; 3], BlockSize::B4096), 8192).expect("stripe");
    let mut bench = Bench::open(&*stripe);
    let requests = (0..64)
        .map(|i| {
            let mut buffer = bench.buffer(5 * 4096);
            buffer.fill(i as u8 + 1);
            Request::write(i, BlockRange::new(i * 5, 5), buffer, Durability::Durable)
        })
        .chain([Request::flush(64)])
        .collect();
    let done = bench.run_all(requests);
    assert!(done.iter().all(|c| c.result.is_ok()));
    for i in 0..64 {
        let data = bench.read(BlockRange::new(i * 5, 5)).expect("read");
        assert!(data.iter().all(|&b| b == i as u8 + 1));
    }
}

#[test]
fn the_shape_is_what_all_can_promise() {
    let stripe = Stripe::new(
        memories(&[1 << 20, (2 << 20) + 4096], BlockSize::B4096),
        48 << 10,
    )
    .expect("stripe");
    let geometry = stripe.geometry();
    assert_eq!(geometry.blocks, 2 * (1 << 20) / (48 << 10) * 12);
    assert_eq!(
        geometry.atomic_blocks, 4,
        "48 KiB chunks hold aligned 16 KiB"
    );
    assert!(
        stripe
            .describe()
            .to_string()
            .starts_with("stripe of 2, 2016 KiB, chunks of 48 KiB\n├─ memory")
    );
    let refused = |sizes: &[u64], chunk| {
        let error = Stripe::new(memories(sizes, BlockSize::B4096), chunk)
            .err()
            .expect("refused");
        error.to_string()
    };
    assert!(refused(&[], 65536).contains("needs at least one device"));
    assert!(refused(&[1 << 20], 1000).contains("chunk of 1000 B: is not a multiple"));
    assert!(refused(&[1 << 20, 4096], 65536).contains("smaller than a chunk of 64 KiB"));
    let mixed = [
        memories(&[1 << 20], BlockSize::B512),
        memories(&[1 << 20], BlockSize::B4096),
    ];
    let error = Stripe::new(mixed.concat(), 65536)
        .err()
        .expect("refused")
        .to_string();
    assert!(error.contains("blocks of 512 and of 4096 bytes"), "{error}");
}

#[test]
fn one_failed_piece_fails_the_request_and_a_failed_flush_latches_all_queues() {
    let control = FaultControl::new(1);
    let mut children = memories(&[1 << 20; 2], BlockSize::B4096);
    children[1] = Faulty::new(children[1].clone(), control.clone());
    let stripe = Stripe::new(children, 4096).expect("stripe");
    let (mut a, mut b) = (Bench::open(&*stripe), Bench::open(&*stripe));
    let error = Action::Error(ErrorKind::Media);
    control.add(Rule::always(Affects::Writes, error).when(Trigger::Nth(2)));
    let buffer = a.buffer(8 * 4096);
    let range = BlockRange::new(0, 8);
    let done = a.run(Request::write(5, range, buffer, Durability::Cached));
    assert_eq!(
        done.result.expect_err("one of eight").kind(),
        ErrorKind::Media
    );
    assert_eq!(done.buffer.expect("whole again").len(), 8 * 4096);
    b.write(range, 1, Durability::Cached)
        .expect("an ordinary error does not latch");
    control.add(Rule::always(Affects::Flushes, error).when(Trigger::Nth(1)));
    assert_eq!(a.flush().expect_err("fails").kind(), ErrorKind::Media);
    control.clear();
    assert_eq!(b.flush().expect_err("latched").kind(), ErrorKind::Latched);
    let error = b
        .write(BlockRange::new(0, 1), 1, Durability::Cached)
        .expect_err("latched");
    assert_eq!(error.kind(), ErrorKind::Latched);
}
