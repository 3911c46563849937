//! Asynchronous events and Abort.

use ashlar_block::ErrorKind;
use ashlar_nvme::command::GetLogPage;
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::fabrics::{Cc, property};
use ashlar_nvme::feature::fid;
use ashlar_nvme::log::{SmartHealth, lid};
use ashlar_nvme::{Command, Status};

use crate::host::{Host, write_in};
use crate::world::{Plan, World};

const SMART_RELIABILITY: u32 = 1 << 2;

#[test]
fn four_event_requests_wait_and_a_fifth_is_refused() {
    let mut world = World::new(&Plan::default());
    let (mut admin, _io) = Host::pair(&mut world);
    let waiting: Vec<u16> = (0..4)
        .map(|_| admin.send(&mut world, Command::async_event_request(), &[]))
        .collect();
    admin.settle(&mut world);
    assert!(admin.replies.is_empty());
    let fifth = admin.call(&mut world, Command::async_event_request(), &[]);
    assert_eq!(fifth.status().code(), 0x105);
    // Abort ends the one that it names, and says so.
    let reply = admin.call(&mut world, Command::abort(0, waiting[2]), &[]);
    assert_eq!((reply.status(), reply.dw0() & 1), (Status::SUCCESS, 0));
    assert!(
        admin.replies[&waiting[2]]
            .status()
            .is(Status::ABORT_REQUESTED)
    );
    for missed in [
        Command::abort(0, 0xffff),
        Command::abort(1, waiting[0]),
        Command::abort(9, 1),
    ] {
        let reply = admin.call(&mut world, missed, &[]);
        assert_eq!((reply.status(), reply.dw0() & 1), (Status::SUCCESS, 1));
    }
    admin.send(&mut world, Command::async_event_request(), &[]);
    admin.settle(&mut world);
    assert_eq!(admin.replies.len(), 1);
}

#[test]
fn a_failed_write_raises_an_event_for_hosts_that_asked_and_the_smart_log_tells() {
    let plan = Plan {
        cores: 2,
        ..Plan::default()
    };
    let mut world = World::new(&plan);
    let (mut deaf, _) = Host::admin(&mut world, ashlar_nvme::pdu::Digests::NONE);
    let (mut admin, mut io) = Host::pair(&mut world);
    let want = Command::set_features(0, fid::ASYNC_EVENT_CONFIGURATION, SMART_RELIABILITY);
    admin.call(&mut world, want, &[]);
    let told = admin.send(&mut world, Command::async_event_request(), &[]);
    deaf.send(&mut world, Command::async_event_request(), &[]);
    admin.settle(&mut world);
    plan.disks[0].0.borrow_mut().fail_writes = Some(ErrorKind::Media);
    for _ in 0..2 {
        let reply = io.call(&mut world, write_in(0, &[1; 4096], 4096), &[1; 4096]);
        assert_eq!(reply.status(), Status::WRITE_FAULT);
    }
    admin.settle(&mut world);
    deaf.settle(&mut world);
    let event = AsyncEvent::from_dw0(admin.replies[&told].dw0());
    assert_eq!(event, AsyncEvent::SubsystemReliability);
    assert!(deaf.replies.is_empty());
    let ask = GetLogPage {
        lid: lid::SMART_HEALTH,
        lsp: 0,
        retain_event: false,
        bytes: 512,
        offset: 0,
        offset_type: false,
    };
    let page = admin
        .call(&mut world, Command::get_log_page(u32::MAX, ask), &[])
        .data;
    let health = SmartHealth::parse(&page).expect("a page");
    assert_eq!(health.critical_warning, 1 << 2);
    assert_eq!(health.media_errors[0], 2);
}

#[test]
fn a_mismatch_in_compare_is_no_media_error() {
    let mut world = World::new(&Plan::default());
    let (mut admin, mut io) = Host::pair(&mut world);
    let mut compare = write_in(0, &[1; 4096], 4096);
    compare.opcode = ashlar_nvme::opcode::io::COMPARE;
    let reply = io.call(&mut world, compare, &[1; 4096]);
    assert_eq!(reply.status(), Status::COMPARE_FAILURE);
    let ask = GetLogPage {
        lid: lid::SMART_HEALTH,
        lsp: 0,
        retain_event: false,
        bytes: 512,
        offset: 0,
        offset_type: false,
    };
    let page = admin
        .call(&mut world, Command::get_log_page(u32::MAX, ask), &[])
        .data;
    assert_eq!(
        SmartHealth::parse(&page).expect("a page").media_errors[0],
        0
    );
}

#[test]
fn a_reset_ends_event_requests_so_that_the_host_can_send_new_ones() {
    let mut world = World::new(&Plan::default());
    let (mut admin, io) = Host::pair(&mut world);
    for _ in 0..4 {
        admin.send(&mut world, Command::async_event_request(), &[]);
    }
    admin.settle(&mut world);
    let off = Command::property_set(property::CC, false, u64::from(Cc::ENABLED.0 & !1));
    assert!(admin.call(&mut world, off, &[]).status().is_success());
    assert!(world.wires[io.wire].is_closed());
    assert_eq!(admin.replies.len(), 4);
    admin.replies.clear();
    admin.enable(&mut world);
    for _ in 0..4 {
        admin.send(&mut world, Command::async_event_request(), &[]);
    }
    admin.settle(&mut world);
    assert!(admin.replies.is_empty());
}
