//! A load, recorded.

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ashlar_device::record::{Synced, Trace, monotonic};
use ashlar_lab::LabError;
use ashlar_oltp::database::Database;
use ashlar_testbed::process::{Attached, tool};
use serde::{Deserialize, Serialize};

use super::crash::trouble;
use super::load::{Ledger, load, plan};
use super::place::{Place, trace_of};
use super::places::extents;
use super::seed::{KilledAtEnd, atomic_bytes_of, database, server_at, settings};
use super::setting::Setting;

/// A page of PostgreSQL.
const PAGE: u64 = 8192;

/// What a drive was told.
#[derive(Serialize, Deserialize)]
pub(super) struct DriveTold {
    writes: u64,
    write_bytes: u64,
    durable_writes: u64,
    flushes: u64,
    seconds: f64,
}

/// How writes to the database's files lay to its pages.
#[derive(Serialize, Deserialize)]
pub(super) struct DataWrites {
    pub(super) writes: u64,
    pub(super) splitting_a_page: u64,
    pub(super) largest_bytes: u64,
}

impl DataWrites {
    /// These and those of another load.
    fn and(self, other: Self) -> Self {
        Self {
            writes: self.writes + other.writes,
            splitting_a_page: self.splitting_a_page + other.splitting_a_page,
            largest_bytes: self.largest_bytes.max(other.largest_bytes),
        }
    }

    /// Those of both loads, of which there may be none.
    pub(super) fn of_both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other),
        }
    }
}

/// What was recorded of a place under load.
pub(super) struct Recording {
    pub(super) place: Place,
    /// What its drives held before.
    pub(super) bases: Vec<PathBuf>,
    pub(super) traces: Vec<Trace>,
    files: Vec<PathBuf>,
    pub(super) ledger: Ledger,
    /// When the load ran.
    pub(super) span: RangeInclusive<u64>,
    /// Where the database's files lay on the disk.
    places: Vec<Range<u64>>,
    /// Largest atomic write of the namespace, as it says.
    pub(super) advertised_bytes: u64,
    /// The same of the mounted block device, as the kernel has it.
    pub(super) atomic_bytes: u64,
}

impl Recording {
    /// Keeps what the drives hold, serves and records them, attaches, and loads the database. The drives
    /// are removed: their bases and traces know more.
    pub(super) fn of(
        place: Place,
        drives: &[PathBuf],
        setting: &Setting<'_>,
    ) -> Result<Self, LabError> {
        let bases: Vec<PathBuf> = drives.iter().map(|d| d.with_extension("base")).collect();
        for (drive, base) in drives.iter().zip(&bases) {
            copy(drive, base)?;
        }
        setting.progress.say(&format!("{}: the load", place.name()));
        let state = setting.dir.join(format!("{}-recorded", place.name()));
        let served = place.serve(drives, &state, true)?;
        let advertised_bytes = atomic_bytes_of(&served.url, setting.open)?;
        let attached = Attached::attach(&served.url, &setting.mount())?;
        let atomic_bytes = atomic_bytes(attached.device().as_deref());
        let (ledger, span) = run(setting)?;
        let places = extents(&setting.mount().join("db/data/base"))?;
        attached.detach()?;
        served.stop()?;
        let files: Vec<PathBuf> = drives.iter().map(|drive| trace_of(drive)).collect();
        let traces: Result<Vec<Trace>, _> = files.iter().map(|file| Trace::open(file)).collect();
        for drive in drives {
            remove(drive)?;
        }
        Ok(Self {
            place,
            bases,
            traces: traces.map_err(trouble)?,
            files,
            ledger,
            span,
            places,
            advertised_bytes,
            atomic_bytes,
        })
    }

    pub(super) fn remove(&self) -> Result<(), LabError> {
        let mut files = self.bases.iter().chain(&self.files);
        files.try_for_each(|file| remove(file))
    }

    pub(super) fn drives_told(&self) -> Vec<DriveTold> {
        let told = |trace: &Trace| {
            let sum = trace.summary();
            DriveTold {
                writes: sum.writes,
                write_bytes: sum.write_bytes,
                durable_writes: sum.durable_writes,
                flushes: sum.flushes,
                seconds: sum.nanoseconds as f64 / 1e9,
            }
        };
        self.traces.iter().map(told).collect()
    }

    /// Only where what is recorded is the file system's own disk.
    pub(super) fn data_writes(&self) -> Option<DataWrites> {
        let trace = self.traces.first().filter(|_| self.place == Place::Disk)?;
        let found = trace.writes_to(&self.places, PAGE);
        Some(DataWrites {
            writes: found.count,
            splitting_a_page: found.splitting,
            largest_bytes: found.largest,
        })
    }

    /// Commits that were acknowledged though some drive had made nothing durable meanwhile.
    pub(super) fn not_made_durable(&self) -> u64 {
        let syncs: Vec<Vec<Synced>> = self.traces.iter().map(Trace::syncs).collect();
        let is_durable = |commit: &Range<u64>| syncs.iter().all(|s| Synced::any_within(s, commit));
        let commits = self.ledger.commits().iter();
        commits.filter(|commit| !is_durable(commit)).count() as u64
    }
}

/// Starts the server without protection, loads it, and kills it.
fn run(setting: &Setting<'_>) -> Result<(Ledger, RangeInclusive<u64>), LabError> {
    let server = server_at(&setting.mount())?;
    let _ended = KilledAtEnd(&server);
    server.start(Some(settings(false)))?;
    let from = monotonic();
    let opened: Arc<dyn Database> = Arc::new(database(&server, setting.progress)?);
    let plan = plan(setting.users, setting.seconds, setting.seed)?;
    let loaded = load(&opened, &plan, setting.progress);
    let span = from..=monotonic();
    server.kill()?;
    loaded.map(|ledger| (ledger, span))
}

/// Largest atomic write of a block device in bytes, as the kernel has it.
fn atomic_bytes(device: Option<&str>) -> u64 {
    let name = device.and_then(|device| device.rsplit('/').next());
    let file = |name: &str| format!("/sys/class/block/{name}/queue/atomic_write_unit_max_bytes");
    name.and_then(|name| std::fs::read_to_string(file(name)).ok())
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// Copies an image; holes stay holes.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), LabError> {
    let (from, to) = (from.display().to_string(), to.display().to_string());
    tool("cp", &["--sparse=always", "--reflink=auto", &from, &to]).map(drop)
}

fn remove(file: &Path) -> Result<(), LabError> {
    std::fs::remove_file(file).map_err(|e| LabError::caused(file.display(), e))
}
