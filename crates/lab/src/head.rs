//! What all results of the lab have in common, whatever was measured: the one schema, and what came of the run.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::Machine;
use crate::result::{Check, ScenarioNote};

/// The `schema` of the results that this version writes. Results of before there was one for all are read.
pub const SCHEMA: &str = "ashlar-result-2";

/// What a run measured: which keys its result has besides those of [`Head`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `lab sweep`, and `lab run` of a scenario of devices.
    #[default]
    Devices,
    /// `lab oltp`.
    Oltp,
    /// `lab run` of a scenario of databases.
    Databases,
    /// `lab run` of a scenario of such scenarios: two sides on the same storage.
    Versus,
    /// `lab run` of a fleet.
    Fleet,
    /// `lab scan`.
    Scan,
    /// `lab failover`: the death of a primary.
    Failover,
    /// `lab failover --topology … --fault …`.
    Faults,
    /// `lab torn-pages`.
    TornPages,
    /// `lab ha`.
    Ha,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Devices,
        Self::Oltp,
        Self::Databases,
        Self::Versus,
        Self::Fleet,
        Self::Scan,
        Self::Failover,
        Self::Faults,
        Self::TornPages,
        Self::Ha,
    ];

    /// What results of this kind had as their `schema` before there was one for all.
    const fn old_schema(self) -> &'static str {
        match self {
            Self::Devices => "ashlar-lab-1",
            Self::Oltp => "ashlar-oltp-1",
            Self::Databases => "ashlar-oltp-scenario-1",
            Self::Versus => "ashlar-versus-1",
            Self::Fleet => "ashlar-fleet-1",
            Self::Scan => "ashlar-scan-1",
            Self::Failover => "ashlar-failover-1",
            Self::Faults => "ashlar-faults-1",
            Self::TornPages => "ashlar-torn-pages-1",
            Self::Ha => "ashlar-ha-1",
        }
    }

    /// The kind of a result, by its `schema` and its `kind`.
    pub(crate) fn told(schema: &str, kind: Option<Self>) -> Option<Self> {
        if schema == SCHEMA {
            return kind;
        }
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.old_schema() == schema)
    }

    /// In words, for a message.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Oltp => "`lab oltp`",
            Self::Databases => "a scenario of databases",
            Self::Versus => "two sides",
            Self::Fleet => "a fleet",
            Self::Scan => "`lab scan`",
            Self::Failover | Self::Faults => "`lab failover`",
            Self::TornPages => "`lab torn-pages`",
            Self::Ha => "`lab ha`",
        }
    }
}

/// What a result says of a run that goes on, or that was killed.
pub const UNFINISHED: &str = "the run has not reached its end";

/// The keys of every result, whatever was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// `ashlar-result-2`.
    pub schema: String,
    /// What was measured.
    #[serde(default)]
    pub kind: Kind,
    /// Title of the run: the scenario's, if it was one.
    #[serde(default)]
    pub title: String,
    /// The machine that measured, or drove the load.
    #[serde(default)]
    pub machine: Machine,
    /// The scenario, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<ScenarioNote>,
    /// What was checked: verification, promises, claims; a check that ended the run.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// What a reader must know before quoting a figure.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Something did not finish; `problems` says what.
    #[serde(default)]
    pub partial: bool,
    /// What went wrong, by name.
    #[serde(default)]
    pub problems: Vec<String>,
}

impl Head {
    /// Of a run that begins here and now.
    pub fn new(kind: Kind, title: impl Into<String>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            kind,
            title: title.into(),
            machine: Machine::here(),
            ..Self::default()
        }
    }

    /// Marks it as that of a run that has not reached its end: what is kept if nothing comes after it.
    pub fn unfinished(&mut self) {
        self.partial = true;
        self.problems.push(UNFINISHED.to_owned());
    }

    /// Marks what there was of a run that goes on as one that has ended, and why.
    pub fn ended(&mut self, why: impl Into<String>) {
        self.problems.retain(|problem| problem != UNFINISHED);
        self.broke_off(why);
    }

    /// Something did not finish, and why.
    pub fn broke_off(&mut self, why: impl Into<String>) {
        self.partial = true;
        self.problems.push(why.into());
    }

    /// Problems, and that there are flags, as the last lines for a terminal.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write_end(&self, out: &mut String) -> std::fmt::Result {
        for problem in &self.problems {
            writeln!(out, "problem: {problem}")?;
        }
        match self.flags.len() {
            0 => Ok(()),
            flags => writeln!(out, "{flags} flags: see the report before quoting a figure"),
        }
    }

    /// The checks that failed, in words; nothing if none did.
    pub fn failed_checks(&self) -> Option<String> {
        let failed = self.checks.iter().filter(|check| !check.passed);
        let texts: Vec<String> = failed
            .map(|check| format!("{}: {}", check.name, check.text))
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}
