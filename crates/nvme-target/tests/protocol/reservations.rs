//! Reservations, as hosts on several cores have them.

use std::sync::{Arc, Mutex};

use ashlar_block::{BlockSize, ErrorKind, IoError};
use ashlar_nvme::command::{GetLogPage, Identify};
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::feature::fid;
use ashlar_nvme::identify::{IdentifyController, IdentifyNamespace, cns, oncs};
use ashlar_nvme::log::lid;
use ashlar_nvme::pdu::Digests;
use ashlar_nvme::reservation::{
    AcquireAction, Ask, Persistence, RegisterAction, ReleaseAction, ReservationStatus,
    ReservationType,
};
use ashlar_nvme::{Command, Status};
use ashlar_nvme_target::{KeptReservations, ReservationKeeper, Reservations, Table, Ticket};

use crate::disk::Disk;
use crate::host::{Host, Reply, pattern, queue, read, write_in, write_out};
use crate::world::{NQN, Plan, World};

/// Keeps the last state, when the test lets it.
#[derive(Default)]
struct Keeper {
    kept: Mutex<Option<Vec<u8>>>,
    waits: Mutex<Vec<(Vec<u8>, Ticket)>>,
    is_slow: Mutex<bool>,
}

struct Given(Arc<Keeper>);

impl ReservationKeeper for Given {
    fn keep(&self, state: Vec<u8>, ticket: Ticket) {
        if *self.0.is_slow.lock().expect("sound") {
            return self.0.waits.lock().expect("sound").push((state, ticket));
        }
        *self.0.kept.lock().expect("sound") = Some(state);
        ticket.done(Ok(()));
    }
}

fn world_with(keeper: &Arc<Keeper>) -> World {
    World::new(&plan(keeper))
}

fn plan(keeper: &Arc<Keeper>) -> Plan {
    Plan {
        disks: vec![Disk::plain(BlockSize::B4096, 1024)],
        cores: 2,
        reservations: Some(Reservations::Kept(KeptReservations {
            kept: keeper.kept.lock().expect("sound").clone(),
            keeper: Arc::new(Given(keeper.clone())),
        })),
        ..Plan::default()
    }
}

/// A host: its admin queue, and an I/O queue on core `core`.
struct Pair {
    admin: Host,
    io: Host,
    key: u64,
}

impl Pair {
    fn new(world: &mut World, number: u8, core: usize) -> Self {
        let dial = |world: &mut World| {
            let mut host = Host::dial(world, Digests::NONE);
            host.hostid = [number; 16];
            host.hostnqn = format!("nqn.2024-01.com.example:{number}");
            host
        };
        world.io_core = core;
        let mut admin = dial(world);
        let reply = admin.connect_to(world, NQN, queue(0, 32), 0xffff);
        let cntlid = reply.completion.connected_cntlid();
        admin.enable(world);
        let mut io = dial(world);
        let reply = io.connect_to(world, NQN, queue(1, 128), cntlid);
        assert!(reply.status().is_success(), "{:?}", reply.status());
        Self {
            admin,
            io,
            key: u64::from(number),
        }
    }

    fn ask(&mut self, world: &mut World, ask: Ask) -> Status {
        let (command, data) = ask.to_command(1);
        self.io.call(world, command, &data).status()
    }

    fn register(&mut self, world: &mut World, persistence: Persistence) -> Status {
        let ask = Ask::Register {
            action: RegisterAction::Register,
            ignores_key: false,
            persistence,
            current: 0,
            new: self.key,
        };
        self.ask(world, ask)
    }

    fn acquire(&self, action: AcquireAction, kind: ReservationType, preempted: u64) -> Ask {
        Ask::Acquire {
            action,
            kind,
            current: self.key,
            preempted,
        }
    }

    fn write(&mut self, world: &mut World) -> Status {
        let data = pattern(1, 4096);
        self.io
            .call(world, write_in(0, &data, 4096), &data)
            .status()
    }

    fn read(&mut self, world: &mut World) -> Status {
        self.io.call(world, read(0, 4096, 4096), &[]).status()
    }

    fn report(&mut self, world: &mut World) -> ReservationStatus {
        let reply = self.io.call(world, ReservationStatus::report(1, 4096), &[]);
        assert!(reply.status().is_success(), "{:?}", reply.status());
        ReservationStatus::parse(&reply.data).expect("a structure")
    }
}

const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_dnr();

#[test]
fn reservations_are_offered_where_they_are_kept_and_nowhere_else() {
    let keeper = Arc::default();
    for (plan, offered) in [(plan(&keeper), true), (Plan::default(), false)] {
        let mut world = World::new(&plan);
        let mut one = Pair::new(&mut world, 1, 0);
        let mut identify = |cns, nsid| {
            let asked = Identify {
                cns,
                ..Identify::default()
            };
            one.admin
                .call(&mut world, Command::identify(nsid, asked), &[])
                .data
        };
        let controller = identify(cns::CONTROLLER, 0);
        let controller = IdentifyController::parse(&controller)
            .expect("a page")
            .oncs
            .get();
        let namespace = identify(cns::NAMESPACE, 1);
        let rescap = IdentifyNamespace::parse(&namespace).expect("a page").rescap;
        assert_eq!(controller & oncs::RESERVATIONS != 0, offered);
        assert_eq!(rescap, if offered { 0xff } else { 0 });
        let status = one.register(&mut world, Persistence::On);
        let expected = if offered {
            Status::SUCCESS
        } else {
            Status::INVALID_OPCODE.with_dnr()
        };
        assert_eq!(status, expected);
    }
}

#[test]
fn a_host_on_another_core_is_fenced_at_once() {
    let mut world = world_with(&Arc::default());
    let (mut a, mut b) = (Pair::new(&mut world, 1, 0), Pair::new(&mut world, 2, 1));
    assert!(a.write(&mut world).is_success() && b.write(&mut world).is_success());
    // Its data is on its way while the other takes over.
    let data = pattern(9, 128 << 10);
    let late = b.io.send(&mut world, write_out(0, data.len(), 4096), &[]);
    b.io.settle(&mut world);
    assert!(a.register(&mut world, Persistence::On).is_success());
    let take = a.acquire(AcquireAction::Acquire, ReservationType::WriteExclusive, 0);
    assert!(a.ask(&mut world, take).is_success());
    b.io.answer_r2t(&mut world, &data);
    b.io.settle(&mut world);
    assert_eq!(b.io.replies[&late].status(), CONFLICT);
    assert_eq!(b.write(&mut world), CONFLICT);
    for refused in [
        Command::flush(1),
        Command::flush(u32::MAX),
        Command::write_zeroes(1, 0, 1, false),
    ] {
        assert_eq!(b.io.call(&mut world, refused, &[]).status(), CONFLICT);
    }
    assert!(b.read(&mut world).is_success() && a.write(&mut world).is_success());
    let status = b.report(&mut world);
    assert_eq!(status.kind, Some(ReservationType::WriteExclusive));
    assert_eq!(
        (status.registrants.len(), status.registrants[0].holds),
        (1, true)
    );
    let give = Ask::Release {
        action: ReleaseAction::Release,
        kind: 1,
        current: 1,
    };
    assert!(a.ask(&mut world, give).is_success());
    assert!(b.write(&mut world).is_success());
}

#[test]
fn the_shorter_report_and_odd_fields_are_refused() {
    let mut world = world_with(&Arc::default());
    let mut a = Pair::new(&mut world, 1, 0);
    let mut short = ReservationStatus::report(1, 4096);
    short.cdw11.set(0);
    let status = a.io.call(&mut world, short, &[]).status();
    assert!(status.is(Status::HOST_ID_INCONSISTENT), "{status:?}");
    let (mut command, data) = a
        .acquire(AcquireAction::Acquire, ReservationType::WriteExclusive, 0)
        .to_command(1);
    command.cdw10.set(7 << 8);
    assert!(
        a.io.call(&mut world, command, &data)
            .status()
            .is(Status::INVALID_FIELD)
    );
    let (mut command, data) = a
        .acquire(AcquireAction::Acquire, ReservationType::WriteExclusive, 0)
        .to_command(9);
    assert!(
        a.io.call(&mut world, command, &data)
            .status()
            .is(Status::INVALID_NAMESPACE)
    );
    command.nsid.set(1);
    assert_eq!(
        a.io.call(&mut world, command, &data).status(),
        CONFLICT,
        "not registered"
    );
}

#[test]
fn a_preempted_host_is_told_and_its_commands_are_ended_where_that_was_asked_for() {
    let keeper = Arc::default();
    let plan = plan(&keeper);
    let mut world = World::new(&plan);
    let (mut a, mut b) = (Pair::new(&mut world, 1, 0), Pair::new(&mut world, 2, 1));
    for one in [&mut a, &mut b] {
        assert!(one.register(&mut world, Persistence::On).is_success());
    }
    let take = b.acquire(AcquireAction::Acquire, ReservationType::ExclusiveAccess, 0);
    assert!(b.ask(&mut world, take).is_success());
    let told = b
        .admin
        .send(&mut world, Command::async_event_request(), &[]);
    let preempt = a.acquire(AcquireAction::Preempt, ReservationType::ExclusiveAccess, 2);
    assert!(a.ask(&mut world, preempt).is_success());
    b.admin.settle(&mut world);
    let event = AsyncEvent::from_dw0(b.admin.replies[&told].dw0());
    assert_eq!(event, AsyncEvent::ReservationLogAvailable);
    let ask = GetLogPage {
        lid: lid::RESERVATION_NOTIFICATION,
        lsp: 0,
        retain_event: false,
        bytes: 64,
        offset: 0,
        offset_type: false,
    };
    let page = |world: &mut World, host: &mut Host| -> Reply {
        host.call(world, Command::get_log_page(0, ask), &[])
    };
    let first = page(&mut world, &mut b.admin).data;
    assert_eq!(
        (first[0], first[8], first[9], first[12]),
        (1, 3, 0, 1),
        "preempted, of namespace 1"
    );
    assert_eq!(page(&mut world, &mut b.admin).data[8], 0, "told once");
    assert_eq!(b.read(&mut world), CONFLICT);

    // The other way round, with a command of A in the device.
    assert!(b.register(&mut world, Persistence::On).is_success());
    plan.disks[0].hold();
    let data = pattern(3, 4096);
    a.io.send(&mut world, write_in(0, &data, 4096), &data);
    a.io.settle(&mut world);
    let abort = b.acquire(
        AcquireAction::PreemptAndAbort,
        ReservationType::ExclusiveAccess,
        1,
    );
    let (command, data) = abort.to_command(1);
    let cid = b.io.send(&mut world, command, &data);
    b.io.settle(&mut world);
    assert!(world.wires[a.io.wire].is_closed() && world.wires[a.admin.wire].is_closed());
    assert!(
        !b.io.replies.contains_key(&cid),
        "the device still has the old write"
    );
    plan.disks[0].release();
    b.io.settle(&mut world);
    assert!(b.io.replies[&cid].status().is_success());
    assert!(b.write(&mut world).is_success());
}

#[test]
fn what_is_to_outlive_a_loss_of_power_is_kept_before_the_answer() {
    let keeper: Arc<Keeper> = Arc::default();
    let mut world = world_with(&keeper);
    let mut a = Pair::new(&mut world, 1, 0);
    assert!(a.register(&mut world, Persistence::Off).is_success());
    assert!(
        keeper.kept.lock().expect("sound").is_none(),
        "nothing to be kept"
    );
    *keeper.is_slow.lock().expect("sound") = true;
    let again = Ask::Register {
        action: RegisterAction::Replace,
        ignores_key: true,
        persistence: Persistence::On,
        current: 0,
        new: 1,
    };
    let (command, data) = again.to_command(1);
    let waits = a.io.send(&mut world, command, &data);
    a.io.settle(&mut world);
    assert!(!a.io.replies.contains_key(&waits), "it is not kept yet");
    let (state, ticket) = keeper.waits.lock().expect("sound").pop().expect("given");
    *keeper.kept.lock().expect("sound") = Some(state);
    ticket.done(Ok(()));
    a.io.settle(&mut world);
    assert!(a.io.replies[&waits].status().is_success());
    // What cannot be kept is no success.
    let take = a.acquire(AcquireAction::Acquire, ReservationType::WriteExclusive, 0);
    let (command, data) = take.to_command(1);
    let fails = a.io.send(&mut world, command, &data);
    a.io.settle(&mut world);
    let (_, ticket) = keeper.waits.lock().expect("sound").pop().expect("given");
    ticket.done(Err(IoError::new(ErrorKind::NoSpace, "the disk")));
    a.io.settle(&mut world);
    assert_eq!(a.io.replies[&fails].status(), Status::INTERNAL_ERROR);
    *keeper.is_slow.lock().expect("sound") = false;
    assert!(a.ask(&mut world, take).is_success());

    // Another run of the target.
    let mut world = world_with(&keeper);
    let (mut a, mut b) = (Pair::new(&mut world, 1, 0), Pair::new(&mut world, 2, 1));
    assert_eq!(b.write(&mut world), CONFLICT);
    assert!(a.write(&mut world).is_success());
    assert!(b.report(&mut world).is_persistent);
    // The feature says the same, and switches it off.
    let get = Command::get_features(1, fid::RESERVATION_PERSISTENCE);
    assert_eq!(a.admin.call(&mut world, get, &[]).dw0(), 1);
    let off = Command::set_features(1, fid::RESERVATION_PERSISTENCE, 0);
    assert!(a.admin.call(&mut world, off, &[]).status().is_success());
    let mut world = world_with(&keeper);
    let mut b = Pair::new(&mut world, 2, 0);
    assert!(b.write(&mut world).is_success(), "gone with the power");
}

#[test]
fn reservations_that_cannot_be_read_are_not_left_out() {
    let keeper: Arc<Keeper> = Arc::default();
    *keeper.kept.lock().expect("sound") = Some(b"nonsense".to_vec());
    let plan = plan(&keeper);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| World::new(&plan)));
    assert!(
        result.is_err(),
        "a namespace that may be reserved is not served unreserved"
    );
    Table::decode(b"nonsense").expect_err("no table");
}
