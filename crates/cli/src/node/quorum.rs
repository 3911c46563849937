//! A member of etcd that a node or a witness brings with it: the parent process runs it beside the daemon, and starts it
//! again when it ends.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ashlar_cluster::{
    EtcdMember, Home, LIES_IN, answers, doubt_volumes_at, expect_no_recovery, expect_recovery,
};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::daemon::failure;
use super::supervise::{Ended, watch};
use crate::exit::Failure;

/// What is run.
pub(super) const ETCD: &str = "etcd";
/// Ends what it starts when its own parent dies (util-linux).
const SETPRIV: &str = "setpriv";
/// How long a member may take to end in order.
const LAST_WORDS: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What has ended is started again after this; twice as long each time, up to the latter.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(30);
/// What has run so long is started again at once.
const LONG: Duration = Duration::from_secs(60);
/// Has a member of etcd forget all others, and keep what it knows.
const ALONE: &str = "--force-new-cluster";
/// How long a member may take to answer as it is, if it needs no other.
const BY_ITSELF: Duration = Duration::from_secs(10);
/// How long it may take to forget the others.
const RECOVERY: Duration = Duration::from_secs(30);
/// Characters of etcd's last line that are shown.
const LONGEST_LINE: usize = 400;
/// How often it is said that the quorum does not answer.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Whether the programs are there.
pub(super) fn check_installed() -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for (program, package) in [(ETCD, "etcd-server"), (SETPRIV, "util-linux")] {
        let mut folders = std::env::split_paths(&path);
        if !folders.any(|folder| folder.join(program).is_file()) {
            return Err(Failure::environment(format!(
                "there is no {program} (Debian: {package}), which --quorum local and a witness need"
            )));
        }
    }
    Ok(())
}

/// The waits between what ends too soon.
struct Backoff {
    next: Duration,
    begun: Instant,
}

impl Backoff {
    fn new() -> Self {
        Self {
            next: AGAIN,
            begun: Instant::now(),
        }
    }

    fn begin(&mut self) {
        self.begun = Instant::now();
    }

    fn wait(&mut self) -> Duration {
        if self.begun.elapsed() > LONG {
            self.next = AGAIN;
        }
        let wait = self.next;
        self.next = (wait * 2).min(AGAIN_MOST);
        wait
    }
}

/// The member, while it is kept up.
struct Keeping {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Keeping {
    fn start(member: &EtcdMember, dir: &Path) -> Result<Self, Failure> {
        check_installed()?;
        let stop = Arc::new(AtomicBool::new(false));
        let run = Member {
            arguments: member.arguments().to_vec(),
            log: dir.join("etcd.log"),
            stop: stop.clone(),
        };
        let thread = thread::Builder::new().name("etcd".into());
        let thread = thread.spawn(move || run.keep());
        let thread = thread
            .map_err(|error| Failure::environment(format!("cannot start a thread: {error}")))?;
        Ok(Self { stop, thread })
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            tracing::error!("what keeps etcd up has died");
        }
    }
}

struct Member {
    arguments: Vec<String>,
    log: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Member {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Until it is to stop. What it complains about is in a file of its own.
    fn keep(&self) {
        let mut backoff = Backoff::new();
        while !self.stops() {
            backoff.begin();
            let log = self.log.display();
            let ended = match self.spawn() {
                Ok(child) => self.attend(child),
                Err(error) => format!("cannot be started: {error}"),
            };
            if self.stops() {
                return;
            }
            let wait = backoff.wait();
            tracing::warn!("etcd {ended}; {log} says more; it is started again in {wait:?}");
            let end = Instant::now() + wait;
            while !self.stops() && Instant::now() < end {
                thread::sleep(LOOK_EVERY);
            }
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let log = File::create(&self.log)?;
        Command::new(SETPRIV)
            .args(["--pdeathsig", "KILL", "--", ETCD])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
    }

    fn cannot(&self, why: &str) -> Failure {
        let log = self.log.display();
        Failure::environment(format!("etcd {why}; {log} says more. Does the node run?"))
    }

    /// What it said last: a port that is taken, an address that is none of this machine.
    fn last_line(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        last.map_or_else(String::new, |line| {
            let shown: String = line.trim().chars().take(LONGEST_LINE).collect();
            format!(": {shown}")
        })
    }

    fn attend(&self, mut child: Child) -> String {
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return format!("has ended ({status}){}", self.last_line()),
                Ok(None) => {}
                Err(error) => return format!("cannot be watched: {error}"),
            }
            if self.stops() {
                finish(&mut child);
                return "was ended".into();
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

fn finish(child: &mut Child) {
    // It is not reaped yet, so the number is its own.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let end = Instant::now() + LAST_WORDS;
    while Instant::now() < end {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Says when this process is to end.
struct Wish {
    comes: Arc<AtomicBool>,
}

impl Wish {
    fn listen() -> Result<Self, Failure> {
        let cannot = |error| Failure::environment(format!("cannot listen for signals: {error}"));
        let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(cannot)?;
        let comes = Arc::new(AtomicBool::new(false));
        let told = comes.clone();
        let listen = move || {
            for _ in signals.forever() {
                told.store(true, Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name("wish".into()).spawn(listen);
        thread.map_err(cannot)?;
        Ok(Self { comes })
    }

    fn has_come(&self) -> bool {
        self.comes.load(Ordering::Relaxed)
    }

    /// Whether it has come before the time is over.
    fn within(&self, wait: Duration) -> bool {
        let end = Instant::now() + wait;
        while !self.has_come() && Instant::now() < end {
            thread::sleep(LOOK_EVERY);
        }
        self.has_come()
    }
}

/// `ashlar witness`: nothing but the member, until SIGTERM or SIGINT.
pub(super) fn witness(home: &Home, dir: &Path) -> Result<(), Failure> {
    let Some(member) = &home.etcd else {
        return Err(Failure::environment("this witness has no member of etcd"));
    };
    let wish = Wish::listen()?;
    let keeping = Keeping::start(member, dir)?;
    while !wish.within(LONG) {}
    keeping.end();
    Ok(())
}

/// `ashlar cluster recover`: the member is the only one from now on.
pub(super) fn recover(home: &Home, member: &EtcdMember, dir: &Path) -> Result<(), Failure> {
    check_installed()?;
    if answers(home).is_ok() {
        return Err(Failure::environment(
            "the quorum answers: its majority is there, and nothing was changed",
        ));
    }
    let wish = Wish::listen()?;
    let as_it_is = Member {
        arguments: member.arguments().to_vec(),
        log: dir.join("etcd.log"),
        stop: wish.comes.clone(),
    };
    let trial = Trial { home, wish: &wish };
    // One that has the only vote has lost nothing, and one that runs is not to be taken for lost.
    match trial.run(&as_it_is, BY_ITSELF, |_| Ok(()))? {
        Tried::Answers => {
            return Err(Failure::environment(
                "the quorum answers as soon as the etcd of this machine runs: its majority is there, and nothing was \
                 changed. Start the node",
            ));
        }
        Tried::Ended(how) => {
            let why = format!("{how}{}; nothing was changed", as_it_is.last_line());
            return Err(as_it_is.cannot(&why));
        }
        Tried::IsSilent if wish.has_come() => {
            return Err(Failure::environment("interrupted: nothing was changed"));
        }
        Tried::IsSilent => {}
    }
    // First: a daemon that starts after a recovery of which only a part was done must doubt its volumes, too.
    expect_recovery(dir).map_err(failure)?;
    // Nodes whose daemons run must not read keys of volumes that are not marked yet.
    let apart = home.apart().map_err(failure)?;
    let etcd = apart.etcd.as_ref().map(EtcdMember::arguments);
    let mut alone = as_it_is;
    alone.arguments = etcd.unwrap_or_default().to_vec();
    alone.arguments.push(ALONE.to_owned());
    let home = &apart;
    let trial = Trial { home, wish: &wish };
    let mark = |home: &Home| doubt_volumes_at(home).map(drop).map_err(failure);
    match trial.run(&alone, RECOVERY, mark)? {
        // Another mark would undo what an operator decides from now on.
        Tried::Answers => expect_no_recovery(dir).map_err(failure),
        _ => Err(alone.cannot("does not answer by itself")),
    }
}

/// What became of a member that was started to see whether it answers.
enum Tried {
    Answers,
    /// By itself, and how.
    Ended(String),
    IsSilent,
}

/// Members are started to see whether the quorum answers then.
struct Trial<'a> {
    home: &'a Home,
    wish: &'a Wish,
}

impl Trial<'_> {
    /// It has ended afterwards, whatever it is. `then` is done while it answers.
    fn run(
        &self,
        member: &Member,
        within: Duration,
        then: impl FnOnce(&Home) -> Result<(), Failure>,
    ) -> Result<Tried, Failure> {
        let started = member.spawn();
        let mut child = started.map_err(|error| member.cannot(&error.to_string()))?;
        let tried = self.await_answer(&mut child, within);
        let done = match tried {
            Tried::Answers => then(self.home),
            _ => Ok(()),
        };
        finish(&mut child);
        done.map(|()| tried)
    }

    fn await_answer(&self, child: &mut Child, within: Duration) -> Tried {
        let end = Instant::now() + within;
        while Instant::now() < end && !self.wish.within(LOOK_EVERY) {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return Tried::Ended(format!("has ended ({status})")),
                Err(error) => return Tried::Ended(format!("cannot be watched: {error}")),
            }
            if answers(self.home).is_ok() {
                return Tried::Answers;
            }
        }
        Tried::IsSilent
    }
}

/// The parent of a node that brings a member of etcd with it: as long as there are a daemon and an operator who wants
/// one, both are kept up. A daemon that died is begun anew, since its end would take the member with it.
pub(super) fn keep_node(home: &Home, member: &EtcdMember, dir: &Path) -> Result<(), Failure> {
    let wish = Wish::listen()?;
    let keeping = Keeping::start(member, dir)?;
    let ended = keep_daemon(home, (dir, &wish));
    keeping.end();
    if !dir.join(LIES_IN).exists() {
        // It has left: another cluster would take what is there for its own.
        let data = dir.join(ETCD);
        if let Err(error) = std::fs::remove_dir_all(&data) {
            tracing::warn!("{} cannot be removed: {error}; remove it", data.display());
        }
    }
    ended
}

fn keep_daemon(home: &Home, (dir, wish): (&Path, &Wish)) -> Result<(), Failure> {
    let mut backoff = Backoff::new();
    loop {
        if !await_quorum(home, wish) {
            return Ok(());
        }
        backoff.begin();
        // Nodes may have joined and left meanwhile.
        let now = Home::open(dir).ok().flatten();
        let now = now.as_ref().unwrap_or(home);
        let Some(me) = now.node().map(|node| node.id) else {
            return Err(Failure::environment(format!(
                "node {} is no member of its cluster",
                home.name
            )));
        };
        let Ended { result, had_joined } = watch(&now.config, me, dir)?;
        let Err(failed) = result else {
            return Ok(());
        };
        if !had_joined || wish.has_come() {
            return Err(failed);
        }
        let wait = backoff.wait();
        // What the daemon has said itself is not said again.
        match failed.message() {
            "" => tracing::error!("the daemon has ended; it is started again in {wait:?}"),
            why => tracing::error!("{why}; the daemon is started again in {wait:?}"),
        }
        if wish.within(wait) {
            return Err(failed);
        }
    }
}

/// Whether the quorum answers before this process is to end: a daemon is of no use without.
fn await_quorum(home: &Home, wish: &Wish) -> bool {
    let mut said: Option<Instant> = None;
    while !wish.has_come() {
        let Err(why) = answers(home) else {
            return true;
        };
        let begun = *said.get_or_insert_with(Instant::now);
        if begun.elapsed() > SAY_EVERY {
            said = Some(Instant::now());
            tracing::warn!(
                "the quorum does not answer yet, and the daemon waits for it: {why}; a majority of etcd's members must \
                 run"
            );
        }
        wish.within(LOOK_EVERY);
    }
    false
}
