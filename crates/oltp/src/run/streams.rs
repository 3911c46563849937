//! Streams of transactions that are more than there can be threads: each begins one transaction every so often, whether
//! the database keeps up or not. A stream is a state (its terminal, and when its next transaction is due); a few users,
//! each a thread with a session, run whatever is due, the longest due first. So 28,800 streams take a few megabytes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::terminal::{Terminal, TerminalSetting};

/// What is due within this time of each other is begun at once: sleeping for less costs more than it gives.
const GRAIN: Duration = Duration::from_millis(1);
/// Waiting users look this often whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// All streams of a step.
pub(crate) struct Streams {
    queue: Mutex<Queue>,
    changed: Condvar,
    interval: Duration,
}

struct Queue {
    /// When a stream's next transaction is due, since the start; and which stream.
    due: BinaryHeap<Reverse<(Duration, u32)>>,
    /// Of a stream whose transaction runs, none.
    terminals: Vec<Option<Terminal>>,
    start: Option<Instant>,
    /// One user waits for the next that is due; the others wait to be told.
    is_awaited: bool,
}

/// A stream whose transaction is due.
pub(crate) struct Due {
    pub(crate) since: Instant,
    pub(crate) terminal: Terminal,
    stream: u32,
    at: Duration,
}

impl Streams {
    /// So many streams, each with a transaction a second `each` times, evenly apart.
    pub(crate) fn new(setting: &TerminalSetting, streams: u32, each: f64) -> Self {
        let interval = Duration::from_secs_f64(1.0 / each);
        let setting = TerminalSetting {
            users: streams as usize,
            ..*setting
        };
        let first = |stream: u32| {
            let at = interval.mul_f64(f64::from(stream) / f64::from(streams));
            Reverse((at, stream))
        };
        let terminal = |stream| Some(Terminal::new(&setting, stream as usize));
        Self {
            queue: Mutex::new(Queue {
                due: (0..streams).map(first).collect(),
                terminals: (0..streams).map(terminal).collect(),
                start: None,
                is_awaited: false,
            }),
            changed: Condvar::new(),
            interval,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream that is due for longest, when there is one; none if it `is_over` before.
    pub(crate) fn next(&self, is_over: impl Fn() -> bool) -> Option<Due> {
        let mut queue = self.lock();
        while !is_over() {
            let start = *queue.start.get_or_insert_with(Instant::now);
            let left = match queue.due.peek() {
                Some(Reverse((at, _))) => at.saturating_sub(start.elapsed()),
                None => LOOK_EVERY,
            };
            if left.is_zero() {
                let due = queue.take(start)?;
                // Another user may run what is due by now, or wait for what comes.
                self.changed.notify_one();
                return Some(due);
            }
            if queue.is_awaited {
                let waited = self.changed.wait_timeout(queue, LOOK_EVERY);
                queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            queue.is_awaited = true;
            drop(queue);
            std::thread::sleep(left.clamp(GRAIN, LOOK_EVERY));
            queue = self.lock();
            queue.is_awaited = false;
        }
        None
    }

    /// Gives a stream back, whose transaction has ended. Its next one is due an interval after this one *was*.
    pub(crate) fn done(&self, due: Due) {
        let mut queue = self.lock();
        let at = due.at + self.interval;
        queue.due.push(Reverse((at, due.stream)));
        queue.terminals[due.stream as usize] = Some(due.terminal);
    }

    /// Transactions that are due by now and not begun.
    pub(crate) fn missed(&self) -> u64 {
        let queue = self.lock();
        let Some(start) = queue.start else { return 0 };
        let now = start.elapsed();
        let late = |Reverse((at, _)): &Reverse<(Duration, u32)>| {
            let behind = now.checked_sub(*at)?;
            Some((behind.as_secs_f64() / self.interval.as_secs_f64()) as u64 + 1)
        };
        queue.due.iter().filter_map(late).sum()
    }
}

impl Queue {
    fn take(&mut self, start: Instant) -> Option<Due> {
        let Reverse((at, stream)) = self.due.pop()?;
        let terminal = self.terminals[stream as usize].take();
        let terminal = terminal.expect("a stream that is due does not run");
        Some(Due {
            since: start + at,
            terminal,
            stream,
            at,
        })
    }
}
