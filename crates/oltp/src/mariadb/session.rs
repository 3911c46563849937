//! Transactions as calls of procedures: one prepared statement and one round trip each.

use mysql::prelude::{FromRow, Queryable};
use mysql::{Conn, Error, Params, Row};

use crate::calls::{delivered, order_lines};
use crate::database::{Failure, Outcome, Session, with_decimals};
use crate::inputs::{NewOrder, Transaction};

/// What a server says that has no more room, ends, or takes no writes.
const LOST: [u16; 9] = [1021, 1040, 1053, 1114, 1129, 1290, 1317, 1836, 1927];
/// A deadlock, a lock that was waited for too long, a row that has changed since it was read.
const RETRY: [u16; 3] = [1213, 1205, 1020];

pub(super) struct ProcedureSession {
    connection: Conn,
}

impl ProcedureSession {
    pub(super) fn new(connection: Conn) -> Self {
        Self { connection }
    }

    /// The first row of what a procedure gives; the rest is received and let go.
    fn call<T: FromRow>(
        &mut self,
        sql: &str,
        values: impl Into<Params>,
    ) -> Result<Option<T>, Error> {
        self.connection.exec_first(sql, values.into())
    }

    fn new_order(&mut self, order: &NewOrder) -> Result<Outcome, Error> {
        let place = order.place;
        let values = (
            place.warehouse,
            place.district,
            order.customer,
            order_lines(order),
        );
        let row: Option<Row> = self.call("CALL ashlar_new_order(?, ?, ?, ?)", values)?;
        Ok(match row.and_then(|row| row.get::<i32, _>(0)) {
            Some(0) => Outcome::RolledBack,
            Some(number) => Outcome::Ordered(number),
            None => Outcome::Committed,
        })
    }
}

impl Session for ProcedureSession {
    fn run(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        let done = match transaction {
            Transaction::NewOrder(order) => self.new_order(order),
            Transaction::Payment(payment) => {
                let (number, last) = payment.who.number_or_name();
                let values = (
                    payment.place.warehouse,
                    payment.place.district,
                    payment.home.warehouse,
                    payment.home.district,
                    number,
                    last,
                    with_decimals(payment.cents),
                );
                let row: Result<Option<Row>, _> =
                    self.call("CALL ashlar_payment(?, ?, ?, ?, ?, ?, ?)", values);
                let paid_by = |row: Row| row.get::<Option<i32>, _>(0).flatten();
                row.map(|row| {
                    row.and_then(paid_by)
                        .map_or(Outcome::Committed, Outcome::Paid)
                })
            }
            Transaction::OrderStatus { place, who } => {
                let (number, last) = who.number_or_name();
                let values = (place.warehouse, place.district, number, last);
                let row: Result<Option<Row>, _> =
                    self.call("CALL ashlar_order_status(?, ?, ?, ?)", values);
                row.map(|_| Outcome::Committed)
            }
            &Transaction::Delivery { warehouse, carrier } => {
                let text = self.call("CALL ashlar_delivery(?, ?)", (warehouse, carrier));
                text.map(|text: Option<String>| {
                    Outcome::Delivered(delivered(&text.unwrap_or_default()))
                })
            }
            Transaction::StockLevel { place, threshold } => {
                let values = (place.warehouse, place.district, threshold);
                let low: Result<Option<i64>, _> =
                    self.call("CALL ashlar_stock_level(?, ?, ?)", values);
                low.map(|_| Outcome::Committed)
            }
        };
        done.map_err(|error| failure(&error))
    }
}

fn failure(error: &Error) -> Failure {
    let text = super::words(error);
    match error {
        Error::MySqlError(of) if RETRY.contains(&of.code) => Failure::Retry(text),
        Error::MySqlError(of) if !LOST.contains(&of.code) => Failure::Error(text),
        _ => Failure::Lost(text),
    }
}
