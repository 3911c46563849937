//! Two scans side by side: the run time by readers, and what a difference is worth.

use std::fmt;

use ashlar_lab::stats::{Ratio, median};
use ashlar_lab::units::grouped;
use ashlar_lab::{LabError, differ, machine_cautions};

use super::{ScanResult, ScanStep};
use crate::compare::{A_RUN_IS_PARTIAL, settings_differ};

/// What two scans have in common, and how they differ.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanComparison {
    /// One for each number of readers that both have.
    pub steps: Vec<ComparedScan>,
    /// What makes the two hard to compare.
    pub cautions: Vec<String>,
}

/// A number of readers in both scans.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedScan {
    /// Readers.
    pub readers: usize,
    /// Median seconds until the last reader ended, first and second.
    pub run_time_s: (f64, f64),
    /// Median 10^6 bytes of rows a second, first and second.
    pub mb_s: (f64, f64),
    /// The second's run time to the first's, repeat by repeat.
    pub ratio: Option<Ratio>,
}

impl ScanComparison {
    /// Compares two results.
    ///
    /// # Errors
    /// A usage error if no number of readers is common.
    pub fn of(a: &ScanResult, b: &ScanResult) -> Result<Self, LabError> {
        let readers = a.readers().into_iter();
        let steps: Vec<ComparedScan> = readers.filter_map(|n| ComparedScan::of(a, b, n)).collect();
        if steps.is_empty() {
            let of = |scan: &ScanResult| {
                let readers: Vec<String> = scan.readers().iter().map(usize::to_string).collect();
                readers.join(",")
            };
            return Err(LabError::usage(format!(
                "no number of readers is in both scans (readers {} against {})",
                of(a),
                of(b)
            )));
        }
        let (one, other) = (&a.database, &b.database);
        let own = [
            differ("database", &one.version, &other.version),
            differ("rows", a.rows, b.rows),
            (a.partial || b.partial).then(|| A_RUN_IS_PARTIAL.to_owned()),
        ];
        let cautions = machine_cautions(&a.machine, &b.machine);
        Ok(Self {
            steps,
            cautions: cautions
                .chain(own.into_iter().flatten())
                .chain(settings_differ(one, other))
                .collect(),
        })
    }
}

impl ComparedScan {
    fn of(a: &ScanResult, b: &ScanResult, readers: usize) -> Option<Self> {
        let of = |result: &ScanResult, figure: fn(&ScanStep) -> f64| -> Vec<f64> {
            let steps = result.steps.iter().filter(|step| step.readers == readers);
            steps.map(figure).collect()
        };
        let both = |figure| (of(a, figure), of(b, figure));
        let middle = |(first, second): (Vec<f64>, Vec<f64>)| (median(&first), median(&second));
        let times = both(|step| step.run_time_s);
        if times.0.is_empty() || times.1.is_empty() {
            return None;
        }
        let pairs = a.steps.iter().filter(|step| step.readers == readers);
        let pairs = pairs.filter_map(|ours| {
            let mut theirs = b.steps.iter();
            let theirs = theirs.find(|of| (of.readers, of.repeat) == (readers, ours.repeat))?;
            Some((ours.run_time_s, theirs.run_time_s))
        });
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.unzip();
        Some(Self {
            readers,
            run_time_s: middle(times),
            mb_s: middle(both(|step| step.mb_s)),
            ratio: Ratio::of(&first, &second),
        })
    }

    fn told(&self) -> String {
        let Some(ratio) = &self.ratio else {
            return String::new();
        };
        crate::compare::told(ratio, "the second", "the first").replacen(
            " x ",
            " x the run time of ",
            1,
        )
    }
}

impl fmt::Display for ScanComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>7} {:>10} {:>10} {:>10} {:>10}",
            "readers", "time s 1", "time s 2", "MB/s 1", "MB/s 2"
        )?;
        for step in &self.steps {
            writeln!(
                f,
                "{:>7} {:>10.2} {:>10.2} {:>10} {:>10}  {}",
                step.readers,
                step.run_time_s.0,
                step.run_time_s.1,
                grouped(step.mb_s.0),
                grouped(step.mb_s.1),
                step.told()
            )?;
        }
        self.cautions
            .iter()
            .try_for_each(|caution| writeln!(f, "note: {caution}"))
    }
}

#[cfg(test)]
mod tests {
    use ashlar_lab::Machine;

    use super::*;
    use crate::database::Description;
    use crate::usage::DeviceBytes;

    fn of(readers: usize, times: &[f64]) -> ScanResult {
        let step = |(repeat, &run_time_s): (u32, &f64)| ScanStep {
            readers,
            repeat,
            run_time_s,
            quickest_s: run_time_s,
            mb_s: 100.0 / run_time_s,
            server_cpu_s: None,
            client_cpu_s: 0.0,
            machine_cpu_pct: None,
            device: DeviceBytes::default(),
        };
        ScanResult {
            schema: String::new(),
            machine: Machine::default(),
            database: Description::default(),
            rows: 1000,
            bytes: 744_000,
            steps: (1..).zip(times).map(step).collect(),
            flags: Vec::new(),
            partial: false,
            problems: Vec::new(),
        }
    }

    #[test]
    fn scans_compare_by_readers_and_pair_by_pair() {
        let (a, mut b) = (of(2, &[1.0, 1.01, 1.02]), of(2, &[2.0, 2.02, 2.04]));
        let found = ScanComparison::of(&a, &b).expect("compared");
        assert_eq!(
            (found.steps[0].run_time_s, found.steps[0].readers),
            ((1.01, 2.02), 2)
        );
        let text = found.to_string();
        assert!(text.contains("2.00 x the run time of the first"), "{text}");
        let same = ScanComparison::of(&a, &a.clone())
            .expect("compared")
            .to_string();
        assert!(same.contains("no difference"), "{same}");
        b.steps.remove(0);
        b.rows = 7;
        let found = ScanComparison::of(&a, &b).expect("compared");
        let pairs = found.steps[0].ratio.as_ref().map(|ratio| ratio.pairs);
        assert_eq!(pairs, Some(2), "a repeat without its partner is left out");
        assert!(found.to_string().contains("rows differs: 1000 against 7"));
        b.database.settings.insert("fsync".into(), "off".into());
        let found = ScanComparison::of(&a, &b).expect("compared");
        let told = "fsync differs: - against off".to_owned();
        assert!(found.cautions.contains(&told), "{:?}", found.cautions);
        let refused = ScanComparison::of(&a, &of(3, &[1.0])).expect_err("nothing common");
        assert_eq!(refused.exit_code(), 2);
        assert!(
            refused.to_string().contains("readers 2 against 3"),
            "{refused}"
        );
    }
}
