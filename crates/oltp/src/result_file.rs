//! `result.json`: how every kind of result is written, read and told from the others.

use std::path::Path;

use ashlar_lab::{LabError, write_whole};
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
    /// It cannot be read.
    fn load(dir: &Path) -> Result<Self, LabError>
    where
        Self: DeserializeOwned,
    {
        let path = dir.join(NAME);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| LabError::caused(path.display(), error))?;
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
