//! What is asked for, looked at before anything is made.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use ashlar_device::parse_size;
use ashlar_lab::{LabError, Progress};
use ashlar_testbed::stacks::Open;
use serde::{Deserialize, Serialize};

use super::load::plan;

/// What a drive may write whole, in bytes.
const TEARS: [u64; 2] = [512, 4096];
/// Warehouses that the disks have room for.
const WAREHOUSES: std::ops::RangeInclusive<i32> = 0..=4;
/// Where a run mounts what it looks at, in its folder.
pub(super) const MOUNT: &str = "mnt";
const LONGEST_SECONDS: f64 = 86_400.0;

/// What all parts need to know.
pub(super) struct Setting<'a> {
    pub(super) wanted: Wanted,
    /// How what is served is opened.
    pub(super) open: Open,
    pub(super) progress: &'a Progress,
}

/// A part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// What torn-page protection costs.
    Cost,
    /// The plain disk's power cuts.
    Disk,
    /// The volume's power cuts.
    Volume,
}

/// What is asked for, in the words of the command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// Where everything is made.
    pub dir: PathBuf,
    /// Power cuts of each place.
    pub images: u64,
    /// What the load and all chance follow from.
    pub seed: u64,
    /// Of the recorded load.
    pub seconds: f64,
    /// Of a step of what it costs.
    pub cost_seconds: f64,
    /// How often each step is measured.
    pub repeats: u32,
    /// Of TPROC-C; 0: a schema of a few MB.
    pub warehouses: i32,
    /// Virtual users.
    pub users: usize,
    /// What a drive writes whole: 512 or 4k.
    pub tear: String,
    /// Only this part.
    pub only: Option<Part>,
    /// Nothing is removed.
    pub keeps: bool,
}

/// The same, looked at.
pub struct Wanted {
    /// Where everything is made: at first the folder that was named, then one of its own below.
    pub(super) dir: PathBuf,
    pub(super) out: PathBuf,
    pub(super) images: u64,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) cost_seconds: f64,
    pub(super) repeats: u32,
    pub(super) warehouses: i32,
    pub(super) users: usize,
    pub(super) tear: u32,
    pub(super) only: Option<Part>,
    pub(super) keeps: bool,
}

impl Deref for Setting<'_> {
    type Target = Wanted;

    fn deref(&self) -> &Wanted {
        &self.wanted
    }
}

impl Setting<'_> {
    pub(super) fn mount(&self) -> PathBuf {
        self.dir.join(MOUNT)
    }
}

impl Wanted {
    /// Looks at what is asked for; the result goes to `out`.
    ///
    /// # Errors
    /// A usage error that names the option.
    pub fn of(asked: &Asked, out: &Path) -> Result<Self, LabError> {
        if !WAREHOUSES.contains(&asked.warehouses) {
            let warehouses = asked.warehouses;
            return Err(LabError::usage(format!(
                "--warehouses {warehouses}: must be 0 to 4"
            )));
        }
        for (option, count) in [
            ("--images", asked.images),
            ("--repeat", asked.repeats.into()),
        ] {
            if count == 0 {
                return Err(LabError::usage(format!("{option} 0: must be at least 1")));
            }
        }
        let wanted = Self {
            dir: asked.dir.clone(),
            out: out.to_owned(),
            images: asked.images,
            seed: asked.seed,
            seconds: seconds("--seconds", asked.seconds)?,
            cost_seconds: seconds("--cost-seconds", asked.cost_seconds)?,
            repeats: asked.repeats,
            warehouses: asked.warehouses,
            users: asked.users,
            tear: tear(&asked.tear)?,
            only: asked.only,
            keeps: asked.keeps,
        };
        plan(wanted.users, wanted.seconds, wanted.seed)?;
        Ok(wanted)
    }
}

fn seconds(option: &str, seconds: f64) -> Result<f64, LabError> {
    // Not a number is not above 0.
    if seconds > 0.0 && seconds <= LONGEST_SECONDS {
        return Ok(seconds);
    }
    Err(LabError::usage(format!(
        "{option} {seconds}: must be above 0 and at most a day"
    )))
}

fn tear(text: &str) -> Result<u32, LabError> {
    let bytes = parse_size(text)
        .map_err(|error| LabError::usage(format!("--tear {text}: {error}; say 512 or 4k")))?;
    match TEARS.contains(&bytes) {
        true => Ok(bytes as u32),
        false => Err(LabError::usage(format!(
            "--tear {text}: a drive writes 512 or 4096 bytes whole: say 512 or 4k"
        ))),
    }
}
