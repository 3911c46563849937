//! Looks for two primaries: each server is asked past the listener all the time, and where it says that it takes writes,
//! it is given one. A write that was acknowledged and is not there in the end was taken by a primary that was none.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress};

use super::trace::{Ack, Server};
use crate::database::{Database, ServerStart, Watcher};
use crate::postgres::{EPOCH, Logic, Postgres, STARTED};

/// How often a server is asked.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// One that did not answer, so often: each question takes processor time from a server that comes up.
const ASK_SILENT_EVERY: Duration = Duration::from_millis(200);
/// An answer that took longer says nothing about the time before it.
const PROMPT: Duration = Duration::from_secs(1);

const IS_PRIMARY: &str = "SELECT (NOT pg_is_in_recovery())::int::bigint";

/// A server that is watched.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    /// The node that it is on.
    pub(super) node: String,
    /// Its database, past the listener.
    pub(super) url: String,
}

/// A write of our own that a server has acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) number: i64,
    pub(super) node: String,
    pub(super) ack: Ack,
}

/// A connection to a server that is watched.
struct Asked {
    watcher: Box<dyn Watcher>,
    /// When its server was started: it ends with it.
    started_us: i64,
}

/// Makes the table that probes go to.
pub(super) fn prepare(database: &dyn Database) -> Result<(), LabError> {
    database.execute("CREATE TABLE ashlar_probe (number bigint PRIMARY KEY, epoch bigint NOT NULL)")
}

/// A time in which a server was a primary for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    server: usize,
    from: Instant,
    to: Instant,
}

/// What was seen of all servers of a round.
pub(super) struct Watch {
    servers: Vec<Watched>,
    stretches: Mutex<Vec<Stretch>>,
    /// Those that were acknowledged.
    probes: Mutex<Vec<Probe>>,
    next: AtomicI64,
    over: Arc<AtomicBool>,
}

impl Watch {
    /// Watches these; probes have numbers from this one on.
    pub(super) fn new(servers: Vec<Watched>, first: i64) -> Self {
        Self {
            servers,
            stretches: Mutex::default(),
            probes: Mutex::default(),
            next: AtomicI64::new(first),
            over: Arc::default(),
        }
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(super) fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Asks one of them until it is over.
    pub(super) fn ask(&self, server: usize) {
        let progress = Progress::silent().until(Arc::clone(&self.over));
        let Some(watched) = self.servers.get(server) else {
            return;
        };
        let Ok(database) = Postgres::new(&watched.url, Logic::Functions) else {
            return;
        };
        let database = database.until(&progress);
        let mut connection: Option<Asked> = None;
        let mut stretch: Option<Stretch> = None;
        while !self.over.load(Ordering::SeqCst) {
            let begun = Instant::now();
            if connection.is_none() {
                connection = database.watcher().ok().and_then(Asked::of);
            }
            let answer = connection
                .as_mut()
                .and_then(|asked| self.look(asked, &watched.node));
            let now = Instant::now();
            let is_primary = answer == Some(true) && now - begun < PROMPT;
            match &mut stretch {
                Some(open) if is_primary => open.to = begun,
                _ => {
                    self.keep(stretch.take());
                    stretch = is_primary.then_some(Stretch {
                        server,
                        from: now,
                        to: now,
                    });
                }
            }
            if answer.is_none() {
                connection = None;
            }
            std::thread::sleep(match answer {
                Some(_) => ASK_EVERY,
                None => ASK_SILENT_EVERY,
            });
        }
        self.keep(stretch);
    }

    /// Asks once, and has a primary take a write.
    fn look(&self, asked: &mut Asked, node: &str) -> Option<bool> {
        let is_primary = asked.watcher.number(IS_PRIMARY).ok()? == 1;
        if is_primary {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            let ack = asked.write(number)?;
            let node = node.to_owned();
            let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
            probes.push(Probe { number, node, ack });
        }
        Some(is_primary)
    }

    /// All that were acknowledged.
    pub(super) fn probes(&self) -> Vec<Probe> {
        let probes = self.probes.lock();
        probes.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, stretch: Option<Stretch>) {
        let mut stretches = self
            .stretches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        stretches.extend(stretch.filter(|one| one.to > one.from));
    }

    /// For how long two of them were primaries at once, for certain.
    pub(super) fn both(&self) -> Duration {
        both(
            &self
                .stretches
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Probes that were acknowledged, and how many of them are not there.
    pub(super) fn audit(&self, watcher: &mut dyn Watcher) -> Result<(usize, usize), LabError> {
        let probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing = 0;
        for some in probes.chunks(1000) {
            let rows: Vec<String> = some
                .iter()
                .map(|probe| format!("({}::bigint)", probe.number))
                .collect();
            let sql = format!(
                "WITH told(n) AS (VALUES {}) SELECT count(*) FROM told LEFT JOIN ashlar_probe ON number = n \
                 WHERE number IS NULL",
                rows.join(",")
            );
            missing += watcher.number(&sql)?.max(0).unsigned_abs() as usize;
        }
        Ok((probes.len(), missing))
    }
}

impl Asked {
    /// Nothing of a server that does not answer.
    fn of(mut watcher: Box<dyn Watcher>) -> Option<Self> {
        let started_us = watcher.number(&format!("SELECT {STARTED}")).ok()?;
        Some(Self {
            watcher,
            started_us,
        })
    }

    /// Has a primary take a write, which holds the epoch that it was taken in; nothing if it does not.
    fn write(&mut self, number: i64) -> Option<Ack> {
        let begun = Instant::now();
        let insert = format!("INSERT INTO ashlar_probe SELECT {number}, {EPOCH} RETURNING epoch");
        let epoch = self.watcher.number(&insert).ok()?;
        let server = Server(ServerStart {
            epoch,
            started_us: self.started_us,
        });
        let at = Instant::now();
        Some(Ack { server, begun, at })
    }
}

fn both(stretches: &[Stretch]) -> Duration {
    let mut sum = Duration::ZERO;
    for (at, one) in stretches.iter().enumerate() {
        for other in stretches[at + 1..]
            .iter()
            .filter(|other| other.server != one.server)
        {
            let (from, to) = (one.from.max(other.from), one.to.min(other.to));
            sum += to.saturating_duration_since(from);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_primaries_at_once_are_counted_and_one_after_the_other_is_not() {
        let base = Instant::now();
        let stretch = |server, from, to| Stretch {
            server,
            from: base + Duration::from_millis(from),
            to: base + Duration::from_millis(to),
        };
        assert_eq!(
            both(&[
                stretch(0, 0, 100),
                stretch(1, 150, 300),
                stretch(0, 400, 500)
            ]),
            Duration::ZERO
        );
        let overlap = [
            stretch(0, 0, 100),
            stretch(1, 80, 300),
            stretch(0, 290, 500),
        ];
        assert_eq!(both(&overlap), Duration::from_millis(30));
        assert_eq!(
            both(&[stretch(0, 0, 100), stretch(0, 50, 200)]),
            Duration::ZERO
        );
    }
}
