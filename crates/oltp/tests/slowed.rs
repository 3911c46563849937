//! The whole way from users to words, on a database that only waits, at a rate of its own: two runs of one configuration show no
//! difference, and a configuration that is slowed down by a tenth on purpose is found.

mod fake;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ashlar_lab::Comparison;
use ashlar_lab::Progress;
use ashlar_lab::stats::Ratio;
use ashlar_oltp::database::{Database, Failure, Outcome};
use ashlar_oltp::inputs::{Mix, Transaction};
use ashlar_oltp::{Mode, OltpResult, RunPlan, begin, run};
use fake::{Acts, Fake};

/// The database ends one transaction in this time, of all users together.
const TRANSACTION: Duration = Duration::from_millis(1);
/// Without a transaction for so long, the database stood still. A shorter pause is users on their way to their next
/// transactions; what it had to do while a loaded machine woke no thread, it catches up.
const IDLE: Duration = Duration::from_millis(5);

/// A queue with one server that never rests while a user waits, and orders that were taken.
struct Waiting {
    orders: AtomicI64,
    queue: Mutex<Queue>,
}

struct Queue {
    users: usize,
    empty_since: Instant,
    last_ends: Instant,
}

impl Queue {
    fn new(now: Instant) -> Self {
        Self {
            users: 0,
            empty_since: now,
            last_ends: now,
        }
    }

    /// When a transaction ends that begins now.
    fn enter(&mut self, now: Instant) -> Instant {
        if self.users == 0 && now.saturating_duration_since(self.empty_since) >= IDLE {
            self.last_ends = now;
        }
        self.users += 1;
        self.last_ends += TRANSACTION;
        self.last_ends
    }

    fn leave(&mut self, now: Instant) {
        self.users -= 1;
        if self.users == 0 {
            self.empty_since = now;
        }
    }
}

impl Waiting {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("a turn")
    }
}

impl Acts for Waiting {
    /// Every transaction is an order, so that the mix adds no noise.
    fn transact(&self, _: &Transaction) -> Result<Outcome, Failure> {
        let ends = self.queue().enter(Instant::now());
        std::thread::sleep(ends.saturating_duration_since(Instant::now()));
        self.orders.fetch_add(1, Ordering::SeqCst);
        self.queue().leave(Instant::now());
        Ok(Outcome::Committed)
    }

    fn orders(&self) -> i64 {
        self.orders.load(Ordering::SeqCst)
    }
}

fn ran(slow_down: f64) -> OltpResult {
    let waiting = Waiting {
        orders: AtomicI64::new(0),
        queue: Mutex::new(Queue::new(Instant::now())),
    };
    let database: Arc<dyn Database> = Arc::new(Fake(Arc::new(waiting)));
    let plan = RunPlan {
        users: vec![8],
        ramp: Duration::ZERO,
        measure: Duration::from_secs(1),
        mode: Mode::Timed,
        mix: Mix::TprocC,
        all_warehouses: false,
        pauses: None,
        slow_down,
        repeats: 8,
        seed: 1,
    };
    let mut result = begin(database.as_ref(), &plan).expect("begins");
    run(&database, &plan, &mut result, &Progress::silent()).expect("ran");
    result
}

#[test]
fn a_tenth_is_found_and_nothing_is_found_where_there_is_nothing() {
    let first = ran(0.0);
    let of = |slow_down| {
        let comparison = Comparison::of(&first, &ran(slow_down)).expect("compared");
        println!("{comparison}");
        let ratio = comparison.rows[0].ratio.clone().expect("pairs");
        (ratio, comparison.to_string())
    };
    // One in a hundred such runs is told apart, and a machine that stands still for a while may add to that: one is
    // asked again, and two in a row are wrong.
    assert!(
        (0..2).any(|_| !of(0.0).0.differs),
        "nothing was told apart, twice"
    );
    let found = |(ratio, text): (Ratio, String)| {
        let in_words = text.contains("x the first") && !text.contains("no difference");
        assert_eq!(ratio.differs, in_words, "{text}");
        assert!(text.contains("slowed down by % differs"), "{text}");
        ratio.differs && (0.86..0.96).contains(&ratio.ratio)
    };
    assert!((0..2).any(|_| found(of(0.1))), "a tenth was missed, twice");
}
