//! Volumes as the places of a group: attached when it starts, and let go when it has ended. They are found again from
//! the group's directory alone.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ashlar_lab::{LabError, Progress};
use ashlar_oltp::group::{Group, GroupPlan, NodeName, PLACES, check_lengths};

use crate::attached::Attachments;

const ATTACHED: &str = "s";
const NODES: [NodeName; 2] = [NodeName::A, NodeName::B];

/// What a node's database is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupPlace {
    /// A directory.
    Directory(PathBuf),
    /// A volume, as `attach` takes it: of a pool here, or at an address.
    Volume(String),
}

impl FromStr for GroupPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(volume) = text.strip_prefix("volume:") {
            return match volume.split_once('/') {
                Some((pool, name)) if !pool.is_empty() && !name.is_empty() => {
                    Ok(Self::Volume(volume.to_owned()))
                }
                _ => Err("must be volume:POOL/VOLUME".into()),
            };
        }
        match text.starts_with("nvme-tcp://") {
            true => Ok(Self::Volume(text.to_owned())),
            false if text.is_empty() => Err("must be a directory or a volume".into()),
            false => Ok(Self::Directory(text.into())),
        }
    }
}

impl fmt::Display for GroupPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Volume(volume) => f.write_str(volume),
        }
    }
}

/// Places of a group in its directory.
pub struct GroupPlaces {
    dir: PathBuf,
}

impl GroupPlaces {
    /// Those of the group in this directory.
    pub fn of(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// Attaches what is a volume, and gives the directory of each. An empty volume gets a file system.
    ///
    /// # Errors
    /// One cannot be attached, or the directory has a group's places already: what was attached is let go.
    fn make(&self, asked: &[Option<GroupPlace>; 2]) -> Result<[Option<PathBuf>; 2], LabError> {
        let of_volume = |place: &Option<GroupPlace>| matches!(place, Some(GroupPlace::Volume(_)));
        if asked.iter().any(of_volume) && self.are_there() {
            let dir = self.dir.display();
            return Err(LabError::usage(format!(
                "{dir}: volumes of a group are attached there already: `ashlar lab cluster stop --dir {dir}` lets them go"
            )));
        }
        let [a, b] = asked;
        let both = self.one(NodeName::A, a.as_ref()).and_then(|a| {
            let b = self.one(NodeName::B, b.as_ref())?;
            Ok([a, b])
        });
        both.or_else(|error| {
            self.end()?;
            Err(error)
        })
    }

    fn one(&self, node: NodeName, asked: Option<&GroupPlace>) -> Result<Option<PathBuf>, LabError> {
        let Some(asked) = asked else {
            return Ok(None);
        };
        match asked {
            GroupPlace::Directory(path) => Ok(Some(path.clone())),
            GroupPlace::Volume(volume) => {
                std::fs::create_dir_all(self.folder())
                    .map_err(|error| LabError::caused(self.dir.display(), error))?;
                let mount = self.mount(node)?;
                let attached = self.attachments().attach(volume, &mount);
                attached.map_err(|error| {
                    let why = format!("--place-{node} {asked}: {error}");
                    LabError::environment(why)
                })?;
                Ok(Some(mount))
            }
        }
    }

    /// Starts a group on what is asked for.
    ///
    /// # Errors
    /// A volume cannot be attached, or as [`Group::start`]: if nothing of the group runs, what it would have been on is
    /// let go.
    pub fn start(
        &self,
        asked: &[Option<GroupPlace>; 2],
        mut plan: GroupPlan,
        progress: &Progress,
    ) -> Result<Group, LabError> {
        // Before a volume is attached.
        let directory = |place: &Option<GroupPlace>| match place {
            Some(GroupPlace::Directory(path)) => Some(path.clone()),
            _ => None,
        };
        check_lengths(&self.dir, [&directory(&asked[0]), &directory(&asked[1])])?;
        [plan.place_a, plan.place_b] = self.make(asked)?;
        let group = Group::start(&self.dir, &plan, progress);
        if let (Err(_), Err(_)) = (&group, Group::at(&self.dir)) {
            self.end()?;
        }
        group
    }

    /// Ends the group, then lets go what it was on; a starter that was killed may have left the latter alone.
    ///
    /// # Errors
    /// There is neither, or something stays.
    pub fn stop(&self) -> Result<(), LabError> {
        match Group::at(&self.dir) {
            Ok(group) => group.stop()?,
            Err(error) if !self.are_there() => return Err(error),
            Err(_) => {}
        }
        self.end()
    }

    /// Whether something of them is there.
    fn are_there(&self) -> bool {
        self.folder().exists()
    }

    /// Lets the volumes go, and removes where they were mounted, and the directory if nothing else is in it.
    ///
    /// # Errors
    /// One stays.
    fn end(&self) -> Result<(), LabError> {
        if !self.are_there() {
            return Ok(());
        }
        let mut ended = Ok(());
        for node in NODES {
            let mount = self.mount(node)?;
            ended = ended.and(self.attachments().detach(&mount));
        }
        ended?;
        let folder = self.folder();
        // Where volumes were mounted is removed only if it is empty: one that is mounted still keeps what it holds.
        for node in NODES {
            gone(std::fs::remove_dir(self.mount(node)?), &folder)?;
        }
        gone(std::fs::remove_dir_all(folder.join(ATTACHED)), &folder)?;
        gone(std::fs::remove_dir(&folder), &folder)?;
        let _ = std::fs::remove_dir(&self.dir);
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        self.dir.join(PLACES)
    }

    /// As the kernel names it.
    fn mount(&self, node: NodeName) -> Result<PathBuf, LabError> {
        let folder = self.folder();
        let folder = std::fs::canonicalize(&folder);
        let folder = folder.map_err(|error| LabError::caused(self.dir.display(), error))?;
        Ok(folder.join(node.to_string()))
    }

    fn attachments(&self) -> Attachments {
        Attachments::at(self.folder().join(ATTACHED))
    }
}

/// What is not there is as it should be.
fn gone(removed: std::io::Result<()>, folder: &Path) -> Result<(), LabError> {
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::caused(folder.display(), error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use ashlar_lab::OwnFolder;

    use super::*;

    #[test]
    fn what_a_volume_holds_is_never_removed() {
        let room = OwnFolder::make(&std::env::temp_dir()).expect("a directory");
        let dir = room.path().join("group");
        let places = GroupPlaces::of(&dir);
        let held = places.folder().join("a/held");
        std::fs::create_dir_all(&held).expect("made");
        assert!(places.end().is_err() && held.exists());
        std::fs::remove_dir(&held).expect("removed");
        assert!(places.end().is_ok() && !dir.exists());
    }

    #[test]
    fn a_place_is_a_directory_or_a_volume() {
        let volume = |name: &str| Ok(GroupPlace::Volume(name.into()));
        assert_eq!("volume:tank/a".parse(), volume("tank/a"));
        let url = "nvme-tcp://10.0.0.1:4420/nqn.x?ns=1";
        assert_eq!(url.parse(), volume(url));
        let dir = GroupPlace::Directory("/mnt/a".into());
        assert_eq!("/mnt/a".parse(), Ok(dir));
        for wrong in ["", "volume:", "volume:tank", "volume:/a", "volume:tank/"] {
            assert!(wrong.parse::<GroupPlace>().is_err(), "{wrong}");
        }
    }
}
