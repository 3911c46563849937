//! Ours against a peer's target, both driven by the peer's own perf tool.
//!
//! A target that polls takes its core whether it is used or not, so it is stopped while ours is
//! measured; ours sleeps while the peer's is.

use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::peer_config::{PEER_NQN, config};
use super::perf::{Loaded, Perf, core_mask};
use super::{Bench, MEMORY, MEMORY_BYTES};
use crate::child::{Child, Program, words};
use crate::failure::Failure;
use crate::figures::{Case, Row};
use crate::raw::Host;
use crate::serve::{self, NQN};
use crate::signals::Temporary;

const TARGET: &str = "ASHLAR_PEER_TARGET";
const PERF: &str = "ASHLAR_PEER_PERF";
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// After a target was stopped or woken, and for it to notice that a host has left.
const SETTLE: Duration = Duration::from_millis(200);

/// A load, the IOPS ratio hoped for, and that of IOPS per second of processor time.
const CASES: &[(Case, f64, Option<f64>)] = &[
    (Case::new("randread", 4096, 1), 0.95, None),
    (Case::new("randread", 4096, 32), 1.0, Some(1.3)),
    (Case::new("randread", 4096, 128), 1.0, Some(1.3)),
    (Case::new("randwrite", 4096, 1), 0.95, None),
    (Case::new("randwrite", 4096, 32), 1.0, Some(1.3)),
    (Case::new("randwrite", 4096, 128), 1.0, Some(1.3)),
    (Case::new("randread", 65_536, 8), 1.0, None),
];

/// The comparison, or why there is none.
pub(super) fn measure(bench: &Bench<'_>) -> Result<Result<Vec<Row>, String>, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let (Some(target), Some(perf)) = (set(TARGET), set(PERF)) else {
        return Ok(Err(format!(
            "skipped: {TARGET} (the peer's target, SPDK's nvmf_tgt) and {PERF} (its spdk_nvme_perf) are not set"
        )));
    };
    compare(bench, program(&target, TARGET)?, program(&perf, PERF)?).map(Ok)
}

fn program(path: &OsStr, variable: &str) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(path);
    if path.is_file() {
        return Ok(path);
    }
    let name = path.display();
    Err(Failure::environment(format!(
        "{variable}={name}: no such program"
    )))
}

fn compare(bench: &Bench<'_>, target: PathBuf, tool: PathBuf) -> Result<Vec<Row>, Failure> {
    let peer = Peer::start(bench, target)?;
    peer.child.pause()?;
    let ours = serve::ashlar(bench.options, "peer-ours", MEMORY, &[bench.server_core])?;
    // The peer's memory was written when it was made: so is ours.
    Host::connect(ours.address, NQN, 0, None)?.load()?.fill()?;
    let perf = Perf {
        tool,
        core: bench.client_core,
        seconds: (bench.length.as_secs_f64().ceil() as u32).max(1),
        out: &bench.options.out,
    };
    let us = Loaded {
        address: ours.address,
        nqn: NQN,
        pid: ours.pid(),
    };
    let them = Loaded {
        address: peer.address,
        nqn: PEER_NQN,
        pid: peer.child.pid(),
    };
    let mut rows = Vec::new();
    for (case, goal_iops, goal_cpu) in CASES {
        let base = || {
            peer.child.go_on()?;
            std::thread::sleep(SETTLE);
            let round = perf.round(case, them);
            std::thread::sleep(SETTLE);
            peer.child.pause()?;
            round
        };
        let (a, b) = bench.in_turn(|| perf.round(case, us), base)?;
        rows.push(Row {
            goal_iops: Some(*goal_iops),
            goal_iops_per_cpu_s: *goal_cpu,
            ..Row::of(*case, a, b)
        });
    }
    Ok(rows)
}

/// The peer's target.
struct Peer {
    child: Child,
    address: SocketAddr,
    _control: Temporary,
    _config: Temporary,
}

impl Peer {
    fn start(bench: &Bench<'_>, path: PathBuf) -> Result<Self, Failure> {
        let out = &bench.options.out;
        let address = free_address()?;
        let file = Temporary::new(out.join("peer-target.json"));
        let text = config(address.port(), MEMORY_BYTES / 4096).to_string();
        std::fs::write(file.path(), text).map_err(Failure::doing(file.path().display()))?;
        // A socket's path is at most 107 bytes.
        let socket = format!("ashlar-bench-{}.sock", std::process::id());
        let control = Temporary::new(std::env::temp_dir().join(socket));
        let mut args = words([
            "-m",
            &core_mask(bench.server_core),
            "--no-huge",
            "-s",
            "1024",
        ]);
        args.extend(words(["--no-pci", "--disable-cpumask-locks", "-r"]));
        args.push(control.path().into());
        args.push("-c".into());
        args.push(file.path().into());
        let program = Program {
            name: "the peer's target".into(),
            path,
            args,
            core: None,
            log: out.join("peer-target.log"),
            output: Some(out.join("peer-target.txt")),
        };
        let mut peer = Self {
            child: program.start()?,
            address,
            _control: control,
            _config: file,
        };
        peer.await_listening()?;
        Ok(peer)
    }

    fn await_listening(&mut self) -> Result<(), Failure> {
        let give_up = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(self.address).is_err() {
            if self.child.ended()?.is_some() {
                return Err(self.child.failed("ended"));
            }
            if Instant::now() > give_up {
                return Err(self.child.failed("does not listen"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(SETTLE);
        Ok(())
    }
}

/// An address that was free a moment ago.
fn free_address() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(Failure::doing("127.0.0.1"))?;
    listener.local_addr().map_err(Failure::doing("127.0.0.1"))
}
