use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ashlar_replica::Incarnation;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::problem::Problem;

/// What a node remembers of its cluster, in `DIR/incarnation`: so that a quorum that was emptied or restored from a
/// backup is noticed, and a parent knows whose death it certifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remembered {
    /// Which cluster it was.
    pub cluster: Option<Uuid>,
    /// The process that wrote it.
    pub incarnation: Incarnation,
    /// What the parent of that process called it: a parent believes only what its own child wrote.
    #[serde(default)]
    pub run: Option<Uuid>,
}

impl Remembered {
    /// What the directory of a node holds; nothing is remembered if there is no file.
    ///
    /// # Errors
    /// Environment: there is one, and it cannot be read.
    pub fn read(dir: &Path) -> Result<Self, Problem> {
        let path = path(dir);
        let shown = path.display();
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(&path, "cannot be read", &error)),
        };
        serde_json::from_slice(&text).map_err(|error| {
            let why = ashlar_plain::reworded(&error.to_string());
            Problem::environment(format!(
                "{shown} is damaged: {why}; without it a quorum that was restored from a backup is not noticed. Remove \
                 it if the quorum was not"
            ))
        })
    }

    /// Removes it: the node is in no cluster any more.
    pub(crate) fn forget(dir: &Path) -> Result<(), Problem> {
        let path = path(dir);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed(&path, "cannot be removed", &error))
            }
            _ => Ok(()),
        }
    }

    /// Replaces it, durably, as a whole.
    ///
    /// # Errors
    /// Environment: it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), Problem> {
        let path = path(dir);
        let text = serde_json::to_vec(self);
        let text = text.map_err(|error| Problem::internal(error.to_string()))?;
        replace(dir, &path, &text).map_err(|error| failed(&path, "cannot be written", &error))
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("incarnation")
}

fn replace(dir: &Path, path: &Path, text: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(dir)?.sync_all()
}

fn failed(path: &Path, what: &str, error: &std::io::Error) -> Problem {
    Problem::environment(format!("{} {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_written_and_damage_is_named() {
        let dir = tempfile::tempdir().expect("directory");
        let nothing = Remembered::read(dir.path()).expect("nothing");
        assert_eq!(nothing, Remembered::default());
        let remembered = Remembered {
            cluster: Some(Uuid::from_u128(7)),
            incarnation: Incarnation(9),
            run: Some(Uuid::from_u128(8)),
        };
        remembered.write(dir.path()).expect("written");
        assert_eq!(Remembered::read(dir.path()), Ok(remembered));
        std::fs::write(dir.path().join("incarnation"), "{").expect("damaged");
        let problem = Remembered::read(dir.path()).expect_err("damaged");
        assert!(
            problem.message.contains("incarnation is damaged"),
            "{problem}"
        );
    }
}
