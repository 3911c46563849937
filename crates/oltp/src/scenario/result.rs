//! `result.json` of a scenario, key by key. `docs/oltp.md` documents it for readers; the two change
//! together.

use ashlar_lab::result::{ClientNote, ScenarioNote};
use ashlar_lab::short::Short;
use ashlar_lab::{Head, Kind, LabError, ResultFile};
use serde::{Deserialize, Serialize};

use super::compared::{self, Compared};
use super::file::OltpScenario;
use super::groups::{Group, hint};
use super::named::PublishedSide;
use super::self_test;
use crate::result::OltpResult;
use crate::scan::ScanResult;
use crate::server::{Commit, Topology};

/// A scenario's run: `result.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioResult {
    /// What all results have.
    #[serde(flatten)]
    pub head: Head,
    /// What was measured.
    pub configurations: Vec<ConfigurationResult>,
    /// The agents that made the load, if any did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientNote>,
    /// How configurations compare, and what was published for that.
    pub comparisons: Vec<Compared>,
}

/// A configuration: a place, how many servers, how much memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationResult {
    /// Its name in tables.
    pub name: String,
    /// What the scenario calls it, if it names configurations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
    /// The place's name; of a group, the primary's.
    pub place: String,
    /// The name of the standby's place, if the scenario names configurations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby_place: Option<String>,
    /// Which of what was published it stands for, if the scenario says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<PublishedSide>,
    /// One server or two; absent for scans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// What commits wait for, in a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// Bytes of the database (of the table) when it was built.
    pub database_bytes: u64,
    /// Memory of a server as asked for, in percent of that; null: no limit.
    pub memory_pct: Option<f64>,
    /// Memory that it had, page cache included.
    pub memory_bytes: Option<u64>,
    /// Percent of the time in which no user began a transaction, on purpose.
    #[serde(default)]
    pub slow_down_pct: f64,
    /// TPROC-C on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oltp: Option<OltpResult>,
    /// The concurrent scan on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<ScanResult>,
}

impl ConfigurationResult {
    /// Adds the steps of a run of it.
    pub(super) fn add(&mut self, mut run: OltpResult) {
        match &mut self.oltp {
            Some(all) => all.steps.append(&mut run.steps),
            empty => *empty = Some(run),
        }
    }
}

impl ResultFile for ScenarioResult {
    const KIND: Kind = Kind::Databases;

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn text(&self) -> String {
        self.in_words()
    }

    fn short(&self) -> Vec<Short> {
        crate::report::short::of_scenario(self)
    }

    fn html(&self) -> Result<String, LabError> {
        crate::report::of_scenario(self)
    }

    fn complaint(&self) -> Option<String> {
        self.what_is_wrong()
    }
}

impl ScenarioResult {
    pub(crate) fn new(title: &str, scenario: ScenarioNote) -> Self {
        Self {
            head: Head {
                scenario: Some(scenario),
                ..Head::new(Kind::Databases, title)
            },
            configurations: Vec::new(),
            clients: Vec::new(),
            comparisons: Vec::new(),
        }
    }

    /// What there is of a run that goes on, marked as one that has not reached its end.
    pub(super) fn so_far(&self) -> Self {
        let mut result = self.clone();
        let runs = result.configurations.iter_mut();
        runs.filter_map(|of| of.oltp.as_mut())
            .for_each(OltpResult::sum_up);
        result.head.unfinished();
        result
    }

    /// Fills in what follows from the steps.
    pub(super) fn sum_up(
        &mut self,
        file: &OltpScenario,
        written: &[usize],
    ) -> Result<(), LabError> {
        for configuration in &mut self.configurations {
            let Some(run) = &mut configuration.oltp else {
                continue;
            };
            run.sum_up();
            self.head.partial |= run.head.partial;
            let name = &configuration.name;
            let problems = run
                .head
                .problems
                .iter()
                .map(|text| format!("{name}: {text}"));
            self.head.problems.extend(problems);
        }
        self.comparisons = compared::all(&self.configurations, file, written)?;
        // One that was interrupted has not said yet what it must.
        if file.self_test && !self.head.partial {
            self.head.checks = self_test::checks(&self.comparisons);
        }
        if !self.head.partial {
            let claims = file.judge(self);
            self.head.checks.extend(claims);
        }
        // A side's spread over hundreds of turns is the machine's, and says nothing of pairs of neighbours.
        let in_turns = file.turns.is_some();
        let is_noisy =
            |compared: &&Compared| !in_turns && compared.ratio.noisy && compared.ratio.differs;
        let noisy = self.comparisons.iter().filter(is_noisy);
        let flags = noisy.map(|of| {
            let users = of.users;
            format!(
                "{users} users: {} (a side's spread is at least the difference)",
                of.text
            )
        });
        self.head.flags.extend(flags.collect::<Vec<String>>());
        Ok(())
    }

    /// What consistency conditions were violated, and which checks failed; nothing if none.
    fn what_is_wrong(&self) -> Option<String> {
        let of = |configuration: &ConfigurationResult| {
            let complaint = configuration.oltp.as_ref()?.complaint()?;
            Some(format!("{}: {complaint}", configuration.name))
        };
        let failed = self.head.checks.iter().filter(|check| !check.passed);
        let failed = failed.map(|check| format!("{}: {}", check.name, check.text));
        let violated = self.configurations.iter().filter_map(of);
        let texts: Vec<String> = violated.chain(failed).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// The comparisons in words, and what to know about them.
    fn in_words(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for configuration in &self.configurations {
            lines.push(configuration.name.clone());
            if let Some(run) = configuration
                .oltp
                .as_ref()
                .filter(|run| run.method.in_turns)
            {
                // Hundreds of turns are told together.
                let told = run.summary.iter().map(|of| format!("  {}", of.line()));
                lines.extend(told);
            } else if let Some(run) = &configuration.oltp {
                lines.extend(run.steps.iter().map(|step| format!("  {}", step.line())));
            }
            if let Some(scan) = &configuration.scan {
                lines.extend(scan.steps.iter().map(|step| format!("  {}", step.line())));
            }
        }
        let groups = Group::of(self);
        for group in &groups {
            lines.push(String::new());
            lines.push(group.text().trim_end().to_owned());
        }
        lines.extend(self.head.checks.iter().map(|check| {
            let verdict = if check.passed { "holds" } else { "FAILED" };
            format!("{verdict}: {}: {}", check.name, check.text)
        }));
        lines.extend(hint(self, &groups).map(|text| format!("hint: {text}")));
        let flags: usize = self
            .configurations
            .iter()
            .map(|c| {
                let run = c.oltp.as_ref().map_or(0, |run| run.head.flags.len());
                run + c.scan.as_ref().map_or(0, |scan| scan.head.flags.len())
            })
            .sum();
        let flags = flags + self.head.flags.len();
        if flags > 0 {
            lines.push(format!(
                "{flags} flags: see the report before quoting a figure"
            ));
        }
        lines.extend(
            self.head
                .problems
                .iter()
                .map(|text| format!("problem: {text}")),
        );
        lines.join("\n") + "\n"
    }
}
