//! A private MariaDB in a directory: its data in `data`, its socket in `run`, its log in `server.log`. It listens
//! nowhere else, and as root runs as `mysql`, or as a user without rights.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};
use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Cgroup, DATABASE, ServerStatus, Settings, check, is_alive, numbers_of};

/// Our mark: a directory with this is one of ours.
const MARK: &str = "mariadb.json";
const SERVER: &str = "/usr/sbin/mariadbd";
const INSTALL: &str = "/usr/bin/mariadb-install-db";
/// Who may do everything, and logs in over the socket without a password.
const OWNER: &str = "root";
/// The longest path of a unix socket, in bytes.
const LONGEST_SOCKET: usize = 107;
const START_WITHIN: Duration = Duration::from_secs(300);
const STOP_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A private MariaDB.
#[derive(Debug)]
pub struct MariaServer {
    dir: PathBuf,
    /// As whom it runs, if we are root: numbers of user and group.
    user: Option<(u32, u32)>,
}

impl MariaServer {
    /// The server in a directory, which need not be there yet.
    ///
    /// # Errors
    /// No MariaDB on this machine; a path too long for a socket.
    pub fn at(dir: &Path) -> Result<Self, LabError> {
        let dir = std::path::absolute(dir).map_err(|e| LabError::caused(dir.display(), e))?;
        if let Some(missing) = [SERVER, INSTALL].iter().find(|of| !Path::new(of).exists()) {
            return Err(LabError::environment(format!(
                "there is no MariaDB server: no {missing}: install one (Debian: mariadb-server)"
            )));
        }
        let is_root = rustix::process::getuid().is_root();
        let server = Self {
            dir,
            user: is_root.then(|| numbers_of(&["mysql", "nobody"])),
        };
        let socket = server.socket();
        if socket.as_os_str().len() > LONGEST_SOCKET {
            return Err(LabError::usage(format!(
                "{}: the path of a unix socket has at most {LONGEST_SOCKET} bytes: use a shorter one",
                socket.display()
            )));
        }
        Ok(server)
    }

    /// Whether a directory is one of ours.
    pub fn is_one(dir: &Path) -> bool {
        dir.join(MARK).exists()
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("run/mariadb.sock")
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.join("run/pid")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// What `--db` takes for a database of it.
    pub fn url(&self, database: &str) -> String {
        let socket = self.socket();
        format!(
            "mariadb://{OWNER}@localhost/{database}?socket={}",
            socket.display()
        )
    }

    /// Makes it if it is not there, and starts it; settings that are not given are those of last time.
    ///
    /// # Errors
    /// The directory holds other things, the server runs already, or MariaDB's own complaint.
    pub fn start(&self, settings: Option<Settings>) -> Result<ServerStatus, LabError> {
        settings.as_ref().map_or(Ok(()), check)?;
        self.make()?;
        if let Some(pid) = self.pid() {
            let dir = self.dir.display();
            return Err(LabError::usage(format!(
                "{dir}: it runs already, as process {pid}"
            )));
        }
        let settings = match settings {
            Some(settings) => settings,
            None => self.settings()?,
        };
        check(&settings)?;
        self.run(&settings)?;
        // Only now: what it cannot be started with is not what it is started with next time.
        self.keep(&settings)?;
        self.status()
    }

    /// Starts its process and waits until it answers.
    fn run(&self, settings: &Settings) -> Result<(), LabError> {
        let run = self.dir.join("run");
        std::fs::create_dir_all(&run).map_err(|e| LabError::caused(run.display(), e))?;
        self.give(&run)?;
        let mut command = self.program(SERVER);
        command.arg("--no-defaults").arg("--skip-networking");
        for (name, path) in [
            ("datadir", self.data()),
            ("socket", self.socket()),
            ("pid-file", self.pid_file()),
            ("log-error", self.log()),
        ] {
            command.arg(format!("--{name}={}", path.display()));
        }
        for setting in buffer_pool(settings).iter().chain(&settings.set) {
            command.arg(format!("--{setting}"));
        }
        let group = settings.memory_bytes;
        let group = group
            .map(|bytes| Cgroup::make(&self.dir, bytes))
            .transpose()?;
        let inside = group.as_ref().map(Cgroup::enter).transpose()?;
        let child = command.spawn();
        drop(inside);
        let mut child = child.map_err(|e| LabError::caused(SERVER, e))?;
        let begun = Instant::now();
        loop {
            if self.make_database().is_ok() {
                return Ok(());
            }
            let ended = child.try_wait().map_err(|e| LabError::caused(SERVER, e))?;
            if ended.is_some() || begun.elapsed() > START_WITHIN {
                // One that has ended already is what is wanted.
                let _ = child.kill();
                let _ = child.wait();
                Cgroup::remove(&self.dir);
                return Err(self.complaint("it does not start"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn make_database(&self) -> Result<(), mysql::Error> {
        let opts = OptsBuilder::new()
            .user(Some(OWNER))
            .socket(Some(self.socket().display().to_string()));
        Conn::new(opts)?.query_drop(format!("CREATE DATABASE IF NOT EXISTS {DATABASE}"))
    }

    /// Makes its data, unless they are there.
    fn make(&self) -> Result<(), LabError> {
        if Self::is_one(&self.dir) {
            return Ok(());
        }
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
        self.give(&self.dir)?;
        let data = format!("--datadir={}", self.data().display());
        let output = self
            .program(INSTALL)
            .args(["--no-defaults", &data, "--skip-test-db"])
            .arg("--auth-root-authentication-method=normal")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output();
        let output = output.map_err(|e| LabError::caused(INSTALL, e))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or_default().to_owned();
            return Err(LabError::environment(format!(
                "{}: {INSTALL}: {} {last}",
                self.dir.display(),
                output.status
            )));
        }
        self.keep(&Settings::default())
    }

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

    fn give(&self, path: &Path) -> Result<(), LabError> {
        let Some((user, group)) = self.user else {
            return Ok(());
        };
        std::os::unix::fs::chown(path, Some(user), Some(group))
            .map_err(|e| LabError::caused(path.display(), e))
    }

    fn complaint(&self, what: &str) -> LabError {
        let log = self.log();
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let error = said.lines().find(|line| line.contains("[ERROR]"));
        let last = error.or(said.lines().last()).unwrap_or_default();
        LabError::environment(format!(
            "{}: {what}; {} says: {last}",
            self.dir.display(),
            log.display()
        ))
    }

    /// Stops it in order; false if it did not run.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(&self) -> Result<bool, LabError> {
        self.end(Signal::TERM, STOP_WITHIN)
    }

    /// Kills it, as a crash would; false if it did not run.
    ///
    /// # Errors
    /// It does not go.
    pub fn kill(&self) -> Result<bool, LabError> {
        self.end(Signal::KILL, Duration::from_secs(10))
    }

    fn end(&self, signal: Signal, within: Duration) -> Result<bool, LabError> {
        self.settings()?;
        let Some(pid) = self.pid() else {
            Cgroup::remove(&self.dir);
            return Ok(false);
        };
        // One that has ended meanwhile is what is wanted.
        let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, signal));
        let until = Instant::now() + within;
        while is_alive(pid) {
            if Instant::now() > until {
                return Err(self.complaint(&format!("process {pid} does not end")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Cgroup::remove(&self.dir);
        Ok(true)
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
            saved: false,
        })
    }

    /// Its process, if it runs.
    fn pid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.pid_file()).ok()?;
        let pid: u32 = text.trim().parse().ok()?;
        // The number may be another process's by now.
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let own = format!("--datadir={}", self.data().display());
        let is_ours = words
            .split(|&byte| byte == 0)
            .any(|word| word == own.as_bytes());
        (is_ours && is_alive(pid)).then_some(pid)
    }

    fn settings(&self) -> Result<Settings, LabError> {
        let mark = self.dir.join(MARK);
        let dir = self.dir.display();
        let text = std::fs::read_to_string(&mark)
            .map_err(|_| LabError::usage(format!("{dir}: there is no MariaDB of ours in it")))?;
        serde_json::from_str(&text).map_err(|e| LabError::caused(mark.display(), e))
    }

    fn keep(&self, settings: &Settings) -> Result<(), LabError> {
        let mark = self.dir.join(MARK);
        let text = serde_json::to_string_pretty(settings);
        let text = text.map_err(|e| LabError::caused(mark.display(), e))?;
        ashlar_lab::write_whole(&mark, &text)
    }
}

/// Half of the memory is InnoDB's own cache, unless told otherwise: it reads past the page cache.
fn buffer_pool(settings: &Settings) -> Option<String> {
    let is_said = |set: &String| {
        set.replace('-', "_")
            .starts_with("innodb_buffer_pool_size=")
    };
    let bytes = settings.memory_bytes?;
    let said = settings.set.iter().any(is_said);
    (!said).then(|| format!("innodb-buffer-pool-size={}", (bytes / 2).max(5 << 20)))
}
