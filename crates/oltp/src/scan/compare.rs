//! Two scans side by side: the run time by readers, and what a difference is worth.

use ashlar_lab::{A_RUN_IS_PARTIAL, Comparable, Figure, Figures, Row, differ, machine_cautions};

use super::ScanResult;
use crate::compare::{repeat_by_repeat, settings_differ};

impl Comparable for ScanResult {
    /// One for each number of readers that both have.
    fn rows(&self, other: &Self) -> Vec<Row> {
        let row = |readers: usize| {
            let (ours, theirs) = (self.run_times(readers), other.run_times(readers));
            let all = |of: &[(u32, f64)]| of.iter().map(|(_, time)| *time).collect();
            let figures = Figures {
                all: [all(&ours), all(&theirs)],
                pairs: repeat_by_repeat(&ours, &theirs),
            };
            Row::of(format!("{readers} readers"), Figure::RunTimeS, &figures)
        };
        self.readers().into_iter().filter_map(row).collect()
    }

    fn cautions(&self, other: &Self) -> Vec<String> {
        let (one, others) = (&self.database, &other.database);
        let own = [
            differ("database", &one.version, &others.version),
            differ("rows", self.rows, other.rows),
            (self.head.partial || other.head.partial).then(|| A_RUN_IS_PARTIAL.to_owned()),
        ];
        machine_cautions(&self.head.machine, &other.head.machine)
            .chain(own.into_iter().flatten())
            .chain(settings_differ(one, others))
            .collect()
    }

    fn contents(&self) -> String {
        let readers: Vec<String> = self.readers().iter().map(usize::to_string).collect();
        format!("readers {}", readers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use ashlar_lab::{Comparison, Head};

    use super::super::ScanStep;
    use super::*;
    use crate::database::Description;
    use crate::usage::DeviceBytes;

    fn of(readers: usize, times: &[f64]) -> ScanResult {
        let step = |(repeat, &run_time_s): (u32, &f64)| ScanStep {
            readers,
            repeat,
            began_unix_s: 0.0,
            run_time_s,
            quickest_s: run_time_s,
            mb_s: 100.0 / run_time_s,
            server_cpu_s: None,
            client_cpu_s: 0.0,
            clients: Vec::new(),
            machine_cpu_pct: None,
            device: DeviceBytes::default(),
        };
        ScanResult {
            head: Head::default(),
            database: Description::default(),
            rows: 1000,
            bytes: 744_000,
            steps: (1..).zip(times).map(step).collect(),
        }
    }

    #[test]
    fn scans_compare_by_readers_and_pair_by_pair() {
        let (a, mut b) = (of(2, &[1.0, 1.01, 1.02]), of(2, &[2.0, 2.02, 2.04]));
        let found = Comparison::of(&a, &b).expect("compared");
        assert_eq!(
            (found.rows[0].medians, &*found.rows[0].cell),
            ([1.01, 2.02], "2 readers")
        );
        let text = found.to_string();
        assert!(text.contains("2.00 x the run time of the first"), "{text}");
        let same = Comparison::of(&a, &a.clone())
            .expect("compared")
            .to_string();
        assert!(same.contains("no difference"), "{same}");
        b.steps.remove(0);
        b.rows = 7;
        let found = Comparison::of(&a, &b).expect("compared");
        let pairs = found.rows[0].ratio.as_ref().map(|ratio| ratio.pairs);
        assert_eq!(pairs, Some(2), "a repeat without its partner is left out");
        assert!(found.to_string().contains("rows differs: 1000 against 7"));
        b.database.settings.insert("fsync".into(), "off".into());
        let found = Comparison::of(&a, &b).expect("compared");
        let told = "fsync differs: - against off".to_owned();
        assert!(found.cautions.contains(&told), "{:?}", found.cautions);
        let refused = Comparison::of(&a, &of(3, &[1.0])).expect_err("nothing common");
        assert_eq!(refused.exit_code(), 2);
        assert!(
            refused.to_string().contains("readers 2 against readers 3"),
            "{refused}"
        );
    }
}
