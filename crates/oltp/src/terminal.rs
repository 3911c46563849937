//! A user's stream of transactions: which, where, and for whom.

#[cfg(test)]
mod tests;

use crate::inputs::{Kind, Line, Mix, NewOrder, Payment, Place, Transaction, Who};
use crate::random::{Constants, Rng, last_name};
use crate::schema::{DISTRICTS, Shape};

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

    /// Seconds to think: exponential, at most ten times the mean (clause 5.2.5.4).
    pub fn think_seconds(&mut self, mean: f64) -> f64 {
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
    pub shape: Shape,
    /// The run's constants.
    pub constants: Constants,
    /// Seed of the run's inputs.
    pub seed: u64,
    pub mix: Mix,
    /// All warehouses are split over the users, instead of one for each.
    pub all_warehouses: bool,
    /// How many users there are.
    pub users: usize,
}
