//! Files of drives that are deleted, replaced or cut short while they serve. The open file serves on as if nothing had
//! happened, and the next start does not find it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ashlar_device::Spec;
use tracing::warn;
use uuid::Uuid;

use super::{Kept, PoolManager};
use crate::Alarm;
use crate::pool::split_class;

const LOOK_EVERY: Duration = Duration::from_secs(15);

/// What was seen of drives' files, by drive.
#[derive(Default)]
pub(super) struct Watch(Mutex<BTreeMap<Uuid, Seen>>);

#[derive(Default)]
struct Seen {
    /// Of all its files, when it was seen first.
    bytes: u64,
    trouble: Option<String>,
}

/// A drive that is looked after.
struct Watched {
    pool: String,
    drive: Uuid,
    spec: String,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Seen>> {
        // Each change is a single assignment; a panic leaves none half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong with a drive's file.
    pub(super) fn trouble(&self, drive: Uuid) -> Option<String> {
        self.lock().get(&drive)?.trouble.clone()
    }
}

impl PoolManager {
    /// Looks after the files of drives as long as there is a pool manager, on a thread of its own: a file system that hangs
    /// holds up nothing else.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watch_files(self: &Arc<Self>, alarm: &Alarm) -> Result<(), io::Error> {
        let manager = Arc::downgrade(self);
        let watch = move || {
            while let Some(manager) = manager.upgrade() {
                manager.look_at_files();
                drop(manager);
                thread::sleep(LOOK_EVERY);
            }
            Ok(())
        };
        alarm.spawn("drive files", watch).map(drop)
    }

    pub(super) fn look_at_files(&self) {
        let drives = self.watched();
        let known = |drive: &Uuid| drives.iter().any(|watched| watched.drive == *drive);
        self.watch.lock().retain(|drive, _| known(drive));
        let open = OpenFiles::now().ok();
        for watched in &drives {
            let bytes = self.watch.lock().get(&watched.drive).map(|seen| seen.bytes);
            let looked = look(&watched.spec, bytes, open.as_ref());
            let mut seen = self.watch.lock();
            let seen = seen.entry(watched.drive).or_default();
            let before = match looked {
                Ok(now) => {
                    seen.bytes = seen.bytes.max(now);
                    seen.trouble.take()
                }
                Err(ref why) => seen.trouble.replace(why.clone()),
            };
            let Watched { pool, spec, .. } = watched;
            match (&seen.trouble, before) {
                (Some(why), None) => warn!(pool, drive = spec, "pool {pool}: drive {spec}: {why}"),
                (None, Some(_)) => warn!(
                    pool,
                    drive = spec,
                    "pool {pool}: drive {spec}: its file is back"
                ),
                _ => {}
            }
        }
    }

    fn watched(&self) -> Vec<Watched> {
        let pools = self.lock();
        let live = pools.iter().filter_map(|(name, kept)| match kept {
            Kept::Live(pool) => Some((name, pool)),
            Kept::Failed { .. } => None,
        });
        let drives = live.flat_map(|(name, pool)| {
            let here = pool
                .drives
                .iter()
                .filter(|drive| drive.is_here && !drive.removed);
            here.map(|drive| Watched {
                pool: name.clone(),
                drive: drive.id,
                spec: drive.spec.clone(),
            })
        });
        drives.collect()
    }
}

/// The regular files that this process has open.
struct OpenFiles(BTreeSet<FileIdentity>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl OpenFiles {
    fn now() -> io::Result<Self> {
        let entries = fs::read_dir("/proc/self/fd")?.filter_map(Result::ok);
        let files = entries.filter_map(|entry| fs::metadata(entry.path()).ok());
        let files = files.filter(Metadata::is_file);
        Ok(Self(files.map(|file| FileIdentity::of(&file)).collect()))
    }
}

impl FileIdentity {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
        }
    }
}

/// The bytes of a drive's files, or what is wrong with them, given how many there were and which are `open`, if that
/// can be told.
fn look(spec: &str, bytes: Option<u64>, open: Option<&OpenFiles>) -> Result<u64, String> {
    let spec: Option<Spec> = split_class(spec)
        .ok()
        .and_then(|(plain, _)| plain.parse().ok());
    let mut now = 0;
    for path in spec.iter().flat_map(Spec::paths) {
        now += size_of(path, open)?;
    }
    match bytes {
        Some(bytes) if now < bytes => Err(format!(
            "its file was cut short, from {bytes} to {now} bytes: what was beyond reads as errors"
        )),
        _ => Ok(now),
    }
}

/// Zero for what is no regular file: a block device's size is not its node's.
fn size_of(path: &Path, open: Option<&OpenFiles>) -> Result<u64, String> {
    match fs::metadata(path) {
        Ok(file)
            if file.is_file()
                && open.is_some_and(|open| !open.0.contains(&FileIdentity::of(&file))) =>
        {
            Err(format!(
                "{} is another file now: its own serves on as long as the daemon has it open, and will be missing at \
                 the next start",
                path.display()
            ))
        }
        Ok(file) if file.is_file() => Ok(file.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(format!(
            "{} was deleted or renamed: it serves on as long as the daemon has it open, and will be missing at the \
             next start",
            path.display()
        )),
        // What else there is to say, reads and writes say.
        _ => Ok(0),
    }
}
