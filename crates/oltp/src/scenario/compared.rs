//! How configurations of a scenario compare: pairs of interleaved repeats, and what was published.

use ashlar_lab::LabError;
use ashlar_lab::stats::{Ratio, correct};
use serde::{Deserialize, Serialize};

use super::file::{OltpScenario, PublishedTable};
use super::result::ConfigurationResult;
use super::turns;
use crate::published::{Cluster, HammerDb};
use crate::result::StepResult;
use crate::server::Topology;

/// The figure of fixed work and of scans: more is slower.
pub(super) const RUN_TIME: &str = "run_time_s";

/// One configuration against another, at one number of users or readers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// What they differ in: `place`, `topology`, `memory`, `slow_down`, `nothing`.
    pub differ_in: String,
    /// What is compared: `nopm`, `run_time_s`.
    pub figure: String,
    /// The configuration that is the 100 %.
    pub base: String,
    /// The other one.
    pub ours: String,
    /// Users or readers.
    pub users: usize,
    /// As many as the scenario has written there.
    pub users_as_written: usize,
    /// The comparison.
    pub ratio: Ratio,
    /// In words.
    pub text: String,
    /// The ratio that was published for users as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
}

/// All comparisons: of places, of topologies, of memory sizes, of slowed runs, each with the first.
pub(super) fn all(
    configurations: &[ConfigurationResult],
    file: &OltpScenario,
    written: &[usize],
) -> Result<Vec<Compared>, LabError> {
    let table = Table::of(file)?;
    let places: Vec<&str> = places(configurations);
    // One that ended before its first look has not chosen its end by what it saw.
    let looks = file
        .turns
        .as_ref()
        .map(|_| turns::looks(file.measure.repeat));
    let mut found = Vec::new();
    for (index, ours) in configurations.iter().enumerate() {
        for (base, differ_in) in bases(&configurations[..index], ours) {
            for (users, base_figures, our_figures) in figures(base, ours) {
                let looked = looks
                    .as_ref()
                    .and_then(|looks| Ratio::at_look(&base_figures, &our_figures, looks));
                let Some(ratio) = looked.or_else(|| Ratio::of(&base_figures, &our_figures)) else {
                    continue;
                };
                let at = file
                    .oltp
                    .as_ref()
                    .and_then(|oltp| oltp.users.iter().position(|&n| n == users));
                let as_written = at.and_then(|at| written.get(at).copied()).unwrap_or(users);
                found.push(Compared {
                    differ_in: differ_in.to_owned(),
                    figure: if is_run_time(ours) { RUN_TIME } else { "nopm" }.to_owned(),
                    base: base.name.clone(),
                    ours: ours.name.clone(),
                    users,
                    users_as_written: as_written,
                    published: table.ratio(&places, base, ours, as_written),
                    ratio,
                    text: String::new(),
                });
            }
        }
    }
    // Of turns that go on until it is known, each statement has an error of its own.
    if looks.is_none() {
        let mut ratios: Vec<&mut Ratio> = found.iter_mut().map(|of| &mut of.ratio).collect();
        correct(&mut ratios);
    }
    found.iter_mut().for_each(Compared::put_into_words);
    Ok(found)
}

impl Compared {
    fn put_into_words(&mut self) {
        self.text = self.ratio.words(&self.ours, &self.base);
        if self.figure == RUN_TIME {
            self.text = self.text.replacen(" x ", " x the run time of ", 1);
        }
    }
}

/// Fixed work and scans are told by how long they take.
pub(super) fn is_run_time(of: &ConfigurationResult) -> bool {
    of.oltp
        .as_ref()
        .is_none_or(|run| run.method.mode.starts_with("fixed"))
}

fn places(configurations: &[ConfigurationResult]) -> Vec<&str> {
    let mut places: Vec<&str> = Vec::new();
    for configuration in configurations {
        if !places.contains(&configuration.place.as_str()) {
            places.push(&configuration.place);
        }
    }
    places
}

/// Earlier configurations that differ in one thing only, of each thing the first.
fn bases<'a>(
    before: &'a [ConfigurationResult],
    ours: &ConfigurationResult,
) -> Vec<(&'a ConfigurationResult, &'static str)> {
    let mut found: Vec<(&ConfigurationResult, &'static str)> = Vec::new();
    for base in before {
        let differences = [
            (base.place != ours.place, "place"),
            (base.topology != ours.topology, "topology"),
            (base.memory_pct != ours.memory_pct, "memory"),
            (base.slow_down_pct != ours.slow_down_pct, "slow_down"),
        ];
        let mut differing = differences.iter().filter(|(differs, _)| *differs);
        let what = match (differing.next(), differing.next()) {
            (None, _) => "nothing",
            (Some((_, what)), None) => what,
            _ => continue,
        };
        if !found.iter().any(|(_, other)| *other == what) {
            found.push((base, what));
        }
    }
    found
}

type Figures = (usize, Vec<f64>, Vec<f64>);

/// Figures of both, repeat by repeat, for each number of users or readers.
pub(super) fn figures(base: &ConfigurationResult, ours: &ConfigurationResult) -> Vec<Figures> {
    if let (Some(a), Some(b)) = (&base.scan, &ours.scan) {
        let of = |readers: usize| {
            let times = |scan: &crate::scan::ScanResult| -> Vec<f64> {
                let steps = scan.steps.iter().filter(|step| step.readers == readers);
                steps.map(|step| step.run_time_s).collect()
            };
            (readers, times(a), times(b))
        };
        return a.readers().into_iter().map(of).collect();
    }
    let (Some(a), Some(b)) = (&base.oltp, &ours.oltp) else {
        return Vec::new();
    };
    let figure = |step: &StepResult| match is_run_time(ours) {
        true => step.elapsed_s,
        false => step.nopm,
    };
    let of = |users: usize| {
        let (base, ours) = a.pairs(b, users, figure);
        (users, base, ours)
    };
    a.users().into_iter().map(of).collect()
}

/// Figures of both at one number of users or readers.
pub(super) fn pairs_of(
    base: &ConfigurationResult,
    ours: &ConfigurationResult,
    users: usize,
) -> (Vec<f64>, Vec<f64>) {
    let all = figures(base, ours);
    let found = all.into_iter().find(|(at, ..)| *at == users);
    found.map_or_else(Default::default, |(_, base, ours)| (base, ours))
}

/// What was published.
enum Table {
    None,
    HammerDb(Vec<HammerDb>),
    FixedWork(Vec<Cluster>),
}

impl Table {
    fn of(file: &OltpScenario) -> Result<Self, LabError> {
        Ok(match file.published()? {
            PublishedTable::HammerDb => Self::HammerDb(HammerDb::rows()?),
            PublishedTable::Cluster if file.oltp.is_some() => {
                Self::FixedWork(Cluster::fixed_work()?)
            }
            _ => Self::None,
        })
    }

    fn ratio(
        &self,
        places: &[&str],
        base: &ConfigurationResult,
        ours: &ConfigurationResult,
        users: usize,
    ) -> Option<f64> {
        match self {
            Self::None => None,
            Self::HammerDb(rows) => {
                let of = |c: &ConfigurationResult| published_nopm(rows, places, c, users);
                Some(of(ours)? / of(base)?)
            }
            Self::FixedWork(rows) => {
                let is_pair = base.topology == Some(Topology::Standalone)
                    && ours.topology == Some(Topology::AvailabilityGroup)
                    && base.place == ours.place;
                let row = rows.iter().find(|row| row.concurrency == users)?;
                is_pair.then(|| row.bag_run_time / row.fci_run_time)
            }
        }
    }
}

/// The first place stands for the published local drives, the second for the remote ones.
fn published_nopm(
    rows: &[HammerDb],
    places: &[&str],
    of: &ConfigurationResult,
    users: usize,
) -> Option<f64> {
    let topology = match of.topology? {
        Topology::Standalone => "standalone",
        Topology::AvailabilityGroup => "availability_group",
    };
    let memory = of.memory_pct?;
    let row = rows.iter().find(|row| {
        row.metric == "nopm"
            && row.virtual_users == users
            && row.topology == topology
            && (row.memory_pct() - memory).abs() < 1.0
    })?;
    match places.iter().position(|place| *place == of.place)? {
        0 => Some(row.local),
        1 => Some(row.remote),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::OltpResult;
    use crate::scenario::SHIPPED;

    fn of(place: &str, topology: Topology, memory: f64, nopm: f64) -> ConfigurationResult {
        let run = OltpResult::sample(2, &[1.0, 2.0, 3.0].map(|more| nopm + more));
        ConfigurationResult {
            name: format!("{place}, {topology}, {memory}"),
            place: place.into(),
            topology: Some(topology),
            memory_pct: Some(memory),
            oltp: Some(run),
            ..ConfigurationResult::default()
        }
    }

    #[test]
    fn each_configuration_is_compared_with_those_that_differ_in_one_thing() {
        use Topology::{AvailabilityGroup, Standalone};
        let text = SHIPPED[0].1;
        let mut file = OltpScenario::parse(text).expect("sound");
        let oltp = file.oltp.as_mut().expect("a load");
        oltp.users = vec![2];
        let mut all_of = vec![
            of("here", Standalone, 38.0, 1000.0),
            of("there", Standalone, 38.0, 810.0),
            of("here", Standalone, 9.5, 900.0),
            of("here", AvailabilityGroup, 38.0, 500.0),
            of("there", AvailabilityGroup, 9.5, 400.0),
        ];
        let found = all(&all_of, &file, &[100]).expect("compared");
        let told: Vec<(&str, &str, f64)> = found
            .iter()
            .map(|c| {
                (
                    c.differ_in.as_str(),
                    c.ours.as_str(),
                    c.published.expect("published"),
                )
            })
            .collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert_eq!(
            (told[0].0, told[1].0, told[2].0),
            ("place", "memory", "topology")
        );
        // 1,567,104 of 1,929,194; 1,847,859 of it; 1,521,866 of it.
        for (found, published) in told.iter().zip([0.8123, 0.9578, 0.7889]) {
            assert!((found.2 - published).abs() < 1e-3, "{found:?}");
        }
        let text = &found[0].text;
        assert!(
            text.contains("is 0.81 x here") && text.contains("3 interleaved pairs"),
            "{text}"
        );
        assert_eq!((found[0].users, found[0].users_as_written), (2, 100));
        // A repeat without a partner is left out, and the same again is compared as well.
        all_of.truncate(1);
        all_of.push(of("here", Standalone, 38.0, 1000.0));
        if let Some(run) = &mut all_of[1].oltp {
            run.steps[1].partial = true;
        }
        let found = all(&all_of, &file, &[100]).expect("compared");
        assert_eq!((found.len(), found[0].differ_in.as_str()), (1, "nothing"));
        assert_eq!((found[0].ratio.pairs, found[0].ratio.ratio), (2, 1.0));
    }
}
