//! Looking for what was acknowledged in the tables.
//!
//! Orders and deliveries are there by their number. A payment leaves a row of `history`, which has no key: of rows with
//! its place, customer and amount there must be as many as were acknowledged. A row more, of a payment
//! that was committed and not acknowledged, could stand in for one that is lost; with half a million amounts that is next to never.

use std::collections::BTreeMap;

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use super::{Acknowledged, Ledger};
use crate::database::Watcher;
use crate::inputs::{Kind, Place};

/// Asked for in one query.
const AT_ONCE: usize = 500;
/// The same of payments, each query of which reads all of `history`.
const PAYMENTS_AT_ONCE: usize = 5000;
/// Of what is missing, so many are named.
const MOST_NAMED: usize = 5;

/// What became of what was acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// By kind of transaction, under the kind's name.
    pub kinds: BTreeMap<String, Count>,
    /// The first that are missing.
    pub examples: Vec<Acknowledged>,
}

/// How much was acknowledged, and is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub acknowledged: usize,
    /// Of this, how much is not there, or not as it was acknowledged.
    pub missing: usize,
}

impl Audit {
    /// Of all kinds.
    pub fn total(&self) -> Count {
        let all = self.kinds.values();
        all.fold(Count::default(), |sum, count| Count {
            acknowledged: sum.acknowledged + count.acknowledged,
            missing: sum.missing + count.missing,
        })
    }
}

impl Ledger {
    /// What was acknowledged, where it could not be looked for.
    pub(crate) fn unaudited(&self) -> Audit {
        let of = |kind: Kind| {
            let acknowledged = self.count(kind);
            let count = Count {
                acknowledged,
                missing: 0,
            };
            (kind.name().to_owned(), count)
        };
        Audit {
            kinds: [Kind::NewOrder, Kind::Payment, Kind::Delivery]
                .map(of)
                .into(),
            examples: Vec::new(),
        }
    }

    /// Looks for everything.
    ///
    /// # Errors
    /// The database cannot be asked; what is missing is not an error.
    pub fn audit(&self, watcher: &mut dyn Watcher) -> Result<Audit, LabError> {
        let mut audit = Audit::default();
        let all = self.all();
        for kind in [Kind::NewOrder, Kind::Payment, Kind::Delivery] {
            let of: Vec<Acknowledged> = all
                .iter()
                .filter(|one| one.kind() == kind)
                .copied()
                .collect();
            let mut missing = 0;
            let at_once = match kind {
                Kind::Payment => PAYMENTS_AT_ONCE,
                _ => AT_ONCE,
            };
            // All that are alike are asked for at once.
            let alike: Vec<&[Acknowledged]> = of.chunk_by(PartialEq::eq).collect();
            for some in alike.chunks(at_once) {
                missing += look_for(watcher, kind, some, &mut audit.examples)?;
            }
            let count = Count {
                acknowledged: of.len(),
                missing,
            };
            audit.kinds.insert(kind.name().to_owned(), count);
        }
        Ok(audit)
    }
}

/// How many of these are missing; some are named.
fn look_for(
    watcher: &mut dyn Watcher,
    kind: Kind,
    some: &[&[Acknowledged]],
    examples: &mut Vec<Acknowledged>,
) -> Result<usize, LabError> {
    let missing = count(watcher, kind, some)?;
    // By halves, until it is one.
    if missing > 0 && examples.len() < MOST_NAMED {
        match some {
            [one] => examples.extend(one.first()),
            _ => {
                let (first, second) = some.split_at(some.len() / 2);
                look_for(watcher, kind, first, examples)?;
                look_for(watcher, kind, second, examples)?;
            }
        }
    }
    Ok(missing)
}

fn count(
    watcher: &mut dyn Watcher,
    kind: Kind,
    some: &[&[Acknowledged]],
) -> Result<usize, LabError> {
    let rows = some.iter().enumerate();
    let rows: Vec<String> = rows.flat_map(|(at, of)| rows_of(watcher, at, of)).collect();
    let told = watcher.told(columns(kind), &rows.join(","));
    let sql = query(kind, &told, watcher.integer());
    let missing = watcher.number(&sql)?;
    Ok(missing.max(0).unsigned_abs() as usize)
}

/// What [`query`] is told of those that are alike.
fn rows_of(watcher: &dyn Watcher, at: usize, alike: &[Acknowledged]) -> Vec<String> {
    let words = |place: &Place| format!("{},{}", place.warehouse, place.district);
    match alike.first() {
        None => Vec::new(),
        Some(Acknowledged::Order {
            place,
            order,
            customer,
            lines,
        }) => vec![format!("({},{order},{customer},{lines})", words(place))],
        Some(Acknowledged::Payment {
            place,
            home,
            customer,
            cents,
        }) => {
            let (place, home, amount) = (words(place), words(home), watcher.amount(*cents));
            vec![format!(
                "({place},{home},{customer},{amount},{})",
                alike.len()
            )]
        }
        Some(Acknowledged::Delivery {
            warehouse,
            carrier,
            orders,
        }) => {
            let orders = (1..).zip(orders);
            let row = |(district, order): (i32, &Option<i32>)| {
                let order = (*order)?;
                Some(format!("({at},{warehouse},{district},{order},{carrier})"))
            };
            orders.filter_map(row).collect()
        }
    }
}

/// What [`rows_of`] tells of each, by name.
fn columns(kind: Kind) -> &'static str {
    match kind {
        Kind::NewOrder => "w, d, o, c, l",
        Kind::Payment => "w, d, cw, cd, c, a, n",
        _ => "t, w, d, o, k",
    }
}

/// How many of these are not there as they were acknowledged: an order with its customer and all its lines; a
/// payment as often as it was made; a delivery's orders with their carrier, all their lines delivered, and none of
/// them new.
fn query(kind: Kind, told: &str, integer: &str) -> String {
    match kind {
        Kind::NewOrder => format!(
            "WITH {told} SELECT count(*) FROM told \
             LEFT JOIN orders ON o_w_id = w AND o_d_id = d AND o_id = o \
             WHERE o_id IS NULL OR o_c_id <> c OR o_ol_cnt <> l OR l <> (SELECT count(*) FROM order_line \
             WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o)"
        ),
        Kind::Payment => format!(
            "WITH {told}, found AS (\
             SELECT h_w_id, h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_amount, count(*) AS f FROM history \
             GROUP BY h_w_id, h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_amount) \
             SELECT CAST(coalesce(sum(n - coalesce(f, 0)), 0) AS {integer}) FROM told LEFT JOIN found \
             ON h_w_id = w AND h_d_id = d AND h_c_w_id = cw AND h_c_d_id = cd AND h_c_id = c AND h_amount = a \
             WHERE coalesce(f, 0) < n"
        ),
        _ => format!(
            "WITH {told} SELECT count(DISTINCT t) FROM told \
             LEFT JOIN orders ON o_w_id = w AND o_d_id = d AND o_id = o \
             WHERE o_id IS NULL OR o_carrier_id IS NULL OR o_carrier_id <> k \
             OR EXISTS (SELECT 1 FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id = o) \
             OR EXISTS (SELECT 1 FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o \
             AND ol_delivery_d IS NULL)"
        ),
    }
}
