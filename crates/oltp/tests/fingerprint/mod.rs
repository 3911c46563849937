//! Sums over everything that a run changes, so that two databases can be told to hold the same.

#![allow(dead_code)] // Each test program has its own use of it.

use ashlar_oltp::database::Database;

/// How a kind of database says it.
pub struct Words {
    /// What an amount is multiplied with to be in cents.
    money: &'static str,
    /// A whole number's type in a cast.
    integer: &'static str,
}

impl Words {
    pub const SQLITE: Self = Self {
        money: "1",
        integer: "bigint",
    };
    pub const POSTGRES: Self = Self {
        money: "100",
        integer: "bigint",
    };
    pub const MARIADB: Self = Self {
        money: "100",
        integer: "signed",
    };
}

/// What every implementation must agree on, whatever the time.
const FINGERPRINT: [&str; 11] = [
    "SELECT sum(CAST(w_ytd * {m} AS {i})) FROM warehouse",
    "SELECT sum(CAST(d_ytd * {m} AS {i}) * d_id + d_next_o_id) FROM district",
    "SELECT sum(CAST(c_balance * {m} AS {i}) * c_id) FROM customer",
    "SELECT sum(CAST(c_ytd_payment * {m} AS {i}) * (c_id + c_d_id)) FROM customer",
    "SELECT sum(c_payment_cnt * c_id + c_delivery_cnt * c_d_id + length(c_data)) FROM customer",
    "SELECT sum(CAST(h_amount * {m} AS {i}) * h_c_id) FROM history",
    "SELECT sum(no_o_id * no_d_id) FROM new_order",
    "SELECT sum(o_c_id * o_id + coalesce(o_carrier_id, 0) + o_ol_cnt + o_all_local) FROM orders",
    "SELECT sum(ol_i_id * ol_number + ol_supply_w_id * ol_quantity) FROM order_line",
    "SELECT sum(CAST(ol_amount * {m} AS {i}) * ol_number) FROM order_line \
     WHERE ol_delivery_d IS NOT NULL",
    "SELECT sum(s_quantity * s_i_id + s_ytd + s_order_cnt * 3 + s_remote_cnt * 5) FROM stock",
];

pub fn fingerprint(database: &dyn Database, words: &Words) -> Vec<i64> {
    let mut watcher = database.watcher().expect("watches");
    let number = |sql: &&str| {
        let sql = sql.replacen("SELECT ", "SELECT CAST(", 1);
        let sql = sql.replacen(" FROM", " AS {i}) FROM", 1);
        let sql = sql
            .replace("{m}", words.money)
            .replace("{i}", words.integer);
        watcher.number(&sql).expect("a number")
    };
    FINGERPRINT.iter().map(number).collect()
}
