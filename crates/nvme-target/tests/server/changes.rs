use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ashlar_block::ErrorKind;
use ashlar_nvme_initiator::{discover, identify, local_host};
use ashlar_nvme_target::server::ServeError;
use uuid::Uuid;

use crate::disk::{Disk, Door};
use crate::rig::{Rig, eventually, export, serve, serve_or_hold, stop};

const NQN: &str = "nqn.2026-01.io.ashlar:pool:one";
const OTHER: &str = "nqn.2026-01.io.ashlar:pool:two";

fn door(disk: &Arc<Disk>) -> Arc<Door> {
    Arc::new(Door(disk.clone()))
}

#[test]
fn a_subsystem_comes_and_goes() {
    let server = serve();
    let address = server.address().to_string();
    assert!(
        discover(&address, &local_host())
            .expect("discovery")
            .is_empty()
    );
    let disk = Disk::new(1000);
    let uuid = Uuid::from_u128(0xfeed);
    let mut first = export(NQN, door(&disk));
    first.identities = vec![Some(uuid)];
    server.add(first.clone()).expect("added");
    assert!(matches!(server.add(first), Err(ServeError::Config(_))));
    let found = discover(&address, &local_host()).expect("discovery");
    assert_eq!(found[0].subnqn(), NQN);
    let found = identify(&address, NQN, &local_host()).expect("identify");
    let namespace = &found.namespaces[0];
    assert_eq!(namespace.namespace.nsze.get(), 1000);
    assert_eq!(namespace.namespace.nguid, uuid.into_bytes());
    assert_eq!(namespace.ids.uuid, Some(uuid.into_bytes()));
    let mut rig = Rig::connect(&server, NQN, "?queues=2").expect("connected");
    rig.write(999, 7);
    rig.check(999, 7);
    drop(rig);
    server.remove(NQN).expect("removed");
    assert_eq!(disk.open.load(Ordering::SeqCst), 0, "closed on every core");
    let error = Rig::connect(&server, NQN, "").err().expect("refused");
    assert!(error.to_string().contains("subsystem NQN"), "{error}");
    assert!(matches!(server.remove(NQN), Err(ServeError::Config(_))));
    // The same disk under another name is the same disk.
    let mut second = export(OTHER, door(&disk));
    second.identities = vec![Some(uuid)];
    server.add(second).expect("added");
    let found = identify(&address, OTHER, &local_host()).expect("identify");
    assert_eq!(found.namespaces[0].ids.uuid, Some(uuid.into_bytes()));
    Rig::connect(&server, OTHER, "")
        .expect("connected")
        .check(999, 7);
    stop(server);
    assert_eq!(disk.open.load(Ordering::SeqCst), 0);
}

#[test]
fn hosts_that_come_too_early_wait_until_they_are_welcome() {
    let server = serve_or_hold(true);
    let disk = Disk::new(100);
    let address = server.address().to_string();
    let early = std::thread::spawn(move || identify(&address, NQN, &local_host()));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!early.is_finished(), "neither let in nor sent away");
    server.add(export(NQN, door(&disk))).expect("added");
    server.control().welcome();
    let found = early.join().expect("no panic").expect("connected");
    assert_eq!(found.namespaces.len(), 1);
    // Once is enough, and twice does no harm.
    server.control().welcome();
    Rig::connect(&server, NQN, "")
        .expect("connected")
        .write(3, 7);
    stop(server);
}

#[test]
fn a_server_that_held_its_hosts_can_be_stopped() {
    stop(serve_or_hold(true));
}

#[test]
fn a_core_that_cannot_open_undoes_the_rest() {
    let server = serve();
    let disk = Disk::new(100);
    for openings in 0..server.control().cores() as u64 {
        disk.openings.store(openings, Ordering::SeqCst);
        match server.add(export(NQN, door(&disk))) {
            Err(ServeError::Device(error)) => assert_eq!(error.kind(), ErrorKind::Exhausted),
            other => panic!("{other:?}"),
        }
        assert_eq!(disk.open.load(Ordering::SeqCst), 0);
        assert!(server.target().subsystems().is_empty());
    }
    disk.openings.store(u64::MAX, Ordering::SeqCst);
    server.add(export(NQN, door(&disk))).expect("added");
    Rig::connect(&server, NQN, "")
        .expect("connected")
        .write(1, 1);
    // A resize that fails is not told, and may be tried again.
    disk.resize(200);
    disk.openings.store(0, Ordering::SeqCst);
    assert!(matches!(server.resized(NQN), Err(ServeError::Device(_))));
    let address = server.address().to_string();
    let size = || {
        let found = identify(&address, NQN, &local_host()).expect("identify");
        found.namespaces[0].namespace.nsze.get()
    };
    assert_eq!(size(), 100);
    disk.openings.store(u64::MAX, Ordering::SeqCst);
    server.resized(NQN).expect("resized");
    assert_eq!(size(), 200);
    stop(server);
}

/// Our initiator looks when it is told, and goes on: growth is no loss.
#[test]
fn hosts_see_a_new_size_while_they_write() {
    let server = serve();
    let disk = Disk::new(100);
    server.add(export(NQN, door(&disk))).expect("added");
    let mut rig = Rig::connect(&server, NQN, "?queues=2").expect("connected");
    for tag in 0..16 {
        rig.submit_write(tag, tag, 1);
    }
    let (start, mut written, mut size) = (Instant::now(), 0, 100);
    while start.elapsed() < Duration::from_millis(600) {
        rig.wait(1);
        for one in std::mem::take(&mut rig.done) {
            one.result.expect("no write fails");
            written += 1;
            rig.submit_write(one.tag, one.tag, written as u8);
        }
        if written / 200 > (size - 100) / 10 {
            size += 10;
            disk.resize(size);
            server.resized(NQN).expect("resized");
        }
    }
    rig.wait(16);
    println!("{written} writes, grown to {size} blocks");
    assert!(size > 110 && written > 200, "{written}");
    assert_eq!(rig.device.inner_mut().losses(), 0);
    rig.done.clear();
    let mut late = Rig::connect(&server, NQN, "").expect("connected");
    late.write(size - 1, 9);
    late.check(size - 1, 9);
    // Nothing is left of the devices that were replaced.
    let cores = server.control().cores();
    assert_eq!(disk.open.load(Ordering::SeqCst), cores);
    drop((rig, late));
    stop(server);
}

#[test]
fn removal_under_load_is_soon_over_and_the_host_is_told_why() {
    let server = serve();
    let (disk, other) = (Disk::new(100), Disk::new(100));
    server.add(export(NQN, door(&disk))).expect("added");
    server.add(export(OTHER, door(&other))).expect("added");
    let mut rig = Rig::connect(&server, NQN, "?queues=2&loss=1s").expect("connected");
    let mut bystander = Rig::connect(&server, OTHER, "").expect("connected");
    for tag in 0..32 {
        rig.submit_write(tag, tag, 1);
    }
    let control = server.control();
    let remover = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let start = Instant::now();
        control.remove(NQN).expect("removed");
        start.elapsed()
    });
    let (mut errors, mut written) = (Vec::new(), 0);
    while errors.len() < 32 {
        rig.wait(1);
        for one in std::mem::take(&mut rig.done) {
            match one.result {
                Ok(()) => {
                    written += 1;
                    rig.submit_write(one.tag, one.tag, 2);
                }
                Err(error) => errors.push(error),
            }
        }
        bystander.write(1, 1);
    }
    let took = remover.join().expect("sound");
    println!("{written} writes, removed in {took:?}, then: {}", errors[0]);
    assert!(written > 0 && took < Duration::from_secs(4), "{took:?}");
    assert_eq!(disk.open.load(Ordering::SeqCst), 0);
    assert_eq!(bystander.device.inner_mut().losses(), 0);
    drop((rig, bystander));
    stop(server);
}

#[test]
fn a_stuck_device_is_reported_and_closes_when_it_can() {
    let server = serve();
    let disk = Disk::new(100);
    server.add(export(NQN, door(&disk))).expect("added");
    let mut rig = Rig::connect(&server, NQN, "?loss=1s").expect("connected");
    rig.write(0, 1);
    disk.hold.store(true, Ordering::SeqCst);
    rig.submit_write(1, 1, 1);
    for _ in 0..20 {
        rig.turn();
    }
    let start = Instant::now();
    match server.remove(NQN) {
        Err(ServeError::Stuck(nqn)) => assert_eq!(nqn, NQN),
        other => panic!("{other:?}"),
    }
    let took = start.elapsed();
    assert!((9..14).contains(&took.as_secs()), "{took:?}");
    // Nothing else waits for it.
    let other = Disk::new(100);
    server.add(export(OTHER, door(&other))).expect("added");
    Rig::connect(&server, OTHER, "")
        .expect("connected")
        .write(1, 1);
    assert_eq!(disk.open.load(Ordering::SeqCst), 1);
    disk.hold.store(false, Ordering::SeqCst);
    eventually("the device closes", || {
        disk.open.load(Ordering::SeqCst) == 0
    });
    drop(rig);
    stop(server);
}
