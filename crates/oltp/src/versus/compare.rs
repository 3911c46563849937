//! Two runs of an instance against a group side by side: each part as the scenario that it is, whose directory has every
//! repeat of both sides.

use std::path::Path;

use ashlar_lab::{Comparable, Comparison, LabError, ResultFile, Row};

use super::VersusResult;
use crate::scenario::ScenarioResult;

/// Compares all parts that both have.
///
/// # Errors
/// Environment errors for what cannot be read; a usage error if no part has anything in common.
pub fn compare(first: &Path, second: &Path) -> Result<Comparison, LabError> {
    let (a, b) = (VersusResult::load(first)?, VersusResult::load(second)?);
    let (mut rows, mut cautions) = (Vec::new(), Vec::new());
    for part in &a.parts {
        let name = &part.name;
        if !b.parts.iter().any(|other| other.name == *name) {
            continue;
        }
        let ours = ScenarioResult::load(&first.join(name))?;
        let theirs = ScenarioResult::load(&second.join(name))?;
        rows.extend(ours.rows(&theirs).into_iter().map(|row| Row {
            configuration: format!("{name}, {}", row.configuration),
            ..row
        }));
        cautions.extend(ours.cautions(&theirs));
    }
    Comparison::of_rows(rows, cautions).ok_or_else(|| {
        let (first, second) = (first.display(), second.display());
        LabError::usage(format!(
            "{first} and {second}: no part has anything in common"
        ))
    })
}

#[cfg(test)]
mod tests {
    use ashlar_lab::result::ScenarioNote;
    use ashlar_lab::{Head, Kind};

    use super::super::Part;
    use super::*;
    use crate::result::OltpResult;
    use crate::scenario::ConfigurationResult;

    /// A run whose one part, of fixed work, took so long on both sides.
    fn kept(dir: &Path, part: &str, run_times: [f64; 3]) {
        let mut run = OltpResult::sample(8, &[1.0; 3]);
        run.method.mode = "fixed:100".into();
        let steps = run.steps.iter_mut().zip(run_times);
        steps.for_each(|(step, time)| step.elapsed_s = time);
        let side = |name: &str| ConfigurationResult {
            name: name.into(),
            oltp: Some(run.clone()),
            ..ConfigurationResult::default()
        };
        let note = ScenarioNote {
            name: part.into(),
            about: String::new(),
            scale: 1.0,
            scaled: String::new(),
            source: String::new(),
            changed: Vec::new(),
        };
        let mut scenario = ScenarioResult::new(part, note);
        scenario.configurations = vec![side("instance"), side("group")];
        let own = dir.join(part);
        std::fs::create_dir_all(&own).expect("made");
        scenario.write(&own).expect("written");
        let result = VersusResult {
            head: Head::new(Kind::Versus, "t"),
            parts: vec![Part {
                name: part.into(),
                title: String::new(),
                scaled: String::new(),
                crowd: "users".into(),
                sentence: String::new(),
                rows: Vec::new(),
            }],
            ..VersusResult::default()
        };
        result.write(dir).expect("written");
    }

    #[test]
    fn each_side_of_each_part_stands_beside_itself() {
        let room = tempfile::tempdir().expect("folder");
        let [a, b, c] = ["a", "b", "c"].map(|name| room.path().join(name));
        kept(&a, "work", [10.0, 10.1, 9.9]);
        kept(&b, "work", [12.0, 12.1, 11.9]);
        kept(&c, "other", [10.0, 10.1, 9.9]);
        let found = compare(&a, &b).expect("compared");
        let names: Vec<&str> = found.rows.iter().map(|row| &*row.configuration).collect();
        assert_eq!(names, ["work, instance", "work, group"]);
        assert_eq!(found.below(0.95).len(), 2, "{found}");
        assert!(
            found
                .rows
                .iter()
                .all(|row| row.ratio.as_ref().is_some_and(|of| of.questions == 2))
        );
        assert!(compare(&b, &a).expect("compared").below(0.95).is_empty());
        let refused = compare(&a, &c).expect_err("nothing common");
        assert!(
            refused.exit_code() == 2 && refused.to_string().contains("no part"),
            "{refused}"
        );
    }
}
