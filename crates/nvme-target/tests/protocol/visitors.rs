//! Connections that carry no queue of a subsystem: how many one address, and all, may have.

use std::net::IpAddr;
use std::time::Duration;

use ashlar_nvme::fabrics::{CNTLID_DYNAMIC, DISCOVERY_NQN};
use ashlar_nvme::pdu::Digests;

use crate::host::{Host, queue};
use crate::world::{Plan, World};

const MOST_OF_AN_ADDRESS: usize = 256;
const MOST: usize = 4096;
const MOMENT: Duration = Duration::from_nanos(1000);

fn open(world: &World) -> usize {
    world.wires.iter().filter(|wire| !wire.is_closed()).count()
}

fn dial(world: &mut World, from: IpAddr) -> usize {
    world.now = world.now + MOMENT;
    let wire = world.dial_from(from);
    world.settle();
    wire
}

#[test]
fn one_address_has_so_many_and_loses_its_oldest() {
    let mut world = World::new(&Plan::default());
    let (admin, _) = Host::admin(&mut world, Digests::NONE);
    let mut discovery = Host::dial(&mut world, Digests::NONE);
    let reply = discovery.connect_to(&mut world, DISCOVERY_NQN, queue(0, 32), CNTLID_DYNAMIC);
    assert!(reply.status().is_success());
    let elsewhere = dial(&mut world, [10, 0, 0, 3].into());
    let silent: Vec<usize> = (1..MOST_OF_AN_ADDRESS)
        .map(|_| dial(&mut world, [10, 0, 0, 2].into()))
        .collect();
    assert!(!world.wires[discovery.wire].is_closed());

    let newest = dial(&mut world, [10, 0, 0, 2].into());
    assert!(world.wires[discovery.wire].is_closed(), "it was the oldest");
    dial(&mut world, [10, 0, 0, 2].into());
    assert!(world.wires[silent[0]].is_closed(), "now this one was");
    for wire in [admin.wire, elsewhere, newest, silent[1]] {
        assert!(!world.wires[wire].is_closed(), "{wire}");
    }
}

#[test]
fn a_burst_closes_as_many_as_are_too_many() {
    let mut world = World::new(&Plan::default());
    for _ in 0..3 * MOST_OF_AN_ADDRESS {
        world.dial_from([10, 0, 0, 2].into());
    }
    world.settle();
    assert_eq!(open(&world), MOST_OF_AN_ADDRESS);
}

#[test]
fn all_addresses_together_have_so_many() {
    let mut world = World::new(&Plan::default());
    let (admin, _) = Host::admin(&mut world, Digests::NONE);
    let address = |n: usize| IpAddr::from([10, 1, (n >> 8) as u8, n as u8]);
    let first = dial(&mut world, address(0));
    for n in 1..MOST {
        dial(&mut world, address(n));
    }
    assert_eq!(open(&world), MOST + 1);
    let last = dial(&mut world, address(MOST));
    assert_eq!(open(&world), MOST + 1);
    assert!(world.wires[first].is_closed());
    assert!(!world.wires[last].is_closed() && !world.wires[admin.wire].is_closed());
}
