//! What is asked for, looked at before anything is made.

use std::ops::Deref;
use std::path::PathBuf;

use ashlar_device::parse_size;
use ashlar_lab::{LabError, Progress};

use super::load::plan;
use crate::args::TornPagesArguments;
use crate::lab::stacks::Open;

/// What a drive may write whole, in bytes.
const TEARS: [u64; 2] = [512, 4096];
/// Warehouses that the disks have room for.
const WAREHOUSES: std::ops::RangeInclusive<i32> = 0..=4;
/// A day.
const LONGEST_SECONDS: f64 = 86_400.0;

/// What all parts need to know.
pub(super) struct Setting<'a> {
    pub(super) wanted: Wanted,
    /// How what is served is opened.
    pub(super) open: Open,
    pub(super) progress: &'a Progress,
}

/// What was asked for.
pub(super) struct Wanted {
    /// Where everything is made; empty until it is there.
    pub(super) dir: PathBuf,
    pub(super) images: u64,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) cost_seconds: f64,
    pub(super) repeats: u32,
    pub(super) warehouses: i32,
    pub(super) users: usize,
    pub(super) tear: u32,
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
        self.dir.join("mnt")
    }
}

impl Wanted {
    /// # Errors
    /// A usage error that names the option.
    pub(super) fn of(arguments: &TornPagesArguments) -> Result<Self, LabError> {
        if !WAREHOUSES.contains(&arguments.warehouses) {
            let warehouses = arguments.warehouses;
            return Err(LabError::usage(format!(
                "--warehouses {warehouses}: must be 0 to 4"
            )));
        }
        for (option, count) in [
            ("--images", arguments.images),
            ("--repeat", arguments.repeat.into()),
        ] {
            if count == 0 {
                return Err(LabError::usage(format!("{option} 0: must be at least 1")));
            }
        }
        let wanted = Self {
            dir: PathBuf::new(),
            images: arguments.images,
            seed: arguments.seed,
            seconds: seconds("--seconds", arguments.seconds)?,
            cost_seconds: seconds("--cost-seconds", arguments.cost_seconds)?,
            repeats: arguments.repeat,
            warehouses: arguments.warehouses,
            users: arguments.users,
            tear: tear(&arguments.tear)?,
            keeps: arguments.keep,
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
