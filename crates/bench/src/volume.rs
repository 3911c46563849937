//! `ashlar node` as a child, with one volume.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::args::Options;
use crate::child::{Program, words};
use crate::failure::Failure;
use crate::serve::Running;
use crate::signals::Temporary;

/// Drives of the pool, and bytes of each.
const DRIVES: usize = 2;
const DRIVE_BYTES: u64 = 512 << 20;
/// Files in memory.
const MEMORY: &str = "/dev/shm";
/// What the volume is.
pub(crate) const LAYOUT: &str = "mirror:2";

/// A daemon with a volume.
pub(crate) struct Volume {
    pub(crate) server: Running,
    /// The volume's subsystem.
    pub(crate) nqn: String,
    /// Gone after the server.
    _drives: Vec<Temporary>,
}

/// What is read of the answer to `volume create --json`.
#[derive(Deserialize)]
pub(crate) struct Created {
    pub(crate) nqn: String,
    /// Where it is served.
    pub(crate) address: String,
}

/// A folder for the drives of several daemons at a time.
#[derive(Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    /// Why they are not in memory, if they are not.
    pub(crate) note: Option<String>,
}

/// Where the drives of so many daemons have room even if all of it is written: in memory, or beside
/// the results.
pub(crate) fn place(options: &Options, daemons: u64) -> Result<Place, Failure> {
    let out = &options.out;
    let out = out.canonicalize().map_err(Failure::doing(out.display()))?;
    let free = rustix::fs::statvfs(MEMORY).ok();
    let free = free.map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    Ok(roomy(free, daemons * DRIVES as u64 * DRIVE_BYTES, out))
}

fn roomy(memory: Option<u64>, needed: u64, otherwise: PathBuf) -> Place {
    let lacks = match memory {
        Some(free) if free >= needed => {
            return Place {
                dir: MEMORY.into(),
                note: None,
            };
        }
        Some(free) => format!("{MEMORY} has {} of {} MiB free", free >> 20, needed >> 20),
        None => format!("there is no {MEMORY}"),
    };
    let dir = otherwise.display();
    let note =
        format!("{lacks}, so the volume's drives are files in {dir}: that drive counts, too");
    Place {
        note: Some(note),
        dir: otherwise,
    }
}

/// Starts a daemon on these cores with a volume of `size`; its drives are files in `place`.
pub(crate) fn start(
    options: &Options,
    place: &Place,
    name: &str,
    size: &str,
    cores: &[usize],
) -> Result<Volume, Failure> {
    let calls = Calls::new(options, name)?;
    let config = calls.dir.join("ashlar.toml");
    let text = format!("cores = {cores:?}\n");
    std::fs::write(&config, text).map_err(Failure::doing(config.display()))?;
    let mut node = words(["node", "--listen", "127.0.0.1:0"]);
    node.extend(words([Path::new("--dir"), &calls.dir]));
    node.extend(words([Path::new("--config"), &config]));
    let server = Running::start(&calls.program("node", node, None))?;

    let drives = calls.drives(place);
    let mut pool = words(["pool", "create", "tank"]);
    for drive in &drives {
        let spec = format!("file:{}?size={DRIVE_BYTES}", drive.path().display());
        pool.extend(words(["--drive", &spec]));
    }
    calls.order("pool", pool)?;
    let volume = ["volume", "create", "tank/v", "--layout", LAYOUT, "--size"];
    let mut volume = words(volume);
    volume.extend(words([size, "--allow-any-host", "--json"]));
    let told = calls.order("volume", volume)?;
    let created: Created = serde_json::from_str(&told).map_err(Failure::doing(name))?;
    Ok(Volume {
        server,
        nqn: created.nqn,
        _drives: drives,
    })
}

/// How programs of one daemon are called, and where its files are.
struct Calls<'a> {
    options: &'a Options,
    name: &'a str,
    dir: PathBuf,
}

impl<'a> Calls<'a> {
    /// With a fresh directory.
    fn new(options: &'a Options, name: &'a str) -> Result<Self, Failure> {
        let out = &options.out;
        let out = out.canonicalize().map_err(Failure::doing(out.display()))?;
        let dir = out.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).map_err(Failure::doing(dir.display()))?;
        }
        std::fs::create_dir(&dir).map_err(Failure::doing(dir.display()))?;
        Ok(Self { options, name, dir })
    }

    fn program(&self, what: &str, args: Vec<OsString>, output: Option<PathBuf>) -> Program {
        Program {
            name: format!("ashlar {what} ({})", self.name),
            path: self.options.ashlar.clone(),
            args,
            core: None,
            log: self.dir.join(format!("{what}.log")),
            output,
        }
    }

    /// Has the daemon do something; gives what is printed.
    fn order(&self, what: &str, mut args: Vec<OsString>) -> Result<String, Failure> {
        let told = self.dir.join(format!("{what}.out"));
        args.push("--api".into());
        args.push(self.dir.join("api.sock").into());
        let program = self.program(what, args, Some(told.clone()));
        program.start()?.finish()?;
        std::fs::read_to_string(&told).map_err(Failure::doing(told.display()))
    }

    fn drives(&self, place: &Place) -> Vec<Temporary> {
        let file = |drive| {
            let name = self.name;
            format!("ashlar-bench-{}-{name}-{drive}.img", std::process::id())
        };
        let drives = (0..DRIVES).map(|drive| Temporary::new(place.dir.join(file(drive))));
        drives.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_in_memory_only_where_there_is_room_for_all_of_them() {
        let needed = 2 << 30;
        let of = |free| roomy(free, needed, "/out".into());
        let memory = Place {
            dir: MEMORY.into(),
            note: None,
        };
        assert_eq!(of(Some(needed)), memory);
        for (free, word) in [(Some(64 << 20), "64 of 2048 MiB"), (None, "no /dev/shm")] {
            let found = of(free);
            assert_eq!(found.dir, Path::new("/out"));
            let note = found.note.expect("it is told");
            assert!(note.contains(word), "{note}");
        }
    }
}
