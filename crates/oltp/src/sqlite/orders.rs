//! New-Order and Delivery on SQLite.

use rusqlite::OptionalExtension;

use super::session::{Done, Sql};
use crate::database::{Delivered, Outcome};
use crate::inputs::{Line, NewOrder, Place};
use crate::usage::unix_us;

/// What the lines of an order have in common.
struct Order {
    id: i32,
    place: Place,
    /// The statement that takes from the stock and gives this district's information.
    take: String,
}

impl Sql<'_> {
    /// Clause 2.4.2.
    pub(super) fn new_order(&self, order: &NewOrder) -> Done<Outcome> {
        let Place {
            warehouse,
            district,
        } = order.place;
        let _tax: i64 = self.row(
            "SELECT w_tax FROM warehouse WHERE w_id = ?1",
            [warehouse],
            |row| row.get(0),
        )?;
        let id: i32 = self.row(
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ?1 AND d_id = ?2 \
             RETURNING d_next_o_id - 1, d_tax",
            (warehouse, district),
            |row| row.get(0),
        )?;
        let _discount: i64 = self.row(
            "SELECT c_discount, c_last, c_credit FROM customer \
             WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
            (warehouse, district, order.customer),
            |row| row.get(0),
        )?;
        self.run(
            "INSERT INTO orders VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?6, ?7)",
            (
                id,
                district,
                warehouse,
                order.customer,
                unix_us(),
                order.lines.len() as i64,
                order.all_local(),
            ),
        )?;
        self.run(
            "INSERT INTO new_order VALUES (?1, ?2, ?3)",
            (id, district, warehouse),
        )?;
        let taken = Order {
            id,
            place: order.place,
            take: format!(
                "UPDATE stock SET s_quantity = s_quantity - ?3 \
                 + CASE WHEN s_quantity - ?3 >= 10 THEN 0 ELSE 91 END, s_ytd = s_ytd + ?3, \
                 s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ?4 \
                 WHERE s_w_id = ?1 AND s_i_id = ?2 RETURNING s_dist_{district:02}, s_quantity, s_data"
            ),
        };
        for (number, line) in (1..).zip(&order.lines) {
            if self.line(&taken, number, line)?.is_none() {
                return Ok(Outcome::RolledBack);
            }
        }
        Ok(Outcome::Ordered(id))
    }

    /// One line; `None` if there is no such item.
    fn line(&self, order: &Order, number: i32, line: &Line) -> Done<Option<()>> {
        let price: Option<i64> = self
            .row(
                "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?1",
                [line.item],
                |row| row.get(0),
            )
            .optional()?;
        let Some(price) = price else {
            return Ok(None);
        };
        let remote = line.supply != order.place.warehouse;
        let info: String = self.row(
            &order.take,
            (line.supply, line.item, line.quantity, remote),
            |row| row.get(0),
        )?;
        self.run(
            "INSERT INTO order_line VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7, ?8, ?9)",
            (
                order.id,
                order.place.district,
                order.place.warehouse,
                number,
                line.item,
                line.supply,
                line.quantity,
                price * i64::from(line.quantity),
                info,
            ),
        )?;
        Ok(Some(()))
    }

    /// Clause 2.7.4, all ten districts in one transaction.
    pub(super) fn delivery(&self, warehouse: i32, carrier: i32) -> Done<Outcome> {
        let mut orders = Delivered::default();
        for (district, order) in (1..).zip(&mut orders) {
            let place = Place {
                warehouse,
                district,
            };
            *order = self.deliver(place, carrier)?;
        }
        Ok(Outcome::Delivered(orders))
    }

    /// Delivers the oldest new order of a district, if there is one; which.
    fn deliver(&self, place: Place, carrier: i32) -> Done<Option<i32>> {
        let Place {
            warehouse,
            district,
        } = place;
        let oldest: Option<i32> = self
            .row(
                "SELECT no_o_id FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2 \
                 ORDER BY no_o_id LIMIT 1",
                (warehouse, district),
                |row| row.get(0),
            )
            .optional()?;
        let Some(order) = oldest else {
            return Ok(None);
        };
        let key = (warehouse, district, order);
        self.run(
            "DELETE FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2 AND no_o_id = ?3",
            key,
        )?;
        let customer: i32 = self.row(
            "UPDATE orders SET o_carrier_id = ?4 WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_id = ?3 \
             RETURNING o_c_id",
            (warehouse, district, order, carrier),
            |row| row.get(0),
        )?;
        let amount: i64 = self.row(
            "SELECT sum(ol_amount) FROM order_line \
             WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3",
            key,
            |row| row.get(0),
        )?;
        self.run(
            "UPDATE order_line SET ol_delivery_d = ?4 \
             WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3",
            (warehouse, district, order, unix_us()),
        )?;
        self.run(
            "UPDATE customer SET c_balance = c_balance + ?4, c_delivery_cnt = c_delivery_cnt + 1 \
             WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
            (warehouse, district, customer, amount),
        )?;
        Ok(Some(order))
    }
}
