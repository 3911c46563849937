//! Pools that are remembered or configured, as the daemon starts: each on a thread of its own, for a drive that
//! is missing or does not answer must hold up no other pool.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};
use uuid::Uuid;

use super::wanted::Wanted;
use super::{Ending, Kept, LivePool, PoolManager};
use crate::Config;
use crate::model::ControlError;
use crate::pool::{Found, OpenDrive, Opening, missing, open_drive, probe};

/// How often drives that a pool waits for are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often those are that a pool cannot go on without, once it has waited its time.
const LOOK_ON_EVERY: Duration = Duration::from_secs(2);

/// What follows then, for its state.
const LOOKED_FOR: &str =
    "Its drives are looked for every 2 s: with all of them here it comes into service by itself";

/// What follows where another daemon may serve the pool: while that one is started anew, its drives are free.
const TAKEN: &str = "What another process has is taken up by order only, and nothing goes on without it: it may serve the \
                     pool";

/// A pool's drives as far as they can be used.
pub(super) struct Opened {
    pub(super) drives: Vec<OpenDrive>,
    /// Why each of the others cannot.
    pub(super) missing: Vec<String>,
    /// Those of the others that are there and do not answer: they are not waited for again.
    silent: Vec<String>,
    /// Another process has one of them that is not known to have ended.
    pub(super) is_taken: bool,
}

/// A pool that is to be brought up.
#[derive(Clone)]
struct Start {
    name: String,
    id: Option<Uuid>,
    drives: Vec<String>,
}

impl Start {
    fn failed(&self, why: String, ending: Ending) -> Kept {
        Kept::Failed {
            id: self.id.unwrap_or_default(),
            drives: self.drives.clone(),
            why,
            ending,
        }
    }
}

impl PoolManager {
    /// Imports what is remembered and what the configuration names. Returns when each of those pools is in
    /// service, has failed, or waits for drives, which goes on behind.
    pub(super) fn import_remembered(self: &Arc<Self>, config: &Config) {
        let remembered = self.state.read().pools.into_iter();
        let remembered = remembered.map(|pool| (pool.name, Some(pool.id), pool.drives));
        let configured = config.pools.iter();
        let configured = configured.map(|pool| (pool.name.clone(), None, pool.drives.clone()));
        let (settled, all_settled) = channel();
        for (name, id, drives) in remembered.chain(configured) {
            let start = Start { name, id, drives };
            if self.lock().contains_key(&start.name) {
                continue;
            }
            self.keep_out(&start, "it is being imported".into(), Ending::ByItself);
            let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
            looks.entry(start.name.clone()).or_default();
            drop(looks);
            let (manager, settled) = (self.clone(), settled.clone());
            let own = start.clone();
            let begin = thread::Builder::new().name("import".into());
            if let Err(error) = begin.spawn(move || manager.start_pool(&own, settled)) {
                let why = format!("a thread cannot be started: {error}");
                self.keep_out(&start, why, Ending::ByOrder);
            }
        }
        drop(settled);
        // Nothing is sent: the last of them has settled when no sender is left.
        while all_settled.recv().is_ok() {}
    }

    fn keep_out(&self, start: &Start, why: String, ending: Ending) {
        self.lock()
            .insert(start.name.clone(), start.failed(why, ending));
        self.expect_volumes_of(start.id);
    }

    /// Whether the pool has not been imported or let go of by order, and the daemon goes on.
    fn is_wanted(&self, start: &Start) -> bool {
        self.waits_in(&self.lock(), start)
    }

    fn waits_in(&self, pools: &BTreeMap<String, Kept>, start: &Start) -> bool {
        let id = start.id.unwrap_or_default();
        let waits =
            matches!(pools.get(&start.name), Some(Kept::Failed { id: known, .. }) if *known == id);
        waits && !self.stopping.load(Ordering::Acquire)
    }

    /// Says how it is with a pool that is not in service, unless an order has come meanwhile.
    fn tell_why(&self, start: &Start, why: String, ending: Ending) {
        let mut pools = self.lock();
        if self.waits_in(&pools, start) {
            pools.insert(start.name.clone(), start.failed(why, ending));
            self.expect_volumes_of(start.id);
        }
    }

    fn fail(&self, start: &Start, why: String) {
        let name = &start.name;
        error!(pool = name, "pool {name} is not in service: {why}");
        self.tell_why(start, why, Ending::ByOrder);
    }

    fn start_pool(&self, start: &Start, settled: Sender<()>) {
        let (name, begun) = (&start.name, Instant::now());
        let (mut settled, mut was_taken) = (Some(settled), false);
        let look = self.look_of(name);
        loop {
            let alone = look.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(opened) = self.open_wanted(start) else {
                return;
            };
            let lacks = self.lacks(&opened);
            // The name of one that has left the pool may be another's drive by now.
            was_taken |= opened.is_taken && lacks.is_some();
            if lacks.is_none() && was_taken {
                return self.fail(
                    start,
                    format!("Another process had its drives. {}", taken(name)),
                );
            }
            let waited = begun.elapsed();
            if let (Some(lacks), true) = (&lacks, waited < self.drive_wait) {
                // What it has is free meanwhile: an operator may import the pool without the rest.
                drop(opened);
                drop(alone);
                if settled.take().is_some() {
                    self.tell_of_wait(start, lacks, was_taken);
                }
                thread::sleep(LOOK_EVERY.min(self.drive_wait - waited));
                continue;
            }
            if let (Some(lacks), true) = (&lacks, was_taken) {
                // Who has it may have written there what is not on the others.
                let unopened = opened.missing.join("; ");
                let why = if unopened.is_empty() {
                    lacks
                } else {
                    &unopened
                };
                return self.fail(start, format!("{why}. {}", taken(name)));
            }
            if let Some(lacks) = &lacks {
                warn!(
                    pool = name,
                    "pool {name} goes on without {lacks}, if it can"
                );
            } else if settled.is_none() {
                info!(pool = name, "pool {name}: its drives are here");
            }
            let mut kept = self.bring_up(&Wanted::new(name, start.id), opened);
            let cannot = lacks.is_some() && kept.is_err();
            if let (true, Err(error)) = (cannot, &mut kept) {
                error.message = format!("{}. {LOOKED_FOR}", error.message);
            }
            self.keep_started(start, kept);
            drop(alone);
            drop(settled);
            if cannot {
                self.look_on(start);
            }
            return;
        }
    }

    fn tell_of_wait(&self, start: &Start, lacks: &str, is_taken: bool) {
        let name = &start.name;
        let (why, ending) = match is_taken {
            true => (format!("{lacks}. {}", taken(name)), Ending::ByOrder),
            false => (waits(name, lacks, self.drive_wait), Ending::ByItself),
        };
        warn!(pool = name, "pool {name}: {why}");
        self.tell_why(start, why, ending);
    }

    /// Looks for the drives of a pool that cannot go on without those it lacks: they may be late, or still be held by
    /// a daemon that was killed. It is tried again only with all of them: what else is wrong ends by order.
    fn look_on(&self, start: &Start) {
        let (name, look) = (&start.name, self.look_of(&start.name));
        loop {
            thread::sleep(LOOK_ON_EVERY);
            let _alone = look.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(opened) = self.open_wanted(start) else {
                return;
            };
            let lacks = self.lacks(&opened);
            if opened.is_taken && lacks.is_some() {
                let why = format!("{}. {}", opened.missing.join("; "), taken(name));
                return self.fail(start, why);
            }
            let has_some = !opened.drives.is_empty() && opened.silent.is_empty();
            if !has_some || lacks.is_some() {
                continue;
            }
            info!(pool = name, "pool {name}: its drives are here");
            let kept = self.bring_up(&Wanted::new(name, start.id), opened);
            return self.keep_started(start, kept);
        }
    }

    /// What is held while a pool's drives are looked for at the start, and while an order takes the pool up: one would
    /// find the drives in use by the other. Taken before `pools`.
    pub(super) fn look_of(&self, name: &str) -> Arc<Mutex<()>> {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.get(name).cloned().unwrap_or_default()
    }

    /// What has become of a pool that was to be brought up. An order to let it go does not wait for that.
    fn keep_started(&self, start: &Start, outcome: Result<LivePool, ControlError>) {
        let name = &start.name;
        let mut pools = self.lock();
        let is_wanted = self.waits_in(&pools, start);
        match outcome {
            Ok(pool) if is_wanted => {
                // It is served all the same: what is lost is how a drive was called.
                if let Err(error) = self.remember_drives(&pool) {
                    warn!(pool = name, "pool {name}: {}", error.message);
                }
                self.expect_no_volumes_of(pool.id);
                pools.insert(name.clone(), Kept::Live(pool));
            }
            Ok(pool) => {
                self.take_down(&pool);
                let is_ending = self.stopping.load(Ordering::Acquire);
                let is_known = pools.iter().any(|(named, kept)| {
                    kept.id() == pool.id || kept.id().is_nil() && named == name
                });
                // What the import has stored was to be forgotten with the pool; the end of the daemon takes none away.
                let is_let_go = !is_ending && !is_known;
                if is_let_go && let Err(error) = self.memory.forget(pool.id) {
                    error!(pool = name, "pool {name}: {}", error.message);
                }
            }
            Err(error) if is_wanted => {
                drop(pools);
                self.fail(start, error.message);
            }
            Err(_) => {}
        }
    }

    /// Opens drives that have been a pool's. What does not answer is not among them. A name may be of another's drive by
    /// now, also one that another process has: that is no reason to do nothing.
    pub(super) fn open_known(&self, specs: &[String], meant: &Wanted<'_>) -> Opened {
        let mut opened = Opened {
            drives: Vec::new(),
            missing: Vec::new(),
            silent: Vec::new(),
            is_taken: false,
        };
        let how = self.opening(true);
        for spec in specs {
            match open_drive(spec, how) {
                Ok(drive) => opened.drives.push(drive),
                // The pool may be able to go on without it; the engine decides.
                Err(unopened) => {
                    opened.missing.push(unopened.error.message);
                    opened.is_taken |= unopened.is_taken && meant.may_hold(spec, how);
                }
            }
        }
        let Ok(found) = probe(&opened.drives) else {
            return opened;
        };
        let drives = std::mem::take(&mut opened.drives);
        for (drive, found) in drives.into_iter().zip(found) {
            match found {
                Found::Silent(why) => {
                    opened.missing.push(why);
                    opened.silent.push(drive.spec);
                }
                _ => opened.drives.push(drive),
            }
        }
        opened
    }

    /// The drives of a pool, if it is not taken up or let go by order before they are open, which may take its time.
    fn open_wanted(&self, start: &Start) -> Option<Opened> {
        let is_wanted = || self.is_wanted(start);
        is_wanted()
            .then(|| self.open_ours(start))
            .filter(|_| is_wanted())
    }

    /// The drives of a pool that was in service before. One that has left it may hold another since.
    fn open_ours(&self, start: &Start) -> Opened {
        let meant = Wanted::new(&start.name, start.id);
        let opened = self.open_known(&start.drives, &meant);
        let is_ours = |drive: &OpenDrive| {
            let drive = std::slice::from_ref(drive);
            // One that only has another name may be in the middle of being renamed.
            match start.id {
                Some(_) => !meant.pool_of(drive).is_ok_and(|pool| pool != start.id),
                None => meant.check(drive).is_ok(),
            }
        };
        let (ours, others): (Vec<OpenDrive>, Vec<OpenDrive>) =
            opened.drives.into_iter().partition(is_ours);
        // With none of its own, the refusal says whose they are.
        let drives = if ours.is_empty() { others } else { ours };
        Opened { drives, ..opened }
    }

    /// Drives that a pool counts on and that may come yet.
    pub(super) fn lacks(&self, opened: &Opened) -> Option<String> {
        let state = self.state.read();
        if opened.drives.is_empty() {
            let none = opened.missing.len() > opened.silent.len();
            return none.then(|| opened.missing.join("; "));
        }
        // What cannot be told is for the import to say.
        let missing = missing(&opened.drives).ok()?;
        let name = |id: &Uuid| {
            let mut known = state.drives.iter();
            let known = known.find(|known| known.drive == *id);
            known.map_or_else(|| id.to_string(), |known| known.spec.clone())
        };
        let awaited = missing.iter().map(name);
        let awaited: Vec<String> = awaited
            .filter(|spec| !opened.silent.contains(spec))
            .map(|spec| format!("drive {spec}"))
            .collect();
        (!awaited.is_empty()).then(|| awaited.join(", "))
    }

    /// How drives are opened.
    pub(super) fn opening(&self, are_known: bool) -> Opening {
        Opening {
            reply_timeout: self.drive_timeout,
            are_known,
        }
    }
}

fn taken(name: &str) -> String {
    format!("{TAKEN}. End that process for good, then `pool import {name}`")
}

/// What a pool says that waits for late drives: what ends by itself first, what cannot be taken back last.
fn waits(name: &str, lacks: &str, limit: Duration) -> String {
    let seconds = limit.as_secs();
    format!(
        "nothing has to be done: it waits for {lacks}, and goes on by itself when that is here, or after {seconds} s if \
         it can without it; `pool import {name} --degraded` goes on without it at once, for good"
    )
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    use super::super::tests::Room;
    use super::*;
    use crate::control::Control;
    use crate::model::{ExportPool, ImportPool, PoolState};

    /// How long a start may take before a test gives up.
    const START_TIMEOUT: Duration = Duration::from_secs(20);

    /// A daemon that knows tank, of one drive, and waits no time for it.
    fn room() -> (Room, Config) {
        let room = Room::new();
        room.tank(1);
        let config = Config::parse("drive_wait_seconds = 0");
        (room, config.expect("a configuration"))
    }

    /// A process that has a drive as a daemon has it.
    fn holder(drive: &Path) -> Child {
        let script = "import fcntl, sys, time; f = open(sys.argv[1], 'r+'); fcntl.flock(f, fcntl.LOCK_EX); \
                      print(1, flush=True); time.sleep(99)";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(drive);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("python3");
        let mut out = child.stdout.take().expect("a pipe");
        out.read_exact(&mut [0; 2]).expect("it has the drive");
        child
    }

    fn await_reason(room: &Room, expected: &str) {
        let begun = Instant::now();
        loop {
            let status = room.manager.pool("tank").expect("known");
            let reason = status.reason.unwrap_or_default();
            if reason.contains(expected) {
                return;
            }
            assert!(begun.elapsed() < START_TIMEOUT, "{reason}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(mut child: Child) {
        child.kill().expect("it lives");
        child.wait().expect("ended");
    }

    fn state(room: &Room) -> PoolState {
        room.manager.pool("tank").expect("known").state
    }

    #[test]
    fn drives_that_come_late_bring_their_pool_into_service() {
        let (room, config) = room();
        let (drive, away) = (room.path("d0"), room.path("away"));
        std::fs::rename(&drive, &away).expect("it is there");
        let room = room.again(&config);
        await_reason(&room, LOOKED_FOR);
        std::fs::rename(&away, &drive).expect("it comes");
        let begun = Instant::now();
        while state(&room) != PoolState::Healthy {
            assert!(begun.elapsed() < START_TIMEOUT, "{:?}", state(&room));
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_pool_of_a_living_daemon_is_not_taken_when_that_one_ends() {
        let (room, config) = room();
        let (drive, away) = (room.path("d0"), room.path("away"));
        std::fs::rename(&drive, &away).expect("it is there");
        let room = room.again(&config);
        await_reason(&room, LOOKED_FOR);
        let child = holder(&away);
        std::fs::rename(&away, &drive).expect("it comes");
        await_reason(&room, &format!("in use by process {}", child.id()));
        await_reason(&room, TAKEN);
        end(child);
        thread::sleep(LOOK_ON_EVERY + LOOK_EVERY);
        assert_eq!(state(&room), PoolState::Failed);
        // The same where it has the drive at the start, also while drives are waited for.
        let waits = Config::parse("drive_wait_seconds = 60").expect("a configuration");
        let mut room = room;
        for config in [config, waits] {
            let child = holder(&drive);
            room = room.again(&config);
            await_reason(&room, TAKEN);
            end(child);
            thread::sleep(LOOK_ON_EVERY + LOOK_EVERY);
            assert_eq!(state(&room), PoolState::Failed);
        }
        let import = room.manager.import_pool("tank", ImportPool::default());
        assert_eq!(import.expect("free").state, PoolState::Healthy);
    }

    /// It may serve the pool by that drive, and what is acknowledged there is not on the other.
    #[test]
    fn a_pool_does_not_go_on_degraded_beside_a_drive_that_a_living_process_has() {
        let room = Room::new();
        room.tank(2);
        let config = Config::parse("drive_wait_seconds = 0").expect("a configuration");
        let (drive, mut child) = (room.path("d1"), None);
        let room = room.again_after(&config, || child = Some(holder(&drive)));
        let child = child.expect("it has the drive");
        await_reason(&room, &format!("in use by process {}", child.id()));
        await_reason(&room, TAKEN);
        assert_eq!(state(&room), PoolState::Failed);
        // An order that does not say so does not mean that the pool is to go on without it.
        let plain = room.manager.import_pool("tank", ImportPool::default());
        let refused = plain.expect_err("the other may serve it").message;
        assert!(
            refused.contains(&format!("in use by process {}", child.id())),
            "{refused}"
        );
        assert_eq!(state(&room), PoolState::Failed);
        // Who gives this order knows better.
        let order = ImportPool {
            degraded: true,
            ..ImportPool::default()
        };
        let import = room.manager.import_pool("tank", order);
        assert_eq!(import.expect("one is enough").state, PoolState::Degraded);
        end(child);
    }

    /// Its drive is dead, and the name is another's by now, who has no label or that of another pool.
    #[test]
    fn a_stale_name_that_a_living_process_has_keeps_no_pool_out() {
        for is_of_a_pool in [false, true] {
            let room = Room::new();
            room.tank(2);
            let other = Room::new();
            other.tank(1);
            let config = Config::parse("drive_wait_seconds = 0").expect("a configuration");
            let (drive, mut child) = (room.path("d1"), None);
            let begins = || {
                let whole = std::fs::read(other.path("d0")).expect("a drive");
                let none = vec![7; whole.len()];
                let bytes = if is_of_a_pool { whole } else { none };
                std::fs::write(&drive, bytes).expect("room");
                child = Some(holder(&drive));
            };
            let room = room.again_after(&config, begins);
            assert_eq!(state(&room), PoolState::Degraded, "{is_of_a_pool}");
            end(child.expect("it has the drive"));
        }
    }

    #[test]
    fn the_way_out_does_not_wait_for_a_look_and_ends_it() {
        let (room, config) = room();
        let (drive, away) = (room.path("d0"), room.path("away"));
        std::fs::rename(&drive, &away).expect("it is there");
        let room = room.again(&config);
        let (id, drives) = {
            let pool = &room.manager.state.read().pools[0];
            (pool.id, pool.drives.clone())
        };
        let start = Start {
            name: "tank".into(),
            id: Some(id),
            drives,
        };
        // The one that looks for the drive waits for its turn; so does one that is to bring it up for the first time.
        let look = room.manager.look_of("tank");
        let look = look.lock().expect("whole");
        std::fs::rename(&away, &drive).expect("it comes");
        let before = std::fs::metadata(&drive).expect("there").modified();
        let manager = room.manager.clone();
        let other = thread::spawn(move || manager.start_pool(&start, channel().0));
        thread::sleep(LOOK_EVERY);
        let (exported, is_exported) = channel();
        let manager = room.manager.clone();
        let export = move || exported.send(manager.export_pool("tank", ExportPool::default()));
        thread::spawn(export);
        let exported = is_exported.recv_timeout(START_TIMEOUT);
        exported.expect("nothing waits").expect("it is let go of");
        drop(look);
        other.join().expect("no panic");
        thread::sleep(LOOK_ON_EVERY + LOOK_EVERY);
        let after = std::fs::metadata(&drive).expect("there").modified();
        assert_eq!(
            before.expect("a time"),
            after.expect("a time"),
            "it was opened"
        );
        assert!(room.manager.pools().is_empty());
    }

    #[test]
    fn a_pool_that_comes_up_while_the_daemon_ends_is_known_to_the_next() {
        let (room, config) = room();
        let (drive, away) = (room.path("d0"), room.path("away"));
        std::fs::rename(&drive, &away).expect("it is there");
        let room = room.again(&config);
        await_reason(&room, LOOKED_FOR);
        let manager = &room.manager;
        let (id, drives) = {
            let pool = &manager.state.read().pools[0];
            (pool.id, pool.drives.clone())
        };
        // No other brings it up.
        let look = manager.look_of("tank");
        let _look = look.lock().expect("whole");
        std::fs::rename(&away, &drive).expect("it comes");
        let wanted = Wanted::new("tank", Some(id));
        let opened = manager.open_known(&drives, &wanted);
        let pool = manager.bring_up(&wanted, opened);
        // As the end of the daemon does, which then waits for hosts.
        manager.stopping.store(true, Ordering::Release);
        manager.lock().clear();
        let start = Start {
            name: "tank".into(),
            id: Some(id),
            drives,
        };
        manager.keep_started(&start, pool);
        assert_eq!(manager.state.read().pools.len(), 1);
    }
}
