//! Comparisons as a person reads them: those of the same two things in one table, what stays fixed in
//! columns, a row for each number of users.

use ashlar_lab::short::Short;
use ashlar_lab::stats::{Measure, Ratio, median};
use ashlar_lab::units::grouped;
use ashlar_lab::{A_RUN_IS_PARTIAL, Comparable, Figure, Figures, Row as LabRow};

use super::compared::{Compared, figures, is_run_time, pairs_of};
use super::result::{ConfigurationResult, ScenarioResult};
use crate::compare::cautions;
use crate::report::short::question;

/// What configurations may differ in, in the order in which it is told, and how a table calls it.
const FACTORS: [(&str, &str); 5] = [
    ("configuration", "configuration"),
    ("place", "place"),
    ("topology", "topology"),
    ("memory", "memory"),
    ("slow_down", "slowed by"),
];

/// One thing against another, everywhere where they were compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// What differs: `place`, …
    differ_in: String,
    /// The one that is the 100 %.
    base: String,
    ours: String,
    /// A load told by its run time; otherwise by its new orders a minute.
    is_run_time: bool,
    /// Users or readers.
    crowd: &'static str,
    /// What stays fixed in a row.
    fixed: Vec<&'static str>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq)]
struct Row {
    fixed: Vec<String>,
    users: usize,
    users_as_written: usize,
    /// Medians over the pairs.
    figures: (f64, f64),
    ratio: Ratio,
    published: Option<f64>,
}

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// What a row is about.
    Key,
    Figure,
    Ratio,
    Words,
    Published,
}

/// A column of a table.
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) look: Look,
    pub(crate) cells: Vec<String>,
}

impl Group {
    /// The comparisons of a scenario, by what is compared.
    pub(crate) fn of(result: &ScenarioResult) -> Vec<Self> {
        let all = &result.configurations;
        let mut groups: Vec<Self> = Vec::new();
        for compared in &result.comparisons {
            let named = |name: &str| all.iter().find(|of| of.name == name);
            let Some((base, ours)) = named(&compared.base).zip(named(&compared.ours)) else {
                continue;
            };
            let what = &*compared.differ_in;
            let sides = match what {
                "nothing" => (base.name.clone(), ours.name.clone()),
                what => (value(base, what), value(ours, what)),
            };
            let fixed = fixed(all, what);
            let row = Row::of(compared, (base, ours), &fixed);
            let empty = Self::new(what, sides, ours, fixed);
            push(&mut groups, empty, row);
        }
        groups.iter_mut().for_each(|group| group.sort(all));
        let place = |group: &Self| {
            let at = FACTORS
                .iter()
                .position(|(what, _)| *what == group.differ_in);
            at.unwrap_or(FACTORS.len())
        };
        groups.sort_by_key(place);
        groups
    }

    fn new(
        differ_in: &str,
        (base, ours): (String, String),
        of: &ConfigurationResult,
        fixed: Vec<&'static str>,
    ) -> Self {
        Self {
            differ_in: differ_in.to_owned(),
            base,
            ours,
            is_run_time: is_run_time(of),
            crowd: if of.scan.is_some() {
                "readers"
            } else {
                "users"
            },
            fixed,
            rows: Vec::new(),
        }
    }

    /// Rows of the same fixed things together, in the order in which configurations have them.
    fn sort(&mut self, all: &[ConfigurationResult]) {
        let fixed = &self.fixed;
        self.rows.sort_by_key(|row| {
            let place = |(what, found): (&&str, &String)| {
                all.iter().position(|of| value(of, what) == *found)
            };
            let places: Vec<_> = fixed.iter().zip(&row.fixed).map(place).collect();
            (places, row.users)
        });
    }

    /// What is compared, in words.
    pub(crate) fn heading(&self) -> String {
        let Self { base, ours, .. } = self;
        let against = format!("{ours} against {base}");
        match &*self.differ_in {
            "configuration" => against,
            "place" => format!("Storage place: {against}"),
            "topology" => format!("Topology: {against}"),
            "memory" => format!("Memory: {against} of the database"),
            "slow_down" => format!("Slowed down on purpose: by {against}"),
            _ => format!("The same again: {against}"),
        }
    }

    /// What its ratios are of.
    pub(crate) fn figure(&self) -> &'static str {
        if self.is_run_time { "run time" } else { "NOPM" }
    }

    fn measure(&self) -> Measure {
        match self.is_run_time {
            true => Measure::Time,
            false => Measure::Amount,
        }
    }

    /// A question for each of its blocks, in which only the users differ.
    pub(crate) fn short(&self) -> Vec<Short> {
        let one = self.crowd.trim_end_matches('s');
        let of = |rows: &[Row]| {
            let counts: Vec<usize> = rows.iter().map(|row| row.users).collect();
            let ratios: Vec<&Ratio> = rows.iter().map(|row| &row.ratio).collect();
            let fixed = rows.first().map_or(&[][..], |row| &row.fixed);
            let fixed: String = fixed.iter().map(|of| format!(", {of}")).collect();
            let asked = question(self.figure(), &counts, one) + &fixed;
            let sides = format!("{} against {}", self.ours, self.base);
            let published: Vec<f64> = rows.iter().filter_map(|row| row.published).collect();
            Short::of(asked, sides, &ratios, "step", self.measure()).beside(&published)
        };
        let blocks = self.rows.chunk_by(|one, next| one.fixed == next.fixed);
        blocks.map(of).collect()
    }

    /// Whether the ranges of this group have room to be tighter.
    fn wide(&self) -> usize {
        let rows = self.rows.iter();
        rows.filter(|row| row.ratio.pairs < 2 || !row.ratio.is_within(TIGHT_PCT))
            .count()
    }

    pub(crate) fn columns(&self) -> Vec<Column> {
        let column = |name: String, look, cell: &dyn Fn(&Row) -> String| Column {
            name,
            look,
            cells: self.rows.iter().map(cell).collect(),
        };
        let mut all: Vec<Column> = Vec::new();
        for (at, what) in self.fixed.iter().enumerate() {
            let named = FACTORS.iter().find(|(factor, _)| factor == what);
            let name = named.map_or(*what, |(_, name)| name);
            all.push(column(name.into(), Look::Key, &|row| row.fixed[at].clone()));
        }
        all.push(column(self.crowd.into(), Look::Key, &|r| {
            r.users.to_string()
        }));
        let unit = if self.is_run_time { "s" } else { "NOPM" };
        let figure = |value: f64| match self.is_run_time {
            true => format!("{value:.2}"),
            false => grouped(value),
        };
        let (base, ours) = (&self.base, &self.ours);
        let name = |side: &str| format!("{unit} {side}");
        all.push(column(name(base), Look::Figure, &|r| figure(r.figures.0)));
        all.push(column(name(ours), Look::Figure, &|r| figure(r.figures.1)));
        all.push(column("ratio".into(), Look::Ratio, &|r| {
            format!("{:.2}", r.ratio.ratio)
        }));
        all.push(column("range".into(), Look::Figure, &|r| range(&r.ratio)));
        all.push(column("pairs".into(), Look::Figure, &|r| {
            r.ratio.pairs.to_string()
        }));
        all.push(column("sure".into(), Look::Figure, &|r| sure(&r.ratio)));
        all.push(column("verdict".into(), Look::Words, &|r| {
            r.ratio.verdict(self.measure())
        }));
        if self.rows.iter().any(|row| row.published.is_some()) {
            all.push(column("published".into(), Look::Published, &|r| {
                r.published
                    .map_or("-".into(), |ratio| format!("{ratio:.2}"))
            }));
            let its = format!("its {}", self.crowd);
            all.push(column(its, Look::Published, &|r| {
                r.users_as_written.to_string()
            }));
        }
        all
    }

    /// The first row of each block: something fixed is another than above.
    pub(crate) fn begins_block(&self, row: usize) -> bool {
        row > 0 && self.rows[row].fixed != self.rows[row - 1].fixed
    }

    /// The table as text.
    pub(crate) fn text(&self) -> String {
        let columns = self.columns();
        let width = |column: &Column| {
            let cells = column.cells.iter().map(|cell| cell.chars().count());
            cells
                .chain([column.name.chars().count()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = columns.iter().map(width).collect();
        let line = |cell: &dyn Fn(&Column) -> String| {
            let mut line = String::new();
            for (column, width) in columns.iter().zip(&widths) {
                let text = cell(column);
                let is_number = column.cells.iter().all(|c| c.parse::<f64>().is_ok());
                let to_left =
                    matches!(column.look, Look::Words) || (column.look == Look::Key && !is_number);
                line += &match to_left {
                    true => format!("  {text:<width$}"),
                    false => format!("  {text:>width$}"),
                };
            }
            line.trim_end().to_owned() + "\n"
        };
        let mut told = format!("{} ({})\n", self.heading(), self.figure());
        told += &line(&|column| column.name.clone());
        for row in 0..self.rows.len() {
            told += &line(&|column| column.cells[row].clone());
        }
        told
    }
}

/// Adds a row to the group that compares the same.
fn push(groups: &mut Vec<Group>, empty: Group, row: Row) {
    let is_same = |group: &Group| {
        (&group.differ_in, &group.base, &group.ours) == (&empty.differ_in, &empty.base, &empty.ours)
    };
    match groups.iter_mut().find(|group| is_same(group)) {
        Some(group) => group.rows.push(row),
        None => groups.push(Group {
            rows: vec![row],
            ..empty
        }),
    }
}

impl Row {
    fn of(
        compared: &Compared,
        (base, ours): (&ConfigurationResult, &ConfigurationResult),
        fixed: &[&str],
    ) -> Self {
        let pairs = pairs_of(base, ours, compared.users);
        Self {
            fixed: fixed.iter().map(|what| value(ours, what)).collect(),
            users: compared.users,
            users_as_written: compared.users_as_written,
            figures: (median(&pairs.0), median(&pairs.1)),
            ratio: compared.ratio.clone(),
            published: compared.published,
        }
    }
}

fn range(ratio: &Ratio) -> String {
    match ratio.pairs {
        0 | 1 => "-".into(),
        _ => format!("{:.2}-{:.2}", ratio.low, ratio.high),
    }
}

/// How often such a range has the true ratio in it, at least; never more than it is.
fn sure(ratio: &Ratio) -> String {
    match ratio.confidence > 0.0 {
        true => format!("{} %", (100.0 * ratio.confidence + 1e-9).floor()),
        false => "-".into(),
    }
}

/// What a configuration has of something that configurations differ in.
fn value(of: &ConfigurationResult, what: &str) -> String {
    match what {
        // The same again is told from the first by its number.
        "place" => match of.name.rsplit_once(" (") {
            Some((_, number)) if number.ends_with(')') => format!("{} ({number}", of.place),
            _ => of.place.clone(),
        },
        "configuration" => of.configuration.clone().unwrap_or_default(),
        "topology" => of.topology.map_or("-".into(), |t| t.to_string()),
        "memory" => of
            .memory_pct
            .map_or("no limit".into(), |p| format!("{p} %")),
        _ => format!("{} %", of.slow_down_pct),
    }
}

/// What stays fixed where this differs, of what a scenario knows.
fn fixed(all: &[ConfigurationResult], differ_in: &str) -> Vec<&'static str> {
    let are_named = all.iter().any(|of| of.configuration.is_some());
    let is_told = |what: &str| match what {
        "configuration" => are_named,
        // A configuration's name stands for both.
        "place" | "topology" if are_named => false,
        "place" => true,
        "topology" => all.iter().any(|of| of.topology.is_some()),
        "memory" => all.iter().any(|of| of.memory_pct.is_some()),
        _ => all.iter().any(|of| of.slow_down_pct > 0.0),
    };
    let names = FACTORS.iter().map(|(what, _)| *what);
    names
        .filter(|what| *what != differ_in && is_told(what))
        .collect()
}

/// Ranges that are within this of their ratio are tight.
const TIGHT_PCT: f64 = 10.0;

/// What gives tighter ranges, if some are wide.
pub(crate) fn hint(result: &ScenarioResult, groups: &[Group]) -> Option<String> {
    let of = result.configurations.first()?;
    let in_turns = of.oltp.as_ref().is_some_and(|run| run.method.in_turns);
    let (wide, all) = groups.iter().fold((0, 0), |(wide, all), group| {
        (wide + group.wide(), all + group.rows.len())
    });
    if wide == 0 || in_turns {
        return None;
    }
    let can_turn =
        |group: &&Group| ["configuration", "place", "slow_down"].contains(&&*group.differ_in);
    let by_turns: usize = groups.iter().filter(can_turn).map(Group::wide).sum();
    let by_turns = by_turns > 0 && !is_run_time(of);
    Some(format!(
        "{wide} of {all} ranges are wider than {TIGHT_PCT} % to a side: {}",
        if by_turns {
            "a section [turns] in a copy of the scenario, with one topology and one memory_pct, compares \
             places far more tightly (docs/oltp.md, Turns); otherwise more repeats"
        } else {
            "more repeats give tighter ones"
        }
    ))
}

/// Configurations of the same name in two runs.
impl Comparable for ScenarioResult {
    fn rows(&self, other: &Self) -> Vec<LabRow> {
        let mut rows = Vec::new();
        for (base, ours) in partners(self, other) {
            let is_run_time = is_run_time(base);
            if is_run_time != self::is_run_time(ours) {
                continue;
            }
            let figure = match is_run_time {
                true => Figure::RunTimeS,
                false => Figure::Nopm,
            };
            for (users, first, second) in figures(base, ours) {
                let figures = Figures {
                    all: [first.clone(), second.clone()],
                    pairs: (first, second),
                };
                let crowd = if base.scan.is_some() {
                    "readers"
                } else {
                    "users"
                };
                let row = LabRow::of(format!("{users} {crowd}"), figure, &figures);
                rows.extend(row.map(|row| LabRow {
                    configuration: base.name.clone(),
                    latency_us: p95s(base, ours, users),
                    ..row
                }));
            }
        }
        rows
    }

    fn cautions(&self, other: &Self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        if self.head.partial || other.head.partial {
            notes.push(A_RUN_IS_PARTIAL.into());
        }
        for (base, ours) in partners(self, other) {
            if let Some((one, other)) = base.oltp.as_ref().zip(ours.oltp.as_ref()) {
                notes.extend(cautions(one, other));
            }
            if is_run_time(base) != is_run_time(ours) {
                let name = &base.name;
                notes.push(format!(
                    "{name} is timed in one and of fixed work in the other: not compared"
                ));
            }
        }
        notes
    }

    fn contents(&self) -> String {
        let names: Vec<&str> = self.configurations.iter().map(|of| &*of.name).collect();
        names.join("; ")
    }
}

fn partners<'a>(
    a: &'a ScenarioResult,
    b: &'a ScenarioResult,
) -> impl Iterator<Item = (&'a ConfigurationResult, &'a ConfigurationResult)> {
    a.configurations.iter().filter_map(|base| {
        let ours = b.configurations.iter().find(|of| of.name == base.name)?;
        Some((base, ours))
    })
}

fn p95s(a: &ConfigurationResult, b: &ConfigurationResult, users: usize) -> Option<[f64; 2]> {
    let p95 = |of: &ConfigurationResult| of.oltp.as_ref()?.p95_us(users);
    Some([p95(a)?, p95(b)?])
}

#[cfg(test)]
mod tests;
