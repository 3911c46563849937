//! Every command by every type through two nodes: wherever ownership changes between, the answers and what each host
//! may do are those of one node that never fails.

use ashlar_block::{AssociationId, HostId};
use ashlar_nvme::reservation::{
    AcquireAction, Ask, Persistence, RegisterAction, ReleaseAction, ReservationType,
};

use super::*;

struct Nowhere;

impl ashlar_nvme_target::ReservationDecider for Nowhere {
    fn decide(&self, _: Petition, _: Answer) {}
}

fn node() -> Reserve {
    Reserve::new(DecidedReservations::new(std::sync::Arc::new(Nowhere)))
}

const LABEL: Label = Label {
    epoch: 1,
    writes: 0,
};

fn petition(host: u8, wants: Wants) -> Petition {
    Petition {
        provenance: Provenance {
            host: HostId(host.into()),
            registrant: Registrant([host; 16]),
            association: AssociationId(host.into()),
            label: Some(LABEL),
            here_only: false,
        },
        wants,
    }
}

/// Two nodes with one register between them, which keeps what is committed.
struct Pair {
    nodes: [Reserve; 2],
    owner: usize,
    register: Vec<u8>,
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            nodes: [node(), node()],
            owner: 1,
            register: vec![0; GRANULE],
        };
        pair.fail_over();
        pair
    }

    fn fail_over(&mut self) {
        self.nodes[self.owner].forget();
        self.owner = 1 - self.owner;
        let register = &self.register;
        self.nodes[self.owner].learn(register).expect("a table");
    }

    fn ask(&mut self, host: u8, wants: Wants) -> Verdict {
        let owner = &mut self.nodes[self.owner];
        let (answer, taken) = ashlar_nvme_target::answer_to();
        assert!(
            owner
                .take(petition(host, wants), Asker::Here(answer))
                .is_none()
        );
        let Some(Event::Host(HostCommand {
            command, operation, ..
        })) = owner.next(|_| Some(LABEL))
        else {
            panic!("the replica is asked");
        };
        let outcome = match operation {
            HostOperation::SetRegister {
                content: Content::Data(bytes),
                ..
            } => {
                assert!(taken().is_none(), "not before it is committed");
                self.register = bytes.to_vec();
                Outcome::Written
            }
            HostOperation::GetRegister => Outcome::Read(Bytes::from(self.register.clone())),
            other => panic!("{other:?}"),
        };
        owner.answered(command, &outcome);
        taken().expect("a verdict")
    }
}

fn register(key: u64, action: RegisterAction) -> Wants {
    Wants::Change(Ask::Register {
        action,
        ignores_key: false,
        persistence: Persistence::On,
        current: key,
        new: key,
    })
}

fn acquire(key: u64, action: AcquireAction, kind: ReservationType, preempted: u64) -> Wants {
    Wants::Change(Ask::Acquire {
        action,
        kind,
        current: key,
        preempted,
    })
}

fn release(key: u64, action: ReleaseAction, kind: ReservationType) -> Wants {
    Wants::Change(Ask::Release {
        action,
        kind: kind as u8,
        current: key,
    })
}

/// What hosts 1 to 3 ask for, each with its number as its key.
fn script(kind: ReservationType, last: usize) -> Vec<(u8, Wants)> {
    let other = match kind {
        ReservationType::WriteExclusive => ReservationType::ExclusiveAccessAll,
        _ => ReservationType::WriteExclusive,
    };
    let ends = [
        (1, release(1, ReleaseAction::Release, kind)),
        (1, release(1, ReleaseAction::Release, other)),
        (1, release(1, ReleaseAction::Clear, kind)),
        (2, acquire(2, AcquireAction::Preempt, kind, 1)),
        (2, acquire(2, AcquireAction::Preempt, other, 0)),
        (2, acquire(2, AcquireAction::PreemptAndAbort, kind, 1)),
        (2, acquire(2, AcquireAction::PreemptAndAbort, other, 0)),
        (1, register(1, RegisterAction::Unregister)),
        (1, Wants::Persist(false)),
    ];
    vec![
        (1, register(1, RegisterAction::Register)),
        (2, register(2, RegisterAction::Register)),
        (1, acquire(1, AcquireAction::Acquire, kind, 0)),
        (2, acquire(2, AcquireAction::Acquire, kind, 0)),
        (3, acquire(3, AcquireAction::Preempt, kind, 1)),
        ends[last],
        (2, register(2, RegisterAction::Replace)),
        (2, acquire(2, AcquireAction::Acquire, kind, 0)),
        (1, register(1, RegisterAction::Register)),
    ]
}

const ENDS: usize = 9;

#[test]
fn commands_by_types_are_the_same_through_two_nodes_wherever_ownership_changes() {
    for kind in ReservationType::ALL {
        for last in 0..ENDS {
            let script = script(kind, last);
            let mut alone = Table::default();
            let expected: Vec<(Verdict, Verdict)> = script
                .iter()
                .map(|(host, wants)| {
                    let verdict = alone.decide(Registrant([*host; 16]), *wants);
                    (
                        verdict,
                        alone.decide(Registrant([*host; 16]), Wants::Report),
                    )
                })
                .collect();
            for before in 0..=script.len() {
                let mut pair = Pair::new();
                for (at, ((host, wants), expected)) in script.iter().zip(&expected).enumerate() {
                    if at == before || before == script.len() {
                        pair.fail_over();
                    }
                    let verdict = pair.ask(*host, *wants);
                    let reported = [pair.ask(*host, Wants::Report), {
                        pair.fail_over();
                        pair.ask(*host, Wants::Report)
                    }];
                    let place =
                        format!("{kind:?}, end {last}, step {at}, failover before {before}");
                    assert_eq!(verdict, expected.0, "{place}");
                    assert_eq!(reported[0], expected.1, "{place}: reported");
                    assert_eq!(
                        reported[1], expected.1,
                        "{place}: reported by the other node"
                    );
                }
            }
        }
    }
}

#[test]
fn what_was_not_committed_is_not_granted_and_does_not_count() {
    let mut pair = Pair::new();
    let wants = register(1, RegisterAction::Register);
    for outcome in [Outcome::PathGone, Outcome::Stale, Outcome::NotOwner] {
        let owner = &mut pair.nodes[pair.owner];
        let (answer, taken) = ashlar_nvme_target::answer_to();
        assert!(
            owner
                .take(petition(1, wants), Asker::Here(answer))
                .is_none()
        );
        let Some(Event::Host(HostCommand { command, .. })) = owner.next(|_| Some(LABEL)) else {
            panic!("the replica is asked");
        };
        owner.answered(command, &outcome);
        let status = taken().expect("a verdict").status;
        assert!(
            !status.is_success() && !status.dnr(),
            "{outcome:?}: {status:?}"
        );
    }
    let report = pair.ask(1, Wants::Report);
    assert_eq!(
        report,
        Table::default().decide(Registrant([1; 16]), Wants::Report)
    );
    assert!(
        pair.ask(1, wants).status.is_success(),
        "it was not registered"
    );
}

#[test]
fn a_node_that_does_not_own_the_volume_asks_the_one_that_does() {
    let (mut asks, mut pair) = (node(), Pair::new());
    for (host, wants) in script(ReservationType::WriteExclusiveRegistrants, 5) {
        let (answer, taken) = ashlar_nvme_target::answer_to();
        let event = asks.take(petition(host, wants), Asker::Here(answer));
        let Some(Event::Host(HostCommand {
            command,
            registrant,
            operation: HostOperation::Consult { question, .. },
        })) = event
        else {
            panic!("it is sent");
        };
        let wants = words::to_wants(&question).expect("what was said");
        let verdict = pair.ask(registrant.0[0], wants);
        assert!(taken().is_none());
        let advice = Outcome::Advice(words::of_verdict(&verdict).into());
        asks.answered(command, &advice);
        assert_eq!(taken().expect("a verdict"), verdict);
    }
    // Without an answer it is not known what has become of it.
    let (answer, taken) = ashlar_nvme_target::answer_to();
    let event = asks.take(petition(1, Wants::Report), Asker::Here(answer));
    let Some(Event::Host(HostCommand { command, .. })) = event else {
        panic!("it is sent");
    };
    asks.answered(command, &Outcome::PathGone);
    assert!(taken().expect("over").status.is(Status::ANA_TRANSITION));
}

#[test]
fn an_owner_that_does_not_know_of_resets_stops_none() {
    for (wants, is_over) in [(Wants::Succeed, true), (Wants::Report, false)] {
        let mut asks = node();
        let (answer, taken) = ashlar_nvme_target::answer_to();
        let event = asks.take(petition(1, wants), Asker::Here(answer));
        let Some(Event::Host(HostCommand { command, .. })) = event else {
            panic!("it is sent");
        };
        asks.answered(command, &Outcome::Failed);
        let status = taken().expect("a verdict").status;
        assert_eq!(status.is_success(), is_over);
    }
}

#[test]
fn what_waits_when_ownership_is_lost_fails_on_this_path() {
    let mut node = node();
    node.learn(&[0; GRANULE]).expect("a table");
    let (answer, taken) = ashlar_nvme_target::answer_to();
    assert!(
        node.take(petition(1, Wants::Report), Asker::Here(answer))
            .is_none()
    );
    node.forget();
    assert!(taken().expect("over").status.is(Status::ANA_TRANSITION));
    assert!(node.learn(&[7; GRANULE]).is_err(), "a damaged register");
}

#[test]
fn a_node_that_served_before_refuses_no_host_by_what_it_knew() {
    let mut pair = Pair::new();
    for wants in [
        register(1, RegisterAction::Register),
        acquire(
            1,
            AcquireAction::Acquire,
            ReservationType::ExclusiveAccess,
            0,
        ),
    ] {
        assert!(pair.ask(1, wants).status.is_success());
    }
    let former = pair.owner;
    let shown = |pair: &Pair| pair.nodes[former].shown.lets(Registrant([2; 16]));
    assert!(!shown(&pair), "fenced by the owner itself");
    pair.fail_over();
    assert!(shown(&pair), "its hosts' commands go to the owner");
    let owner = &pair.nodes[pair.owner];
    let refused = owner.refuses(Registrant([2; 16]), true);
    assert_eq!(refused, Some(Outcome::Reserved), "which refuses them");
}

/// It may wait for its range until the change is answered, and would be done then.
#[test]
fn a_write_of_a_host_that_is_losing_its_rights_comes_again() {
    let kind = ReservationType::WriteExclusiveRegistrants;
    let mut pair = Pair::new();
    for host in [1, 2] {
        pair.ask(host, register(host.into(), RegisterAction::Register));
    }
    pair.ask(1, acquire(1, AcquireAction::Acquire, kind, 0));
    let owner = &mut pair.nodes[pair.owner];
    let [loser, winner] = [1, 2].map(|host| Registrant([host; 16]));
    let (answer, _verdict) = ashlar_nvme_target::answer_to();
    let wants = acquire(2, AcquireAction::Preempt, kind, 1);
    owner.take(petition(2, wants), Asker::Here(answer));
    assert_eq!(owner.refuses(loser, true), None);
    let Some(Event::Host(HostCommand { command, .. })) = owner.next(|_| Some(LABEL)) else {
        panic!("the replica is asked");
    };
    assert_eq!(owner.refuses(loser, true), Some(Outcome::Stale));
    assert_eq!(owner.refuses(loser, false), None, "it reads what was there");
    assert_eq!(owner.refuses(winner, true), None);
    owner.answered(command, &Outcome::PathGone);
    assert_eq!(owner.refuses(loser, true), None, "it was not committed");
    let wants = acquire(2, AcquireAction::Preempt, kind, 1);
    let (answer, _verdict) = ashlar_nvme_target::answer_to();
    owner.take(petition(2, wants), Asker::Here(answer));
    let Some(Event::Host(HostCommand { command, .. })) = owner.next(|_| Some(LABEL)) else {
        panic!("the replica is asked");
    };
    owner.answered(command, &Outcome::Written);
    assert_eq!(owner.refuses(loser, true), Some(Outcome::Reserved));
}

/// A host that takes over from an association has written by the other, as far as late commands are concerned.
#[test]
fn who_succeeds_an_association_has_written_by_another() {
    let mut owner = node();
    owner.learn(&[0; GRANULE]).expect("a table");
    let mut other = node();
    let (answer, taken) = ashlar_nvme_target::answer_to();
    let event = other.take(petition(1, Wants::Succeed), Asker::Here(answer));
    let Some(Event::Host(HostCommand {
        command: sent,
        operation: HostOperation::Consult { question, .. },
        ..
    })) = event
    else {
        panic!("it is sent, with a label or without one");
    };
    let wants = words::to_wants(&question).expect("what was said");
    let (answer, decided) = ashlar_nvme_target::answer_to();
    owner.take(petition(1, wants), Asker::Here(answer));
    let Some(Event::Host(HostCommand {
        command,
        operation: HostOperation::SetRegister { label, .. },
        ..
    })) = owner.next(|_| Some(LABEL))
    else {
        panic!("it is written");
    };
    assert_eq!(label, LABEL, "its admin queue has none");
    assert!(decided().is_none(), "not before it is committed");
    owner.answered(command, &Outcome::Written);
    let verdict = decided().expect("it is committed");
    assert!(verdict.status.is_success());
    other.answered(sent, &Outcome::Advice(words::of_verdict(&verdict).into()));
    assert!(taken().expect("a verdict").status.is_success());
}

/// An older command of a host must not take effect after a newer one that was told to have succeeded: so that counts
/// among the host's writes, though it changes nothing.
#[test]
fn what_succeeds_without_a_change_is_written_all_the_same() {
    let kind = ReservationType::WriteExclusive;
    let mut pair = Pair::new();
    pair.ask(1, register(1, RegisterAction::Register));
    pair.ask(1, acquire(1, AcquireAction::Acquire, kind, 0));
    let mut asks = |wants| {
        let owner = &mut pair.nodes[pair.owner];
        let (answer, taken) = ashlar_nvme_target::answer_to();
        owner.take(petition(1, wants), Asker::Here(answer));
        let Some(Event::Host(HostCommand {
            command, operation, ..
        })) = owner.next(|_| Some(LABEL))
        else {
            panic!("the replica is asked");
        };
        owner.answered(command, &Outcome::Stale);
        let verdict = taken().expect("a verdict");
        (operation, verdict.status)
    };
    let (again, refused) = asks(acquire(1, AcquireAction::Acquire, kind, 0));
    assert!(matches!(again, HostOperation::SetRegister { .. }));
    assert_eq!(refused, Status::ANA_TRANSITION, "a late one is refused");
    let (wrong_key, _) = asks(acquire(7, AcquireAction::Acquire, kind, 0));
    assert!(matches!(wrong_key, HostOperation::GetRegister));
    let (report, _) = asks(Wants::Report);
    assert!(matches!(report, HostOperation::GetRegister));
}
