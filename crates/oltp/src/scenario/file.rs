//! A scenario's file, and what a scale makes of it.

use ashlar_lab::scenario::{has_any, read};
use ashlar_lab::{LabError, Machine, Scale};
use serde::{Deserialize, Serialize};

use super::claims::ClaimSection;
use super::keeper::OltpEngine;
use super::measure::{MeasureSection, shrink};
use super::named::NamedSection;
use crate::run::{Mode, RunPlan};
use crate::scan::ScanPlan;
use crate::schema::Shape;
use crate::server::{Commit, Topology, check_set};

/// A scenario of a database. `docs/oltp.md` has an annotated one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OltpScenario {
    /// Short name.
    pub name: String,
    /// Title of the report; the name if empty.
    #[serde(default)]
    pub title: String,
    /// What is asked, of what, and where it comes from.
    #[serde(default)]
    pub about: String,
    /// A file in `published/` to stand beside.
    #[serde(default)]
    pub published: Option<String>,
    /// It tests the statistics: the same again must be told as the same, and what is slowed down must be found.
    #[serde(default)]
    pub self_test: bool,
    /// For how long, and how often.
    #[serde(default)]
    pub measure: MeasureSection,
    pub oltp: Option<OltpSection>,
    /// The concurrent scan.
    pub scan: Option<ScanSection>,
    /// Configurations take turns under one load, instead of a step each on a database that was put back.
    #[serde(default)]
    pub turns: Option<TurnsSection>,
    /// What is compared, the 100 % first, by the names of configurations; without, each with the first of them.
    #[serde(default)]
    pub compare: Vec<[String; 2]>,
    /// What is measured; without, every place with every topology.
    #[serde(default)]
    pub configuration: Vec<NamedSection>,
    /// What configurations must reach beside others.
    #[serde(default)]
    pub claim: Vec<ClaimSection>,
}

/// `[oltp]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OltpSection {
    /// Warehouses, about 100 MB each.
    pub warehouses: i32,
    /// A hundredth of the items and a thirtieth of the customers: to try a scenario; flagged.
    #[serde(default)]
    pub small: bool,
    /// Numbers of users, a step each, ascending.
    pub users: Vec<usize>,
    /// The scale is that of the users, too.
    #[serde(default)]
    pub scale_users: bool,
    /// Fixed work: so many transactions a user, instead of a time.
    #[serde(default)]
    pub transactions: Option<u64>,
    /// One server, or two.
    #[serde(default = "standalone")]
    pub topology: Vec<Topology>,
    /// What commits wait for in a group.
    #[serde(default)]
    pub commit: Commit,
    /// Who keeps a group, if not only the standby's connection does.
    #[serde(default)]
    pub group: Option<GroupKeeper>,
    /// Memory of a server, page cache included, in percent of the database; no limit if there is none.
    #[serde(default)]
    pub memory_pct: Vec<f64>,
    /// Percent of the time in which no user begins a transaction, a configuration each.
    #[serde(default = "not_at_all")]
    pub slow_down_pct: Vec<f64>,
    /// What kind of database.
    #[serde(default)]
    pub engine: OltpEngine,
    /// `functions` or `client`.
    #[serde(default = "functions")]
    pub sql: String,
    /// `tproc-c` or `tpc-c`.
    #[serde(default = "tproc_c")]
    pub mix: String,
    /// Split all warehouses over the users, instead of one home warehouse each.
    #[serde(default)]
    pub all_warehouses: bool,
    /// The server's settings, `name=value`.
    #[serde(default)]
    pub set: Vec<String>,
}

/// What keeps the servers of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupKeeper {
    /// Patroni with etcd, and HAProxy as the listener: it fails over by itself.
    Patroni,
    /// Nothing: its standby follows, and no more.
    None,
}

/// `[scan]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanSection {
    /// Rows of 744 bytes.
    pub rows: i32,
    /// Numbers of readers, a step each.
    pub readers: Vec<usize>,
    /// Memory of the server, page cache included, in percent of the table; no limit if absent.
    #[serde(default)]
    pub memory_pct: Option<f64>,
    /// PostgreSQL's settings, `name=value`.
    #[serde(default)]
    pub set: Vec<String>,
}

/// `[turns]`. `[measure]` has the seconds of a turn, the ramp before the first, and how many blocks of turns
/// there are at most: two of each configuration a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TurnsSection {
    /// Seconds of a turn before it is measured, 0.25 if absent; a scan, which begins with nothing in memory, has none.
    pub settle: Option<f64>,
    /// It ends when every ratio to the first configuration is known to so many percent.
    pub precision_pct: f64,
}

impl Default for TurnsSection {
    fn default() -> Self {
        Self {
            settle: None,
            precision_pct: 5.0,
        }
    }
}

/// What the settling time is, and what it may be.
const USUAL_SETTLE: f64 = 0.25;
const SETTLES: std::ops::RangeInclusive<f64> = 0.0..=60.0;
const PRECISIONS: std::ops::RangeInclusive<f64> = 0.1..=100.0;

impl OltpSection {
    /// What is built.
    pub(crate) fn shape(&self) -> Shape {
        match self.small {
            true => Shape::small(self.warehouses),
            false => Shape::tpcc(self.warehouses),
        }
    }

    /// Whether Patroni keeps its groups.
    pub(super) fn is_kept(&self) -> bool {
        self.group == Some(GroupKeeper::Patroni)
    }

    /// Whether there is a group that Patroni can keep.
    fn check_kept(&self, in_group: bool, takes_turns: bool) -> Result<(), String> {
        match () {
            () if !in_group => {
                Err("group = \"patroni\": of what? say topology = [\"availability-group\"], or group = \"none\"".into())
            }
            () if takes_turns => {
                Err("group = \"patroni\": one runs at a time, so without [turns]".into())
            }
            () if self.commit != Commit::On => Err(
                "group = \"patroni\": a commit waits until the standby has it durably: commit \
                 \"on\""
                    .into(),
            ),
            () => Ok(()),
        }
    }
}

impl TurnsSection {
    /// Seconds of a turn before it is measured.
    pub(super) fn settle(&self) -> f64 {
        self.settle.unwrap_or(USUAL_SETTLE)
    }

    /// Whether they make sense for a load, or for a scan where there is none.
    fn check(&self, oltp: Option<&OltpSection>) -> Result<(), String> {
        let is_several = |oltp: &OltpSection| {
            oltp.topology.len() > 1 || oltp.memory_pct.len() > 1 || oltp.transactions.is_some()
        };
        if oltp.is_some_and(is_several) {
            return Err(
                "[turns]: servers that are up together differ in place and slow_down_pct only: one \
                 topology, one memory_pct, no transactions"
                    .into(),
            );
        }
        if let (None, Some(settle)) = (oltp, self.settle) {
            return Err(format!(
                "turns.settle = {settle}: a scan begins with nothing in memory, and has no settle"
            ));
        }
        let settle = self.settle();
        if !SETTLES.contains(&settle) {
            return Err(format!("settle = {settle}: must be 0 to 60 s"));
        }
        if !PRECISIONS.contains(&self.precision_pct) {
            let precision = self.precision_pct;
            return Err(format!("precision_pct = {precision}: must be 0.1 to 100"));
        }
        Ok(())
    }
}

fn standalone() -> Vec<Topology> {
    vec![Topology::Standalone]
}

fn not_at_all() -> Vec<f64> {
    vec![0.0]
}

fn functions() -> String {
    "functions".into()
}

fn tproc_c() -> String {
    "tproc-c".into()
}

/// Less than this is not measured, however small the scale; nor more than is written.
const LEAST_WAREHOUSES: i32 = 4;
const LEAST_TRANSACTIONS: u64 = 500;
const LEAST_ROWS: i32 = 50_000;

impl OltpScenario {
    /// Whether a text is of this kind, and not of the lab's sweeps.
    ///
    /// # Errors
    /// A usage error that names the line where it is no TOML, and so of no kind.
    pub fn is_one(text: &str) -> Result<bool, LabError> {
        has_any(text, &["oltp", "scan"])
    }

    /// Reads a scenario's text.
    ///
    /// # Errors
    /// A usage error that names the line, or what cannot be.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let usage = |text: String| LabError::usage(format!("scenario: {text}"));
        let file: Self = read(text)?;
        if file.oltp.is_some() == file.scan.is_some() {
            return Err(usage("one of [oltp] and [scan] must be there".into()));
        }
        file.published()?;
        file.check_named().map_err(usage)?;
        file.check_claims().map_err(usage)?;
        file.check_times().map_err(usage)?;
        file.check_settings()
            .map_err(|error| usage(error.to_string()))?;
        if let Some(scan) = &file.scan {
            file.scan_plan(scan).check()?;
        }
        if let Some(turns) = &file.turns {
            turns.check(file.oltp.as_ref()).map_err(usage)?;
        }
        if let Some(oltp) = &file.oltp {
            oltp.shape().check()?;
            if oltp.topology.is_empty() || oltp.slow_down_pct.is_empty() {
                return Err(usage("topology, slow_down_pct: at least one".into()));
            }
            if !oltp.users.is_sorted_by(|a, b| a < b) {
                return Err(usage("users: must ascend".into()));
            }
            if !["functions", "client"].contains(&&*oltp.sql) {
                return Err(usage(format!("sql = {:?}: functions or client", oltp.sql)));
            }
            let named = file.configuration.iter().map(|of| &of.topology);
            let in_group = oltp
                .topology
                .iter()
                .chain(named)
                .any(|&of| of != Topology::Standalone);
            if oltp.engine == OltpEngine::Mariadb && (in_group || oltp.sql != "functions") {
                return Err(usage(
                    "engine = \"mariadb\": one server, and its logic in stored procedures: topology \
                     \"standalone\", sql \"functions\""
                        .into(),
                ));
            }
            if oltp.is_kept() {
                let takes_turns = file.turns.is_some();
                oltp.check_kept(in_group, takes_turns).map_err(usage)?;
            }
            for &percent in &oltp.slow_down_pct {
                file.run_plan(oltp, percent)?.check()?;
            }
        }
        let memory = file.oltp.iter().flat_map(|oltp| &oltp.memory_pct);
        let memory = memory.chain(file.scan.iter().flat_map(|scan| &scan.memory_pct));
        for percent in memory {
            if !(0.01..=1000.0).contains(percent) {
                return Err(usage(format!("memory_pct {percent}: must be 0.01 to 1000")));
            }
        }
        Ok(file)
    }

    /// PostgreSQL's settings, and whether they have room for the users.
    fn check_settings(&self) -> Result<(), LabError> {
        let of_scan = self
            .scan
            .as_ref()
            .map(|scan| (&scan.set, &scan.readers, "readers"));
        let of_oltp = self
            .oltp
            .as_ref()
            .map(|oltp| (&oltp.set, &oltp.users, "users"));
        let Some((set, counts, who)) = of_oltp.or(of_scan) else {
            return Ok(());
        };
        check_set(set)?;
        let most = counts.iter().copied().max().unwrap_or(0);
        let mut limits = set
            .iter()
            .filter_map(|s| s.strip_prefix("max_connections="));
        // The last one is PostgreSQL's; one that is no number it refuses itself.
        match limits
            .next_back()
            .and_then(|limit| limit.trim().parse::<usize>().ok())
        {
            Some(limit) if limit <= most => Err(LabError::usage(format!(
                "set max_connections={limit}: {most} {who} need at least {}",
                most + 1
            ))),
            _ => Ok(()),
        }
    }

    /// How the table of a scan is read.
    pub(super) fn scan_plan(&self, scan: &ScanSection) -> ScanPlan {
        ScanPlan {
            rows: scan.rows,
            readers: scan.readers.clone(),
            repeats: self.measure.repeat,
            build_users: Machine::here().cores as usize,
        }
    }

    /// The title, or the name.
    pub fn heading(&self) -> &str {
        if self.title.is_empty() {
            &self.name
        } else {
            &self.title
        }
    }

    /// Which published table stands beside it.
    pub(crate) fn published(&self) -> Result<PublishedTable, LabError> {
        match self.published.as_deref() {
            None => Ok(PublishedTable::None),
            Some("nvmeof_hammerdb.csv") => Ok(PublishedTable::HammerDb),
            Some("fci_vs_basic_ag.csv") => Ok(PublishedTable::Cluster),
            Some("flash_cache.csv") => Ok(PublishedTable::FlashCache),
            Some(other) => Err(LabError::usage(format!(
                "published = {other:?}: databases are published in nvmeof_hammerdb.csv, \
                 fci_vs_basic_ag.csv and flash_cache.csv"
            ))),
        }
    }

    /// How one configuration is driven.
    pub(crate) fn run_plan(&self, oltp: &OltpSection, slow_pct: f64) -> Result<RunPlan, LabError> {
        let measure = &self.measure;
        Ok(RunPlan {
            users: oltp.users.clone(),
            ramp: measure.ramped()?,
            measure: measure.measured()?,
            mode: oltp.transactions.map_or(Mode::Timed, Mode::Fixed),
            mix: oltp.mix.parse()?,
            all_warehouses: oltp.all_warehouses,
            pauses: None,
            repeats: measure.repeat,
            seed: measure.seed,
            slow_down: slow_pct / 100.0,
        })
    }

    /// Makes it smaller, and says what that did:
    /// * warehouses, transactions, rows, seconds, ramp and repeats times the factor, but not below 4, 500,
    ///   50,000, 2 s, 0.5 s and 3, and never above what is written;
    /// * users times the factor where the file says so, each more than the one before; `min` keeps the
    ///   first and the last of more than two.
    ///
    /// Gives the numbers of users as written, in the order of those that are left.
    pub(crate) fn scale(&mut self, scale: Scale) -> (Vec<usize>, String) {
        let factor = scale.factor();
        let written = self.oltp.as_ref().map(|oltp| oltp.users.clone());
        let mut written = written.unwrap_or_default();
        if scale == Scale::FULL {
            return (written, "as written".to_owned());
        }
        let measure = &mut self.measure;
        measure.scale(scale);
        let repeats = measure.repeat;
        let often = match self.turns {
            Some(_) => format!("at most {repeats} blocks of turns"),
            None => format!("{repeats} repeats"),
        };
        if let Some(scan) = &mut self.scan {
            scan.rows = shrink(f64::from(scan.rows), f64::from(LEAST_ROWS), scale) as i32;
            return (written, format!("{} rows, {often}", scan.rows));
        }
        let Some(oltp) = &mut self.oltp else {
            return (written, String::new());
        };
        oltp.warehouses = shrink(
            f64::from(oltp.warehouses),
            f64::from(LEAST_WAREHOUSES),
            scale,
        ) as i32;
        let least = LEAST_TRANSACTIONS as f64;
        oltp.transactions = oltp
            .transactions
            .map(|n| shrink(n as f64, least, scale) as u64);
        if scale == Scale::MIN && written.len() > 2 {
            written = [written.first(), written.last()]
                .into_iter()
                .flatten()
                .copied()
                .collect();
        }
        oltp.users = written.clone();
        if oltp.scale_users {
            let mut before = 0;
            for users in &mut oltp.users {
                *users = ((*users as f64 * factor).round() as usize).max(before + 1);
                before = *users;
            }
        }
        let work = match oltp.transactions {
            Some(count) => format!("{count} transactions a user"),
            None => format!("{} s after {} s", measure.seconds(), measure.ramp()),
        };
        let users: Vec<String> = oltp.users.iter().map(ToString::to_string).collect();
        let scaled = format!(
            "{} warehouses, {} users, {work} x {often}",
            oltp.warehouses,
            users.join(", ")
        );
        (written, scaled)
    }
}

/// What stands beside a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishedTable {
    None,
    HammerDb,
    Cluster,
    FlashCache,
}

#[cfg(test)]
mod tests {
    use super::super::SHIPPED;
    use super::*;

    fn shipped(name: &str) -> OltpScenario {
        let (_, text) = SHIPPED.iter().find(|(n, _)| *n == name).expect("ships");
        assert_eq!(OltpScenario::is_one(text), Ok(true));
        OltpScenario::parse(text).expect("sound")
    }

    #[test]
    fn what_ships_is_sound_and_scales() {
        // Fleets have a file of their own.
        for (name, _) in SHIPPED.into_iter().filter(|(name, _)| *name != "fleet") {
            let file = shipped(name);
            assert_eq!(file.name, name);
            let mut whole = file.clone();
            assert_eq!(whole.scale(Scale::FULL).1, "as written");
            assert_eq!(whole, file);
        }
        let mut small = shipped("nvmeof-hammerdb");
        let (written, scaled) = small.scale("0.01".parse().expect("a scale"));
        let oltp = small.oltp.expect("a load");
        assert_eq!(oltp.users, [1, 2, 3, 4, 6, 8]);
        assert_eq!(written, [100, 150, 200, 400, 600, 800]);
        assert_eq!((oltp.warehouses, small.measure.seconds()), (50, 3.0));
        assert!(scaled.contains("50 warehouses"), "{scaled}");
        let mut least = shipped("nvmeof-hammerdb");
        let (written, _) = least.scale(Scale::MIN);
        let oltp = least.oltp.expect("a load");
        assert_eq!((oltp.users, written), (vec![1, 2], vec![100, 800]));
        assert_eq!((oltp.warehouses, least.measure.repeat), (4, 3));
        let mut fixed = shipped("fixed-transactions");
        fixed.scale("0.1".parse().expect("a scale"));
        let oltp = fixed.oltp.expect("a load");
        assert_eq!((oltp.users.len(), oltp.transactions), (6, Some(5000)));
        let mut scan = shipped("scan-concurrency");
        scan.scale(Scale::MIN);
        assert_eq!(scan.scan.expect("a scan").rows, 50_000);
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (name, text) in [
            ("one of [oltp] and [scan]", "name = 'x'"),
            (
                "published",
                "name = 'x'\npublished = 'y.csv'\n[scan]\nrows = 1\nreaders = [1]",
            ),
            (
                "ascend",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [2, 1]",
            ),
            (
                "sql",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]\nsql = 'x'",
            ),
            (
                "--warehouses 0",
                "name = 'x'\n[oltp]\nwarehouses = 0\nusers = [1]",
            ),
            (
                "--mix",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]\nmix = 'x'",
            ),
            ("--users", "name = 'x'\n[oltp]\nwarehouses = 1\nusers = []"),
            (
                "memory_pct",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]\nmemory_pct = [0]",
            ),
            (
                "topology",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]\ntopology = []",
            ),
            (
                "--slow-down",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]\nslow_down_pct = [99]",
            ),
            (
                "engine",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]\nengine = 'mariadb'\nsql = 'client'",
            ),
            (
                "engine",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]\nengine = 'mariadb'\ntopology = ['availability-group']",
            ),
            (
                "one topology",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]\nmemory_pct = [1, 2]\n[turns]",
            ),
            (
                "turns.settle = 1: a scan begins",
                "name = 'x'\n[scan]\nrows = 1\nreaders = [1]\n[turns]\nsettle = 1",
            ),
            (
                "settle",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]\n[turns]\nsettle = -1",
            ),
            (
                "precision_pct",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]\n[turns]\nprecision_pct = 0",
            ),
            (
                "setting `x`",
                "name = 'x'\n[scan]\nrows = 1\nreaders = [1]\nset = ['x']",
            ),
            (
                "200 users need at least 201",
                "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1, 200]\nset = ['max_connections=200']",
            ),
            (
                "measure.seconds = 5: a scan takes",
                "name = 'x'\n[measure]\nseconds = 5\n[scan]\nrows = 1\nreaders = [1]",
            ),
            (
                "measure.ramp = 1: fixed work takes",
                "name = 'x'\n[measure]\nramp = 1\n[oltp]\nwarehouses = 1\nusers = [1]\ntransactions = 5",
            ),
            ("--rows 0", "name = 'x'\n[scan]\nrows = 0\nreaders = [1]"),
            ("--readers", "name = 'x'\n[scan]\nrows = 1\nreaders = []"),
            (
                "there is no",
                "name = 'x'\nother = 1\n[scan]\nrows = 1\nreaders = [1]",
            ),
        ] {
            let error = OltpScenario::parse(text).expect_err(name);
            assert!(
                error.exit_code() == 2 && error.to_string().contains(name),
                "{error}"
            );
        }
        let sweep = "name = 'x'\n[measure]\nseconds = 1";
        assert_eq!(OltpScenario::is_one(sweep), Ok(false));
        let error = OltpScenario::is_one("name = 'x'\n[oltp\n").expect_err("no TOML");
        assert!(
            error.exit_code() == 2 && error.to_string().contains("line 2"),
            "{error}"
        );
    }
}
