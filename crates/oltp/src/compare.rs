//! Two OLTP runs side by side: what a difference is worth.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ashlar_lab::result::{DatabaseResult, DatabaseStep};
use ashlar_lab::{
    A_RUN_IS_PARTIAL, Comparable, Comparison, Figure, Figures, LabError, ResultFile, Row, differ,
    machine_cautions,
};

use crate::database::Description;
use crate::result::OltpResult;

impl Comparable for OltpResult {
    /// One for each number of users that both have.
    fn rows(&self, other: &Self) -> Vec<Row> {
        let row = |users: usize| {
            let all = |of: &Self| of.whole_steps(users).map(|step| step.nopm).collect();
            let figures = Figures {
                all: [all(self), all(other)],
                pairs: self.pairs(other, users, |step| step.nopm),
            };
            let p95 = self.p95_us(users).zip(other.p95_us(users));
            let row = Row::of(users_cell(users), Figure::Nopm, &figures)?;
            Some(row.with_latency(p95.map(|(a, b)| [a, b])))
        };
        self.users().into_iter().filter_map(row).collect()
    }

    fn cautions(&self, other: &Self) -> Vec<String> {
        cautions(self, other)
    }

    fn contents(&self) -> String {
        let users: Vec<String> = self.users().iter().map(usize::to_string).collect();
        format!("users {}", users.join(","))
    }
}

/// A figure of steps here and there, repeat by repeat. A repeat that is not in both has no partner, and is left out.
pub(crate) fn repeat_by_repeat(ours: &[(u32, f64)], theirs: &[(u32, f64)]) -> (Vec<f64>, Vec<f64>) {
    let pair = |(repeat, figure): &(u32, f64)| {
        let found = theirs.iter().find(|(other, _)| other == repeat)?;
        Some((*figure, found.1))
    };
    ours.iter().filter_map(pair).unzip()
}

/// How a number of users is called as a cell.
pub(crate) fn users_cell(users: usize) -> String {
    format!("{users} users")
}

/// Two runs as a run of devices tells them that were measured beside. That they were not interleaved is a caution
/// unless the times of their steps say otherwise.
///
/// # Errors
/// Environment errors for what cannot be read; a usage error if no number of users is common.
pub fn beside(first: &Path, second: &Path, names: [String; 2]) -> Result<DatabaseResult, LabError> {
    let (a, b) = (OltpResult::load(first)?, OltpResult::load(second)?);
    let comparison = Comparison::load::<OltpResult>(first, second)?;
    let step = |(users, row): (usize, Row)| {
        let (ours, theirs) = a.pairs(&b, users, |step| step.nopm);
        let text = row.ratio.is_some().then(|| row.told(&names[1], &names[0]));
        DatabaseStep {
            users,
            nopm: row.medians,
            p95_us: row.latency_us.unwrap_or_default(),
            pairs: ours.into_iter().zip(theirs).map(|(a, b)| [a, b]).collect(),
            ratio: row.ratio,
            text: text.unwrap_or_default(),
        }
    };
    let users = a.users().into_iter();
    let both = users.filter(|&users| b.whole_steps(users).next().is_some());
    let both = both.filter(|&users| a.whole_steps(users).next().is_some());
    let of_any_two = match took_turns(&a, &b) {
        true => machine_cautions(&a.head.machine, &a.head.machine).collect::<Vec<_>>(),
        false => Vec::new(),
    };
    let cautions = comparison.cautions.into_iter();
    Ok(DatabaseResult {
        title: a.head.title.clone(),
        version: a.database.version.clone(),
        steps: both.zip(comparison.rows).map(step).collect(),
        cautions: cautions.filter(|text| !of_any_two.contains(text)).collect(),
        names: names.clone(),
    })
}

/// Whether two runs took turns, as the times of their steps have it: each repeat of both was over before the next
/// of either began. One repeat of each is one after the other.
fn took_turns(a: &OltpResult, b: &OltpResult) -> bool {
    let mut blocks: BTreeMap<u32, (f64, f64, BTreeSet<bool>)> = BTreeMap::new();
    for (is_second, step) in
        (a.steps.iter().map(|step| (false, step))).chain(b.steps.iter().map(|step| (true, step)))
    {
        if step.began_unix_s == 0.0 {
            return false;
        }
        let end = step.began_unix_s + step.elapsed_s;
        let empty = (f64::INFINITY, 0.0, BTreeSet::new());
        let (begun, ended, sides) = blocks.entry(step.repeat).or_insert(empty);
        *begun = begun.min(step.began_unix_s);
        *ended = ended.max(end);
        sides.insert(is_second);
    }
    // Repeats that only one of them has are no part of a comparison.
    let both = blocks.values().filter(|(.., sides)| sides.len() == 2);
    let times: Vec<(f64, f64)> = both.map(|(begun, ended, _)| (*begun, *ended)).collect();
    times.len() > 1 && times.windows(2).all(|of| of[0].1 <= of[1].0)
}

pub(crate) fn cautions(a: &OltpResult, b: &OltpResult) -> Vec<String> {
    let (m, n) = (&a.method, &b.method);
    let (one, other) = (&a.database, &b.database);
    let method = [
        differ("database", &one.version, &other.version),
        differ("sql", &one.sql, &other.sql),
        differ("warehouses", m.warehouses, n.warehouses),
        differ("mode", &m.mode, &n.mode),
        differ("mix", format!("{:?}", m.mix), format!("{:?}", n.mix)),
        differ("seconds", m.seconds, n.seconds),
        differ("ramp", m.ramp_s, n.ramp_s),
        differ("all warehouses", m.all_warehouses, n.all_warehouses),
        differ("restored", m.restored, n.restored),
        differ("seed", m.seed, n.seed),
        differ("slowed down by %", m.slow_down_pct, n.slow_down_pct),
    ];
    let partial = (a.head.partial || b.head.partial).then(|| A_RUN_IS_PARTIAL.to_owned());
    machine_cautions(&a.head.machine, &b.head.machine)
        .chain(method.into_iter().flatten())
        .chain(settings_differ(one, other))
        .chain(partial)
        .collect()
}

/// Settings of two databases that are not the same, also those that only one of them has.
pub(crate) fn settings_differ(one: &Description, other: &Description) -> Vec<String> {
    let names = one.settings.keys().chain(other.settings.keys());
    let names: BTreeSet<&String> = names.collect();
    let differs = |name: &String| {
        let value = |of: &Description| of.settings.get(name).map_or("-".into(), String::clone);
        differ(name, value(one), value(other))
    };
    names.into_iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nopm: &[f64]) -> OltpResult {
        OltpResult::sample(4, nopm)
    }

    fn compared(a: &OltpResult, b: &OltpResult) -> Comparison {
        Comparison::of(a, b).expect("compared")
    }

    #[test]
    fn the_same_is_told_as_the_same_and_a_tenth_is_found() {
        let base = of(&[1000.0, 1010.0, 995.0, 1003.0, 1001.0]);
        let same = compared(&base, &of(&[1004.0, 998.0, 1007.0, 1000.0, 996.0])).to_string();
        assert!(same.contains("no difference beyond the noise"), "{same}");
        let slow = compared(&base, &of(&[900.0, 905.0, 897.0, 903.0, 901.0])).to_string();
        assert!(slow.contains("the second is 0.90 x the first"), "{slow}");
    }

    #[test]
    fn that_they_were_not_interleaved_is_told_unless_their_steps_were() {
        // Repeats of one minute, begun at these minutes.
        let at = |minutes: &[f64]| {
            let mut run = of(&[1000.0, 1001.0]);
            for (step, minute) in run.steps.iter_mut().zip(minutes) {
                step.began_unix_s = 1e9 + 60.0 * minute;
            }
            run
        };
        let cautions = |a: &OltpResult, b: &OltpResult| {
            let dir = tempfile::tempdir().expect("folder");
            let kept = |name: &str, run: &OltpResult| {
                let dir = dir.path().join(name);
                std::fs::create_dir(&dir).expect("made");
                run.write(&dir).expect("written");
                dir
            };
            let (one, other) = (kept("a", a), kept("b", b));
            let told = beside(&one, &other, ["a", "b"].map(String::from));
            told.expect("compared").cautions.join("; ")
        };
        assert_eq!(cautions(&at(&[0.0, 3.0]), &at(&[1.0, 4.0])), "");
        let apart = cautions(&at(&[0.0, 1.0]), &at(&[2.0, 3.0]));
        assert!(apart.contains("not interleaved"), "{apart}");
        let untold = cautions(&of(&[1.0, 2.0]), &of(&[1.0, 2.0]));
        assert!(untold.contains("not interleaved"), "{untold}");
        let mut once = (at(&[0.0]), at(&[1.0]));
        once.0.steps.truncate(1);
        once.1.steps.truncate(1);
        let once = cautions(&once.0, &once.1);
        assert!(once.contains("not interleaved"), "{once}");
    }

    #[test]
    fn a_setting_that_only_one_has_is_told() {
        let (base, mut other) = (of(&[1.0]), of(&[1.0]));
        let settings = &mut other.database.settings;
        settings.insert("full_page_writes".into(), "off".into());
        for (a, b, told) in [
            (&base, &other, "- against off"),
            (&other, &base, "off against -"),
        ] {
            let told = format!("full_page_writes differs: {told}");
            let cautions = compared(a, b).cautions;
            assert!(cautions.contains(&told), "{cautions:?}");
        }
    }

    #[test]
    fn a_repeat_without_its_partner_shifts_no_other() {
        let base = of(&[500.0, 1000.0, 2000.0]);
        let mut cut = of(&[10.0, 1000.0, 2000.0]);
        cut.steps[0].partial = true;
        let ratio = compared(&base, &cut).rows[0].ratio.clone();
        let ratio = ratio.expect("two pairs");
        assert_eq!((ratio.pairs, ratio.low, ratio.high), (2, 1.0, 1.0));
    }

    #[test]
    fn what_was_not_finished_is_left_out_and_told() {
        let base = of(&[1000.0, 1010.0]);
        let mut cut = of(&[1000.0, 10.0]);
        cut.steps[1].partial = true;
        cut.head.partial = true;
        let found = compared(&base, &cut);
        assert_eq!(found.rows[0].medians[1], 1000.0);
        assert!(found.to_string().contains("a run is partial"));
        cut.method.warehouses = 9;
        assert!(
            compared(&base, &cut)
                .to_string()
                .contains("warehouses differs: 1 against 9")
        );
    }
}
