//! Pools that are remembered or configured, as the daemon starts: each on a thread of its own, for a drive that
//! is missing or does not answer must hold up no other pool.

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
use crate::pool::{Found, OpenDrive, Opening, missing, open_drives, probe};

/// How often drives that a pool waits for are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often those are that a pool cannot go on without, once it has waited its time.
const LOOK_ON_EVERY: Duration = Duration::from_secs(2);

/// What follows then, for its state.
const LOOKED_FOR: &str =
    "They are looked for every 2 s: with all of them here it comes into service by itself";

/// A pool's drives as far as they can be used.
pub(super) struct Opened {
    pub(super) drives: Vec<OpenDrive>,
    /// Why each of the others cannot.
    pub(super) missing: Vec<String>,
    /// Those of the others that are there and do not answer: they are not waited for again.
    silent: Vec<String>,
}

/// A pool that is to be brought up.
#[derive(Clone)]
struct Start {
    name: String,
    id: Option<Uuid>,
    drives: Vec<String>,
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
            let (manager, settled) = (self.clone(), settled.clone());
            let own = start.clone();
            let begin = thread::Builder::new().name("import".into());
            if let Err(error) = begin.spawn(move || manager.start_pool(&own, settled)) {
                self.keep_failed(&start, format!("a thread cannot be started: {error}"));
            }
        }
        drop(settled);
        // Nothing is sent: the last of them has settled when no sender is left.
        while all_settled.recv().is_ok() {}
    }

    fn keep_failed(&self, start: &Start, why: String) {
        self.keep_out(start, why, Ending::ByOrder);
    }

    fn keep_out(&self, start: &Start, why: String, ending: Ending) {
        let failed = Kept::Failed {
            id: start.id.unwrap_or_default(),
            drives: start.drives.clone(),
            why,
            ending,
        };
        self.lock().insert(start.name.clone(), failed);
        self.expect_volumes_of(start.id);
    }

    /// Whether the pool has not been imported or let go of by order, and the daemon goes on.
    fn is_wanted(&self, start: &Start) -> bool {
        let id = start.id.unwrap_or_default();
        let waits = matches!(self.lock().get(&start.name), Some(Kept::Failed { id: known, .. }) if *known == id);
        waits && !self.stopping.load(Ordering::Acquire)
    }

    fn start_pool(&self, start: &Start, settled: Sender<()>) {
        let (name, begun) = (&start.name, Instant::now());
        let mut settled = Some(settled);
        let look = self.look_of(name);
        while self.is_wanted(start) {
            let alone = look.lock().unwrap_or_else(PoisonError::into_inner);
            let opened = self.open_ours(start);
            let lacks = self.lacks(&opened);
            let waited = begun.elapsed();
            if let Some(lacks) = lacks.filter(|_| waited < self.drive_wait) {
                // What it has is free meanwhile: an operator may import the pool without the rest.
                drop(opened);
                drop(alone);
                let why = waits(name, &lacks, self.drive_wait);
                if settled.take().is_some() {
                    warn!(pool = name, "pool {name}: {why}");
                    if self.is_wanted(start) {
                        self.keep_out(start, why, Ending::ByItself);
                    }
                }
                thread::sleep(LOOK_EVERY.min(self.drive_wait - waited));
                continue;
            }
            let lacks = self.lacks(&opened);
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

    /// Looks for the drives of a pool that cannot go on without those it lacks: they may be late, or still be held by
    /// a daemon that was killed. It is tried again only with all of them: what else is wrong ends by order.
    fn look_on(&self, start: &Start) {
        let (name, look) = (&start.name, self.look_of(&start.name));
        loop {
            thread::sleep(LOOK_ON_EVERY);
            let _alone = look.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.is_wanted(start) {
                return;
            }
            let opened = self.open_ours(start);
            let has_some = !opened.drives.is_empty() && opened.silent.is_empty();
            if !has_some || self.lacks(&opened).is_some() {
                continue;
            }
            info!(pool = name, "pool {name}: its drives are here");
            let kept = self.bring_up(&Wanted::new(name, start.id), opened);
            return self.keep_started(start, kept);
        }
    }

    /// What is held while a pool's drives are looked for at the start, and while an order takes the pool up or lets it
    /// go: one would find the drives in use by the other. Taken before `pools`.
    pub(super) fn look_of(&self, name: &str) -> Arc<Mutex<()>> {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.entry(name.to_owned()).or_default().clone()
    }

    /// What has become of a pool that was to be brought up.
    fn keep_started(&self, start: &Start, outcome: Result<LivePool, ControlError>) {
        let name = &start.name;
        let is_wanted = self.is_wanted(start);
        match outcome {
            Ok(pool) if is_wanted => {
                // It is served all the same: what is lost is how a drive was called.
                if let Err(error) = self.remember_drives(&pool) {
                    warn!(pool = name, "pool {name}: {}", error.message);
                }
                self.expect_no_volumes_of(pool.id);
                self.lock().insert(name.clone(), Kept::Live(pool));
            }
            Ok(pool) => self.take_down(&pool),
            Err(error) if is_wanted => {
                let why = error.message;
                error!(pool = name, "pool {name} is not in service: {why}");
                self.keep_failed(start, why);
            }
            Err(_) => {}
        }
    }

    /// Opens drives that have been a pool's. What does not answer is not among them.
    pub(super) fn open_known(&self, specs: &[String]) -> Opened {
        let mut opened = Opened {
            drives: Vec::new(),
            missing: Vec::new(),
            silent: Vec::new(),
        };
        let how = self.opening(true);
        for spec in specs {
            match open_drives(std::slice::from_ref(spec), how) {
                Ok(mut drive) => opened.drives.append(&mut drive),
                // The pool may be able to go on without it; the engine decides.
                Err(error) => opened.missing.push(error.message),
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

    /// The drives of a pool that was in service before. One that has left it may hold another since.
    fn open_ours(&self, start: &Start) -> Opened {
        let opened = self.open_known(&start.drives);
        let meant = Wanted::new(&start.name, start.id);
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
    fn lacks(&self, opened: &Opened) -> Option<String> {
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

/// What a pool says that waits for late drives: what ends by itself first, what cannot be taken back last.
fn waits(name: &str, lacks: &str, limit: Duration) -> String {
    let seconds = limit.as_secs();
    format!(
        "nothing has to be done: it waits for {lacks}, and goes on by itself when that is here, or after {seconds} s if \
         it can without it; `pool import {name} --degraded` goes on without it at once, for good"
    )
}
