//! What cannot be read here is asked for at another copy.

use super::*;

impl Rig {
    /// An owner of copies in sync that can read nothing, of which a host wants a granule; and the question for it.
    fn bad(copies: u8) -> (Self, Envelope) {
        let mut rig = Self::begin(Plan {
            in_sync: Positions::first(copies.into()),
            copies,
            ..Plan::default()
        });
        rig.obey(LONG);
        rig.local.is_bad = true;
        rig.said.clear();
        rig.answers.clear();
        rig.handle(Event::Host(HostCommand {
            command: CommandId(77),
            registrant: Registrant::default(),
            operation: HostOperation::Read { extent: granule() },
        }));
        let fetch = rig.fetches().pop().expect("it asks");
        (rig, fetch)
    }

    pub(super) fn fetches(&self) -> Vec<Envelope> {
        let is_fetch = |said: &&Envelope| matches!(said.message, Message::Fetch { .. });
        self.said.iter().filter(is_fetch).cloned().collect()
    }

    fn fetched(&mut self, asked: &Envelope, content: Option<Content>) {
        let Message::Fetch { extent, .. } = asked.message else {
            panic!("no question");
        };
        self.fetched_of(asked, extent, content);
    }

    fn fetched_of(&mut self, asked: &Envelope, extent: Extent, content: Option<Content>) {
        let Message::Fetch { fetch, .. } = asked.message else {
            panic!("no question");
        };
        let fetched = Message::Fetched {
            fetch,
            extent,
            content,
        };
        self.hear_in(asked, fetched);
    }

    pub(super) fn hands_over(&self) -> bool {
        self.heir().is_some()
    }

    /// Who was asked to take over.
    fn heir(&self) -> Option<Position> {
        let is_handoff = |said: &&Envelope| matches!(said.message, Message::Handoff);
        let handoff = self.said.iter().find(is_handoff)?;
        Some(self.sessions[&handoff.session].0)
    }
}

/// Not what was written.
fn other() -> Content {
    Content::Data(Bytes::from(vec![9]))
}

/// The alarm that a copy is not equal.
fn diverged(position: Position) -> Alarm {
    let leaf = Leaf(0);
    Alarm::Diverged { position, leaf }
}

fn granule() -> Extent {
    Extent::new(3, 1).expect("a granule")
}

#[test]
fn what_cannot_be_read_is_taken_from_another_copy_and_the_host_hears_nothing_of_it() {
    let (mut rig, asked) = Rig::bad(2);
    // What comes meanwhile to the same place waits.
    rig.write(3);
    rig.fetched(&asked, Some(Content::Zeroes));
    rig.obey(LONG);
    let read = Outcome::Read(Bytes::from(vec![0]));
    assert_eq!(rig.answers.len(), 2);
    assert!(rig.answers.contains(&read) && rig.answers.contains(&Outcome::Written));
    assert!(rig.replica.is_serving());
    assert_eq!(rig.fetches().len(), 0, "asked once");
}

/// A copy that has lost it, too, could do no better: the volume stays, and the host hears of it.
#[test]
fn what_cannot_be_read_there_either_is_an_error_and_nothing_is_handed_over() {
    let (mut rig, asked) = Rig::bad(2);
    rig.fetched(&asked, None);
    assert!(rig.local.is_bad, "nothing was written");
    assert_eq!(rig.answers, [Outcome::Failed]);
    assert!(rig.replica.is_serving() && !rig.hands_over());
    // What is wrong with the store besides is another matter.
    rig.handle(Event::StoreFailed);
    assert!(rig.hands_over());
}

/// One that has something of which cannot be told here whether it is right may do better.
#[test]
fn what_cannot_be_told_to_be_right_is_left_to_the_copy_that_has_it() {
    let (mut rig, asked) = Rig::bad(3);
    rig.fetched(&asked, None);
    let next = rig.fetches().pop().expect("it asks");
    rig.local.tells_nothing = true;
    rig.fetched(&next, Some(Content::Zeroes));
    assert_eq!(rig.answers, [Outcome::PathGone]);
    assert_eq!(rig.heir(), Some(at(2)));
}

/// It has what was here: hosts are to read it there.
#[test]
fn what_another_copy_gives_and_cannot_be_written_here_is_left_to_that_copy() {
    let (mut rig, asked) = Rig::bad(3);
    rig.fetched(&asked, None);
    let next = rig.fetches().pop().expect("it asks");
    rig.local.is_full = true;
    rig.fetched(&next, Some(Content::Zeroes));
    assert_eq!(rig.answers, [Outcome::PathGone]);
    assert_eq!(rig.heir(), Some(at(2)));
}

/// What it has is not known: it may have lost nothing.
#[test]
fn a_copy_whose_session_ended_when_it_was_asked_may_take_over() {
    let (mut rig, _) = Rig::bad(3);
    rig.handle(Event::PeerGone { peer: at(1) });
    let next = rig.fetches().pop().expect("it asks");
    rig.obey(TICK * 8);
    rig.fetched(&next, None);
    assert_eq!(rig.answers, [Outcome::PathGone]);
    assert_eq!(rig.heir(), Some(at(1)));
}

/// It stays in sync, and may have it: a drive may take long to say that a block is lost.
#[test]
fn a_copy_that_is_long_in_finding_what_a_host_reads_is_not_left_out() {
    let (mut rig, _) = Rig::bad(2);
    while rig.answers.is_empty() {
        rig.other_answers();
        rig.pass(TICK);
    }
    assert_eq!(rig.answers, [Outcome::PathGone]);
    assert_eq!(rig.in_sync(), Positions::first(2));
    assert_eq!(rig.heir(), Some(at(1)));
}

/// Another copy's bytes count only if they are what was written here. One that has others differs: it leaves, and is not
/// handed the volume.
#[test]
fn who_has_something_else_leaves_and_is_not_handed_the_volume() {
    let (mut rig, asked) = Rig::bad(2);
    rig.fetched(&asked, Some(other()));
    assert!(rig.local.is_bad, "nothing was written");
    assert_eq!(rig.alarms, [diverged(at(1))]);
    assert_eq!(rig.answers, [Outcome::Failed]);
    assert!(!rig.hands_over() && rig.replica.is_serving());
    rig.pass(LONG);
    assert_eq!(rig.in_sync(), Positions::first(1));
}

/// The first may have nothing, something else, or go: the next one is asked, and hosts hear nothing of it.
#[test]
fn another_copy_is_asked_when_the_first_could_not_help() {
    for first in [None, Some(None), Some(Some(other()))] {
        let (mut rig, asked) = Rig::bad(3);
        assert_eq!(rig.sessions[&asked.session].0, at(1));
        match first {
            None => rig.handle(Event::PeerGone { peer: at(1) }),
            Some(content) => rig.fetched(&asked, content),
        }
        let next = rig.fetches().pop().expect("it asks");
        assert_eq!(rig.sessions[&next.session].0, at(2));
        rig.fetched(&next, Some(Content::Zeroes));
        rig.obey(LONG);
        assert_eq!(rig.answers, [Outcome::Read(Bytes::from(vec![0]))]);
        assert!(!rig.local.is_bad && rig.replica.is_serving());
    }
}

/// An answer to another question than was asked is none, whatever it says: its session ends.
#[test]
fn an_answer_about_another_range_ends_the_session() {
    for extent in [Extent::new(3, 2), Extent::new(4, 1)] {
        let (mut rig, asked) = Rig::bad(2);
        let extent = extent.expect("an extent");
        rig.fetched_of(&asked, extent, Some(Content::Zeroes));
        assert!(rig.local.is_bad, "nothing was written");
        assert_eq!(rig.answers, [Outcome::Failed]);
        rig.said.clear();
        rig.pass(TICK * 4);
        let joins = |said: &Envelope| matches!(said.message, Message::Join(_));
        assert!(rig.said.iter().any(joins), "it begins anew");
    }
}

#[test]
fn a_read_ends_when_the_copy_that_was_asked_has_gone() {
    let (mut rig, _) = Rig::bad(2);
    rig.handle(Event::PeerGone { peer: at(1) });
    assert_eq!(rig.answers, [Outcome::Failed], "there is no other copy");
}
