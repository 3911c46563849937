//! Opens what the lab measures, after looking at what it would overwrite.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ashlar_block::BlockSize;
use ashlar_device::{OpenError, OpenErrorKind, Spec, inspect};
use ashlar_lab::{LabError, OpenOptions, PrepareOptions, Prepared, Stacks, Worker};
use ashlar_reactor::Opener;

use super::nodes::Network;
use super::sample::find_data;
use super::worker::ReactorWorker;

/// Opens the device of a spec; the block size is that of what has none of its own. The program says how,
/// remote ones included.
pub type Open = fn(&Spec, BlockSize) -> Result<Arc<dyn Opener>, OpenError>;

/// Stacks of this machine. One that is opened by several threads, or by a server and a thread, is
/// assembled once: they share its locks and its memory.
pub struct LocalStacks {
    open: Open,
    opened: Mutex<HashMap<String, Arc<dyn Opener>>>,
    /// Where a thread has to be that opens what is not reached from everywhere.
    networks: Mutex<HashMap<String, Network>>,
}

impl LocalStacks {
    /// None is open yet.
    pub fn new(open: Open) -> Self {
        Self {
            open,
            opened: Mutex::default(),
            networks: Mutex::default(),
        }
    }

    /// From now on a spec is opened where this network's clients are.
    pub fn reach_from(&self, spec: &str, network: &Network) {
        let mut networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        networks.insert(spec.to_owned(), network.clone());
    }

    fn network(&self, spec: &str) -> Option<Network> {
        let networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        networks.get(spec).cloned()
    }

    /// The assembled stack of a spec that was prepared.
    pub fn opener(&self, spec: &str) -> Result<Arc<dyn Opener>, LabError> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let opener = opened.get(spec).cloned();
        opener.ok_or_else(|| LabError::environment(format!("{spec}: is not open")))
    }

    fn keep(&self, spec: &str, opener: Arc<dyn Opener>) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.insert(spec.to_owned(), opener);
    }
}

impl Stacks for LocalStacks {
    fn prepare(&self, spec: &str, options: &PrepareOptions) -> Result<Prepared, LabError> {
        let Some(network) = self.network(spec) else {
            return self.look_at(spec, options);
        };
        // On a thread of its own, which takes its own threads along and comes not back.
        let look = || {
            network
                .enter_hub()
                .and_then(|()| self.look_at(spec, options))
        };
        std::thread::scope(|scope| scope.spawn(look).join())
            .unwrap_or_else(|_| Err(LabError::environment("a thread panicked")))
    }

    fn open(&self, spec: &str, options: &OpenOptions) -> Result<Box<dyn Worker>, LabError> {
        let opener = self.opener(spec)?;
        if let Some(network) = self.network(spec) {
            network.enter_hub()?;
        }
        Ok(Box::new(ReactorWorker::open(
            opener.as_ref(),
            options.buffer_bytes,
        )?))
    }
}

impl LocalStacks {
    fn look_at(&self, spec: &str, options: &PrepareOptions) -> Result<Prepared, LabError> {
        let mut parsed: Spec = spec.parse().map_err(lab_error)?;
        let mut holds = held_by_files(&parsed)?;
        let fresh = is_new(&parsed);
        adapt(&mut parsed, options);
        // Nothing may be opened, and so created or extended, that would be refused.
        let refused = options.writes && holds.is_some() && !options.destroy_data;
        let opener = if refused && !parsed.paths().is_empty() {
            let read_only = PrepareOptions {
                writes: false,
                ..*options
            };
            adapt(&mut parsed, &read_only);
            (self.open)(&parsed, BlockSize::B4096)
        } else {
            (self.open)(&parsed, BlockSize::B4096)
        };
        let opener = opener.map_err(lab_error)?;
        if options.writes && holds.is_none() && matches!(parsed, Spec::Remote(_) | Spec::Rbd(_)) {
            holds = find_data(opener.as_ref())?;
        }
        let prepared = Prepared {
            geometry: opener.geometry(),
            description: opener.describe().to_string(),
            holds,
            fresh,
            file_system: parsed.paths().first().and_then(|path| file_system(path)),
        };
        self.keep(spec, opener);
        Ok(prepared)
    }
}

/// A file that does not say its size gets its share of `--size` if it is to be made; and a file is
/// locked only by a run that writes and was not told to disregard what is there: reading next to
/// `ashlar serve` is how remote is compared with local.
fn adapt(spec: &mut Spec, options: &PrepareOptions) {
    let files = spec.paths().len().max(1) as u64;
    let unlocked = !options.writes || options.destroy_data;
    spec.each_file(&mut |file| {
        file.unlocked = unlocked;
        let missing = std::fs::metadata(&file.path).map_or(true, |found| found.len() == 0);
        if file.size.is_none() && missing {
            // Whole MiB, so that a stripe of them has at least the size.
            file.size = options
                .size
                .map(|bytes| bytes.div_ceil(files).next_multiple_of(1 << 20));
        }
    });
}

/// Whether opening will make it: files that are missing or empty, memory.
fn is_new(spec: &Spec) -> bool {
    let empty = |path: &&Path| std::fs::metadata(path).map_or(true, |found| found.len() == 0);
    let paths = spec.paths();
    match spec {
        Spec::Remote(_) | Spec::Rbd(_) | Spec::Null(..) => false,
        _ => paths.iter().all(empty) && paths.iter().all(|path| !path.starts_with("/dev")),
    }
}

fn held_by_files(spec: &Spec) -> Result<Option<String>, LabError> {
    for path in spec.paths() {
        if let Some(finding) = inspect(path).map_err(lab_error)? {
            return Ok(Some(finding.text));
        }
    }
    Ok(None)
}

fn lab_error(error: OpenError) -> LabError {
    match error.kind() {
        OpenErrorKind::Usage => LabError::usage(error.to_string()),
        OpenErrorKind::Environment => LabError::environment(error.to_string()),
    }
}

/// Kind of the file system under `path`, by the longest mount point above it.
fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let above = mounts
        .lines()
        .filter_map(mount)
        .filter(|(point, _)| path.starts_with(point));
    above
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind)
}
