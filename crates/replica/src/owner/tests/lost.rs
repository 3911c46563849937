//! What is uncertain when an owner begins, and can be read at no copy.

use super::*;
use crate::ids::Low;

fn extent(first: u64, count: u32) -> Extent {
    Extent::new(first, count).expect("an extent")
}

fn alarm(granule: u64) -> Alarm {
    let (position, hosts) = (at(0), Extent::new(granule, 1));
    Alarm::Lost { position, hosts }
}

/// An owner that begins, of so many copies in sync; this is uncertain, and that is lost here.
fn begin(in_sync: u8, uncertain: Extent, lost: &[u64]) -> Rig {
    let mut rig = Rig::begin(Plan {
        in_sync: Positions::first(in_sync.into()),
        copies: in_sync,
        uncertain: uncertain.into(),
        ..Plan::default()
    });
    rig.local.lost = lost.iter().map(|&granule| extent(granule, 1)).collect();
    rig
}

impl Rig {
    fn read(&mut self, extent: Extent) -> Vec<Outcome> {
        self.answers.clear();
        self.handle(Event::Host(HostCommand {
            command: CommandId(500),
            registrant: Registrant::default(),
            operation: HostOperation::Read { extent },
        }));
        self.obey_with(LONG, &[]);
        std::mem::take(&mut self.answers)
    }

    /// The other copy has all that it is asked for, but these granules.
    fn obey_with(&mut self, time: Duration, lost: &[u64]) {
        let end = self.now + time;
        while self.now < end {
            while let Some(said) = self.fetches().pop() {
                let Message::Fetch { fetch, extent } = said.message else {
                    panic!("a question");
                };
                self.said.retain(|other| *other != said);
                let is_lost = extent.granules().any(|granule| lost.contains(&granule));
                let content = (!is_lost).then_some(Content::Zeroes);
                let fetched = Message::Fetched {
                    fetch,
                    extent,
                    content,
                };
                self.hear_in(&said, fetched);
            }
            assert!(!self.hands_over(), "it serves on");
            self.other_answers();
            self.pass(TICK);
        }
    }

    fn zeroes(count: usize) -> Outcome {
        Outcome::Read(Bytes::from(vec![0; count]))
    }
}

/// The only copy: there is none to ask, and none to hand the volume to.
#[test]
fn an_owner_serves_all_but_what_is_lost_of_its_base() {
    let mut rig = begin(1, extent(0, 16), &[5]);
    rig.pass(LONG);
    assert!(rig.replica.is_serving());
    assert_eq!(rig.alarms.first(), Some(&alarm(5)));
    assert!(!rig.alarms.contains(&Alarm::LocalFailed));
    assert_eq!(rig.read(extent(4, 1)), [Rig::zeroes(1)]);
    assert_eq!(rig.read(extent(4, 2)), [Outcome::Failed]);
    rig.write(40);
    rig.write(6);
    assert_eq!(rig.answers, [Outcome::Written, Outcome::Written]);
    assert_eq!(rig.read(extent(5, 1)), [Outcome::Failed]);
    rig.pass(Duration::from_secs(300));
    assert!(rig.replica.is_serving());
    let tries = rig.local.lost_reads;
    assert!((4..20).contains(&tries), "{tries} tries in 5 minutes");
}

/// It may differ between copies until then.
#[test]
fn what_is_lost_of_a_base_is_not_read_before_it_was_written_or_given_to_all() {
    let mut rig = begin(1, extent(0, 16), &[5]);
    rig.pass(LONG);
    rig.write(5);
    assert_eq!(rig.answers, [Outcome::Written]);
    assert_eq!(rig.read(extent(5, 1)), [Rig::zeroes(1)]);

    // A drive that could not read it can.
    let mut rig = begin(2, extent(0, 16), &[5]);
    rig.obey_with(LONG, &[5]);
    assert!(rig.replica.is_serving());
    rig.local.lost = ExtentSet::new();
    rig.said.clear();
    rig.answers.clear();
    rig.handle(Event::Host(HostCommand {
        command: CommandId(500),
        registrant: Registrant::default(),
        operation: HostOperation::Read {
            extent: extent(5, 1),
        },
    }));
    assert_eq!(rig.answers, [Outcome::Failed], "the other copy lacks it");
    rig.obey_with(LONG * 8, &[5]);
    assert_eq!(rig.read(extent(5, 1)), [Rig::zeroes(1)]);
}

#[test]
fn no_copy_is_added_while_something_of_the_base_is_lost() {
    let mut rig = Rig::begin(Plan {
        uncertain: extent(0, 16).into(),
        ..Plan::default()
    });
    rig.local.lost.insert(extent(5, 1));
    rig.obey(LONG * 4);
    assert_eq!(rig.in_sync(), Positions::first(1));
    rig.write(5);
    rig.obey(LONG * 20);
    assert_eq!(rig.in_sync(), Positions::first(2));
}

/// No granule of the piece is lost at both.
#[test]
fn what_two_copies_have_lost_of_one_piece_is_mended_granule_by_granule() {
    let mut rig = begin(2, extent(0, 16), &[5]);
    rig.obey_with(LONG, &[9]);
    assert!(rig.replica.is_serving());
    assert_eq!(rig.alarms, []);
    assert_eq!(rig.read(extent(0, 16)), [Rig::zeroes(16)]);
}

/// Its drive may take long to say that it has lost it: it may have it, and serves.
#[test]
fn a_copy_that_is_long_in_finding_a_piece_of_the_base_stays_in_sync() {
    let mut rig = begin(2, extent(5, 1), &[5]);
    for _ in 0..400 {
        if rig.hands_over() {
            break;
        }
        rig.other_answers();
        rig.pass(TICK);
    }
    assert!(rig.hands_over(), "it may do better");
    assert_eq!(rig.in_sync(), Positions::first(2));
}

impl Rig {
    /// What the record of a write says to be committed.
    fn low_of(&mut self, granule: u64) -> Low {
        self.write(granule);
        let low = self.said.iter().find_map(|said| match &said.message {
            Message::Record(record) if record.extent.first() == granule => Some(record.low),
            _ => None,
        });
        self.obey_with(TICK * 4, &[5]);
        low.expect("it is sent")
    }
}

/// Else all that hosts write from then on would be uncertain to the next owner.
#[test]
fn all_but_what_is_lost_counts_as_committed_as_soon_as_that_is_remembered() {
    let mut rig = begin(2, extent(0, 16), &[5]);
    rig.local.keeps_nothing = true;
    while rig.local.keeps == 0 {
        rig.obey_with(TICK, &[5]);
    }
    assert_eq!(rig.low_of(40), Low::BASE_OPEN, "it may be forgotten");

    let mut rig = begin(2, extent(0, 16), &[5]);
    rig.obey_with(LONG, &[5]);
    assert_eq!(rig.local.kept, extent(5, 1).into());
    let low = rig.low_of(40);
    assert!(low > Low::BASE);
    // While it is tried again, too.
    rig.local.lost_takes = TICK * 40;
    let tries = rig.local.lost_reads;
    while rig.local.lost_reads == tries {
        rig.obey_with(TICK, &[5]);
    }
    assert!(rig.low_of(41) > low);
    assert_eq!(rig.local.kept, extent(5, 1).into());
    rig.write(5);
    rig.obey_with(TICK * 4, &[5]);
    assert_eq!(rig.local.kept, ExtentSet::new(), "it was written");
    assert_eq!(rig.local.keeps, 2);
}

/// If this copy goes, two are left that may differ there, and neither would know.
#[test]
fn with_three_copies_in_sync_the_base_stays_open_until_what_is_lost_was_written() {
    let mut rig = begin(3, extent(0, 16), &[5]);
    rig.obey_with(LONG, &[5]);
    assert_eq!(rig.low_of(40), Low::BASE_OPEN);
    assert_eq!(rig.local.kept, ExtentSet::new());
    assert_eq!(rig.low_of(5), Low::BASE_OPEN);
    assert_ne!(rig.low_of(41), Low::BASE_OPEN);
}

#[test]
fn a_third_copy_that_leaves_lets_the_base_end() {
    let mut rig = begin(3, extent(0, 16), &[5]);
    rig.obey_with(LONG, &[5]);
    rig.silent = Positions::NONE.with(at(2));
    rig.obey_with(LONG, &[5]);
    assert_eq!(rig.in_sync(), Positions::first(2));
    assert_eq!(rig.local.kept, extent(5, 1).into());
    assert_ne!(rig.low_of(40), Low::BASE_OPEN);
}

#[test]
fn copies_are_compared_but_for_leaves_with_something_lost() {
    let mut rig = begin(2, extent(0, 16), &[5]);
    rig.obey_with(LONG, &[5]);
    // Copies may differ there.
    rig.differs = Some(Leaf(0));
    rig.handle(Event::Verify);
    rig.obey_with(LONG, &[5]);
    let proof = rig.proofs.last().expect("it was proven");
    assert_eq!((proof.leaves, proof.compared), (7, Positions::NONE));
    assert_eq!(proof.differences, []);
    rig.write(5);
    (rig.differs, rig.proofs) = (None, Vec::new());
    rig.handle(Event::Verify);
    rig.obey_with(LONG, &[5]);
    let proof = rig.proofs.last().expect("it was proven");
    assert_eq!((proof.leaves, proof.compared.has(at(1))), (8, true));
}

#[test]
fn an_operator_moves_a_volume_with_something_lost() {
    let mut rig = begin(2, extent(0, 16), &[5]);
    rig.obey_with(LONG, &[5]);
    rig.handle(Event::Move { to: at(1) });
    for _ in 0..8 {
        if rig.hands_over() {
            break;
        }
        rig.other_answers();
        rig.pass(TICK);
    }
    assert!(rig.hands_over());
}

/// Its drive may take long to say again that it cannot be read.
#[test]
fn a_write_of_what_is_lost_does_not_wait_while_it_is_tried_again() {
    let mut rig = begin(1, extent(0, 16), &[5]);
    rig.pass(LONG);
    rig.local.lost_takes = LONG;
    let tries = rig.local.lost_reads;
    while rig.local.lost_reads == tries {
        rig.pass(TICK);
    }
    rig.answers.clear();
    rig.handle(Event::Host(HostCommand {
        command: CommandId(500),
        registrant: Registrant::default(),
        operation: HostOperation::Read {
            extent: extent(5, 1),
        },
    }));
    rig.write(5);
    assert_eq!(rig.answers, [Outcome::Failed, Outcome::Written]);
    rig.pass(LONG * 2);
    assert_eq!(rig.read(extent(5, 1)), [Rig::zeroes(1)]);
    assert_eq!(rig.local.lost_reads, tries + 1, "it is not tried any more");
}

/// A comparison of its leaf would stand behind the try, and the write behind that.
#[test]
fn a_write_beside_what_is_lost_does_not_wait_while_that_is_tried_again() {
    let mut rig = begin(2, extent(0, 16), &[5]);
    rig.obey_with(LONG, &[5]);
    rig.local.lost_takes = LONG * 10;
    let tries = rig.local.lost_reads;
    while rig.local.lost_reads == tries {
        rig.obey_with(TICK, &[5]);
    }
    rig.handle(Event::Verify);
    rig.obey_with(TICK, &[5]);
    rig.answers.clear();
    rig.write(7);
    rig.obey_with(TICK * 4, &[5]);
    assert_eq!(rig.answers, [Outcome::Written]);
}

/// And one that another copy is asked for.
#[test]
fn a_write_of_what_is_lost_does_not_wait_for_another_copy() {
    let mut rig = begin(2, extent(0, 16), &[5]);
    rig.obey_with(LONG, &[5]);
    while rig.fetches().is_empty() {
        rig.other_answers();
        rig.pass(TICK);
    }
    rig.answers.clear();
    rig.write(5);
    rig.other_answers();
    assert_eq!(rig.answers, [Outcome::Written]);
    assert_eq!(rig.read(extent(5, 1)), [Rig::zeroes(1)]);
}

/// Both would hand it to each other for ever, while hosts want nothing.
#[test]
fn what_is_tried_again_is_no_reason_to_hand_over() {
    let mut rig = begin(2, extent(0, 16), &[5]);
    rig.obey_with(LONG, &[5]);
    for _ in 0..8000 {
        // It does not say what it is asked to fetch.
        rig.other_answers();
        rig.pass(TICK);
        assert!(!rig.hands_over());
    }
}

#[test]
fn people_are_told_of_lost_granules_one_after_the_other() {
    let mut rig = begin(1, extent(0, 16), &[5, 9]);
    rig.pass(LONG * 20);
    assert_eq!(rig.alarms, [alarm(9)]);
    rig.write(9);
    rig.pass(LONG * 20);
    assert_eq!(rig.alarms, [alarm(9), alarm(5)]);
}

/// What is there cannot be put back, and need not be.
#[test]
fn a_write_of_what_is_lost_that_finds_no_space_fails_and_ends_nothing() {
    let mut rig = begin(1, extent(0, 16), &[5]);
    rig.pass(LONG);
    rig.local.is_full = true;
    rig.write(5);
    assert_eq!(rig.answers, [Outcome::Failed]);
    assert!(rig.replica.is_serving());
    assert_eq!(rig.read(extent(5, 1)), [Outcome::Failed]);
    rig.local.is_full = false;
    rig.write(5);
    assert_eq!(rig.answers, [Outcome::Written]);
    assert_eq!(rig.read(extent(5, 1)), [Rig::zeroes(1)]);
}

/// Another may own the volume by now, and have it.
#[test]
fn an_owner_without_grants_does_not_say_that_something_is_lost() {
    let mut rig = begin(2, extent(0, 16), &[5]);
    rig.obey_with(LONG, &[5]);
    rig.is_full = true;
    rig.pass(Duration::from_millis(1600));
    rig.answers.clear();
    rig.handle(Event::Host(HostCommand {
        command: CommandId(500),
        registrant: Registrant::default(),
        operation: HostOperation::Read {
            extent: extent(5, 1),
        },
    }));
    assert_eq!(rig.answers, []);
    rig.pass(LONG);
    assert_eq!(rig.answers, [Outcome::PathGone]);
}
