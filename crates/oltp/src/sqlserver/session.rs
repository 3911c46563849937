//! Transactions as calls of procedures: one remote procedure call and one round trip each.

use std::borrow::Cow;

use tiberius::error::Error;
use tiberius::numeric::Numeric;
use tiberius::{ColumnData, Command, Row};

use super::link::{Link, words};
use crate::calls::{delivered, order_lines};
use crate::database::{Failure, Outcome, Session};
use crate::inputs::{NewOrder, Payment, Place, Transaction, Who};

/// A deadlock, a lock that was waited for too long, a row that has changed since the snapshot.
const RETRY: [u32; 3] = [1205, 1222, 3960];
/// What a server says that has no more room, ends, takes no writes, or has ended the session.
const LOST: [u32; 9] = [596, 976, 983, 1101, 1105, 3906, 6005, 9001, 9002];
/// Errors from this class on end the connection.
const FATAL: u8 = 20;

/// A procedure with its parameters, as the procedures' file has them.
struct Procedure<const N: usize> {
    name: &'static str,
    parameters: [&'static str; N],
}

const NEW_ORDER: Procedure<4> = Procedure {
    name: "ashlar_new_order",
    parameters: ["@w", "@d", "@c", "@lines"],
};
const PAYMENT: Procedure<7> = Procedure {
    name: "ashlar_payment",
    parameters: ["@w", "@d", "@c_w", "@c_d", "@c", "@last", "@amount"],
};
const ORDER_STATUS: Procedure<4> = Procedure {
    name: "ashlar_order_status",
    parameters: ["@w", "@d", "@c", "@last"],
};
const DELIVERY: Procedure<2> = Procedure {
    name: "ashlar_delivery",
    parameters: ["@w", "@carrier"],
};
const STOCK_LEVEL: Procedure<3> = Procedure {
    name: "ashlar_stock_level",
    parameters: ["@w", "@d", "@threshold"],
};

/// All that a session calls, by name, with their parameters.
#[cfg(test)]
pub(super) const CALLED: [(&str, &[&str]); 5] = [
    (NEW_ORDER.name, &NEW_ORDER.parameters),
    (PAYMENT.name, &PAYMENT.parameters),
    (ORDER_STATUS.name, &ORDER_STATUS.parameters),
    (DELIVERY.name, &DELIVERY.parameters),
    (STOCK_LEVEL.name, &STOCK_LEVEL.parameters),
];

pub(super) struct ProcedureSession {
    link: Link,
}

impl ProcedureSession {
    pub(super) fn new(link: Link) -> Self {
        Self { link }
    }

    /// Calls a procedure with a value for each of its parameters; the first row that it gives.
    fn call<const N: usize>(
        &mut self,
        procedure: &Procedure<N>,
        values: [ColumnData<'_>; N],
    ) -> Result<Option<Row>, Error> {
        let mut command = Command::new(procedure.name);
        for (name, value) in procedure.parameters.into_iter().zip(values) {
            command.bind_param(name, value);
        }
        self.link.call(command)
    }

    fn new_order(&mut self, order: &NewOrder) -> Result<Outcome, Error> {
        let Place {
            warehouse,
            district,
        } = order.place;
        let lines = Cow::Owned(order_lines(order));
        let values = [
            int(warehouse),
            int(district),
            int(order.customer),
            ColumnData::String(Some(lines)),
        ];
        let row = self.call(&NEW_ORDER, values)?;
        Ok(match first::<i32>(row.as_ref())? {
            Some(0) => Outcome::RolledBack,
            Some(number) => Outcome::Ordered(number),
            None => Outcome::Committed,
        })
    }

    fn payment(&mut self, payment: &Payment) -> Result<Outcome, Error> {
        let (place, home) = (payment.place, payment.home);
        let [number, last] = customer(&payment.who);
        let amount = Numeric::new_with_scale(payment.cents.into(), 2);
        let values = [
            int(place.warehouse),
            int(place.district),
            int(home.warehouse),
            int(home.district),
            number,
            last,
            ColumnData::Numeric(Some(amount)),
        ];
        let row = self.call(&PAYMENT, values)?;
        let paid_by = first::<i32>(row.as_ref())?;
        Ok(paid_by.map_or(Outcome::Committed, Outcome::Paid))
    }

    fn order_status(&mut self, place: Place, who: &Who) -> Result<Outcome, Error> {
        let [number, last] = customer(who);
        let values = [int(place.warehouse), int(place.district), number, last];
        self.call(&ORDER_STATUS, values)?;
        Ok(Outcome::Committed)
    }

    fn delivery(&mut self, warehouse: i32, carrier: i32) -> Result<Outcome, Error> {
        let row = self.call(&DELIVERY, [int(warehouse), int(carrier)])?;
        let text = first::<&str>(row.as_ref())?.unwrap_or_default();
        Ok(Outcome::Delivered(delivered(text)))
    }

    fn stock_level(&mut self, place: Place, threshold: i32) -> Result<Outcome, Error> {
        let values = [int(place.warehouse), int(place.district), int(threshold)];
        self.call(&STOCK_LEVEL, values)?;
        Ok(Outcome::Committed)
    }
}

/// The first value of what a procedure gives.
fn first<'a, T: tiberius::FromSql<'a>>(row: Option<&'a Row>) -> Result<Option<T>, Error> {
    row.map_or(Ok(None), |row| row.try_get(0))
}

fn int(value: i32) -> ColumnData<'static> {
    ColumnData::I32(Some(value))
}

/// Number and last name, one of which is null.
fn customer(who: &Who) -> [ColumnData<'_>; 2] {
    let (number, last) = who.number_or_name();
    [
        ColumnData::I32(number),
        ColumnData::String(last.map(Cow::Borrowed)),
    ]
}

impl Session for ProcedureSession {
    fn run(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        let done = match transaction {
            Transaction::NewOrder(order) => self.new_order(order),
            Transaction::Payment(payment) => self.payment(payment),
            Transaction::OrderStatus { place, who } => self.order_status(*place, who),
            &Transaction::Delivery { warehouse, carrier } => self.delivery(warehouse, carrier),
            &Transaction::StockLevel { place, threshold } => self.stock_level(place, threshold),
        };
        done.map_err(|error| failure(&error))
    }
}

fn failure(error: &Error) -> Failure {
    let text = words(error);
    match error {
        Error::Server(of) if RETRY.contains(&of.code()) => Failure::Retry(text),
        Error::Server(of) if of.class() < FATAL && !LOST.contains(&of.code()) => {
            Failure::Error(text)
        }
        _ => Failure::Lost(text),
    }
}
