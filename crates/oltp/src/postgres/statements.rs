//! The statements of client SQL, prepared at login. Rows that come in numbers travel as arrays.

use tokio_postgres::{Error, Statement};

use super::connection::Connection;

/// Makes a struct of prepared statements from names and texts.
macro_rules! statements {
    ($($name:ident: $sql:expr;)+) => {
        pub(super) struct Statements {
            $(pub(super) $name: Statement,)+
        }

        impl Statements {
            pub(super) fn new(connection: &Connection) -> Result<Self, Error> {
                Ok(Self { $($name: connection.prepare($sql)?,)+ })
            }
        }
    };
}

statements! {
    begin: "BEGIN";
    begin_reading: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    commit: "COMMIT";
    rollback: "ROLLBACK";
    named: "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 \
            ORDER BY c_first";

    order_customer: "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse \
                     WHERE w_id = $1 AND c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
    order_district: "UPDATE district SET d_next_o_id = d_next_o_id + 1 \
                     WHERE d_w_id = $1 AND d_id = $2 RETURNING d_next_o_id - 1, d_tax";
    order_items: "SELECT i_id, i_price, i_name, i_data FROM item WHERE i_id = ANY ($1::integer[])";
    order_stock: "SELECT s_w_id, s_i_id, s_quantity, CASE $3::integer WHEN 1 THEN s_dist_01 \
                  WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 \
                  WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 \
                  WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 ELSE s_dist_10 END::text, s_data \
                  FROM unnest($1::integer[], $2::integer[]) AS line (supply, item) \
                  JOIN stock ON s_w_id = supply AND s_i_id = item FOR UPDATE OF stock";
    order_order: "INSERT INTO orders VALUES ($1, $2, $3, $4, localtimestamp, NULL, $5, $6)";
    order_new: "INSERT INTO new_order VALUES ($1, $2, $3)";
    order_take: "UPDATE stock SET s_quantity = left_over, s_ytd = s_ytd + taken, \
                 s_order_cnt = s_order_cnt + orders, s_remote_cnt = s_remote_cnt + remote \
                 FROM unnest($1::integer[], $2::integer[], $3::integer[], $4::integer[], \
                 $5::integer[], $6::integer[]) \
                 AS line (supply, item, left_over, taken, orders, remote) \
                 WHERE s_w_id = supply AND s_i_id = item";
    order_lines: "INSERT INTO order_line SELECT $1::integer, $2::integer, $3::integer, number, \
                  item, supply, NULL, quantity, amount, info \
                  FROM unnest($4::integer[], $5::integer[], $6::integer[], $7::numeric[], \
                  $8::text[]) WITH ORDINALITY \
                  AS line (item, supply, quantity, amount, info, number)";

    pay_customer: "UPDATE customer SET c_balance = c_balance - $4, \
                   c_ytd_payment = c_ytd_payment + $4, c_payment_cnt = c_payment_cnt + 1, \
                   c_data = CASE WHEN c_credit = 'BC' THEN left($5::text || c_data, 500) \
                   ELSE c_data END WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 \
                   RETURNING c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, \
                   c_zip, c_phone, c_since, c_credit, c_credit_lim, c_discount, c_balance, \
                   CASE WHEN c_credit = 'BC' THEN left(c_data, 200) END";
    pay_district: "UPDATE district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2 \
                   RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip";
    pay_warehouse: "UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1 \
                    RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip";
    pay_history: "INSERT INTO history SELECT $1::integer, $2::integer, $3::integer, d_id, w_id, \
                  localtimestamp, $6::numeric, concat(w_name, '    ', d_name) \
                  FROM warehouse, district WHERE w_id = $4 AND d_w_id = $4 AND d_id = $5";

    status_customer: "SELECT c_balance, c_first, c_middle, c_last FROM customer \
                      WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
    status_order: "SELECT o_id, o_entry_d, o_carrier_id, ol_i_id, ol_supply_w_id, ol_quantity, \
                   ol_amount, ol_delivery_d FROM (SELECT o_id, o_entry_d, o_carrier_id FROM orders \
                   WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1) \
                   AS last JOIN order_line ON ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = o_id";

    deliver_oldest: "DELETE FROM new_order USING unnest($2::integer[]) AS district, \
                     LATERAL (SELECT n.no_o_id AS oldest FROM new_order n WHERE n.no_w_id = $1 \
                     AND n.no_d_id = district ORDER BY n.no_o_id LIMIT 1) AS first \
                     WHERE no_w_id = $1 AND no_d_id = district AND no_o_id = oldest \
                     RETURNING no_d_id, no_o_id";
    deliver_orders: "UPDATE orders SET o_carrier_id = $2 \
                     FROM unnest($3::integer[], $4::integer[]) AS due (district, number) \
                     WHERE o_w_id = $1 AND o_d_id = district AND o_id = number \
                     RETURNING o_d_id, o_c_id";
    deliver_lines: "WITH lines AS (UPDATE order_line SET ol_delivery_d = localtimestamp \
                    FROM unnest($2::integer[], $3::integer[]) AS due (district, number) \
                    WHERE ol_w_id = $1 AND ol_d_id = district AND ol_o_id = number \
                    RETURNING ol_d_id, ol_amount) \
                    SELECT ol_d_id, sum(ol_amount) FROM lines GROUP BY ol_d_id";
    deliver_customers: "UPDATE customer SET c_balance = c_balance + amount, \
                        c_delivery_cnt = c_delivery_cnt + 1 \
                        FROM unnest($2::integer[], $3::integer[], $4::numeric[]) \
                        AS due (district, number, amount) \
                        WHERE c_w_id = $1 AND c_d_id = district AND c_id = number";

    stock_level: "SELECT count(DISTINCT s_i_id) FROM district JOIN order_line \
                  ON ol_w_id = d_w_id AND ol_d_id = d_id AND ol_o_id >= d_next_o_id - 20 \
                  AND ol_o_id < d_next_o_id JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id \
                  WHERE d_w_id = $1 AND d_id = $2 AND s_quantity < $3";
}
