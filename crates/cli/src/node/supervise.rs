//! The small parent of a clustered node's daemon: it reaps the daemon, and so can certify its death to all peers at once;
//! from anything else they would learn of it when the daemon's promises lapse.
//!
//! ```text
//! ashlar node --cluster … (parent) ── spawns itself ─▶ ashlar node --cluster … (child: the daemon)
//!      SIGTERM, SIGINT ────────────── the same ──────▶
//!      reaps it ◀──────────────────── ends, dies ─────
//!      DEAD to all peers, if the child had written DIR/incarnation in this run
//! ```
//!
//! It restarts nothing, unless it runs a member of etcd besides (`quorum`): that is for what starts services. When the parent dies, the kernel kills the child.

use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;

use ashlar_cluster::{ClusterConfig, Home, NodeId, Remembered, Trust, certify};
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal,
};
use rustix::thread::set_name;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use uuid::Uuid;

use super::quorum::keep_node;
use crate::exit::{CHECK, Failure};

/// What a child finds in its environment: its parent's process, and what the parent calls this run.
const RUN: &str = "ASHLAR_NODE_RUN";

/// Splits the process: in the child it returns `None`, and the child is the daemon; in the parent it returns when the
/// child has ended. Called on the main thread, which spawns the child and must outlive it.
pub(crate) fn supervise(
    config: &ClusterConfig,
    me: NodeId,
    dir: &Path,
) -> Option<Result<(), Failure>> {
    match Run::of_child() {
        Some(run) => run.begin().err().map(Err),
        None => Some(watch(config, me, dir).and_then(|ended| ended.result)),
    }
}

/// The same for a node that has joined a cluster. With a member of etcd of its own it has a longer life: see
/// [`keep_node`].
pub(crate) fn supervise_home(home: &Home, me: NodeId, dir: &Path) -> Option<Result<(), Failure>> {
    match (Run::of_child(), &home.etcd) {
        (None, Some(member)) => Some(keep_node(home, member, dir)),
        _ => supervise(&home.config, me, dir),
    }
}

/// How a daemon has ended.
pub(super) struct Ended {
    pub(super) result: Result<(), Failure>,
    /// Whether it was a node of its cluster before.
    pub(super) had_joined: bool,
}

/// What the parent calls this run: the child writes it into [`Remembered`], so that it is believed.
pub(crate) fn run_id() -> Option<Uuid> {
    Run::of_child().map(|run| run.id)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    parent: u32,
    id: Uuid,
}

impl Run {
    fn of_child() -> Option<Self> {
        Self::parse(&std::env::var(RUN).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let (parent, id) = text.split_once(':')?;
        let parent = parent.parse().ok()?;
        let id = id.parse().ok()?;
        Some(Self { parent, id })
    }

    /// The child lives no longer than its parent: there would be two daemons when another parent starts.
    fn begin(self) -> Result<(), Failure> {
        let cannot =
            |error| Failure::environment(format!("cannot follow the parent process: {error}"));
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(cannot)?;
        // Lists of processes would call it `exe`.
        set_name(c"ashlar").map_err(cannot)?;
        let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
        match parent == self.parent {
            true => Ok(()),
            false => Err(Failure::environment(format!(
                "{RUN} names process {}, which is not the parent of this one: it has died, or the variable was \
                 inherited; unset it",
                self.parent
            ))),
        }
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.parent, self.id)
    }
}

/// The parent, from the child's beginning to its end.
pub(super) fn watch(config: &ClusterConfig, me: NodeId, dir: &Path) -> Result<Ended, Failure> {
    let cannot =
        |error: std::io::Error| Failure::environment(format!("cannot start the daemon: {error}"));
    let run = Run {
        parent: std::process::id(),
        id: Uuid::new_v4(),
    };
    // Before there is a child: a signal that comes early is passed on nevertheless.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(cannot)?;
    let handle = signals.handle();
    let mut child = spawn(run).map_err(cannot)?;
    let target = descriptor(&child).map_err(|error| abandon(&mut child, error));
    let target = target.map_err(cannot)?;
    let forward = move || {
        for signal in signals.forever() {
            pass_on(&target, signal);
        }
    };
    let forwarder = thread::Builder::new().name("signals".into()).spawn(forward);
    let forwarder = forwarder.map_err(|error| abandon(&mut child, error));
    let forwarder = forwarder.map_err(cannot)?;
    let status = child.wait().map_err(cannot)?;
    let was_told = certify_end(config, me, (dir, run));
    match (&was_told, status.success()) {
        (Ok(incarnation), true) => {
            tracing::info!("the daemon has ended, incarnation {incarnation}; its peers were told");
        }
        (Ok(incarnation), false) => {
            tracing::error!("the daemon has died, incarnation {incarnation}; its peers were told");
        }
        (Err(why), true) => tracing::debug!("the daemon's end is certified to no peer: {why}"),
        (Err(why), false) => tracing::warn!("the daemon's death is certified to no peer: {why}"),
    }
    handle.close();
    if forwarder.join().is_err() {
        tracing::error!("what passes signals on has died");
    }
    Ok(Ended {
        result: ended(&child, status),
        had_joined: was_told.is_ok() || status.success(),
    })
}

/// In a process group of its own: a terminal's Ctrl-C reaches the parent only, which passes it on.
fn spawn(run: Run) -> std::io::Result<Child> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "ashlar".into());
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).args(arguments);
    command.env(RUN, run.to_string()).process_group(0).spawn()
}

/// Stands for the child, and for no other process, also when it has ended.
fn descriptor(child: &Child) -> std::io::Result<OwnedFd> {
    let pid = Pid::from_child(child);
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// What cannot be watched must not stay.
fn abandon(child: &mut Child, error: std::io::Error) -> std::io::Error {
    // Both fail only if it has ended.
    let _ = child.kill();
    let _ = child.wait();
    error
}

fn pass_on(child: &OwnedFd, signal: i32) {
    let signal = match signal {
        SIGINT => Signal::INT,
        _ => Signal::TERM,
    };
    // One that has ended needs no signal.
    if let Err(error) = pidfd_send_signal(child, signal) {
        tracing::debug!("a signal cannot be passed on: {error}");
    }
}

/// Tells the peers, if the child had an incarnation: only what it wrote in this run is believed. The directory may be
/// another daemon's, whose child is alive.
///
/// # Errors
/// Why they were not told.
fn certify_end(
    config: &ClusterConfig,
    me: NodeId,
    (dir, run): (&Path, Run),
) -> Result<u64, String> {
    let remembered = Remembered::read(dir).map_err(|problem| problem.to_string())?;
    if remembered.run != Some(run.id) {
        return Err("it was not in the cluster yet".into());
    }
    // Nodes may have joined since the daemon was started.
    let now = Home::open(dir).ok().flatten().map(|home| home.config);
    let is_joined = matches!(config.trust, Trust::Certificates(_));
    certify(
        now.as_ref().filter(|_| is_joined).unwrap_or(config),
        me,
        remembered.incarnation,
    );
    Ok(remembered.incarnation.0)
}

/// What the child's end means for the parent's.
fn ended(child: &Child, status: ExitStatus) -> Result<(), Failure> {
    let code = status
        .code()
        .map(|code| u8::try_from(code).unwrap_or(CHECK));
    match (code, status.signal()) {
        (Some(0), _) => Ok(()),
        // It has said why.
        (Some(code), _) => Err(Failure::passed_on(code)),
        (None, signal) => Err(Failure::check(format!(
            "the daemon (process {}) was killed by signal {}; its log and the kernel's say more",
            child.id(),
            signal.unwrap_or_default()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Stdio;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::time::{Duration, Instant};

    use ashlar_cluster::{
        Cluster, Incarnation, Key, Local, NodeConfig, OrderError, PeerSocket, QuorumConfig,
        VolumeId,
    };
    use rustix::process::{getpid, kill_process, test_kill_process};
    use serde_json::Value;

    use super::*;

    /// Says to a process of this test program that it is a parent, or child, and in which folder.
    const FOLDER: &str = "ASHLAR_TEST_SUPERVISE";
    const LONG: Duration = Duration::from_secs(60);
    const A: NodeId = NodeId(1);

    fn config(port: u16) -> ClusterConfig {
        let node = |id: u8, name: &str| NodeConfig {
            id: NodeId(id.into()),
            name: name.into(),
            replication: ([127, 44, 4, id], port).into(),
            portal: None,
        };
        ClusterConfig {
            name: "test".into(),
            nodes: vec![node(1, "a"), node(2, "b")],
            quorum: QuorumConfig::memory(),
            trust: Trust::Key(Key::new(&[7; 32]).expect("a key")),
            versions: ashlar_cluster::Versions::OURS,
        }
    }

    /// Not a test, but what the tests below run: a parent, and its child, which does as `FOLDER/wish` says.
    #[test]
    fn acts_in_another_test() {
        let Ok(folder) = std::env::var(FOLDER) else {
            return;
        };
        let folder = Path::new(&folder);
        let text = |name: &str| fs::read_to_string(folder.join(name)).expect("there");
        let config = config(text("port").parse().expect("a port"));
        let code = match supervise(&config, A, folder) {
            Some(Ok(())) => 0,
            Some(Err(failure)) => failure.code().into(),
            None => act(folder, &text("wish")),
        };
        std::process::exit(code);
    }

    fn act(folder: &Path, wish: &str) -> i32 {
        let mut signals = Signals::new([SIGTERM]).expect("signals");
        let (code, incarnation) = wish.split_once(' ').expect("two words");
        if incarnation != "none" {
            let incarnation = Incarnation(incarnation.parse().expect("a number"));
            let remembered = Remembered {
                cluster: None,
                incarnation,
                run: run_id(),
            };
            remembered.write(folder).expect("written");
        }
        fs::write(folder.join("child.new"), std::process::id().to_string()).expect("written");
        fs::rename(folder.join("child.new"), folder.join("child")).expect("renamed");
        match code {
            "kill" => kill_process(getpid(), Signal::KILL).expect("killed"),
            "wait" => {
                return if signals.wait().next() == Some(SIGTERM) {
                    0
                } else {
                    9
                };
            }
            code => return code.parse().expect("a code"),
        }
        unreachable!("it was killed");
    }

    struct Family {
        folder: tempfile::TempDir,
    }

    impl Family {
        fn new(port: u16) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            fs::write(folder.path().join("port"), port.to_string()).expect("written");
            Self { folder }
        }

        fn start(&self, wish: &str) -> Child {
            let path = self.folder.path();
            fs::write(path.join("wish"), wish).expect("written");
            // There is none at first.
            let _ = fs::remove_file(path.join("child"));
            let program = std::env::current_exe().expect("this one");
            let parent = Command::new(program)
                .args([
                    "--exact",
                    "node::supervise::tests::acts_in_another_test",
                    "--nocapture",
                ])
                .env(FOLDER, path)
                .stdout(Stdio::null())
                .spawn();
            parent.expect("it runs")
        }

        /// The child's process, when it has done its first steps.
        fn child(&self) -> Pid {
            let file = self.folder.path().join("child");
            until("the child has begun", || file.exists());
            let text = fs::read_to_string(file).expect("there");
            Pid::from_raw(text.parse().expect("a number")).expect("a process")
        }
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + LONG;
        while !holds() {
            assert!(Instant::now() < end, "never: {what}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    struct Ear(Sender<(NodeId, Incarnation)>);

    impl Local for Ear {
        fn accepted(&self, _: NodeId, _: VolumeId, _: PeerSocket) {}

        fn order(&self, _: NodeId, order: Value) -> Result<Value, OrderError> {
            Ok(order)
        }

        fn dead(&self, node: NodeId, incarnation: Incarnation) {
            self.0.send((node, incarnation)).expect("the test listens");
        }
    }

    #[test]
    fn each_end_is_certified_and_only_of_its_own_run() {
        let free = std::net::TcpListener::bind("127.44.4.2:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let peer = Cluster::start(config(port), "b").expect("it starts");
        let (send, heard) = channel();
        peer.serve(Arc::new(Ear(send)));
        let family = Family::new(port);
        let code = |wish: &str| family.start(wish).wait().expect("ended").code();
        assert_eq!(code("0 3"), Some(0));
        assert_eq!(code("kill 4"), Some(i32::from(CHECK)));
        // What it finds was written by another run, whose child may be alive.
        assert_eq!(code("3 none"), Some(3));
        assert_eq!(code("1 5"), Some(1));
        for incarnation in [3, 4, 5] {
            let death = heard.recv_timeout(LONG);
            assert_eq!(death, Ok((A, Incarnation(incarnation))));
        }
        assert!(heard.try_recv().is_err(), "no other");
    }

    #[test]
    fn signals_are_passed_on_and_the_child_goes_with_its_parent() {
        let family = Family::new(1);
        let mut parent = family.start("wait 1");
        family.child();
        kill_process(Pid::from_child(&parent), Signal::TERM).expect("signalled");
        assert_eq!(parent.wait().expect("ended").code(), Some(0));
        let mut parent = family.start("wait 2");
        let child = family.child();
        parent.kill().expect("killed");
        parent.wait().expect("ended");
        let stat = format!("/proc/{}/stat", child.as_raw_nonzero());
        until("the child is gone", || {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            test_kill_process(child).is_err() || stat.contains(") Z ")
        });
    }

    #[test]
    fn what_is_in_the_environment_is_a_run_or_none() {
        let run = Run {
            parent: 7,
            id: Uuid::from_u128(9),
        };
        assert_eq!(Run::parse(&run.to_string()), Some(run));
        for text in [
            "",
            "7",
            "7:",
            "x:y",
            "-1:00000000-0000-0000-0000-000000000009",
        ] {
            assert_eq!(Run::parse(text), None, "{text}");
        }
        assert!(run.begin().is_err(), "process 7 is not the parent");
    }
}
