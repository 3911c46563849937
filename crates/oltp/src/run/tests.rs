//! Loads on a database that does what a test wants.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress, ResultFile};

use super::*;
use crate::database::{Failure, Outcome};
use crate::inputs::{Mix, Pauses, Transaction};
use crate::remote::GO_ON;

#[path = "../../tests/fake/mod.rs"]
mod fake;
use fake::{Acts, Fake};

/// What a database is told to do.
struct Told {
    /// New orders that were committed.
    orders: AtomicI64,
    warehouses: AtomicI32,
    /// How long a login takes, a transaction, and a question of the watcher.
    login: Duration,
    transaction: Duration,
    question: Duration,
    /// The next user that begins a transaction is lost.
    loses_one: AtomicBool,
    /// Nothing is answered any more.
    hangs: AtomicBool,
    /// The warehouses of new orders.
    seen: Mutex<Vec<i32>>,
}

type Faked = Fake<Told>;

impl Faked {
    fn new(change: impl FnOnce(&mut Told)) -> Self {
        let mut told = Told {
            orders: AtomicI64::new(0),
            warehouses: AtomicI32::new(1),
            login: Duration::ZERO,
            transaction: Duration::from_millis(1),
            question: Duration::ZERO,
            loses_one: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            seen: Mutex::default(),
        };
        change(&mut told);
        Self(Arc::new(told))
    }

    fn database(&self) -> Arc<dyn Database> {
        Arc::new(self.clone())
    }
}

impl Told {
    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Acts for Told {
    fn transact(&self, transaction: &Transaction) -> Result<Outcome, Failure> {
        if self.loses_one.swap(false, Ordering::SeqCst) {
            return Err(Failure::Lost("gone".into()));
        }
        self.wait(self.transaction);
        let Transaction::NewOrder(order) = transaction else {
            return Ok(Outcome::Committed);
        };
        let number = self.orders.fetch_add(1, Ordering::SeqCst);
        self.seen.lock().expect("seen").push(order.place.warehouse);
        Ok(Outcome::Ordered(number as i32))
    }

    fn orders(&self) -> i64 {
        self.wait(self.question);
        self.orders.load(Ordering::SeqCst)
    }

    fn log_in(&self) {
        std::thread::sleep(self.login);
    }

    fn warehouses(&self) -> i32 {
        self.warehouses.load(Ordering::SeqCst)
    }
}

pub(super) fn plan(users: &[usize], mode: Mode, millis: u64) -> RunPlan {
    RunPlan {
        users: users.to_vec(),
        ramp: Duration::ZERO,
        measure: Duration::from_millis(millis),
        mode,
        mix: Mix::TprocC,
        all_warehouses: false,
        pauses: None,
        repeats: 1,
        seed: 1,
        slow_down: 0.0,
    }
}

fn ran(fake: &Faked, plan: &RunPlan) -> OltpResult {
    let database = fake.database();
    let mut result = begin(database.as_ref(), plan).expect("begins");
    run(&database, plan, &mut result, &Progress::silent()).expect("ran");
    assert!(!result.head.partial, "{:?}", result.head.problems);
    result
}

fn count(step: &StepResult) -> u64 {
    step.transactions.values().map(|kind| kind.count).sum()
}

#[test]
fn users_that_hang_while_logging_in_do_not_delay_the_end() {
    let fake = Faked::new(|fake| fake.login = Duration::from_secs(20));
    let (database, plan) = (fake.database(), plan(&[2], Mode::Timed, 1000));
    let stop = Arc::new(AtomicBool::new(false));
    let progress = Progress::silent().until(Arc::clone(&stop));
    let mut result = begin(database.as_ref(), &plan).expect("begins");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::SeqCst);
        });
        run(&database, &plan, &mut result, &progress).expect("it is told in the result");
    });
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(
        result.head.partial && result.head.problems[0].contains("interrupted"),
        "{result:?}"
    );
}

/// Storage that does not answer keeps users and the watcher; what they saw before is kept.
#[test]
fn a_database_that_hangs_is_left_when_the_run_is_interrupted() {
    let fake = Faked::new(|_| {});
    let (database, plan) = (fake.database(), plan(&[2], Mode::Timed, 600_000));
    let stop = Arc::new(AtomicBool::new(false));
    let progress = Progress::silent().until(Arc::clone(&stop));
    let mut result = begin(database.as_ref(), &plan).expect("begins");
    let begun = std::thread::scope(|scope| {
        let hang = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            fake.0.hangs.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::SeqCst);
            Instant::now()
        });
        run(&database, &plan, &mut result, &progress).expect("it is told in the result");
        hang.join().expect("no panic")
    });
    assert!(begun.elapsed() < Duration::from_secs(12), "{begun:?}");
    let step = &result.steps[0];
    assert!(
        result.head.partial && step.partial && count(step) > 100,
        "{step:?}"
    );
    assert_eq!((step.lost_users, &*step.nopm_source), (2, "client"));
    let told = step.problems.join("; ");
    for part in [
        "interrupted, and fake did not answer within 3s: a thread still waits",
        "2 users did not stop within 5 s: their threads still wait for fake",
    ] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn what_is_done_while_the_database_is_asked_is_counted_in_that_time() {
    let fake = Faked::new(|fake| fake.question = Duration::from_millis(600));
    let step = &ran(&fake, &plan(&[2], Mode::Timed, 1000)).steps[0];
    assert_eq!(
        (&*step.nopm_source, &*step.tpm_source),
        ("d_next_o_id", "client")
    );
    assert!(step.elapsed_s > 1.5, "{step:?}");
    let orders = &step.transactions["new_order"];
    let by_client = (orders.count - orders.rolled_back) as f64 / step.elapsed_s;
    let by_database = step.nopm / 60.0;
    // Without the 0.6 s it would be 0.62 of it.
    assert!(
        (0.9..1.1).contains(&(by_client / by_database)),
        "{by_client} against {by_database}"
    );
}

#[test]
fn an_open_loop_counts_from_when_a_transaction_was_due_and_tells_what_it_missed() {
    // 20 a second can be done, 100 are due.
    let fake = Faked::new(|fake| fake.transaction = Duration::from_millis(50));
    let slow = ran(&fake, &plan(&[1], Mode::Rate(100.0), 1500));
    let step = &slow.steps[0];
    let done = count(step);
    let most = (step.elapsed_s * 20.0) as u64 + 1;
    assert!((most / 3..=most).contains(&done), "{done} of {most}");
    let due = (step.elapsed_s * 100.0) as u64;
    assert!(
        step.missed + done + 10 > due && step.missed > 80,
        "{step:?}"
    );
    // The last one was due 10 ms after the one before, and began 50 ms after it.
    let most = step.transactions.values().map(|kind| kind.latency_us.max);
    let most = most.fold(0.0, f64::max);
    assert!((600_000.0..1_600_000.0).contains(&most), "{most}");
    assert!(
        slow.head
            .flags
            .iter()
            .any(|flag| flag.contains("were not begun")),
        "{slow:?}"
    );
    let quick = Faked::new(|_| {});
    let quick = ran(&quick, &plan(&[4], Mode::Rate(40.0), 1500));
    assert!(quick.steps[0].missed <= 2, "{quick:?}");
    let due = (quick.steps[0].elapsed_s * 40.0) as u64;
    assert!(count(&quick.steps[0]).abs_diff(due) <= 5, "{quick:?}");
}

#[test]
fn streams_begin_when_they_are_due_whatever_the_database_does() {
    let fake = Faked::new(|fake| fake.transaction = Duration::ZERO);
    fake.0.warehouses.store(50, Ordering::SeqCst);
    let plan_of = |mode, millis| plan(&[4], mode, millis);
    let step = ran(&fake, &plan_of(Mode::Streams(1000, 2.0), 1500))
        .steps
        .remove(0);
    let a_second = count(&step) as f64 / step.elapsed_s;
    assert!((1600.0..2200.0).contains(&a_second), "{a_second}");
    let seen = fake.0.seen.lock().expect("no panic").clone();
    let warehouses: std::collections::HashSet<i32> = seen.into_iter().collect();
    assert_eq!(warehouses.len(), 50, "every stream has a home");
    let late = step
        .lateness_us
        .expect("an open loop tells how late it was");
    assert!(late.p50 <= late.max && late.p50 < 500_000.0, "{late:?}");
    assert!(step.missed < 500, "{}", step.missed);

    // Two sessions that take 20 ms do 100 a second of 500.
    let slow = Faked::new(|fake| fake.transaction = Duration::from_millis(20));
    let mut plan = plan_of(Mode::Streams(100, 5.0), 1000);
    plan.users = vec![2];
    let step = ran(&slow, &plan).steps.remove(0);
    assert!(count(&step) <= 120, "{}", count(&step));
    assert!(step.missed > 200, "{}", step.missed);
    let late = step.lateness_us.expect("lateness");
    assert!(late.max > 300_000.0, "the wait counts: {late:?}");
    let closed = ran(&fake, &plan_of(Mode::Timed, 50)).steps.remove(0);
    assert_eq!(closed.lateness_us, None);
}

#[test]
fn streams_think_for_their_own_times_by_transaction() {
    let fake = Faked::new(|fake| fake.transaction = Duration::from_millis(5));
    let mut plan = plan(&[8], Mode::Thinkers(500), 1500);
    // After a new order longer than the step; else half a second, on average.
    plan.pauses = Some(
        "new-order=600,payment=0.5,order-status=0.5,delivery=0.5,stock-level=0.5"
            .parse()
            .expect("it"),
    );
    plan.check().expect("streams may think");
    let result = ran(&fake, &plan);
    assert_eq!(
        (&*result.method.mode, result.method.think_s["payment"]),
        ("streams:500", 0.5)
    );
    let step = &result.steps[0];
    let payments = &step.transactions["payment"];
    // As many begin as think, however few sessions run them: of some 280 that do not begin with a new order, and end with it.
    assert!((100..2000).contains(&payments.count), "{step:?}");
    assert!(
        step.transactions["new_order"].count < payments.count,
        "{step:?}"
    );
    assert!(
        payments.latency_us.p50 < 400_000.0 && step.missed < 250,
        "{step:?}"
    );
    assert!(step.lateness_us.is_some());

    // What has not ended is not thought about: one session of 50 ms begins 20 a second, whatever 100 streams want.
    let slow = Faked::new(|fake| fake.transaction = Duration::from_millis(50));
    let mut plan = plan_of_thinkers();
    plan.users = vec![1];
    let step = ran(&slow, &plan).steps.remove(0);
    assert!(
        count(&step) <= 25 && (50..=100).contains(&step.missed),
        "{step:?}"
    );
}

fn plan_of_thinkers() -> RunPlan {
    let mut plan = plan(&[4], Mode::Thinkers(100), 1000);
    plan.pauses = Some("payment=0.001".parse().expect("pauses"));
    plan
}

#[test]
fn users_key_in_and_think() {
    let fake = Faked::new(|_| {});
    let mut plan = plan(&[40], Mode::Timed, 3500);
    plan.pauses = Some(Pauses::of_tpc_c());
    let result = ran(&fake, &plan);
    assert!(result.method.keying_and_thinking && result.method.think_s.is_empty());
    let step = &result.steps[0];
    // Keying takes 2 or 3 s, 18 of a new order; no user begins a second one before 4 s.
    let done = count(step);
    assert!((5..=40).contains(&done), "{done}");
    assert_eq!(step.transactions["new_order"].count, 0);
    let payments = &step.transactions["payment"];
    assert!(
        payments.count > 0 && payments.latency_us.max < 1_000_000.0,
        "{payments:?}"
    );
}

#[test]
fn users_think_for_their_own_times_by_transaction() {
    let fake = Faked::new(|_| {});
    let mut plan = plan(&[8], Mode::Timed, 500);
    // Longer than the step: who has begun a new order begins nothing more.
    plan.pauses = Some("new-order=600,payment=0.001".parse().expect("pauses"));
    let result = ran(&fake, &plan);
    assert_eq!(result.method.think_s["new_order"], 600.0);
    assert_eq!(result.method.think_s["delivery"], 0.0);
    let done = count(&result.steps[0]);
    let orders = result.steps[0].transactions["new_order"].count;
    assert!(orders <= 8 && done < 200, "{orders} of {done}");
    for text in [
        "",
        "new-order",
        "new-order=x",
        "new-order=-1",
        "order=1",
        "payment=inf",
    ] {
        let error = text.parse::<Pauses>().expect_err(text);
        assert!(error.to_string().starts_with("--think"), "{error}");
    }
}

#[test]
fn what_there_is_is_kept_after_every_step_and_marked() {
    let fake = Faked::new(|_| {});
    let (database, plan) = (fake.database(), plan(&[1, 2], Mode::Timed, 100));
    let mut result = begin(database.as_ref(), &plan).expect("begins");
    let mut kept = Vec::new();
    let mut keep = |result: &OltpResult| {
        assert!(result.head.partial && !result.head.problems.is_empty());
        kept.push((result.steps.len(), result.summary.len()));
        Ok(())
    };
    let around = Around {
        keep: Some(&mut keep),
        ..Around::default()
    };
    run_with(&database, &plan, &mut result, &Progress::silent(), around).expect("ran");
    assert_eq!(kept, [(0, 0), (1, 1), (2, 2)]);
    assert!(
        !result.head.partial && result.head.problems.is_empty(),
        "{result:?}"
    );
    // A result that cannot be kept is told, and nothing more is measured.
    let mut keep = |result: &OltpResult| match result.steps.len() {
        0 => Ok(()),
        _ => Err(LabError::environment("the disk is full")),
    };
    let around = Around {
        keep: Some(&mut keep),
        ..Around::default()
    };
    let mut result = begin(database.as_ref(), &plan).expect("begins");
    run_with(&database, &plan, &mut result, &Progress::silent(), around).expect("ran");
    assert!(result.head.partial && result.steps.len() == 1, "{result:?}");
    assert_eq!(result.head.problems, ["the disk is full"]);
}

#[test]
fn a_run_is_of_the_database_that_was_put_back() {
    let fake = Faked::new(|_| {});
    let (database, plan) = (fake.database(), plan(&[3], Mode::Fixed(50), 1000));
    let mut result = begin(database.as_ref(), &plan).expect("begins");
    assert_eq!(result.method.warehouses, 1);
    let mut restore = || {
        fake.0.warehouses.store(3, Ordering::SeqCst);
        Ok(())
    };
    let around = Around {
        restore: Some(&mut restore),
        ..Around::default()
    };
    run_with(&database, &plan, &mut result, &Progress::silent(), around).expect("ran");
    assert_eq!(
        (result.method.warehouses, result.method.restored),
        (3, true)
    );
    let seen = fake.0.seen.lock().expect("seen");
    // Three users, each at home in a warehouse of its own.
    assert_eq!(seen.iter().max(), Some(&3), "{seen:?}");
}

#[test]
fn a_check_that_ends_a_run_is_told_as_one() {
    let fake = Faked::new(|_| {});
    let (database, plan) = (fake.database(), plan(&[1], Mode::Fixed(5), 1000));
    for (error, fails) in [
        (LabError::check("a.db is not as it was saved"), true),
        (LabError::environment("no room"), false),
    ] {
        let mut result = begin(database.as_ref(), &plan).expect("begins");
        let mut restore = || Err(error.clone());
        let around = Around {
            restore: Some(&mut restore),
            ..Around::default()
        };
        run_with(&database, &plan, &mut result, &Progress::silent(), around).expect("told");
        assert!(result.head.partial && result.steps.is_empty(), "{result:?}");
        let complaint = fails.then(|| "1 users, repeat 1: a.db is not as it was saved".to_owned());
        assert_eq!(result.complaint(), complaint);
    }
}

#[test]
fn who_is_lost_before_a_turn_is_measured_is_told() {
    let fake = Faked::new(|_| {});
    let (database, plan) = (fake.database(), plan(&[3], Mode::Timed, 200));
    let marker = built(database.as_ref()).expect("built");
    let setting = setting(&plan, &marker, 3, 1);
    let silent = Progress::silent();
    let mut all_users =
        Users::log_in(&database, (&plan, &setting), None, &silent).expect("logged in");
    all_users.ramp(Duration::from_millis(50));
    all_users.rest();
    let (settle, time) = (Duration::from_millis(300), Duration::from_millis(200));
    let first = all_users.measure_turn(0.0, settle, time).expect("measured");
    fake.0.loses_one.store(true, Ordering::SeqCst);
    let second = all_users.measure_turn(0.0, settle, time).expect("measured");
    assert_eq!(all_users.stop(), None);
    let step = first.step();
    assert!(
        (step.lost_users, step.partial) == (0, false) && count(&step) > 0,
        "{step:?}"
    );
    let step = second.step();
    assert_eq!((step.lost_users, step.partial), (1, true));
    assert_eq!(step.problems, ["gone"]);
}

#[test]
fn users_that_another_process_looks_at_go_on_when_their_time_is_over() {
    let fake = Faked::new(|_| {});
    let plan = plan(&[2], Mode::Timed, 100);
    let database = fake.database();
    let marker = built(database.as_ref()).expect("built");
    let setting = setting(&plan, &marker, 2, 1);
    let part = Part { index: 0, of: 1 };
    let silent = Progress::silent();
    let all_users = Users::log_in_part(&database, (&plan, &setting), part, &silent);
    let mut all_users = all_users.expect("logged in");
    let worked = all_users.work(&plan, &|_| {}).expect("worked");
    let in_time = worked.measured.new_orders() as i64;
    // As often as before, and for more than twice the time.
    let in_all = fake.0.orders.load(Ordering::SeqCst);
    assert!(in_all > in_time * 3 / 2, "{in_time} of {in_all}");
    assert!(
        worked.elapsed < plan.measure + GO_ON,
        "{:?}",
        worked.elapsed
    );
}

#[test]
fn latencies_of_runs_that_are_added_have_the_numbers_of_their_steps() {
    let fake = Faked::new(|_| {});
    let (database, plan) = (fake.database(), plan(&[1], Mode::Timed, 50));
    let dir = ashlar_lab::OwnFolder::make(&std::env::temp_dir()).expect("a folder");
    let mut all: Option<OltpResult> = None;
    for _ in 0..3 {
        let mut result = begin(database.as_ref(), &plan).expect("begins");
        let around = Around {
            log: LatencyLog::of(dir.path(), all.is_some()).expect("there"),
            repeats_before: all.as_ref().map_or(0, OltpResult::repeats),
            ..Around::default()
        };
        run_with(&database, &plan, &mut result, &Progress::silent(), around).expect("ran");
        match &mut all {
            Some(all) => all.append(result).expect("alike"),
            empty => *empty = Some(result),
        }
    }
    let log = std::fs::read_to_string(dir.path().join("latency.hlog")).expect("written");
    let tagged = |repeat: u32| {
        let tag = format!("Tag=1u.r{repeat}.new_order,");
        log.lines().filter(|line| line.starts_with(&tag)).count()
    };
    assert_eq!([1, 2, 3, 4].map(tagged), [1, 1, 1, 0], "{log}");
}
