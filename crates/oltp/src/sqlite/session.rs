//! A user's connection: Payment, Order-Status and Stock-Level, and how transactions begin and end.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row};

use super::failure;
use crate::database::{Failure, Outcome, Session};
use crate::inputs::{Payment, Place, Transaction, Who};
use crate::usage::unix_us;

pub(super) type Done<T> = rusqlite::Result<T>;

pub(super) struct SqliteSession {
    connection: Connection,
    writer: Arc<Mutex<()>>,
}

impl SqliteSession {
    pub(super) fn new(connection: Connection, writer: Arc<Mutex<()>>) -> Self {
        Self { connection, writer }
    }

    fn finish(&self, begin: &str, body: impl FnOnce(&Sql<'_>) -> Done<Outcome>) -> Done<Outcome> {
        let sql = Sql(&self.connection);
        sql.run(begin, [])?;
        let outcome = body(&sql).and_then(|outcome| {
            if outcome != Outcome::RolledBack {
                sql.run("COMMIT", [])?;
            }
            Ok(outcome)
        });
        if !self.connection.is_autocommit() {
            sql.run("ROLLBACK", [])?;
        }
        outcome
    }

    fn write(&self, body: impl FnOnce(&Sql<'_>) -> Done<Outcome>) -> Done<Outcome> {
        let _turn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.finish("BEGIN IMMEDIATE", body)
    }

    fn read(&self, body: impl FnOnce(&Sql<'_>) -> Done<Outcome>) -> Done<Outcome> {
        self.finish("BEGIN", body)
    }
}

impl Session for SqliteSession {
    fn run(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        let done = match transaction {
            Transaction::NewOrder(order) => self.write(|sql| sql.new_order(order)),
            Transaction::Payment(payment) => self.write(|sql| sql.payment(payment)),
            Transaction::OrderStatus { place, who } => {
                self.read(|sql| sql.order_status(*place, who))
            }
            Transaction::Delivery { warehouse, carrier } => {
                self.write(|sql| sql.delivery(*warehouse, *carrier))
            }
            Transaction::StockLevel { place, threshold } => {
                self.read(|sql| sql.stock_level(*place, *threshold))
            }
        };
        done.map_err(|error| failure(&error))
    }
}

/// Cached statements of a connection.
pub(super) struct Sql<'a>(&'a Connection);

impl Sql<'_> {
    pub(super) fn statement(&self, sql: &str) -> Done<CachedStatement<'_>> {
        self.0.prepare_cached(sql)
    }

    pub(super) fn run(&self, sql: &str, values: impl Params) -> Done<usize> {
        self.statement(sql)?.execute(values)
    }

    pub(super) fn row<T>(
        &self,
        sql: &str,
        values: impl Params,
        of: impl FnOnce(&Row<'_>) -> Done<T>,
    ) -> Done<T> {
        self.statement(sql)?.query_row(values, of)
    }

    /// The number of a customer; `None` if no customer has the name.
    fn customer(&self, place: Place, who: &Who) -> Done<Option<i32>> {
        let name = match who {
            Who::Number(number) => return Ok(Some(*number)),
            Who::Last(name) => name,
        };
        let mut named = self.statement(
            "SELECT c_id FROM customer WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_last = ?3 \
             ORDER BY c_first",
        )?;
        let found: Vec<i32> = named
            .query_map((place.warehouse, place.district, name), |row| row.get(0))?
            .collect::<Done<_>>()?;
        Ok(found.get(found.len().saturating_sub(1) / 2).copied())
    }

    /// Clause 2.5.2.
    fn payment(&self, payment: &Payment) -> Done<Outcome> {
        let Payment {
            place, home, cents, ..
        } = *payment;
        let Some(customer) = self.customer(home, &payment.who)? else {
            return Ok(Outcome::Committed);
        };
        let warehouse_name: String = self.row(
            "UPDATE warehouse SET w_ytd = w_ytd + ?2 WHERE w_id = ?1 \
             RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip",
            (place.warehouse, cents),
            |row| row.get(0),
        )?;
        let district_name: String = self.row(
            "UPDATE district SET d_ytd = d_ytd + ?3 WHERE d_w_id = ?1 AND d_id = ?2 \
             RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip",
            (place.warehouse, place.district, cents),
            |row| row.get(0),
        )?;
        let credit: String = self.row(
            "UPDATE customer SET c_balance = c_balance - ?4, c_ytd_payment = c_ytd_payment + ?4, \
             c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3 \
             RETURNING c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, \
             c_zip, c_phone, c_since, c_credit_lim, c_discount, c_balance",
            (home.warehouse, home.district, customer, cents),
            |row| row.get(0),
        )?;
        if credit == "BC" {
            self.run(
                "UPDATE customer SET c_data = substr(?4 || c_data, 1, 500) \
                 WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
                (
                    home.warehouse,
                    home.district,
                    customer,
                    payment.note(customer),
                ),
            )?;
        }
        self.run(
            "INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            (
                customer,
                home.district,
                home.warehouse,
                place.district,
                place.warehouse,
                unix_us(),
                cents,
                format!("{warehouse_name}    {district_name}"),
            ),
        )?;
        Ok(Outcome::Paid(customer))
    }

    /// Clause 2.6.2.
    fn order_status(&self, place: Place, who: &Who) -> Done<Outcome> {
        let Some(customer) = self.customer(place, who)? else {
            return Ok(Outcome::Committed);
        };
        let key = (place.warehouse, place.district, customer);
        let _balance: i64 = self.row(
            "SELECT c_balance, c_first, c_middle, c_last FROM customer \
             WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
            key,
            |row| row.get(0),
        )?;
        let last: Option<i32> = self
            .row(
                "SELECT o_id, o_entry_d, o_carrier_id FROM orders \
                 WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_c_id = ?3 ORDER BY o_id DESC LIMIT 1",
                key,
                |row| row.get(0),
            )
            .optional()?;
        if let Some(order) = last {
            let mut lines = self.statement(
                "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d \
                 FROM order_line WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3",
            )?;
            let mut lines = lines.query((place.warehouse, place.district, order))?;
            while lines.next()?.is_some() {}
        }
        Ok(Outcome::Committed)
    }

    /// Clause 2.8.2: of the items in the district's last 20 orders, how many are low in stock.
    fn stock_level(&self, place: Place, threshold: i32) -> Done<Outcome> {
        let next: i32 = self.row(
            "SELECT d_next_o_id FROM district WHERE d_w_id = ?1 AND d_id = ?2",
            (place.warehouse, place.district),
            |row| row.get(0),
        )?;
        let _low: i64 = self.row(
            "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock \
             ON s_w_id = ol_w_id AND s_i_id = ol_i_id WHERE ol_w_id = ?1 AND ol_d_id = ?2 \
             AND ol_o_id >= ?3 - 20 AND ol_o_id < ?3 AND s_quantity < ?4",
            (place.warehouse, place.district, next, threshold),
            |row| row.get(0),
        )?;
        Ok(Outcome::Committed)
    }
}
