//! What the fuzzers run: arbitrary bytes against the decoders.
//!
//! Each function takes bytes of any kind and panics when a promise is broken: a decoder panics, or
//! accepts bytes that are not what the encoder writes for what was read. Since no fuzzer guesses a
//! checksum, the bytes are tried as they are and then again with the right one. `fuzz/` calls these
//! from cargo-fuzz; the tests call them with random bytes, so that no test run needs a fuzzer.

use super::batch::{self, verified_bytes};
use super::{
    Batch, Label, Leaf, LogId, Root, Salt, SegmentEntry, TablePage, VolumeEntry, encode_batch,
    label as label_codec, metadata_bytes, root_codec,
};
use crate::sizes::{GRANULE, ROOT_BYTES};

/// The salt under which the fuzzers' roots and batches are read.
pub const SALT: Salt = Salt(0x0a51_1a52);
const BATCH_LIMIT: usize = 1 << 20;

/// A drive's label.
pub fn label(bytes: &[u8]) {
    check_label(bytes);
    let mut sealed = bytes.to_vec();
    sealed.resize(Label::BYTES, 0);
    label_codec::UNSALTED.seal(&mut sealed, label_codec::CRC_AT);
    check_label(&sealed);
}

fn check_label(bytes: &[u8]) {
    if let Ok(Some(label)) = Label::decode(bytes) {
        assert!(bytes.starts_with(&label.encode()));
    }
}

/// A root slot.
pub fn root(bytes: &[u8]) {
    check_root(bytes);
    let length = number(bytes, 16, 4);
    if (GRANULE..=ROOT_BYTES as usize).contains(&length) {
        let mut sealed = bytes.to_vec();
        sealed.resize(length, 0);
        SALT.seal(&mut sealed, root_codec::CRC_AT);
        check_root(&sealed);
    }
}

fn check_root(bytes: &[u8]) {
    if let Ok(root) = Root::decode(bytes, SALT) {
        assert!(bytes.starts_with(&root.encode(SALT).expect("it was read")));
    }
}

/// A batch of either log.
pub fn batch(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    sealed.resize(bytes.len().max(64), 0);
    let verified = verified_bytes(number(&sealed, 18, 2), number(&sealed, 46, 2));
    for log in [LogId::Ring, LogId::Map] {
        check_batch(bytes, log);
        if let Some(length) = Batch::peek(&sealed, SALT, log, BATCH_LIMIT) {
            sealed.resize(length, 0);
            SALT.seal(&mut sealed[..verified], batch::CRC_AT);
            check_batch(&sealed, log);
        }
    }
}

fn check_batch(bytes: &[u8], log: LogId) {
    if let Ok((batch, crc)) = Batch::decode(bytes, SALT, log, BATCH_LIMIT) {
        assert_eq!(
            Batch::peek(bytes, SALT, log, BATCH_LIMIT),
            Some(batch.bytes())
        );
        let mut metadata = vec![0xff; metadata_bytes(batch.records.len(), batch.crcs.len())];
        assert_eq!(encode_batch(&batch, SALT, &mut metadata), crc);
        assert!(bytes.starts_with(&metadata));
    }
}

/// A map leaf.
pub fn leaf(bytes: &[u8]) {
    if let Ok(leaf) = Leaf::decode(bytes) {
        let mut page = [0xff; GRANULE];
        leaf.encode(&mut page);
        assert!(bytes.starts_with(&page));
    }
}

/// A page of places.
pub fn table(bytes: &[u8]) {
    if let Ok(table) = TablePage::decode(bytes) {
        let mut page = [0xff; GRANULE];
        table.encode(&mut page);
        assert!(bytes.starts_with(&page));
    }
}

/// An entry of the segment table, and one of the volume table.
pub fn entries(bytes: &[u8]) {
    if let Ok(entry) = SegmentEntry::decode(bytes) {
        let mut out = [0xff; SegmentEntry::BYTES];
        entry.encode(&mut out);
        assert!(bytes.starts_with(&out));
    }
    if let Ok(entry) = VolumeEntry::decode(bytes) {
        let mut out = [0xff; VolumeEntry::BYTES];
        entry.encode(&mut out);
        assert!(bytes.starts_with(&out));
    }
}

/// The little-endian number of `width` bytes at `at`, 0 where there are none.
fn number(bytes: &[u8], at: usize, width: usize) -> usize {
    let field = bytes.get(at..at + width).unwrap_or_default();
    field
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | usize::from(*byte))
}
