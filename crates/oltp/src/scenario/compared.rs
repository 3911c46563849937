//! How configurations of a scenario compare: pairs of interleaved repeats, and what was published.

use ashlar_lab::LabError;
use ashlar_lab::stats::{Ratio, correct};
use serde::{Deserialize, Serialize};

use super::file::{OltpScenario, PublishedTable};
use super::named::PublishedSide;
use super::result::ConfigurationResult;
use super::turns;
use crate::compare::repeat_by_repeat;
use crate::published::{Cluster, FlashCache, HammerDb};
use crate::result::StepResult;
use crate::server::Topology;

/// The figure of fixed work and of scans: more is slower.
pub(super) const RUN_TIME: &str = "run_time_s";

/// One configuration against another, at one number of users or readers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// What they differ in: `place`, `topology`, `memory`, `slow_down`, `nothing`; `configuration` of those that the
    /// scenario names.
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
    pub ratio: Ratio,
    /// In words.
    pub text: String,
    /// The ratio that was published for users as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
}

/// One configuration against another, by their places in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partners {
    /// The 100 %.
    pub(super) base: usize,
    pub(super) ours: usize,
    pub(super) differ_in: &'static str,
}

/// All comparisons: of what the scenario asks for by name; otherwise of places, of topologies, of memory sizes, of
/// slowed runs, each with the first.
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
    for partners in pairs(configurations, file) {
        let (base, ours) = (
            &configurations[partners.base],
            &configurations[partners.ours],
        );
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
                differ_in: partners.differ_in.to_owned(),
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

/// What is compared with what.
pub(super) fn pairs(configurations: &[ConfigurationResult], file: &OltpScenario) -> Vec<Partners> {
    if file.configuration.is_empty() {
        let each = (0..configurations.len()).flat_map(|ours| bases(configurations, ours));
        return each.collect();
    }
    let mut found = Vec::new();
    for [base, ours] in file.asked_pairs() {
        // Under like conditions.
        for (base, first) in named(configurations, base) {
            let is_like = |(_, of): &(usize, &ConfigurationResult)| {
                (of.memory_pct, of.slow_down_pct) == (first.memory_pct, first.slow_down_pct)
            };
            let like = named(configurations, ours).find(is_like);
            found.extend(like.map(|(ours, _)| Partners {
                base,
                ours,
                differ_in: "configuration",
            }));
        }
    }
    found
}

/// Those of a name, with their places.
fn named<'a>(
    all: &'a [ConfigurationResult],
    name: &'a str,
) -> impl Iterator<Item = (usize, &'a ConfigurationResult)> {
    let is_it =
        move |(_, of): &(usize, &ConfigurationResult)| of.configuration.as_deref() == Some(name);
    all.iter().enumerate().filter(is_it)
}

/// Earlier configurations that differ in one thing only, of each thing the first.
fn bases(all: &[ConfigurationResult], index: usize) -> Vec<Partners> {
    let ours = &all[index];
    let mut found: Vec<Partners> = Vec::new();
    for (at, base) in all[..index].iter().enumerate() {
        let differences = [
            (base.place != ours.place, "place"),
            (base.topology != ours.topology, "topology"),
            (base.memory_pct != ours.memory_pct, "memory"),
            (base.slow_down_pct != ours.slow_down_pct, "slow_down"),
        ];
        let mut differing = differences.iter().filter(|(differs, _)| *differs);
        let differ_in = match (differing.next(), differing.next()) {
            (None, _) => "nothing",
            (Some((_, what)), None) => what,
            _ => continue,
        };
        if !found.iter().any(|other| other.differ_in == differ_in) {
            found.push(Partners {
                base: at,
                ours: index,
                differ_in,
            });
        }
    }
    found
}

type Figures = (usize, Vec<f64>, Vec<f64>);

/// Figures of both, repeat by repeat, for each number of users or readers.
pub(super) fn figures(base: &ConfigurationResult, ours: &ConfigurationResult) -> Vec<Figures> {
    if let (Some(a), Some(b)) = (&base.scan, &ours.scan) {
        let of = |readers: usize| {
            let (base, ours) = repeat_by_repeat(&a.run_times(readers), &b.run_times(readers));
            (readers, base, ours)
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
    /// Of one instance on replicated storage, and of a group on local drives: run times.
    Cluster(Vec<Cluster>),
    /// Of disks with and without a cache of flash: transactions a minute, at one number of users.
    FlashCache(Vec<FlashCache>),
}

impl Table {
    fn of(file: &OltpScenario) -> Result<Self, LabError> {
        Ok(match file.published()? {
            PublishedTable::HammerDb => Self::HammerDb(HammerDb::rows()?),
            PublishedTable::Cluster => Self::Cluster(match file.oltp {
                Some(_) => Cluster::fixed_work()?,
                None => Cluster::scans()?,
            }),
            PublishedTable::FlashCache => Self::FlashCache(FlashCache::of_one_disk()?),
            PublishedTable::None => Self::None,
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
            Self::FlashCache(rows) => {
                let of = |side: PublishedSide| {
                    let files = match side {
                        PublishedSide::Uncached => "none",
                        PublishedSide::Everything => "os+log+data",
                        PublishedSide::Data => "data",
                        _ => return None,
                    };
                    let row = rows.iter().find(|row| row.cached_files == files)?;
                    Some(row.tpm)
                };
                Some(of(ours.published?)? / of(base.published?)?)
            }
            // The table answers one question; two configurations that ask another have none beside them.
            Self::Cluster(rows) => {
                let row = rows.iter().find(|row| row.concurrency == users)?;
                match (base.published?, ours.published?) {
                    (PublishedSide::Fci, PublishedSide::Bag) => {
                        Some(row.bag_run_time / row.fci_run_time)
                    }
                    (PublishedSide::Bag, PublishedSide::Fci) => {
                        Some(row.fci_run_time / row.bag_run_time)
                    }
                    _ => None,
                }
            }
        }
    }
}

/// Unless the scenario says so, the first place stands for the published local drives, the second for the remote ones.
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
    match (
        of.published,
        places.iter().position(|place| *place == of.place)?,
    ) {
        (Some(PublishedSide::Local), _) => Some(row.local),
        (Some(PublishedSide::Remote), _) => Some(row.remote),
        (None, 0) if of.configuration.is_none() => Some(row.local),
        (None, 1) if of.configuration.is_none() => Some(row.remote),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::OltpResult;
    use crate::scenario::SHIPPED;

    /// A named configuration, of fixed work.
    fn named(name: &str, side: Option<PublishedSide>, run_time_s: f64) -> ConfigurationResult {
        let mut run = OltpResult::sample(8, &[1.0, 2.0, 3.0]);
        run.method.mode = "fixed:100".into();
        run.steps
            .iter_mut()
            .for_each(|step| step.elapsed_s = run_time_s);
        ConfigurationResult {
            name: format!("{name}, 38 % memory"),
            configuration: Some(name.into()),
            published: side,
            memory_pct: Some(38.0),
            oltp: Some(run),
            ..ConfigurationResult::default()
        }
    }

    #[test]
    fn named_configurations_are_compared_as_asked_and_the_published_ratio_has_one_place() {
        let text = "
            name = 'x'
            published = 'fci_vs_basic_ag.csv'
            compare = [['group', 'fci'], ['fci', 'other']]
            [oltp]
            warehouses = 1
            users = [8]
            transactions = 100
            [[configuration]]
            name = 'fci'
            place = 'shared'
            [[configuration]]
            name = 'other'
            place = 'shared'
            [[configuration]]
            name = 'group'
            place = 'own'
            topology = 'availability-group'
        ";
        let mut file = OltpScenario::parse(text).expect("sound");
        let all_of = [
            named("fci", Some(PublishedSide::Fci), 10.0),
            named("other", None, 5.0),
            named("group", Some(PublishedSide::Bag), 20.0),
            // Not under the conditions of any other.
            ConfigurationResult {
                memory_pct: None,
                ..named("group", Some(PublishedSide::Bag), 20.0)
            },
        ];
        let told = |file: &OltpScenario| {
            let found = all(&all_of, file, &[10]).expect("compared");
            let of = |c: &Compared| {
                let names = format!("{} / {}", c.ours, c.base).replace(", 38 % memory", "");
                (names, c.ratio.ratio, c.published)
            };
            found.iter().map(of).collect::<Vec<_>>()
        };
        // 9 minutes against 10 with ten users, as the scenario has it written.
        assert_eq!(
            told(&file),
            [
                ("fci / group".to_owned(), 0.5, Some(0.9)),
                ("other / fci".to_owned(), 0.5, None)
            ]
        );
        file.compare.clear();
        let names: Vec<String> = told(&file).into_iter().map(|(names, ..)| names).collect();
        assert_eq!(names, ["other / fci", "group / fci"]);
    }

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
