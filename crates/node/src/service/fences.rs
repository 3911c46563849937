//! Orders to make processes, and what makes them void: a service that was taken down has no process that an order from
//! before has made, however late the thread comes to it that obeys.

use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::run::{Killer, Run};

/// How often a service was taken down whatever hung; shared by all that make processes for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Fences(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    count: u64,
    /// Commands that are not in the service's cgroup: those that ask it, stop it, attach its volumes.
    beside: Vec<Killer>,
}

/// Given with an action; void from the next fence on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order(u64);

impl State {
    fn check(&self, order: Order) -> Result<(), String> {
        match self.count == order.0 {
            true => Ok(()),
            false => Err("it was taken down meanwhile".into()),
        }
    }
}

impl Fences {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Single fields.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be had when an action is ordered, not when a thread comes to it.
    pub(super) fn order(&self) -> Order {
        Order(self.lock().count)
    }

    /// All orders are void from now on, and what they have made is killed: commands here, the service by `kill`.
    pub(super) fn fence(&self, kill: impl FnOnce()) {
        // Under the lock: what is made before is killed, and nothing is made after.
        let mut state = self.lock();
        state.count += 1;
        kill();
        for command in state.beside.drain(..) {
            command.kill();
        }
    }

    /// Whether an order stands.
    pub(super) fn check(&self, order: Order) -> Result<(), String> {
        self.lock().check(order)
    }

    /// Does something at once, if the order stands. A fence waits for it: it must be short.
    pub(super) fn obey<T>(
        &self,
        order: Order,
        act: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let state = self.lock();
        state.check(order)?;
        act()
    }

    /// Runs a command to its end, at most so long; none: it was killed.
    pub(super) fn run(
        &self,
        order: Order,
        command: &mut Command,
        limit: Option<Duration>,
    ) -> Result<Option<ExitStatus>, String> {
        let run = {
            let mut state = self.lock();
            state.check(order)?;
            let run = Run::start(command)?;
            state.beside.retain(|command| !command.is_over());
            state.beside.push(run.killer());
            run
        };
        Ok(run.ended(limit))
    }

    /// Starts what stays, and has it in its cgroup before a fence can come.
    pub(super) fn start(
        &self,
        order: Order,
        command: &mut Command,
        enter: impl FnOnce(u32) -> Result<(), String>,
    ) -> Result<Child, String> {
        self.obey(order, || {
            let program = command.get_program().display().to_string();
            let child = command.spawn();
            let mut child = child.map_err(|error| format!("{program}: {error}"))?;
            if let Err(why) = enter(child.id()) {
                // One that has ended by itself is for the caller to judge.
                if matches!(child.try_wait(), Ok(None)) {
                    let _ = child.kill().and_then(|()| child.wait());
                    return Err(why);
                }
            }
            Ok(child)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_command_under_way_is_killed_by_a_fence_and_none_is_run_by_an_order_from_before() {
        let fences = Fences::default();
        let order = fences.order();
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("begun");
        let mut command = Command::new("sh");
        let line = format!("echo > {}; sleep 60; true", file.display());
        command.args(["-c", &line]);
        let running = fences.clone();
        let begun = Instant::now();
        let ended = std::thread::spawn(move || running.run(order, &mut command, None));
        while !file.exists() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it has begun");
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut is_killed = false;
        fences.fence(|| is_killed = true);
        let ended = ended.join().expect("no panic").expect("it was started");
        assert!(is_killed && ended.is_none_or(|status| !status.success()));
        assert!(begun.elapsed() < Duration::from_secs(30));

        std::fs::remove_file(&file).expect("there");
        let mut late = Command::new("touch");
        late.arg(&file);
        assert!(fences.check(order).is_err());
        assert!(fences.run(order, &mut late, None).is_err());
        assert!(fences.start(order, &mut late, |_| Ok(())).is_err());
        assert!(!file.exists(), "it was run");
        let order = fences.order();
        let run = fences.run(order, &mut late, None);
        assert!(run.is_ok_and(|ended| ended.is_some_and(|status| status.success())));
        assert!(file.exists());
    }

    #[test]
    fn one_that_cannot_enter_is_killed_and_one_that_has_ended_is_judged_by_how() {
        let fences = Fences::default();
        let mut stays = Command::new("sleep");
        stays.arg("60");
        let mut number = 0;
        let started = fences.start(fences.order(), &mut stays, |pid| {
            number = pid;
            Err("no entrance".into())
        });
        assert_eq!(started.map(drop), Err("no entrance".into()));
        assert!(!std::path::Path::new(&format!("/proc/{number}")).exists());
        let mut fails = Command::new("false");
        let started = fences.start(fences.order(), &mut fails, |pid| {
            let begun = Instant::now();
            let state = || std::fs::read_to_string(format!("/proc/{pid}/stat"));
            while !state().is_ok_and(|stat| stat.contains(") Z")) {
                assert!(begun.elapsed() < Duration::from_secs(20), "it has ended");
            }
            Err("no such process".into())
        });
        let status = started.expect("started").wait().expect("ours");
        assert!(!status.success());
    }
}
