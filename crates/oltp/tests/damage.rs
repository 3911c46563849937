//! A small database, damaged on purpose, one consistency condition at a time: exactly that condition
//! must fail.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::Progress;
use ashlar_oltp::check::check;
use ashlar_oltp::database::Database;
use ashlar_oltp::inputs::Mix;
use ashlar_oltp::schema::Shape;
use ashlar_oltp::{BuildPlan, Mode, RunPlan, Sqlite, begin, build, run};

const SHAPE: Shape = Shape {
    warehouses: 2,
    items: 200,
    customers: 30,
};

/// The condition that must fail, and what makes it fail. Every change is completed so that the
/// conditions that share a column with it go on to hold.
const DAMAGE: [(u8, &str); 12] = [
    // Paid into a district that does not exist: the warehouse and its history (8) agree.
    (
        1,
        "UPDATE warehouse SET w_ytd = w_ytd + 5 WHERE w_id = 1;
         INSERT INTO history VALUES (0, 0, 0, 11, 1, 0, 5, '')",
    ),
    (
        2,
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 2 AND d_id = 3",
    ),
    // One in the middle is delivered in every respect, but out of turn.
    (
        3,
        "CREATE TEMP TABLE middle AS SELECT no_o_id AS id, (SELECT o_c_id FROM orders WHERE
             o_w_id = 1 AND o_d_id = 2 AND o_id = no_o_id) AS customer, (SELECT sum(ol_amount)
             FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 2 AND ol_o_id = no_o_id) AS amount
             FROM new_order WHERE no_w_id = 1 AND no_d_id = 2 ORDER BY no_o_id LIMIT 1 OFFSET 1;
         DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 2
             AND no_o_id = (SELECT id FROM middle);
         UPDATE orders SET o_carrier_id = 1 WHERE o_w_id = 1 AND o_d_id = 2
             AND o_id = (SELECT id FROM middle);
         UPDATE order_line SET ol_delivery_d = 1 WHERE ol_w_id = 1 AND ol_d_id = 2
             AND ol_o_id = (SELECT id FROM middle);
         UPDATE customer SET c_balance = c_balance + (SELECT amount FROM middle),
             c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = 1 AND c_d_id = 2
             AND c_id = (SELECT customer FROM middle)",
    ),
    // A line of an order that does not exist.
    (
        4,
        "INSERT INTO order_line VALUES (999999, 1, 1, 1, 1, 1, NULL, 1, 1, '')",
    ),
    // A delivered order is no longer, and neither are its lines (7); they were free at first.
    (
        5,
        "UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 5;
         UPDATE order_line SET ol_delivery_d = NULL
             WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 5",
    ),
    // One order promises a line more, another a line less (4).
    (
        6,
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 5;
         UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 6",
    ),
    (
        7,
        "UPDATE order_line SET ol_delivery_d = NULL
             WHERE ol_w_id = 2 AND ol_d_id = 1 AND ol_o_id = 5 AND ol_number = 1",
    ),
    (8, "INSERT INTO history VALUES (0, 0, 0, 11, 2, 0, 5, '')"),
    // A payment moves to another district of the same warehouse (8).
    (9, "UPDATE history SET h_d_id = 2 WHERE rowid = 1"),
    // The sum of balance and payments stays (12).
    (
        10,
        "UPDATE customer SET c_balance = c_balance + 1, c_ytd_payment = c_ytd_payment - 1
             WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 7",
    ),
    (
        11,
        "UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1
             WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 7",
    ),
    (
        12,
        "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1
             WHERE c_w_id = 2 AND c_d_id = 1 AND c_id = 7",
    ),
];

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
        keying_and_thinking: false,
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
    for (number, damage) in DAMAGE {
        let path = dir.path().join(format!("{number}.db"));
        let connection = rusqlite::Connection::open(&whole).expect("opens");
        connection
            .execute("VACUUM INTO ?1", [path.to_str().expect("text")])
            .expect("copied");
        let connection = rusqlite::Connection::open(&path).expect("opens");
        connection.execute_batch(damage).expect("damaged");
        drop(connection);
        assert_eq!(failed(&path), [number], "damage {number}");
    }
}
