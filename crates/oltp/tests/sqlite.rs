//! SQLite from end to end, and what is refused.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{Progress, ResultFile};
use ashlar_oltp::database::Database;
use ashlar_oltp::inputs::{Kind, Mix};
use ashlar_oltp::schema::{Shape, State};
use ashlar_oltp::{
    BuildPlan, Count, Ledger, Mode, OltpResult, RunPlan, Sqlite, begin, build, built, run,
    run_with_ledger,
};

const BUILD: BuildPlan = BuildPlan {
    shape: Shape {
        warehouses: 2,
        items: 500,
        customers: 100,
    },
    seed: 1,
    users: 4,
    destroy_data: false,
};

fn database(path: &Path) -> Arc<dyn Database> {
    Arc::new(Sqlite::new(path))
}

fn plan(users: &[usize], mode: Mode) -> RunPlan {
    RunPlan {
        users: users.to_vec(),
        ramp: Duration::from_millis(200),
        measure: Duration::from_millis(1200),
        mode,
        mix: Mix::TprocC,
        all_warehouses: false,
        pauses: None,
        slow_down: 0.0,
        repeats: 1,
        seed: 9,
    }
}

fn ran(database: &Arc<dyn Database>, plan: &RunPlan) -> OltpResult {
    let mut result = begin(database.as_ref(), plan).expect("begins");
    run(database, plan, &mut result, &Progress::silent()).expect("ran");
    assert_eq!(
        (result.complaint(), result.head.partial),
        (None, false),
        "{:?}",
        result.head.problems
    );
    result
}

#[test]
fn a_run_in_steps_counts_what_the_database_counts() {
    let dir = tempfile::tempdir().expect("folder");
    let database = database(&dir.path().join("a.db"));
    let built = build(database.as_ref(), &BUILD, &Progress::silent()).expect("built");
    assert!(built.rows > 20_000 && built.users == 1, "{built:?}");

    let result = ran(&database, &plan(&[1, 3], Mode::Timed));
    assert_eq!(
        result
            .steps
            .iter()
            .map(|step| step.users)
            .collect::<Vec<_>>(),
        [1, 3]
    );
    for step in &result.steps {
        assert_eq!(step.nopm_source, "d_next_o_id");
        assert!(
            step.nopm > 0.0 && step.client_cpu_s > 0.0 && step.elapsed_s >= 1.2,
            "{step:?}"
        );
        assert_eq!(step.server_cpu_s, None);
        let orders = &step.transactions["new_order"];
        assert!(orders.latency_us.p50 > 1.0 && orders.latency_us.max >= orders.latency_us.p50);
        // The two counts differ by what ends while the marks are read.
        let counted = step.nopm * step.elapsed_s / 60.0;
        let seen = (orders.count - orders.rolled_back) as f64;
        assert!(
            (counted - seen).abs() <= 20.0 + 0.1 * counted,
            "{counted} against {seen}"
        );
        assert!(step.series.iter().sum::<u64>() > 0);
        assert_eq!(step.consistency.0.len(), 12);
    }
    result.write(dir.path()).expect("written");
    assert!(OltpResult::is_in(dir.path()));
    let loaded = OltpResult::load(dir.path()).expect("loads");
    assert_eq!(
        (&loaded.database, loaded.steps.len()),
        (&result.database, 2)
    );
    assert_eq!(loaded.steps[1].consistency, result.steps[1].consistency);
}

#[test]
fn fixed_work_is_exactly_that_work() {
    let dir = tempfile::tempdir().expect("folder");
    let database = database(&dir.path().join("a.db"));
    build(database.as_ref(), &BUILD, &Progress::silent()).expect("built");
    let result = ran(&database, &plan(&[2], Mode::Fixed(300)));
    let step = &result.steps[0];
    let count: u64 = step.transactions.values().map(|kind| kind.count).sum();
    assert_eq!(count, 600);
    let orders = &step.transactions["new_order"];
    let counted = (step.nopm * step.elapsed_s / 60.0).round() as u64;
    assert_eq!(counted, orders.count - orders.rolled_back);
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let dir = tempfile::tempdir().expect("folder");
    let database = database(&dir.path().join("a.db"));
    build(database.as_ref(), &BUILD, &Progress::silent()).expect("built");
    let result = ran(&database, &plan(&[4], Mode::Rate(50.0)));
    let step = &result.steps[0];
    let count: u64 = step.transactions.values().map(|kind| kind.count).sum();
    let rate = count as f64 / step.elapsed_s;
    assert!((30.0..=70.0).contains(&rate), "{rate} a second");
}

#[test]
fn what_is_there_is_not_destroyed_unasked() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("a.db");
    let mine = rusqlite::Connection::open(&path).expect("opens");
    mine.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (7)")
        .expect("made");
    let database = database(&path);
    let refused = build(database.as_ref(), &BUILD, &Progress::silent()).expect_err("refused");
    assert!(
        refused.exit_code() == 2 && refused.to_string().contains("mine"),
        "{refused}"
    );
    let refused = built(database.as_ref()).expect_err("not ours");
    assert!(
        refused.to_string().contains("none of them ours"),
        "{refused}"
    );

    let destroy = BuildPlan {
        destroy_data: true,
        ..BUILD
    };
    build(database.as_ref(), &destroy, &Progress::silent()).expect("built");
    let kept: i32 = mine
        .query_row("SELECT x FROM mine", [], |row| row.get(0))
        .expect("kept");
    assert_eq!(kept, 7, "what is not ours stays");
    let refused = build(database.as_ref(), &BUILD, &Progress::silent()).expect_err("refused");
    assert!(refused.to_string().contains("built already"), "{refused}");
}

#[test]
fn a_half_built_schema_is_known_as_one() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("a.db");
    let database = database(&path);
    assert_eq!(database.state().expect("state"), State::Empty);
    assert!(!path.exists(), "looking makes no file");
    let missing = built(database.as_ref()).expect_err("nothing there");
    assert!(missing.to_string().contains("build it first"), "{missing}");
    database.create().expect("tables");
    let refused = built(database.as_ref()).expect_err("half-built");
    assert!(
        refused.exit_code() == 3 && refused.to_string().contains("half-built"),
        "{refused}"
    );
    let refused = build(database.as_ref(), &BUILD, &Progress::silent()).expect_err("refused");
    assert!(refused.to_string().contains("half-built"), "{refused}");
}

#[test]
fn what_is_no_database_is_named() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("a.db");
    std::fs::write(
        &path,
        "no database at all, but long enough to be looked at: ".repeat(100),
    )
    .expect("written");
    let refused = database(&path).state().expect_err("no database");
    assert!(
        refused.exit_code() == 3 && refused.to_string().contains("a.db"),
        "{refused}"
    );
    let nowhere = database(&dir.path().join("none/a.db"));
    let refused = build(nowhere.as_ref(), &BUILD, &Progress::silent()).expect_err("nowhere");
    assert!(refused.to_string().contains("none/a.db"), "{refused}");
}

#[test]
fn what_was_acknowledged_is_found_and_what_is_lost_is_named() {
    let dir = tempfile::tempdir().expect("folder");
    let file = dir.path().join("a.db");
    let base = database(&file);
    build(base.as_ref(), &BUILD, &Progress::silent()).expect("built");
    let plan = plan(&[2], Mode::Fixed(150));
    let mut result = begin(base.as_ref(), &plan).expect("begins");
    let (ledger, silent) = (Arc::new(Ledger::default()), Progress::silent());
    run_with_ledger(&base, &plan, &mut result, &silent, &ledger).expect("ran");
    let of = &result.steps[0].transactions;
    let orders = of["new_order"].count - of["new_order"].rolled_back;
    assert_eq!(ledger.count(Kind::NewOrder) as u64, orders);
    assert_eq!(ledger.count(Kind::Payment) as u64, of["payment"].count);
    assert_eq!(ledger.count(Kind::Delivery) as u64, of["delivery"].count);
    let audit = |base: &dyn Database| {
        let mut watcher = base.watcher().expect("looks on");
        ledger.audit(watcher.as_mut()).expect("asked")
    };
    let whole = audit(base.as_ref());
    assert_eq!(
        whole.total(),
        Count {
            acknowledged: ledger.len(),
            missing: 0
        }
    );
    assert!(ledger.last().is_some() && !ledger.is_empty() && whole.kinds.len() == 3);
    let all = |kind: &str| whole.kinds[kind].acknowledged;
    let paid = "rowid = (SELECT max(rowid) FROM history)";
    let delivered = "(SELECT o_id FROM orders WHERE o_carrier_id IS NOT NULL AND o_w_id = 1 AND o_d_id = 1 \
                     ORDER BY o_id DESC LIMIT 1)";
    for (damage, kind, missing) in [
        (
            "DELETE FROM orders WHERE o_id = (SELECT max(o_id) FROM orders)",
            "new_order",
            1..=20,
        ),
        (
            "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1",
            "new_order",
            all("new_order")..=all("new_order"),
        ),
        (
            &format!("DELETE FROM history WHERE {paid}"),
            "payment",
            1..=1,
        ),
        (
            &format!("UPDATE history SET h_amount = h_amount + 1 WHERE {paid}"),
            "payment",
            1..=1,
        ),
        (
            "UPDATE history SET h_c_id = h_c_id + 1",
            "payment",
            all("payment") - 2..=all("payment"),
        ),
        (
            &format!(
                "UPDATE orders SET o_carrier_id = 11 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = {delivered}"
            ),
            "delivery",
            1..=1,
        ),
        (
            &format!("INSERT INTO new_order VALUES ({delivered}, 1, 1)"),
            "delivery",
            1..=1,
        ),
        (
            "UPDATE order_line SET ol_delivery_d = NULL",
            "delivery",
            all("delivery")..=all("delivery"),
        ),
    ] {
        let damaged = dir.path().join("damaged.db");
        drop(std::fs::remove_file(&damaged));
        base.execute(&format!("VACUUM INTO '{}'", damaged.display()))
            .expect("copied");
        let damaged = database(&damaged);
        damaged.execute(damage).expect("damaged");
        let found = audit(damaged.as_ref());
        let count = found.kinds[kind].missing;
        assert!(missing.contains(&count), "{damage}: {found:?}");
        assert_eq!(found.total().missing, count, "{damage}: nothing else");
        assert_eq!(found.examples.len(), count.min(5), "{damage}: {found:?}");
        let named = found.examples[0].to_string();
        assert!(named.contains(" warehouse "), "{named}");
    }
}

#[test]
fn a_run_that_is_slowed_down_on_purpose_is_slower() {
    let dir = tempfile::tempdir().expect("folder");
    let database = database(&dir.path().join("a.db"));
    build(database.as_ref(), &BUILD, &Progress::silent()).expect("built");
    let nopm = |slow_down| {
        let mut plan = plan(&[1], Mode::Timed);
        plan.measure = Duration::from_secs(2);
        plan.slow_down = slow_down;
        let result = ran(&database, &plan);
        assert_eq!(result.method.slow_down_pct, 100.0 * slow_down);
        result.steps[0].nopm
    };
    // Half of the time is much, but a machine may stand still for as long just when nothing else does.
    let is_seen = |_| {
        let (fast, slow) = (nopm(0.0), nopm(0.5));
        println!("{slow} of {fast}");
        slow < 0.8 * fast
    };
    assert!((0..3).any(is_seen), "three times it was not slower");
}
