//! The tables of `docs/disk-format.md`: where each field lies, and that nothing moves by accident.
//! A change of one of these numbers changes the format, and needs a version or a feature bit.

use super::samples::*;
use crate::format::*;
use crate::sizes::{GRANULE, Grain};
use crate::{HotTier, Share};

fn expect(bytes: &[u8], fields: &[(usize, &[u8])]) {
    for (at, field) in fields {
        assert_eq!(&bytes[*at..at + field.len()], *field, "at {at}");
    }
}

/// A checksum of all of a sample's bytes.
fn print(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

fn page_of(encode: impl Fn(&mut [u8])) -> [u8; GRANULE] {
    let mut page = [0xff; GRANULE];
    encode(&mut page);
    page
}

#[test]
fn a_label_s_bytes() {
    let bytes = label().encode();
    expect(
        &bytes,
        &[
            (0, b"ASHLABEL\x01\0\0\0"),
            (16, &[0; 8]),
            (24, &[1, 2, 3, 4]),
            (40, &[0x11, 0x12, 0x13, 0x14]),
            (56, &[0, 0, 0, 0x40, 0, 0, 0, 0]),
            (64, &[0xef, 0xbe, 0xad, 0xde]),
            (68, &[3, 0, 2, 4]),
            (72, b"tank\0"),
            (136, &[20, 0, 0, 0]),
            (140, &[4, 0, 0, 0]),
            (144, &[16, 0, 0, 0]),
            (148, &[4, 0, 0, 0]),
            (152, &[64, 0, 0, 0]),
            (156, &[0, 0, 0x10, 0]),
            (160, &[0; 3936]),
        ],
    );
    assert_eq!(print(&bytes), 0xb26c_c939);
}

#[test]
fn a_root_s_bytes() {
    let bytes = root().encode(SALT).unwrap();
    assert_eq!(bytes.len(), 4096);
    expect(
        &bytes,
        &[
            (0, b"ASHLROOT\x01\0\0\0"),
            (16, &[0, 0x10, 0, 0]),
            (20, &[2, 0, 0, 0]),
            (24, &[1, 2, 3, 4]),
            (40, &[17, 0, 0, 0, 0, 0, 0, 0]),
            (48, &[3, 0, 0, 0, 0, 0, 0, 0]),
            (56, &[0x88, 0x13, 0, 0, 0, 0, 0, 0]),
            (64, &[0xe8, 3, 0, 0, 0, 0, 0, 0]),
            (72, &[1, 0, 0, 0, 2, 0, 0, 0]),
            // The ring: chunks, terms, tail position, number, predecessor.
            (80, &[3, 0, 0, 0, 2, 0, 0, 0]),
            (88, &[0, 0x20, 1, 0, 0, 0, 0, 0]),
            (96, &[41, 0, 0, 0, 0, 0, 0, 0]),
            (104, &[0x21, 0x43, 0x65, 0x87, 0, 0, 0, 0]),
            // The map log, then the members.
            (112, &[3, 0, 0, 0, 2, 0, 0, 0]),
            (144, &[0; 15]),
            (159, &[1, 0xe8, 3, 0, 0, 1, 0, 0, 0]),
            (183, &[2, 0xe8, 3, 0, 0, 2, 0, 0, 0]),
            // The ring's first chunk, and its terms behind the third.
            (
                192,
                &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            ),
            (252, &[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
            (268, &[3, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0]),
            // Behind the map log's: the metadata segment and the two pages.
            (
                376,
                &[
                    7, 0, 0, 0, 2, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 21, 0, 0, 0, 0, 0, 0, 0,
                ],
            ),
            (
                400,
                &[
                    1, 0, 0, 0, 0, 0, 0, 0, 13, 0, 7, 0, 0, 0, 0, 0, 0xe6, 3, 0, 0, 0, 0, 0, 0,
                ],
            ),
            (424, &[0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0]),
            (432, &[16, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (464, &[0; 3632]),
        ],
    );
    assert_eq!(print(&bytes), 0xf750_c3c5);
}

/// Features are at the end, so that all before may change; without one, every byte is as it was before there were any.
#[test]
fn the_bytes_of_features() {
    let replicas = b"\0replicas\0\0\0\0\0\0\0";
    let tiers = b"\x01tiers\0\0\0\0\0\0\0\0\0\0";
    let caches = b"\x02caches\0\0\0\0\0\0\0\0\0";
    let features: Features = Feature::ALL.into_iter().collect();
    let bytes = Label {
        features,
        ..label()
    }
    .encode();
    expect(
        &bytes,
        &[
            (16, &[7, 0, 0, 0, 0, 0, 0, 0]),
            (160, &[0; 2912]),
            (3072, replicas),
            (3088, tiers),
            (3104, caches),
            (3120, &[0; 976]),
        ],
    );
    let bytes = Root { features, ..root() }.encode(SALT).unwrap();
    assert_eq!(bytes.len(), 4096);
    expect(
        &bytes,
        &[
            (0, b"ASHLROOT\x01\0\x03\0"),
            (464, &[0; 3584]),
            (4048, replicas),
            (4064, tiers),
            (4080, caches),
        ],
    );
    let some = Features::NONE.with(Feature::Tiers);
    let bytes = Root {
        features: some,
        ..root()
    };
    let bytes = bytes.encode(SALT).unwrap();
    expect(
        &bytes,
        &[(8, &[1, 0, 1, 0]), (464, &[0; 3616]), (4080, tiers)],
    );
}

#[test]
fn a_batch_s_bytes() {
    let bytes = bytes_of(&batch());
    assert_eq!(bytes.len(), 4 * 4096);
    expect(
        &bytes,
        &[
            (0, b"ALB\x01"),
            (8, &[0; 10]),
            (18, &[4, 0, 4, 0, 0, 0]),
            (24, &[3, 0, 0, 0, 0, 0, 0, 0]),
            (32, &[0xe8, 3, 0, 0, 0, 0, 0, 0]),
            (40, &[0x0d, 0xf0, 0xfe, 0xca]),
            (44, &[0, 0, 19, 0]),
            (48, &[0; 8]),
            (56, &[41, 0, 0, 0, 0, 0, 0, 0]),
            // Data.
            (64, &[1, 0, 2, 0, 16, 0, 0, 0]),
            (72, &[5, 0, 0, 0, 0, 0, 0, 0]),
            (80, &[1, 0, 0, 0, 0, 0, 0, 0]),
            (88, &[0; 24]),
            // Place.
            (112, &[2, 0, 16, 0, 17, 0, 0, 0]),
            (120, &[32, 0, 0, 0, 0, 0, 0, 0]),
            (128, &[1, 0, 0, 0, 3, 0, 0, 0]),
            (136, &[0; 12]),
            (148, &[2, 0x90, 0, 0, 0xff, 0x81, 0, 0, 0, 0, 0, 0]),
            // Deallocate, entry.
            (160, &[3, 0, 0x40, 0x9c, 17, 0, 0, 0]),
            (208, &[4, 0, 1, 0, 0, 0, 0, 0]),
            (224, &[2, 0, 0, 0, 2, 0, 0, 0]),
            (244, &[2, 0, 0, 0, 0, 0, 0, 0]),
            // The checksums, and padding up to the data.
            (256 + 12, &[100, 0, 0, 0]),
            (256 + 18 * 4, &[115, 0, 0, 0]),
            (256 + 19 * 4, &[0; 4096 - 332]),
        ],
    );
    assert_eq!(print(&bytes), 0x22e2_16de);
}

#[test]
fn a_leaf_s_bytes() {
    let page = page_of(|page| leaf().encode(page));
    let fields: [(usize, &[u8]); 4] = [
        (5 * 4, &[0x78, 0x56, 0x34, 0x12]),
        (2044, &[0xff; 4]),
        (2048, &[2, 0x90, 0, 0]),
        (2048 + 31 * 4, &[0xff, 0xf1, 0xff, 0xff]),
    ];
    expect(&page, &fields);
    assert_eq!(print(&page), 0xd3cf_3e6e);
}

#[test]
fn the_bytes_of_a_leaf_of_small_slots() {
    let page = page_of(|page| fine_leaf().encode(page));
    let fields: [(usize, &[u8]); 5] = [
        (5 * 4, &[0x78, 0x56, 0x34, 0x12]),
        (2048, &[0; 8]),
        (2048 + 2 * 4, &[0xff, 0x9f, 0, 0]),
        (2048 + 255 * 4, &[0, 0xf0, 0xff, 0xff, 1]),
        (3073, &[0; 1023]),
    ];
    expect(&page, &fields);
    assert_eq!(Leaf::decode(&page), Ok(fine_leaf()));
}

#[test]
fn a_table_s_bytes() {
    let page = page_of(|page| table().encode(page));
    let first = [
        1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0xdd, 0xcc, 0xbb, 0xaa, 32, 0, 0, 0,
    ];
    let last = [
        0, 0x20, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0,
    ];
    expect(
        &page,
        &[
            (0, &first),
            (24, &[0; 24]),
            (127 * 24, &last),
            (3072, &[0; 1024]),
        ],
    );
    assert_eq!(print(&page), 0x7654_e90d);
}

#[test]
fn the_entries_bytes() {
    let page = page_of(|page| segment().encode(page));
    let columns = [20, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 63, 0, 0, 0];
    expect(
        &page,
        &[
            (0, &[1, 2, 2, 0, 0, 0, 0, 0]),
            (8, &columns),
            (24, &[0; 104]),
            (128, &[0xff]),
        ],
    );
    assert_eq!(print(&page), 0x63a5_ef0b);

    let page = page_of(|page| parity_segment().encode(page));
    expect(
        &page,
        &[
            (0, &[3, 3, 4, 3, 1, 0, 0, 0]),
            (8, &[20, 0, 0, 0, 1, 0, 0, 0]),
            (24, &[7, 0, 0, 0, 2, 0, 0, 0]),
            (32, &[0; 96]),
            (128, &[0xff]),
        ],
    );

    let fine = SegmentEntry {
        grain: Grain::K16,
        ..parity_segment()
    };
    let page = page_of(|page| fine.encode(page));
    expect(&page, &[(0, &[3, 3, 4, 3, 1, 2, 0, 0])]);
    let slow = SegmentEntry {
        class: Some(DriveClass::Hdd),
        ..parity_segment()
    };
    let page = page_of(|page| slow.encode(page));
    expect(&page, &[(0, &[3, 3, 4, 3, 1, 0, 3, 0])]);

    let hot = SegmentEntry {
        volume: 17,
        ..segment()
    };
    let page = page_of(|page| hot.encode(page));
    expect(&page, &[(72, &[17, 0, 0, 0, 0, 0, 0, 0])]);

    let page = page_of(|page| raw_segment().encode(page));
    expect(
        &page,
        &[
            (0, &[2, 2, 2, 0, 0, 0, 0, 0]),
            (8, &columns),
            (24, &[0; 48]),
            (72, &[17, 0, 0, 0, 2, 1, 0, 0]),
            (80, &[0; 48]),
            (128, &[0xff]),
        ],
    );

    let page = page_of(|page| volume().encode(page));
    expect(
        &page,
        &[
            (0, &[1, 1, 2, 2, 0, 0, 0, 0]),
            (8, &[0, 0, 0, 0, 2, 0, 0, 0]),
            (16, &[0x21, 0x22, 0x23, 0x24]),
            (32, b"db\0"),
            (96, &[0; 160]),
            (256, &[0xff]),
        ],
    );
    assert_eq!(print(&page), 0xb4cb_04b7);
    let fine = VolumeEntry {
        grain: Grain::K32,
        ..volume()
    };
    let page = page_of(|page| fine.encode(page));
    expect(&page, &[(0, &[1, 1, 2, 2, 0, 3, 0, 0])]);
    let slow = VolumeEntry {
        class: Some(DriveClass::Ssd),
        ..volume()
    };
    let page = page_of(|page| slow.encode(page));
    expect(&page, &[(0, &[1, 1, 2, 2, 0, 0, 2, 0])]);
    let cache = VolumeEntry {
        is_cache: true,
        ..volume()
    };
    let page = page_of(|page| cache.encode(page));
    expect(&page, &[(96, &[1, 0, 0, 0])]);
    let tiered = VolumeEntry {
        hot: Some(HotTier {
            copies: 2,
            class: Some(DriveClass::Nvme),
            share: Share::of_percent(20).expect("a share"),
        }),
        ..volume()
    };
    let page = page_of(|page| tiered.encode(page));
    expect(&page, &[(96, &[0, 2, 1, 20, 0])]);
}

#[test]
fn a_page_s_checksum() {
    let id = PageId {
        node: 16,
        level: 1,
        index: 5,
    };
    let mut named = vec![16, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0];
    named.extend([9; GRANULE]);
    assert_eq!(id.crc(SALT, &[9; GRANULE]), SALT.crc(&named));
}
