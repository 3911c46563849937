//! Transactions as statements of this client. Statements that do not need each other's answers go out
//! together: two round trips for most transactions, one for a payment by number.

mod orders;

use tokio::join;
use tokio_postgres::{Client, Error};

use super::connection::{Connection, failure};
use super::decimal::Cents;
use super::statements::Statements;
use crate::database::{Failure, Outcome, ServerStart, Session};
use crate::inputs::{Payment, Place, Transaction, Who};

pub(super) struct ClientSession {
    connection: Connection,
    statements: Statements,
}

impl ClientSession {
    pub(super) fn new(connection: Connection) -> Result<Self, Error> {
        let statements = Statements::new(&connection)?;
        Ok(Self {
            connection,
            statements,
        })
    }
}

impl Session for ClientSession {
    fn run(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        let Connection { client, driver, .. } = &self.connection;
        let sql = Sql {
            client,
            st: &self.statements,
        };
        driver.block_on(async {
            let done = match transaction {
                Transaction::NewOrder(order) => sql.new_order(order).await,
                Transaction::Payment(payment) => sql.payment(payment).await,
                Transaction::OrderStatus { place, who } => sql.order_status(*place, who).await,
                Transaction::Delivery { warehouse, carrier } => {
                    sql.delivery(*warehouse, *carrier).await
                }
                Transaction::StockLevel { place, threshold } => {
                    sql.stock_level(*place, *threshold).await
                }
            };
            match done.map_err(|error| failure(&error)) {
                Err(failure @ (Failure::Retry(_) | Failure::Error(_))) => {
                    sql.rollback()
                        .await
                        .map_err(|error| Failure::Lost(error.to_string()))?;
                    Err(failure)
                }
                done => done,
            }
        })
    }

    fn have_counted(&mut self) {
        self.connection.have_counted();
    }

    fn server_start(&mut self) -> Option<ServerStart> {
        self.connection.server_start()
    }
}

struct Sql<'a> {
    client: &'a Client,
    st: &'a Statements,
}

type Done = Result<Outcome, Error>;

impl Sql<'_> {
    async fn begin(&self) -> Result<u64, Error> {
        self.client.execute(&self.st.begin, &[]).await
    }

    async fn commit(&self) -> Result<u64, Error> {
        self.client.execute(&self.st.commit, &[]).await
    }

    async fn rollback(&self) -> Result<u64, Error> {
        self.client.execute(&self.st.rollback, &[]).await
    }

    /// The customer in the middle of those who bear a name; `None` if there is none.
    async fn middle(&self, place: Place, name: &str) -> Result<Option<i32>, Error> {
        let Place {
            warehouse,
            district,
        } = place;
        let named = self
            .client
            .query(&self.st.named, &[&warehouse, &district, &name])
            .await?;
        named
            .get(named.len().saturating_sub(1) / 2)
            .map(|row| row.try_get(0))
            .transpose()
    }

    /// Clause 2.5.2.
    async fn payment(&self, payment: &Payment) -> Done {
        let begun = match &payment.who {
            Who::Number(number) => {
                let (begun, paid) = join!(biased; self.begin(), self.pay(payment, *number));
                return begun.and(paid);
            }
            Who::Last(name) => {
                let (begun, found) = join!(biased; self.begin(), self.middle(payment.home, name));
                begun.and(found)?
            }
        };
        match begun {
            Some(number) => self.pay(payment, number).await,
            None => self.commit().await.map(|_| Outcome::Committed),
        }
    }

    async fn pay(&self, payment: &Payment, customer: i32) -> Done {
        let Payment { place, home, .. } = payment;
        let (cents, note) = (Cents(payment.cents), payment.note(customer));
        let (by, at, to, kept, committed) = join!(
            biased;
            async {
                let values = [
                    &home.warehouse as _, &home.district as _, &customer as _, &cents as _,
                    &note as _,
                ];
                self.client.execute(&self.st.pay_customer, &values).await
            },
            async {
                let values = [&place.warehouse as _, &place.district as _, &cents as _];
                self.client.execute(&self.st.pay_district, &values).await
            },
            async {
                let values = [&place.warehouse as _, &cents as _];
                self.client.execute(&self.st.pay_warehouse, &values).await
            },
            async {
                let values = [
                    &customer as _, &home.district as _, &home.warehouse as _,
                    &place.warehouse as _, &place.district as _, &cents as _,
                ];
                self.client.execute(&self.st.pay_history, &values).await
            },
            self.commit(),
        );
        first_error([by, at, to, kept, committed])?;
        Ok(Outcome::Paid(customer))
    }

    /// Clause 2.6.2.
    async fn order_status(&self, place: Place, who: &Who) -> Done {
        let begin = self.client.execute(&self.st.begin_reading, &[]);
        let customer = match who {
            Who::Number(number) => begin.await.map(|_| Some(*number))?,
            Who::Last(name) => {
                let (begun, found) = join!(biased; begin, self.middle(place, name));
                begun.and(found)?
            }
        };
        let Some(customer) = customer else {
            return self.commit().await.map(|_| Outcome::Committed);
        };
        let Place {
            warehouse,
            district,
        } = place;
        let values = [&warehouse as _, &district as _, &customer as _];
        let (balance, order, committed) = join!(
            biased;
            self.client.execute(&self.st.status_customer, &values),
            self.client.execute(&self.st.status_order, &values),
            self.commit(),
        );
        first_error([balance, order, committed])
    }

    /// Clause 2.8.2, one statement and so a transaction by itself.
    async fn stock_level(&self, place: Place, threshold: i32) -> Done {
        let Place {
            warehouse,
            district,
        } = place;
        let values = [&warehouse as _, &district as _, &threshold as _];
        self.client
            .execute(&self.st.stock_level, &values)
            .await
            .map(|_| Outcome::Committed)
    }
}

/// The first of a transaction's errors: those after it only say that there was one.
fn first_error<const N: usize>(results: [Result<u64, Error>; N]) -> Done {
    results.into_iter().collect::<Result<Vec<u64>, Error>>()?;
    Ok(Outcome::Committed)
}
