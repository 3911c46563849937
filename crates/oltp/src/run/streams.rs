//! Streams of transactions that are more than there can be threads: each begins one transaction every so often, whether
//! the database keeps up or not, or when its user has thought about the one before. A stream is a state (its terminal,
//! and when its next transaction is due); a few users, each a thread with a session, run whatever is due, the longest due
//! first. So 28,800 streams take a few megabytes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::inputs::{Kind, Pauses, Transaction};
use crate::terminal::{Terminal, TerminalSetting};

/// What is due within this time of each other is begun at once: sleeping for less costs more than it gives.
const GRAIN: Duration = Duration::from_millis(1);
/// Waiting users look this often whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// All streams of a step.
pub(crate) struct Streams {
    queue: Mutex<Queue>,
    changed: Condvar,
    pace: Pace,
}

/// When a stream's next transaction is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// An interval after the one before was.
    Interval(Duration),
    /// When the one before has ended, been thought about, and this one keyed in.
    Think(Pauses),
}

/// A stream between two transactions.
struct Stream {
    terminal: Terminal,
    /// What is keyed in; none of a stream that does not.
    next: Option<Transaction>,
}

impl Stream {
    /// How long what was done is thought about, at first as much as about what is next, and what is next is keyed in.
    fn pause(&mut self, done: Option<Kind>, pauses: &Pauses) -> Duration {
        let next = self.terminal.next_transaction();
        let kind = next.kind();
        self.next = Some(next);
        let mean = pauses.of(done.unwrap_or(kind)).thinking_s;
        let thinking = self.terminal.think_seconds(mean);
        Duration::from_secs_f64(thinking + pauses.of(kind).keying_s)
    }
}

struct Queue {
    /// When a stream's next transaction is due, since the start; and which stream.
    due: BinaryHeap<Reverse<(Duration, u32)>>,
    /// Of a stream whose transaction runs, none.
    streams: Vec<Option<Stream>>,
    start: Option<Instant>,
    /// One user waits for the next that is due; the others wait to be told.
    is_awaited: bool,
}

/// A stream whose transaction is due.
pub(crate) struct Due {
    pub(crate) since: Instant,
    pub(crate) transaction: Transaction,
    of: Stream,
    number: u32,
    at: Duration,
}

impl Pace {
    /// So often a second.
    pub(crate) fn rate(each: f64) -> Self {
        Self::Interval(Duration::from_secs_f64(1.0 / each))
    }

    /// When a stream's first transaction is due: spread over an interval, or as if it had thought about one.
    fn first(&self, stream: &mut Stream, share: f64) -> Duration {
        match self {
            Self::Interval(interval) => interval.mul_f64(share),
            Self::Think(pauses) => stream.pause(None, pauses),
        }
    }
}

impl Streams {
    /// So many streams at this pace.
    pub(crate) fn new(setting: &TerminalSetting, streams: u32, pace: Pace) -> Self {
        let setting = TerminalSetting {
            users: streams as usize,
            ..*setting
        };
        let mut queue = Queue {
            due: BinaryHeap::with_capacity(streams as usize),
            streams: Vec::with_capacity(streams as usize),
            start: None,
            is_awaited: false,
        };
        for number in 0..streams {
            let terminal = Terminal::new(&setting, number as usize);
            let mut stream = Stream {
                terminal,
                next: None,
            };
            let share = f64::from(number) / f64::from(streams);
            let at = pace.first(&mut stream, share);
            queue.due.push(Reverse((at, number)));
            queue.streams.push(Some(stream));
        }
        Self {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            pace,
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

    /// Gives a stream back, whose transaction has ended. Its next one is due an interval after this one *was*, or when
    /// this one has been thought about.
    pub(crate) fn done(&self, mut due: Due) {
        let at = match &self.pace {
            Pace::Interval(interval) => due.at + *interval,
            Pace::Think(pauses) => {
                let ended = due.at + due.since.elapsed();
                ended + due.of.pause(Some(due.transaction.kind()), pauses)
            }
        };
        let mut queue = self.lock();
        queue.due.push(Reverse((at, due.number)));
        queue.streams[due.number as usize] = Some(due.of);
    }

    /// Transactions that are due by now and not begun.
    pub(crate) fn missed(&self) -> u64 {
        let queue = self.lock();
        let Some(start) = queue.start else { return 0 };
        let now = start.elapsed();
        let late = |Reverse((at, _)): &Reverse<(Duration, u32)>| {
            let behind = now.checked_sub(*at)?;
            Some(match &self.pace {
                Pace::Interval(interval) => {
                    (behind.as_secs_f64() / interval.as_secs_f64()) as u64 + 1
                }
                Pace::Think(_) => 1,
            })
        };
        queue.due.iter().filter_map(late).sum()
    }
}

impl Queue {
    fn take(&mut self, start: Instant) -> Option<Due> {
        let Reverse((at, number)) = self.due.pop()?;
        let of = self.streams[number as usize].take();
        let mut of = of.expect("a stream that is due does not run");
        let keyed = of.next.take();
        Some(Due {
            since: start + at,
            transaction: keyed.unwrap_or_else(|| of.terminal.next_transaction()),
            of,
            number,
            at,
        })
    }
}
