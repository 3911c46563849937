//! A private PostgreSQL on a unix socket, in a folder that goes away with it.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The name of the cluster's owner in it, who logs in without a password.
pub const OWNER: &str = "owner";

pub struct Cluster {
    programs: PathBuf,
    dir: TempDir,
}

impl Cluster {
    /// Starts one, with these settings besides. `None`, loudly, where there is no PostgreSQL; under
    /// CI=true that is a failure.
    pub fn start(settings: &[&str]) -> Option<Self> {
        let Some(programs) = programs() else {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "CI=true, and there is no PostgreSQL in /usr/lib/postgresql/*/bin"
            );
            eprintln!("SKIPPED: there is no PostgreSQL in /usr/lib/postgresql/*/bin");
            return None;
        };
        let dir = TempDir::new().expect("folder");
        if rustix::process::getuid().is_root() {
            let (user, group) = unprivileged();
            chown(dir.path(), Some(user), Some(group)).expect("given away");
        }
        let cluster = Self { programs, dir };
        let data = cluster.data();
        cluster.command(
            "initdb",
            &["-D", &data, "-A", "trust", "-U", OWNER, "--locale=C", "-N"],
        );
        let mut hba = "local all stranger scram-sha-256\nlocal all all trust\n".to_owned();
        hba.push_str("host all all 127.0.0.1/32 scram-sha-256\n");
        std::fs::write(Path::new(&data).join("pg_hba.conf"), hba).expect("written");
        let socket = cluster.dir.path().display().to_string();
        // A killed server's segments stay, and bear no mark of it: they belong in the folder.
        let mut options = format!(
            "-c listen_addresses='' -k {socket} -c fsync=off -c dynamic_shared_memory_type=mmap"
        );
        for setting in settings {
            options.push_str(&format!(" -c {setting}"));
        }
        let log = format!("{socket}/log");
        cluster.command(
            "pg_ctl",
            &["-D", &data, "-w", "-l", &log, "-o", &options, "start"],
        );
        Some(cluster)
    }

    fn data(&self) -> String {
        self.dir.path().join("data").display().to_string()
    }

    /// A database's URL.
    pub fn url(&self, database: &str, user: &str) -> String {
        format!(
            "postgres:///{database}?host={}&user={user}",
            self.dir.path().display()
        )
    }

    /// Runs SQL and gives what it prints.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let socket = self.dir.path().display().to_string();
        self.command(
            "psql",
            &[
                "-XqAt",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                &socket,
                "-U",
                OWNER,
                "-d",
                database,
                "-c",
                sql,
            ],
        )
    }

    /// Ends the server as a crash would.
    pub fn crash(&self) {
        self.command(
            "pg_ctl",
            &["-D", &self.data(), "-w", "-m", "immediate", "stop"],
        );
    }

    /// Runs one of PostgreSQL's programs, not as root: it refuses that.
    fn command(&self, program: &str, arguments: &[&str]) -> String {
        let out = self.try_command(program, arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            out.status.success(),
            "{program} {arguments:?}: {}",
            text(&out.stderr)
        );
        text(&out.stdout).trim().to_owned()
    }

    fn try_command(&self, program: &str, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new(self.programs.join(program));
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        if rustix::process::getuid().is_root() {
            let (user, group) = unprivileged();
            command.uid(user).gid(group);
        }
        // A server that is started must not keep this process's pipes: pg_ctl's are files.
        if program == "pg_ctl" {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        command.output().expect("the program runs")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.try_command(
            "pg_ctl",
            &["-D", &self.data(), "-w", "-m", "immediate", "stop"],
        );
    }
}

pub fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|path| path.join("initdb").exists())
        .collect();
    found.sort();
    found.pop()
}

/// A user without rights: numbers of user and group.
fn unprivileged() -> (u32, u32) {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let numbers = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    numbers("postgres")
        .or_else(|| numbers("nobody"))
        .unwrap_or((65534, 65534))
}
