//! A running `ashlar serve`, seen from outside.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, ExitStatus};

use rustix::process::Signal;

use crate::common::{Running, ashlar, eventually};

pub const NQN: &str = "nqn.2024-01.com.example:serve";

pub struct Target {
    process: Running,
    pub address: SocketAddr,
}

/// `ashlar serve` with these arguments.
pub fn serve(arguments: &[&str]) -> Command {
    let mut command = ashlar(["serve"]);
    command.args(arguments);
    command
}

impl Target {
    /// Serves 64 MiB of memory on a free port.
    pub fn start() -> Self {
        Self::with(&["--listen", "127.0.0.1:0"])
    }

    /// The same with these arguments, which say where to listen.
    pub fn with(arguments: &[&str]) -> Self {
        Self::for_hosts(&["--allow-any-host"], arguments)
    }

    /// The same for these hosts only.
    pub fn for_hosts(hosts: &[&str], arguments: &[&str]) -> Self {
        let common = ["--device", "memory:64MiB", "--nqn", NQN];
        let mut process = Running::start(&mut serve(&[&common, hosts, arguments].concat()));
        let words = process.ready();
        assert_eq!(words[1..], [NQN]);
        let address = words[0].parse().expect("an address");
        Self { process, address }
    }

    fn proc(&self, name: &str) -> String {
        let path = format!("/proc/{}/{name}", self.process.id());
        fs::read_to_string(path).expect("the process is alive")
    }

    /// Resident memory in KiB.
    pub fn rss_kib(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .expect("VmRSS")
    }

    /// Open descriptors.
    pub fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.process.id());
        fs::read_dir(path).expect("the process is alive").count()
    }

    /// Waits until no more than `count` descriptors are open.
    pub fn await_descriptors(&self, count: usize) {
        let what = format!("no more than {count} descriptors are open");
        eventually(&what, || self.descriptors() <= count);
    }

    /// CPU time used so far, in ticks of 10 ms.
    pub fn cpu_ticks(&self) -> u64 {
        let stat = self.proc("stat");
        let (_, after_name) = stat.rsplit_once(')').expect("a name in parentheses");
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        [fields[11], fields[12]]
            .iter()
            .filter_map(|field| field.parse::<u64>().ok())
            .sum()
    }

    /// CPU time in nanoseconds of each core's thread, by name.
    pub fn core_threads(&self) -> Vec<(String, u64)> {
        let folder = format!("/proc/{}/task", self.process.id());
        let threads = fs::read_dir(folder)
            .expect("the process is alive")
            .filter_map(|thread| {
                let path = thread.ok()?.path();
                let name = fs::read_to_string(path.join("comm"))
                    .ok()?
                    .trim()
                    .to_owned();
                let used = fs::read_to_string(path.join("schedstat")).ok()?;
                let nanos = used.split_whitespace().next()?.parse().ok()?;
                name.starts_with("core-").then_some((name, nanos))
            });
        let mut threads: Vec<_> = threads.collect();
        threads.sort();
        threads
    }

    /// Sends a signal and waits for the end.
    pub fn end(mut self, signal: Signal) -> ExitStatus {
        self.process.end(signal)
    }
}
