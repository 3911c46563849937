//! Batches whose checksum is right and whose contents are not.

use super::samples::*;
use crate::format::*;

/// Why a batch with `value` at `at` of its metadata, which has one block, is not read.
fn batch_with(at: usize, value: &[u8]) -> String {
    let batch = batch();
    let mut bytes = bytes_of(&batch);
    bytes[at..at + value.len()].copy_from_slice(value);
    SALT.seal(
        &mut bytes[..64 + 48 * batch.records.len() + 4 * batch.crcs.len()],
        4,
    );
    match Batch::decode(&bytes, SALT, LogId::Ring, LIMIT) {
        Ok(_) => "accepted".to_owned(),
        Err(BatchError::Torn(error)) => error.to_string(),
        Err(other) => format!("{other:?}"),
    }
}

#[test]
fn headers_that_are_none() {
    for (at, value) in [
        (3, &[2][..]),
        (8, &[1]),
        (16, &[1]),
        (18, &[0xff, 0xff]),
        (20, &[0]),
        (20, &[1, 1]),
        (20, &[0xff; 4]),
        (44, &[2]),
        (45, &[1]),
        (48, &[1]),
    ] {
        assert_eq!(batch_with(at, value), "NotABatch", "{at} {value:?}");
    }
}

#[test]
fn records_out_of_bounds() {
    const DATA: usize = 64;
    const PLACE: usize = 112;
    const DEALLOCATE: usize = 160;
    const ENTRY: usize = 208;
    assert_eq!(batch_with(DATA + 4, &[99]), "accepted");
    for (at, value, why) in [
        (DATA, &[6][..], "record: unknown kind 6"),
        (DATA, &[0], "record: unknown kind 0"),
        (DATA + 1, &[1], "record: its flags must be zero"),
        (
            DATA + 24,
            &[1],
            "record: a replica's record without number or epoch",
        ),
        (
            DATA + 32,
            &[1],
            "record: a replica's record without number or epoch",
        ),
        (
            DATA + 44,
            &[1],
            "record: a replica's record without number or epoch",
        ),
        (
            DATA + 24,
            &[
                1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
            ],
            "record: its replica sequence is too far ahead",
        ),
        (
            DATA + 24,
            &[1, 0, 0, 0, 0, 0, 0, 0x80, 1],
            "record: its replica sequence 9223372036854775809 is out of bounds",
        ),
        (
            ENTRY + 24,
            &[1, 0, 0, 0, 0, 0, 0, 0, 1],
            "record: it is no change of content, but is one of a replica",
        ),
        (DATA + 2, &[0], "record: it is about no granules"),
        (
            DATA + 8,
            &[0xff; 8],
            "record: its granules are out of bounds",
        ),
        (
            DATA + 8,
            &[0, 0, 0, 0, 2],
            "record: its granules are out of bounds",
        ),
        (DATA + 20, &[18], "batch: a checksum out of bounds"),
        (DATA + 20, &[0xff; 4], "batch: a checksum out of bounds"),
        (
            DATA + 20,
            &[1],
            "batch: a data block does not match its checksum",
        ),
        (DATA + 36, &[1], "batch: a data block out of turn"),
        (DATA + 2, &[3], "batch: a data block out of turn"),
        (
            DATA + 41,
            &[0x10],
            "record: it frees a slot that it does not replace",
        ),
        (PLACE + 2, &[17], "record: it places more than one slot"),
        (PLACE + 8, &[33], "record: it places more than one slot"),
        (
            PLACE + 36,
            &[0; 4],
            "record: its new location is out of bounds",
        ),
        (
            PLACE + 36,
            &[2, 0],
            "record: its new location is out of bounds",
        ),
        (
            PLACE + 40,
            &[1, 0],
            "record: its old location is out of bounds",
        ),
        (PLACE + 20, &[4], "batch: a checksum out of bounds"),
        (DEALLOCATE + 36, &[1], "record: a new location of nothing"),
        (
            DEALLOCATE + 40,
            &[1, 0],
            "record: its old location is out of bounds",
        ),
        (ENTRY + 2, &[2], "record: more than one entry"),
        (ENTRY + 4, &[1], "record: an entry of no system table"),
        (ENTRY + 16, &[16], "record: an entry of no system table"),
        (ENTRY + 36, &[1], "batch: a data block out of turn"),
        (
            ENTRY + 41,
            &[0x10],
            "record: it frees a slot that it does not replace",
        ),
        (
            24,
            &[0xff; 8],
            "batch: its term 18446744073709551615 is out of bounds",
        ),
        (20, &[3], "batch: its length is not that of its records"),
        (20, &[5], "batch: cut short"),
        (4000, &[1], "batch: its padding must be zero"),
    ] {
        assert_eq!(
            batch_with(at, value),
            format!("unusable {why}"),
            "{at} {value:?}"
        );
    }
}
