//! `result.json`: how every kind of result is written, read and told from the others.

use std::path::Path;

use crate::{LabError, write_whole};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const NAME: &str = "result.json";

/// A result that is kept in a run's directory. Its field `schema` says which kind it is.
pub trait ResultFile: Serialize {
    /// What `schema` is in results of this kind; a new one when a reader of the old would be wrong.
    const SCHEMA: &str;

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

    /// Reads `result.json` of a run's directory.
    ///
    /// # Errors
    /// It cannot be read, or is of another kind.
    fn load(dir: &Path) -> Result<Self, LabError>
    where
        Self: DeserializeOwned,
    {
        let path = dir.join(NAME);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| LabError::caused(path.display(), error))?;
        let schema = schema_in(dir)?;
        if schema != Self::SCHEMA {
            return Err(LabError::environment(format!(
                "{}: schema {schema} is not {}, which is read here",
                path.display(),
                Self::SCHEMA
            )));
        }
        serde_json::from_str(&text).map_err(|error| LabError::caused(path.display(), error))
    }

    /// Whether the result in `dir` is of this kind.
    fn is_in(dir: &Path) -> bool {
        schema_in(dir).is_ok_and(|schema| schema == Self::SCHEMA)
    }
}

/// The `schema` of the result in a directory; empty if it says none.
///
/// # Errors
/// There is no result that can be read.
pub fn schema_in(dir: &Path) -> Result<String, LabError> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        schema: String,
    }
    let path = dir.join(NAME);
    let text =
        std::fs::read_to_string(&path).map_err(|error| LabError::caused(path.display(), error))?;
    let named: Named =
        serde_json::from_str(&text).map_err(|error| LabError::caused(path.display(), error))?;
    Ok(named.schema)
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
