//! Private servers, so that a scenario is one file; here is PostgreSQL's, which can be given a standby.
//!
//! PostgreSQL refuses to be root's: as root, its programs run as the user `postgres`, or as `nobody`.

mod cgroup;
mod checksums;
mod copy;
mod doors;
mod managed;
mod pair;
mod private;
mod programs;
mod remains;
mod standby;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

pub use cgroup::can_limit_memory;
pub(crate) use doors::Door;
pub(crate) use pair::limited_by;
pub use pair::{Pair, Topology, limited};
pub use private::{Engine, Private, Room};
pub use standby::Commit;

pub use cgroup::Cgroup;
pub use programs::Programs;
pub(crate) use programs::{is_alive, numbers_of};

/// Who owns the cluster within itself, and logs in over the socket without a password.
pub const OWNER: &str = "owner";
/// The database that is made for the load.
pub const DATABASE: &str = "tpcc";

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
pub type Server = Private<Programs>;

impl Engine for Programs {
    const MARK: &str = "server.json";

    fn here() -> Result<Self, LabError> {
        Self::find()
    }

    fn runs_as(&self) -> Option<(u32, u32)> {
        self.user()
    }

    fn socket(&self, room: &Room) -> PathBuf {
        room.run().join(format!(".s.PGSQL.{}", doors::port(room)))
    }

    fn url(&self, room: &Room, database: &str) -> String {
        let run = room.run();
        let port = doors::port(room);
        let run = run.display();
        match port {
            doors::USUAL_PORT => format!("postgres:///{database}?host={run}&user={OWNER}"),
            port => format!("postgres:///{database}?host={run}&port={port}&user={OWNER}"),
        }
    }

    fn check(&self, settings: &Settings) -> Result<(), LabError> {
        if let Some(bytes) = settings.memory_bytes.filter(|bytes| *bytes < LEAST_MEMORY) {
            return Err(LabError::usage(format!(
                "memory of {bytes} bytes: a server needs at least {} MiB, and 6 MiB for each user",
                LEAST_MEMORY >> 20
            )));
        }
        check_set(&settings.set)
    }

    fn make(&self, room: &Room) -> Result<(), LabError> {
        let data = room.data().display().to_string();
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
        let made = self.run("initdb", &words);
        made.map(drop)
            .map_err(|error| self.with_closed_door(room, error))
    }

    fn launch(
        &self,
        room: &Room,
        settings: &Settings,
        group: Option<&Cgroup>,
    ) -> Result<(), LabError> {
        forget_the_dead(room)?;
        doors::open(room)?;
        let mut options = format!("{} -k '{}'", doors::options(room), room.run().display());
        let own = remains::own_segments(self.version());
        let buffers = shared_buffers(settings);
        for setting in own.iter().chain(&buffers).chain(&settings.set) {
            options.push_str(&format!(" -c '{setting}'"));
        }
        let _inside = group.map(Cgroup::enter).transpose()?;
        let (data, log) = (
            room.data().display().to_string(),
            room.log().display().to_string(),
        );
        let words = [
            "-D", &data, "-w", "-t", "300", "-l", &log, "-o", &options, "start",
        ];
        let started = self.run("pg_ctl", &words);
        started
            .map(drop)
            .map_err(|error| room.complaint(&error.to_string(), |line| line.contains("FATAL")))
    }

    fn make_database(&self, room: &Room) -> Result<(), LabError> {
        let exists = format!("select 1 from pg_database where datname = '{DATABASE}'");
        let sql = |sql: &str| self.sql(room, "postgres", sql);
        if sql("select pg_is_in_recovery()")? == "f" && sql(&exists)? != "1" {
            sql(&format!("create database {DATABASE}"))?;
        }
        Ok(())
    }

    fn pid(&self, room: &Room) -> Option<u32> {
        let text = std::fs::read_to_string(room.data().join("postmaster.pid")).ok()?;
        let pid: u32 = text.lines().next()?.trim().parse().ok()?;
        // The number may be another process's by now.
        let place = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        let data = std::fs::canonicalize(room.data()).ok()?;
        (place == data && is_alive(pid)).then_some(pid)
    }

    fn shut_down(&self, room: &Room, _: u32) -> Result<(), LabError> {
        let data = room.data().display().to_string();
        let words = ["-D", &data, "-w", "-t", "300", "-m", "fast", "stop"];
        self.run("pg_ctl", &words).map(drop)
    }

    fn kill(&self, room: &Room, pid: u32) -> Result<(), LabError> {
        let interlock = remains::interlock(&room.data());
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
        Ok(())
    }
}

impl Programs {
    /// The same error; where its user may not enter a folder on the way here, that as well.
    fn with_closed_door(&self, room: &Room, error: LabError) -> LabError {
        match self.closed_to_them(&room.dir) {
            Some(folder) => LabError::environment(format!(
                "{error}: {folder} cannot be entered by the user that PostgreSQL runs as: `chmod o+x {folder}`, \
                 or use another directory",
                folder = folder.display()
            )),
            None => error,
        }
    }

    /// Runs SQL and gives what it prints.
    fn sql(&self, room: &Room, database: &str, sql: &str) -> Result<String, LabError> {
        let run = room.run().display().to_string();
        let port = doors::port(room).to_string();
        let words = [
            "-XqAt",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            &run,
            "-p",
            &port,
            "-U",
            OWNER,
            "-d",
            database,
            "-c",
            sql,
        ];
        self.run("psql", &words)
    }
}

impl Server {
    fn sql(&self, database: &str, sql: &str) -> Result<String, LabError> {
        self.engine.sql(&self.room, database, sql)
    }
}

/// PostgreSQL takes a killed postmaster that its parent has not reaped yet for a living one.
fn forget_the_dead(room: &Room) -> Result<(), LabError> {
    let file = room.data().join("postmaster.pid");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let first = text.lines().next();
    let pid = first.and_then(|line| line.trim().parse().ok());
    if pid.is_some_and(programs::is_unburied) {
        std::fs::remove_file(&file).map_err(|e| LabError::caused(file.display(), e))?;
        // What is left of its socket.
        let run = room.run();
        for entry in std::fs::read_dir(&run).into_iter().flatten().flatten() {
            let path = entry.path();
            std::fs::remove_file(&path).map_err(|e| LabError::caused(path.display(), e))?;
        }
    }
    Ok(())
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
        let server = Server::at(dir.path()).expect("PostgreSQL");
        let first = Settings::default();
        let second = Settings {
            memory_bytes: Some(1 << 30),
            ..first.clone()
        };
        server.keep(&first).expect("kept");
        // A storage without room: so they are also what they were where a power cut ends a change.
        let new = dir.path().join("server.json.new");
        std::os::unix::fs::symlink("/dev/full", new).expect("linked");
        server.keep(&first).expect("nothing is written");
        let error = server.keep(&second).expect_err("no room").to_string();
        assert!(error.contains("server.json"), "{error}");
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
