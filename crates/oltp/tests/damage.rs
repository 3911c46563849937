//! A small database, damaged on purpose, one consistency condition at a time: exactly that condition
//! must fail.

mod damages;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{Progress, ResultFile};
use ashlar_oltp::check::check;
use ashlar_oltp::database::Database;
use ashlar_oltp::inputs::Mix;
use ashlar_oltp::schema::Shape;
use ashlar_oltp::{BuildPlan, Mode, RunPlan, Sqlite, begin, build, run};
use damages::Words;

const SHAPE: Shape = Shape {
    warehouses: 2,
    items: 200,
    customers: 30,
};

fn failed(path: &Path) -> Vec<u8> {
    let mut watcher = Sqlite::new(path).watcher().expect("opens");
    let found = check(watcher.as_mut(), &SHAPE, &Progress::silent()).expect("checked");
    assert_eq!(found.0.len(), 12);
    found.failed()
}

/// A database that has been worked with.
fn used(path: &Path) {
    let database: Arc<dyn Database> = Arc::new(Sqlite::new(path));
    let plan = BuildPlan {
        shape: SHAPE,
        seed: 3,
        users: 1,
        destroy_data: false,
    };
    build(database.as_ref(), &plan, &Progress::silent()).expect("built");
    assert!(failed(path).is_empty(), "freshly built");
    let plan = RunPlan {
        users: vec![2],
        ramp: Duration::ZERO,
        measure: Duration::from_secs(1),
        mode: Mode::Fixed(200),
        mix: Mix::TpcC,
        all_warehouses: false,
        pauses: None,
        slow_down: 0.0,
        repeats: 1,
        seed: 4,
    };
    let mut result = begin(database.as_ref(), &plan).expect("begins");
    run(&database, &plan, &mut result, &Progress::silent()).expect("ran");
    assert_eq!(result.complaint(), None);
}

#[test]
fn each_condition_fails_when_it_should_and_no_other_does() {
    let dir = tempfile::tempdir().expect("folder");
    let whole = dir.path().join("whole.db");
    used(&whole);
    let words = Words {
        cent: "1",
        now: "1",
        row: "rowid",
    };
    for (number, damage) in words.damages() {
        let path = dir.path().join(format!("{number}.db"));
        let connection = rusqlite::Connection::open(&whole).expect("opens");
        connection
            .execute("VACUUM INTO ?1", [path.to_str().expect("text")])
            .expect("copied");
        let connection = rusqlite::Connection::open(&path).expect("opens");
        connection.execute_batch(&damage).expect("damaged");
        drop(connection);
        assert_eq!(failed(&path), [number], "damage {number}");
    }
}
