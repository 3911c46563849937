//! The whole way from users to words, on a database that only waits, at a rate of its own: two runs of one configuration show no
//! difference, and a configuration that is slowed down by a tenth on purpose is found.

mod fake;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ashlar_lab::Progress;
use ashlar_oltp::database::{Database, Failure, Outcome};
use ashlar_oltp::inputs::{Mix, Transaction};
use ashlar_oltp::{Comparison, Mode, OltpResult, RunPlan, begin, run};
use fake::{Acts, Fake};

/// The database ends one transaction in this time, whoever asks.
const TRANSACTION: Duration = Duration::from_millis(1);
/// It catches up so much, so that a loaded machine that wakes users late does not slow it.
const CATCHES_UP: Duration = Duration::from_millis(10);

/// Orders that were taken, and when the last of them ends.
struct Waiting(AtomicI64, Mutex<Instant>);

impl Acts for Waiting {
    /// Every transaction is an order, so that the mix adds no noise.
    fn transact(&self, _: &Transaction) -> Result<Outcome, Failure> {
        let Self(orders, last) = self;
        let ends = {
            let mut last = last.lock().expect("a turn");
            let now = Instant::now();
            *last = (*last).max(now.checked_sub(CATCHES_UP).unwrap_or(now)) + TRANSACTION;
            *last
        };
        std::thread::sleep(ends.saturating_duration_since(Instant::now()));
        orders.fetch_add(1, Ordering::SeqCst);
        Ok(Outcome::Committed)
    }

    fn orders(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn ran(slow_down: f64) -> OltpResult {
    let waiting = Waiting(AtomicI64::new(0), Mutex::new(Instant::now()));
    let database: Arc<dyn Database> = Arc::new(Fake(Arc::new(waiting)));
    let plan = RunPlan {
        users: vec![8],
        ramp: Duration::ZERO,
        measure: Duration::from_secs(1),
        mode: Mode::Timed,
        mix: Mix::TprocC,
        all_warehouses: false,
        keying_and_thinking: false,
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
    let (first, slow) = (ran(0.0), ran(0.1));
    let of = |other: &OltpResult| {
        let comparison = Comparison::of(&first, other);
        println!("{comparison}");
        let ratio = comparison.steps[0].ratio.clone().expect("pairs");
        (ratio, comparison.to_string())
    };
    // One in a hundred such runs is told apart, and a machine that slows down or speeds up may add to that: one
    // is asked again, and two in a row are wrong.
    let told_apart = (0..2).take_while(|_| of(&ran(0.0)).0.differs).count();
    assert!(told_apart < 2, "nothing was told apart, twice");
    let (ratio, text) = of(&slow);
    assert!(
        ratio.differs && (0.86..0.96).contains(&ratio.ratio),
        "{text}"
    );
    assert!(
        text.contains("x the first") && text.contains("slowed down by % differs"),
        "{text}"
    );
    assert!(!text.contains("no difference"), "{text}");
}
