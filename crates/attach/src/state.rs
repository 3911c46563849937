//! What is remembered of an attachment: a folder each, below one that is gone after a restart of the
//! machine, as the attachments are.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ashlar_reactor::Spin;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::AttachError;
use crate::means::Means;
use crate::nvme::{self, Controller};
use crate::system::connections::FuseConnection;
use crate::system::loops;
use crate::system::process::Process;

/// Where attachments are remembered by default.
pub const DEFAULT_FOLDER: &str = "/run/ashlar/attach";

const STATE: &str = "state.json";
const PROCESSES: &str = "processes.json";
/// The file that the volume appears as, before it is a device.
const FILE: &str = "volume";
const LOG: &str = "log";

/// How far an attachment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// On its way; this process does it.
    Attaching(Process),
    Attached,
    /// Its file system is unmounted, and something of the rest may be left.
    Detaching,
}

/// The daemon of this machine that serves an attachment in process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// Where it takes attachments.
    pub socket: PathBuf,
    /// Who this machine is to it: an NQN.
    pub host: String,
}

/// Everything about an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The volume, as it was asked for.
    pub volume: String,
    /// The namespace behind it, `nvme-tcp://…`.
    pub url: String,
    /// What makes the namespace the same one whatever it is reached by.
    pub identity: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its logical block in bytes.
    pub block_bytes: u32,
    /// Whether what was written may be lost until a flush.
    pub volatile_cache: bool,
    /// Where its file system is mounted.
    pub mount: PathBuf,
    /// Its file system.
    pub file_system: Option<String>,
    /// How it is attached.
    pub means: Means,
    /// Why by this means, and by no better one.
    pub why: String,
    /// Who serves it in process; nothing: a server of its own does, through our initiator.
    #[serde(default)]
    pub local: Option<Local>,
    /// The block device that is mounted.
    pub device: Option<PathBuf>,
    /// The kernel's connection to the server of the FUSE file, if that is the means.
    #[serde(default)]
    pub connection: Option<FuseConnection>,
    /// The kernel's controller, if that is the means.
    #[serde(default)]
    pub controller: Option<Controller>,
    /// Whether this host has reserved the volume for it.
    #[serde(default)]
    pub reserved: bool,
    /// Whether flushes are sent even if the volume does not need them.
    pub always_flush: bool,
    /// How long I/O waits for the volume before it fails, in seconds; nothing: for ever.
    pub limit_seconds: Option<u64>,
    /// When the server spins.
    #[serde(default)]
    pub spin: SpinWord,
    /// Where every request is written down.
    pub trace: Option<PathBuf>,
    /// How far it is.
    pub phase: Phase,
}

/// When a server spins, as it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SpinWord(pub Spin);

impl TryFrom<String> for SpinWord {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

impl From<SpinWord> for String {
    fn from(word: SpinWord) -> Self {
        word.0.to_string()
    }
}

/// The processes behind an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// Holds the connection to the kernel, and starts a server when there is none.
    pub guardian: Process,
    /// Answers the kernel, and does nothing else.
    pub server: Option<Process>,
    /// The daemon that answers the kernel, if it is served in process. It is not the attachment's to end.
    #[serde(default)]
    pub daemon: Option<Process>,
    /// How often another server or daemon has taken the place of one that died.
    pub restarts: u64,
}

/// An attachment's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder of what is mounted at `mount`, below `base`. It need not be there.
    pub fn of(base: &Path, mount: &Path) -> Self {
        Self(whole(base).join(escape(mount)))
    }

    /// A folder, by its path.
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// All that are there.
    pub fn all(base: &Path) -> Vec<Self> {
        let entries = fs::read_dir(whole(base)).into_iter().flatten().flatten();
        let mut all: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.join(STATE).exists())
            .collect();
        all.sort();
        all.into_iter().map(Self).collect()
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }

    /// The loop device that was made over the FUSE file, if it is still there.
    pub(crate) fn loop_device(&self, state: Option<&State>) -> Option<PathBuf> {
        let known = state.and_then(|state| state.device.clone());
        known
            .filter(|device| self.has(state, device))
            .or_else(|| loops::find(&self.file()))
    }

    /// Whether a loop device is over the FUSE file, or over what is left of that.
    pub(crate) fn has(&self, state: Option<&State>, device: &Path) -> bool {
        let connection = state.and_then(|state| state.connection);
        loops::is_over(device, &self.file())
            || connection.is_some_and(|lost| loops::is_over_lost(device, lost))
    }

    /// What the processes have to say.
    pub fn log(&self) -> PathBuf {
        self.0.join(LOG)
    }

    /// Makes it; this is what claims the mount point.
    ///
    /// # Errors
    /// Environment: it is there already, or cannot be made.
    pub(crate) fn make(&self, state: &State) -> Result<(), AttachError> {
        let failed = |error: std::io::Error| {
            AttachError::environment(format!("{}: {error}", self.0.display()))
        };
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        if let Some(base) = self.0.parent() {
            builder.recursive(true).create(base).map_err(failed)?;
        }
        match builder.recursive(false).create(&self.0) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(AttachError::environment(format!(
                    "{} has an attachment already (or what is left of one): see `ashlar attach \
                     --list`; `ashlar detach {0} --force` clears it",
                    state.mount.display()
                )));
            }
            Err(error) => return Err(failed(error)),
        }
        let filled = fs::File::create(self.file())
            .map_err(failed)
            .and_then(|_| self.save(state));
        filled.map_err(|error| match self.remove() {
            Ok(()) => error,
            // It would be in the way of the next one, and without a state it is not listed.
            Err(left) => AttachError::environment(format!("{error}; and {left}")),
        })
    }

    /// Deletes a controller that was connected for an attachment, unless another one uses it.
    ///
    /// # Errors
    /// Environment: it is not gone within `limit`.
    pub(crate) fn disconnect(
        &self,
        controller: &Controller,
        limit: Duration,
    ) -> Result<(), AttachError> {
        let others = self.0.parent().map(Self::all).unwrap_or_default();
        let uses = |state: State| {
            let theirs = state.controller;
            theirs.is_some_and(|theirs| theirs.name == controller.name)
        };
        let others = others.iter().filter(|other| *other != self);
        let shared = others.filter_map(|other| other.state().ok()).any(uses);
        match controller.ours && !shared {
            true => nvme::delete(controller, limit),
            false => Ok(()),
        }
    }

    /// Removes what it holds. Nothing may be mounted in it any more.
    ///
    /// # Errors
    /// Environment.
    pub(crate) fn remove(&self) -> Result<(), AttachError> {
        fs::remove_dir_all(&self.0).map_err(|error| {
            AttachError::environment(format!("cannot remove {}: {error}", self.0.display()))
        })
    }

    /// What is remembered.
    ///
    /// # Errors
    /// Environment: it is not there, or damaged.
    pub fn state(&self) -> Result<State, AttachError> {
        self.read(STATE)
    }

    pub(crate) fn save(&self, state: &State) -> Result<(), AttachError> {
        self.write(STATE, state)
    }

    /// The processes behind it, if they have begun.
    pub fn processes(&self) -> Option<Processes> {
        self.read(PROCESSES).ok()
    }

    pub(crate) fn save_processes(&self, processes: &Processes) -> Result<(), AttachError> {
        self.write(PROCESSES, processes)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, AttachError> {
        let path = self.0.join(name);
        let failed = |why: String| AttachError::environment(format!("{}: {why}", path.display()));
        let text = fs::read(&path).map_err(|error| failed(error.to_string()))?;
        serde_json::from_slice(&text)
            .map_err(|error| failed(ashlar_plain::reworded(&error.to_string())))
    }

    /// Replaces a file as a whole. It need not be durable: it does not outlive the machine's run.
    fn write<T: Serialize>(&self, name: &str, what: &T) -> Result<(), AttachError> {
        let path = self.0.join(name);
        let failed = |why: String| AttachError::environment(format!("{}: {why}", path.display()));
        let text = serde_json::to_vec_pretty(what).map_err(|error| failed(error.to_string()))?;
        let new = self.0.join(format!("{name}.new"));
        let mut file = fs::File::create(&new).map_err(|error| failed(error.to_string()))?;
        file.write_all(&text)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|error| failed(error.to_string()))
    }
}

/// A path that means the same to every process: the kernel tells of mounts and devices by such ones.
fn whole(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A path as one name: `/` becomes `-`, and what is neither letter, digit, `_` nor `.` its code.
fn escape(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    let escaped: String = bytes
        .iter()
        .map(|&byte| match byte {
            b'/' => "-".into(),
            plain if plain.is_ascii_alphanumeric() || b"_.".contains(&plain) => {
                char::from(plain).to_string()
            }
            other => format!("%{other:02x}"),
        })
        .collect();
    // A leading dot would make it hidden, or mean another folder.
    match escaped.strip_prefix('.') {
        Some(rest) => format!("%2e{rest}"),
        None => escaped,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn mount_points_have_names_of_their_own() {
        let names: Vec<String> = ["/mnt/db", "/mnt-db", "/mnt/.db", "/..", "/mnt/d b"]
            .iter()
            .map(|path| escape(Path::new(path)))
            .collect();
        assert_eq!(
            names,
            ["mnt-db", "mnt%2ddb", "mnt-.db", "%2e.", "mnt-d%20b"]
        );
    }

    /// A small file system, until it is dropped.
    struct Small(PathBuf);

    impl Small {
        /// None where this process may not mount one.
        fn of(at: &Path, inodes: u32) -> Option<Self> {
            let options = format!("nr_inodes={inodes}");
            let mut mount = Command::new("mount");
            let mount = mount.args(["-t", "tmpfs", "-o", &options, "none"]).arg(at);
            let mounted = mount.status().is_ok_and(|status| status.success());
            mounted.then(|| Self(at.to_owned()))
        }

        fn enlarge(&self) {
            let mut mount = Command::new("mount");
            let mount = mount.args(["-o", "remount,nr_inodes=99"]).arg(&self.0);
            assert!(mount.status().expect("mount").success());
        }
    }

    impl Drop for Small {
        fn drop(&mut self) {
            // What stays mounted is the machine's to clear away.
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }

    #[test]
    fn a_folder_that_has_no_room_for_its_state_is_not_left() {
        let dir = tempfile::tempdir().expect("a folder");
        // The file system's own folder, the attachment's, and the volume's file.
        let Some(small) = Small::of(dir.path(), 3) else {
            println!("skipped: no file system can be mounted");
            return;
        };
        let state = serde_json::json!({
            "volume": "tank/db", "url": "nvme-tcp://127.0.0.1:4420/nqn.2026-01.x:y", "identity": "uuid 1",
            "bytes": 4096, "block_bytes": 4096, "volatile_cache": false, "mount": "/mnt/db", "means": "fuse",
            "why": "", "always_flush": false, "phase": "attached"
        });
        let state: State = serde_json::from_value(state).expect("a state");
        let folder = Folder::of(dir.path(), &state.mount);
        folder.make(&state).expect_err("there is no room");
        assert!(!folder.path().exists(), "it is in the way of the next one");
        small.enlarge();
        folder.make(&state).expect("there is room");
        assert_eq!(folder.state(), Ok(state));
    }
}
