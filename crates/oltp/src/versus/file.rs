//! A scenario of scenarios, as a file.

use ashlar_lab::LabError;
use ashlar_lab::scenario::{has_any, read, with_set};
use serde::{Deserialize, Serialize};

use crate::scenario::{self, OltpScenario, with_users};

/// The section that all parts have, and the file itself has not.
const MEASURE: &str = "measure";
/// Where configurations of parts may be.
const PLACES: [&str; 3] = ["shared", "own", "standby"];

/// The file: which scenarios, and what they are run on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersusFile {
    pub name: String,
    /// Title of the report.
    pub title: String,
    /// What is asked, and where it comes from.
    pub about: String,
    /// Names of scenarios, each with configurations on the places `shared`, `own` and `standby`.
    pub parts: Vec<String>,
    /// What the places are.
    pub cluster: ClusterSection,
}

/// `[cluster]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSection {
    /// The size of each drive: one a node for the replicated volume, one for each database of the group.
    pub drive: String,
}

impl VersusFile {
    /// Whether a text is one.
    ///
    /// # Errors
    /// It is no TOML.
    pub fn is_one(text: &str) -> Result<bool, LabError> {
        has_any(text, &["cluster"])
    }

    /// Reads the file alone, as it was kept.
    ///
    /// # Errors
    /// What is wrong in it, by its key.
    pub fn kept(text: &str) -> Result<Self, LabError> {
        read(text)
    }

    /// The text of a file, with what the command line changes in it and not in its parts.
    ///
    /// # Errors
    /// A key that it has not.
    pub fn changed(text: &str, set: &[String]) -> Result<String, LabError> {
        let own = set.iter().filter(|one| section(one).is_none());
        with_set(text, &own.cloned().collect::<Vec<_>>())
    }

    /// Reads a text, with what the command line changes: `measure.…` in all parts, `PART.…` in that part, anything
    /// else in the file itself; and these numbers of users, or readers, in all parts.
    ///
    /// # Errors
    /// What is wrong in it, by its key; a part that does not ship, and what a part has no use for, by its name.
    pub fn parse(
        text: &str,
        set: &[String],
        users: &[usize],
    ) -> Result<(Self, Vec<PartFile>), LabError> {
        let file = Self::kept(&Self::changed(text, set)?)?;
        let of_parts = set.iter().filter(|one| section(one).is_some());
        let of_parts: Vec<String> = of_parts.cloned().collect();
        if file.parts.is_empty() {
            return Err(LabError::usage("parts: there must be one at least"));
        }
        for one in &of_parts {
            let of = section(one).unwrap_or_default();
            if of != MEASURE && !file.parts.iter().any(|part| part == of) {
                let parts = file.parts.join(", ");
                return Err(LabError::usage(format!(
                    "--set {one}: {of} is none of the parts: {parts}"
                )));
            }
        }
        let parts = file.parts.iter();
        let parts = parts.map(|part| PartFile::of(part, &of_parts, users));
        let parts = parts.collect::<Result<_, _>>()?;
        Ok((file, parts))
    }
}

/// The section of a part that an assignment is of: `measure`, or a scenario's name; none if it is the file's own.
fn section(assignment: &str) -> Option<&str> {
    let (section, _) = assignment.split_once('.')?;
    let mut known = scenario::SHIPPED.iter().map(|(name, _)| *name);
    (section == MEASURE || known.any(|name| name == section)).then_some(section)
}

/// A scenario that is part of another, as it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFile {
    pub name: String,
    /// Its text, with what the command line changes in it.
    pub text: String,
}

impl PartFile {
    /// One whose text was kept.
    ///
    /// # Errors
    /// What is wrong in it, by its key.
    pub fn kept(text: &str) -> Result<Self, LabError> {
        let name = OltpScenario::parse(text)?.name;
        Ok(Self {
            name,
            text: text.to_owned(),
        })
    }

    fn of(name: &str, set: &[String], users: &[usize]) -> Result<Self, LabError> {
        let found = scenario::SHIPPED.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| {
            LabError::usage(format!(
                "parts: there is no scenario {name} of databases that ships"
            ))
        })?;
        let named = |error: LabError| LabError::usage(format!("{name}: {error}"));
        let own = |one: &String| match section(one) {
            Some(MEASURE) => Some(one.clone()),
            Some(part) if part == name => one.split_once('.').map(|(_, rest)| rest.to_owned()),
            _ => None,
        };
        let set: Vec<String> = set.iter().filter_map(own).collect();
        let text = with_set(text, &set).map_err(named)?;
        let text = with_users(&text, users).map_err(named)?;
        let places = OltpScenario::parse(&text).map_err(named)?.configuration;
        let is_other = |place: &str| !PLACES.contains(&place);
        if places.is_empty() || places.iter().any(|of| is_other(&of.place)) {
            return Err(LabError::usage(format!(
                "parts: {name} must have configurations on the places {}",
                PLACES.join(", ")
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::SHIPPED;
    use super::*;

    #[test]
    fn what_ships_is_sound() {
        let (name, text) = SHIPPED[0];
        assert_eq!(VersusFile::is_one(text), Ok(true));
        let (file, parts) = VersusFile::parse(text, &[], &[]).expect("sound");
        assert_eq!(
            parts.iter().map(|part| &part.name).collect::<Vec<_>>(),
            file.parts.iter().collect::<Vec<_>>()
        );
        assert_eq!(
            (&*file.name, &file.parts[..]),
            (
                name,
                &[
                    "scan-concurrency".to_owned(),
                    "fixed-transactions".to_owned()
                ][..]
            )
        );
    }

    #[test]
    fn a_part_that_does_not_fit_is_refused_by_its_name() {
        let (_, text) = SHIPPED[0];
        let other = text.replace("\"fixed-transactions\"", "\"nvmeof-hammerdb\"");
        let error = VersusFile::parse(&other, &[], &[]).expect_err("other places");
        assert!(error.to_string().contains("nvmeof-hammerdb"), "{error}");
        let other = text.replace("\"fixed-transactions\"", "\"nothing\"");
        let error = VersusFile::parse(&other, &[], &[]).expect_err("no such part");
        assert!(error.to_string().contains("nothing"), "{error}");
    }

    #[test]
    fn what_the_command_line_changes_reaches_its_part() {
        let (_, text) = SHIPPED[0];
        let changed = |set: &[&str], users: &[usize]| {
            let set: Vec<String> = set.iter().map(ToString::to_string).collect();
            VersusFile::parse(text, &set, users)
        };
        let set = [
            "measure.repeat=7",
            "cluster.drive=4GiB",
            "fixed-transactions.oltp.small=true",
        ];
        let (file, parts) = changed(&set, &[1, 3]).expect("sound");
        assert_eq!(file.cluster.drive, "4GiB");
        let parts = parts.iter().map(|part| OltpScenario::parse(&part.text));
        let [scan, fixed] = &parts.collect::<Result<Vec<_>, _>>().expect("sound")[..] else {
            panic!("two parts");
        };
        assert_eq!((scan.measure.repeat, fixed.measure.repeat), (7, 7));
        assert_eq!(scan.scan.as_ref().expect("a scan").readers, [1, 3]);
        let load = fixed.oltp.as_ref().expect("a load");
        assert!(load.users == [1, 3] && load.small, "{load:?}");
        for (wrong, says) in [
            (
                "measure.seconds=5",
                "scan-concurrency: scenario: measure.seconds = 5",
            ),
            ("measure.never=5", "scan-concurrency"),
            ("fleet.streams=5", "fleet is none of the parts"),
            ("other.key=5", "other"),
        ] {
            let error = changed(&[wrong], &[]).expect_err(wrong);
            assert!(
                error.exit_code() == 2 && error.to_string().contains(says),
                "{wrong}: {error}"
            );
        }
        let error = changed(&[], &[3, 1]).expect_err("users ascend");
        assert!(
            error
                .to_string()
                .contains("fixed-transactions: scenario: users"),
            "{error}"
        );
    }
}
