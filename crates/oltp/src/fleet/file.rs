//! The scenario's file.

use ashlar_lab::scenario::{has_any, read, seconds};
use ashlar_lab::{LabError, Scale};
use serde::{Deserialize, Serialize};

use super::nodes::Nodes;
use super::streams::Streams;
use crate::inputs::Mix;
use crate::run::{Mode, RunPlan};
use crate::schema::Shape;

/// A scenario of many databases. `docs/oltp.md` has it key by key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetScenario {
    /// Short name.
    pub name: String,
    /// Title of the report; the name if empty.
    #[serde(default)]
    pub title: String,
    /// What is asked, and where it comes from.
    #[serde(default)]
    pub about: String,
    /// The published table that stands beside it.
    #[serde(default)]
    pub published: Option<String>,
    /// How long, how often.
    pub measure: FleetMeasure,
    pub fleet: FleetSection,
}

/// `[measure]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetMeasure {
    /// Measured seconds of a step.
    pub seconds: f64,
    /// Seconds of load before.
    pub ramp: f64,
    /// How often each step is measured.
    #[serde(default = "one")]
    pub repeat: u32,
    /// Seed of data and inputs.
    #[serde(default = "first")]
    pub seed: u64,
}

/// `[fleet]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetSection {
    /// How many, shared out to the places in turn.
    pub databases: usize,
    /// Streams of each: a number, a list that is dealt out in turn, or a range from the first to the last.
    pub streams: Streams,
    /// Nodes that the places are on, dealt out in turn; absent: one for each place.
    #[serde(default)]
    pub nodes: Option<usize>,
    /// How full the storage is made before it is measured, in percent; as it is without.
    #[serde(default)]
    pub full_pct: Option<f64>,
    /// Transactions a second of each stream.
    #[serde(default = "unit")]
    pub rate: f64,
    /// Warehouses of each.
    pub warehouses: i32,
    /// A hundredth of the items and a thirtieth of the customers: to try a scenario; flagged.
    #[serde(default)]
    pub small: bool,
    /// Memory of each server in percent of its database; no limit without.
    #[serde(default)]
    pub memory_pct: Option<f64>,
    /// Sessions of each database, which run its streams.
    #[serde(default = "four")]
    pub sessions: usize,
    /// Percent of the streams, a step each.
    #[serde(default = "all")]
    pub steps: Vec<u32>,
    /// What kind of database.
    #[serde(default)]
    pub engine: Engine,
    /// Databases and streams are as they are, whatever the scale.
    #[serde(default)]
    pub keep: bool,
    /// PostgreSQL's settings, `name=value`.
    #[serde(default)]
    pub set: Vec<String>,
}

/// What kind of database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// A server of its own for each.
    #[default]
    Postgres,
    /// A file for each, within this process.
    Sqlite,
}

impl FleetSection {
    /// What is built.
    pub(crate) fn shape(&self) -> Shape {
        match self.small {
            true => Shape::small(self.warehouses),
            false => Shape::tpcc(self.warehouses),
        }
    }
}

fn one() -> u32 {
    1
}

fn first() -> u64 {
    1
}

fn unit() -> f64 {
    1.0
}

fn four() -> usize {
    4
}

fn all() -> Vec<u32> {
    vec![100]
}

const MOST_DATABASES: usize = 1000;
/// Less than this is not measured, however small the scale.
const LEAST_DATABASES: usize = 2;
const LEAST_STREAMS: u32 = 10;
const LEAST_WAREHOUSES: i32 = 1;
const LEAST_SECONDS: f64 = 2.0;
const LEAST_RAMP: f64 = 0.5;

impl FleetScenario {
    /// Whether a text is of this kind.
    ///
    /// # Errors
    /// It is no TOML.
    pub fn is_one(text: &str) -> Result<bool, LabError> {
        has_any(text, &["fleet"])
    }

    /// Reads a scenario's text.
    ///
    /// # Errors
    /// A usage error that names the line, or what cannot be.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let file: Self = read(text)?;
        let fleet = &file.fleet;
        let refuse = |why: String| Err(LabError::usage(format!("scenario: {why}")));
        if !(1..=MOST_DATABASES).contains(&fleet.databases) {
            return refuse(format!(
                "databases = {}: must be 1 to {MOST_DATABASES}",
                fleet.databases
            ));
        }
        if fleet.steps.is_empty() || fleet.steps.iter().any(|pct| !(1..=1000).contains(pct)) {
            return refuse("steps: percent of the streams, 1 to 1000, at least one".into());
        }
        if fleet
            .memory_pct
            .is_some_and(|pct| !(0.01..=1000.0).contains(&pct))
        {
            return refuse("memory_pct: must be 0.01 to 1000".into());
        }
        if fleet
            .full_pct
            .is_some_and(|pct| !(1.0..=95.0).contains(&pct))
        {
            return refuse("full_pct: must be 1 to 95".into());
        }
        match file.published.as_deref() {
            None | Some(super::result::PUBLISHED) => {}
            Some(other) => {
                return refuse(format!(
                    "published = {other:?}: fleets are published in {}",
                    super::result::PUBLISHED
                ));
            }
        }
        fleet.shape().check()?;
        for &percent in &fleet.steps {
            for streams in file.streams(percent) {
                file.plan(streams)?.check()?;
            }
        }
        Ok(file)
    }

    /// Refuses places that its nodes cannot be on; without any it has one.
    ///
    /// # Errors
    /// A usage error that says how many there are.
    pub fn check_places(&self, places: usize) -> Result<(), LabError> {
        Nodes::of(self.fleet.nodes, places.max(1)).map(drop)
    }

    /// Refuses what agents cannot have the streams of.
    ///
    /// # Errors
    /// A usage error that says why.
    pub fn check_clients(&self) -> Result<(), LabError> {
        match self.fleet.engine {
            Engine::Postgres => Ok(()),
            Engine::Sqlite => Err(LabError::usage(format!(
                "--client: {}: fleet.engine = \"sqlite\": its files are read and written within the process that runs \
                 it: agents load PostgreSQL",
                self.name
            ))),
        }
    }

    /// The title, or the name.
    pub(crate) fn heading(&self) -> &str {
        if self.title.is_empty() {
            &self.name
        } else {
            &self.title
        }
    }

    /// Streams of each database in a step, by its number.
    pub(crate) fn streams(&self, percent: u32) -> Vec<u32> {
        let share = |streams: u32| {
            let share = u64::from(streams) * u64::from(percent) / 100;
            u32::try_from(share).unwrap_or(u32::MAX)
        };
        let count = self.fleet.databases;
        let all = (0..count).map(|number| self.fleet.streams.of(number, count));
        all.map(share).collect()
    }

    /// How a database is driven that has so many streams.
    pub(crate) fn plan(&self, streams: u32) -> Result<RunPlan, LabError> {
        let fleet = &self.fleet;
        let mode = format!("streams:{streams}@{}", fleet.rate);
        Ok(RunPlan {
            users: vec![fleet.sessions],
            ramp: seconds("ramp", self.measure.ramp)?,
            measure: seconds("seconds", self.measure.seconds)?,
            mode: mode.parse::<Mode>()?,
            mix: Mix::TprocC,
            all_warehouses: false,
            pauses: None,
            repeats: self.measure.repeat,
            seed: self.measure.seed,
            slow_down: 0.0,
        })
    }

    /// Makes it smaller, and says what that did: databases, streams, warehouses, seconds and ramp times the factor,
    /// but not below 2, 10, 1, 2 s and 0.5 s, and never above what is written.
    pub(crate) fn scale(&mut self, scale: Scale) -> String {
        let factor = scale.factor();
        let shrink = |value: f64, least: f64| (value * factor).max(least).min(value);
        let (measure, fleet) = (&mut self.measure, &mut self.fleet);
        measure.seconds = shrink(measure.seconds, LEAST_SECONDS);
        measure.ramp = shrink(measure.ramp, LEAST_RAMP);
        if !fleet.keep {
            fleet.databases = shrink(fleet.databases as f64, LEAST_DATABASES as f64) as usize;
            let least = f64::from(LEAST_STREAMS);
            fleet.streams = fleet
                .streams
                .each(|count| shrink(f64::from(count), least) as u32);
        }
        fleet.warehouses = shrink(f64::from(fleet.warehouses), f64::from(LEAST_WAREHOUSES)) as i32;
        format!(
            "{} databases of {} warehouses, {}, {} s after {} s{}",
            fleet.databases,
            fleet.warehouses,
            fleet.streams,
            measure.seconds,
            measure.ramp,
            if scale == Scale::FULL {
                ", as written"
            } else {
                ""
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../../../scenarios/fleet.toml");

    #[test]
    fn what_ships_is_the_papers() {
        let mut file = FleetScenario::parse(TEXT).expect("sound");
        assert_eq!(file.streams(100).iter().sum::<u32>(), 28_800);
        assert_eq!(file.streams(90), [180; 144]);
        assert!(file.scale(Scale::FULL).contains("as written"));
        file.scale(Scale::MIN);
        assert_eq!(file.streams(100), [10, 10]);
        let spread = TEXT.replace("streams = 200", "streams = \"100..250\"");
        let mut spread = FleetScenario::parse(&spread).expect("sound");
        let streams = spread.streams(100);
        assert_eq!((streams[0], streams[143]), (100, 250));
        assert_eq!(streams.iter().sum::<u32>(), 144 * 175);
        spread.fleet.databases = 3;
        assert_eq!(spread.streams(90), [90, 157, 225]);
        assert!(spread.scale(Scale::MIN).contains("10 to 10 streams"));
        let mut kept = FleetScenario::parse(TEXT).expect("sound");
        kept.fleet.keep = true;
        kept.scale(Scale::MIN);
        assert_eq!((kept.fleet.databases, kept.fleet.warehouses), (144, 1));
        assert_eq!(FleetScenario::is_one(TEXT), Ok(true));
        assert_eq!(FleetScenario::is_one("name = 'x'"), Ok(false));
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (was, is, named) in [
            ("databases = 144", "databases = 0", "databases = 0"),
            ("steps = [100, 90]", "steps = []", "steps"),
            ("memory_pct = 3", "memory_pct = 0", "memory_pct"),
            ("streams = 200", "streams = 0", "streams"),
            ("streams = 200", "streams = [200, 0]", "streams:0"),
            ("streams = 200", "streams = \"250..100\"", "250..100"),
            ("full_pct = 70", "full_pct = 100", "full_pct"),
            ("rate = 1.0", "rate = 1.0\nnonsense = 1", "nonsense"),
            ("warehouses = 100", "warehouses = 0", "warehouses"),
            ("sessions = 4", "sessions = 0", "--users 0"),
            (
                "s2d_fleet_144_databases.csv",
                "flash_cache.csv",
                "flash_cache.csv",
            ),
        ] {
            let error = FleetScenario::parse(&TEXT.replace(was, is)).expect_err(named);
            assert!(
                error.exit_code() == 2 && error.to_string().contains(named),
                "{error}"
            );
        }
    }
}
