//! Structures whose checksum is right and whose contents are not.

use super::samples::*;
use crate::Layout;
use crate::format::*;
use crate::sizes::GRANULE;

/// The refusal of a label with `value` at `at`.
fn label_with(at: usize, value: &[u8]) -> String {
    let mut bytes = label().encode();
    bytes[at..at + value.len()].copy_from_slice(value);
    Salt(0).seal(&mut bytes, 12);
    refusal(Label::decode(&bytes))
}

#[test]
fn labels_that_say_too_much() {
    let newer = "unusable label: format version 2; this program reads version 1";
    assert_eq!(label_with(8, &2u32.to_le_bytes()), newer);
    let features = (1u64 << 3 | 1 << 17).to_le_bytes();
    let lacking = "unusable label: it needs features that this program lacks: bit 3, bit 17";
    assert_eq!(label_with(16, &features), lacking);
    for (at, value, why) in [
        (68, &[64u8, 0][..], "its member number is out of bounds"),
        (70, &[0], "unknown drive class 0"),
        (71, &[0], "its padding must be zero"),
        (71, &[5], "the pool's name is malformed"),
        (71, &[65], "the pool's name is malformed"),
        (72, b"t/", "the pool's name is malformed"),
        (72, &[0xff], "the pool's name is malformed"),
        (137, &[1], "its padding must be zero"),
        (160, &[1], "its padding must be zero"),
        (3071, &[1], "its padding must be zero"),
        (3072, &[1], "its padding must be zero"),
        (136, &[27], "the pool's extent size is out of bounds"),
        (
            144,
            &[2, 0],
            "the pool's number of log chunks is out of bounds",
        ),
        (152, &[0xff; 4], "the pool's segment size is out of bounds"),
        (56, &[0; 8], "the drive's size is out of bounds"),
        (56, &[0xff; 8], "the drive's size is out of bounds"),
    ] {
        assert_eq!(
            label_with(at, value),
            format!("unusable label: {why}"),
            "{at} {value:?}"
        );
    }
}

/// A newer program's label: bits, and their names.
fn label_named(bits: u64, names: &[&[u8]]) -> String {
    let mut bytes = label().encode();
    bytes[16..24].copy_from_slice(&bits.to_le_bytes());
    // What else it says is not looked at.
    bytes[160] = 1;
    for (name, at) in names.iter().zip((3072..).step_by(16)) {
        bytes[at..at + name.len()].copy_from_slice(name);
    }
    Salt(0).seal(&mut bytes, 12);
    refusal(Label::decode(&bytes))
}

#[test]
fn labels_with_features_of_newer_programs() {
    for (bits, names, why) in [
        (1 << 3, &[&b"\x03dedup"[..]][..], "dedup (bit 3)"),
        (
            1 | 1 << 63,
            &[&b"\0replicas"[..], &b"\x3fa-name-of-15-ch"[..]],
            "a-name-of-15-ch (bit 63)",
        ),
        // Another feature under a number that this program uses.
        (1, &[b"\0snapshots"], "snapshots (bit 0)"),
        // What would harm a terminal, is too much, or is another bit's.
        (1 << 3, &[b"\x03\x1b[2J"], "bit 3"),
        (1 << 3, &[b"\x03a\0b"], "bit 3"),
        (1 << 3, &[b"\x04dedup"], "bit 3"),
        (1 | 1 << 3, &[b"\0replicas"], "bit 0, bit 3"),
    ] {
        let lacking = "unusable label: it needs features that this program lacks";
        assert_eq!(label_named(bits, names), format!("{lacking}: {why}"));
    }
}

#[test]
fn what_is_no_label() {
    for bytes in [&[][..], b"ASHLABE", b"EFI PART and more", &[0; 4096]] {
        assert_eq!(Label::decode(bytes), Ok(None));
    }
    assert_eq!(
        refusal(Label::decode(b"ASHLABEL")),
        "unusable label: too short"
    );
}

#[test]
fn pool_names() {
    let long = "x".repeat(64);
    for name in ["a", "tank-2_x.Y", &long] {
        assert!(Label::is_pool_name(name), "{name}");
    }
    let longer = "x".repeat(65);
    for name in ["", "a/b", "a b", "µ", "a\0", &longer] {
        assert!(!Label::is_pool_name(name), "{name}");
    }
}

fn page_with(encode: impl Fn(&mut [u8]), at: usize, value: &[u8]) -> Vec<u8> {
    let mut page = vec![0; GRANULE];
    encode(&mut page);
    page[at..at + value.len()].copy_from_slice(value);
    page
}

#[test]
fn leaves_with_impossible_contents() {
    for (at, value, why) in [
        (0, &[0][..], "accepted"),
        (
            16 * 4,
            &[1],
            "unusable map leaf: a checksum without a location",
        ),
        (
            2048,
            &[0; 4],
            "unusable map leaf: a checksum without a location",
        ),
        (2052, &[1], "unusable map leaf: a location is out of bounds"),
        (
            2052,
            &[0, 0x12],
            "unusable map leaf: a location is out of bounds",
        ),
        (2176, &[1], "unusable map leaf: its padding must be zero"),
        (3072, &[4], "unusable map leaf: unknown grain 4"),
        (
            3072,
            &[1],
            "unusable map leaf: a checksum without a location",
        ),
        (
            3073,
            &[1],
            "unusable map leaf: it says that granules are lost, but none is",
        ),
        (3073, &[2], "unusable map leaf: unknown version 2"),
        (3074, &[1], "unusable map leaf: its padding must be zero"),
    ] {
        let page = page_with(|page| leaf().encode(page), at, value);
        assert_eq!(refusal(Leaf::decode(&page)), why, "{at}");
    }
}

#[test]
fn tables_with_impossible_contents() {
    for (at, value, why) in [
        (8, &[0][..], "accepted"),
        (20, &[31], "accepted"),
        (20, &[1, 1], "a page has more slots than a leaf"),
        (
            15,
            &[0x80],
            "its sequence 9223372036854775812 is out of bounds",
        ),
        (7, &[1], "a page's place is out of bounds"),
        (0, &[1, 0x20], "a page's place is out of bounds"),
        (0, &[0], "an entry without a page must be zero"),
        (24 + 16, &[1], "an entry without a page must be zero"),
        (3072, &[1], "its padding must be zero"),
    ] {
        let page = page_with(|page| table().encode(page), at, value);
        let text = refusal(TablePage::decode(&page));
        assert_eq!(
            text.trim_start_matches("unusable table page: "),
            why,
            "{at}"
        );
    }
}

#[test]
fn segments_with_impossible_contents() {
    for (at, value, why) in [
        (0, &[2][..], "its part of a volume is out of bounds"),
        (0, &[3], "its parity is out of bounds"),
        (0, &[4], "unknown kind 4"),
        (0, &[0], "2 columns for 2 copies"),
        (1, &[0], "0 columns for 2 copies"),
        (1, &[9], "9 columns for 2 copies"),
        (2, &[1], "2 columns for 1 copies"),
        (2, &[9], "2 columns for 9 copies"),
        (1, &[1], "its padding must be zero"),
        (3, &[1], "it has no parity, but counts it"),
        (4, &[1], "it has no parity, but counts it"),
        (5, &[1], "accepted"),
        (5, &[4], "unknown grain 4"),
        (6, &[1], "accepted"),
        (6, &[4], "unknown drive class 4"),
        (7, &[1], "its padding must be zero"),
        (12, &[64], "a column's member is out of bounds"),
        (14, &[1], "its padding must be zero"),
        (127, &[1], "its padding must be zero"),
        (72, &[15], "it is no part of a volume, but names one"),
        (76, &[1], "it is no part of a volume, but names one"),
    ] {
        let page = page_with(|page| segment().encode(page), at, value);
        let text = refusal(SegmentEntry::decode(&page));
        assert_eq!(
            text.trim_start_matches("unusable segment entry: "),
            why,
            "{at}"
        );
    }
}

#[test]
fn parity_segments_with_impossible_contents() {
    for (at, value, why) in [
        (0, &[1][..], "it has no parity, but counts it"),
        (3, &[1], "its parity is out of bounds"),
        (3, &[5], "its parity is out of bounds"),
        (3, &[2], "accepted"),
        (3, &[4], "its parity is out of bounds"),
        (4, &[0], "accepted"),
        (4, &[2], "its columns do not fit its parity"),
        (4, &[3], "its columns do not fit its parity"),
        (1, &[2], "its padding must be zero"),
        (2, &[3], "its parity is out of bounds"),
        (72, &[16], "it is no part of a volume, but names one"),
    ] {
        let page = page_with(|page| parity_segment().encode(page), at, value);
        let text = refusal(SegmentEntry::decode(&page));
        assert_eq!(
            text.trim_start_matches("unusable segment entry: "),
            why,
            "{at}"
        );
    }
}

#[test]
fn raw_segments_with_impossible_contents() {
    for (at, value, why) in [
        (0, &[2][..], "accepted"),
        (0, &[1], "it is no part of a volume, but names one"),
        (2, &[3], "a raw segment lacks columns"),
        (72, &[15], "its part of a volume is out of bounds"),
        (78, &[16], "its part of a volume is out of bounds"),
        (5, &[1], "it has no slots, but a grain"),
        (6, &[1], "it has no slots, but a drive class"),
        (80, &[1], "its padding must be zero"),
    ] {
        let page = page_with(|page| raw_segment().encode(page), at, value);
        let text = refusal(SegmentEntry::decode(&page));
        assert_eq!(
            text.trim_start_matches("unusable segment entry: "),
            why,
            "{at}"
        );
    }
}

#[test]
fn volumes_with_impossible_contents() {
    for (at, value, why) in [
        (0, &[2][..], "accepted"),
        (0, &[0], "its free entry must be zero"),
        (0, &[4], "unknown state 4"),
        (1, &[4], "unknown layout 4 of 2 columns and 0 of parity"),
        (1, &[3], "unknown layout 3 of 2 columns and 0 of parity"),
        (2, &[5], "unknown layout 1 of 5 columns and 0 of parity"),
        (1, &[2, 0], "unknown layout 2 of 0 columns and 0 of parity"),
        (4, &[1], "unknown layout 1 of 2 columns and 1 of parity"),
        (3, &[65], "its name is malformed"),
        (3, &[1], "its padding must be zero"),
        (32, &[0xff], "its name is malformed"),
        (5, &[1], "accepted"),
        (5, &[4], "unknown grain 4"),
        (6, &[3], "accepted"),
        (6, &[4], "unknown drive class 4"),
        (8, &[1], "its size is out of bounds"),
        (96, &[1], "accepted"),
        (96, &[2], "unknown use"),
        (97, &[2, 0, 20], "accepted"),
        (97, &[2, 0, 0], "its share is out of bounds"),
        (97, &[2, 0, 91], "its share is out of bounds"),
        (97, &[5, 0, 20], "its hot home is out of bounds"),
        (97, &[2, 4, 20], "unknown drive class 4"),
        (98, &[1], "its hot home must be zero"),
        (99, &[20], "its hot home must be zero"),
        (100, &[1], "its padding must be zero"),
        (255, &[1], "its padding must be zero"),
    ] {
        let page = page_with(|page| volume().encode(page), at, value);
        let text = refusal(VolumeEntry::decode(&page));
        assert_eq!(
            text.trim_start_matches("unusable volume entry: "),
            why,
            "{at}"
        );
    }
    let striped = VolumeEntry {
        layout: Layout::Stripe { columns: 2 },
        ..volume()
    };
    let page = page_with(|page| striped.encode(page), 5, &[1]);
    assert_eq!(
        refusal(VolumeEntry::decode(&page)),
        "unusable volume entry: its grain is out of bounds"
    );
    let nameless = VolumeEntry {
        name: String::new(),
        ..volume()
    };
    let page = page_with(|page| nameless.encode(page), 0, &[]);
    assert_eq!(
        refusal(VolumeEntry::decode(&page)),
        "unusable volume entry: it has no name"
    );
}
