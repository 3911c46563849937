//! Drives with a label of the pool that are none of its members.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use ashlar_store::format::Label;
use ashlar_store::sizes::LABEL_AT;
use common::Bench;
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
