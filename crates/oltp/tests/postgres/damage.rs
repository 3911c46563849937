//! The conditions on PostgreSQL, whose types and nulls are its own: a database damaged on purpose, one
//! condition at a time, as `tests/damage.rs` does on SQLite.

use ashlar_lab::Progress;
use ashlar_oltp::check::check;
use ashlar_oltp::database::Database;
use ashlar_oltp::{Logic, Mode, begin, build, run};

use crate::cluster::Cluster;
use crate::work::{BUILD, plan, postgres};

/// The condition that must fail, and what makes it fail, completed so that the conditions that share a column
/// with it go on to hold.
const DAMAGE: [(u8, &str); 12] = [
    // Paid into a district that does not exist: the warehouse and its history (8) agree.
    (
        1,
        "UPDATE warehouse SET w_ytd = w_ytd + 0.05 WHERE w_id = 1;
         INSERT INTO history VALUES (0, 0, 0, 11, 1, now(), 0.05, '')",
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
         UPDATE order_line SET ol_delivery_d = now() WHERE ol_w_id = 1 AND ol_d_id = 2
             AND ol_o_id = (SELECT id FROM middle);
         UPDATE customer SET c_balance = c_balance + (SELECT amount FROM middle),
             c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = 1 AND c_d_id = 2
             AND c_id = (SELECT customer FROM middle)",
    ),
    // A line of an order that does not exist.
    (
        4,
        "INSERT INTO order_line VALUES (999999, 1, 1, 1, 1, 1, NULL, 1, 0.01, '')",
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
    (
        8,
        "INSERT INTO history VALUES (0, 0, 0, 11, 2, now(), 0.05, '')",
    ),
    // A payment moves to another district of the same warehouse (8).
    (
        9,
        "UPDATE history SET h_d_id = h_d_id % 10 + 1
             WHERE ctid = (SELECT min(ctid) FROM history)",
    ),
    // The sum of balance and payments stays (12).
    (
        10,
        "UPDATE customer SET c_balance = c_balance + 0.01, c_ytd_payment = c_ytd_payment - 0.01
             WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 7",
    ),
    (
        11,
        "UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1
             WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 7",
    ),
    (
        12,
        "UPDATE customer SET c_ytd_payment = c_ytd_payment + 0.01
             WHERE c_w_id = 2 AND c_d_id = 1 AND c_id = 7",
    ),
];

fn failed(database: &dyn Database) -> Vec<u8> {
    let mut watcher = database.watcher().expect("watches");
    let found = check(watcher.as_mut(), &BUILD.shape, &Progress::silent()).expect("checked");
    assert_eq!(found.0.len(), 12);
    found.failed()
}

#[test]
fn each_condition_fails_when_it_should_and_no_other_does() {
    let Some(cluster) = Cluster::start(&[]) else {
        return;
    };
    cluster.sql("postgres", "CREATE DATABASE whole");
    let whole = postgres(&cluster, "whole", Logic::Functions);
    build(whole.as_ref(), &BUILD, &Progress::silent()).expect("built");
    let plan = plan(&[2], Mode::Fixed(200));
    let mut result = begin(whole.as_ref(), &plan).expect("begins");
    run(&whole, &plan, &mut result, &Progress::silent()).expect("ran");
    assert_eq!((result.complaint(), result.partial), (None, false));
    for (number, damage) in DAMAGE {
        let name = format!("damage{number}");
        cluster.sql(
            "postgres",
            &format!("CREATE DATABASE {name} TEMPLATE whole"),
        );
        cluster.sql(&name, damage);
        let damaged = postgres(&cluster, &name, Logic::Functions);
        assert_eq!(failed(damaged.as_ref()), [number], "damage {number}");
        drop(damaged);
        cluster.sql("postgres", &format!("DROP DATABASE {name}"));
    }
}
