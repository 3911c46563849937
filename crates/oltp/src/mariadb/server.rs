//! A private MariaDB. It listens at its socket and, if clients on other machines are to reach it, at one address; as root
//! it runs as `mysql`, or as a user without rights.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};
use rustix::process::{Pid, Signal, kill_process};

use crate::server::{
    Cgroup, DATABASE, Engine, Private, Room, Settings, check_set, is_alive, numbers_of,
};

const SERVER: &str = "/usr/sbin/mariadbd";
const INSTALL: &str = "/usr/bin/mariadb-install-db";
/// Who may do everything, and logs in over the socket without a password.
const OWNER: &str = "root";
/// What its process takes besides InnoDB's cache, while indexes are made.
const OWN_MEMORY: u64 = 144 << 20;
/// Less than this it is not started with.
pub(crate) const LEAST_MEMORY: u64 = OWN_MEMORY + (48 << 20);
const START_WITHIN: Duration = Duration::from_secs(300);
const STOP_WITHIN: Duration = Duration::from_secs(300);
const KILL_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A private MariaDB.
pub type MariaServer = Private<Programs>;

/// MariaDB's programs.
#[derive(Debug)]
pub struct Programs {
    /// As whom they run, if we are root: numbers of user and group.
    user: Option<(u32, u32)>,
}

impl Engine for Programs {
    const MARK: &str = "mariadb.json";

    fn here() -> Result<Self, LabError> {
        if let Some(missing) = [SERVER, INSTALL].iter().find(|of| !Path::new(of).exists()) {
            return Err(LabError::environment(format!(
                "there is no MariaDB server: no {missing}: install one (Debian: mariadb-server)"
            )));
        }
        let is_root = rustix::process::getuid().is_root();
        Ok(Self {
            user: is_root.then(|| numbers_of(&["mysql", "nobody"])),
        })
    }

    fn runs_as(&self) -> Option<(u32, u32)> {
        self.user
    }

    fn socket(&self, room: &Room) -> PathBuf {
        socket(room)
    }

    fn url(&self, room: &Room, database: &str) -> String {
        let socket = socket(room);
        format!(
            "mariadb://{OWNER}@localhost/{database}?socket={}",
            socket.display()
        )
    }

    fn check(&self, settings: &Settings) -> Result<(), LabError> {
        if let Some(bytes) = settings.memory_bytes.filter(|bytes| *bytes < LEAST_MEMORY) {
            return Err(LabError::usage(format!(
                "memory of {bytes} bytes: a MariaDB needs at least {} MiB",
                LEAST_MEMORY >> 20
            )));
        }
        check_set(&settings.set)
    }

    fn make(&self, room: &Room) -> Result<(), LabError> {
        let data = format!("--datadir={}", room.data().display());
        let output = self
            .program(INSTALL)
            .args(["--no-defaults", &data, "--skip-test-db"])
            .arg("--auth-root-authentication-method=normal")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output();
        let output = output.map_err(|e| LabError::caused(INSTALL, e))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or_default().to_owned();
        Err(LabError::environment(format!(
            "{}: {INSTALL}: {} {last}",
            room.dir.display(),
            output.status
        )))
    }

    fn launch(
        &self,
        room: &Room,
        settings: &Settings,
        group: Option<&Cgroup>,
    ) -> Result<(), LabError> {
        let mut command = self.program(SERVER);
        command.arg("--no-defaults").args(listens(room));
        for (name, path) in [
            ("datadir", room.data()),
            ("socket", socket(room)),
            ("pid-file", pid_file(room)),
            ("log-error", room.log()),
        ] {
            command.arg(format!("--{name}={}", path.display()));
        }
        for setting in buffer_pool(settings).iter().chain(&settings.set) {
            command.arg(format!("--{setting}"));
        }
        let inside = group.map(Cgroup::enter).transpose()?;
        let child = command.spawn();
        drop(inside);
        let mut child = child.map_err(|e| LabError::caused(SERVER, e))?;
        let begun = Instant::now();
        while self.make_database(room).is_err() {
            let ended = child.try_wait().map_err(|e| LabError::caused(SERVER, e))?;
            if ended.is_some() || begun.elapsed() > START_WITHIN {
                // One that has ended already is what is wanted.
                let _ = child.kill();
                let _ = child.wait();
                let what = format!("{}: it does not start", room.dir.display());
                return Err(room.complaint(&what, is_cause));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn make_database(&self, room: &Room) -> Result<(), LabError> {
        let opts = OptsBuilder::new()
            .user(Some(OWNER))
            .socket(Some(socket(room).display().to_string()));
        let make =
            |mut conn: Conn| conn.query_drop(format!("CREATE DATABASE IF NOT EXISTS {DATABASE}"));
        let made = Conn::new(opts).and_then(make);
        made.map_err(|error| LabError::caused(room.dir.display(), error))
    }

    fn pid(&self, room: &Room) -> Option<u32> {
        let text = std::fs::read_to_string(pid_file(room)).ok()?;
        let pid: u32 = text.trim().parse().ok()?;
        // The number may be another process's by now.
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let own = format!("--datadir={}", room.data().display());
        let is_ours = words
            .split(|&byte| byte == 0)
            .any(|word| word == own.as_bytes());
        (is_ours && is_alive(pid)).then_some(pid)
    }

    fn shut_down(&self, room: &Room, pid: u32) -> Result<(), LabError> {
        end(room, (pid, Signal::TERM), STOP_WITHIN)
    }

    fn kill(&self, room: &Room, pid: u32) -> Result<(), LabError> {
        end(room, (pid, Signal::KILL), KILL_WITHIN)
    }
}

impl Programs {
    /// A program, as its user, without our terminal and its signals.
    fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.process_group(0);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }
}

/// That it gives up is no cause.
fn is_cause(line: &str) -> bool {
    line.contains("[ERROR]") && !line.ends_with("Aborting")
}

/// Where it listens besides its socket. A client whose machine has gone holds its locks no longer than keeping alive takes.
fn listens(room: &Room) -> Vec<String> {
    let Some(door) = &room.door else {
        return vec!["--skip-networking".to_owned()];
    };
    let mut words = vec![
        format!("--bind-address={}", door.at.ip()),
        format!("--port={}", door.at.port()),
    ];
    let own = [
        "--skip-name-resolve",
        "--tcp-keepalive-time=5",
        "--tcp-keepalive-interval=5",
        "--tcp-keepalive-probes=3",
    ];
    words.extend(own.map(str::to_owned));
    words
}

fn socket(room: &Room) -> PathBuf {
    room.run().join("mariadb.sock")
}

fn pid_file(room: &Room) -> PathBuf {
    room.run().join("pid")
}

fn end(room: &Room, (pid, signal): (u32, Signal), within: Duration) -> Result<(), LabError> {
    // One that has ended meanwhile is what is wanted.
    let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, signal));
    let until = Instant::now() + within;
    while is_alive(pid) {
        if Instant::now() > until {
            let what = format!("{}: process {pid} does not end", room.dir.display());
            return Err(room.complaint(&what, is_cause));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Half of what its process leaves is InnoDB's own cache, unless told otherwise: it reads past the page cache.
pub(crate) fn buffer_pool(settings: &Settings) -> Option<String> {
    let is_said = |set: &String| {
        set.replace('-', "_")
            .starts_with("innodb_buffer_pool_size=")
    };
    let bytes = settings.memory_bytes?;
    let said = settings.set.iter().any(is_said);
    let pool = bytes.saturating_sub(OWN_MEMORY) / 2;
    (!said).then(|| format!("innodb-buffer-pool-size={pool}"))
}
