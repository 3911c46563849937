//! A private PostgreSQL in a directory, so that a scenario is one file: made, started, stopped,
//! killed, saved, put back, given a standby. Everything is below the directory: the cluster in
//! `data`, its socket in `run`, what was saved in `saved`, the log in `server.log`.
//!
//! PostgreSQL refuses to be root's: as root, its programs run as the user `postgres`, or as `nobody`.

mod cgroup;
mod checksums;
mod copy;
mod pair;
mod programs;
mod remains;
mod standby;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

pub use cgroup::can_limit_memory;
pub use pair::{Pair, Topology, limited};
pub use standby::Commit;

pub(crate) use cgroup::Cgroup;
pub(crate) use programs::{Programs, is_alive, numbers_of};

/// Who owns the cluster within itself, and logs in over the socket without a password.
pub const OWNER: &str = "owner";
/// The database that is made for the load.
pub const DATABASE: &str = "tpcc";
/// Our mark: a directory with this is one of ours.
const MARK: &str = "server.json";
/// The longest path of a unix socket, in bytes.
const LONGEST_SOCKET: usize = 107;

/// A server's processes need at least so much, without any user.
const LEAST_MEMORY: u64 = 40 << 20;

/// How a server runs; kept, and used again at the next start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Bytes of memory that it may use, page cache included; no limit without.
    pub memory_bytes: Option<u64>,
    /// PostgreSQL's settings, `name=value`, besides those of every such server.
    pub set: Vec<String>,
}

impl Settings {
    /// Whether servers would run alike with both: what is set, by its name, the last word counting; in any order.
    pub fn is_like(&self, other: &Self) -> bool {
        fn named(of: &Settings) -> BTreeMap<&str, &str> {
            let all = of
                .set
                .iter()
                .map(|set| set.split_once('=').unwrap_or((set, "")));
            all.map(|(name, value)| (name.trim(), value.trim()))
                .collect()
        }
        self.memory_bytes == other.memory_bytes && named(self) == named(other)
    }
}

/// What a server is at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    /// Its directory.
    pub dir: PathBuf,
    /// Whether it runs, and as which process.
    pub pid: Option<u32>,
    /// What `--db` takes.
    pub url: String,
    /// How it runs.
    pub settings: Settings,
    /// Whether there is something to be put back.
    pub saved: bool,
}

/// A private PostgreSQL.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    programs: Programs,
}

impl Server {
    /// The server in a directory, which need not be there yet.
    ///
    /// # Errors
    /// No PostgreSQL on this machine; a path too long for a socket.
    pub fn at(dir: &Path) -> Result<Self, LabError> {
        let dir = std::path::absolute(dir).map_err(|e| LabError::caused(dir.display(), e))?;
        let socket = dir.join("run/.s.PGSQL.5432");
        if socket.as_os_str().len() > LONGEST_SOCKET {
            return Err(LabError::usage(format!(
                "{}: the path of a unix socket has at most {LONGEST_SOCKET} bytes: use a shorter one",
                socket.display()
            )));
        }
        Ok(Self {
            dir,
            programs: Programs::find()?,
        })
    }

    /// Whether a directory is one of ours.
    pub(crate) fn is_one(dir: &Path) -> bool {
        dir.join(MARK).exists()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Where its socket is.
    pub fn socket_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// What `--db` takes for a database of it.
    pub fn url(&self, database: &str) -> String {
        let run = self.socket_dir();
        format!("postgres:///{database}?host={}&user={OWNER}", run.display())
    }

    /// Makes it if it is not there, and starts it; settings that are not given are those of last time.
    ///
    /// # Errors
    /// The directory holds other things, the server runs already, or PostgreSQL's own complaint.
    pub fn start(&self, settings: Option<Settings>) -> Result<ServerStatus, LabError> {
        settings.as_ref().map_or(Ok(()), check)?;
        self.make()?;
        self.start_made(settings)?;
        let exists = format!("select 1 from pg_database where datname = '{DATABASE}'");
        if self.sql("postgres", "select pg_is_in_recovery()")? == "f"
            && self.sql("postgres", &exists)? != "1"
        {
            self.sql("postgres", &format!("create database {DATABASE}"))?;
        }
        self.status()
    }

    fn start_made(&self, settings: Option<Settings>) -> Result<(), LabError> {
        if let Some(pid) = self.pid() {
            let dir = self.dir.display();
            return Err(LabError::usage(format!(
                "{dir}: it runs already, as process {pid}"
            )));
        }
        self.forget_the_dead()?;
        let settings = match settings {
            Some(settings) => settings,
            None => self.settings()?,
        };
        check(&settings)?;
        let run = self.socket_dir();
        std::fs::create_dir_all(&run).map_err(|e| LabError::caused(run.display(), e))?;
        self.programs.give(&run)?;
        let mut options = format!("-c listen_addresses='' -k '{}'", run.display());
        let own = remains::own_segments(self.programs.version());
        let buffers = shared_buffers(&settings);
        for setting in own.iter().chain(&buffers).chain(&settings.set) {
            options.push_str(&format!(" -c '{setting}'"));
        }
        let (data, log) = (self.data(), self.dir.join("server.log"));
        let limit = settings.memory_bytes;
        let group = limit
            .map(|bytes| Cgroup::make(&self.dir, bytes))
            .transpose()?;
        let _inside = group.as_ref().map(Cgroup::enter).transpose()?;
        let (data, log) = (data.display().to_string(), log.display().to_string());
        let words = [
            "-D", &data, "-w", "-t", "300", "-l", &log, "-o", &options, "start",
        ];
        self.programs.run("pg_ctl", &words).map_err(|error| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let fatal = said.lines().rev().find(|line| line.contains("FATAL"));
            let last = fatal.or(said.lines().last()).unwrap_or_default();
            if self.pid().is_none() {
                Cgroup::remove(&self.dir);
            }
            LabError::environment(format!("{error}; {log} says: {last}"))
        })?;
        // Only now: what it cannot be started with is not what it is started with next time.
        self.keep(&settings)
    }

    /// Makes the cluster, unless there is one of ours.
    fn make(&self) -> Result<(), LabError> {
        if self.dir.join(MARK).exists() {
            return Ok(());
        }
        self.claim()?;
        let data = self.data().display().to_string();
        let words = [
            "-D",
            &data,
            "-A",
            "trust",
            "-U",
            OWNER,
            "--locale=C",
            "-E",
            "UTF8",
        ];
        self.programs
            .run("initdb", &words)
            .map_err(|error| self.with_closed_door(error))?;
        self.keep(&Settings::default())
    }

    /// The same error; where its user may not enter a folder on the way here, that as well.
    fn with_closed_door(&self, error: LabError) -> LabError {
        match self.programs.closed_to_them(&self.dir) {
            Some(folder) => LabError::environment(format!(
                "{error}: {folder} cannot be entered by the user that PostgreSQL runs as: `chmod o+x {folder}`, \
                 or use another directory",
                folder = folder.display()
            )),
            None => error,
        }
    }

    /// Takes an empty directory.
    fn claim(&self) -> Result<(), LabError> {
        let caused = |e| LabError::caused(self.dir.display(), e);
        std::fs::create_dir_all(&self.dir).map_err(caused)?;
        if let Some(other) = std::fs::read_dir(&self.dir).map_err(caused)?.next() {
            let other = other.map_err(caused)?.file_name();
            return Err(LabError::usage(format!(
                "{} holds other things ({}): a new server takes an empty directory",
                self.dir.display(),
                other.display()
            )));
        }
        self.programs.give(&self.dir)
    }

    /// Stops it in order; false if it did not run.
    ///
    /// # Errors
    /// PostgreSQL's own complaint.
    pub fn stop(&self) -> Result<bool, LabError> {
        self.ours()?;
        let runs = self.pid().is_some();
        if runs {
            let data = self.data().display().to_string();
            let words = ["-D", &data, "-w", "-t", "300", "-m", "fast", "stop"];
            self.programs.run("pg_ctl", &words)?;
        }
        Cgroup::remove(&self.dir);
        Ok(runs)
    }

    /// Takes the limit of its memory away until the next start, if it has one.
    ///
    /// # Errors
    /// The cgroup cannot be changed.
    pub fn lift_limit(&self) -> Result<(), LabError> {
        match self.settings()?.memory_bytes {
            Some(_) => Cgroup::lift(&self.dir),
            None => Ok(()),
        }
    }

    /// Kills it and all its processes, as a crash would; false if it did not run. No shared memory of it stays
    /// behind outside of its directory.
    ///
    /// # Errors
    /// It cannot be killed, or does not go.
    pub fn kill(&self) -> Result<bool, LabError> {
        self.ours()?;
        let Some(pid) = self.pid() else {
            // That of a start which came to nothing.
            Cgroup::remove(&self.dir);
            return Ok(false);
        };
        let interlock = remains::interlock(&self.data());
        let processes = programs::family(pid);
        for &pid in &processes {
            // One that has ended meanwhile is what is wanted.
            let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::KILL));
        }
        let patience = Instant::now() + Duration::from_secs(10);
        while processes.iter().any(|&pid| is_alive(pid)) {
            if Instant::now() > patience {
                return Err(LabError::environment(format!("process {pid} does not end")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(interlock) = interlock {
            interlock.remove();
        }
        Cgroup::remove(&self.dir);
        Ok(true)
    }

    /// Keeps a copy of the cluster, to be put back later. Stops it for that, and starts it again if it
    /// ran.
    ///
    /// # Errors
    /// It cannot be stopped, copied or started.
    pub fn save(&self) -> Result<(), LabError> {
        let ran = self.stop()?;
        copy::replace(&self.data(), &self.dir.join("saved"))?;
        if ran { self.start_made(None) } else { Ok(()) }
    }

    /// Puts the saved cluster back, checks that it is the saved one, file by file, and drops it from the
    /// page cache. Starts it if it ran.
    ///
    /// # Errors
    /// Nothing was saved; it cannot be stopped, copied or started; what was put back is not the same.
    pub fn restore(&self) -> Result<(), LabError> {
        self.ours()?;
        let saved = self.dir.join("saved");
        if !saved.exists() {
            let dir = self.dir.display();
            return Err(LabError::usage(format!("{dir}: nothing was saved")));
        }
        let ran = self.stop()?;
        copy::replace(&saved, &self.data())?;
        copy::same(&saved, &self.data())?;
        crate::files::forget(&self.data())?;
        if ran { self.start_made(None) } else { Ok(()) }
    }

    /// What it is at.
    ///
    /// # Errors
    /// The directory is not one of ours.
    pub fn status(&self) -> Result<ServerStatus, LabError> {
        Ok(ServerStatus {
            dir: self.dir.clone(),
            pid: self.pid(),
            url: self.url(DATABASE),
            settings: self.settings()?,
            saved: self.dir.join("saved").exists(),
        })
    }

    fn settings(&self) -> Result<Settings, LabError> {
        self.ours()?;
        let mark = self.dir.join(MARK);
        let caused = |e: String| LabError::caused(mark.display(), e);
        let text = std::fs::read_to_string(&mark).map_err(|e| caused(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| caused(e.to_string()))
    }

    fn keep(&self, settings: &Settings) -> Result<(), LabError> {
        if self.settings().is_ok_and(|kept| kept == *settings) {
            return Ok(());
        }
        let mark = self.dir.join(MARK);
        let text = serde_json::to_string_pretty(settings);
        let text = text.map_err(|e| LabError::caused(mark.display(), e))?;
        // Half of it, after a power cut, would keep a database from its next start.
        ashlar_lab::write_whole(&mark, &text)
    }

    fn ours(&self) -> Result<(), LabError> {
        if self.dir.join(MARK).exists() {
            return Ok(());
        }
        let dir = self.dir.display();
        Err(LabError::usage(format!(
            "{dir}: there is no server of ours in it: `ashlar lab server start --dir {dir}` makes one in an \
             empty directory"
        )))
    }

    /// The postmaster's process, if it runs.
    fn pid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        let pid: u32 = text.lines().next()?.trim().parse().ok()?;
        // The number may be somebody else's by now.
        let place = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        let data = std::fs::canonicalize(self.data()).ok()?;
        (place == data && is_alive(pid)).then_some(pid)
    }

    /// PostgreSQL takes a killed postmaster that nobody has waited for yet for a living one.
    fn forget_the_dead(&self) -> Result<(), LabError> {
        let file = self.data().join("postmaster.pid");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let pid = text
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok());
        if pid.is_some_and(programs::is_unburied) {
            std::fs::remove_file(&file).map_err(|e| LabError::caused(file.display(), e))?;
            let run = self.socket_dir();
            std::fs::remove_dir_all(&run).map_err(|e| LabError::caused(run.display(), e))?;
        }
        Ok(())
    }

    /// Runs SQL and gives what it prints.
    fn sql(&self, database: &str, sql: &str) -> Result<String, LabError> {
        let run = self.socket_dir().display().to_string();
        let words = [
            "-XqAt",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            &run,
            "-U",
            OWNER,
            "-d",
            database,
            "-c",
            sql,
        ];
        self.programs.run("psql", &words)
    }
}

/// Whether a server can be started so.
///
/// # Errors
/// A usage error that names what cannot be.
pub(crate) fn check(settings: &Settings) -> Result<(), LabError> {
    if let Some(bytes) = settings.memory_bytes.filter(|bytes| *bytes < LEAST_MEMORY) {
        return Err(LabError::usage(format!(
            "memory of {bytes} bytes: a server needs at least {} MiB, and 6 MiB for each user",
            LEAST_MEMORY >> 20
        )));
    }
    check_set(&settings.set)
}

/// Whether these are settings.
///
/// # Errors
/// A usage error that names the one that is none.
pub(crate) fn check_set(set: &[String]) -> Result<(), LabError> {
    let is_none = |s: &&String| !s.contains('=') || s.contains(['\'', '\\']);
    match set.iter().find(is_none) {
        Some(setting) => Err(LabError::usage(format!(
            "setting `{setting}`: say name=value, without quotes"
        ))),
        None => Ok(()),
    }
}

/// A quarter of the memory is PostgreSQL's own cache, unless told otherwise.
fn shared_buffers(settings: &Settings) -> Option<String> {
    let said = settings
        .set
        .iter()
        .any(|s| s.starts_with("shared_buffers="));
    let bytes = settings.memory_bytes.filter(|_| !said)?;
    Some(format!("shared_buffers={}kB", (bytes / 4 / 1024).max(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_what_they_were_where_there_is_no_room_for_others() {
        let dir = tempfile::tempdir().expect("folder");
        let server = Server {
            dir: dir.path().to_owned(),
            programs: Programs::find().expect("PostgreSQL"),
        };
        let first = Settings::default();
        let second = Settings {
            memory_bytes: Some(1 << 30),
            ..first.clone()
        };
        server.keep(&first).expect("kept");
        // A storage without room: so they are also what they were where a power cut ends a change.
        let new = dir.path().join(format!("{MARK}.new"));
        std::os::unix::fs::symlink("/dev/full", new).expect("linked");
        server.keep(&first).expect("nothing is written");
        let error = server.keep(&second).expect_err("no room").to_string();
        assert!(error.contains(MARK), "{error}");
        assert_eq!(server.settings().expect("there"), first);
        server.keep(&second).expect("kept");
        assert_eq!(server.settings().expect("there"), second);
    }

    #[test]
    fn settings_are_alike_in_any_order() {
        let of = |set: &[&str]| Settings {
            memory_bytes: None,
            set: set.iter().map(|&set| set.to_owned()).collect(),
        };
        let kept = of(&["fsync=off", "work_mem=4MB"]);
        assert!(of(&["work_mem = 4MB", "fsync=off"]).is_like(&kept));
        assert!(of(&["fsync=on", "work_mem=4MB", "fsync=off"]).is_like(&kept));
        assert!(!of(&["fsync=off", "work_mem=4MB", "fsync=on"]).is_like(&kept));
        assert!(!of(&["fsync=off"]).is_like(&kept));
        let limited = Settings {
            memory_bytes: Some(1 << 30),
            ..kept.clone()
        };
        assert!(!limited.is_like(&kept));
    }
}
