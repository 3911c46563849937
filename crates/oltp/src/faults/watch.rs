//! Looks for two primaries: each server is asked past the listener all the time, and where it says that it takes writes,
//! it is given one. A write that was acknowledged and is not there in the end was taken by a primary that was none.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress};

use crate::database::{Database, Watcher};
use crate::postgres::{Logic, Postgres};

/// A server is asked so often.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// One that did not answer, so often: each question takes processor time from a server that comes up.
const ASK_SILENT_EVERY: Duration = Duration::from_millis(200);
/// An answer that took longer says nothing about the time before it.
const PROMPT: Duration = Duration::from_secs(1);

const IS_PRIMARY: &str = "SELECT (NOT pg_is_in_recovery())::int::bigint";

/// Makes the table that probes go to.
pub(super) fn prepare(database: &dyn Database) -> Result<(), LabError> {
    database.execute("CREATE TABLE ashlar_probe (number bigint PRIMARY KEY)")
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
    servers: Vec<String>,
    stretches: Mutex<Vec<Stretch>>,
    /// Probes that were acknowledged.
    probes: Mutex<Vec<i64>>,
    next: AtomicI64,
    over: Arc<AtomicBool>,
}

impl Watch {
    /// Watches these; probes have numbers from this one on.
    pub(super) fn new(servers: Vec<String>, first: i64) -> Self {
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
        let Some(Ok(database)) = self
            .servers
            .get(server)
            .map(|url| Postgres::new(url, Logic::Functions))
        else {
            return;
        };
        let database = database.until(&progress);
        let mut connection: Option<Box<dyn Watcher>> = None;
        let mut stretch: Option<Stretch> = None;
        while !self.over.load(Ordering::SeqCst) {
            let begun = Instant::now();
            if connection.is_none() {
                connection = database.watcher().ok();
            }
            let answer = connection.as_mut().and_then(|c| self.look(c.as_mut()));
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
    fn look(&self, connection: &mut dyn Watcher) -> Option<bool> {
        let is_primary = connection.number(IS_PRIMARY).ok()? == 1;
        if is_primary {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            let insert = format!("INSERT INTO ashlar_probe VALUES ({number}) RETURNING number");
            connection.number(&insert).ok()?;
            self.probes
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(number);
        }
        Some(is_primary)
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
                .map(|number| format!("({number}::bigint)"))
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
