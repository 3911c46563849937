//! How full the storage under a fleet is: a paper's figures are of drives that hold something.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ashlar_lab::units::human_bytes;
use ashlar_lab::{LabError, OwnFolder, Progress, Scale};

const BALLAST: &str = "ballast";
const PIECE: usize = 1 << 20;
/// What filling may write into a place, at the smallest scale and as written.
const LEAST_BALLAST: u64 = 16 << 30;
const MOST_BALLAST: f64 = (4_u64 << 40) as f64;

/// How full a place is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) percent: f64,
    pub(crate) scale: Scale,
}

/// How full a place is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Filled {
    pub(crate) percent: f64,
    pub(crate) ballast_bytes: u64,
    /// Why it is not as full as it was to be.
    pub(crate) reason: Option<String>,
}

/// Space of a file system.
#[derive(Clone, Copy, Debug)]
struct Space {
    bytes: u64,
    used: u64,
}

impl Space {
    fn of(path: &Path) -> Result<Self, LabError> {
        let stat = rustix::fs::statvfs(path);
        let stat = stat.map_err(|error| LabError::caused(path.display(), error))?;
        Ok(Self {
            bytes: stat.f_blocks * stat.f_frsize,
            used: (stat.f_blocks - stat.f_bfree) * stat.f_frsize,
        })
    }

    fn percent(&self) -> f64 {
        100.0 * self.used as f64 / (self.bytes as f64).max(1.0)
    }

    /// Bytes that are missing to this much.
    fn missing(&self, percent: f64) -> u64 {
        let wanted = percent / 100.0 * self.bytes as f64;
        (wanted as u64).saturating_sub(self.used)
    }
}

/// Fills the file system of a place with random data, into a folder of this run's, which goes with it. Only one whose
/// mount point the place is: others are not this run's to fill. Nothing wanted: it is left as it is.
pub(crate) fn fill(
    place: &Path,
    folder: &OwnFolder,
    wanted: Option<Wanted>,
    progress: &Progress,
) -> Result<Filled, LabError> {
    let space = Space::of(place)?;
    let Some(wanted) = wanted else {
        return Ok(Filled {
            percent: space.percent(),
            ballast_bytes: 0,
            reason: None,
        });
    };
    let missing = space.missing(wanted.percent);
    let most = LEAST_BALLAST.max((MOST_BALLAST * wanted.scale.factor()) as u64);
    let asked = wanted.percent;
    let reason = if space.percent() > asked + 1.0 {
        Some(format!("more than {asked} % even without being filled"))
    } else if missing == 0 {
        None
    } else if !is_mount_point(place) {
        Some("it is no mount point, and what it is a part of is not this run's to fill".to_owned())
    } else if missing > most {
        let [missing, most] = [missing, most].map(human_bytes);
        Some(format!(
            "that is {missing} more, and at this scale at most {most} are written"
        ))
    } else {
        None
    };
    let ballast_bytes = match reason {
        Some(_) => 0,
        None => missing,
    };
    if ballast_bytes > 0 {
        progress.say(&format!(
            "{}: filled to {asked} % with {} of random data",
            place.display(),
            human_bytes(ballast_bytes)
        ));
        write(&folder.path().join(BALLAST), ballast_bytes, progress)?;
    }
    Ok(Filled {
        percent: Space::of(place)?.percent(),
        ballast_bytes,
        reason,
    })
}

fn is_mount_point(dir: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    device(dir).is_some_and(|own| device(&dir.join("..")) != Some(own))
}

fn write(path: &Path, bytes: u64, progress: &Progress) -> Result<(), LabError> {
    let caused = |error| LabError::caused(path.display(), error);
    let mut file = std::fs::File::create(path).map_err(caused)?;
    let mut random = fastrand::Rng::new();
    let mut piece = vec![0; PIECE];
    let mut left = bytes;
    while left > 0 {
        progress.go_on()?;
        random.fill(&mut piece);
        let length = left.min(PIECE as u64);
        file.write_all(&piece[..length as usize]).map_err(caused)?;
        left -= length;
    }
    file.sync_all().map_err(caused)?;
    // The databases' pages are to be in memory, and not this.
    let advice = rustix::fs::Advice::DontNeed;
    rustix::fs::fadvise(&file, 0, None, advice).map_err(|error| caused(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_from_what_is_there() {
        let space = Space {
            bytes: 1000,
            used: 300,
        };
        assert_eq!((space.percent(), space.missing(70.0)), (30.0, 400));
        assert_eq!(space.missing(10.0), 0);
    }

    #[test]
    fn a_folder_of_a_larger_file_system_is_not_filled() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = OwnFolder::make(dir.path()).expect("made");
        let wanted = Wanted {
            percent: 99.9,
            scale: Scale::MIN,
        };
        let progress = Progress::silent();
        let filled = fill(dir.path(), &folder, Some(wanted), &progress).expect("looked at");
        assert_eq!(filled.ballast_bytes, 0);
        let reason = filled.reason.expect("told");
        assert!(reason.contains("no mount point"), "{reason}");
    }
}
