//! Against a target that is not ours, whose URL stands in `ASHLAR_TEST_PEER`, for instance
//! `nvme-tcp://127.0.0.1:4430/nqn.2016-06.io.spdk:malloc`. Overwrites the namespace's start.

mod exercise;

use ashlar_nvme_initiator::{discover, identify, local_host};

fn peer() -> Option<String> {
    let peer = std::env::var("ASHLAR_TEST_PEER").ok();
    if peer.is_none() {
        eprintln!("ASHLAR_TEST_PEER is not set: nothing is tested");
    }
    peer
}

#[test]
fn discovery_lists_it_and_identify_describes_it() {
    let Some(peer) = peer() else { return };
    let config = exercise::config(&peer);
    let entries = discover(&config.address, &local_host()).expect("discovery");
    assert!(
        entries.iter().any(|entry| entry.subnqn() == config.nqn),
        "{entries:?}"
    );
    let found = identify(&config.address, &config.nqn, &local_host()).expect("identify");
    assert!(!found.namespaces.is_empty());
    assert_eq!(found.controller.subnqn(), config.nqn);
    println!("{} {:?}", found.controller.model(), found.namespaces[0].ids);
}

#[test]
fn every_operation_works_with_and_without_digests() {
    let Some(peer) = peer() else { return };
    for options in [
        "",
        "?hdgst=on&ddgst=on",
        "?queues=3&depth=16",
        "?hdgst=on&depth=1",
        "?ddgst=on",
    ] {
        let options = if peer.contains('?') {
            options.replace('?', "&")
        } else {
            options.into()
        };
        exercise::exercise(&format!("{peer}{options}"));
    }
}
