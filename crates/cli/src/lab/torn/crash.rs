//! The power cuts of one place.

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ashlar_device::record::{PowerCut, Synced, Trace, TraceError, monotonic, write_image};
use ashlar_lab::LabError;
use ashlar_oltp::database::Database;
use serde::Serialize;

use super::Setting;
use super::load::{Ledger, load, plan};
use super::place::{Place, trace_of};
use super::process::{Attached, tool};
use super::seed::{database, server_at, settings};
use super::verify::complaint;

/// A page of PostgreSQL.
const PAGE: u64 = 8192;

/// What the power cuts of a place have shown.
#[derive(Serialize)]
pub(super) struct Crashes {
    place: &'static str,
    /// The block device, as the kernel sees it: largest atomic write in bytes, 0 if it knows of none.
    kernel_atomic_write_bytes: u64,
    /// What the load has written, by drive.
    recorded: Vec<Recorded>,
    /// Writes that touched the database's files, and those that split one of its pages. Only where what
    /// is recorded is the file system's own disk.
    data_writes: Option<DataWrites>,
    /// Commits of the ledger that were acknowledged.
    commits: u64,
    /// Of these, those in whose time no flush and no durable write completed on some drive.
    pub(super) commits_not_made_durable: u64,
    pub(super) cuts: Vec<Cut>,
    pub(super) broken: usize,
}

#[derive(Serialize)]
struct Recorded {
    writes: u64,
    write_bytes: u64,
    durable_writes: u64,
    flushes: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct DataWrites {
    writes: u64,
    splitting_a_page: u64,
    largest_bytes: u64,
}

/// One power cut.
#[derive(Serialize)]
pub(super) struct Cut {
    seed: u64,
    at: u64,
    /// Changes of all drives that were not settled, and what became of them.
    there: u64,
    missing: u64,
    torn: u64,
    /// Commits that had been acknowledged.
    acknowledged: u64,
    /// What is wrong with the database; null if nothing is.
    pub(super) complaint: Option<String>,
}

impl Cut {
    /// What its chance followed from.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }
}

impl Crashes {
    /// All of it, in a line.
    pub(super) fn line(&self) -> String {
        let split = match &self.data_writes {
            Some(found) => format!(
                "; {} of {} writes of data split a page",
                found.splitting_a_page, found.writes
            ),
            None => String::new(),
        };
        format!(
            "{}: {} of {} power cuts left a broken database{split}; {} of {} commits without a flush\n",
            self.place,
            self.broken,
            self.cuts.len(),
            self.commits_not_made_durable,
            self.commits
        )
    }
}

fn trouble(error: TraceError) -> LabError {
    LabError::environment(error.to_string())
}

/// Records a load on `drives`, which hold the database, and looks at what `cuts` power cuts leave.
pub(super) fn crashes(
    place: Place,
    drives: &[PathBuf],
    setting: &Setting<'_>,
) -> Result<Crashes, LabError> {
    let progress = setting.progress;
    let bases: Vec<PathBuf> = drives.iter().map(|d| d.with_extension("base")).collect();
    for (drive, base) in drives.iter().zip(&bases) {
        copy(drive, base)?;
    }
    progress.say(&format!("{}: the load", place.name()));
    let (ledger, span, places, atomic) = record(place, drives, setting)?;
    let traces: Result<Vec<Trace>, _> = drives.iter().map(|d| Trace::open(&trace_of(d))).collect();
    let traces = traces.map_err(trouble)?;
    let recorded = traces.iter().map(|trace| {
        let sum = trace.summary();
        Recorded {
            writes: sum.writes,
            write_bytes: sum.write_bytes,
            durable_writes: sum.durable_writes,
            flushes: sum.flushes,
            seconds: sum.nanoseconds as f64 / 1e9,
        }
    });
    let recorded: Vec<Recorded> = recorded.collect();
    let data_writes = (place == Place::Disk).then(|| {
        let found = traces[0].writes_to(&places, PAGE);
        DataWrites {
            writes: found.count,
            splitting_a_page: found.splitting,
            largest_bytes: found.largest,
        }
    });
    for drive in drives {
        remove(drive)?;
    }
    let mut cuts = Vec::new();
    for number in 0..setting.images {
        let seed = setting.seed.wrapping_mul(1000) + number;
        let at = PowerCut::moment(&traces, &span, seed).map_err(trouble)?;
        let power = PowerCut {
            at,
            seed,
            tear: setting.tear,
        };
        let cut = one(place, (&traces, &bases), power, &ledger, setting)?;
        let what = cut.complaint.as_deref().unwrap_or("whole");
        progress.say(&format!("{}: power cut {seed}: {what}", place.name()));
        cuts.push(cut);
    }
    if !setting.keeps {
        for file in bases.iter().chain(&traces_of(drives)) {
            remove(file)?;
        }
    }
    Ok(Crashes {
        place: place.name(),
        kernel_atomic_write_bytes: atomic,
        recorded,
        data_writes,
        commits: ledger.commits().len() as u64,
        commits_not_made_durable: not_made_durable(&traces, &ledger),
        broken: cuts.iter().filter(|cut| cut.complaint.is_some()).count(),
        cuts,
    })
}

/// Commits that were acknowledged though some drive had made nothing durable meanwhile.
fn not_made_durable(traces: &[Trace], ledger: &Ledger) -> u64 {
    let syncs: Vec<Vec<Synced>> = traces.iter().map(Trace::syncs).collect();
    let is_durable = |commit: &Range<u64>| syncs.iter().all(|s| Synced::any_within(s, commit));
    let commits = ledger.commits().iter();
    commits.filter(|commit| !is_durable(commit)).count() as u64
}

fn traces_of(drives: &[PathBuf]) -> Vec<PathBuf> {
    drives.iter().map(|drive| trace_of(drive)).collect()
}

type Run = (Ledger, RangeInclusive<u64>, Vec<Range<u64>>, u64);

/// Serves, records, attaches and loads; gives the ledger, when the load ran, where the database's files
/// lie, and what the kernel takes for atomic.
fn record(place: Place, drives: &[PathBuf], setting: &Setting<'_>) -> Result<Run, LabError> {
    let state = setting.dir.join(format!("{}-recorded", place.name()));
    let served = place.serve(drives, &state, true)?;
    let attached = Attached::attach(&served.url, &setting.mount())?;
    let atomic = atomic_bytes(attached.device().as_deref());
    let server = server_at(&setting.mount())?;
    server.start(Some(settings(false)))?;
    let from = monotonic();
    let opened: Arc<dyn Database> = Arc::new(database(&server)?);
    let plan = plan(setting.users, setting.seconds, setting.seed)?;
    let loaded = load(&opened, &plan, setting.progress);
    let span = from..=monotonic();
    server.kill()?;
    let ledger = loaded?;
    let places = extents(&setting.mount().join("db/data/base"))?;
    attached.detach()?;
    served.stop()?;
    Ok((ledger, span, places, atomic))
}

/// Makes the images of one power cut and looks at what is on them.
fn one(
    place: Place,
    (traces, bases): (&[Trace], &[PathBuf]),
    cut: PowerCut,
    ledger: &Ledger,
    setting: &Setting<'_>,
) -> Result<Cut, LabError> {
    let images = place.drives(&setting.dir.join("cut"));
    std::fs::create_dir_all(setting.dir.join("cut"))
        .map_err(|e| LabError::caused(setting.dir.display(), e))?;
    let mut found = Cut {
        seed: cut.seed,
        at: cut.at,
        there: 0,
        missing: 0,
        torn: 0,
        acknowledged: ledger.acknowledged(cut.at),
        complaint: None,
    };
    for (number, trace) in traces.iter().enumerate() {
        let (base, out) = (&bases[number], &images[number]);
        let image = write_image(trace, number as u64, &cut, Some(base), out).map_err(trouble)?;
        found.there += image.there;
        found.missing += image.missing;
        found.torn += image.torn;
    }
    let state = setting.dir.join(format!("cut/{}", cut.seed));
    let served = place.serve(&images, &state, false)?;
    let attached = Attached::attach(&served.url, &setting.mount())?;
    found.complaint = complaint(&setting.mount(), found.acknowledged, setting.progress)?;
    attached.detach()?;
    served.stop()?;
    if setting.keeps && found.complaint.is_some() {
        let kept = setting.dir.join(format!("{}-{}", place.name(), cut.seed));
        std::fs::rename(setting.dir.join("cut"), &kept)
            .map_err(|e| LabError::caused(kept.display(), e))?;
    } else {
        std::fs::remove_dir_all(setting.dir.join("cut"))
            .map_err(|e| LabError::caused(setting.dir.display(), e))?;
    }
    Ok(found)
}

/// Largest atomic write of a block device in bytes, as the kernel has it.
fn atomic_bytes(device: Option<&str>) -> u64 {
    let name = device.and_then(|device| device.rsplit('/').next());
    let file = |name: &str| format!("/sys/class/block/{name}/queue/atomic_write_unit_max_bytes");
    name.and_then(|name| std::fs::read_to_string(file(name)).ok())
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// Where the files below a folder lie on their disk, sorted and joined.
fn extents(folder: &Path) -> Result<Vec<Range<u64>>, LabError> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let caused = |e| LabError::caused(folder.display(), e);
        for entry in std::fs::read_dir(&folder).map_err(caused)? {
            let path = entry.map_err(caused)?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path.display().to_string()),
            }
        }
    }
    let mut found = Vec::new();
    for some in files.chunks(256) {
        let mut words = vec!["-s", "-e", "-b4096"];
        words.extend(some.iter().map(String::as_str));
        found.extend(tool("filefrag", &words)?.lines().filter_map(extent));
    }
    found.sort_by_key(|place: &Range<u64>| place.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for place in found {
        match joined.last_mut() {
            Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
            _ => joined.push(place),
        }
    }
    Ok(joined)
}

/// An extent in a line of `filefrag -e -b4096`: `0:  0..  255:  34816..  35071:  256: …`; none if it has no
/// place yet.
fn extent(line: &str) -> Option<Range<u64>> {
    if line.contains("unknown_loc") || line.contains("inline") {
        return None;
    }
    let mut fields = line.split(':');
    fields.next()?.trim().parse::<u64>().ok()?;
    let (from, to) = fields.nth(1)?.split_once("..")?;
    let from: u64 = from.trim().parse().ok()?;
    let to: u64 = to.trim().parse().ok()?;
    Some(from * 4096..(to + 1) * 4096)
}

/// Copies an image; holes stay holes.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), LabError> {
    let (from, to) = (from.display().to_string(), to.display().to_string());
    tool("cp", &["--sparse=always", "--reflink=auto", &from, &to]).map(drop)
}

fn remove(file: &Path) -> Result<(), LabError> {
    std::fs::remove_file(file).map_err(|e| LabError::caused(file.display(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_read_from_filefrag() {
        let line = "   3:      768..    1023:      34816..     35071:    256:             last,eof";
        assert_eq!(extent(line), Some(34816 * 4096..35072 * 4096));
        for other in [
            " ext:     logical_offset:        physical_offset: length:   expected: flags:",
            "File size of /mnt/a is 8192 (2 blocks of 4096 bytes)",
            "/mnt/a: 1 extent found",
            "   0:        0..       1:          0..         1:      2:             last,unknown_loc,delalloc,eof",
            "",
        ] {
            assert_eq!(extent(other), None, "{other}");
        }
    }
}
