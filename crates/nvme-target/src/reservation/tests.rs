use ashlar_nvme::Status;
use ashlar_nvme::opcode::io;
use ashlar_nvme::reservation::{
    AcquireAction, Ask, Notification, Persistence, RegisterAction, ReleaseAction, ReservationType,
};
use proptest::prelude::*;

use super::table::{HostId, News, Rights, Table};

const A: HostId = [1; 16];
const B: HostId = [2; 16];
const C: HostId = [3; 16];

/// What a host asks for.
#[derive(Clone, Copy)]
struct Asked {
    host: HostId,
    ask: Ask,
}

/// Each host's key is its number.
fn key(host: HostId) -> u64 {
    u64::from(host[0])
}

fn register(host: HostId) -> Asked {
    let ask = Ask::Register {
        action: RegisterAction::Register,
        ignores_key: false,
        persistence: Persistence::Unchanged,
        current: 0,
        new: key(host),
    };
    Asked { host, ask }
}

fn unregister(host: HostId) -> Asked {
    let ask = Ask::Register {
        action: RegisterAction::Unregister,
        ignores_key: false,
        persistence: Persistence::Unchanged,
        current: key(host),
        new: 0,
    };
    Asked { host, ask }
}

fn acquire(host: HostId, kind: ReservationType) -> Asked {
    preempt(host, AcquireAction::Acquire, kind, 0)
}

fn preempt(host: HostId, action: AcquireAction, kind: ReservationType, preempted: u64) -> Asked {
    let ask = Ask::Acquire {
        action,
        kind,
        current: key(host),
        preempted,
    };
    Asked { host, ask }
}

fn release(host: HostId, action: ReleaseAction, kind: u8) -> Asked {
    let ask = Ask::Release {
        action,
        kind,
        current: key(host),
    };
    Asked { host, ask }
}

/// A and B are registered, A has a reservation.
fn reserved(kind: ReservationType) -> Table {
    let mut table = Table::default();
    for asked in [register(A), register(B), acquire(A, kind)] {
        run(&mut table, asked).expect("allowed");
    }
    table
}

fn run(table: &mut Table, asked: Asked) -> Result<News, Status> {
    table.execute(asked.host, asked.ask)
}

fn holders(table: &Table) -> Vec<HostId> {
    let status = table.status();
    let holding = status.registrants.iter().filter(|one| one.holds);
    holding.map(|one| one.host).collect()
}

#[test]
fn no_host_registers_a_key_that_cannot_be_preempted() {
    let mut table = reserved(ReservationType::WriteExclusive);
    for (host, action) in [(C, RegisterAction::Register), (A, RegisterAction::Replace)] {
        let ask = Ask::Register {
            action,
            ignores_key: true,
            persistence: Persistence::Unchanged,
            current: 0,
            new: 0,
        };
        let refused = run(&mut table, Asked { host, ask }).expect_err("zero is no key");
        assert!(refused.is(Status::INVALID_FIELD), "{action:?}");
    }
    assert_eq!(holders(&table), [A]);
    let taken = preempt(
        B,
        AcquireAction::Preempt,
        ReservationType::WriteExclusive,
        key(A),
    );
    run(&mut table, taken).expect("its key is known");
    assert_eq!(holders(&table), [B]);
}

/// The whole of "Command Behavior in the Presence of a Reservation": by type, what the holder, another
/// registrant and a host that is none may do.
#[test]
fn every_command_is_let_in_by_type_and_role() {
    const READERS: [u8; 3] = [io::READ, io::COMPARE, io::VERIFY];
    const WRITERS: [u8; 4] = [
        io::WRITE,
        io::WRITE_ZEROES,
        io::DATASET_MANAGEMENT,
        io::FLUSH,
    ];
    const FREE: [u8; 4] = [
        io::RESERVATION_REGISTER,
        io::RESERVATION_REPORT,
        io::RESERVATION_ACQUIRE,
        io::RESERVATION_RELEASE,
    ];
    // (reads, writes) of holder, registrant, stranger.
    let rows = [
        (
            ReservationType::WriteExclusive,
            [(true, true), (true, false), (true, false)],
        ),
        (
            ReservationType::ExclusiveAccess,
            [(true, true), (false, false), (false, false)],
        ),
        (
            ReservationType::WriteExclusiveRegistrants,
            [(true, true), (true, true), (true, false)],
        ),
        (
            ReservationType::ExclusiveAccessRegistrants,
            [(true, true), (true, true), (false, false)],
        ),
        (
            ReservationType::WriteExclusiveAll,
            [(true, true), (true, true), (true, false)],
        ),
        (
            ReservationType::ExclusiveAccessAll,
            [(true, true), (true, true), (false, false)],
        ),
    ];
    for (kind, roles) in rows {
        let table = reserved(kind);
        for (host, (reads, writes)) in [A, B, C].into_iter().zip(roles) {
            let rights = table.rights(&host);
            assert_eq!(rights, Rights { reads, writes }, "{kind:?} {host:?}");
            assert!(READERS.iter().all(|&opcode| rights.allow(opcode) == reads));
            assert!(WRITERS.iter().all(|&opcode| rights.allow(opcode) == writes));
            assert!(FREE.iter().all(|&opcode| rights.allow(opcode)));
        }
    }
    assert_eq!(Table::default().rights(&C), Rights::ALL);
}

#[test]
fn registration_follows_its_key() {
    let mut table = Table::default();
    run(&mut table, register(A)).expect("new");
    run(&mut table, register(A)).expect("the same key again");
    let ask = |action, ignores_key, current, new| Ask::Register {
        action,
        ignores_key,
        persistence: Persistence::Unchanged,
        current,
        new,
    };
    use RegisterAction::{Register, Replace, Unregister};
    let conflict = Err(Status::RESERVATION_CONFLICT);
    assert_eq!(table.execute(A, ask(Register, false, 0, 9)), conflict);
    assert_eq!(table.execute(A, ask(Replace, false, 8, 9)), conflict);
    assert_eq!(
        table.execute(B, ask(Replace, true, 8, 9)),
        conflict,
        "not registered"
    );
    assert_eq!(table.execute(B, ask(Unregister, true, 8, 9)), conflict);
    table
        .execute(A, ask(Replace, true, 8, 9))
        .expect("any key will do");
    assert_eq!(table.execute(A, ask(Unregister, false, 1, 0)), conflict);
    table
        .execute(A, ask(Unregister, false, 9, 0))
        .expect("its key");
    assert!(table.status().registrants.is_empty());
    assert_eq!(table.status().generation, 4, "one for each that succeeded");
}

#[test]
fn a_reservation_is_taken_kept_and_given_back() {
    for kind in ReservationType::ALL {
        let mut table = reserved(kind);
        let conflict = Err(Status::RESERVATION_CONFLICT);
        run(&mut table, acquire(A, kind)).expect("again");
        let again = run(&mut table, acquire(B, kind));
        assert_eq!(again.is_ok(), kind.is_of_all(), "{kind:?}");
        let other = ReservationType::ALL[kind as usize % 6];
        assert_eq!(run(&mut table, acquire(A, other)), conflict, "another type");
        assert_eq!(
            run(&mut table, acquire(C, kind)),
            conflict,
            "not registered"
        );
        assert_eq!(
            run(&mut table, release(C, ReleaseAction::Release, kind as u8)),
            conflict
        );
        let wrong = run(&mut table, release(A, ReleaseAction::Release, other as u8));
        assert!(wrong.is_err_and(|status| status.is(Status::INVALID_FIELD)));
        if !kind.is_of_all() {
            run(&mut table, release(B, ReleaseAction::Release, kind as u8)).expect("no effect");
            assert_eq!(holders(&table), [A]);
        }
        let news =
            run(&mut table, release(A, ReleaseAction::Release, kind as u8)).expect("the holder");
        let told = match kind.is_of_one() {
            true => vec![],
            false => vec![(B, Notification::ReservationReleased)],
        };
        assert_eq!(news.told, told, "{kind:?}");
        assert_eq!(table.status().kind, None);
        run(&mut table, release(A, ReleaseAction::Release, kind as u8))
            .expect("nothing to release");
    }
}

#[test]
fn a_holder_that_unregisters_gives_it_back() {
    for kind in ReservationType::ALL {
        let mut table = reserved(kind);
        let news = run(&mut table, unregister(A)).expect("its key");
        let remains = kind.is_of_all();
        assert_eq!(table.status().kind.is_some(), remains, "{kind:?}");
        let told = !remains && !kind.is_of_one();
        assert_eq!(!news.told.is_empty(), told);
        run(&mut table, unregister(B)).expect("its key");
        assert_eq!(
            table.status().kind,
            None,
            "{kind:?}: without registrants there is none"
        );
    }
}

#[test]
fn preempting_the_holder_takes_its_place() {
    use AcquireAction::{Preempt, PreemptAndAbort};
    for kind in ReservationType::ALL
        .into_iter()
        .filter(|kind| !kind.is_of_all())
    {
        for action in [Preempt, PreemptAndAbort] {
            let mut table = reserved(kind);
            run(&mut table, register(C)).expect("new");
            let new = ReservationType::ExclusiveAccess;
            let news = run(&mut table, preempt(B, action, new, key(A))).expect("registered");
            assert_eq!(holders(&table), [B]);
            assert_eq!(table.status().kind, Some(new));
            assert!(!table.rights(&A).writes, "fenced at once");
            assert!(news.told.contains(&(A, Notification::ReservationPreempted)));
            let released = news.told.contains(&(C, Notification::ReservationReleased));
            assert_eq!(
                released,
                !kind.is_of_one(),
                "{kind:?}: C could write before"
            );
            assert_eq!(news.ended, if action == Preempt { vec![] } else { vec![A] });
        }
    }
}

#[test]
fn preempting_others_takes_their_keys_only() {
    let kind = ReservationType::WriteExclusiveRegistrants;
    let mut table = reserved(kind);
    run(&mut table, register(C)).expect("new");
    let ask = preempt(
        A,
        AcquireAction::PreemptAndAbort,
        ReservationType::ExclusiveAccess,
        key(C),
    );
    let news = run(&mut table, ask).expect("registered");
    assert_eq!(news.told, [(C, Notification::RegistrationPreempted)]);
    assert_eq!(news.ended, [C]);
    assert_eq!(
        (holders(&table), table.status().kind),
        (vec![A], Some(kind))
    );
    let conflict = Err(Status::RESERVATION_CONFLICT);
    assert_eq!(run(&mut table, ask), conflict, "no such key any more");
    let zero = run(&mut table, preempt(B, AcquireAction::Preempt, kind, 0));
    assert!(zero.is_err_and(|status| status.is(Status::INVALID_FIELD)));
    // A host may preempt itself: another type, and it stays registered.
    let own = preempt(
        A,
        AcquireAction::Preempt,
        ReservationType::WriteExclusive,
        key(A),
    );
    run(&mut table, own).expect("its own");
    assert_eq!(table.status().kind, Some(ReservationType::WriteExclusive));
    assert_eq!(holders(&table), [A]);
}

#[test]
fn a_reservation_of_all_is_preempted_by_key_zero() {
    for kind in [
        ReservationType::WriteExclusiveAll,
        ReservationType::ExclusiveAccessAll,
    ] {
        let mut table = reserved(kind);
        run(&mut table, register(C)).expect("new");
        let one = preempt(
            A,
            AcquireAction::Preempt,
            ReservationType::ExclusiveAccess,
            key(C),
        );
        run(&mut table, one).expect("a key");
        assert_eq!(
            (holders(&table), table.status().kind),
            (vec![A, B], Some(kind))
        );
        let all = preempt(
            B,
            AcquireAction::Preempt,
            ReservationType::ExclusiveAccess,
            0,
        );
        let news = run(&mut table, all).expect("all others");
        assert_eq!(news.told, [(A, Notification::ReservationPreempted)]);
        assert_eq!(holders(&table), [B]);
        assert_eq!(table.status().kind, Some(ReservationType::ExclusiveAccess));
    }
}

#[test]
fn without_a_reservation_preempting_takes_keys() {
    let mut table = Table::default();
    run(&mut table, register(A)).expect("new");
    run(&mut table, register(B)).expect("new");
    let ask = preempt(
        A,
        AcquireAction::Preempt,
        ReservationType::WriteExclusive,
        key(B),
    );
    let news = run(&mut table, ask).expect("a key");
    assert_eq!(news.told, [(B, Notification::RegistrationPreempted)]);
    assert_eq!(table.status().kind, None);
    assert_eq!(table.status().registrants.len(), 1);
}

#[test]
fn clearing_leaves_nothing() {
    for kind in ReservationType::ALL {
        let mut table = reserved(kind);
        let news = run(&mut table, release(B, ReleaseAction::Clear, 0)).expect("a registrant");
        assert_eq!(news.told, [(A, Notification::ReservationPreempted)]);
        assert!(table.status().registrants.is_empty() && table.status().kind.is_none());
    }
}

#[test]
fn bytes_that_are_no_table_are_refused() {
    let good = reserved(ReservationType::WriteExclusive).encode();
    assert_eq!(
        Table::decode(&good),
        Ok(reserved(ReservationType::WriteExclusive))
    );
    for cut in 0..good.len() {
        Table::decode(&good[..cut]).expect_err("cut");
    }
    let broken = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Table::decode(&bytes).expect_err("broken")
    };
    broken(0, 0);
    broken(6, 9);
    broken(12, 7);
    broken(14, 9);
    broken(16, 9);
}

fn host() -> impl Strategy<Value = HostId> {
    prop_oneof![Just(A), Just(B), Just(C)]
}

fn ask() -> impl Strategy<Value = Ask> {
    let small = 0..4u64;
    let kind = proptest::sample::select(ReservationType::ALL.to_vec());
    let register = (0..3u8, any::<bool>(), small.clone(), small.clone()).prop_map(
        |(action, ignores_key, current, new)| Ask::Register {
            action: [
                RegisterAction::Register,
                RegisterAction::Unregister,
                RegisterAction::Replace,
            ][usize::from(action)],
            ignores_key,
            persistence: Persistence::Unchanged,
            current,
            new,
        },
    );
    let acquire = (0..3u8, kind, small.clone(), small.clone()).prop_map(
        |(action, kind, current, preempted)| Ask::Acquire {
            action: [
                AcquireAction::Acquire,
                AcquireAction::Preempt,
                AcquireAction::PreemptAndAbort,
            ][usize::from(action)],
            kind,
            current,
            preempted,
        },
    );
    let release = (any::<bool>(), 0..8u8, small).prop_map(|(clears, kind, current)| Ask::Release {
        action: if clears {
            ReleaseAction::Clear
        } else {
            ReleaseAction::Release
        },
        kind,
        current,
    });
    prop_oneof![register, acquire, release]
}

proptest! {
    /// What holds after any commands of any hosts.
    #[test]
    fn promises_hold_whatever_hosts_ask_for(asked in proptest::collection::vec((host(), ask()), 0..40)) {
        let mut table = Table::default();
        for (host, ask) in asked {
            let before = table.clone();
            let was_registered = before.status().registrants.iter().any(|one| one.host == host);
            let result = table.execute(host, ask);
            let (old, new) = (before.status(), table.status());
            match &result {
                Err(_) => prop_assert_eq!(&table, &before, "what is refused changes nothing"),
                Ok(news) => {
                    let registers = matches!(ask, Ask::Register { action: RegisterAction::Register, .. });
                    prop_assert!(was_registered || registers);
                    prop_assert!(news.told.iter().all(|(told, _)| *told != host), "of its own doing it knows");
                    // A host that has lost its key, or its reservation, by another's doing is told.
                    for lost in old.registrants.iter().filter(|one| one.host != host) {
                        let stays = new.registrants.iter().any(|one| one.host == lost.host);
                        let told = news.told.iter().any(|(told, _)| *told == lost.host);
                        prop_assert!(stays || told);
                    }
                }
            }
            prop_assert_eq!(Table::decode(&table.encode()), Ok(table.clone()));
            let held = new.registrants.iter().filter(|one| one.holds).count();
            match new.kind {
                None => prop_assert_eq!(held, 0),
                Some(kind) if kind.is_of_all() => prop_assert!(held == new.registrants.len() && held > 0),
                Some(_) => prop_assert_eq!(held, 1, "one holder, who is registered"),
            }
            // Without a key no host writes while there is a reservation.
            for other in [A, B, C] {
                let is_registered = new.registrants.iter().any(|one| one.host == other);
                let may_write = new.kind.is_none() || is_registered;
                prop_assert!(may_write || !table.rights(&other).writes);
            }
        }
    }
}
