//! Attaching: from a namespace to a mounted file system, or back to nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ashlar_reactor::Spin;

use crate::detach::{DetachOptions, clear};
use crate::error::AttachError;
use crate::format::{self, Content, FileSystem};
use crate::guardian;
use crate::local::{self, Wish};
use crate::means::{Means, Via, choose};
use crate::nvme::{self, Fabrics};
use crate::state::{Folder, Local, Phase, SpinWord, State};
use crate::system::connections::FuseConnection;
use crate::system::process::Process;
use crate::system::{loops, mounts, tool, users};

/// How long a server may take to come up.
const START: Duration = Duration::from_secs(60);
/// Mounting may replay a long log.
const MOUNT: Duration = Duration::from_secs(600);

/// The namespace that is to be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// As it was asked for: `tank/db`, or the URL.
    pub volume: String,
    /// `nvme-tcp://…`.
    pub url: String,
    /// What makes it the same one whatever it is reached by.
    pub identity: String,
    /// How the kernel's own nvme-tcp reaches it.
    pub fabrics: Fabrics,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its logical block in bytes.
    pub block_bytes: u32,
    /// Bytes that are written in it, if its owner knows.
    pub used_bytes: Option<u64>,
    /// Whether what was written may be lost until a flush.
    pub volatile_cache: bool,
    /// Whether this host has reserved it.
    pub reserved: bool,
    /// The daemon of this machine that has it, or why none is asked.
    pub local: Result<Local, String>,
}

/// How it is to be attached.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Where attachments are remembered.
    pub base: PathBuf,
    /// Where its file system is to be mounted.
    pub mount: PathBuf,
    /// The file system to make if the volume is empty; without it, the one that is there is mounted.
    pub file_system: Option<FileSystem>,
    /// What the volume holds may be destroyed.
    pub destroy_data: bool,
    /// Mount options.
    pub options: Option<String>,
    /// Another node may mount a copy of the file system: this machine may be both of them.
    pub has_twins: bool,
    /// By what means.
    pub via: Via,
    /// Send flushes even if the volume does not need them.
    pub always_flush: bool,
    /// How long I/O waits for the volume before it fails; nothing: for ever.
    pub limit: Option<Duration>,
    /// When the server spins.
    pub spin: Spin,
    /// Where every request is written down.
    pub trace: Option<PathBuf>,
}

impl AttachOptions {
    /// XFS mounts one of two copies only, unless it is told that it does not matter.
    fn mount_options(&self, kind: &str) -> Option<String> {
        let twin = (self.has_twins && kind == "xfs").then(|| "nouuid".to_owned());
        match (&self.options, twin) {
            (Some(asked), Some(twin)) => Some(format!("{asked},{twin}")),
            (asked, twin) => asked.clone().or(twin),
        }
    }
}

/// Whether this process may attach at all.
///
/// # Errors
/// Environment: it is not root's.
pub fn require_root(what: &str) -> Result<(), AttachError> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(AttachError::environment(format!(
            "{what} needs root: it mounts and makes a loop device; nothing was done"
        ))),
    }
}

/// Whether `mount` can be mounted on, without changing anything. Gives its whole path.
///
/// # Errors
/// Environment: it is missing, no folder, not empty, or has something mounted on it.
pub fn check_mount_point(base: &Path, mount: &Path) -> Result<PathBuf, AttachError> {
    let failed =
        |why: String| AttachError::environment(format!("mount point {}: {why}", mount.display()));
    let whole = fs::canonicalize(mount).map_err(|error| failed(error.to_string()))?;
    if Folder::of(base, &whole).path().exists() {
        return Err(failed(
            "it has an attachment already, or what is left of one: see `ashlar attach --list`"
                .into(),
        ));
    }
    if let Some(there) = mounts::at(&whole) {
        return Err(failed(format!(
            "{} ({}) is mounted on it",
            there.source, there.kind
        )));
    }
    let mut entries = fs::read_dir(&whole).map_err(|error| failed(error.to_string()))?;
    if entries.next().is_some() {
        return Err(failed(
            "it is not empty, and mounting would hide what is in it".into(),
        ));
    }
    Ok(whole)
}

/// Attaches the namespace. `guard` makes the command of the guardian of a folder.
///
/// # Errors
/// Usage: the volume holds something, and this was not said to be meant. Environment: everything else.
/// Nothing is left of an attachment that failed.
pub fn attach(
    namespace: &Namespace,
    options: &AttachOptions,
    guard: impl FnOnce(&Folder) -> Command,
) -> Result<State, AttachError> {
    require_root("attach")?;
    let mount = check_mount_point(&options.base, &options.mount)?;
    check_tools(options.file_system)?;
    check_trace(options.trace.as_deref(), &mount)?;
    check_not_attached(&options.base, namespace, None)?;
    let (means, why) = means(namespace, options)?;
    let (local, why) = match means {
        Means::Nvme => (None, why),
        Means::Fuse => by_whom(namespace, options, &mount, &why),
    };
    let this = Process::of(std::process::id() as i32);
    let this = this.ok_or_else(|| AttachError::environment("/proc is not mounted"))?;
    let state = State {
        volume: namespace.volume.clone(),
        url: namespace.url.clone(),
        identity: namespace.identity.clone(),
        bytes: namespace.bytes,
        block_bytes: namespace.block_bytes,
        volatile_cache: namespace.volatile_cache,
        mount: mount.clone(),
        file_system: None,
        means,
        why,
        local,
        device: None,
        connection: None,
        controller: None,
        reserved: namespace.reserved,
        always_flush: options.always_flush,
        limit_seconds: options.limit.map(|limit| limit.as_secs()),
        spin: SpinWord(options.spin),
        trace: options.trace.clone(),
        phase: Phase::Attaching(this),
    };
    let folder = Folder::of(&options.base, &mount);
    folder.make(&state)?;
    // Again, now that another one at the same moment would see this one: one of them sees the other.
    let result = check_not_attached(&options.base, namespace, Some(&folder))
        .and_then(|()| build(&folder, state, namespace, options, guard));
    if let Err(error) = result {
        return Err(match clear(&folder, DetachOptions::FORCED) {
            Ok(_) => error,
            Err(left) => AttachError::environment(format!("{error}; and of it is left: {left}")),
        });
    }
    result
}

fn build(
    folder: &Folder,
    mut state: State,
    namespace: &Namespace,
    options: &AttachOptions,
    guard: impl FnOnce(&Folder) -> Command,
) -> Result<State, AttachError> {
    if state.means == Means::Nvme
        && let Err(error) = by_nvme(folder, &mut state, namespace, options)
    {
        if options.via != Via::Auto {
            return Err(error);
        }
        let_go(folder, &mut state)?;
        state.means = Means::Fuse;
        (state.local, state.why) = by_whom(namespace, options, &state.mount, &error.to_string());
        folder.save(&state)?;
    }
    if state.means == Means::Fuse {
        by_fuse(folder, &mut state, guard)?;
    }
    let Some(device) = state.device.clone() else {
        return Err(AttachError::environment("there is no device"));
    };
    let content = match options.destroy_data {
        true => Content::Destroyed,
        false => Content::Kept {
            used: namespace.used_bytes,
        },
    };
    let kind = match options.file_system {
        Some(wanted) => format::make(&device, &state.volume, wanted, content)?,
        None => format::find(&device, &state.volume)?,
    };
    let mount_options = options.mount_options(kind.as_str());
    let mounted = mounts::mount_device(
        &device,
        &state.mount,
        &kind,
        mount_options.as_deref(),
        MOUNT,
    );
    mounted.map_err(or_held_by)?;
    state.file_system = Some(kind);
    state.phase = Phase::Attached;
    folder.save(&state)?;
    Ok(state)
}

/// XFS does not mount a file system a second time, and `detach --force` leaves it mounted, out of sight, while it is in
/// use: the kernel's word for that is that the file system is of the wrong kind.
fn or_held_by(error: AttachError) -> AttachError {
    let holders = users::of_torn();
    if holders.is_empty() {
        return error;
    }
    AttachError::environment(format!(
        "{error}; it may still be mounted where `detach --force` took it away from {}: end that, then attach again",
        users::named(&holders)
    ))
}

/// By which means; some options are for one of them only.
fn means(namespace: &Namespace, options: &AttachOptions) -> Result<(Means, String), AttachError> {
    let chosen = choose(options.via)?;
    let only_fuse = match (options.always_flush, &options.trace) {
        (true, _) => "--always-flush",
        (_, Some(_)) => "--trace",
        _ if namespace.fabrics.has_other_paths => "a URL of several portals",
        _ => return Ok(chosen),
    };
    match (chosen.0, options.via) {
        (Means::Fuse, _) => Ok(chosen),
        (Means::Nvme, Via::Nvme) => Err(AttachError::usage(format!(
            "{only_fuse} is for --via fuse: the kernel's nvme-tcp does not know it"
        ))),
        (Means::Nvme, _) => Ok((Means::Fuse, format!("{only_fuse} is for it only"))),
    }
}

/// Who is to serve the FUSE file: the volume's daemon, if it is here and would. And in words, with the reason
/// for FUSE at all.
fn by_whom(
    namespace: &Namespace,
    options: &AttachOptions,
    mount: &Path,
    why: &str,
) -> (Option<Local>, String) {
    let local = match (&namespace.local, options.via, &options.trace) {
        (_, Via::Initiator, _) => return (None, format!("fuse, through the initiator: {why}")),
        (_, _, Some(_)) => Err("--trace writes files, which a core must not".to_owned()),
        (Ok(local), ..) => local_would(namespace, local, mount),
        (Err(why), ..) => Err(why.clone()),
    };
    match local {
        Ok(local) => (Some(local), format!("fuse, in process: {why}")),
        Err(not) => (
            None,
            format!("fuse, through the initiator: {why}; not in process: {not}"),
        ),
    }
}

fn local_would(namespace: &Namespace, local: &Local, mount: &Path) -> Result<Local, String> {
    if !guardian::sends_again() {
        return Err("the daemon's end would be the attachment's before Linux 6.9".into());
    }
    let wish = Wish {
        volume: namespace.volume.clone(),
        identity: namespace.identity.clone(),
        bytes: namespace.bytes,
        block_bytes: namespace.block_bytes,
        host: local.host.clone(),
        mount: mount.to_owned(),
        takes_over: false,
    };
    local::may(&local.socket, &wish).map(|()| local.clone())
}

/// A server behind a FUSE file, and a loop device over that.
fn by_fuse(
    folder: &Folder,
    state: &mut State,
    guard: impl FnOnce(&Folder) -> Command,
) -> Result<(), AttachError> {
    guardian::start(folder, guard(folder), START)?;
    state.connection = FuseConnection::at(&folder.file());
    let device = loops::attach(&folder.file(), state.block_bytes)?;
    state.device = Some(device.clone());
    folder.save(state)?;
    loops::set_flushes(&device, state.volatile_cache || state.always_flush)
}

/// A block device of the kernel's own nvme-tcp.
fn by_nvme(
    folder: &Folder,
    state: &mut State,
    namespace: &Namespace,
    options: &AttachOptions,
) -> Result<(), AttachError> {
    let mut controller = nvme::connect(&namespace.fabrics, options.limit)?;
    // Another attachment may have connected it.
    let made = |other: State| {
        let theirs = other.controller;
        theirs.is_some_and(|theirs| theirs.ours && theirs.name == controller.name)
    };
    let others = Folder::all(&options.base);
    controller.ours |= others
        .iter()
        .filter_map(|other| other.state().ok())
        .any(made);
    state.controller = Some(controller);
    folder.save(state)?;
    state.device = Some(nvme::device(&namespace.fabrics, &namespace.identity)?);
    folder.save(state)
}

/// Takes a connection of the kernel's back, after it was of no use.
fn let_go(folder: &Folder, state: &mut State) -> Result<(), AttachError> {
    state.device = None;
    match state.controller.take() {
        Some(controller) => folder.disconnect(&controller, START),
        None => Ok(()),
    }
}

/// Looks for the tools before anything is done.
fn check_tools(file_system: Option<FileSystem>) -> Result<(), AttachError> {
    for (name, package) in [
        ("losetup", "util-linux"),
        ("blkid", "util-linux"),
        ("mount", "mount"),
        ("umount", "mount"),
    ] {
        tool::find(name, package)?;
    }
    file_system.map_or(Ok(()), FileSystem::check)
}

/// A trace on the volume itself would make requests of its own, and wait for itself.
fn check_trace(trace: Option<&Path>, mount: &Path) -> Result<(), AttachError> {
    match trace {
        Some(path) if path.starts_with(mount) => Err(AttachError::usage(format!(
            "--trace {}: it cannot be on the volume that it is about",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Whether the namespace is attached at another place than `this`.
fn check_not_attached(
    base: &Path,
    namespace: &Namespace,
    this: Option<&Folder>,
) -> Result<(), AttachError> {
    let others = Folder::all(base).into_iter();
    for folder in others.filter(|other| Some(other) != this) {
        let Ok(state) = folder.state() else { continue };
        if state.identity == namespace.identity {
            return Err(AttachError::environment(format!(
                "{} is attached already, at {}",
                namespace.volume,
                state.mount.display()
            )));
        }
    }
    Ok(())
}
