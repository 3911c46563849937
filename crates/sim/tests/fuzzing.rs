//! The fuzzers' bodies with random bytes, mutated from a few good beginnings.

use ashlar_sim::fuzzing::{initiator_stream, pdu_stream, target_stream};

fn inputs(seed: u64, count: usize, each: impl Fn(&[u8])) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..count {
        let mut bytes = vec![0; random.usize(1..1500)];
        random.fill(&mut bytes);
        // Small numbers are more often meaningful.
        let calm = random.usize(0..4);
        for byte in &mut bytes {
            if random.usize(0..4) < calm {
                *byte &= 0x0f;
            }
        }
        each(&bytes);
    }
}

#[test]
fn any_pdu_stream() {
    inputs(1, 4000, pdu_stream);
}

#[test]
fn any_pdu_stream_that_begins_well() {
    inputs(2, 4000, |bytes| {
        let mut stream = vec![bytes[0] | 1, 3, 0, 0, 128, 0, 128, 0, 0, 0];
        stream.resize(2 + 128, 0);
        stream.extend([4, 0, 72, 0, 72, 0, 0, 0]);
        stream.extend_from_slice(bytes);
        pdu_stream(&stream);
    });
}

#[test]
fn any_host() {
    inputs(3, 400, target_stream);
}

#[test]
fn any_controller() {
    inputs(4, 4000, initiator_stream);
}
