//! What another copy is given is what it lacks, and nothing else.

use super::*;

/// What was given, by copies and by bases.
fn given(rig: &Rig) -> (ExtentSet, ExtentSet) {
    let (mut copies, mut bases) = (ExtentSet::new(), ExtentSet::new());
    for said in &rig.said {
        match &said.message {
            Message::Copy { extent, .. } => copies.insert(*extent),
            Message::Record(record) if record.kind == RecordKind::Base => {
                bases.insert(record.extent);
            }
            _ => {}
        }
    }
    (copies, bases)
}

fn set(of: &[(u64, u32)]) -> ExtentSet {
    let extents = of.iter().map(|&(first, count)| Extent::new(first, count));
    extents.map(|extent| extent.expect("an extent")).collect()
}

/// The other copy obeys for a while: all that it was given.
fn all_given(rig: &mut Rig) -> (ExtentSet, ExtentSet) {
    let (mut copies, mut bases) = (ExtentSet::new(), ExtentSet::new());
    let end = rig.now + LONG;
    while rig.now < end {
        rig.pass(TICK);
        let (more, base) = given(rig);
        copies.add(&more);
        bases.add(&base);
        rig.other_answers();
    }
    assert_eq!(rig.in_sync(), Positions::first(2));
    (copies, bases)
}

#[test]
fn a_copy_that_comes_back_is_given_what_it_has_missed() {
    let missing = set(&[(2, 2), (9, 1), (30, 7), (62, 2)]);
    let mut rig = Rig::of(Plan {
        missing: missing.clone(),
        ..Plan::default()
    });
    let granules = missing.iter().map(|extent| extent.count()).sum::<u32>();
    assert_eq!(all_given(&mut rig), (missing.clone(), ExtentSet::new()));
    // That is what is said of it, no granule twice.
    let said: Vec<u32> = rig.copied.iter().map(|extent| extent.count()).collect();
    assert_eq!(said.iter().sum::<u32>(), granules);
    assert_eq!(rig.copied.into_iter().collect::<ExtentSet>(), missing);
}

#[test]
fn after_a_loss_of_power_everywhere_what_is_uncertain_is_copied_and_nothing_else() {
    let mut rig = Rig::of(Plan {
        in_sync: Positions::first(2),
        uncertain: set(&[(2, 2), (40, 4)]),
        ..Plan::default()
    });
    rig.uncertain_there = set(&[(3, 3), (60, 1)]);
    let uncertain = set(&[(2, 4), (40, 4), (60, 1)]);
    assert_eq!(all_given(&mut rig), (ExtentSet::new(), uncertain));
}
