//! Starting and ending: the ready line, exit codes, and errors that name the thing.

use std::net::TcpListener;

use rustix::process::Signal;

use ashlar_nvme::fabrics::CNTLID_DYNAMIC;

use crate::client::{Client, HOST, connect, is_served};
use crate::common::{ended, refuses};
use crate::process::{NQN, Target, serve};

#[test]
fn it_says_ready_serves_and_ends_well_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let target = Target::start();
        is_served(target.address, 1);
        let (_admin, cntlid) = Client::admin(target.address);
        let _io = Client::io(target.address, cntlid, 1);
        assert_eq!(target.end(signal).code(), Some(0));
    }
}

#[test]
fn it_listens_on_ipv6() {
    let target = Target::with(&["--listen", "[::1]:0"]);
    assert!(target.address.is_ipv6());
    is_served(target.address, 2);
}

fn fails(arguments: &[&str], code: i32, names: &[&str]) {
    refuses(&mut serve(arguments), code, names);
}

const MEMORY: [&str; 3] = ["--allow-any-host", "--device", "memory:16MiB"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&MEMORY[..], more].concat()
}

#[test]
fn a_command_line_without_sense_is_a_usage_error() {
    let nqn = ["--nqn", NQN, "--listen", "127.0.0.1:0"];
    let cases: [(&[&str], &str); 9] = [
        (
            &["--nqn", "not-an-nqn", "--listen", "127.0.0.1:0"],
            "not-an-nqn",
        ),
        (
            &[
                "--nqn",
                "nqn.2014-08.org.nvmexpress.discovery",
                "--listen",
                "127.0.0.1:0",
            ],
            "discovery",
        ),
        (&["--nqn", NQN, "--listen", "localhost"], "--listen"),
        (
            &["--nqn", NQN, "--listen", "127.0.0.1:0", "--cores", "4095"],
            "4095",
        ),
        (
            &["--nqn", NQN, "--listen", "127.0.0.1:0", "--cores", "x"],
            "--cores",
        ),
        (
            &["--nqn", NQN, "--listen", "127.0.0.1:0", "--block", "1000"],
            "1000",
        ),
        (
            &[
                "--nqn",
                NQN,
                "--listen",
                "127.0.0.1:0",
                "--device",
                "memory:12parsecs",
            ],
            "12parsecs",
        ),
        (
            &[
                "--nqn",
                NQN,
                "--listen",
                "127.0.0.1:0",
                "--advertise",
                "there",
            ],
            "--advertise",
        ),
        (&["--listen", "127.0.0.1:0"], "--nqn"),
    ];
    for (arguments, name) in cases {
        fails(&with(arguments), 2, &[name]);
    }
    fails(
        &[&nqn[..], &["--allow-any-host"]].concat(),
        2,
        &["--device"],
    );
    let both = [&with(&nqn)[..], &["--allow-host", NQN]].concat();
    fails(&both, 2, &["--allow-host"]);
}

#[test]
fn what_this_machine_cannot_give_is_an_environment_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let odd = path("odd");
    std::fs::write(&odd, vec![0; 10_000]).expect("a file");
    let empty = path("empty");
    std::fs::write(&empty, []).expect("a file");
    let missing = path("missing");
    let here = folder.path().display().to_string();
    for (path, code, more) in [
        (&missing, 3, ""),
        (&here, 3, ""),
        (&empty, 3, ""),
        // The fault is in the block size asked for.
        (&odd, 2, "10000"),
    ] {
        let device = format!("file:{path}");
        let common = [
            "--nqn",
            NQN,
            "--listen",
            "127.0.0.1:0",
            "--allow-any-host",
            "--device",
        ];
        fails(&[&common[..], &[&device]].concat(), code, &[path, more]);
    }
    assert!(!std::path::Path::new(&missing).exists());
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    fails(&with(&["--nqn", NQN, "--listen", &address]), 3, &[&address]);
    // An address for documentation, which no machine has.
    fails(
        &with(&["--nqn", NQN, "--listen", "192.0.2.1:4420"]),
        3,
        &["192.0.2.1:4420"],
    );
}

#[test]
fn a_host_that_is_not_named_is_refused() {
    let listen = ["--listen", "127.0.0.1:0"];
    let listed = Target::for_hosts(&["--allow-host", HOST, "--allow-host", NQN], &listen);
    is_served(listed.address, 3);
    let other = Target::for_hosts(&["--allow-host", NQN], &listen);
    let mut client = Client::greeted(other.address);
    let (command, data) = connect(0, CNTLID_DYNAMIC);
    let (completion, _) = client.call(command, data.as_wire());
    assert_eq!(completion.status().code(), 0x184);
    let refused = ended(&mut serve(&[
        "--device",
        "memory:16MiB",
        "--nqn",
        NQN,
        "--listen",
        "192.0.2.1:4420",
    ]));
    let error = refused.error;
    assert!(
        error.contains("--allow-host"),
        "it says that no host may connect: {error}"
    );
}
