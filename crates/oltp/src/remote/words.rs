//! What a coordinator and its agents say to each other of users.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{LabError, Progress};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ROLE;
use crate::database::Database;
use crate::inputs::Mix;
use crate::postgres::{Logic, Postgres};
use crate::random::Constants;
use crate::run::{Mode, PackedMeasured, Part, RunPlan, Worked};
use crate::schema::Shape;
use crate::server::DATABASE;
use crate::terminal::TerminalSetting;

/// A server as agents reach it. The password is not told: both ends make it of the token and what was drawn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ServerWords {
    pub(crate) address: SocketAddr,
    pub(crate) drawn: String,
    /// The logic runs where users are, as SQL statements.
    pub(crate) is_client_sql: bool,
}

impl ServerWords {
    pub(crate) fn logic(&self) -> Logic {
        match self.is_client_sql {
            true => Logic::Client,
            false => Logic::Functions,
        }
    }

    pub(super) fn open(
        &self,
        password: &str,
        progress: &Progress,
    ) -> Result<Arc<dyn Database>, LabError> {
        let (host, port) = (self.address.ip(), self.address.port());
        let url =
            format!("host={host} port={port} user={ROLE} dbname={DATABASE} password={password}");
        let database = Postgres::new(&url, self.logic())?;
        Ok(Arc::new(database.until(progress)))
    }
}

/// A share of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ShareWords {
    pub(crate) server: ServerWords,
    pub(crate) part: Part,
    /// Of all parts together.
    users: usize,
    ramp: Duration,
    measure: Duration,
    /// Fixed work: so many transactions of each user.
    fixed: Option<u64>,
    slow_down: f64,
    mix: Mix,
    all_warehouses: bool,
    shape: Shape,
    constants: Constants,
    seed: u64,
}

impl ShareWords {
    pub(crate) fn of(
        server: &ServerWords,
        (plan, setting): (&RunPlan, &TerminalSetting),
        part: Part,
    ) -> Self {
        Self {
            server: server.clone(),
            part,
            users: setting.users,
            ramp: plan.ramp,
            measure: plan.measure,
            fixed: match plan.mode {
                Mode::Fixed(count) => Some(count),
                Mode::Timed | Mode::Rate(_) | Mode::Streams(..) | Mode::Thinkers(_) => None,
            },
            slow_down: plan.slow_down,
            mix: setting.mix,
            all_warehouses: setting.all_warehouses,
            shape: setting.shape,
            constants: setting.constants,
            seed: setting.seed,
        }
    }

    pub(super) fn plan(&self) -> RunPlan {
        RunPlan {
            users: vec![self.users],
            ramp: self.ramp,
            measure: self.measure,
            mode: self.fixed.map_or(Mode::Timed, Mode::Fixed),
            mix: self.mix,
            all_warehouses: self.all_warehouses,
            pauses: None,
            repeats: 1,
            seed: self.seed,
            slow_down: self.slow_down,
        }
    }

    pub(super) fn setting(&self) -> TerminalSetting {
        TerminalSetting {
            shape: self.shape,
            constants: self.constants,
            seed: self.seed,
            mix: self.mix,
            all_warehouses: self.all_warehouses,
            users: self.users,
        }
    }

    /// Refuses what would not end, or has no terminals.
    pub(super) fn check(&self) -> Result<(), LabError> {
        self.plan().check()?;
        self.shape.check()?;
        match self.part.numbers(self.users).next() {
            Some(_) => Ok(()),
            None => Err(LabError::usage("a share without users")),
        }
    }
}

/// What came of a share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HomeWords {
    measured: PackedMeasured,
    pub(crate) elapsed: Duration,
    pub(crate) cpu_s: f64,
}

impl HomeWords {
    pub(crate) fn of(worked: &Worked) -> Result<Self, LabError> {
        Ok(Self {
            measured: PackedMeasured::of(&worked.measured)?,
            elapsed: worked.elapsed,
            cpu_s: worked.cpu_s,
        })
    }

    pub(crate) fn worked(self) -> Result<Worked, LabError> {
        Ok(Worked {
            measured: self.measured.measured()?,
            elapsed: self.elapsed,
            cpu_s: self.cpu_s,
        })
    }
}

pub(crate) fn text<T: Serialize>(words: &T) -> Result<String, LabError> {
    serde_json::to_string(words).map_err(|error| LabError::caused("words of a load", error))
}

pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, LabError> {
    serde_json::from_str(text)
        .map_err(|error| LabError::caused("words of a load that are not understood", error))
}
