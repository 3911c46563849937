use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ashlar_cluster::EtcdEndpoint;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PROGRAM: &str = "/usr/bin/etcd";

/// One member, with its data in a folder of its own.
pub(crate) struct Etcd {
    folder: TempDir,
    clients: SocketAddr,
    peers: SocketAddr,
    child: Option<Child>,
}

/// An address of loopback that this process alone uses, with a free port.
pub(crate) fn free_address() -> SocketAddr {
    let pid = std::process::id();
    let ip = [127, 1 + (pid % 250) as u8, (pid / 250 % 256) as u8, 1];
    let listener = TcpListener::bind(SocketAddr::from((ip, 0))).expect("a port");
    listener.local_addr().expect("an address")
}

impl Etcd {
    /// `None`, and said aloud, where there is no etcd; under CI=true that is a failure.
    pub(crate) fn start() -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "CI=true, and there is no {PROGRAM}"
            );
            eprintln!("skipped: there is no {PROGRAM} (Debian: etcd-server)");
            return None;
        }
        let mut etcd = Self {
            folder: tempfile::tempdir().expect("a folder"),
            clients: free_address(),
            peers: free_address(),
            child: None,
        };
        etcd.run();
        Some(etcd)
    }

    pub(crate) fn endpoint(&self) -> EtcdEndpoint {
        self.clients.into()
    }

    /// Runs it, and waits until it listens.
    pub(crate) fn run(&mut self) {
        let (clients, peers) = (
            format!("http://{}", self.clients),
            format!("http://{}", self.peers),
        );
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a log");
        let data = self.folder.path().join("data");
        let child = Command::new(PROGRAM)
            .args(["--name", "one", "--listen-client-urls", &clients])
            .args([
                "--advertise-client-urls",
                &clients,
                "--listen-peer-urls",
                &peers,
            ])
            .args(["--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("one={peers}"), "--data-dir"])
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("it runs"));
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(self.clients).is_err() {
            assert!(Instant::now() < end, "etcd does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        let pid = Pid::from_raw(child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("signalled");
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
    }

    /// As after an accident: its data are gone.
    pub(crate) fn empty(&self) {
        std::fs::remove_dir_all(self.folder.path().join("data")).expect("emptied");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}
