//! Files of drives that are deleted or cut short while they serve. The open file serves on as if nothing had happened,
//! and the next start does not find it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
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
    pub fn watch_files(self: &Arc<Self>, alarm: &Alarm) -> Result<(), std::io::Error> {
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
        for watched in &drives {
            let bytes = self.watch.lock().get(&watched.drive).map(|seen| seen.bytes);
            let looked = look(&watched.spec, bytes);
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

/// The bytes of a drive's files, or what is wrong with them, given how many there were.
fn look(spec: &str, bytes: Option<u64>) -> Result<u64, String> {
    let spec: Option<Spec> = split_class(spec)
        .ok()
        .and_then(|(plain, _)| plain.parse().ok());
    let mut now = 0;
    for path in spec.iter().flat_map(Spec::paths) {
        now += size_of(path)?;
    }
    match bytes {
        Some(bytes) if now < bytes => Err(format!(
            "its file was cut short, from {bytes} to {now} bytes: what was beyond reads as errors"
        )),
        _ => Ok(now),
    }
}

/// Zero for what is no regular file: a block device's size is not its node's.
fn size_of(path: &Path) -> Result<u64, String> {
    match std::fs::metadata(path) {
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
