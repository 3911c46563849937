//! A build, a run and a scan from end to end, against a server that holds what it is sent.

use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{LabError, Progress, ResultFile};
use ashlar_oltp::database::Database;
use ashlar_oltp::generate::{Recipe, RowSink};
use ashlar_oltp::inputs::Mix;
use ashlar_oltp::scan::{self, ScanPlan};
use ashlar_oltp::schema::{Marker, Shape, State, Table};
use ashlar_oltp::{
    BuildPlan, Ledger, Mode, OltpResult, RunPlan, SqlServer, begin, build, run_with_ledger,
};

use super::server::{Asked, Server, lock};
use super::words::Value;
use super::world::World;

const SHAPE: Shape = Shape {
    warehouses: 2,
    items: 300,
    customers: 40,
};
const BUILD: BuildPlan = BuildPlan {
    shape: SHAPE,
    seed: 5,
    users: 2,
    destroy_data: false,
};
/// Microseconds from the first of January of year 1 to that of 1970.
const TO_1970: i64 = 719_162 * 86_400_000_000;

/// A built database and the server that holds it.
fn built() -> (Server<World>, Arc<dyn Database>) {
    let server = Server::start(World::new(SHAPE.items.into()));
    let database: Arc<dyn Database> = Arc::new(SqlServer::new(&server.url()).expect("a URL"));
    build(database.as_ref(), &BUILD, &Progress::silent()).expect("built");
    (server, database)
}

/// Keeps rows as a server is to see them.
#[derive(Default)]
struct Kept {
    rows: Vec<Vec<Value>>,
    row: Vec<Value>,
}

impl RowSink for Kept {
    fn int(&mut self, value: i32) {
        self.row.push(Value::Int(value.into()));
    }

    fn decimal(&mut self, units: i64, scale: u8) {
        self.row.push(Value::Decimal { units, scale });
    }

    fn text(&mut self, value: &[u8]) {
        let text = String::from_utf8(value.to_vec()).expect("ASCII");
        self.row.push(Value::Text(text));
    }

    fn time(&mut self, unix_us: i64) {
        self.row.push(Value::Moment(unix_us + TO_1970));
    }

    fn null(&mut self) {
        self.row.push(Value::Null);
    }

    fn end_row(&mut self) -> Result<(), LabError> {
        self.rows.push(std::mem::take(&mut self.row));
        Ok(())
    }
}

#[test]
fn every_generated_row_reaches_the_server_as_it_was_generated() {
    let (server, database) = built();
    let Ok(State::Built(marker)) = database.state() else {
        panic!("{:?}", database.state());
    };
    assert_eq!(marker.shape, SHAPE);
    let mut world = lock(&server.acts);
    let Some(Value::Moment(loaded)) = world.tables["history"][0].get(5).cloned() else {
        panic!("a history without a moment");
    };
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    let age = now.as_micros() as i64 + TO_1970 - loaded;
    assert!((0..600_000_000).contains(&age), "loaded {age} us ago");
    let Marker {
        shape,
        seed,
        constants,
        ..
    } = marker;
    let recipe = Recipe {
        shape,
        seed,
        constants,
        now_us: loaded - TO_1970,
    };
    let mut count = 0;
    for table in Table::ALL {
        let mut kept = Kept::default();
        let parts = recipe
            .parts()
            .into_iter()
            .filter(|part| part.table == table);
        for part in parts {
            recipe.fill(part, &mut kept).expect("kept");
        }
        let found = world.tables.get_mut(table.name()).expect("a table");
        // Two loaders take turns.
        let by_text =
            |rows: &mut Vec<Vec<Value>>| rows.sort_by_cached_key(|row| format!("{row:?}"));
        by_text(found);
        by_text(&mut kept.rows);
        assert!(*found == kept.rows, "{table:?} is not what was generated");
        count += found.len() as u64;
    }
    assert_eq!(count, marker.rows);
    drop(world);
    let asked = server.asked();
    let many = |asked: &Asked| matches!(asked, Asked::Bulk { packets: 2.., .. });
    assert!(asked.iter().any(many), "a part of more than one packet");
}

fn plan() -> RunPlan {
    RunPlan {
        users: vec![2],
        ramp: Duration::ZERO,
        measure: Duration::from_millis(500),
        mode: Mode::Fixed(150),
        mix: Mix::TpcC,
        all_warehouses: false,
        pauses: None,
        slow_down: 0.0,
        repeats: 1,
        seed: 9,
    }
}

#[test]
fn users_run_deadlocks_are_tried_again_and_the_server_is_asked_for_its_counts() {
    let (server, database) = built();
    lock(&server.acts).deadlocks = 3;
    server.asked();
    let mut result: OltpResult = begin(database.as_ref(), &plan()).expect("begins");
    let (ledger, silent) = (Arc::new(Ledger::default()), Progress::silent());
    run_with_ledger(&database, &plan(), &mut result, &silent, &ledger).expect("ran");
    assert_eq!(result.complaint(), None);
    let database_is = &result.database;
    assert_eq!(
        (&*database_is.kind, &*database_is.version),
        ("sqlserver", "SQL Server 15, 15")
    );
    assert!(
        database_is.settings.contains_key("recovery_model_desc"),
        "{database_is:?}"
    );
    let step = &result.steps[0];
    let orders = &step.transactions["new_order"];
    assert_eq!(
        (orders.retries, orders.errors),
        (3, 0),
        "{:?}",
        step.problems
    );
    let all: u64 = step.transactions.values().map(|of| of.count).sum();
    assert_eq!(all, 300);
    assert_eq!(
        (&*step.nopm_source, &*step.tpm_source),
        ("d_next_o_id", "database")
    );
    assert!(step.tpm > step.nopm && step.nopm > 0.0, "{step:?}");
    let reason = step.server_cpu_reason.as_deref().unwrap_or_default();
    assert!(reason.contains("is not sqlservr"), "{reason}");
    let mut watcher = database.watcher().expect("watches");
    let audit = ledger.audit(watcher.as_mut()).expect("asked");
    assert_eq!(audit.total().missing, 0);
    assert!(audit.kinds["new_order"].acknowledged > 0);
    assert_eq!(lock(&server.acts).procedures.len(), 5);
    let batches = server.batches();
    let counts = batches
        .iter()
        .filter(|sql| sql.starts_with("SELECT count(*) FROM "));
    assert_eq!(counts.count(), 12, "conditions");
    // What T-SQL has not: a truth as a value, a list of values as a query.
    for sql in &batches {
        assert!(!sql.contains("NULL) <>"), "{sql}");
        assert!(!sql.contains("AS (VALUES"), "{sql}");
    }
    let told = "WITH told(w, d, o, c, l) AS (SELECT * FROM (VALUES (";
    assert!(batches.iter().any(|sql| sql.starts_with(told)));
}

#[test]
fn a_table_is_made_for_a_scan_and_read() {
    let server = Server::start(World::new(1));
    let database: Arc<dyn Database> = Arc::new(SqlServer::new(&server.url()).expect("a URL"));
    let plan = ScanPlan {
        rows: 200,
        readers: vec![1, 2],
        repeats: 1,
        build_users: 2,
    };
    let silent = Progress::silent();
    let mut result = scan::begin(database.as_ref(), &plan, &silent).expect("begins");
    let mut keep = |_: &scan::ScanResult| Ok(());
    scan::scan(database.as_ref(), &plan, &mut result, (&silent, &mut keep)).expect("read");
    assert_eq!(result.steps.len(), 2);
    let batches = server.batches();
    assert!(
        batches
            .iter()
            .any(|sql| sql.contains("filler varchar(1000) NOT NULL")),
        "{batches:?}"
    );
}

#[test]
fn what_is_half_built_or_not_ours_is_refused() {
    let server = Server::start(World::new(1));
    let database = SqlServer::new(&server.url()).expect("a URL");
    let there = |name: &str| drop(lock(&server.acts).tables.insert(name.into(), Vec::new()));
    there("dbo_other");
    assert_eq!(
        database.state(),
        Ok(State::Foreign(vec!["dbo_other".into()]))
    );
    there("ashlar_oltp");
    assert_eq!(database.state(), Ok(State::HalfBuilt));
    let error = build(&database, &BUILD, &Progress::silent()).expect_err("in the way");
    assert!(
        error.exit_code() == 2 && error.to_string().contains("--destroy-data"),
        "{error}"
    );
}
