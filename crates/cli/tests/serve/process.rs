//! A running `ashlar serve`, seen from outside.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub const NQN: &str = "nqn.2024-01.com.example:serve";
/// How long anything may take before a test gives up: far more than it should.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Target {
    child: Child,
    pub address: SocketAddr,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
    command.arg("serve").args(arguments);
    command
}

/// Runs it where it is to end by itself.
pub fn run(arguments: &[&str]) -> Output {
    command(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it runs")
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
        let mut child = command(&[&common, hosts, arguments].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("ready"), "{line:?}");
        let address = words
            .next()
            .and_then(|word| word.parse().ok())
            .expect("an address");
        assert_eq!((words.next(), words.next()), (Some(NQN), None));
        Self { child, address }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn proc(&self, name: &str) -> String {
        let path = format!("/proc/{}/{name}", self.child.id());
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
        let path = format!("/proc/{}/fd", self.child.id());
        fs::read_dir(path).expect("the process is alive").count()
    }

    /// Waits until no more than `count` descriptors are open.
    pub fn await_descriptors(&self, count: usize) {
        let start = Instant::now();
        while self.descriptors() > count {
            assert!(
                start.elapsed() < PATIENCE,
                "{} descriptors, not {count}",
                self.descriptors()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
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
        let folder = format!("/proc/{}/task", self.child.id());
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
        kill_process(self.pid(), signal).expect("it is alive");
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
