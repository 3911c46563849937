//! A database that does nothing, at once: what is left is the load's own cost, and how late it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ashlar_lab::LabError;

use crate::database::{
    Canceller, Database, Description, Failure, Loader, Outcome, ServerPlace, Session, Sought,
    Watcher,
};
use crate::inputs::Transaction;
use crate::random::{Constants, Rng};
use crate::schema::{Marker, Shape, State};

/// `null:WAREHOUSES`
#[derive(Clone, Debug)]
pub struct Null {
    shape: Shape,
    /// New orders.
    orders: Arc<AtomicI64>,
}

impl Null {
    /// One that says that it has so many warehouses.
    ///
    /// # Errors
    /// A usage error for a number that no database has.
    pub fn new(warehouses: &str) -> Result<Self, LabError> {
        let number = match warehouses {
            "" => Ok(1),
            text => text.parse(),
        };
        let wrong = |_| LabError::usage(format!("--db null:{warehouses}: must be null:WAREHOUSES"));
        let shape = Shape::tpcc(number.map_err(wrong)?);
        shape.check()?;
        Ok(Self {
            shape,
            orders: Arc::default(),
        })
    }
}

fn nothing<T>() -> Result<T, LabError> {
    Err(LabError::usage("--db null: has nothing to build or check"))
}

impl Database for Null {
    fn target(&self) -> String {
        format!("null:{}", self.shape.warehouses)
    }

    fn describe(&self) -> Result<Description, LabError> {
        Ok(Description {
            kind: "null".into(),
            target: self.target(),
            version: "null".into(),
            sql: "embedded".into(),
            ..Description::default()
        })
    }

    fn state(&self) -> Result<State, LabError> {
        Ok(State::Built(Marker {
            version: Marker::VERSION,
            shape: self.shape,
            seed: 1,
            constants: Constants::for_load(&mut Rng::stream(1, &[0])),
            rows: 0,
        }))
    }

    fn check_users(&self, _: Sought<'_>) -> Result<(), LabError> {
        Ok(())
    }

    fn create(&self) -> Result<(), LabError> {
        nothing()
    }

    fn has_table(&self, _: &str) -> Result<bool, LabError> {
        Ok(true)
    }

    fn execute(&self, _: &str) -> Result<(), LabError> {
        nothing()
    }

    fn most_loaders(&self) -> usize {
        1
    }

    fn loader(&self) -> Result<Box<dyn Loader>, LabError> {
        nothing()
    }

    fn finish(&self, _: &Marker) -> Result<(), LabError> {
        nothing()
    }

    fn prepare_run(&self) -> Result<(), LabError> {
        Ok(())
    }

    fn session(&self) -> Result<Box<dyn Session>, LabError> {
        Ok(Box::new(self.clone()))
    }

    fn watcher(&self) -> Result<Box<dyn Watcher>, LabError> {
        Ok(Box::new(self.clone()))
    }

    fn holds_rows(&self) -> bool {
        false
    }
}

impl Session for Null {
    fn run(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        Ok(match transaction {
            Transaction::NewOrder(order) if order.rolls_back => Outcome::RolledBack,
            Transaction::NewOrder(_) => {
                self.orders.fetch_add(1, Ordering::Relaxed);
                Outcome::Committed
            }
            _ => Outcome::Committed,
        })
    }
}

impl Watcher for Null {
    fn next_orders(&mut self) -> Result<i64, LabError> {
        Ok(self.orders.load(Ordering::Relaxed))
    }

    fn transactions(&mut self) -> Result<Option<u64>, LabError> {
        Ok(None)
    }

    fn number(&mut self, _: &str) -> Result<i64, LabError> {
        Ok(0)
    }

    fn canceller(&self) -> Canceller {
        Box::new(|| {})
    }

    fn place(&mut self) -> ServerPlace {
        ServerPlace {
            process: Err("there is none".into()),
            is_inside: false,
            storage: Err("there is none".into()),
        }
    }
}
