//! What cannot be read here is asked for at another copy.

use super::*;

impl Rig {
    /// An owner of two copies in sync that can read nothing, of which a host wants a granule; and the question for it.
    fn bad() -> (Self, Envelope) {
        let mut rig = Self::after(Epoch(1));
        while rig.in_sync() != Positions::first(2) {
            rig.obey(TICK);
        }
        rig.obey(LONG);
        rig.local.is_bad = true;
        rig.said.clear();
        rig.answers.clear();
        rig.handle(Event::Host {
            command: CommandId(77),
            registrant: Registrant::default(),
            operation: HostOperation::Read { extent: granule() },
        });
        let fetch = rig.fetches().pop().expect("it asks");
        (rig, fetch)
    }

    fn fetches(&self) -> Vec<Envelope> {
        let is_fetch = |said: &&Envelope| matches!(said.message, Message::Fetch { .. });
        self.said.iter().filter(is_fetch).cloned().collect()
    }

    fn fetched(&mut self, asked: &Envelope, content: Option<Content>) {
        let Message::Fetch { fetch, extent } = asked.message else {
            panic!("no question");
        };
        let fetched = Message::Fetched {
            fetch,
            extent,
            content,
        };
        self.hear_in(asked, fetched);
    }
}

fn granule() -> Extent {
    Extent::new(3, 1).expect("a granule")
}

#[test]
fn what_cannot_be_read_is_taken_from_another_copy_and_the_host_hears_nothing_of_it() {
    let (mut rig, asked) = Rig::bad();
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

/// Another copy's bytes count only if they are what was written here, and a copy that cannot help does not hold up its
/// owner, which hands the volume over.
#[test]
fn what_does_not_match_or_cannot_be_read_there_either_is_not_taken() {
    let other = Content::Data(Bytes::from(vec![9]));
    for content in [Some(other), None] {
        let (mut rig, asked) = Rig::bad();
        rig.fetched(&asked, content);
        assert!(rig.local.is_bad, "nothing was written");
        assert_eq!(rig.answers, [Outcome::PathGone]);
        assert!(!rig.replica.is_serving());
    }
}

#[test]
fn a_read_ends_when_the_copy_that_was_asked_has_gone() {
    let (mut rig, _) = Rig::bad();
    rig.handle(Event::PeerGone { peer: at(1) });
    assert_eq!(rig.answers, [Outcome::Failed], "there is no other copy");
}
