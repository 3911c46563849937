//! A database that does what a test wants, and nothing else.

use std::sync::Arc;

use ashlar_lab::LabError;
use ashlar_oltp::database::{
    Canceller, Database, Description, Failure, Loader, Outcome, ServerPlace, Session, Sought,
    Watcher,
};
use ashlar_oltp::inputs::Transaction;
use ashlar_oltp::random::{Constants, Rng};
use ashlar_oltp::schema::{Marker, Shape, State};

/// What a test wants.
pub trait Acts: Send + Sync + 'static {
    /// A user's transaction.
    fn transact(&self, transaction: &Transaction) -> Result<Outcome, Failure>;

    /// New orders, as the watcher is told.
    fn orders(&self) -> i64;

    fn log_in(&self) {}

    fn warehouses(&self) -> i32 {
        1
    }
}

/// The database, a user's connection to it, and who looks on.
pub struct Fake<T>(pub Arc<T>);

impl<T> Clone for Fake<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Acts> Database for Fake<T> {
    fn target(&self) -> String {
        "fake".into()
    }

    fn describe(&self) -> Result<Description, LabError> {
        Ok(Description::default())
    }

    fn state(&self) -> Result<State, LabError> {
        Ok(State::Built(Marker {
            version: Marker::VERSION,
            shape: Shape::tpcc(self.0.warehouses()),
            seed: 1,
            constants: Constants::for_load(&mut Rng::stream(1, &[0])),
            rows: 1,
        }))
    }

    fn check_users(&self, _: Sought<'_>) -> Result<(), LabError> {
        Ok(())
    }

    fn create(&self) -> Result<(), LabError> {
        Ok(())
    }

    fn has_table(&self, _: &str) -> Result<bool, LabError> {
        Ok(true)
    }

    fn execute(&self, _: &str) -> Result<(), LabError> {
        Ok(())
    }

    fn most_loaders(&self) -> usize {
        1
    }

    fn loader(&self) -> Result<Box<dyn Loader>, LabError> {
        Err(LabError::usage("there is nothing to load"))
    }

    fn finish(&self, _: &Marker) -> Result<(), LabError> {
        Ok(())
    }

    fn prepare_run(&self) -> Result<(), LabError> {
        Ok(())
    }

    fn session(&self) -> Result<Box<dyn Session>, LabError> {
        self.0.log_in();
        Ok(Box::new(self.clone()))
    }

    fn watcher(&self) -> Result<Box<dyn Watcher>, LabError> {
        Ok(Box::new(self.clone()))
    }
}

impl<T: Acts> Session for Fake<T> {
    fn run(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        self.0.transact(transaction)
    }
}

impl<T: Acts> Watcher for Fake<T> {
    fn next_orders(&mut self) -> Result<i64, LabError> {
        Ok(self.0.orders())
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
