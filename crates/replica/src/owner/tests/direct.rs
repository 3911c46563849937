//! Direct reads: those that end otherwise than by their data.

use super::*;

const READ: CommandId = CommandId(70);

impl Rig {
    /// Whether a read of this granule began directly. What the store has done at once is heard.
    fn reads_directly(&mut self, granule: u64) -> bool {
        let extent = Extent::new(granule, 1).expect("an extent");
        let (now, local) = (self.now, &mut self.local);
        local.now = now;
        let begins = self.replica.begin_direct(now, READ, extent, local);
        for event in std::mem::take(&mut self.local.events) {
            self.handle(event);
        }
        begins
    }

    /// The store does at last what it has had.
    fn ends_all(&mut self) {
        for (_, event) in std::mem::take(&mut self.local.later) {
            self.handle(event);
        }
    }
}

fn read() -> Outcome {
    Outcome::Read(Bytes::from_static(&[0]))
}

#[test]
fn a_read_that_nothing_waits_for_is_direct_and_one_behind_a_write_is_not() {
    let mut rig = Rig::pair();
    assert!(rig.reads_directly(1));
    assert_eq!(rig.answers, [read()]);
    rig.silent = Positions::NONE.with(at(1));
    rig.write(1);
    assert!(!rig.reads_directly(1));
    assert!(rig.reads_directly(2));
    assert_eq!(rig.answers, [read(), read()]);
}

/// A write of the same range has begun, and is not committed, when the data is here.
#[test]
fn what_may_not_be_shown_is_read_anew() {
    let mut rig = Rig::pair();
    rig.local.takes = TICK * 2;
    assert!(rig.reads_directly(1));
    rig.silent = Positions::NONE.with(at(1));
    rig.write(1);
    rig.pass(TICK * 8);
    assert_eq!(rig.answers, [], "it waits for the write");
    rig.silent = Positions::NONE;
    rig.obey(LONG);
    assert_eq!(rig.answers, [Outcome::Written, read()]);
}

#[test]
fn a_store_that_hangs_is_noticed_by_direct_reads_alone_and_each_is_answered_once() {
    let mut rig = Rig::pair();
    rig.local.takes = Duration::from_secs(3600);
    assert!(rig.reads_directly(1));
    assert!(!rig.gives(Duration::from_millis(1900)));
    assert!(rig.gives(Duration::from_secs(1)));
    assert_eq!(rig.answers, [Outcome::PathGone]);
    rig.ends_all();
    assert_eq!(rig.answers, [Outcome::PathGone]);
}

#[test]
fn another_copy_is_asked_for_a_block_that_is_lost() {
    let mut rig = Rig::pair();
    rig.local.lost.insert(Extent::new(5, 1).expect("an extent"));
    rig.said.clear();
    assert!(rig.reads_directly(5));
    let asked = |said: &Envelope| matches!(said.message, Message::Fetch { .. });
    assert!(rig.said.iter().any(asked));
    assert_eq!(rig.local.lost_reads, 2, "directly, and as any other");
}
