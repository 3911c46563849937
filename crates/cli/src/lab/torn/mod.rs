//! `ashlar lab torn-pages`: what PostgreSQL's protection from torn pages costs, and whether a volume with
//! atomic writes makes it needless. `docs/oltp.md` says why it does, and what has to be so.

mod cost;
mod crash;
mod load;
mod place;
mod places;
mod process;
mod recording;
mod seed;
mod verify;

use std::path::{Path, PathBuf};

use ashlar_device::parse_size;
use ashlar_lab::{LabError, Machine, Progress, check_out_dir};
use ashlar_oltp::ResultFile;
use serde::Serialize;

use super::interrupt::interruptible;
use crate::args::{TornPagesArguments, TornPart};
use crate::exit::Failure;
use crate::output::print;
use cost::Cost;
use crash::{Crashes, crashes};
use place::Place;
use recording::copy;
use seed::{FILE_SYSTEM_BLOCK, disk_bytes};

/// What all parts need to know.
struct Setting<'a> {
    dir: PathBuf,
    images: u64,
    seed: u64,
    seconds: f64,
    cost_seconds: f64,
    repeats: u32,
    warehouses: i32,
    users: usize,
    tear: u32,
    keeps: bool,
    progress: &'a Progress,
}

impl Setting<'_> {
    fn mount(&self) -> PathBuf {
        self.dir.join("mnt")
    }
}

#[derive(Serialize)]
struct Method {
    warehouses: i32,
    users: usize,
    load_seconds: f64,
    cost_seconds: f64,
    repeats: u32,
    images: u64,
    seed: u64,
    tear_bytes: u32,
    file_system: &'static str,
    file_system_block_bytes: u32,
    data_checksums: bool,
}

#[derive(Serialize)]
struct TornResult {
    schema: &'static str,
    title: &'static str,
    machine: Machine,
    method: Method,
    cost: Option<Cost>,
    disk: Option<Crashes>,
    volume: Option<Crashes>,
    /// What to know before quoting any of it.
    flags: Vec<String>,
    /// It did not reach its end: parts that were not done are null.
    partial: bool,
    /// What went wrong.
    problems: Vec<String>,
}

/// Runs all of it, or one part.
pub(super) fn run(arguments: &TornPagesArguments) -> Result<(), Failure> {
    check_out_dir(&arguments.out)?;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::environment(
            "torn-pages attaches volumes, which needs root",
        ));
    }
    let progress = interruptible()?;
    let dir = folder(&arguments.dir)?;
    let setting = setting(arguments, &dir, &progress)?;
    let mut result = empty(&setting);
    let outcome = parts(arguments, &setting, &mut result);
    if !arguments.keep {
        // What is mounted in there is another file system's, which this does not cross.
        let _ = std::fs::remove_dir_all(&dir);
    }
    if let Err(error) = &outcome {
        result.partial = true;
        result.problems.push(error.to_string());
    }
    result.flags = flags(&result);
    result.write(&arguments.out)?;
    print(&text(&result))?;
    outcome?;
    verdict(&result)
}

/// A folder of its own; short, since a socket lies in it.
fn folder(base: &Path) -> Result<PathBuf, LabError> {
    let base = std::path::absolute(base).map_err(|e| LabError::caused(base.display(), e))?;
    let dir = base.join(format!("torn-{}", std::process::id()));
    std::fs::create_dir_all(&base).map_err(|e| LabError::caused(base.display(), e))?;
    std::fs::create_dir(&dir).map_err(|e| LabError::caused(dir.display(), e))?;
    Ok(dir)
}

fn setting<'a>(
    arguments: &TornPagesArguments,
    dir: &Path,
    progress: &'a Progress,
) -> Result<Setting<'a>, Failure> {
    if !(0..=4).contains(&arguments.warehouses) {
        return Err(Failure::usage("--warehouses: 0 to 4"));
    }
    Ok(Setting {
        dir: dir.to_owned(),
        images: arguments.images,
        seed: arguments.seed,
        seconds: arguments.seconds,
        cost_seconds: arguments.cost_seconds,
        repeats: arguments.repeat,
        warehouses: arguments.warehouses,
        users: arguments.users,
        tear: u32::try_from(parse_size(&arguments.tear)?).unwrap_or(u32::MAX),
        keeps: arguments.keep,
        progress,
    })
}

fn empty(setting: &Setting<'_>) -> TornResult {
    TornResult {
        schema: TornResult::SCHEMA,
        title: "torn-pages",
        machine: Machine::here(),
        method: method(setting),
        cost: None,
        disk: None,
        volume: None,
        flags: Vec::new(),
        partial: false,
        problems: Vec::new(),
    }
}

fn parts(
    arguments: &TornPagesArguments,
    setting: &Setting<'_>,
    result: &mut TornResult,
) -> Result<(), LabError> {
    let wants = |part| arguments.only.is_none_or(|only| only == part);
    let image = setting.dir.join("seed.img");
    setting.progress.say("the database");
    let holds = (setting.warehouses, setting.seed);
    seed::make(&image, &setting.mount(), holds, setting.progress)?;
    if wants(TornPart::Cost) {
        let drives = volume(&image, "cost", setting)?;
        result.cost = Some(cost::cost(&drives, setting)?);
    }
    if wants(TornPart::Disk) {
        let drives = Place::Disk.drives(&setting.dir);
        copy(&image, &drives[0])?;
        result.disk = Some(crashes(Place::Disk, &drives, setting)?);
    }
    if wants(TornPart::Volume) {
        let drives = volume(&image, "volume", setting)?;
        result.volume = Some(crashes(Place::Volume, &drives, setting)?);
    }
    Ok(())
}

/// Drives with a volume that holds the database, in a folder of this name.
fn volume(image: &Path, name: &str, setting: &Setting<'_>) -> Result<Vec<PathBuf>, LabError> {
    let folder = setting.dir.join(name);
    std::fs::create_dir(&folder).map_err(|e| LabError::caused(folder.display(), e))?;
    let drives = Place::Volume.drives(&folder);
    let bytes = disk_bytes(setting.warehouses);
    let served = Place::make_volume(&drives, bytes, &folder.join("made"))?;
    seed::copy_to(image, &served.url)?;
    served.stop()?;
    Ok(drives)
}

fn method(setting: &Setting<'_>) -> Method {
    Method {
        warehouses: setting.warehouses,
        users: setting.users,
        load_seconds: setting.seconds,
        cost_seconds: setting.cost_seconds,
        repeats: setting.repeats,
        images: setting.images,
        seed: setting.seed,
        tear_bytes: setting.tear,
        file_system: "xfs",
        file_system_block_bytes: FILE_SYSTEM_BLOCK,
        data_checksums: true,
    }
}

fn flags(result: &TornResult) -> Vec<String> {
    let mut flags = Vec::new();
    if result.disk.as_ref().is_some_and(|disk| disk.broken == 0) {
        flags.push(
            "no power cut broke the plain disk: that the volume was whole says little".to_owned(),
        );
    }
    if result.method.warehouses == 0 {
        flags.push("a schema of a few MB is no TPROC-C".to_owned());
    }
    let pair = result.cost.as_ref().map(|cost| cost.nopm);
    if pair.is_some_and(|pair| pair.ratio_least <= 1.0 && pair.ratio_most >= 1.0) {
        flags.push("NOPM: no difference beyond the noise".to_owned());
    }
    flags
}

impl ResultFile for TornResult {
    const SCHEMA: &str = "ashlar-torn-pages-1";
}

fn text(result: &TornResult) -> String {
    let mut text = String::new();
    if let Some(cost) = &result.cost {
        text.push_str("full_page_writes                    on          off     off/on\n");
        let mut line = |name: &str, pair: &cost::Pair| {
            text.push_str(&format!(
                "{name:<28} {:>10.0} {:>12.0} {:>10.3}  ({:.3} to {:.3})\n",
                pair.on, pair.off, pair.ratio, pair.ratio_least, pair.ratio_most
            ));
        };
        line("NOPM", &cost.nopm);
        line("log bytes a transaction", &cost.wal_bytes_per_transaction);
        if let Some(pair) = &cost.device_bytes_per_transaction {
            line("volume bytes a transaction", pair);
        }
    }
    for crashes in [&result.disk, &result.volume].into_iter().flatten() {
        text.push_str(&crashes.line());
    }
    for flag in &result.flags {
        text.push_str(&format!("note: {flag}\n"));
    }
    text
}

/// The volume must have lived through every power cut.
fn verdict(result: &TornResult) -> Result<(), Failure> {
    let cuts = result.volume.iter().flat_map(|volume| &volume.cuts);
    let complaints: Vec<String> = cuts
        .filter_map(|cut| {
            let text = cut.complaint.as_ref()?;
            Some(format!("power cut {}: {text}", cut.seed()))
        })
        .collect();
    let places = [&result.disk, &result.volume];
    let dishonest = places.into_iter().flatten();
    let dishonest: u64 = dishonest.map(|c| c.commits_not_made_durable).sum();
    if dishonest > 0 {
        return Err(Failure::check(format!(
            "{dishonest} commits were acknowledged without a flush"
        )));
    }
    match complaints.is_empty() {
        true => Ok(()),
        false => Err(Failure::check(format!(
            "the volume was found broken: {}",
            complaints.join("; ")
        ))),
    }
}
