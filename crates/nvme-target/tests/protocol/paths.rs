//! Paths of a subsystem that several targets serve: ANA states, its log page, its event, its statuses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashlar_block::ErrorKind;
use ashlar_nvme::command::{GetLogPage, Identify};
use ashlar_nvme::event::{AsyncEvent, notices};
use ashlar_nvme::feature::{HANDS_NOTHING_ON, fid};
use ashlar_nvme::identify::{IdentifyController, IdentifyNamespace, cmic, cns};
use ashlar_nvme::log::{AnaLog, AnaState, lid};
use ashlar_nvme::pdu::Digests;
use ashlar_nvme::{Command, Status};
use ashlar_nvme_target::{
    Answer, DecidedReservations, Notice, Petition, ReservationDecider, Reservations, Shared,
    Verdict, Wants,
};

use crate::disk::Disk;
use crate::host::{Host, pattern, read, write_in, write_out};
use crate::succession::{name, reset};
use crate::world::{NQN, Plan, World};
use ashlar_block::BlockSize;

const FIRST_ID: u16 = 1000;

fn shared(disks: usize, state: AnaState) -> World {
    shared_and(disks, state, None)
}

fn shared_and(disks: usize, state: AnaState, reservations: Option<Reservations>) -> World {
    let disk = || Disk::plain(BlockSize::B4096, 1024);
    World::new(&Plan {
        disks: (0..disks).map(|_| disk()).collect(),
        cores: 2,
        shared: Some(Shared {
            controller_ids: FIRST_ID..=FIRST_ID + 2,
            state,
            portals: Vec::new(),
            core: None,
            quiesce: Duration::from_millis(1500),
        }),
        reservations,
        ..Plan::default()
    })
}

fn set(world: &mut World, nsid: Option<u32>, state: AnaState) -> bool {
    let news = world.target.set_path(NQN, nsid, state).expect("shared");
    if news {
        world.tell(&[Notice::Events]);
    }
    news
}

fn ana_log(world: &mut World, admin: &mut Host, groups_only: bool, retain_event: bool) -> AnaLog {
    let ask = GetLogPage {
        lid: lid::ANA,
        lsp: u8::from(groups_only),
        retain_event,
        bytes: 4096,
        offset: 0,
        offset_type: false,
    };
    let reply = admin.call(world, Command::get_log_page(0, ask), &[]);
    assert!(reply.status().is_success());
    AnaLog::parse(&reply.data).expect("a log page")
}

fn states(log: &AnaLog) -> Vec<AnaState> {
    log.groups.iter().map(|group| group.state).collect()
}

#[test]
fn hosts_are_told_of_ana_where_a_subsystem_is_shared_and_nowhere_else() {
    let identify = |cns, nsid| {
        let asked = Identify {
            cns,
            ..Identify::default()
        };
        Command::identify(nsid, asked)
    };
    let mut world = shared(2, AnaState::NonOptimized);
    let (mut admin, cntlid) = Host::admin(&mut world, Digests::NONE);
    assert_eq!(cntlid, FIRST_ID);
    let reply = admin.call(&mut world, identify(cns::CONTROLLER, 0), &[]);
    let id = IdentifyController::parse(&reply.data).expect("a page");
    assert_eq!((id.cmic, id.cntlid.get()), (0x0b, FIRST_ID));
    assert_eq!(
        (id.anacap & 0x1f, id.nanagrpid.get(), id.anagrpmax.get()),
        (0x1f, 2, 2)
    );
    assert!(id.anatt > 0 && id.mnan.get() == 2);
    assert_eq!(id.as_wire()[386..388], 1500u16.to_le_bytes(), "CQT");
    assert!(id.oaes.get() & notices::ANA_CHANGE != 0);
    let reply = admin.call(&mut world, identify(cns::NAMESPACE, 2), &[]);
    let id = IdentifyNamespace::parse(&reply.data).expect("a page");
    assert_eq!((id.nmic & 1, id.anagrpid.get()), (1, 2));
    let log = ana_log(&mut world, &mut admin, false, false);
    assert_eq!(states(&log), [AnaState::NonOptimized; 2]);
    assert_eq!((log.groups[1].id, &log.groups[1].namespaces), (2, &vec![2]));
    assert!(
        ana_log(&mut world, &mut admin, true, false).groups[1]
            .namespaces
            .is_empty()
    );

    let mut alone = World::new(&Plan::default());
    let (mut admin, _) = Host::admin(&mut alone, Digests::NONE);
    let reply = admin.call(&mut alone, identify(cns::CONTROLLER, 0), &[]);
    let id = IdentifyController::parse(&reply.data).expect("a page");
    assert_eq!(
        (
            id.cmic & cmic::ANA_REPORTING,
            id.anatt,
            id.oaes.get() & notices::ANA_CHANGE
        ),
        (0, 0, 0)
    );
    let keeps = Command::set_features(0, fid::HERE_ONLY, HANDS_NOTHING_ON);
    let status = admin.call(&mut alone, keeps, &[]).status();
    assert!(
        status.is(Status::INVALID_FIELD),
        "there is no other to hand anything on to"
    );
    alone
        .target
        .set_path(NQN, None, AnaState::Change)
        .expect_err("it has one path");
}

#[test]
fn a_host_may_want_nothing_handed_on() {
    let mut world = shared(1, AnaState::NonOptimized);
    let (mut admin, _) = Host::admin(&mut world, Digests::NONE);
    let get = Command::get_features(0, fid::HERE_ONLY);
    for value in [0, HANDS_NOTHING_ON, 0] {
        let set = Command::set_features(0, fid::HERE_ONLY, value);
        assert!(admin.call(&mut world, set, &[]).status().is_success());
        assert_eq!(admin.call(&mut world, get, &[]).dw0(), value);
    }
}

/// As Linux begins: it reads the page, asks for events then, and does not read again by itself.
#[test]
fn a_change_before_a_host_asks_for_events_is_told_when_it_does() {
    let want = Command::set_features(0, fid::ASYNC_EVENT_CONFIGURATION, notices::ANA_CHANGE);
    for reads_again in [false, true] {
        let mut world = shared(1, AnaState::Inaccessible);
        let (mut admin, _) = Host::admin(&mut world, Digests::NONE);
        ana_log(&mut world, &mut admin, false, false);
        set(&mut world, None, AnaState::Optimized);
        if reads_again {
            ana_log(&mut world, &mut admin, false, false);
        }
        assert!(admin.call(&mut world, want, &[]).status().is_success());
        let told = admin.send(&mut world, Command::async_event_request(), &[]);
        admin.settle(&mut world);
        assert_eq!(admin.replies.contains_key(&told), !reads_again);
    }
}

#[test]
fn a_host_that_wants_to_know_is_told_behind_the_log_page_and_once_until_it_looks() {
    let mut world = shared(2, AnaState::Optimized);
    let (mut admin, _) = Host::admin(&mut world, Digests::NONE);
    let want = Command::set_features(0, fid::ASYNC_EVENT_CONFIGURATION, notices::ANA_CHANGE);
    assert!(admin.call(&mut world, want, &[]).status().is_success());
    let before = ana_log(&mut world, &mut admin, false, false);
    let told = admin.send(&mut world, Command::async_event_request(), &[]);
    let second = admin.send(&mut world, Command::async_event_request(), &[]);
    admin.settle(&mut world);
    assert!(!set(&mut world, None, AnaState::Optimized), "no news");
    admin.settle(&mut world);
    assert!(admin.replies.is_empty(), "no event without a change");

    assert!(set(&mut world, Some(2), AnaState::Inaccessible));
    assert!(set(&mut world, Some(1), AnaState::Change));
    admin.settle(&mut world);
    assert_eq!(
        AsyncEvent::from_dw0(admin.replies[&told].dw0()),
        AsyncEvent::AnaChange
    );
    assert!(!admin.replies.contains_key(&second), "once until it looks");
    let log = ana_log(&mut world, &mut admin, false, true);
    assert_eq!(states(&log), [AnaState::Change, AnaState::Inaccessible]);
    assert_eq!(log.change_count, before.change_count + 2);
    assert!(
        log.groups
            .iter()
            .zip(&before.groups)
            .all(|(now, then)| now.change_count > then.change_count)
    );
    set(&mut world, Some(1), AnaState::Optimized);
    admin.settle(&mut world);
    assert!(
        !admin.replies.contains_key(&second),
        "it has looked with RAE"
    );
    ana_log(&mut world, &mut admin, false, false);
    set(&mut world, Some(2), AnaState::NonOptimized);
    admin.settle(&mut world);
    assert_eq!(
        AsyncEvent::from_dw0(admin.replies[&second].dw0()),
        AsyncEvent::AnaChange
    );
}

#[test]
fn a_path_that_cannot_be_used_answers_so_that_hosts_take_another() {
    for (state, status) in [
        (AnaState::Inaccessible, Status::ANA_INACCESSIBLE),
        (AnaState::Change, Status::ANA_TRANSITION),
        (AnaState::PersistentLoss, Status::ANA_PERSISTENT_LOSS),
    ] {
        let mut world = shared(2, AnaState::Optimized);
        let (_admin, mut io) = Host::pair(&mut world);
        let data = pattern(1, 4096);
        assert!(
            io.call(&mut world, write_in(0, &data, 4096), &data)
                .status()
                .is_success()
        );
        set(&mut world, Some(1), state);
        let refused = |reply: crate::host::Reply| {
            assert!(
                reply.status().is(status) && !reply.status().dnr(),
                "{:?}",
                reply.status()
            );
        };
        refused(io.call(
            &mut world,
            write_in(0, &pattern(2, 4096), 4096),
            &pattern(2, 4096),
        ));
        refused(io.call(&mut world, read(0, 4096, 4096), &[]));
        refused(io.call(&mut world, Command::flush(1), &[]));
        refused(io.call(&mut world, Command::flush(u32::MAX), &[]));
        refused(io.call(&mut world, Command::write_zeroes(1, 0, 1, false), &[]));
        // The other namespace is none of its business, and what was there is there.
        assert!(
            io.call(&mut world, Command::flush(2), &[])
                .status()
                .is_success()
        );
        set(&mut world, Some(1), AnaState::NonOptimized);
        assert_eq!(io.call(&mut world, read(0, 4096, 4096), &[]).data, data);
    }
}

#[test]
fn a_write_whose_data_comes_behind_the_change_is_refused() {
    let mut world = shared(1, AnaState::Optimized);
    let (_admin, mut io) = Host::pair(&mut world);
    let data = pattern(3, 128 << 10);
    let late = io.send(&mut world, write_out(0, data.len(), 4096), &[]);
    io.settle(&mut world);
    set(&mut world, None, AnaState::Change);
    io.answer_r2t(&mut world, &data);
    io.settle(&mut world);
    assert!(io.replies[&late].status().is(Status::ANA_TRANSITION));
    set(&mut world, None, AnaState::Optimized);
    assert_eq!(
        io.call(&mut world, read(0, 4096, 4096), &[]).data,
        [0; 4096]
    );
}

#[test]
fn a_device_that_has_lost_its_volume_gives_a_path_error() {
    let disk = Disk::plain(BlockSize::B4096, 64);
    let plan = Plan {
        disks: vec![disk],
        ..Plan::default()
    };
    let mut world = World::new(&plan);
    let (_admin, mut io) = Host::pair(&mut world);
    for (kind, status) in [
        (ErrorKind::PathChanging, Status::ANA_TRANSITION),
        (ErrorKind::PathInaccessible, Status::ANA_INACCESSIBLE),
    ] {
        plan.disks[0].0.borrow_mut().fail_writes = Some(kind);
        let reply = io.call(&mut world, write_in(0, &[1; 4096], 4096), &[1; 4096]);
        assert_eq!(reply.status(), status, "and no Do Not Retry");
    }
}

#[test]
fn controllers_have_ids_of_their_range_and_no_others() {
    let mut world = shared(1, AnaState::Optimized);
    let mut ids = Vec::new();
    let mut hosts = Vec::new();
    for _ in 0..3 {
        let (host, id) = Host::admin(&mut world, Digests::NONE);
        ids.push(id);
        hosts.push(host);
    }
    assert_eq!(ids, [FIRST_ID, FIRST_ID + 1, FIRST_ID + 2]);
    world.hang_up(hosts[1].wire);
    let (_host, id) = Host::admin(&mut world, Digests::NONE);
    assert_eq!(
        id,
        FIRST_ID + 1,
        "none is left but the one that was given back"
    );
}

#[test]
fn hosts_that_are_sent_away_may_come_again() {
    let mut world = shared(1, AnaState::Optimized);
    let (admin, io) = Host::pair(&mut world);
    world.target.send_away(NQN).expect("it is there");
    world.tell(&[Notice::Reap]);
    assert!(world.wires[admin.wire].is_closed() && world.wires[io.wire].is_closed());
    let (_admin, mut io) = Host::pair(&mut world);
    assert!(
        io.call(&mut world, read(0, 4096, 4096), &[])
            .status()
            .is_success()
    );
}

/// A reset of a controller that another target may have made.
fn reset_of(id: u16) -> Command {
    let mut command = Command::new(0x38, 0);
    command.cdw10.set(u32::from(id) | 1 << 16);
    command
}

/// Keeps what it is to decide.
#[derive(Default)]
struct Desk(Mutex<Vec<(Petition, Answer)>>);

impl ReservationDecider for Desk {
    fn decide(&self, petition: Petition, answer: Answer) {
        self.0.lock().expect("whole").push((petition, answer));
    }
}

#[test]
fn nothing_is_told_of_another_targets_controller_where_none_decides_for_all() {
    let mut world = shared(1, AnaState::Optimized);
    let (mut admin, _) = Host::admin(&mut world, Digests::NONE);
    let reply = admin.call(&mut world, reset_of(FIRST_ID + 1), &[]);
    let told = (reply.status(), reply.dw0());
    assert_eq!(told, (Status::SUCCESS, 1), "it would be known here");
    let reply = admin.call(&mut world, reset_of(7), &[]);
    assert_eq!(reply.status(), Status::INVALID_CONTROLLER_ID);
}

#[test]
fn a_lost_controller_has_ended_when_who_decides_says_so() {
    const IN_PROGRESS: Status = Status::new(1, 0x3f);
    let desk = Arc::new(Desk::default());
    let decided = DecidedReservations::new(desk.clone());
    let mut world = shared_and(1, AnaState::Optimized, Some(Reservations::Decided(decided)));
    let (mut lost, id) = Host::admin(&mut world, Digests::NONE);
    let of_one_here = reset(name(&mut world, &mut lost, id));
    let (mut admin, _) = Host::admin(&mut world, Digests::NONE);
    let of_other = reset_of(7);
    let verdicts = [
        // It knows no owner, it has lost it, it has gone.
        (of_other, Some(Status::ANA_INACCESSIBLE), IN_PROGRESS),
        (of_other, Some(Status::ANA_TRANSITION), IN_PROGRESS),
        (of_other, None, IN_PROGRESS),
        (
            of_other,
            Some(Status::INTERNAL_ERROR),
            Status::INTERNAL_ERROR,
        ),
        (of_other, Some(Status::SUCCESS), Status::SUCCESS),
        // What one of this target's has passed on may be on its way, too: while it is there, and afterwards.
        (of_one_here, Some(Status::ANA_INACCESSIBLE), IN_PROGRESS),
        (of_one_here, Some(Status::SUCCESS), Status::SUCCESS),
    ];
    for (command, verdict, told) in verdicts {
        let cid = admin.send(&mut world, command, &[]);
        world.pass(Duration::from_millis(100));
        admin.settle(&mut world);
        assert!(!admin.replies.contains_key(&cid), "it is not decided");
        let (petition, answer) = desk.0.lock().expect("whole").remove(0);
        assert_eq!(petition.wants, Wants::Succeed);
        match verdict {
            Some(status) => answer.give(Verdict::of(status)),
            None => drop(answer),
        }
        world.pass(Duration::from_millis(100));
        admin.settle(&mut world);
        let reply = admin.replies.remove(&cid).expect("it is decided");
        assert_eq!(reply.status(), told);
        assert_eq!(reply.dw0() & 1 == 1, told.is_success());
    }
    assert!(world.wires[lost.wire].is_closed());
}
