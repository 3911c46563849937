//! Nodes that have not heard of each other's changes.

use crate::Control;
use crate::manager::replication::tests::{Nodes, until};
use crate::model::{
    AllowHosts, DenyHosts, ErrorKind, HostChange, SetHosts, VolumeName, VolumeStatus,
};

const OLD: &str = "nqn.2014-08.org.test:old";
const NEW: &str = "nqn.2014-08.org.test:new";

fn allow(host: &str) -> HostChange {
    HostChange::Allow(AllowHosts {
        hosts: vec![host.into()],
        any_host: false,
    })
}

fn deny(host: &str) -> HostChange {
    HostChange::Deny(DenyHosts {
        hosts: vec![host.into()],
        ..DenyHosts::default()
    })
}

fn changed(nodes: &Nodes, name: &VolumeName, change: HostChange) -> VolumeStatus {
    let manager = &nodes.rooms[0].manager;
    manager.change_hosts(name, change).expect("changed")
}

#[test]
fn a_host_is_let_in_where_nodes_are_reached_and_turned_away_only_if_all_are() {
    let mut nodes = Nodes::new(2);
    let name = nodes.volume(2);
    assert!(changed(&nodes, &name, allow(OLD)).warnings.is_empty());
    assert_eq!(nodes.look(1, &name).allow_hosts, [OLD]);
    drop(nodes.rooms.remove(1));
    let status = changed(&nodes, &name, allow(NEW));
    assert_eq!(status.allow_hosts, [OLD, NEW]);
    assert!(
        status.warnings[0].starts_with("node n2 has not heard"),
        "{:?}",
        status.warnings
    );
    let manager = &nodes.rooms[0].manager;
    let refused = manager
        .change_hosts(&name, deny(OLD))
        .expect_err("node n2 is away");
    assert_eq!(refused.kind, ErrorKind::Environment);
    assert!(refused.message.contains("Nothing was changed"), "{refused}");
    assert_eq!(nodes.look(0, &name).allow_hosts, [OLD, NEW]);
}

#[test]
fn a_copy_that_was_out_of_service_serves_by_what_has_changed_since() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    changed(&nodes, &name, allow(OLD));
    let manager = &nodes.rooms[1].manager;
    let state = &manager.state;
    let before = state.read().volumes[0].clone();
    let drives = nodes.export(1);
    let list = SetHosts {
        allow_hosts: vec![NEW.into()],
        ..SetHosts::default()
    };
    // Its pool is away, and it hears of it all the same.
    changed(&nodes, &name, HostChange::Set(list));
    assert_eq!(state.read().volumes[0].allow_hosts, [NEW]);
    state
        .update(|state| state.put_volume(before))
        .expect("as one that was off");
    nodes.import(1, drives);
    assert_eq!(nodes.look(1, &name).allow_hosts, [NEW], "before it serves");
}

#[test]
fn nodes_that_are_reached_agree_by_themselves() {
    let nodes = Nodes::new(3);
    let name = nodes.volume(3);
    changed(&nodes, &name, allow(OLD));
    // As a change that was made here while the others were away.
    let manager = &nodes.rooms[2].manager;
    let away = manager.state.update(|state| {
        let mut access = state.volumes[0].clone();
        access.change_to(crate::model::HostList {
            hosts: vec![NEW.into()],
            any_host: false,
        });
        state.put_volume(access);
    });
    away.expect("written");
    for node in [0, 1] {
        until("it has heard", || {
            nodes.look(node, &name).allow_hosts == [NEW]
        });
    }
}
