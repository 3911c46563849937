//! What a terminal asks for: the inputs of TPC-C clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and 2.8.1, and
//! the mix.

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use crate::random::{Constants, Rng, last_name};
use crate::schema::{DISTRICTS, Shape};

/// The five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of TPC-C clause 2")]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    /// All of them, in the order of the specification.
    pub const ALL: [Self; 5] = [
        Self::NewOrder,
        Self::Payment,
        Self::OrderStatus,
        Self::Delivery,
        Self::StockLevel,
    ];

    /// Its key in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewOrder => "new_order",
            Self::Payment => "payment",
            Self::OrderStatus => "order_status",
            Self::Delivery => "delivery",
            Self::StockLevel => "stock_level",
        }
    }

    /// Seconds to key it in (clause 5.2.5.2) and mean seconds to think about it (5.2.5.4).
    pub const fn terminal_seconds(self) -> (f64, f64) {
        match self {
            Self::NewOrder => (18.0, 12.0),
            Self::Payment => (3.0, 12.0),
            Self::OrderStatus => (2.0, 10.0),
            Self::Delivery | Self::StockLevel => (2.0, 5.0),
        }
    }
}

/// Which transaction comes how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mix {
    /// HammerDB's TPROC-C: 10, 10, 1, 1, 1 of 23.
    #[serde(rename = "tproc-c")]
    TprocC,
    /// 45, 43, 4, 4, 4 of 100, as go-tpc and BenchBase have it.
    #[serde(rename = "tpc-c")]
    TpcC,
}

impl Mix {
    /// Shares, in the order of [`Kind::ALL`].
    pub const fn shares(self) -> [i32; 5] {
        match self {
            Self::TprocC => [10, 10, 1, 1, 1],
            Self::TpcC => [45, 43, 4, 4, 4],
        }
    }

    fn draw(self, rng: &mut Rng) -> Kind {
        let shares = self.shares();
        let mut at = rng.within(0, shares.iter().sum::<i32>() - 1);
        for (kind, share) in Kind::ALL.into_iter().zip(shares) {
            if at < share {
                return kind;
            }
            at -= share;
        }
        Kind::StockLevel
    }
}

impl std::str::FromStr for Mix {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        match text {
            "tproc-c" => Ok(Self::TprocC),
            "tpc-c" => Ok(Self::TpcC),
            _ => Err(LabError::usage(format!(
                "--mix {text}: must be tproc-c or tpc-c"
            ))),
        }
    }
}

/// A district of a warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Warehouse.
    pub warehouse: i32,
    /// District, 1..=10.
    pub district: i32,
}

/// A customer, as the terminal names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// By number.
    Number(i32),
    /// By last name: of those who have it, ordered by first name, the middle one (rounded up).
    Last(String),
}

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Item; one more than there are if the order is to be rolled back.
    pub item: i32,
    /// Warehouse that supplies it.
    pub supply: i32,
    /// 1..=10.
    pub quantity: i32,
}

/// New-Order's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// Where.
    pub place: Place,
    /// Customer's number.
    pub customer: i32,
    /// 5 to 15 lines, ordered by warehouse and item so that orders lock in one order.
    pub lines: Vec<Line>,
    /// The last line's item does not exist: the order must be rolled back.
    pub rolls_back: bool,
}

impl NewOrder {
    /// Every line is supplied by the order's own warehouse.
    pub fn all_local(&self) -> bool {
        self.lines
            .iter()
            .all(|line| line.supply == self.place.warehouse)
    }

    /// For each line, how many lines before it name the same stock.
    pub fn repeats(&self) -> Vec<i32> {
        let same = |a: &Line, b: &Line| a.item == b.item && a.supply == b.supply;
        let before = |at: usize| &self.lines[..at];
        (0..self.lines.len())
            .map(|at| {
                before(at)
                    .iter()
                    .filter(|l| same(l, &self.lines[at]))
                    .count() as i32
            })
            .collect()
    }
}

/// Payment's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Where it is paid.
    pub place: Place,
    /// The customer's own district.
    pub home: Place,
    /// The customer.
    pub who: Who,
    /// 1.00 to 5,000.00, in cents.
    pub cents: i64,
}

impl Payment {
    /// What is put before the data of a customer with bad credit (clause 2.5.2.2).
    pub fn note(&self, customer: i32) -> String {
        let Self {
            place, home, cents, ..
        } = self;
        format!(
            "{customer} {} {} {} {} {}.{:02}|",
            home.district,
            home.warehouse,
            place.district,
            place.warehouse,
            cents / 100,
            cents % 100
        )
    }
}

/// A transaction with its input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of TPC-C clause 2")]
pub enum Transaction {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus { place: Place, who: Who },
    Delivery { warehouse: i32, carrier: i32 },
    StockLevel { place: Place, threshold: i32 },
}

impl Transaction {
    /// Which of the five.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::NewOrder(_) => Kind::NewOrder,
            Self::Payment(_) => Kind::Payment,
            Self::OrderStatus { .. } => Kind::OrderStatus,
            Self::Delivery { .. } => Kind::Delivery,
            Self::StockLevel { .. } => Kind::StockLevel,
        }
    }
}

/// A user's endless stream of transactions.
#[derive(Clone, Debug)]
pub struct Terminal {
    rng: Rng,
    constants: Constants,
    shape: Shape,
    mix: Mix,
    /// The warehouses it works for.
    warehouses: Vec<i32>,
    /// Its own district, for stock levels (clause 2.8.1.1).
    district: i32,
}

impl Terminal {
    /// User number `user` (from 0) of `users`, at its home warehouse, or at its share of all
    /// warehouses.
    pub fn new(setting: &TerminalSetting, user: usize) -> Self {
        let TerminalSetting { shape, users, .. } = *setting;
        let home = (user % shape.warehouses as usize) as i32 + 1;
        let step = users.max(1);
        let mut warehouses: Vec<i32> = if setting.all_warehouses {
            (1..=shape.warehouses).skip(user).step_by(step).collect()
        } else {
            vec![home]
        };
        if warehouses.is_empty() {
            warehouses.push(home);
        }
        Self {
            rng: Rng::stream(setting.seed, &[user as u64]),
            constants: setting.constants,
            shape,
            mix: setting.mix,
            warehouses,
            district: (user / shape.warehouses as usize % DISTRICTS as usize) as i32 + 1,
        }
    }

    /// The warehouses it works for.
    pub fn warehouses(&self) -> &[i32] {
        &self.warehouses
    }

    /// Seconds to think after `kind`: exponential, at most ten times the mean (clause 5.2.5.4).
    pub fn think_seconds(&mut self, kind: Kind) -> f64 {
        let (_, mean) = kind.terminal_seconds();
        (-(1.0 - self.rng.unit()).ln() * mean).min(10.0 * mean)
    }

    /// The next transaction.
    pub fn next_transaction(&mut self) -> Transaction {
        let warehouse = match self.warehouses[..] {
            [one] => one,
            _ => self.warehouses[self.rng.within(0, self.warehouses.len() as i32 - 1) as usize],
        };
        match self.mix.draw(&mut self.rng) {
            Kind::NewOrder => Transaction::NewOrder(self.new_order(warehouse)),
            Kind::Payment => Transaction::Payment(self.payment(warehouse)),
            Kind::OrderStatus => {
                let place = self.place(warehouse);
                let who = self.who();
                Transaction::OrderStatus { place, who }
            }
            Kind::Delivery => Transaction::Delivery {
                warehouse,
                carrier: self.rng.within(1, 10),
            },
            Kind::StockLevel => Transaction::StockLevel {
                place: Place {
                    warehouse,
                    district: self.district,
                },
                threshold: self.rng.within(10, 20),
            },
        }
    }

    fn place(&mut self, warehouse: i32) -> Place {
        Place {
            warehouse,
            district: self.rng.within(1, DISTRICTS),
        }
    }

    /// Another warehouse than `warehouse`, if there is one.
    fn other(&mut self, warehouse: i32) -> i32 {
        if self.shape.warehouses == 1 {
            return warehouse;
        }
        let other = self.rng.within(1, self.shape.warehouses - 1);
        other + i32::from(other >= warehouse)
    }

    fn who(&mut self) -> Who {
        let Self {
            rng,
            constants,
            shape,
            ..
        } = self;
        if rng.percent(60) {
            Who::Last(last_name(rng.last(constants, shape.customers)))
        } else {
            Who::Number(rng.customer(constants, shape.customers))
        }
    }

    fn new_order(&mut self, warehouse: i32) -> NewOrder {
        let place = self.place(warehouse);
        let customer = self.rng.customer(&self.constants, self.shape.customers);
        let count = self.rng.within(5, 15);
        let rolls_back = self.rng.percent(1);
        let mut lines: Vec<Line> = (0..count).map(|_| self.line(warehouse)).collect();
        lines.sort_unstable_by_key(|line| (line.supply, line.item));
        if let Some(last) = lines.last_mut().filter(|_| rolls_back) {
            last.item = self.shape.items + 1;
        }
        NewOrder {
            place,
            customer,
            lines,
            rolls_back,
        }
    }

    fn line(&mut self, warehouse: i32) -> Line {
        let item = self.rng.item(&self.constants, self.shape.items);
        let remote = self.rng.percent(1);
        Line {
            item,
            supply: if remote {
                self.other(warehouse)
            } else {
                warehouse
            },
            quantity: self.rng.within(1, 10),
        }
    }

    fn payment(&mut self, warehouse: i32) -> Payment {
        let place = self.place(warehouse);
        let home = if self.rng.percent(15) && self.shape.warehouses > 1 {
            let other = self.other(warehouse);
            self.place(other)
        } else {
            place
        };
        let who = self.who();
        let cents = self.rng.within(100, 500_000).into();
        Payment {
            place,
            home,
            who,
            cents,
        }
    }
}

/// What all terminals of a run have in common.
#[derive(Clone, Copy, Debug)]
pub struct TerminalSetting {
    /// Cardinalities.
    pub shape: Shape,
    /// The run's constants.
    pub constants: Constants,
    /// Seed of the run's inputs.
    pub seed: u64,
    /// The mix.
    pub mix: Mix,
    /// All warehouses are split over the users, instead of one for each.
    pub all_warehouses: bool,
    /// How many users there are.
    pub users: usize,
}

#[cfg(test)]
mod tests;
