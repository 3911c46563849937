//! Where the database lies: a plain disk, or a mirrored volume of two drives.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ashlar_lab::LabError;
use ashlar_testbed::pools::{node, volume_url, word};
use ashlar_testbed::process::{Process, ashlar};

use super::verify::is_lack;

const NQN: &str = "nqn.2026-11.io.ashlar:torn-pages";
/// What a trace may have: disks here are small.
const RECORD_LIMIT: &str = "1900MiB";
const POOL: &str = "torn";
const VOLUME: &str = "torn/db";

/// A kind of place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// One file as a disk: nothing is atomic but the drive's own blocks.
    Disk,
    /// A `mirror:2` volume of two files as drives: every piece of a write between borders of the unit that the
    /// volume advertises (64 KiB, NAWUPF and NABSPF) is atomic.
    Volume,
}

/// A place that is served.
pub(super) struct Served {
    process: Process,
    /// What the initiator takes.
    pub(super) url: String,
}

impl Served {
    pub(super) fn stop(self) -> Result<(), LabError> {
        self.process.stop()
    }
}

/// The trace of a drive.
pub(super) fn trace_of(drive: &Path) -> PathBuf {
    drive.with_extension("trace")
}

impl Place {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Volume => "volume",
        }
    }

    /// Its drives in a folder.
    pub(super) fn drives(self, dir: &Path) -> Vec<PathBuf> {
        let names: &[&str] = match self {
            Self::Disk => &["disk.img"],
            Self::Volume => &["drive0.img", "drive1.img"],
        };
        names.iter().map(|name| dir.join(name)).collect()
    }

    /// Serves drives that hold this place; `record` writes down what becomes of them.
    ///
    /// # Errors
    /// A failed check: what the drives hold is refused; else what the machine lacks.
    pub(super) fn serve(
        self,
        drives: &[PathBuf],
        state: &Path,
        record: bool,
    ) -> Result<Served, LabError> {
        let specs: Vec<String> = drives.iter().map(|drive| spec(drive, record)).collect();
        match self {
            Self::Disk => serve_disk(&specs, state),
            Self::Volume => {
                let (process, api) = node(state, Ipv4Addr::LOCALHOST.into())?;
                let mut words = vec!["pool", "import", POOL, "--api", &api];
                for spec in &specs {
                    words.extend(["--drive", spec]);
                }
                ashlar(&words).map_err(refused)?;
                ashlar(&["volume", "allow", VOLUME, "--any-host", "--api", &api])
                    .map_err(refused)?;
                let url = volume_url(&process, &api, VOLUME)?;
                Ok(Served { process, url })
            }
        }
    }

    /// Makes a volume of `bytes` on new drives and serves it.
    pub(super) fn make_volume(
        drives: &[PathBuf],
        bytes: u64,
        state: &Path,
    ) -> Result<Served, LabError> {
        let (process, api) = node(state, Ipv4Addr::LOCALHOST.into())?;
        let size = bytes.to_string();
        // Room for logs, map, and slots written elsewhere before old ones are free.
        let drive_bytes = bytes + bytes / 2 + (256 << 20);
        let specs: Vec<String> = drives
            .iter()
            .map(|drive| format!("file:{}?size={drive_bytes}&allocate=off", drive.display()))
            .collect();
        let mut words = vec!["pool", "create", POOL, "--api", &api];
        for spec in &specs {
            words.extend(["--drive", spec]);
        }
        ashlar(&words)?;
        ashlar(&[
            "volume",
            "create",
            VOLUME,
            "--size",
            &size,
            "--layout",
            "mirror:2",
            "--allow-any-host",
            "--api",
            &api,
        ])?;
        let url = volume_url(&process, &api, VOLUME)?;
        Ok(Served { process, url })
    }
}

/// What is told where a process was killed, or a machine is too busy: that says nothing of drives.
const BUSY: [&str; 3] = [
    "signal: 9",
    "has not answered within",
    "cannot be reached: no answer",
];

/// Drives that are there, and what a pool is not imported from: they are broken, unless the machine lacks something.
fn refused(error: LabError) -> LabError {
    let text = error.to_string();
    match is_lack(&text) || BUSY.iter().any(|words| text.contains(words)) {
        true => error,
        false => LabError::check(format!("the volume cannot be served: {text}")),
    }
}

fn spec(drive: &Path, record: bool) -> String {
    let file = drive.display();
    match record {
        true => format!(
            "file:{file}?record={}&record-limit={RECORD_LIMIT}",
            trace_of(drive).display()
        ),
        false => format!("file:{file}"),
    }
}

fn serve_disk(specs: &[String], state: &Path) -> Result<Served, LabError> {
    // Another run may have been given the same port, while what it attached is still there.
    let nqn = format!("{NQN}-{}", std::process::id());
    let mut words = vec!["serve", "--listen", "127.0.0.1:0", "--nqn", &nqn];
    words.extend(["--allow-any-host", "--block", "4096"]);
    for spec in specs {
        words.extend(["--device", spec]);
    }
    let process = Process::start(&words, &state.with_extension("log"))?;
    let address = word(&process, 0)?;
    let url = format!("nvme-tcp://{address}/{nqn}?ns=1");
    Ok(Served { process, url })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_that_are_refused_are_broken_unless_the_machine_lacks_something() {
        let of = |text: &str| refused(LabError::environment(text)).exit_code();
        assert_eq!(of("pool import torn: no drive has a root"), 1);
        assert_eq!(of("pool import torn: No space left on device"), 3);
        assert_eq!(of("`ashlar pool` ended (signal: 9 (SIGKILL))"), 3);
        assert_eq!(of("the daemon at a has not answered within 60s"), 3);
    }
}
