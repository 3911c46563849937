//! What a coordinator and its agents say to each other of a database's users and readers. An agent has a share of the
//! users of each database that it is to load, and sends home what came of each share, in the same order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{LabError, Progress};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ROLE;
use crate::database::Database;
use crate::inputs::Mix;
use crate::mariadb::MariaDb;
use crate::postgres::{Logic, Postgres};
use crate::random::Constants;
use crate::run::{PackedMeasured, Part, RunPlan, Worked};
use crate::schema::Shape;
use crate::server::DATABASE;
use crate::terminal::TerminalSetting;

/// A server as agents reach it. The password is not told: both ends make it of the token and what was drawn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ServerWords {
    pub(crate) address: SocketAddr,
    pub(crate) drawn: String,
    pub(crate) speaks: Dialect,
}

/// What kind of database a server has, and where the logic of the load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Dialect {
    /// PostgreSQL, with functions.
    PostgresFunctions,
    /// PostgreSQL; the logic runs where users are, as SQL statements.
    PostgresClient,
    /// MariaDB, with procedures.
    Mariadb,
}

impl From<Logic> for Dialect {
    fn from(logic: Logic) -> Self {
        match logic {
            Logic::Functions => Self::PostgresFunctions,
            Logic::Client => Self::PostgresClient,
        }
    }
}

impl ServerWords {
    pub(super) fn open(
        &self,
        password: &str,
        progress: &Progress,
    ) -> Result<Arc<dyn Database>, LabError> {
        let logic = match self.speaks {
            Dialect::PostgresFunctions => Logic::Functions,
            Dialect::PostgresClient => Logic::Client,
            Dialect::Mariadb => {
                let (at, is_remote) = (self.address, "prefer_socket=false");
                let url = format!("mariadb://{ROLE}:{password}@{at}/{DATABASE}?{is_remote}");
                return Ok(Arc::new(MariaDb::new(&url)?));
            }
        };
        let (host, port) = (self.address.ip(), self.address.port());
        let url =
            format!("host={host} port={port} user={ROLE} dbname={DATABASE} password={password}");
        Ok(Arc::new(Postgres::new(&url, logic)?.until(progress)))
    }
}

/// What an agent is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LoadWords {
    /// Shares of databases' users; what comes home is [`HomeWords`] of each.
    Users(Vec<ShareWords>),
    /// Readers of a scan; what comes home is [`ReadWords`].
    Readers(ReaderWords),
    /// Shares of users that log in, work for their ramp, and rest until it is their turn. Nothing comes home.
    Enter(Vec<ShareWords>),
    /// Those of one database work; what comes home is [`HomeWords`] of one share.
    Turn(TurnWords),
    /// Those that have entered log out. Nothing comes home.
    Leave,
}

/// A turn of users that have entered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct TurnWords {
    /// Which of the shares with which they entered.
    pub(crate) place: usize,
    /// Share of the time in which they stand still.
    pub(crate) slow_down: f64,
    /// How long they work before it counts.
    pub(crate) settle: Duration,
    pub(crate) measure: Duration,
}

/// Readers of a scan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReaderWords {
    pub(crate) server: ServerWords,
    pub(crate) readers: usize,
    /// Rows of the table.
    pub(crate) rows: i32,
}

/// What readers took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadWords {
    /// Until the last one had read everything.
    pub(crate) run: Duration,
    /// The quickest one by itself.
    pub(crate) quickest: Duration,
    /// Processor seconds of the agent.
    pub(crate) cpu_s: f64,
}

/// A share of a database's users in a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ShareWords {
    pub(crate) server: ServerWords,
    pub(crate) part: Part,
    /// Of all parts together.
    users: usize,
    ramp: Duration,
    measure: Duration,
    /// As `--mode` has it.
    mode: String,
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
            mode: plan.mode.to_string(),
            slow_down: plan.slow_down,
            mix: setting.mix,
            all_warehouses: setting.all_warehouses,
            shape: setting.shape,
            constants: setting.constants,
            seed: setting.seed,
        }
    }

    /// How they work; refuses what would not end, or has no terminals.
    pub(crate) fn plan(&self) -> Result<RunPlan, LabError> {
        let plan = RunPlan {
            users: vec![self.users],
            ramp: self.ramp,
            measure: self.measure,
            mode: self.mode.parse()?,
            mix: self.mix,
            all_warehouses: self.all_warehouses,
            pauses: None,
            repeats: 1,
            seed: self.seed,
            slow_down: self.slow_down,
        };
        plan.check()?;
        self.shape.check()?;
        match self.part.numbers(self.users).next() {
            Some(_) => Ok(plan),
            None => Err(LabError::usage("a share without users")),
        }
    }

    pub(crate) fn setting(&self) -> TerminalSetting {
        TerminalSetting {
            shape: self.shape,
            constants: self.constants,
            seed: self.seed,
            mix: self.mix,
            all_warehouses: self.all_warehouses,
            users: self.users,
        }
    }
}

/// What came of a share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HomeWords {
    measured: PackedMeasured,
    elapsed: Duration,
    missed: u64,
    cpu_s: f64,
}

impl HomeWords {
    pub(crate) fn of(worked: &Worked) -> Result<Self, LabError> {
        Ok(Self {
            measured: PackedMeasured::of(&worked.measured)?,
            elapsed: worked.elapsed,
            missed: worked.missed,
            cpu_s: worked.cpu_s,
        })
    }

    pub(crate) fn worked(self) -> Result<Worked, LabError> {
        Ok(Worked {
            measured: self.measured.measured()?,
            elapsed: self.elapsed,
            missed: self.missed,
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
