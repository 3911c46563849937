//! What is shown of copies, across restarts of the daemon: `DIR/copies.toml`.
//!
//! Nothing is decided by it. So a file that cannot be read or written costs what it says, and no more; and words that
//! this program does not know, as an older or newer one's, are passed over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;
use uuid::Uuid;

use super::news::Shown;
use crate::files;
use crate::model::FailoverStatus;

const HEAD: &str =
    "# Written by `ashlar node`: what it shows of copies. Nothing depends on it.\n\n";

/// A copy that is not in sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AbsentCopy {
    /// Its node's number.
    node: u32,
    /// Since when, in seconds since 1970, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
}

/// A volume that has copies on several nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OfVolume {
    volume: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_failover: Option<FailoverStatus>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    absent: Vec<AbsentCopy>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct All {
    #[serde(default, rename = "volume", skip_serializing_if = "Vec::is_empty")]
    volumes: Vec<OfVolume>,
}

/// The file, and what is in it.
pub(super) struct Remembered {
    path: PathBuf,
    written: All,
}

impl Remembered {
    pub(super) fn open(path: &Path) -> Self {
        let all = files::read(path).map_err(|error| error.message);
        let all = all.and_then(|text| match text {
            Some(text) => toml::from_str(&text).map_err(|error| files::bad_toml(&text, &error)),
            None => Ok(All::default()),
        });
        let written = all.unwrap_or_else(|why| {
            warn!("{}: {why}: it is written anew", path.display());
            All::default()
        });
        let path = path.to_owned();
        Self { path, written }
    }

    /// What is shown first.
    pub(super) fn shown(&self) -> BTreeMap<Uuid, Shown> {
        let volumes = self.written.volumes.iter();
        let shown = volumes.map(|known| {
            let absent = known.absent.iter();
            let shown = Shown {
                last_failover: known.last_failover,
                absent: absent.map(|copy| (copy.node, copy.since)).collect(),
                ..Shown::default()
            };
            (known.volume, shown)
        });
        shown.collect()
    }

    /// Writes what is shown now of the volumes that are still here, if that is something else.
    pub(super) fn keep(&mut self, shown: &BTreeMap<Uuid, Shown>, is_here: impl Fn(Uuid) -> bool) {
        let volumes = shown.iter().filter(|&(&volume, _)| is_here(volume));
        let volumes = volumes.map(|(&volume, known)| OfVolume {
            volume,
            last_failover: known.last_failover,
            absent: known
                .absent
                .iter()
                .map(|(&node, &since)| AbsentCopy { node, since })
                .collect(),
        });
        let all = All {
            volumes: volumes.collect(),
        };
        if all == self.written {
            return;
        }
        let text = toml::to_string(&all).map_err(|error| error.to_string());
        let written = text.and_then(|text| {
            let written = files::replace(&self.path, format!("{HEAD}{text}").as_bytes());
            written.map_err(|error| error.message)
        });
        match written {
            Ok(()) => self.written = all,
            Err(why) => warn!("what is shown of copies is not remembered: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FailoverCause;

    const HERE: Uuid = Uuid::from_u128(1);
    const GONE: Uuid = Uuid::from_u128(2);

    fn known() -> BTreeMap<Uuid, Shown> {
        let known = Shown {
            last_failover: Some(FailoverStatus {
                gap_ms: 31,
                cause: FailoverCause::Death,
            }),
            absent: [(2, Some(1_800_000_000)), (3, None)].into(),
            ..Shown::default()
        };
        [(HERE, known.clone()), (GONE, known)].into()
    }

    #[test]
    fn what_was_shown_is_there_again_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("copies.toml");
        let mut file = Remembered::open(&path);
        assert!(file.shown().is_empty());
        file.keep(&known(), |volume| volume == HERE);
        let again = Remembered::open(&path).shown();
        assert_eq!(again.len(), 1, "a volume that is gone is forgotten");
        let (before, again) = (&known()[&HERE], &again[&HERE]);
        assert_eq!(again.last_failover, before.last_failover);
        assert_eq!(again.absent, before.absent);
    }

    #[test]
    fn a_damaged_file_costs_what_it_says_and_another_version_s_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("copies.toml");
        std::fs::write(&path, "[[volume").expect("written");
        let mut file = Remembered::open(&path);
        assert!(file.shown().is_empty());
        file.keep(&known(), |_| true);
        let text = std::fs::read_to_string(&path).expect("a file");
        std::fs::write(&path, format!("new = 1\n{text}\nmore = 2\n")).expect("written");
        assert_eq!(Remembered::open(&path).shown().len(), 2);
    }
}
