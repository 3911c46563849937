//! A database on an array of disks, behind a cache of a third of it, from the moment at which the cache is empty: users
//! who read pages and commit, a log, a writer of what they have changed, and a system beside it on the same disks.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use ashlar_block::{Durability, Moment, Operation};
use ashlar_cache::RuleId;
use serde::Serialize;

use super::rig::{Behind, Rig, Setup};
use crate::failure::Failure;

/// Pages of 8 KiB.
const PAGES: u64 = 48 << 10;
const PAGE: u64 = 2;
/// Of the database, what is cached.
const CACHED: u64 = 3;
/// Memory of the server: 4 % of its database.
const MEMORY: usize = PAGES as usize / 25;
/// Of what is asked for, in a hundred, is this much in a fifth of the pages: those of TPC-C, without the order of rows in
/// them (Leutenegger and Dias, 1993).
const HOT_OF_100: u32 = 75;
const HOT: u64 = PAGES / 5;
/// Pages that a transaction looks at, of which each third is changed.
const LOOKS: u32 = 12;
const CHANGED_EACH: u32 = 3;
const USERS: usize = 32;
/// Where the log is, behind the pages, and how long until it begins again.
const LOG: u64 = PAGES * PAGE;
const LOG_GRANULES: u64 = (64 << 20) / 4096;
/// Where a system is, and how much.
const SYSTEM: u64 = LOG + LOG_GRANULES;
const SYSTEM_GRANULES: u64 = PAGES * PAGE;
const GRANULES: u64 = SYSTEM + SYSTEM_GRANULES;
/// Changed pages that are written at a time, and that users wait for when there are more.
const WRITERS: usize = 16;
const MOST_CHANGED: usize = MEMORY / 4;
/// Between flushes of what has been written.
const CHECKPOINT: Duration = Duration::from_secs(30);
/// Between a system's accesses: half of them read files in order, in pieces of 256 KiB, a quarter are random writes.
const SYSTEM_EACH: Duration = Duration::from_millis(20);
const SYSTEM_PIECE: u64 = 64;
/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lasts {
    pub(super) all: Duration,
    /// From when on it is taken for warm: the end of a point.
    pub(super) warm: Duration,
    /// Each point of the curve.
    pub(super) point: Duration,
}

impl Lasts {
    pub(super) const FULL: Self = Self {
        all: Duration::from_secs(200),
        warm: Duration::from_secs(100),
        point: Duration::from_secs(20),
    };
}

/// What stands in front of the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cached {
    Nothing,
    /// Everything, and the cache decides.
    Automatic,
    /// The log, and the system, are kept out by hand.
    ByHand,
}

impl Cached {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Automatic => "automatic",
            Self::ByHand => "by hand",
        }
    }
}

/// A part of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    pub(crate) until_seconds: u64,
    pub(crate) tps: f64,
    /// Parts of reads that came from the cache, in a hundred.
    pub(crate) hit_pct: f64,
    pub(crate) seeks_a_second: f64,
    pub(crate) newer_pct: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Run {
    pub(crate) with_system: bool,
    pub(crate) cached: Cached,
    /// Transactions a second once it is warm.
    pub(crate) tps: f64,
    /// How long commits waited once it is warm, in milliseconds: all but one in a thousand at most as long, and each.
    pub(crate) commit_p999_ms: f64,
    pub(crate) commit_most_ms: f64,
    pub(crate) curve: Vec<Point>,
}

const LOG_TAG: u64 = 1 << 20;
const SYSTEM_TAG: u64 = 2 << 20;
const CHECKPOINT_TAG: u64 = 3 << 20;
const WRITER_TAG: u64 = 4 << 20;

/// A server's memory: pages by clock.
struct Memory {
    frames: Vec<(u64, bool)>,
    places: HashMap<u64, usize>,
    hand: usize,
}

impl Memory {
    fn has(&mut self, page: u64) -> bool {
        let Some(&at) = self.places.get(&page) else {
            return false;
        };
        self.frames[at].1 = true;
        true
    }

    fn put(&mut self, page: u64) {
        if self.has(page) {
            return;
        }
        if self.frames.len() < MEMORY {
            self.places.insert(page, self.frames.len());
            return self.frames.push((page, false));
        }
        while std::mem::take(&mut self.frames[self.hand].1) {
            self.hand = (self.hand + 1) % MEMORY;
        }
        self.places.remove(&self.frames[self.hand].0);
        self.frames[self.hand] = (page, false);
        self.places.insert(page, self.hand);
        self.hand = (self.hand + 1) % MEMORY;
    }
}

/// A user in a transaction.
#[derive(Clone, Copy)]
struct User {
    looks_left: u32,
    reading: u64,
}

struct Database {
    rig: Rig,
    random: fastrand::Rng,
    memory: Memory,
    users: Vec<User>,
    /// Users who do not wait for storage.
    awake: Vec<usize>,
    /// Changed pages that are not being written, and where in them the writer is.
    changed: BTreeSet<u64>,
    cursor: u64,
    writing: usize,
    /// Users who wait for the writer.
    held: Vec<usize>,
    log_at: u64,
    log_busy: bool,
    committing: Vec<(usize, Moment)>,
    next_commits: Vec<(usize, Moment)>,
    commits: Vec<Duration>,
    finished: u64,
    checkpoint: Moment,
    system: Option<Moment>,
    system_at: u64,
    system_busy: bool,
    checkpointing: bool,
}

/// Measures one.
pub(super) fn database(cached: Cached, with_system: bool, lasts: Lasts) -> Result<Run, Failure> {
    let mut rig = Rig::of(Setup {
        behind: Behind::Array,
        granules: GRANULES,
        cache_bytes: (cached != Cached::Nothing).then_some(PAGES * PAGE * 4096 / CACHED),
    })?;
    if let Some(cache) = rig.cache().filter(|_| cached == Cached::ByHand) {
        // What is not the database.
        let others = LOG..GRANULES;
        cache.set_rule(RuleId(1), vec![others]);
    }
    let begins = rig.now();
    let mut one = Database {
        random: fastrand::Rng::with_seed(3),
        memory: Memory {
            frames: Vec::new(),
            places: HashMap::new(),
            hand: 0,
        },
        users: vec![
            User {
                looks_left: LOOKS,
                reading: 0,
            };
            USERS
        ],
        awake: (0..USERS).collect(),
        changed: BTreeSet::new(),
        cursor: 0,
        writing: 0,
        held: Vec::new(),
        log_at: 0,
        log_busy: false,
        committing: Vec::new(),
        next_commits: Vec::new(),
        commits: Vec::new(),
        finished: 0,
        checkpoint: begins + CHECKPOINT,
        system: with_system.then_some(begins),
        system_at: SYSTEM,
        system_busy: false,
        checkpointing: false,
        rig,
    };
    one.run(cached, begins, lasts)
}

impl Database {
    fn run(&mut self, cached: Cached, begins: Moment, lasts: Lasts) -> Result<Run, Failure> {
        let mut curve = Vec::new();
        let (mut before, mut warm) = (self.counters(), 0);
        let mut done = Vec::new();
        let mut until = begins + lasts.point;
        while self.rig.now() < begins + lasts.all {
            self.act()?;
            self.rig.turn(&mut done)?;
            for completion in std::mem::take(&mut done) {
                completion.result.map_err(Failure::doing("an access"))?;
                self.ended(completion.tag)?;
            }
            if self.rig.now() < until {
                continue;
            }
            let now = self.counters();
            curve.push(now.since(&before, self.rig.now().since(begins)));
            if until.since(begins) == lasts.warm {
                warm = self.finished;
                self.commits.clear();
            }
            (before, until) = (now, until + lasts.point);
        }
        self.commits.sort();
        let at = self.commits.len().saturating_sub(1) * 999 / 1000;
        let ms = |at: usize| {
            self.commits
                .get(at)
                .map_or(0.0, |one| one.as_secs_f64() * 1e3)
        };
        Ok(Run {
            with_system: self.system.is_some(),
            cached,
            tps: (self.finished - warm) as f64 / (lasts.all - lasts.warm).as_secs_f64(),
            commit_p999_ms: ms(at),
            commit_most_ms: ms(self.commits.len().saturating_sub(1)),
            curve,
        })
    }

    /// Begins what can begin now.
    fn act(&mut self) -> Result<(), Failure> {
        while let Some(user) = self.awake.pop() {
            self.go_on(user)?;
        }
        self.log()?;
        self.write_changed()?;
        let now = self.rig.now();
        if now >= self.checkpoint && !self.checkpointing {
            self.checkpointing = true;
            self.checkpoint = now + CHECKPOINT;
            self.rig.request(CHECKPOINT_TAG, Operation::Flush, 0..0)?;
        }
        self.system(now)
    }

    fn go_on(&mut self, user: usize) -> Result<(), Failure> {
        if self.changed.len() > MOST_CHANGED {
            self.held.push(user);
            return Ok(());
        }
        while self.users[user].looks_left > 0 {
            let page = self.page();
            self.users[user].reading = page;
            if !self.memory.has(page) {
                return self.read(user as u64, page);
            }
            self.looked(user);
        }
        self.next_commits.push((user, self.rig.now()));
        Ok(())
    }

    fn page(&mut self) -> u64 {
        let hot = self.random.u32(..100) < HOT_OF_100;
        let at = match hot {
            true => self.random.u64(..HOT),
            false => self.random.u64(HOT..PAGES),
        };
        // All over the database.
        at * 25_717 % PAGES
    }

    fn read(&mut self, tag: u64, page: u64) -> Result<(), Failure> {
        let first = page * PAGE;
        self.rig.request(tag, Operation::Read, first..first + PAGE)
    }

    /// A user has a page.
    fn looked(&mut self, user: usize) {
        let page = self.users[user].reading;
        self.memory.put(page);
        self.users[user].looks_left -= 1;
        if self.users[user].looks_left.is_multiple_of(CHANGED_EACH) {
            self.changed.insert(page);
        }
    }

    /// Commits of many are one write of the log, and a flush.
    fn log(&mut self) -> Result<(), Failure> {
        if self.log_busy || self.next_commits.is_empty() {
            return Ok(());
        }
        self.log_busy = true;
        self.committing = std::mem::take(&mut self.next_commits);
        let granules = (self.committing.len() as u64).div_ceil(4) * PAGE;
        if self.log_at + granules > LOG_GRANULES {
            self.log_at = 0;
        }
        let first = LOG + self.log_at;
        self.log_at += granules;
        let op = Operation::Write(Durability::Cached);
        self.rig.request(LOG_TAG, op, first..first + granules)
    }

    /// In order of address, round and round.
    fn write_changed(&mut self) -> Result<(), Failure> {
        while self.writing < WRITERS && self.changed.len() > MOST_CHANGED / 2 {
            let next = self.changed.range(self.cursor..).next();
            let next = next.or_else(|| self.changed.first());
            let Some(&page) = next else { break };
            self.changed.remove(&page);
            self.cursor = page + 1;
            self.writing += 1;
            let op = Operation::Write(Durability::Cached);
            let first = page * PAGE;
            self.rig.request(WRITER_TAG, op, first..first + PAGE)?;
        }
        if self.changed.len() <= MOST_CHANGED {
            self.awake.append(&mut self.held);
        }
        Ok(())
    }

    fn system(&mut self, now: Moment) -> Result<(), Failure> {
        let Some(due) = self.system.filter(|&due| due <= now && !self.system_busy) else {
            return Ok(());
        };
        self.system = Some(due + SYSTEM_EACH);
        self.system_busy = true;
        if self.random.bool() {
            let first = self.system_at;
            self.system_at += SYSTEM_PIECE;
            if self.system_at + SYSTEM_PIECE > GRANULES {
                self.system_at = SYSTEM;
            }
            return self
                .rig
                .request(SYSTEM_TAG, Operation::Read, first..first + SYSTEM_PIECE);
        }
        let first = self.random.u64(SYSTEM..GRANULES - 1);
        let op = match self.random.bool() {
            true => Operation::Read,
            false => Operation::Write(Durability::Cached),
        };
        self.rig.request(SYSTEM_TAG, op, first..first + 1)
    }

    fn ended(&mut self, tag: u64) -> Result<(), Failure> {
        match tag {
            LOG_TAG => return self.rig.request(LOG_TAG + 1, Operation::Flush, 0..0),
            SYSTEM_TAG => self.system_busy = false,
            CHECKPOINT_TAG => self.checkpointing = false,
            WRITER_TAG => self.writing -= 1,
            tag if tag == LOG_TAG + 1 => self.committed(),
            user => {
                self.looked(user as usize);
                self.awake.push(user as usize);
            }
        }
        Ok(())
    }

    fn committed(&mut self) {
        self.log_busy = false;
        let now = self.rig.now();
        for (user, since) in std::mem::take(&mut self.committing) {
            self.finished += 1;
            self.commits.push(now.since(since));
            self.users[user].looks_left = LOOKS;
            self.awake.push(user);
        }
    }

    fn counters(&mut self) -> Counters {
        let (seeks, finished) = (self.rig.seeks(), self.finished);
        let status = self.rig.cache().map(|cache| cache.status());
        Counters {
            at: self.rig.now(),
            finished,
            seeks,
            hits: status.as_ref().map_or(0, |one| one.read_hits),
            misses: status.as_ref().map_or(0, |one| one.read_misses),
            newer: status.as_ref().map_or(0, |one| one.dirty_bytes),
        }
    }
}

struct Counters {
    at: Moment,
    finished: u64,
    seeks: u64,
    hits: u64,
    misses: u64,
    newer: u64,
}

impl Counters {
    fn since(&self, before: &Self, age: Duration) -> Point {
        let seconds = self.at.since(before.at).as_secs_f64();
        let (hits, misses) = (self.hits - before.hits, self.misses - before.misses);
        Point {
            until_seconds: age.as_secs(),
            tps: (self.finished - before.finished) as f64 / seconds,
            hit_pct: 100.0 * hits as f64 / ((hits + misses).max(1)) as f64,
            seeks_a_second: (self.seeks - before.seeks) as f64 / seconds,
            newer_pct: 100.0 * self.newer as f64 / (PAGES * PAGE * 4096 / CACHED) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_does_not_wait_for_disks_behind_a_cache() {
        let lasts = Lasts {
            all: Duration::from_secs(3),
            warm: Duration::from_secs(1),
            point: Duration::from_secs(1),
        };
        let run = |cached| database(cached, true, lasts).expect("measured");
        let (disk, cached) = (run(Cached::Nothing), run(Cached::Automatic));
        assert!(cached.tps > disk.tps, "{cached:?}, {disk:?}");
        assert!(disk.commit_most_ms > 5.0, "{disk:?}");
        assert!(cached.commit_most_ms < 5.0, "{cached:?}");
    }
}
