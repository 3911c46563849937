//! Structures to test with, one of each, whose bytes are known.

use uuid::Uuid;

use crate::format::*;
use crate::sizes::{GRANULE, Grain};
use crate::{Layout, Sizes};

pub const SALT: Salt = fuzzing::SALT;
pub const LIMIT: usize = 1 << 20;

pub fn label() -> Label {
    Label {
        features: Features::NONE,
        pool: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        pool_name: "tank".to_owned(),
        drive: Uuid::from_u128(0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20),
        index: 3,
        class: DriveClass::Ssd,
        bytes: 1 << 30,
        salt: Salt(0xdead_beef),
        sizes: Sizes::for_drive(1 << 30).unwrap(),
    }
}

pub fn copies(drives: &[(u16, u32)]) -> Vec<ChunkCopy> {
    drives
        .iter()
        .map(|&(drive, extent)| ChunkCopy { drive, extent })
        .collect()
}

pub fn root() -> Root {
    let member = |drive: u128| Member {
        drive: Uuid::from_u128(drive),
        state: MemberState::Active,
        extents: 1000,
    };
    let log = |first: u32| LogState {
        chunks: (first..first + 3)
            .map(|at| Chunk {
                copies: copies(&[(0, at), (1, at)]),
            })
            .collect(),
        tail_at: 0x12000,
        tail_number: 41,
        tail_previous: 0x8765_4321,
        terms: vec![
            TermStart {
                term: 2,
                first_batch: 1,
            },
            TermStart {
                term: 3,
                first_batch: 40,
            },
        ],
    };
    let entry = TableEntry {
        place: 7 << 16 | 12,
        crc: 0x1234_5678,
        sequence: 998,
        slots: 0,
        lost: 0,
    };
    Root {
        features: Features::NONE,
        pool: label().pool,
        generation: 17,
        term: 3,
        next_sequence: 5000,
        map_sequence: 1000,
        members: vec![
            member(1),
            Member {
                state: MemberState::Excluded,
                ..member(2)
            },
        ],
        reserve: RepairReserve::default(),
        ring: log(0),
        map: log(3),
        meta: vec![MetaSegment {
            id: 7,
            columns: copies(&[(1, 20), (0, 21)]),
        }],
        tops: vec![
            TopEntry {
                node: 1,
                index: 0,
                entry,
            },
            TopEntry {
                node: 16,
                index: 5,
                entry: TableEntry::NONE,
            },
        ],
        scrub: None,
    }
}

/// One record of each kind; three data blocks.
pub fn batch() -> Batch {
    let data = Descriptor {
        kind: Kind::Data,
        granules: 2,
        volume: 16,
        first_granule: 5,
        node: 1,
        first_crc: 0,
        block_or_location: 0,
        old_location: 0,
        replica: None,
    };
    let place = Descriptor {
        kind: Kind::Place,
        granules: 16,
        volume: 17,
        first_granule: 32,
        first_crc: 3,
        block_or_location: 9 << 12 | 2,
        old_location: 8 << 12 | 511,
        ..data
    };
    let deallocate = Descriptor {
        kind: Kind::Deallocate,
        granules: 40_000,
        first_crc: 0,
        block_or_location: 0,
        ..place
    };
    let entry = Descriptor {
        kind: Kind::Entry,
        granules: 1,
        volume: 0,
        node: 2,
        first_crc: 2,
        block_or_location: 2,
        ..data
    };
    let mut crcs: Vec<u32> = (0..3).map(|at| SALT.crc(&block(at))).collect();
    crcs.extend(100..116);
    Batch {
        log: LogId::Ring,
        term: 3,
        number: 41,
        first_sequence: 1000,
        previous: 0xcafe_f00d,
        records: vec![data, place, deallocate, entry],
        crcs,
    }
}

/// The bytes of the data block `at` of any sample.
pub fn block(at: usize) -> [u8; GRANULE] {
    std::array::from_fn(|byte| (byte + at * 31) as u8)
}

/// The batch with the samples' data blocks.
pub fn bytes_of(batch: &Batch) -> Vec<u8> {
    let mut bytes = vec![0xff; batch.bytes()];
    encode_batch(batch, SALT, &mut bytes);
    let data = metadata_bytes(batch.records.len(), batch.crcs.len());
    for (at, out) in bytes[data..].chunks_exact_mut(GRANULE).enumerate() {
        out.copy_from_slice(&block(at));
    }
    bytes
}

pub fn leaf() -> Box<Leaf> {
    let mut leaf = Leaf::empty(Grain::K64);
    leaf.set_location(0, 9 << 12 | 2);
    leaf.set_location(511, 0xffff_f000 | 511);
    leaf.crcs[5] = 0x1234_5678;
    leaf.crcs[511] = u32::MAX;
    leaf
}

/// A leaf of slots of 8 KiB.
pub fn fine_leaf() -> Box<Leaf> {
    let mut leaf = Leaf::empty(Grain::K8);
    leaf.set_location(4, 9 << 12 | 4095);
    leaf.set_location(511, 0xffff_f000);
    leaf.crcs[5] = 0x1234_5678;
    leaf
}

pub fn table() -> TablePage {
    let mut entries = Box::new([TableEntry::NONE; 128]);
    entries[0] = TableEntry {
        place: 0,
        crc: 0xaabb_ccdd,
        sequence: 4,
        slots: 32,
        lost: 0,
    };
    entries[127] = TableEntry {
        place: 7 << 16 | 8191,
        crc: 1,
        sequence: 1 << 40,
        slots: 1,
        lost: 0,
    };
    TablePage(entries)
}

pub fn segment() -> SegmentEntry {
    SegmentEntry {
        kind: SegmentKind::Mirror,
        copies: 2,
        data: 0,
        parity: 0,
        grain: Grain::K64,
        class: None,
        volume: 0,
        ordinal: 0,
        columns: vec![(1, 20), (63, u32::MAX)],
    }
}

pub fn parity_segment() -> SegmentEntry {
    SegmentEntry {
        kind: SegmentKind::Parity,
        copies: 4,
        data: 3,
        parity: 1,
        grain: Grain::K64,
        columns: vec![(1, 20), (63, u32::MAX), (2, 7)],
        ..segment()
    }
}

pub fn raw_segment() -> SegmentEntry {
    SegmentEntry {
        kind: SegmentKind::Raw,
        volume: 17,
        ordinal: 0x0102,
        ..segment()
    }
}

pub fn volume() -> VolumeEntry {
    VolumeEntry {
        stops: false,
        class: None,
        is_cache: false,
        hot: None,
        state: VolumeState::Live,
        name: "db".to_owned(),
        uuid: Uuid::from_u128(0x2122_2324_2526_2728_292a_2b2c_2d2e_2f30),
        granules: 1 << 33,
        layout: Layout::Mirror { copies: 2 },
        grain: Grain::K64,
    }
}

/// What a decoder says.
pub fn refusal<T>(result: Result<T, FormatError>) -> String {
    match result {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}
