//! Torn pages: what PostgreSQL's protection from them costs, and whether a volume with atomic writes makes it needless.
//!
//! # What it is for
//!
//! "May `full_page_writes` be off on this storage?" [`torn_pages`] measures what that gains, records what drives are
//! told while a load runs, makes images of what they may hold after a power cut, and has PostgreSQL recover from each.
//! `docs/oltp.md` says why a volume makes the protection needless, and what has to be so.
//!
//! # Where it stands on a write's way
//!
//! At both ends: it is the database's client, and it has the drives below write down what reaches them
//! ([`record`](ashlar_device::record)).
//!
//! # Invariants
//!
//! * The plain disk must break: where no power cut breaks anything nothing was shown, of the volume neither.
//! * What a machine lacks breaks no database; what was acknowledged and is not there does.
//! * A run that is broken off is judged by what it has found, and leaves nothing mounted.
//!
//! # Deliberately not here
//!
//! Serving and mounting ([`testbed`](ashlar_testbed)), the load itself ([`oltp`](ashlar_oltp)), reading the command line
//! and printing.

mod checks;
mod cost;
mod crash;
mod left;
mod load;
mod place;
mod places;
mod recording;
mod seed;
mod setting;
mod verify;

use std::path::{Path, PathBuf};

use ashlar_attach::mounts_below;
use ashlar_lab::short::Short;
use ashlar_lab::{Head, Journal, Kind, LabError, Progress, ResultFile};
use ashlar_testbed::stacks::Open;
use serde::Serialize;

use checks::{checks, ending};
use cost::{Cost, Step};
use crash::{Crashes, crashes};
use place::Place;
use recording::copy;
use seed::{FILE_SYSTEM_BLOCK, disk_bytes};
use setting::Setting;
pub use setting::{Asked, Part, Wanted};

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

/// What `lab torn-pages` writes: `result.json`.
#[derive(Serialize)]
pub struct TornResult {
    /// What all results have; of the checks one that failed makes the exit code 1.
    #[serde(flatten)]
    head: Head,
    method: Method,
    cost: Option<Cost>,
    disk: Option<Crashes>,
    volume: Option<Crashes>,
}

/// What came of a run, and how it ended.
pub struct Outcome {
    /// What was found.
    pub result: TornResult,
    ended: [Result<(), LabError>; 2],
}

impl Outcome {
    /// What the command makes of it.
    ///
    /// # Errors
    /// A check has failed, or the run was broken off.
    pub fn verdict(self) -> Result<(), LabError> {
        ending(&self.result.head.checks, self.ended)
    }
}

/// Runs all of it, or one part, or what the journal does not have, and writes what came of it; `open` is how what is
/// served is opened.
///
/// # Errors
/// It cannot begin, or its result cannot be written. What breaks it off later is in the outcome.
pub fn torn_pages(
    mut wanted: Wanted,
    open: Open,
    journal: &mut Journal,
    progress: &Progress,
) -> Result<Outcome, LabError> {
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::environment(
            "torn-pages attaches volumes, which needs root",
        ));
    }
    for folder in journal.folders() {
        left::end(folder, wanted.keeps)?;
    }
    wanted.dir = folder(&wanted.dir)?;
    journal.made(&wanted.dir)?;
    let setting = Setting {
        wanted,
        open,
        progress,
    };
    let mut result = empty(&setting);
    let outcome = parts(&setting, journal, &mut result);
    let removed = if setting.keeps {
        Ok(())
    } else {
        remove(&setting.dir, MOUNTS)
    };
    let errors = [outcome.as_ref().err(), removed.as_ref().err()];
    result.head.partial = errors.iter().any(Option::is_some);
    let problems = errors.into_iter().flatten().map(ToString::to_string);
    result.head.problems.extend(problems);
    keep(&mut result, &setting.out)?;
    result.write_report(&setting.out)?;
    Ok(Outcome {
        result,
        ended: [outcome, removed],
    })
}

/// Writes down what is known so far.
fn keep(result: &mut TornResult, out: &Path) -> Result<(), LabError> {
    result.head.flags = flags(result);
    result.head.checks = checks(result.disk.as_ref(), result.volume.as_ref());
    result.write(out)
}

/// What is mounted, as the kernel tells it.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Removes the folder of a run, unless something is still mounted in it: what is removed below a mount point is
/// gone from what is mounted there.
fn remove(dir: &Path, mounts: &str) -> Result<(), LabError> {
    // One that cannot be read has no lines, as if nothing were mounted.
    let refused = |why: String| {
        let dir = dir.display();
        LabError::environment(format!(
            "{mounts}: {why}: whether anything is mounted in {dir} is not known, and it is left"
        ))
    };
    let table = std::fs::read_to_string(mounts).map_err(|error| refused(error.to_string()))?;
    if table.is_empty() {
        return Err(refused("it is empty".into()));
    }
    if let Some(point) = mounts_below(dir).first() {
        let (point, dir) = (point.display(), dir.display());
        return Err(LabError::environment(format!(
            "{point} is still mounted: `ashlar detach {point} --force`, then remove {dir}"
        )));
    }
    std::fs::remove_dir_all(dir).map_err(|e| LabError::caused(dir.display(), e))
}

/// A folder of its own; short, since a socket lies in it.
fn folder(base: &Path) -> Result<PathBuf, LabError> {
    let caused = |e| LabError::caused(base.display(), e);
    std::fs::create_dir_all(base).map_err(caused)?;
    // As the list of mounts has it.
    let dir = base.canonicalize().map_err(caused)?;
    let dir = dir.join(format!("torn-{}", std::process::id()));
    std::fs::create_dir(&dir).map_err(|e| LabError::caused(dir.display(), e))?;
    Ok(dir)
}

fn empty(setting: &Setting<'_>) -> TornResult {
    TornResult {
        head: Head::new(Kind::TornPages, "Torn pages"),
        method: method(setting),
        cost: None,
        disk: None,
        volume: None,
    }
}

fn parts(
    setting: &Setting<'_>,
    journal: &mut Journal,
    result: &mut TornResult,
) -> Result<(), LabError> {
    let wants = |part| setting.only.is_none_or(|only| only == part);
    let mut seed = Seed {
        image: setting.dir.join("seed.img"),
        is_made: false,
    };
    // Until its end it is one that was broken off, whatever happens to this process.
    result.head.partial = true;
    if wants(Part::Cost) {
        let mut steps: Vec<[Step; 2]> = journal.outcomes(&cost::turn(1))?;
        let measured = match steps.len() < setting.repeats as usize {
            true => measure_cost(&mut seed, setting, journal, &mut steps),
            false => Ok(()),
        };
        result.cost = cost::summed_up(steps.concat());
        measured?;
        keep(result, &setting.out)?;
    }
    if wants(Part::Disk) {
        let (place, found) = (Place::Disk, &mut result.disk);
        *found = Crashes::kept(place, setting.images, journal)?;
        if found.as_ref().is_none_or(|found| found.partial) {
            let drives = place.drives(&setting.dir);
            copy(seed.image(setting)?, &drives[0])?;
            crashes(place, &drives, setting, journal, found)?;
        }
        keep(result, &setting.out)?;
    }
    if wants(Part::Volume) {
        let (place, found) = (Place::Volume, &mut result.volume);
        *found = Crashes::kept(place, setting.images, journal)?;
        if found.as_ref().is_none_or(|found| found.partial) {
            let drives = volume(seed.image(setting)?, "volume", setting)?;
            crashes(place, &drives, setting, journal, found)?;
        }
    }
    Ok(())
}

fn measure_cost(
    seed: &mut Seed,
    setting: &Setting<'_>,
    journal: &mut Journal,
    steps: &mut Vec<[Step; 2]>,
) -> Result<(), LabError> {
    let drives = volume(seed.image(setting)?, "cost", setting)?;
    cost::cost(&drives, setting, journal, steps)
}

/// The database that all parts begin with, made for the first that needs it.
struct Seed {
    image: PathBuf,
    is_made: bool,
}

impl Seed {
    fn image(&mut self, setting: &Setting<'_>) -> Result<&Path, LabError> {
        if !self.is_made {
            setting.progress.say("the database");
            let holds = seed::Holds {
                warehouses: setting.warehouses,
                seed: setting.seed,
            };
            seed::make(&self.image, &setting.mount(), holds, setting.progress)?;
            self.is_made = true;
        }
        Ok(&self.image)
    }
}

/// Drives with a volume that holds the database, in a folder of this name.
fn volume(image: &Path, name: &str, setting: &Setting<'_>) -> Result<Vec<PathBuf>, LabError> {
    let folder = setting.dir.join(name);
    std::fs::create_dir(&folder).map_err(|e| LabError::caused(folder.display(), e))?;
    let drives = Place::Volume.drives(&folder);
    let bytes = disk_bytes(setting.warehouses);
    let served = Place::make_volume(&drives, bytes, &folder.join("made"))?;
    seed::copy_to(image, &served.url, setting.open)?;
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
    if result.volume.is_some() && result.disk.is_none() {
        flags.push(
            "whether writes split pages, and whether such power cuts break anything, was not looked at: that \
             is seen on the plain disk only"
                .to_owned(),
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
    const KIND: Kind = Kind::TornPages;

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn text(&self) -> String {
        text(self)
    }

    /// What leaving full-page writes out gains; whether it may is a matter of the checks.
    fn short(&self) -> Vec<Short> {
        let cost = self.cost.iter().flat_map(|cost| {
            let bytes = cost.wal_bytes_per_transaction;
            [("NOPM", cost.nopm), ("Log bytes a transaction", bytes)]
        });
        let of = |(question, pair): (&str, cost::Pair)| {
            let is_same = pair.ratio_least <= 1.0 && pair.ratio_most >= 1.0;
            let word = if pair.ratio < 1.0 { "less" } else { "more" };
            Short {
                question: question.to_owned(),
                configurations: "full_page_writes off against on".to_owned(),
                ratio: format!(
                    "{:.3} ({:.3} to {:.3})",
                    pair.ratio, pair.ratio_least, pair.ratio_most
                ),
                verdict: match is_same {
                    true => "no difference beyond the noise".to_owned(),
                    false => format!("{:.0} % {word}", 100.0 * (pair.ratio - 1.0).abs()),
                },
                ..Short::default()
            }
        };
        cost.map(of).collect()
    }
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
    for check in &result.head.checks {
        let verdict = if check.passed { "passed" } else { "FAILED" };
        text.push_str(&format!("{verdict}: {}: {}\n", check.name, check.text));
    }
    for flag in &result.head.flags {
        text.push_str(&format!("note: {flag}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_left_if_it_is_not_known_what_is_mounted() {
        let base = tempfile::tempdir().expect("a folder");
        let dir = base.path().join("run");
        std::fs::create_dir(&dir).expect("made");
        std::fs::write(base.path().join("empty"), "").expect("written");
        std::fs::write(base.path().join("strange"), [0xff]).expect("written");
        for table in ["missing", "empty", "strange"] {
            let table = base.path().join(table).display().to_string();
            let error = remove(&dir, &table).expect_err("not known");
            assert!(error.to_string().contains("is left"), "{error}");
            assert!(dir.exists());
        }
        remove(&dir, MOUNTS).expect("nothing is mounted there");
        assert!(!dir.exists());
    }
}
