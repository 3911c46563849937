//! `result.json`: how every kind of result is written, read and told from the others.

use std::path::Path;

use crate::head::{Head, Kind, SCHEMA};
use crate::report::page;
use crate::report::short::Short;
use crate::{LabError, write_whole};
use maud::html;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const NAME: &str = "result.json";
const REPORT: &str = "report.html";

/// A result that is kept in a run's directory. Its `schema` is the same for all; its `kind` says what was measured.
pub trait ResultFile: Serialize {
    /// What was measured.
    const KIND: Kind;

    /// What all results have.
    fn head(&self) -> &Head;

    /// The same, to be changed.
    fn head_mut(&mut self) -> &mut Head;

    /// What came of it, for a terminal.
    fn text(&self) -> String;

    /// Every question that was asked, and what came of it: the first table of the report. Checks are added to it.
    fn short(&self) -> Vec<Short>;

    /// The report as HTML: the text for a terminal, if there is nothing better.
    ///
    /// # Errors
    /// What was published, which stands beside it, cannot be read.
    fn html(&self) -> Result<String, LabError> {
        let parts = page::Parts {
            short: self.short(),
            body: html! { section { pre { (self.text()) } } },
            ..page::Parts::default()
        };
        Ok(page::report(self.head(), &parts))
    }

    /// What does not hold, which makes the exit code 1; nothing if all is well.
    fn complaint(&self) -> Option<String> {
        self.head().failed_checks()
    }

    /// Writes `result.json` into `dir`.
    ///
    /// # Errors
    /// It cannot be written.
    fn write(&self, dir: &Path) -> Result<(), LabError> {
        let path = dir.join(NAME);
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| LabError::caused(path.display(), error))?;
        write_whole(&path, &(json + "\n"))
    }

    /// Writes `report.html` into `dir`.
    ///
    /// # Errors
    /// It cannot be written.
    fn write_report(&self, dir: &Path) -> Result<(), LabError> {
        write_whole(&dir.join(REPORT), &self.html()?)
    }

    /// Reads `result.json` of a run's directory, of this version or of one before.
    ///
    /// # Errors
    /// It cannot be read, or is of another kind.
    fn load(dir: &Path) -> Result<Self, LabError>
    where
        Self: DeserializeOwned,
    {
        let path = dir.join(NAME);
        let kind = kind_in(dir)?;
        if kind != Self::KIND {
            return Err(LabError::environment(format!(
                "{}: is of {}, and not of {}, which is read here",
                path.display(),
                kind.words(),
                Self::KIND.words()
            )));
        }
        let mut result: Self = read(&path)?;
        let head = result.head_mut();
        (head.schema, head.kind) = (SCHEMA.to_owned(), kind);
        Ok(result)
    }

    /// Whether the result in `dir` is of this kind.
    fn is_in(dir: &Path) -> bool {
        kind_in(dir).is_ok_and(|kind| kind == Self::KIND)
    }

    /// Renders `report.html` of a run's directory again, from its `result.json`.
    ///
    /// # Errors
    /// Environment errors for what cannot be read or written.
    fn render_again(dir: &Path) -> Result<(), LabError>
    where
        Self: DeserializeOwned,
    {
        Self::load(dir)?.write_report(dir)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, LabError> {
    let refuse = |error: String| LabError::caused(path.display(), error);
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))
}

/// Refuses a directory with the result of a run that has reached its end.
///
/// # Errors
/// A usage error that names it.
pub(crate) fn refuse_finished(dir: &Path) -> Result<(), LabError> {
    #[derive(Deserialize)]
    struct Whole {
        #[serde(default)]
        partial: bool,
    }
    let path = dir.join(NAME);
    if !path.exists() || read::<Whole>(&path).is_ok_and(|of| of.partial) {
        return Ok(());
    }
    let what = match kind_in(dir) {
        Ok(Kind::Oltp) => "a finished result of `lab oltp` (its `--append` adds to it)".to_owned(),
        Ok(kind) => format!("a finished result of {}", kind.words()),
        Err(_) => format!("a {NAME}"),
    };
    Err(LabError::usage(format!(
        "{}: has {what}, which would be overwritten: name another directory (--out), or remove it",
        dir.display()
    )))
}

/// What the run in a directory measured.
///
/// # Errors
/// There is no result that can be read, or it is of a version that is not known.
pub fn kind_in(dir: &Path) -> Result<Kind, LabError> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        schema: String,
        #[serde(default)]
        kind: Option<serde_json::Value>,
    }
    let path = dir.join(NAME);
    let named: Named = read(&path)?;
    let kind = named
        .kind
        .and_then(|kind| serde_json::from_value(kind).ok());
    Kind::told(&named.schema, kind).ok_or_else(|| {
        let (path, schema) = (path.display(), &named.schema);
        LabError::environment(format!(
            "{path}: schema {schema:?} is none that is read here: {SCHEMA} and those before it"
        ))
    })
}

/// All keys of a result, whatever is below them but names that are a database's own. For the tests that hold results and
/// their documentation together.
#[doc(hidden)]
pub fn keys(value: &serde_json::Value) -> std::collections::BTreeSet<String> {
    const OWN: [&str; 2] = ["settings", "consistency"];
    let mut found = std::collections::BTreeSet::new();
    match value {
        serde_json::Value::Object(all) => {
            for (key, below) in all {
                found.insert(key.clone());
                if !OWN.contains(&&**key) {
                    found.extend(keys(below));
                }
            }
        }
        serde_json::Value::Array(all) => all.iter().for_each(|below| found.extend(keys(below))),
        _ => {}
    }
    found
}
