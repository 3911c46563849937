//! Transactions as calls of functions: one prepared statement and one round trip each.

use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Error, Statement};

use super::connection::{Connection, failure};
use super::decimal::Cents;
use crate::database::{Delivered, Failure, Outcome, ServerStart, Session};
use crate::inputs::{NewOrder, Payment, Transaction};

/// What `ashlar_new_order` raises for an item that does not exist.
const ROLLED_BACK: &str = "TPCRB";

pub(super) struct FunctionSession {
    connection: Connection,
    new_order: Statement,
    payment: Statement,
    order_status: Statement,
    delivery: Statement,
    stock_level: Statement,
}

impl FunctionSession {
    pub(super) fn new(connection: Connection) -> Result<Self, Error> {
        Ok(Self {
            new_order: connection.prepare("SELECT ashlar_new_order($1, $2, $3, $4, $5, $6, $7)")?,
            payment: connection.prepare("SELECT ashlar_payment($1, $2, $3, $4, $5, $6, $7)")?,
            order_status: connection.prepare("SELECT ashlar_order_status($1, $2, $3, $4)")?,
            delivery: connection.prepare("SELECT ashlar_delivery($1, $2)")?,
            stock_level: connection.prepare("SELECT ashlar_stock_level($1, $2, $3)")?,
            connection,
        })
    }

    /// Calls a function; what it gives is received and let go.
    fn call(&self, statement: &Statement, values: &[&(dyn ToSql + Sync)]) -> Result<(), Error> {
        let Connection { client, driver, .. } = &self.connection;
        driver.block_on(client.execute(statement, values)).map(drop)
    }

    /// Gives the order's number.
    fn new_order(&self, order: &NewOrder) -> Result<Outcome, Error> {
        let of = |value: fn(&crate::inputs::Line) -> i32| -> Vec<i32> {
            order.lines.iter().map(value).collect()
        };
        let Connection { client, driver, .. } = &self.connection;
        let row = driver.block_on(client.query_one(
            &self.new_order,
            &[
                &order.place.warehouse,
                &order.place.district,
                &order.customer,
                &of(|line| line.item),
                &of(|line| line.supply),
                &of(|line| line.quantity),
                &order.repeats(),
            ],
        ))?;
        let First(number) = row.try_get(0)?;
        Ok(number.map_or(Outcome::Committed, Outcome::Ordered))
    }

    /// Gives the customer's number, if a customer has the name.
    fn payment(&self, payment: &Payment) -> Result<Outcome, Error> {
        let (number, last) = payment.who.number_or_name();
        let Connection { client, driver, .. } = &self.connection;
        let row = driver.block_on(client.query_one(
            &self.payment,
            &[
                &payment.place.warehouse,
                &payment.place.district,
                &payment.home.warehouse,
                &payment.home.district,
                &number,
                &last,
                &Cents(payment.cents),
            ],
        ))?;
        let First(paid_by) = row.try_get(0)?;
        Ok(paid_by.map_or(Outcome::Committed, Outcome::Paid))
    }

    /// Gives the numbers of what was delivered.
    fn delivery(&self, warehouse: i32, carrier: i32) -> Result<Outcome, Error> {
        let Connection { client, driver, .. } = &self.connection;
        let row = driver.block_on(client.query_one(&self.delivery, &[&warehouse, &carrier]))?;
        let found: Vec<Option<i32>> = row.try_get(0)?;
        let mut orders = Delivered::default();
        for (order, found) in orders.iter_mut().zip(found) {
            *order = found;
        }
        Ok(Outcome::Delivered(orders))
    }
}

impl Session for FunctionSession {
    fn run(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        let done = match transaction {
            Transaction::NewOrder(order) => return outcome(self.new_order(order)),
            Transaction::Payment(payment) => return outcome(self.payment(payment)),
            Transaction::OrderStatus { place, who } => {
                let (number, last) = who.number_or_name();
                self.call(
                    &self.order_status,
                    &[&place.warehouse, &place.district, &number, &last],
                )
            }
            &Transaction::Delivery { warehouse, carrier } => {
                return outcome(self.delivery(warehouse, carrier));
            }
            Transaction::StockLevel { place, threshold } => self.call(
                &self.stock_level,
                &[&place.warehouse, &place.district, threshold],
            ),
        };
        outcome(done.map(|()| Outcome::Committed))
    }

    fn have_counted(&mut self) {
        self.connection.have_counted();
    }

    fn server_start(&mut self) -> Option<ServerStart> {
        self.connection.server_start()
    }
}

fn outcome(done: Result<Outcome, Error>) -> Result<Outcome, Failure> {
    match done {
        Ok(outcome) => Ok(outcome),
        Err(error) if error.code().is_some_and(|code| code.code() == ROLLED_BACK) => {
            Ok(Outcome::RolledBack)
        }
        Err(error) => Err(failure(&error)),
    }
}

/// The first field of a record, an integer or null; the others are received and let go.
struct First(Option<i32>);

impl<'a> FromSql<'a> for First {
    /// As `record_send` writes it: how many fields; for each its type, its length, its bytes.
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let four = |at: usize| -> Option<[u8; 4]> { raw.get(at..at + 4)?.try_into().ok() };
        match (four(8).map(i32::from_be_bytes), four(12)) {
            (Some(4), Some(number)) => Ok(Self(Some(i32::from_be_bytes(number)))),
            (Some(-1), _) => Ok(Self(None)),
            _ => Err("the record does not begin with an integer".into()),
        }
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::RECORD
    }
}
