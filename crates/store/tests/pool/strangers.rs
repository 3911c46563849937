//! Drives with a label of the pool that are none of its members, and roots that are not its newest.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::Bench;
use ashlar_store::PoolError;
use ashlar_store::format::{Label, Root};
use ashlar_store::sizes::{LABEL_AT, ROOT_AT, ROOT_BYTES};
use uuid::Uuid;

/// A drive was given a label, but the node died before it was a member; then a shorter one was added
/// in its place. Both are there at the next import.
#[test]
fn a_drive_that_never_became_a_member_is_no_hindrance() {
    let mut bench = Bench::new(2, 32 << 20);
    bench.add_drive(32 << 20);
    let label = Label {
        drive: Uuid::from_u128(999),
        index: 2,
        bytes: 64 << 20,
        pool_name: "old".into(),
        ..bench.engine.label().clone()
    };
    let mut never = vec![0; 64 << 20];
    let bytes = label.encode();
    for at in LABEL_AT {
        never[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
    }
    let mut media = bench.media.clone();
    media.insert(0, Rc::new(RefCell::new(never)));
    let bench = Bench::open(media);
    assert_eq!(bench.engine.members().len(), 3);
    assert_eq!(bench.engine.label().pool_name, "tank");
}

/// The newest root rots on the only drive that there is. The one before is whole, but knows nothing of what
/// was written since the last import: the pool is refused, not emptied.
#[test]
fn a_root_that_is_not_the_newest_is_no_root_to_go_on_from() {
    let mut bench = Bench::new(1, 32 << 20);
    let volume = bench.volume(100, 1);
    bench.write(volume, 0, &[5; 4096]).unwrap();
    let salt = bench.engine.label().salt;
    let media = bench.media.clone();
    drop(bench);
    {
        let mut medium = media[0].borrow_mut();
        let generation = |at: &u64| {
            let bytes = &medium[*at as usize..*at as usize + ROOT_BYTES as usize];
            Root::decode(bytes, salt).map_or(0, |root| root.generation)
        };
        let newest = ROOT_AT.into_iter().max_by_key(generation).unwrap();
        medium[newest as usize + 100] ^= 1;
    }
    assert!(matches!(
        Bench::try_open(media, false),
        Err(PoolError::Damaged(_))
    ));
}
