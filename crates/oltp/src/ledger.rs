//! What was acknowledged to the client: new orders, payments and deliveries, which a database may not lose, whatever
//! happens to it.

mod audit;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::database::{Delivered, Outcome};
use crate::inputs::{Kind, Place, Transaction};

pub use audit::{Audit, Count};

/// Users share this many lists.
const SHARDS: usize = 16;

/// A transaction that was acknowledged, and that is there for all to see: others only read, and an order that was
/// rolled back has left nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Acknowledged {
    /// A new order.
    Order {
        /// Of this district.
        place: Place,
        /// Its number in the district.
        order: i32,
        customer: i32,
        lines: i32,
    },
    Payment {
        /// Where it was paid.
        place: Place,
        /// The customer's district.
        home: Place,
        customer: i32,
        /// How much.
        cents: i64,
    },
    /// A delivery that took an order at least.
    Delivery {
        warehouse: i32,
        /// Who took them there.
        carrier: i32,
        /// The orders, by district.
        orders: Delivered,
    },
}

impl Acknowledged {
    /// The transaction that did it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Order { .. } => Kind::NewOrder,
            Self::Payment { .. } => Kind::Payment,
            Self::Delivery { .. } => Kind::Delivery,
        }
    }
}

/// What was acknowledged, as users write it down.
#[derive(Debug, Default)]
pub struct Ledger {
    shards: [Mutex<Vec<Acknowledged>>; SHARDS],
    last: Mutex<Option<Instant>>,
}

impl Ledger {
    /// Writes down what a user's transaction did that was acknowledged with this outcome.
    pub(crate) fn add(&self, user: usize, transaction: &Transaction, outcome: Outcome) {
        let mut list = lock(&self.shards[user % SHARDS]);
        match (transaction, outcome) {
            (Transaction::NewOrder(order), Outcome::Ordered(number)) => {
                list.push(Acknowledged::Order {
                    place: order.place,
                    order: number,
                    customer: order.customer,
                    lines: order.lines.len() as i32,
                });
            }
            (Transaction::Payment(payment), Outcome::Paid(customer)) => {
                list.push(Acknowledged::Payment {
                    place: payment.place,
                    home: payment.home,
                    customer,
                    cents: payment.cents,
                });
            }
            (&Transaction::Delivery { warehouse, carrier }, Outcome::Delivered(orders)) => {
                if orders == Delivered::default() {
                    return;
                }
                list.push(Acknowledged::Delivery {
                    warehouse,
                    carrier,
                    orders,
                });
            }
            _ => return,
        }
        *lock(&self.last) = Some(Instant::now());
    }

    /// How much there is.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// How much there is of a kind of transaction.
    pub fn count(&self, kind: Kind) -> usize {
        let of = |shard: &Mutex<Vec<Acknowledged>>| {
            let list = lock(shard);
            list.iter().filter(|one| one.kind() == kind).count()
        };
        self.shards.iter().map(of).sum()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the last of it was acknowledged.
    pub fn last(&self) -> Option<Instant> {
        *lock(&self.last)
    }

    fn all(&self) -> Vec<Acknowledged> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend_from_slice(&lock(shard));
        }
        // In their order, those that are alike are neighbours.
        all.sort_unstable();
        all
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Display for Acknowledged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Order {
                place,
                order,
                customer,
                lines,
            } => write!(
                f,
                "order {order} of {place} (customer {customer}, {lines} lines)"
            ),
            Self::Payment {
                place,
                home,
                customer,
                cents,
            } => write!(
                f,
                "payment of {cents} cents at {place} by customer {customer} of {home}"
            ),
            Self::Delivery {
                warehouse,
                carrier,
                orders,
            } => {
                let orders = orders.iter().flatten();
                let orders: Vec<String> = orders.map(i32::to_string).collect();
                let orders = orders.join(", ");
                write!(
                    f,
                    "delivery of orders {orders} of warehouse {warehouse} by carrier {carrier}"
                )
            }
        }
    }
}
