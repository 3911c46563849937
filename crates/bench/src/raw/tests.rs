//! The raw client against a real target and against the bare server, both in this process.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use ashlar_block::BlockSize;
use ashlar_device::Spec;
use ashlar_nvme_target::server::{CoreDeath, Export, Server, ServerConfig};
use ashlar_nvme_target::{HostAccess, Timeouts};
use ashlar_reactor::{Options, available_cores};

use super::load::Plan;
use super::{Host, Load, Wait};
use crate::args::BareShape;
use crate::bare;
use crate::figures::Case;

const NQN: &str = "nqn.2026-11.io.ashlar:bench-test";
const PLAN: Plan = Plan {
    warmup: Duration::from_millis(20),
    measure: Duration::from_millis(80),
    wait: Wait::Sleep,
};
const CASES: [Case; 4] = [
    Case::new("randread", 4096, 1),
    Case::new("randread", 4096, 128),
    Case::new("randwrite", 4096, 128),
    Case::new("randread", 65_536, 8),
];

fn target() -> Server {
    let spec: Spec = "memory:4MiB".parse().unwrap();
    let refuse = &mut |_: &str, _| unreachable!("memory is here");
    let device = ashlar_device::open_with(&spec, BlockSize::B4096, refuse).unwrap();
    let export = Export {
        nqn: NQN.into(),
        devices: vec![device],
        identities: Vec::new(),
        access: HostAccess::Any,
        advertise: None,
        reservations: Vec::new(),
        shared: None,
    };
    let config = ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        cores: available_cores().into_iter().take(1).collect(),
        reactor: Options::default(),
        exports: vec![export],
        timeouts: Timeouts::default(),
        hold: false,
        on_core_death: CoreDeath::Report,
    };
    Server::start(config).unwrap()
}

/// Completed commands a second, and how often the measured time's ends were told.
fn run(load: &mut Load, case: &Case) -> (f64, u32) {
    let mut told = 0;
    let count = || {
        told += 1;
        Ok(())
    };
    let iops = load.run(case, &PLAN, count).unwrap();
    (iops, told)
}

#[test]
fn a_target_is_filled_and_loaded_in_every_way() {
    let server = target();
    let mut host = Host::connect(server.address(), NQN, 0, Some(Duration::from_secs(60))).unwrap();
    let mut load = host.load().unwrap();
    assert!(host.load().is_err(), "one queue, one load");
    load.fill().unwrap();
    for case in &CASES {
        let (iops, told) = run(&mut load, case);
        assert!(iops > 0.0, "{case:?}");
        assert_eq!(told, 2);
    }
    host.keep_alive().unwrap();
    // Larger than the namespace: an error, not a command that the target must refuse.
    let too_large = Case::new("randread", 8 << 20, 1);
    assert!(load.run(&too_large, &PLAN, || Ok(())).is_err());
    server.stopper()();
    server.wait().unwrap();
}

#[test]
fn a_wrong_name_is_an_error() {
    let server = target();
    let refused = Host::connect(server.address(), "nqn.2026-11.io.ashlar:unknown", 0, None);
    let text = refused.err().unwrap().to_string();
    assert!(text.starts_with("Connect: "), "{text}");
    server.stopper()();
    server.wait().unwrap();
}

fn bare_server(shape: BareShape) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || bare::serve(listener.accept().unwrap().0, &shape));
    address
}

#[test]
fn the_bare_server_answers_the_same_load() {
    for case in &CASES {
        let address = bare_server(BareShape {
            block: case.block_bytes,
            write: case.is_write(),
            spin_us: 0,
        });
        let mut load = Load::bare(address, 4 << 20).unwrap();
        for _ in 0..2 {
            assert!(run(&mut load, case).0 > 0.0, "{case:?}");
        }
    }
}

#[test]
fn answers_of_the_wrong_size_are_noticed() {
    let address = bare_server(BareShape {
        block: 8192,
        write: false,
        spin_us: 0,
    });
    let mut load = Load::bare(address, 4 << 20).unwrap();
    let error = load.run(&CASES[0], &PLAN, || Ok(())).unwrap_err();
    assert!(error.to_string().contains("8192 bytes came"), "{error}");
}

#[test]
fn a_server_that_leaves_is_an_error() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || drop(listener.accept().unwrap()));
    let mut load = Load::bare(address, 4 << 20).unwrap();
    assert!(load.run(&CASES[0], &PLAN, || Ok(())).is_err());
}
