//! A service's guard by itself: what it takes down, and when.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{ashlar, eventually, is_there, send};

const BEAT_EVERY: Duration = Duration::from_millis(100);

/// A process in a cgroup of its own, and its guard.
struct World {
    dir: tempfile::TempDir,
    group: PathBuf,
    sleeper: Child,
    guard: Child,
    words: Option<ChildStdin>,
}

/// Where cgroups are made, if this process may.
fn cgroups() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let found = |kind: &str, option: &str| {
        let mut lines = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let line = lines.find(|line| line[2] == kind && line[3].contains(option))?;
        Some(PathBuf::from(line[1]))
    };
    let place = found("cgroup2", "").or_else(|| found("cgroup", "pids"));
    let may = rustix::process::geteuid().is_root();
    place.filter(|_| is_there("cgroups", may))
}

impl World {
    fn new() -> Option<Self> {
        let place = cgroups()?;
        let dir = tempfile::tempdir().expect("a folder");
        let name = dir.path().file_name().expect("a name").to_string_lossy();
        let group = place.join(format!("ashlar-test{name}"));
        std::fs::create_dir(&group).expect("a cgroup");
        let sleeper = Command::new("sleep").arg("600").spawn().expect("sleep");
        let entrance = group.join("cgroup.procs");
        std::fs::write(entrance, sleeper.id().to_string()).expect("entered");
        let mut guard = ashlar(["service-guard"]);
        guard.arg(&group).arg(dir.path().join("mnt"));
        let mut guard = guard.stdin(Stdio::piped()).spawn().expect("a guard");
        let words = guard.stdin.take();
        let mut world = Self {
            dir,
            group,
            sleeper,
            guard,
            words,
        };
        world.beat(Duration::from_millis(500));
        Some(world)
    }

    /// The daemon is there for so long.
    fn beat(&mut self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            let words = self.words.as_mut().expect("it is heard");
            words.write_all(b".").expect("it listens");
            std::thread::sleep(BEAT_EVERY);
        }
    }

    fn is_alive(&mut self) -> bool {
        self.sleeper.try_wait().expect("ours").is_none()
    }

    /// How long it lives from now on.
    fn lives(&mut self) -> Duration {
        let begun = Instant::now();
        eventually("it is taken down", || !self.is_alive());
        let lived = begun.elapsed();
        let guard = self.guard.wait().expect("ours");
        assert!(guard.success() && !self.group.exists(), "{guard}");
        lived
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for child in [&mut self.guard, &mut self.sleeper] {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir(&self.group);
        let _ = self.dir.path();
    }
}

#[test]
fn a_guard_stays_whatever_signals_come_and_ends_as_it_is_told() {
    let Some(mut world) = World::new() else {
        return;
    };
    let guard = i32::try_from(world.guard.id()).expect("a number");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::TERM] {
        send(guard, signal);
        world.beat(Duration::from_millis(300));
        assert!(
            world.guard.try_wait().expect("ours").is_none(),
            "{signal:?}"
        );
        assert!(world.is_alive(), "{signal:?}");
    }
    let mut words = world.words.take().expect("it is heard");
    words.write_all(b"Q").expect("it listens");
    assert!(world.guard.wait().expect("ours").success());
    assert!(world.is_alive());
}

#[test]
fn a_guard_acts_at_once_without_a_daemon() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.words = None;
    let lived = world.lives();
    assert!(lived < Duration::from_millis(1000), "{lived:?}");
}

#[test]
fn a_guard_acts_before_promises_have_lapsed_and_not_while_a_daemon_is_late() {
    let Some(mut world) = World::new() else {
        return;
    };
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(1000));
    // On a machine that has stood still longer itself, it has to act.
    if begun.elapsed() < Duration::from_millis(1100) {
        world.beat(Duration::from_millis(300));
        assert!(world.is_alive(), "a daemon that is late for a second");
    }
    // From the last word, which was up to a tenth of a second ago. Promises hold for 1.5 s; a busy machine takes longer.
    let lived = world.lives();
    assert!(lived < Duration::from_millis(2000), "{lived:?}");
}
