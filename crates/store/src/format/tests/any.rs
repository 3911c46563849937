//! Any structure that is right.

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use uuid::Uuid;

use super::samples::{SALT, block};
use crate::format::*;
use crate::sizes::Grain;
use crate::{HotTier, Layout, ReplicaTag, Share, Sizes};

pub fn any_label() -> impl Strategy<Value = Label> {
    let ids = (any::<u128>(), any::<u128>(), any::<u32>());
    let class = prop_oneof![
        Just(DriveClass::Nvme),
        Just(DriveClass::Ssd),
        Just(DriveClass::Hdd)
    ];
    (
        ids,
        "[A-Za-z0-9._-]{1,64}",
        0..64u16,
        class,
        ((64u64 << 20)..(64 << 40), any_features()),
    )
        .prop_map(
            |((pool, drive, salt), pool_name, index, class, (bytes, features))| Label {
                features,
                pool: Uuid::from_u128(pool),
                pool_name,
                drive: Uuid::from_u128(drive),
                index,
                class,
                bytes,
                salt: Salt(salt),
                sizes: Sizes::for_drive(bytes).unwrap(),
            },
        )
}

fn any_features() -> impl Strategy<Value = Features> {
    (0..1u64 << Feature::ALL.len()).prop_map(Features::of_bits)
}

const MEMBERS: u16 = 8;
const EXTENTS: u32 = 1 << 20;

fn any_copies() -> impl Strategy<Value = Vec<ChunkCopy>> {
    btree_map(0..MEMBERS, 0..EXTENTS, 1..=4)
        .prop_map(|copies| {
            copies
                .into_iter()
                .map(|(drive, extent)| ChunkCopy { drive, extent })
        })
        .prop_map(Iterator::collect)
}

fn any_log(term: u64) -> impl Strategy<Value = LogState> {
    let chunks = vec(any_copies().prop_map(|copies| Chunk { copies }), 1..40);
    let starts = (btree_set(0..=term, 1..6), vec(0..COUNTER_LIMIT, 6));
    (
        chunks,
        starts,
        0..COUNTER_LIMIT,
        0..COUNTER_LIMIT,
        any::<u32>(),
    )
        .prop_map(
            |(chunks, (terms, mut batches), tail_at, tail_number, tail_previous)| {
                batches.sort_unstable();
                let start = |(term, first_batch)| TermStart { term, first_batch };
                let terms = terms.into_iter().zip(batches).map(start).collect();
                LogState {
                    chunks,
                    tail_at,
                    tail_number,
                    tail_previous,
                    terms,
                }
            },
        )
}

pub fn any_entry(segment: u32) -> impl Strategy<Value = TableEntry> {
    let page =
        (0..8192u64, any::<u32>(), 0..COUNTER_LIMIT).prop_map(move |(unit, crc, sequence)| {
            TableEntry {
                place: u64::from(segment) << 16 | unit,
                crc,
                sequence,
                slots: (crc % 33) as u16,
                lost: (crc % 7) as u16,
            }
        });
    prop_oneof![Just(TableEntry::NONE), page]
}

fn any_tops(segment: u32) -> impl Strategy<Value = Vec<TopEntry>> {
    btree_map((any::<u32>(), any::<u32>()), any_entry(segment), 0..30).prop_map(|tops| {
        tops.into_iter()
            .map(|((node, index), entry)| TopEntry { node, index, entry })
            .collect()
    })
}

fn any_reserve() -> impl Strategy<Value = RepairReserve> {
    let wish = prop_oneof![
        Just(Reserve::None),
        Just(Reserve::Auto),
        any::<u32>().prop_map(Reserve::Drives),
        any::<u32>().prop_map(Reserve::Extents),
    ];
    (wish, any::<u32>()).prop_map(|(wish, spent)| RepairReserve { wish, spent })
}

pub fn any_root() -> impl Strategy<Value = Root> {
    let member = (any::<bool>(), EXTENTS..=u32::MAX);
    let members = btree_map(any::<u128>(), member, usize::from(MEMBERS)..=64);
    let meta = btree_map(any::<u32>(), any_copies(), 1..20);
    let scrub = option::of((any::<u32>(), any::<u64>()));
    let scrub = scrub.prop_map(|at| at.map(|(volume, granule)| ScrubAt { volume, granule }));
    let reserve = (any_reserve(), scrub, any_features());
    let counters = (
        10..COUNTER_LIMIT,
        0..COUNTER_LIMIT,
        0..COUNTER_LIMIT,
        any::<u128>(),
    );
    (counters, members, meta, reserve)
        .prop_flat_map(|(counters, members, meta, reserve)| {
            let segment = *meta.keys().next_back().unwrap();
            let logs = (any_log(counters.0), any_log(counters.0));
            (
                Just(counters),
                Just((members, reserve)),
                Just(meta),
                logs,
                any_tops(segment),
            )
        })
        .prop_map(
            |(
                (term, generation, sequence, pool),
                (members, (reserve, scrub, features)),
                meta,
                (ring, map),
                tops,
            )| {
                Root {
                    features,
                    pool: Uuid::from_u128(pool),
                    generation,
                    term,
                    next_sequence: sequence,
                    map_sequence: sequence / 2,
                    members: members
                        .into_iter()
                        .map(|(drive, (active, extents))| Member {
                            drive: Uuid::from_u128(drive),
                            state: if active {
                                MemberState::Active
                            } else if extents % 2 == 0 {
                                MemberState::Excluded
                            } else {
                                MemberState::Leaving
                            },
                            extents,
                        })
                        .collect(),
                    reserve,
                    ring,
                    map,
                    meta: meta
                        .into_iter()
                        .map(|(id, columns)| MetaSegment { id, columns })
                        .collect(),
                    tops,
                    scrub,
                }
            },
        )
}

/// Any batch whose data blocks are the samples'; some of its checksums belong to no record.
pub fn any_batch() -> impl Strategy<Value = Batch> {
    let record = (1..=4u8, any::<u32>(), 0..1u64 << 32, 1..=16u16, 0..4096u32);
    let header = (
        0..COUNTER_LIMIT,
        0..COUNTER_LIMIT,
        0..COUNTER_LIMIT,
        any::<u32>(),
    );
    (header, any::<bool>(), vec(record, 0..40)).prop_map(
        |((term, number, first_sequence, previous), ring, seeds)| {
            let log = if ring { LogId::Ring } else { LogId::Map };
            let mut batch = Batch {
                log,
                term,
                number,
                first_sequence,
                previous,
                records: Vec::new(),
                crcs: vec![77; 3],
            };
            for (kind, number, granule, granules, slot) in seeds {
                push_record(&mut batch, kind, [number, slot], granule, granules);
            }
            batch
        },
    )
}

fn push_record(batch: &mut Batch, kind: u8, seeds: [u32; 2], granule: u64, granules: u16) {
    let [volume, slot] = seeds;
    let location = ((slot + 1) << 12) | (slot % 512);
    let next_block = batch.data_blocks();
    let first_crc = batch.crcs.len() as u32;
    let data = Descriptor {
        kind: Kind::Data,
        granules,
        volume,
        first_granule: granule,
        node: 1,
        first_crc,
        block_or_location: next_block as u32,
        old_location: 0,
        replica: (slot % 3 == 0).then_some(ReplicaTag {
            epoch: volume | 1,
            sequence: u64::from(slot) + 7,
            low: u64::from(volume % 8),
        }),
    };
    let record = match kind {
        1 => data,
        2 => Descriptor {
            kind: Kind::Place,
            first_granule: granule / 16 * 16,
            block_or_location: location,
            old_location: if slot % 2 == 0 { location } else { 0 },
            ..data
        },
        3 => Descriptor {
            kind: Kind::Deallocate,
            first_crc: slot,
            block_or_location: 0,
            old_location: location,
            ..data
        },
        _ => Descriptor {
            kind: Kind::Entry,
            granules: 1,
            volume: 0,
            node: slot % 16,
            replica: None,
            ..data
        },
    };
    batch.records.push(record);
    // A deallocation has no checksums, wherever it points; but it must point into the list.
    if record.kind == Kind::Deallocate {
        batch.records.last_mut().unwrap().first_crc %= first_crc;
        return;
    }
    let blocks = next_block..next_block + usize::from(record.granules);
    batch.crcs.extend(blocks.map(|at| SALT.crc(&block(at))));
}

pub fn any_leaf() -> impl Strategy<Value = Box<Leaf>> {
    let slot = (any::<bool>(), 1..1u32 << 20, 0..512u32);
    (any_grain(), vec(slot, 256), vec(any::<u32>(), 512)).prop_map(|(grain, slots, crcs)| {
        let mut leaf = Leaf::empty(grain);
        let slots = slots.into_iter().take(grain.slots_a_leaf());
        for (at, (placed, segment, slot)) in slots.enumerate() {
            if placed {
                let (first, granules) =
                    (grain.first(at as u64) as usize, grain.granules() as usize);
                leaf.set_location(first, segment << 12 | slot);
                leaf.crcs[first..][..granules].copy_from_slice(&crcs[first..][..granules]);
            }
        }
        leaf
    })
}

fn any_grain() -> impl Strategy<Value = Grain> + Clone {
    (0..4usize).prop_map(|grain| Grain::ALL[grain])
}

pub fn any_table() -> impl Strategy<Value = TablePage> {
    any::<u32>()
        .prop_flat_map(|segment| vec(any_entry(segment), 128))
        .prop_map(|entries| TablePage(Box::new(entries.try_into().unwrap())))
}

pub fn any_segment() -> impl Strategy<Value = SegmentEntry> {
    let columns = vec((0..64u16, any::<u32>()), 1..=8);
    let part = (16..=u32::MAX, 0..1u32 << 20);
    let any = (0..4, any_grain(), columns, part);
    any.prop_map(|(kind, grain, columns, (volume, ordinal))| match kind {
        0 => SegmentEntry::free(),
        1 => SegmentEntry {
            kind: SegmentKind::Mirror,
            copies: 8,
            data: 0,
            parity: 0,
            grain,
            class: Some(DriveClass::Hdd),
            volume: 0,
            ordinal: 0,
            columns,
        },
        3 if columns.len() >= 2 => SegmentEntry {
            kind: SegmentKind::Parity,
            copies: 8,
            data: 7,
            parity: 1,
            grain,
            class: None,
            volume: 0,
            ordinal: 0,
            columns,
        },
        _ => SegmentEntry {
            kind: SegmentKind::Raw,
            copies: columns.len() as u8,
            data: 0,
            parity: 0,
            grain: Grain::K64,
            class: None,
            volume,
            ordinal,
            columns,
        },
    })
}

/// A hot home, of some volumes that may have one.
fn any_hot(layout: Layout, granules: u64) -> Option<HotTier> {
    let may = !matches!(layout, Layout::Stripe { .. }) && granules % 7 == 1;
    may.then(|| HotTier {
        copies: 1 + (granules % 4) as u8,
        class: (granules % 2 == 1).then_some(DriveClass::Nvme),
        share: Share::of_percent(1 + (granules % 90) as u8).expect("a share"),
    })
}

pub fn any_volume() -> impl Strategy<Value = VolumeEntry> {
    let layout = prop_oneof![
        (1..=4u8).prop_map(|copies| Layout::Mirror { copies }),
        (1..=8u8).prop_map(|columns| Layout::Stripe { columns }),
    ];
    let live = |state| {
        move |(name, uuid, granules, layout, grain): (_, _, _, Layout, Grain)| VolumeEntry {
            state,
            name,
            uuid: Uuid::from_u128(uuid),
            granules,
            layout,
            grain: if layout.takes(grain) {
                grain
            } else {
                Grain::K64
            },
            stops: granules % 2 == 1,
            class: (granules % 3 == 1).then_some(DriveClass::Ssd),
            is_cache: granules % 5 == 1,
            hot: any_hot(layout, granules),
        }
    };
    let fields = (
        "[a-zµ]{1,32}",
        any::<u128>(),
        0..=1u64 << 33,
        layout,
        any_grain(),
    );
    let gone = VolumeEntry {
        state: VolumeState::Gone,
        ..VolumeEntry::free()
    };
    prop_oneof![
        fields.clone().prop_map(live(VolumeState::Live)),
        fields.prop_map(live(VolumeState::Deleting)),
        Just(VolumeEntry::free()),
        Just(gone),
    ]
}
