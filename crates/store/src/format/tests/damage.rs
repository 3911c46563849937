//! Bytes that are not, or no longer, what was written.

use proptest::collection::vec;
use proptest::prelude::*;

use super::samples::*;
use crate::format::*;
use crate::sizes::GRANULE;

/// Calls `refused` with every single bit of `bytes` flipped.
fn every_flip(mut bytes: Vec<u8>, refused: impl Fn(&[u8]) -> bool) {
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(refused(&bytes), "bit {} of byte {}", bit % 8, bit / 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_flip_of_a_label_is_refused() {
    every_flip(label().encode(), |bytes| {
        !matches!(Label::decode(bytes), Ok(Some(_)))
    });
}

#[test]
fn every_flip_of_a_root_is_refused() {
    every_flip(root().encode(SALT).unwrap(), |bytes| {
        Root::decode(bytes, SALT).is_err()
    });
}

#[test]
fn every_flip_of_a_batch_is_refused() {
    every_flip(bytes_of(&batch()), |bytes| {
        Batch::decode(bytes, SALT, LogId::Ring, LIMIT).is_err()
    });
}

#[test]
fn every_truncation_is_refused() {
    let (label, root, batch) = (
        label().encode(),
        root().encode(SALT).unwrap(),
        bytes_of(&batch()),
    );
    for length in 0..label.len() {
        assert!(
            !matches!(Label::decode(&label[..length]), Ok(Some(_))),
            "{length}"
        );
    }
    for length in 0..root.len() {
        assert!(Root::decode(&root[..length], SALT).is_err(), "{length}");
    }
    for length in 0..batch.len() {
        let refusal = Batch::decode(&batch[..length], SALT, LogId::Ring, LIMIT).unwrap_err();
        assert_eq!(refusal == BatchError::NotABatch, length < 64, "{length}");
    }
    let page = vec![0; GRANULE];
    for length in 0..page.len() {
        assert!(Leaf::decode(&page[..length]).is_err(), "{length}");
        assert!(TablePage::decode(&page[..length]).is_err(), "{length}");
    }
    for length in 0..SegmentEntry::BYTES {
        assert!(SegmentEntry::decode(&page[..length]).is_err(), "{length}");
    }
    for length in 0..VolumeEntry::BYTES {
        assert!(VolumeEntry::decode(&page[..length]).is_err(), "{length}");
    }
}

#[test]
fn another_pool_s_root_and_batch_are_refused() {
    let other = Salt(SALT.0 ^ 1);
    assert!(Root::decode(&root().encode(SALT).unwrap(), other).is_err());
    let batch = bytes_of(&batch());
    assert!(Batch::decode(&batch, other, LogId::Ring, LIMIT).is_err());
    assert_eq!(
        Batch::decode(&batch, SALT, LogId::Map, LIMIT),
        Err(BatchError::NotABatch)
    );
}

#[test]
fn a_torn_batch_is_refused_wherever_it_tore() {
    let batch = bytes_of(&batch());
    for sectors in 1..batch.len() / 512 {
        let mut torn = batch.clone();
        torn[sectors * 512..].fill(0xee);
        let read = Batch::decode(&torn, SALT, LogId::Ring, LIMIT);
        assert!(
            matches!(read, Err(BatchError::Torn(_))),
            "{sectors} sectors"
        );
    }
}

/// What a fuzzer does, in small: good bytes, some of them changed, or noise.
fn mutated(good: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let edits = vec(
        (any::<prop::sample::Index>(), 0..40usize, any::<u8>()),
        0..6,
    );
    let changed =
        (edits, any::<prop::sample::Index>(), 0..4).prop_map(move |(edits, cut, cuts)| {
            let mut bytes = good.clone();
            for (at, early, byte) in edits {
                // Half of the edits go to the beginning, where the counts are.
                let end = if early % 2 == 0 {
                    160.min(bytes.len())
                } else {
                    bytes.len()
                };
                bytes[at.index(end)] = byte;
            }
            if cuts == 0 {
                bytes.truncate(cut.index(bytes.len()));
            }
            bytes
        });
    prop_oneof![4 => changed, 1 => vec(any::<u8>(), 0..600)]
}

fn page_of(encode: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut page = vec![0; GRANULE];
    encode(&mut page);
    page
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_label_bytes(bytes in mutated(label().encode())) {
        fuzzing::label(&bytes);
    }

    #[test]
    fn any_root_bytes(bytes in mutated(root().encode(SALT).unwrap())) {
        fuzzing::root(&bytes);
    }

    #[test]
    fn any_batch_bytes(bytes in mutated(bytes_of(&batch()))) {
        fuzzing::batch(&bytes);
    }

    #[test]
    fn any_leaf_bytes(bytes in mutated(page_of(|page| leaf().encode(page)))) {
        fuzzing::leaf(&bytes);
    }

    #[test]
    fn any_table_bytes(bytes in mutated(page_of(|page| table().encode(page)))) {
        fuzzing::table(&bytes);
    }

    #[test]
    fn any_segment_bytes(bytes in mutated(page_of(|page| segment().encode(page)))) {
        fuzzing::entries(&bytes);
    }

    #[test]
    fn any_parity_segment_bytes(bytes in mutated(page_of(|page| parity_segment().encode(page)))) {
        fuzzing::entries(&bytes);
    }

    #[test]
    fn any_raw_segment_bytes(bytes in mutated(page_of(|page| raw_segment().encode(page)))) {
        fuzzing::entries(&bytes);
    }

    #[test]
    fn any_volume_bytes(bytes in mutated(page_of(|page| volume().encode(page)))) {
        fuzzing::entries(&bytes);
    }
}
