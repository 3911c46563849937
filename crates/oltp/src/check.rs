//! Consistency conditions 1 to 12 of TPC-C clause 3.3.2. Each is a query that counts violations and
//! runs on every database; a truth is no value in all of them.

use ashlar_lab::{LabError, Progress};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::database::Watcher;
use crate::schema::Shape;

/// `pass`, or what is wrong, by the condition's number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Consistency(pub BTreeMap<u8, String>);

const PASS: &str = "pass";

impl Consistency {
    /// The numbers of the conditions that do not hold.
    pub fn failed(&self) -> Vec<u8> {
        let failed = self.0.iter().filter(|(_, text)| *text != PASS);
        failed.map(|(number, _)| *number).collect()
    }

    /// What is wrong, in a sentence; nothing if nothing is.
    pub fn complaint(&self) -> Option<String> {
        let failed = self.0.iter().filter(|(_, text)| *text != PASS);
        let texts: Vec<String> = failed
            .map(|(number, text)| format!("consistency condition {number}: {text}"))
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// A condition: what is violated, and the query that counts how often.
struct Condition {
    number: u8,
    /// What each counted row is.
    unit: &'static str,
    rule: &'static str,
    sql: &'static str,
}

/// Checks all twelve conditions.
///
/// # Errors
/// An environment error if a query cannot be run; a condition that does not hold is not an error.
pub fn check(
    watcher: &mut dyn Watcher,
    shape: &Shape,
    progress: &Progress,
) -> Result<Consistency, LabError> {
    let mut found = BTreeMap::new();
    for condition in &CONDITIONS {
        progress.go_on()?;
        progress.doing(&format!("consistency condition {}", condition.number));
        let sql = condition
            .sql
            .replace("{delivered}", &shape.delivered().to_string());
        let violations = watcher.number(&sql)?;
        let text = if violations == 0 {
            PASS.to_owned()
        } else {
            format!("{violations} {} violate {}", condition.unit, condition.rule)
        };
        found.insert(condition.number, text);
    }
    Ok(Consistency(found))
}

/// Delivered amounts of each customer.
macro_rules! delivered {
    () => {
        "(SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered \
         FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
         WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) o \
         ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id"
    };
}

const CONDITIONS: [Condition; 12] = [
    Condition {
        number: 1,
        unit: "warehouses",
        rule: "w_ytd = sum(d_ytd)",
        sql: "SELECT count(*) FROM warehouse LEFT JOIN \
              (SELECT d_w_id, sum(d_ytd) AS total FROM district GROUP BY d_w_id) d \
              ON d_w_id = w_id WHERE total IS NULL OR w_ytd <> total",
    },
    Condition {
        number: 2,
        unit: "districts",
        rule: "d_next_o_id - 1 = max(o_id) = max(no_o_id)",
        sql: "SELECT count(*) FROM district LEFT JOIN \
              (SELECT o_w_id, o_d_id, max(o_id) AS last FROM orders GROUP BY o_w_id, o_d_id) o \
              ON o_w_id = d_w_id AND o_d_id = d_id LEFT JOIN \
              (SELECT no_w_id, no_d_id, max(no_o_id) AS newest FROM new_order \
              GROUP BY no_w_id, no_d_id) n ON no_w_id = d_w_id AND no_d_id = d_id \
              WHERE last IS NULL OR d_next_o_id - 1 <> last \
              OR (newest IS NOT NULL AND newest <> last)",
    },
    Condition {
        number: 3,
        unit: "districts",
        rule: "max(no_o_id) - min(no_o_id) + 1 = count(new_order)",
        sql: "SELECT count(*) FROM (SELECT no_w_id FROM new_order GROUP BY no_w_id, no_d_id \
              HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)) n",
    },
    Condition {
        number: 4,
        unit: "districts",
        rule: "sum(o_ol_cnt) = count(order_line)",
        sql: "SELECT count(*) FROM district LEFT JOIN \
              (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS promised FROM orders \
              GROUP BY o_w_id, o_d_id) o ON o_w_id = d_w_id AND o_d_id = d_id LEFT JOIN \
              (SELECT ol_w_id, ol_d_id, count(*) AS held FROM order_line \
              GROUP BY ol_w_id, ol_d_id) l ON ol_w_id = d_w_id AND ol_d_id = d_id \
              WHERE coalesce(promised, 0) <> coalesce(held, 0)",
    },
    Condition {
        number: 5,
        unit: "orders",
        rule: "o_carrier_id is null exactly if there is a new_order",
        sql: "SELECT count(*) FROM orders LEFT JOIN new_order \
              ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
              WHERE (o_carrier_id IS NULL AND no_o_id IS NULL) \
              OR (o_carrier_id IS NOT NULL AND no_o_id IS NOT NULL)",
    },
    Condition {
        number: 6,
        unit: "orders",
        rule: "o_ol_cnt = count(order_line)",
        sql: "SELECT count(*) FROM orders LEFT JOIN \
              (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS held FROM order_line \
              GROUP BY ol_w_id, ol_d_id, ol_o_id) l \
              ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
              WHERE o_ol_cnt <> coalesce(held, 0)",
    },
    Condition {
        number: 7,
        unit: "order lines",
        rule: "ol_delivery_d is null exactly if o_carrier_id is",
        sql: "SELECT count(*) FROM orders JOIN order_line \
              ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
              WHERE (ol_delivery_d IS NULL AND o_carrier_id IS NOT NULL) \
              OR (ol_delivery_d IS NOT NULL AND o_carrier_id IS NULL)",
    },
    Condition {
        number: 8,
        unit: "warehouses",
        rule: "w_ytd = sum(h_amount)",
        sql: "SELECT count(*) FROM warehouse LEFT JOIN \
              (SELECT h_w_id, sum(h_amount) AS total FROM history GROUP BY h_w_id) h \
              ON h_w_id = w_id WHERE w_ytd <> coalesce(total, 0)",
    },
    Condition {
        number: 9,
        unit: "districts",
        rule: "d_ytd = sum(h_amount)",
        sql: "SELECT count(*) FROM district LEFT JOIN \
              (SELECT h_w_id, h_d_id, sum(h_amount) AS total FROM history \
              GROUP BY h_w_id, h_d_id) h ON h_w_id = d_w_id AND h_d_id = d_id \
              WHERE d_ytd <> coalesce(total, 0)",
    },
    Condition {
        number: 10,
        unit: "customers",
        rule: "c_balance = sum(delivered ol_amount) - sum(h_amount)",
        sql: concat!(
            "SELECT count(*) FROM customer LEFT JOIN ",
            delivered!(),
            " LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history \
             GROUP BY h_c_w_id, h_c_d_id, h_c_id) h \
             ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
             WHERE c_balance <> coalesce(delivered, 0) - coalesce(paid, 0)"
        ),
    },
    // The specification's form, 2100 instead of 2100 + deliveries, holds before the first delivery
    // only; every delivery since then is counted in a customer's c_delivery_cnt.
    Condition {
        number: 11,
        unit: "districts",
        rule: "count(orders) - count(new_order) = 2100 + sum(c_delivery_cnt)",
        sql: "SELECT count(*) FROM district LEFT JOIN \
              (SELECT o_w_id, o_d_id, count(*) AS ordered FROM orders GROUP BY o_w_id, o_d_id) o \
              ON o_w_id = d_w_id AND o_d_id = d_id LEFT JOIN \
              (SELECT no_w_id, no_d_id, count(*) AS waiting FROM new_order \
              GROUP BY no_w_id, no_d_id) n ON no_w_id = d_w_id AND no_d_id = d_id LEFT JOIN \
              (SELECT c_w_id, c_d_id, sum(c_delivery_cnt) AS delivered FROM customer \
              GROUP BY c_w_id, c_d_id) c ON c_w_id = d_w_id AND c_d_id = d_id \
              WHERE coalesce(ordered, 0) - coalesce(waiting, 0) \
              <> {delivered} + coalesce(delivered, 0)",
    },
    Condition {
        number: 12,
        unit: "customers",
        rule: "c_balance + c_ytd_payment = sum(delivered ol_amount)",
        sql: concat!(
            "SELECT count(*) FROM customer LEFT JOIN ",
            delivered!(),
            " WHERE c_balance + c_ytd_payment <> coalesce(delivered, 0)"
        ),
    },
];
