use std::time::{Duration, Instant};

use ashlar_replica::{Incarnation, MemberId, Members, NodeId, Positions, ReplicaUuid};
use tokio::runtime::Builder;
use tokio::time::sleep;

use super::*;
use crate::store::Memory;

const A: Uuid = Uuid::from_u128(1);
const B: Uuid = Uuid::from_u128(2);
const ME: OwnerId = OwnerId {
    node: NodeId(1),
    incarnation: Incarnation(4),
};

/// A key of this process, in an epoch.
fn taken(epoch: u32) -> Vec<u8> {
    let member = MemberId {
        node: NodeId(1),
        replica: ReplicaUuid::NEW,
    };
    let key = Key {
        epoch: Epoch(epoch),
        owner: ME,
        in_sync: Positions::first(1),
        members: Members::first([member]).expect("one"),
        forced: 0,
        size: None,
    };
    key.encode()
}

fn change(volume: Uuid, revision: u64, epoch: u32) -> Change {
    Change {
        volume,
        key: volume.to_string(),
        revision: Revision(revision),
        value: taken(epoch),
        unless: Some(doubt(volume)),
    }
}

fn doubt(volume: Uuid) -> String {
    format!("doubt/{volume}")
}

struct Rig {
    store: Store,
    together: Together,
}

impl Rig {
    /// Both volumes are a group, with another node.
    fn new() -> Self {
        let together = Together::new(ME);
        together.keep(&[A, B], &[A, B]);
        let store = Store::in_memory(&Memory::default());
        Self { store, together }
    }

    async fn swap(&self, after: Duration, change: Change) -> (Reply, Duration) {
        sleep(after).await;
        let begun = Instant::now();
        let reply = self.together.swap(&self.store, change).await;
        (reply, begun.elapsed())
    }

    async fn holds(&self, volume: Uuid) -> Option<Held> {
        let held = self.store.read(&volume.to_string()).await;
        held.expect("it answers")
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

const AT_ONCE: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_millis(50);

#[test]
fn a_group_is_taken_in_one_transaction() {
    let rig = Rig::new();
    let (a, b) = run(async {
        let a = rig.swap(AT_ONCE, change(A, 0, 5));
        let b = rig.swap(SOON, change(B, 0, 9));
        tokio::join!(a, b)
    });
    // Of one revision: one step of the store.
    assert_eq!(a.0, Reply::Swapped(Revision(1)));
    assert_eq!(b.0, Reply::Swapped(Revision(1)));
    // The second sleeps before it is begun: the first may begin a little later than that.
    assert!(a.1 >= SOON / 2 && a.1 < WAIT, "{:?}", a.1);
    // Both are this process's now: what it changes of one waits for nothing.
    rig.together.keep(&[A, B], &[B]);
    let (reply, took) = run(rig.swap(AT_ONCE, change(A, 1, 5)));
    assert_eq!(reply, Reply::Swapped(Revision(2)));
    assert!(took < WAIT, "{took:?}");
}

#[test]
fn if_one_of_a_group_cannot_be_taken_none_is() {
    let rig = Rig::new();
    run(async {
        let key = B.to_string();
        rig.store.swap(&key, Revision(0), b"another's").await;
        let a = rig.swap(AT_ONCE, change(A, 0, 5));
        let b = rig.swap(SOON, change(B, 0, 9));
        let (a, b) = tokio::join!(a, b);
        assert_eq!(a.0, Reply::Holds(None), "its own revision was right");
        let Reply::Holds(Some(held)) = b.0 else {
            panic!("{b:?}");
        };
        assert_eq!(held.value, b"another's");
        assert_eq!(rig.holds(A).await, None);
    });
}

#[test]
fn one_that_waits_in_vain_goes_on_alone_before_its_former_owner_takes_it_back() {
    let rig = Rig::new();
    run(async {
        let (reply, took) = rig.swap(AT_ONCE, change(A, 0, 5)).await;
        assert_eq!(reply, Reply::Swapped(Revision(1)));
        assert!(took >= WAIT && took < 2 * WAIT, "{took:?}");
        // The other node has no peer to wait for then.
        let (reply, took) = rig.swap(AT_ONCE, change(B, 0, 9)).await;
        assert_eq!(reply, Reply::Swapped(Revision(2)));
        assert!(took < WAIT, "{took:?}");
    });
}

#[test]
fn what_has_no_group_or_is_not_taken_waits_for_nothing() {
    let rig = Rig::new();
    let other = Uuid::from_u128(3);
    let foreign = Change {
        value: b"no key of this process".to_vec(),
        ..change(B, 0, 1)
    };
    run(async {
        let begun = Instant::now();
        let forced = rig.together.swap_alone(&rig.store, change(A, 0, 5)).await;
        assert!(matches!(forced, Reply::Swapped(_)), "{forced:?}");
        assert!(begun.elapsed() < WAIT);
        for change in [change(other, 0, 1), foreign] {
            let (reply, took) = rig.swap(AT_ONCE, change).await;
            assert!(matches!(reply, Reply::Swapped(_)), "{reply:?}");
            assert!(took < WAIT, "{took:?}");
        }
    });
}

#[test]
fn an_outcome_that_is_unknown_is_unknown_of_all() {
    let memory = Memory::default();
    let rig = Rig {
        store: Store::in_memory(&memory),
        ..Rig::new()
    };
    memory.set_loses_answers(true);
    run(async {
        let a = rig.swap(AT_ONCE, change(A, 0, 5));
        let b = rig.swap(SOON, change(B, 0, 9));
        let (a, b) = tokio::join!(a, b);
        assert_eq!((a.0, b.0), (Reply::Unknown, Reply::Unknown));
        // It was made nevertheless, and a look at the keys finds that out.
        let (a, b) = (rig.holds(A).await, rig.holds(B).await);
        assert_eq!(a.map(|held| held.revision), Some(Revision(1)));
        assert_eq!(b.map(|held| held.revision), Some(Revision(1)));
    });
}

#[test]
fn a_volume_in_doubt_is_taken_by_order_only() {
    let rig = Rig::new();
    run(async {
        rig.together.keep(&[], &[]);
        let doubt = doubt(A);
        rig.store.swap(&doubt, Revision(0), b"{}").await;
        let (reply, took) = rig.swap(AT_ONCE, change(A, 0, 5)).await;
        assert_eq!(reply, Reply::Holds(None), "it is as it was");
        assert!(took >= DOUBT_PAUSE, "{took:?}");
        let ordered = Change {
            unless: None,
            ..change(A, 0, 5)
        };
        let reply = rig.together.swap_alone(&rig.store, ordered).await;
        assert_eq!(reply, Reply::Swapped(Revision(2)));
        // Its owner changes it.
        let (reply, _) = rig.swap(AT_ONCE, change(A, 2, 5)).await;
        assert_eq!(reply, Reply::Swapped(Revision(3)));
        let (reply, _) = rig.swap(AT_ONCE, change(A, 3, 6)).await;
        assert!(matches!(reply, Reply::Holds(Some(_))), "{reply:?}");
    });
}

#[test]
fn a_volume_in_doubt_does_not_keep_the_others_of_its_group() {
    let rig = Rig::new();
    run(async {
        rig.store.swap(&doubt(B), Revision(0), b"{}").await;
        let a = rig.swap(AT_ONCE, change(A, 0, 5));
        let b = rig.swap(SOON, change(B, 0, 9));
        let (a, b) = tokio::join!(a, b);
        assert_eq!(a.0, Reply::Swapped(Revision(2)));
        assert_eq!(b.0, Reply::Holds(None));
    });
}
