//! Detaching: in order while everything answers, and by force when something does not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::AttachError;

use crate::state::{Folder, Phase, State};
use crate::system::progress::Progress;
use crate::system::{loops, mounts, users};

/// Writing back what is cached may take as long as the volume is slow.
const UNMOUNT: Duration = Duration::from_secs(600);
/// With force, there is this much patience for a clean end of each step.
const SHORT: Duration = Duration::from_secs(5);
/// How long processes may take to end after a signal that cannot be ignored.
const END: Duration = Duration::from_secs(5);
/// The kernel lets a loop device go a moment after its last user.
const LET_GO: Duration = Duration::from_secs(2);
/// The kernel gives commands to a silent target 30 s, and tells it goodbye for as long.
const DELETE: Duration = Duration::from_secs(70);
const LOOK: Duration = Duration::from_millis(10);

/// A detach in order says what it waits for when the volume has not answered for this long, and gives up after
/// [`DetachOptions::patience`].
const TOLD: Duration = Duration::from_secs(3);

/// How an attachment is to be taken down.
#[derive(Clone, Copy, Debug)]
pub struct DetachOptions {
    /// Whether something may be torn down.
    pub force: Force,
    /// Without force, a volume that owes answers and gives none for this long is given up: it stays attached.
    pub patience: Duration,
    /// Is told what is being waited for.
    pub tell: fn(&str),
}

/// Whether something may be torn down that is in use, or does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    No,
    /// Its users get errors; what was not written back is lost.
    Yes,
}

/// Detaches what is mounted at `mount`. Gives what there is to say about it, a line each.
///
/// # Errors
/// Environment: nothing is attached there, it is in use (the message says by whom), or something does
/// not let go.
pub fn detach(
    base: &Path,
    mount: &Path,
    options: DetachOptions,
) -> Result<Vec<String>, AttachError> {
    let force = options.force;
    let folder = find(base, mount)?;
    if let Ok(state) = folder.state() {
        if let Phase::Attaching(by) = state.phase
            && by.is_alive()
            && force == Force::No
        {
            return Err(AttachError::environment(format!(
                "{} is being attached by process {}; --force ends that",
                mount.display(),
                by.pid
            )));
        }
        if force == Force::No {
            check_unused(&state.mount)?;
        }
    }
    clear(&folder, options)
}

/// The folder of what is attached at `mount`.
///
/// # Errors
/// Environment: nothing is.
pub fn attached_at(base: &Path, mount: &Path) -> Result<Folder, AttachError> {
    find(base, mount)
}

/// The attachment at `mount`: by its name, which needs no look at a mount that may hang.
fn find(base: &Path, mount: &Path) -> Result<Folder, AttachError> {
    let absolute = std::path::absolute(mount).unwrap_or_else(|_| mount.to_owned());
    let parent = absolute
        .parent()
        .and_then(|parent| parent.canonicalize().ok());
    let resolved = match (parent, absolute.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => absolute.clone(),
    };
    // A link itself, which is no mount point: what it leads to may be one.
    let target = resolved.read_link().and_then(|_| resolved.canonicalize());
    let places = [Some(absolute), Some(resolved.clone()), target.ok()];
    let mut folders = places.iter().flatten().map(|place| Folder::of(base, place));
    folders
        .find(|folder| folder.path().exists())
        .ok_or_else(|| AttachError::environment(nothing_at(base, mount)))
}

/// A volume's name instead of its folder is an easy mistake.
fn nothing_at(base: &Path, mount: &Path) -> String {
    let shown = mount.display();
    let states = Folder::all(base).into_iter();
    let mut named = states
        .filter_map(|folder| folder.state().ok())
        .filter(|state| Path::new(&state.volume) == mount);
    match named.next() {
        Some(state) => {
            let folder = state.mount.display();
            format!("{shown} is attached at {folder}: `ashlar detach {folder}`")
        }
        None => format!("nothing is attached at {shown}; `ashlar attach --list` shows what is"),
    }
}

fn check_unused(mount: &Path) -> Result<(), AttachError> {
    let below = mounts::below(mount);
    if let Some(other) = below.first() {
        return Err(AttachError::environment(format!(
            "{} is in use: {} is mounted below it",
            mount.display(),
            other.display()
        )));
    }
    let mut users = users::of(mount);
    // An attempt to write back that was given up goes when the volume answers.
    users.retain(|user| user.name != mounts::WRITE_BACK);
    if !users.is_empty() {
        return Err(AttachError::environment(format!(
            "{} is in use by {}",
            mount.display(),
            users::named(&users)
        )));
    }
    Ok(())
}

/// Takes down whatever there is of an attachment, each step whether or not the one before was needed.
pub(crate) fn clear(folder: &Folder, options: DetachOptions) -> Result<Vec<String>, AttachError> {
    let mut clearing = Clearing {
        folder,
        state: folder.state().ok(),
        options,
        notes: Vec::new(),
    };
    clearing.stop_attaching();
    clearing.end_lost_connection()?;
    clearing.unmount_file_system()?;
    clearing.let_device_go()?;
    clearing.unmount_file()?;
    clearing.end_processes()?;
    folder.remove()?;
    Ok(clearing.notes)
}

struct Clearing<'a> {
    folder: &'a Folder,
    state: Option<State>,
    options: DetachOptions,
    notes: Vec<String>,
}

impl DetachOptions {
    /// By force.
    pub(crate) const FORCED: Self = Self {
        force: Force::Yes,
        patience: SHORT,
        tell: |_| (),
    };
}

impl Clearing<'_> {
    fn forced(&self) -> bool {
        self.options.force == Force::Yes
    }

    /// Ends another process that is still attaching; only by force, see [`detach`].
    fn stop_attaching(&self) {
        if let Some(State {
            phase: Phase::Attaching(by),
            ..
        }) = &self.state
            && by.pid != std::process::id() as i32
        {
            by.signal(Signal::KILL);
            by.ends_within(END);
        }
    }

    fn device(&self) -> Option<PathBuf> {
        if let Some(State {
            controller: Some(_),
            device,
            ..
        }) = &self.state
        {
            return device.clone();
        }
        self.folder.loop_device(self.state.as_ref())
    }

    /// Whether any process is there that may answer the kernel, or start one that does.
    fn is_served(&self) -> bool {
        let processes = self.folder.processes();
        processes.is_some_and(|all| {
            let serves = all.server.or(all.daemon);
            all.guardian.may_go_on() || serves.is_some_and(|serves| serves.may_go_on())
        })
    }

    /// Ends the connection of an attachment whose mount namespace went with its processes, as a container's
    /// does. If the server was the last of them, it unmounts the file system at its end, and waits for ever for
    /// what only itself could answer.
    fn end_lost_connection(&mut self) -> Result<(), AttachError> {
        let Some(state) = &self.state else {
            return Ok(());
        };
        let (Some(connection), Some(device)) = (state.connection, &state.device) else {
            return Ok(());
        };
        if self.is_served() || !loops::is_over_lost(device, connection) {
            return Ok(());
        }
        connection.abort()?;
        let point = state.mount.display();
        self.notes.push(format!(
            "{point} went with the mount namespace of its processes: what was not written back is lost"
        ));
        Ok(())
    }

    fn unmount_file_system(&mut self) -> Result<(), AttachError> {
        let Some(point) = self.state.as_ref().map(|state| state.mount.clone()) else {
            return Ok(());
        };
        let Some(device) = self.device() else {
            return Ok(());
        };
        let is_ours = |mount: &mounts::Mount| Path::new(&mount.source) == device;
        if !mounts::at(&point).is_some_and(|mount| is_ours(&mount)) {
            return Ok(());
        }
        if let Some(mut state) = self.state.clone() {
            state.phase = Phase::Detaching;
            // The phase is only what is shown: by force it may be missing.
            match self.folder.save(&state) {
                Err(error) if !self.forced() => return Err(error),
                _ => {}
            }
        }
        if !self.is_served() {
            let point = point.display();
            let note = format!("{point} had no server: what was not written back is lost");
            self.notes.push(note);
        }
        let in_use = self.forced() && check_unused(&point).is_err();
        let clean = match in_use {
            true => Err(AttachError::environment("in use")),
            false if self.forced() => mounts::unmount_in_time(&point, SHORT),
            false => self.unmount_in_order(&point, &device),
        };
        let Err(error) = clean else { return Ok(()) };
        if !self.forced() {
            self.put_back();
            return Err(error);
        }
        self.tear(&point, &error)
    }

    /// Unmounts however long it takes, as long as the volume answers. Until all is written back it is mounted: one that
    /// is given up is attached as before.
    fn unmount_in_order(&self, point: &Path, device: &Path) -> Result<(), AttachError> {
        let mut progress = Progress::new();
        let mut told = false;
        let mut watch = || {
            let silent = progress.silent_for(device);
            if silent >= self.options.patience {
                return Err(AttachError::environment(format!(
                    "{} is still attached: what was written to it could not be saved, for {}; {}",
                    point.display(),
                    self.silence(silent),
                    self.advice(point)
                )));
            }
            if silent >= TOLD && !told {
                told = true;
                (self.options.tell)(&format!(
                    "waiting up to {} s for {}: {}",
                    self.options.patience.as_secs(),
                    point.display(),
                    self.silence(silent)
                ));
            }
            Ok(())
        };
        mounts::write_back_watched(point, UNMOUNT, &mut watch)?;
        mounts::unmount_watched(point, UNMOUNT, watch)
    }

    /// Why the volume gives no answers, as far as it is seen.
    fn silence(&self, silent: Duration) -> String {
        let seconds = silent.as_secs();
        let volume = self.state.as_ref().map_or("the volume", |s| &s.volume);
        let silent = format!("{volume} has not answered for {seconds} s");
        let Some(processes) = self.folder.processes() else {
            return silent;
        };
        let who = match (processes.daemon, processes.server) {
            (Some(daemon), _) => Some(("its daemon", daemon)),
            (None, Some(server)) => Some(("its server", server)),
            (None, None) => None,
        };
        match who {
            Some((who, process)) if !process.is_alive() => {
                format!("{silent}: {who} (process {}) is gone", process.pid)
            }
            Some((who, process)) if process.is_stopped() => {
                let pid = process.pid;
                format!("{silent}: {who} (process {pid}) is stopped by a signal")
            }
            _ => silent,
        }
    }

    fn advice(&self, point: &Path) -> String {
        let daemon = self.folder.processes().and_then(|all| all.daemon);
        let first = match daemon {
            Some(daemon) if !daemon.is_alive() => "start the daemon again and detach then",
            _ => "detach again when the volume answers",
        };
        let point = point.display();
        format!("{first}, or give that up with `ashlar detach {point} --force`")
    }

    /// The file system stays mounted, and so attached.
    fn put_back(&self) {
        if let Some(state) = &self.state {
            // The phase is only what is shown.
            let _ = self.folder.save(state);
        }
    }

    /// Ends all I/O that waits for the volume, with errors; then the mount goes.
    fn tear(&mut self, point: &Path, why: &AttachError) -> Result<(), AttachError> {
        let users = users::of(point);
        self.notes.push(match users.is_empty() {
            true => format!(
                "{} was torn down ({why}); what was not written back is lost",
                point.display()
            ),
            false => format!(
                "{} was torn down under {}; what was not written back is lost",
                point.display(),
                users::named(&users)
            ),
        });
        self.abort();
        for below in mounts::below(point).into_iter().rev() {
            let _ = mounts::unmount_lazily(&below);
        }
        // Now that everything fails at once, a last attempt in order leaves less behind.
        if mounts::unmount_in_time(point, SHORT).is_ok() {
            return Ok(());
        }
        match mounts::unmount_lazily(point) {
            Ok(()) => Ok(()),
            // One of the attempts that were given up has come to its end.
            Err(_) if mounts::at(point).is_none() => Ok(()),
            Err(error) => Err(AttachError::environment(format!(
                "cannot unmount {}: {error}",
                point.display()
            ))),
        }
    }

    /// Ends the connection between the kernel and the server, whatever state that is in: requests fail.
    fn abort(&self) {
        // An error adds nothing: the next step reports what is still there.
        let _ = self.disconnect(SHORT);
        if let Some(processes) = self.folder.processes() {
            processes.guardian.signal(Signal::KILL);
            processes.guardian.ends_within(END);
            // The guardian may have started another one in its last moment.
            let server = self.folder.processes().and_then(|now| now.server);
            for server in processes.server.into_iter().chain(server) {
                server.signal(Signal::KILL);
                server.ends_within(END);
            }
        }
        // Another process may hold the connection; this ends it even so. It stays mounted while in use.
        let _ = mounts::unmount_fuse(&self.folder.file(), true);
    }

    /// Lets the kernel's connection go; nothing to do if that is not the means.
    fn disconnect(&self, limit: Duration) -> Result<(), AttachError> {
        match self
            .state
            .as_ref()
            .and_then(|state| state.controller.as_ref())
        {
            Some(controller) => self.folder.disconnect(controller, limit),
            None => Ok(()),
        }
    }

    /// The next user of the same loop device must not inherit that it needs no flushes. A device that another
    /// user has already is left alone: its queue would be held up until that user's requests are done.
    fn restore_flushes(&mut self) {
        let known = self.state.as_ref().and_then(|state| state.device.clone());
        let free = known.filter(|device| loops::is_free(device));
        let Some(device) = free.or_else(|| self.device()) else {
            return;
        };
        if let Err(error) = loops::set_flushes(&device, true) {
            self.notes.push(without_flushes(&device, &error));
        }
    }

    /// With force, a controller whose target does not answer is left to the kernel, which deletes it already.
    fn let_controller_go(&mut self) -> Result<(), AttachError> {
        let limit = if self.forced() { DELETE } else { UNMOUNT };
        match self.disconnect(limit) {
            Err(error) if self.forced() => {
                self.notes.push(format!("{error}; the kernel goes on"));
                Ok(())
            }
            result => result,
        }
    }

    fn let_device_go(&mut self) -> Result<(), AttachError> {
        if self.state.as_ref().is_some_and(|s| s.controller.is_some()) {
            return self.let_controller_go();
        }
        self.restore_flushes();
        let Some(device) = self.device() else {
            return Ok(());
        };
        let result = loops::detach(&device, if self.forced() { SHORT } else { UNMOUNT });
        let mut waited = Duration::ZERO;
        while self.folder.has(self.state.as_ref(), &device) && waited < LET_GO {
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
        if !self.folder.has(self.state.as_ref(), &device) {
            return Ok(());
        }
        let (name, holders) = (device.display(), users::holders(&device));
        if self.forced() {
            let who = holders.map_or_else(String::new, |who| format!(": {who}"));
            self.notes
                .push(format!("{name} goes when its last user does{who}"));
            return Ok(());
        }
        result?;
        let who = holders.unwrap_or_else(|| "a process that is not seen from here".to_owned());
        Err(self.half_done(&format!("{name} is still in use by {who}")))
    }

    /// What could not be taken down yet stays, and is taken up again by the next detach.
    fn half_done(&self, why: &str) -> AttachError {
        let mount = self
            .state
            .as_ref()
            .map(|state| state.mount.display().to_string());
        let mount = mount.unwrap_or_else(|| self.folder.path().display().to_string());
        AttachError::environment(format!(
            "the file system at {mount} is not mounted any more, and the rest is still there: {why}. End that, then \
             `ashlar detach {mount}` again"
        ))
    }

    fn unmount_file(&mut self) -> Result<(), AttachError> {
        let file = self.folder.file();
        let mut last = None;
        // Below a device that is still going.
        for _ in 0..50 {
            if mounts::at(&file).is_none() {
                return Ok(());
            }
            last = mounts::unmount_fuse(&file, false).err();
            if last.is_some() {
                std::thread::sleep(LOOK);
            }
        }
        if mounts::at(&file).is_none() {
            return Ok(());
        }
        if self.forced() {
            self.abort();
            if mounts::unmount_lazily(&file).is_ok() {
                return Ok(());
            }
        }
        let why = last.map_or_else(|| "still there".to_owned(), |error| error.to_string());
        let users = users::of(&file);
        let who = match users.is_empty() {
            true => String::new(),
            false => format!(", it is in use by {}", users::named(&users)),
        };
        Err(self.half_done(&format!("cannot unmount {}: {why}{who}", file.display())))
    }

    fn end_processes(&self) -> Result<(), AttachError> {
        let Some(processes) = self.folder.processes() else {
            return Ok(());
        };
        // Both end by themselves when there is nothing to serve any more.
        if !processes.guardian.ends_within(SHORT) {
            processes.guardian.signal(Signal::KILL);
        }
        let server = self.folder.processes().and_then(|now| now.server);
        for process in [Some(processes.guardian), processes.server, server]
            .into_iter()
            .flatten()
        {
            if process.ends_within(Duration::ZERO) {
                continue;
            }
            process.signal(Signal::KILL);
            if !process.ends_within(END) {
                let why = format!("process {} does not end", process.pid);
                return Err(AttachError::environment(why));
            }
        }
        Ok(())
    }
}

/// That a loop device may still not send flushes: what was tried, and what follows.
fn without_flushes(device: &Path, error: &AttachError) -> String {
    let name = device.file_name().unwrap_or_default().display();
    let (device, setting) = (
        device.display(),
        format!("/sys/block/{name}/queue/write_cache"),
    );
    format!(
        "{device} was told at the attach that it needs no flushes, and telling it otherwise has failed \
         ({error}); the kernel may still do it. Until {setting} says `write back`, what is put on {device} next \
         sends no flushes, and may lose in a power loss what it was told is durable: \
         `echo write back > {setting}` before that"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_is_found_by_links_to_its_mount_point() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it is there");
        let (base, real) = (root.join("state"), root.join("real"));
        std::fs::create_dir(&real).expect("made");
        std::os::unix::fs::symlink("real", root.join("link")).expect("a link");
        std::os::unix::fs::symlink(&root, root.join("root")).expect("a link");
        assert!(find(&base, &real).is_err());
        let folder = Folder::of(&base, &real);
        std::fs::create_dir_all(folder.path()).expect("made");
        for name in ["real", "real/", "link", "root/real", "root/link"] {
            assert_eq!(
                find(&base, &root.join(name)).as_ref(),
                Ok(&folder),
                "{name}"
            );
        }
        assert!(find(&base, &root).is_err());
    }

    #[test]
    fn missing_flushes_are_told_with_what_follows() {
        let error = AttachError::environment("sh: not done within 5 s");
        let told = without_flushes(Path::new("/dev/loop7"), &error);
        for part in [
            "/dev/loop7",
            "/sys/block/loop7/queue/write_cache",
            "sh: not done within 5 s",
            "power loss",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
