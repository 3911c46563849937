//! What makes each consistency condition fail, and no other: every change is completed so that the conditions
//! that share a column with it go on to hold.

/// How a database says it.
pub struct Words<'a> {
    /// A cent, as columns hold it.
    pub cent: &'a str,
    /// A moment.
    pub now: &'a str,
    /// What tells a table's rows apart.
    pub row: &'a str,
}

impl Words<'_> {
    /// The condition that must fail, and what makes it fail.
    pub fn damages(&self) -> impl Iterator<Item = (u8, String)> {
        DAMAGES.into_iter().map(|(number, sql)| {
            let sql = sql.replace("{cent}", self.cent).replace("{now}", self.now);
            (number, sql.replace("{row}", self.row))
        })
    }
}

const DAMAGES: [(u8, &str); 12] = [
    // Paid into a district that does not exist: the warehouse and its history (8) agree.
    (
        1,
        "UPDATE warehouse SET w_ytd = w_ytd + {cent} WHERE w_id = 1;
         INSERT INTO history VALUES (0, 0, 0, 11, 1, {now}, {cent}, '')",
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
         UPDATE order_line SET ol_delivery_d = {now} WHERE ol_w_id = 1 AND ol_d_id = 2
             AND ol_o_id = (SELECT id FROM middle);
         UPDATE customer SET c_balance = c_balance + (SELECT amount FROM middle),
             c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = 1 AND c_d_id = 2
             AND c_id = (SELECT customer FROM middle)",
    ),
    // A line of an order that does not exist.
    (
        4,
        "INSERT INTO order_line VALUES (999999, 1, 1, 1, 1, 1, NULL, 1, {cent}, '')",
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
        "INSERT INTO history VALUES (0, 0, 0, 11, 2, {now}, {cent}, '')",
    ),
    // A payment moves to another district of the same warehouse (8).
    (
        9,
        "UPDATE history SET h_d_id = h_d_id % 10 + 1 WHERE {row} = (SELECT min({row}) FROM history)",
    ),
    // The sum of balance and payments stays (12).
    (
        10,
        "UPDATE customer SET c_balance = c_balance + {cent}, c_ytd_payment = c_ytd_payment - {cent}
             WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 7",
    ),
    (
        11,
        "UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1
             WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 7",
    ),
    (
        12,
        "UPDATE customer SET c_ytd_payment = c_ytd_payment + {cent}
             WHERE c_w_id = 2 AND c_d_id = 1 AND c_id = 7",
    ),
];
