//! What was acknowledged to the client: the orders that a database may not lose, whatever happens to it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ashlar_lab::LabError;

use crate::database::Watcher;
use crate::inputs::NewOrder;

/// Users share this many lists.
const SHARDS: usize = 16;
/// Orders asked for in one query.
const AT_ONCE: usize = 500;
/// Missing orders that are named.
const MOST_NAMED: usize = 5;

/// An order that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Warehouse.
    pub warehouse: i32,
    /// District.
    pub district: i32,
    /// Its number in the district.
    pub order: i32,
    /// Customer.
    pub customer: i32,
    /// Its lines.
    pub lines: i32,
}

/// Orders that were acknowledged, as users write them down.
#[derive(Debug, Default)]
pub struct Ledger {
    shards: [Mutex<Vec<Acknowledged>>; SHARDS],
    last: Mutex<Option<Instant>>,
}

/// What became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Orders that were acknowledged.
    pub acknowledged: usize,
    /// Of these, how many are not there, or not as they were ordered.
    pub missing: usize,
    /// The first of them.
    pub examples: Vec<Acknowledged>,
}

impl Ledger {
    /// Writes down that a user's order was acknowledged under this number.
    pub(crate) fn add(&self, user: usize, order: &NewOrder, number: i32) {
        lock(&self.shards[user % SHARDS]).push(Acknowledged {
            warehouse: order.place.warehouse,
            district: order.place.district,
            order: number,
            customer: order.customer,
            lines: order.lines.len() as i32,
        });
        *lock(&self.last) = Some(Instant::now());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the last one was acknowledged.
    pub fn last(&self) -> Option<Instant> {
        *lock(&self.last)
    }

    /// Looks for every one of them.
    ///
    /// # Errors
    /// The database cannot be asked; what is missing is not an error.
    pub fn audit(&self, watcher: &mut dyn Watcher) -> Result<Audit, LabError> {
        let mut audit = Audit::default();
        for shard in &self.shards {
            let orders = lock(shard).clone();
            audit.acknowledged += orders.len();
            for some in orders.chunks(AT_ONCE) {
                look_for(watcher, some, &mut audit)?;
            }
        }
        Ok(audit)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn look_for(
    watcher: &mut dyn Watcher,
    some: &[Acknowledged],
    audit: &mut Audit,
) -> Result<(), LabError> {
    let missing = watcher.number(&query(some))?.max(0) as usize;
    audit.missing += missing;
    if missing == 0 || audit.examples.len() >= MOST_NAMED {
        return Ok(());
    }
    for one in some {
        if watcher.number(&query(std::slice::from_ref(one)))? > 0 {
            audit.examples.push(*one);
        }
        if audit.examples.len() >= MOST_NAMED {
            break;
        }
    }
    Ok(())
}

/// How many of these are not there with their customer and all their lines.
fn query(orders: &[Acknowledged]) -> String {
    let row = |a: &Acknowledged| {
        format!(
            "({},{},{},{},{})",
            a.warehouse, a.district, a.order, a.customer, a.lines
        )
    };
    let rows: Vec<String> = orders.iter().map(row).collect();
    format!(
        "WITH told(w, d, o, c, n) AS (VALUES {}) SELECT count(*) FROM told \
         LEFT JOIN orders ON o_w_id = w AND o_d_id = d AND o_id = o \
         WHERE o_id IS NULL OR o_c_id <> c OR o_ol_cnt <> n OR n <> (SELECT count(*) FROM order_line \
         WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o)",
        rows.join(",")
    )
}

impl std::fmt::Display for Acknowledged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            warehouse,
            district,
            order,
            customer,
            lines,
        } = self;
        write!(
            f,
            "order {order} of warehouse {warehouse}, district {district} (customer {customer}, {lines} \
             lines)"
        )
    }
}
