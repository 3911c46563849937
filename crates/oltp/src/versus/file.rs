//! A scenario of scenarios, as a file.

use ashlar_lab::LabError;
use ashlar_lab::scenario::{has_any, read};
use serde::{Deserialize, Serialize};

use crate::scenario;

/// The file: which scenarios, and what they are run on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersusFile {
    /// Its name.
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

    /// # Errors
    /// What is wrong in it, by its key; a part that does not ship.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let file: Self = read(text)?;
        if file.parts.is_empty() {
            return Err(LabError::usage("parts: there must be one at least"));
        }
        for part in &file.parts {
            let text = Self::part(part)?;
            let places = scenario::OltpScenario::parse(text)?.configuration;
            let known = ["shared", "own", "standby"];
            let mut of_other = places.iter().filter(|of| !known.contains(&&*of.place));
            if places.is_empty() || of_other.next().is_some() {
                return Err(LabError::usage(format!(
                    "parts: {part} must have configurations on the places {}",
                    known.join(", ")
                )));
            }
        }
        Ok(file)
    }

    /// The text of a part.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn part(name: &str) -> Result<&'static str, LabError> {
        let found = scenario::SHIPPED.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| *text).ok_or_else(|| {
            LabError::usage(format!(
                "parts: there is no scenario {name} of databases that ships"
            ))
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
        let file = VersusFile::parse(text).expect("sound");
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
        let error = VersusFile::parse(&other).expect_err("other places");
        assert!(error.to_string().contains("nvmeof-hammerdb"), "{error}");
        let other = text.replace("\"fixed-transactions\"", "\"nothing\"");
        let error = VersusFile::parse(&other).expect_err("no such part");
        assert!(error.to_string().contains("nothing"), "{error}");
    }
}
