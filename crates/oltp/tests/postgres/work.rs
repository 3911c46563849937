//! Load, run and check; the same work done three ways.

use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{Progress, ResultFile};
use ashlar_oltp::check::check;
use ashlar_oltp::database::Database;
use ashlar_oltp::inputs::Mix;
use ashlar_oltp::schema::Shape;
use ashlar_oltp::{
    BuildPlan, Ledger, Logic, Mode, OltpResult, Postgres, RunPlan, Sqlite, begin, build, run,
    run_with_ledger,
};

use crate::cluster::{Cluster, OWNER};
use crate::fingerprint::{Words, fingerprint};

pub const BUILD: BuildPlan = BuildPlan {
    shape: Shape {
        warehouses: 2,
        items: 500,
        customers: 100,
    },
    seed: 1,
    users: 3,
    destroy_data: false,
};

pub fn plan(users: &[usize], mode: Mode) -> RunPlan {
    RunPlan {
        users: users.to_vec(),
        ramp: Duration::from_millis(300),
        measure: Duration::from_millis(2500),
        mode,
        mix: Mix::TpcC,
        all_warehouses: false,
        pauses: None,
        slow_down: 0.0,
        repeats: 1,
        seed: 9,
    }
}

pub fn postgres(cluster: &Cluster, database: &str, logic: Logic) -> Arc<dyn Database> {
    Arc::new(Postgres::new(&cluster.url(database, OWNER), logic).expect("a URL"))
}

fn built(cluster: &Cluster, name: &str, logic: Logic) -> Arc<dyn Database> {
    cluster.sql("postgres", &format!("CREATE DATABASE {name}"));
    let database = postgres(cluster, name, logic);
    let built = build(database.as_ref(), &BUILD, &Progress::silent()).expect("built");
    assert!(
        built.rows > 20_000 && built.server_cpu_s.is_some(),
        "{built:?}"
    );
    database
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

/// Several users on few rows, so that they meet: nothing fails, and everything stays consistent.
#[test]
fn users_that_meet_stay_consistent() {
    let Some(cluster) = Cluster::start(&["max_connections=30"]) else {
        return;
    };
    for (name, logic) in [("functions", Logic::Functions), ("client", Logic::Client)] {
        let database = built(&cluster, name, logic);
        let result = ran(&database, &plan(&[1, 6], Mode::Timed));
        assert_eq!(result.database.sql, name);
        assert_eq!(result.database.settings["fsync"], "off");
        for step in &result.steps {
            assert_eq!(
                (&*step.nopm_source, &*step.tpm_source),
                ("d_next_o_id", "database")
            );
            assert!(step.nopm > 0.0 && step.tpm > step.nopm, "{step:?}");
            assert!(
                step.server_cpu_s.is_some_and(|s| s > 0.0),
                "{:?}",
                step.server_cpu_reason
            );
            for (kind, of) in &step.transactions {
                assert_eq!(of.errors, 0, "{kind}: {:?}", step.problems);
                assert!(of.count > 0, "{kind}");
            }
        }
        // A check that looks at nothing would pass as well.
        cluster.sql(
            name,
            "UPDATE warehouse SET w_ytd = w_ytd + 0.01 WHERE w_id = 2",
        );
        let mut watcher = database.watcher().expect("watches");
        let found = check(watcher.as_mut(), &BUILD.shape, &Progress::silent()).expect("checked");
        assert_eq!(found.failed(), [1, 8]);
    }
}

/// Runs, and finds every order under the number that the session gave.
fn ran_audited(database: &Arc<dyn Database>, plan: &RunPlan) -> OltpResult {
    let mut result = begin(database.as_ref(), plan).expect("begins");
    let (ledger, silent) = (Arc::new(Ledger::default()), Progress::silent());
    run_with_ledger(database, plan, &mut result, &silent, &ledger).expect("ran");
    assert_eq!((result.complaint(), result.head.partial), (None, false));
    let of = &result.steps[0].transactions;
    let orders = of["new_order"].count - of["new_order"].rolled_back;
    let mut watcher = database.watcher().expect("watches");
    let mut audit = || ledger.audit(watcher.as_mut()).expect("asked");
    let found = audit();
    let acknowledged = |kind: &str| found.kinds[kind].acknowledged as u64;
    assert_eq!(
        (acknowledged("new_order"), acknowledged("payment")),
        (orders, of["payment"].count)
    );
    assert_eq!(acknowledged("delivery"), of["delivery"].count);
    assert_eq!(found.total().missing, 0, "{:?}", found.examples);
    // Amounts are other numbers in another database: one that is wrong is found.
    let change = |by: &str| {
        let last = format!(
            "UPDATE history SET h_amount = h_amount {by} WHERE h_date = (SELECT max(h_date) FROM history)"
        );
        database.execute(&last).expect("changed");
    };
    change("+ 1");
    let wrong = audit();
    assert_eq!(
        (wrong.kinds["payment"].missing, wrong.total().missing),
        (1, 1)
    );
    change("- 1");
    result
}

/// One user's transactions, run by functions, by client SQL and by SQLite, leave the same data.
#[test]
fn three_implementations_do_the_same() {
    let Some(cluster) = Cluster::start(&[]) else {
        return;
    };
    let dir = tempfile::tempdir().expect("folder");
    let sqlite: Arc<dyn Database> = Arc::new(Sqlite::new(dir.path().join("a.db")));
    build(sqlite.as_ref(), &BUILD, &Progress::silent()).expect("built");
    let functions = built(&cluster, "functions", Logic::Functions);
    let client = built(&cluster, "client", Logic::Client);
    assert_eq!(
        fingerprint(sqlite.as_ref(), &Words::SQLITE),
        fingerprint(client.as_ref(), &Words::POSTGRES)
    );
    let plan = plan(&[1], Mode::Fixed(1500));
    let mut results = Vec::new();
    for database in [&sqlite, &functions, &client] {
        results.push(ran_audited(database, &plan));
    }
    let counts = |result: &OltpResult| -> Vec<(u64, u64)> {
        let kinds = result.steps[0].transactions.values();
        kinds.map(|kind| (kind.count, kind.rolled_back)).collect()
    };
    assert_eq!(counts(&results[0]), counts(&results[1]));
    assert_eq!(counts(&results[0]), counts(&results[2]));
    let orders = &results[0].steps[0].transactions["new_order"];
    assert!(orders.rolled_back > 0, "a rollback is part of it");
    let expected = fingerprint(sqlite.as_ref(), &Words::SQLITE);
    assert_eq!(
        fingerprint(functions.as_ref(), &Words::POSTGRES),
        expected,
        "functions"
    );
    assert_eq!(
        fingerprint(client.as_ref(), &Words::POSTGRES),
        expected,
        "client SQL"
    );
}
