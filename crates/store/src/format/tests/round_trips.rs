//! What is written is what is read.

use proptest::prelude::*;

use super::any::*;
use super::samples::*;
use crate::format::*;
use crate::sizes::{GRANULE, Grain};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn labels(label in any_label()) {
        let bytes = label.encode();
        prop_assert_eq!(bytes.len(), Label::BYTES);
        prop_assert_eq!(Label::decode(&bytes), Ok(Some(label)));
    }

    #[test]
    fn roots(root in any_root()) {
        let mut bytes = root.encode(SALT).unwrap();
        prop_assert!(bytes.len().is_multiple_of(GRANULE));
        bytes.extend([0xaa; 100]);
        prop_assert_eq!(Root::decode(&bytes, SALT), Ok(root));
    }

    #[test]
    fn batches(batch in any_batch()) {
        let mut bytes = bytes_of(&batch);
        let length = bytes.len();
        bytes.extend([0xaa; 100]);
        prop_assert_eq!(Batch::peek(&bytes[..64], SALT, batch.log, LIMIT), Some(length));
        prop_assert_eq!(Batch::peek_number_and_term(&bytes), Some((batch.number, batch.term)));
        let crc = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
        prop_assert_eq!(Batch::decode(&bytes, SALT, batch.log, LIMIT), Ok((batch.clone(), crc)));
        prop_assert_eq!(Batch::peek(&bytes, SALT, batch.log, length - 1), None);
    }

    #[test]
    fn leaves(leaf in any_leaf()) {
        let mut page = [0xff; GRANULE];
        leaf.encode(&mut page);
        prop_assert_eq!(Leaf::decode(&page), Ok(leaf));
    }

    #[test]
    fn tables(table in any_table()) {
        let mut page = [0xff; GRANULE];
        table.encode(&mut page);
        prop_assert_eq!(TablePage::decode(&page), Ok(table));
    }

    #[test]
    fn segments(entry in any_segment()) {
        let mut bytes = [0xff; SegmentEntry::BYTES];
        entry.encode(&mut bytes);
        prop_assert_eq!(SegmentEntry::decode(&bytes), Ok(entry));
    }

    #[test]
    fn volumes(entry in any_volume()) {
        let mut bytes = [0xff; VolumeEntry::BYTES];
        entry.encode(&mut bytes);
        prop_assert_eq!(VolumeEntry::decode(&bytes), Ok(entry));
    }
}

#[test]
fn fresh_pages_and_entries_are_zeroes() {
    let zeroes = [0; GRANULE];
    assert_eq!(Leaf::decode(&zeroes), Ok(Leaf::empty(Grain::K64)));
    let empty = TablePage(Box::new([TableEntry::NONE; 128]));
    assert_eq!(TablePage::decode(&zeroes), Ok(empty));
    assert_eq!(VolumeEntry::decode(&zeroes), Ok(VolumeEntry::free()));
    assert_eq!(SegmentEntry::decode(&zeroes), Ok(SegmentEntry::free()));
}

#[test]
fn the_largest_batch() {
    let mut batch = batch();
    let record = batch.records[1];
    batch.records = vec![record; MAX_RECORDS];
    batch.crcs = vec![1; MAX_CRCS];
    let bytes = bytes_of(&batch);
    assert!(bytes.len() <= LIMIT);
    let (read, _) = Batch::decode(&bytes, SALT, LogId::Ring, LIMIT).unwrap();
    assert_eq!(read, batch);
}

#[test]
fn a_page_verifies_only_under_its_own_name_and_salt() {
    let id = PageId {
        node: 16,
        level: 1,
        index: 5,
    };
    let mut page = [7; GRANULE];
    let crc = id.crc(SALT, &page);
    assert_ne!(PageId { node: 17, ..id }.crc(SALT, &page), crc);
    assert_ne!(PageId { level: 0, ..id }.crc(SALT, &page), crc);
    assert_ne!(PageId { index: 4, ..id }.crc(SALT, &page), crc);
    assert_ne!(id.crc(Salt(1), &page), crc);
    for bit in 0..GRANULE * 8 {
        page[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(id.crc(SALT, &page), crc, "bit {bit}");
        page[bit / 8] ^= 1 << (bit % 8);
    }
}
