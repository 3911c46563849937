//! A scenario's rows: run times of both sides, what was published, and what storage moved meanwhile.

use ashlar_lab::LabError;
use ashlar_lab::stats::{Ratio, median};
use serde::{Deserialize, Serialize};

use super::meter::{Meter, Moved};
use crate::published::Cluster;
use crate::scenario::{ConfigurationResult, PublishedSide, ScenarioResult};

/// Bytes of a MB.
const MB: f64 = 1e6;

/// A scenario, run on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The scenario's name, and the directory of its own report.
    pub name: String,
    pub title: String,
    /// In words: how it was scaled.
    pub scaled: String,
    /// `readers` or `users`.
    pub crowd: String,
    /// Which side was better at it, and by how much.
    pub sentence: String,
    /// A row for each number of readers or users.
    pub rows: Vec<Row>,
}

/// A number of readers or users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Readers or users.
    pub count: usize,
    /// As many as the scenario has written there.
    pub as_written: usize,
    /// Seconds of the instance, median over repeats.
    pub fci_run_time_s: f64,
    /// Seconds of the group.
    pub group_run_time_s: f64,
    /// The group's run time to the instance's.
    pub ratio: Ratio,
    /// What was published for as many as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// What storage moved meanwhile, each on its own side's turns.
    pub moved: Vec<Rate>,
}

/// A published row: other hardware, another database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Run time of the instance, in `unit`.
    pub fci: f64,
    /// Run time of the group.
    pub group: f64,
    /// `s` or `min`.
    pub unit: String,
    /// MB/s of the instance's volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fci_volume_mb_s: Option<f64>,
    /// MB/s of the group's drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_drive_mb_s: Option<f64>,
}

/// What one volume or drive moved while its side worked, 10^6 bytes a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub what: String,
    pub side: Moved,
    pub read_mb_s: f64,
    pub write_mb_s: f64,
}

/// When a side worked with so many.
#[derive(Clone, Copy)]
struct Turn {
    count: usize,
    began: f64,
    seconds: f64,
}

impl Part {
    /// A scenario's part, with what was seen of the storage.
    ///
    /// # Errors
    /// The published table is damaged.
    pub fn of(result: &ScenarioResult, meters: &[Meter]) -> Result<Self, LabError> {
        let side = |wanted| {
            let all = result.configurations.iter();
            all.clone().find(move |of| of.published == Some(wanted))
        };
        let (fci, group) = (side(PublishedSide::Fci), side(PublishedSide::Bag));
        let is_scan = fci.is_some_and(|of| of.scan.is_some());
        let table = match is_scan {
            true => Cluster::scans()?,
            false => Cluster::fixed_work()?,
        };
        let unit = if is_scan { "s" } else { "min" };
        let (fci_turns, group_turns) = (turns(fci), turns(group));
        let rows = result.comparisons.iter().map(|of| Row {
            count: of.users,
            as_written: of.users_as_written,
            fci_run_time_s: run_time(&fci_turns, of.users),
            group_run_time_s: run_time(&group_turns, of.users),
            ratio: of.ratio.clone(),
            published: table
                .iter()
                .find(|row| row.concurrency == of.users_as_written)
                .map(|row| Published {
                    fci: row.fci_run_time,
                    group: row.bag_run_time,
                    unit: unit.into(),
                    fci_volume_mb_s: row.fci_ha_image_mbps,
                    group_drive_mb_s: row.bag_ssd_mbps,
                }),
            moved: meters
                .iter()
                .filter_map(|meter| {
                    let turns = match meter.side {
                        Moved::Fci => &fci_turns,
                        Moved::Group => &group_turns,
                    };
                    rate(meter, turns, of.users)
                })
                .collect(),
        });
        let note =
            result.head.scenario.clone().ok_or_else(|| {
                LabError::environment("a result of databases without its scenario")
            })?;
        let mut part = Self {
            name: note.name,
            title: result.head.title.clone(),
            scaled: note.scaled,
            crowd: if is_scan { "readers" } else { "users" }.into(),
            sentence: String::new(),
            rows: rows.collect(),
        };
        part.sentence = part.in_words();
        Ok(part)
    }

    /// Which side was better with how many, and in which range.
    fn in_words(&self) -> String {
        let of = |wanted: &dyn Fn(&Row) -> bool| -> Vec<&Row> {
            self.rows.iter().filter(|row| wanted(row)).collect()
        };
        let group = of(&|row| row.ratio.differs && row.ratio.ratio < 1.0);
        let fci = of(&|row| row.ratio.differs && row.ratio.ratio > 1.0);
        let neither = of(&|row| !row.ratio.differs);
        let mut said = Vec::new();
        // Told as how many times the run time of the quicker one.
        said.extend(self.quicker("the group", &group, |ratio| Ends {
            low: 1.0 / ratio.high,
            middle: 1.0 / ratio.ratio,
            high: 1.0 / ratio.low,
        }));
        said.extend(
            self.quicker("the instance on the replicated volume", &fci, |ratio| {
                Ends {
                    low: ratio.low,
                    middle: ratio.ratio,
                    high: ratio.high,
                }
            }),
        );
        if !neither.is_empty() {
            let ends = ends(&neither, |ratio| Ends {
                low: ratio.low,
                middle: ratio.ratio,
                high: ratio.high,
            });
            said.push(format!(
                "with {} no difference could be told (the group's run time was {:.2} to {:.2} of the instance's)",
                self.counts(&neither),
                ends.low,
                ends.high
            ));
        }
        if said.is_empty() {
            said.push("nothing was measured".into());
        }
        format!("{}: {}.", self.asked(), said.join("; "))
    }

    /// What is asked, and how much of it: a title says what is written there, and not what was run.
    pub(crate) fn asked(&self) -> String {
        match &*self.scaled {
            "" | "as written" => self.title.clone(),
            scaled => format!("{} (run: {scaled})", self.title),
        }
    }

    fn quicker(&self, who: &str, rows: &[&Row], told: fn(&Ratio) -> Ends) -> Option<String> {
        if rows.is_empty() {
            return None;
        }
        let all: Vec<Ends> = rows.iter().map(|row| told(&row.ratio)).collect();
        let ends = ends(rows, told);
        let middle: Vec<f64> = all.iter().map(|one| one.middle).collect();
        let least = middle.iter().copied().fold(f64::INFINITY, f64::min);
        let most = middle.iter().copied().fold(0.0, f64::max);
        let by = match rows.len() {
            1 => format!("{least:.2} times"),
            _ => format!("{least:.2} to {most:.2} times"),
        };
        Some(format!(
            "with {} {who} was quicker, {by} (ranges {:.2} to {:.2})",
            self.counts(rows),
            ends.low,
            ends.high
        ))
    }

    fn counts(&self, rows: &[&Row]) -> String {
        let counts: Vec<String> = rows.iter().map(|row| row.count.to_string()).collect();
        let crowd = match &counts[..] {
            [one] if one == "1" => self.crowd.trim_end_matches('s'),
            _ => &self.crowd,
        };
        format!("{} {crowd}", counts.join(", "))
    }
}

/// A ratio, as it is told.
#[derive(Clone, Copy)]
struct Ends {
    low: f64,
    middle: f64,
    high: f64,
}

/// The lowest and the highest of all.
fn ends(rows: &[&Row], told: fn(&Ratio) -> Ends) -> Ends {
    let begin = Ends {
        low: f64::INFINITY,
        middle: 1.0,
        high: 0.0,
    };
    let ratios = rows.iter().map(|row| told(&row.ratio));
    ratios.fold(begin, |all, one| Ends {
        low: all.low.min(one.low),
        middle: one.middle,
        high: all.high.max(one.high),
    })
}

fn turns(of: Option<&ConfigurationResult>) -> Vec<Turn> {
    let Some(of) = of else { return Vec::new() };
    let scans = of.scan.iter().flat_map(|scan| &scan.steps);
    let scans = scans.map(|step| Turn {
        count: step.readers,
        began: step.began_unix_s,
        seconds: step.run_time_s,
    });
    let loads = of.oltp.iter().flat_map(|load| &load.steps);
    let loads = loads.map(|step| Turn {
        count: step.users,
        began: step.began_unix_s,
        seconds: step.elapsed_s,
    });
    scans.chain(loads).collect()
}

fn run_time(turns: &[Turn], count: usize) -> f64 {
    let of = turns.iter().filter(|turn| turn.count == count);
    let times: Vec<f64> = of.map(|turn| turn.seconds).collect();
    if times.is_empty() {
        0.0
    } else {
        median(&times)
    }
}

/// Over all turns of a side with so many that were looked at: those before a run went on were not.
fn rate(meter: &Meter, turns: &[Turn], count: usize) -> Option<Rate> {
    let (mut read, mut written, mut seconds) = (0.0, 0.0, 0.0);
    for turn in turns.iter().filter(|turn| turn.count == count) {
        let Some((r, w)) = meter.between(turn.began, turn.began + turn.seconds) else {
            continue;
        };
        read += r;
        written += w;
        seconds += turn.seconds;
    }
    (seconds > 0.0).then(|| Rate {
        what: meter.name.clone(),
        side: meter.side,
        read_mb_s: read / MB / seconds,
        write_mb_s: written / MB / seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(count: usize, fci: &[f64], group: &[f64]) -> Row {
        Row {
            count,
            as_written: count,
            fci_run_time_s: median(fci),
            group_run_time_s: median(group),
            ratio: Ratio::of(fci, group).expect("pairs"),
            published: None,
            moved: Vec::new(),
        }
    }

    #[test]
    fn the_sentence_says_which_was_better_with_how_many_and_its_range() {
        let mut part = Part {
            name: "scan".into(),
            title: "A table".into(),
            scaled: "500 rows".into(),
            crowd: "readers".into(),
            sentence: String::new(),
            rows: vec![
                row(1, &[1.0, 1.01, 0.99], &[2.0, 2.02, 1.98]),
                row(4, &[4.0, 4.01, 4.02], &[2.0, 2.0, 2.0]),
                row(8, &[1.0, 1.3, 0.8], &[1.1, 1.0, 1.0]),
            ],
        };
        part.sentence = part.in_words();
        let text = &part.sentence;
        for wanted in [
            "A table (run: 500 rows): with",
            "with 4 readers the group was quicker, 2.0",
            "with 1 reader the instance on the replicated volume was quicker, 2.0",
            "with 8 readers no difference could be told",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }

    #[test]
    fn rates_are_of_the_sides_own_turns() {
        let sample = |at: f64| super::super::Sample {
            at,
            read: (at * 1e6) as u64,
            written: 0,
        };
        let meter = Meter {
            name: "volume".into(),
            side: Moved::Fci,
            samples: (0..20).map(|n| sample(f64::from(n))).collect(),
        };
        let turns = [Turn {
            count: 2,
            began: 3.5,
            seconds: 4.0,
        }];
        let found = rate(&meter, &turns, 2).expect("a rate");
        assert!((found.read_mb_s - 1.0).abs() < 1e-6, "{found:?}");
        assert_eq!(rate(&meter, &turns, 3), None);
        // A turn before a run went on has no looks: the others tell.
        let before = Turn {
            began: -9.0,
            ..turns[0]
        };
        let [seen] = turns;
        assert_eq!(rate(&meter, &[before, seen], 2), Some(found));
    }
}
