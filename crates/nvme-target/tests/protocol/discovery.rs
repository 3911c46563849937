//! The discovery log: what a host is told to connect to.

use std::time::Duration;

use ashlar_nvme::command::{GetLogPage, Identify};
use ashlar_nvme::fabrics::{AddressFamily, CNTLID_DYNAMIC, DISCOVERY_NQN};
use ashlar_nvme::identify::{IdentifyController, cns};
use ashlar_nvme::log::{DiscoveryEntry, DiscoveryHeader, lid};
use ashlar_nvme::pdu::Digests;
use ashlar_nvme::{Command, Status};
use ashlar_nvme_target::HostAccess;

use crate::host::{Host, queue};
use crate::world::{HOST, NQN, Plan, World};

fn log(lid: u8, offset: u64, bytes: u64) -> Command {
    let ask = GetLogPage {
        lid,
        lsp: 0,
        retain_event: false,
        bytes,
        offset,
        offset_type: false,
    };
    Command::get_log_page(0, ask)
}

fn discover(world: &mut World, hostnqn: &str) -> Vec<DiscoveryEntry> {
    let mut host = Host::dial(world, Digests::NONE);
    host.hostnqn = hostnqn.into();
    let reply = host.connect_to(world, DISCOVERY_NQN, queue(0, 32), CNTLID_DYNAMIC);
    assert!(reply.status().is_success());
    host.enable(world);
    let head = host.call(world, log(lid::DISCOVERY, 0, 1024), &[]);
    let header = DiscoveryHeader::parse(&head.data).expect("a header");
    let all = host.call(
        world,
        log(lid::DISCOVERY, 0, 1024 * (1 + header.numrec.get())),
        &[],
    );
    let again = DiscoveryHeader::parse(&all.data).expect("a header");
    assert_eq!(again.genctr, header.genctr);
    DiscoveryEntry::list(&all.data[1024..], header.numrec.get()).to_vec()
}

#[test]
fn a_host_that_discovers_without_a_keep_alive_does_not_stay_for_ever() {
    let mut world = World::new(&Plan::default());
    let mut host = Host::dial(&mut world, Digests::NONE);
    let reply = host.connect_to(&mut world, DISCOVERY_NQN, queue(0, 32), CNTLID_DYNAMIC);
    assert!(reply.status().is_success());
    host.enable(&mut world);
    world.pass(Duration::from_secs(119));
    host.call(&mut world, log(lid::DISCOVERY, 0, 1024), &[]);
    world.pass(Duration::from_secs(119));
    assert!(!world.wires[host.wire].is_closed());
    world.pass(Duration::from_secs(3));
    assert!(world.wires[host.wire].is_closed());
}

#[test]
fn a_host_is_told_the_address_that_it_used() {
    for (local, family, traddr) in [
        ("127.0.0.1:4420", AddressFamily::Ipv4, "127.0.0.1"),
        ("[::1]:4421", AddressFamily::Ipv6, "::1"),
        ("[::ffff:10.0.2.2]:4420", AddressFamily::Ipv4, "10.0.2.2"),
    ] {
        let mut world = World::new(&Plan::default());
        world.local = local.parse().expect("an address");
        let entries = discover(&mut world, HOST);
        assert_eq!(entries.len(), 1);
        let entry = &entries[0];
        assert_eq!(
            (entry.subnqn(), entry.traddr()),
            (NQN.into(), traddr.into())
        );
        assert_eq!(entry.trsvcid(), world.local.port().to_string());
        assert_eq!(
            (entry.adrfam, entry.trtype, entry.subtype),
            (family as u8, 3, 2)
        );
        assert_eq!(entry.cntlid.get(), 0xffff);
    }
}

#[test]
fn an_advertised_address_wins() {
    let advertise = Some("192.0.2.7:8009".parse().expect("an address"));
    let mut world = World::new(&Plan {
        advertise,
        ..Plan::default()
    });
    let entries = discover(&mut world, HOST);
    assert_eq!(
        (entries[0].traddr(), entries[0].trsvcid()),
        ("192.0.2.7".into(), "8009".into())
    );
}

#[test]
fn a_host_sees_only_what_it_may_connect_to() {
    let access = HostAccess::Listed(vec![HOST.into()]);
    let mut world = World::new(&Plan {
        access,
        ..Plan::default()
    });
    assert_eq!(discover(&mut world, HOST).len(), 1);
    assert_eq!(
        discover(&mut world, "nqn.2024-01.com.example:stranger").len(),
        0
    );
}

#[test]
fn the_discovery_controller_is_one() {
    let mut world = World::new(&Plan::default());
    let mut host = Host::dial(&mut world, Digests::NONE);
    let connected = host.connect_to(&mut world, DISCOVERY_NQN, queue(0, 32), CNTLID_DYNAMIC);
    host.enable(&mut world);
    let ask = Identify {
        cns: cns::CONTROLLER,
        ..Identify::default()
    };
    let reply = host.call(&mut world, Command::identify(0, ask), &[]);
    let id = IdentifyController::parse(&reply.data).expect("a page");
    assert_eq!((id.cntrltype, id.subnqn()), (2, DISCOVERY_NQN.into()));
    assert_eq!(id.cntlid.get(), connected.completion.connected_cntlid());
    assert_ne!(id.kas.get(), 0);
    let ask = Identify {
        cns: cns::ACTIVE_NAMESPACES,
        ..Identify::default()
    };
    let reply = host.call(&mut world, Command::identify(0, ask), &[]);
    assert!(reply.status().is(Status::INVALID_FIELD));
    let reply = host.call(&mut world, log(lid::FIRMWARE_SLOT, 0, 512), &[]);
    assert_eq!(reply.status().code(), 0x109);
    // An I/O queue of the discovery controller there is not.
    let mut io = Host::dial(&mut world, Digests::NONE);
    let reply = io.connect_to(&mut world, DISCOVERY_NQN, queue(1, 32), id.cntlid.get());
    assert_eq!(reply.status().code(), 0x182);
}

#[test]
fn portals_of_other_targets_come_and_go_and_are_told() {
    let mut world = World::new(&Plan::default());
    let (mut host, generation) = {
        let mut host = Host::dial(&mut world, Digests::NONE);
        host.connect_to(&mut world, DISCOVERY_NQN, queue(0, 32), CNTLID_DYNAMIC);
        host.enable(&mut world);
        let want = Command::set_features(
            0,
            ashlar_nvme::feature::fid::ASYNC_EVENT_CONFIGURATION,
            ashlar_nvme::event::notices::DISCOVERY_LOG_CHANGE,
        );
        host.call(&mut world, want, &[]);
        let head = host.call(&mut world, log(lid::DISCOVERY, 0, 1024), &[]);
        let header = DiscoveryHeader::parse(&head.data).expect("a header");
        (host, header.genctr.get())
    };
    let told = host.send(&mut world, Command::async_event_request(), &[]);
    host.settle(&mut world);
    let here = world.local;
    let there = "192.0.2.8:4420".parse().expect("an address");
    world
        .target
        .set_portals(NQN, vec![here, there])
        .expect("there");
    world.tell(&[ashlar_nvme_target::Notice::Events]);
    host.settle(&mut world);
    assert!(host.replies.contains_key(&told));
    let entries = discover(&mut world, HOST);
    let addresses: Vec<String> = entries.iter().map(|one| one.traddr()).collect();
    assert_eq!(addresses, ["127.0.0.1", "192.0.2.8"], "each once");
    // The same again is no news.
    world
        .target
        .set_portals(NQN, vec![here, there])
        .expect("there");
    let head = host.call(&mut world, log(lid::DISCOVERY, 0, 1024), &[]);
    let header = DiscoveryHeader::parse(&head.data).expect("a header");
    assert_eq!(header.genctr.get(), generation + 1);
}
