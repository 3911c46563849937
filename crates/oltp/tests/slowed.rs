//! The whole way from users to words, on a database that only waits, at a rate of its own: two runs of one configuration show no
//! difference, and a configuration that is slowed down by a tenth on purpose is found.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress};
use ashlar_oltp::database::{
    Canceller, Database, Description, Failure, Loader, Outcome, ServerPlace, Session, Watcher,
};
use ashlar_oltp::inputs::{Mix, Transaction};
use ashlar_oltp::random::{Constants, Rng};
use ashlar_oltp::schema::{Marker, Shape, State};
use ashlar_oltp::{Comparison, Mode, OltpResult, RunPlan, begin, run};

/// The database ends one transaction in this time, whoever asks.
const TRANSACTION: Duration = Duration::from_millis(1);
/// It catches up so much, so that a loaded machine that wakes users late does not slow it.
const CATCHES_UP: Duration = Duration::from_millis(10);

/// Orders that were taken, and when the last of them ends.
#[derive(Clone)]
struct Waiting(Arc<(AtomicI64, Mutex<Instant>)>);

impl Waiting {
    fn new() -> Self {
        Self(Arc::new((AtomicI64::new(0), Mutex::new(Instant::now()))))
    }
}

impl Database for Waiting {
    fn target(&self) -> String {
        "waiting".into()
    }

    fn describe(&self) -> Result<Description, LabError> {
        Ok(Description::default())
    }

    fn state(&self) -> Result<State, LabError> {
        Ok(State::Built(Marker {
            version: Marker::VERSION,
            shape: Shape::tpcc(1),
            seed: 1,
            constants: Constants::for_load(&mut Rng::stream(1, &[0])),
            rows: 1,
        }))
    }

    fn check_users(&self, _: (&str, usize)) -> Result<(), LabError> {
        Ok(())
    }

    fn create(&self) -> Result<(), LabError> {
        Ok(())
    }

    fn has_table(&self, _: &str) -> Result<bool, LabError> {
        Ok(true)
    }

    fn execute(&self, _: &str) -> Result<(), LabError> {
        Ok(())
    }

    fn most_loaders(&self) -> usize {
        1
    }

    fn loader(&self) -> Result<Box<dyn Loader>, LabError> {
        Err(LabError::usage("there is nothing to load"))
    }

    fn finish(&self, _: &Marker) -> Result<(), LabError> {
        Ok(())
    }

    fn prepare_run(&self) -> Result<(), LabError> {
        Ok(())
    }

    fn session(&self) -> Result<Box<dyn Session>, LabError> {
        Ok(Box::new(self.clone()))
    }

    fn watcher(&self) -> Result<Box<dyn Watcher>, LabError> {
        Ok(Box::new(self.clone()))
    }
}

impl Session for Waiting {
    /// Every transaction is an order, so that the mix adds no noise.
    fn run(&mut self, _: &Transaction) -> Result<Outcome, Failure> {
        let (orders, last) = &*self.0;
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
}

impl Watcher for Waiting {
    fn next_orders(&mut self) -> Result<i64, LabError> {
        Ok(self.0.0.load(Ordering::SeqCst))
    }

    fn transactions(&mut self) -> Result<Option<u64>, LabError> {
        Ok(None)
    }

    fn number(&mut self, _: &str) -> Result<i64, LabError> {
        Ok(0)
    }

    fn canceller(&self) -> Canceller {
        Box::new(|| {})
    }

    fn place(&mut self) -> ServerPlace {
        ServerPlace {
            process: Err("there is none".into()),
            is_inside: false,
            storage: Err("there is none".into()),
        }
    }
}

fn ran(slow_down: f64) -> OltpResult {
    let database: Arc<dyn Database> = Arc::new(Waiting::new());
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
