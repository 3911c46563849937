//! What the tests of the binary share: running it, waiting, and saying what cannot be had here.

#![allow(dead_code)] // Each test program has its own use of it.
#![allow(clippy::print_stderr)] // Why a test was skipped.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take before a test gives up: far more than it should.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Unmounts what other tests have attached: a volume that is mounted in another namespace, too, is not detached.
const LETS_GO: &str = "sed -n 's,^/dev/loop[0-9]* ,,p' /proc/self/mounts | while read -r at _; do umount -l $at; done";

/// A process with mounts of its own, which others may enter ([`within`]). `then` is done there first.
pub fn own_mounts(then: &str) -> Running {
    let script = format!("{LETS_GO}; {then} && echo ready && exec sleep 3600");
    let mut command = Command::new("unshare");
    let mut holder =
        Running::start(command.args(["--mount", "--propagation", "private", "sh", "-c", &script]));
    holder.ready();
    holder
}

/// A command in a directory, with the mounts of another process.
pub fn within(holder: &Running, dir: &Path, command: &Command) -> Command {
    let mut entered = Command::new("nsenter");
    entered.arg(format!("--mount=/proc/{}/ns/mnt", holder.id()));
    // From the root of these mounts, where it begins.
    entered
        .args(["sh", "-c", "cd \"$0\" && exec \"$@\""])
        .arg(dir);
    entered.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => entered.env(name, value),
            None => entered.env_remove(name),
        };
    }
    entered
}

/// Waits until something is so.
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    eventually_within(TEST_TIMEOUT, what, is_so);
}

/// The same, of what may take so long on a busy machine.
pub fn eventually_within(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < patience,
            "not within {patience:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The binary with these words, without settings from outside.
pub fn ashlar(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
    command.args(words).stdin(Stdio::null());
    for setting in [
        "ASHLAR_API",
        "ASHLAR_TOKEN_FILE",
        "ASHLAR_ATTACH_STATE",
        "ASHLAR_LOG",
        "ASHLAR_LOG_FORMAT",
    ] {
        command.env_remove(setting);
    }
    command
}

/// How a run has ended.
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub error: String,
}

impl Ended {
    /// All that it has said.
    pub fn said(&self) -> String {
        [&self.out[..], &self.error].concat()
    }
}

/// Runs a command to its end, which must be its own.
pub fn ended(command: &mut Command) -> Ended {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it runs");
    let error = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!error.contains("panicked"), "{command:?}: {error}");
    Ended {
        code: status.code().expect("it ends by itself"),
        out: String::from_utf8(stdout).expect("text"),
        error,
    }
}

/// Runs what must succeed; what it prints.
pub fn ok(command: &mut Command) -> String {
    let Ended { code, out, error } = ended(command);
    assert_eq!(code, 0, "{command:?}: {error}");
    out
}

/// Runs what must fail with this code, and say all of `names` and nothing on standard output.
pub fn refuses(command: &mut Command, code: i32, names: &[&str]) {
    let refusal = ended(command);
    let error = &refusal.error;
    assert_eq!(refusal.code, code, "{command:?}: {error}");
    for name in names {
        assert!(
            error.contains(name),
            "{command:?} does not name {name:?}: {error}"
        );
    }
    assert_eq!(refusal.out, "", "{command:?}");
}

/// Runs `ashlar lab` with these words in a folder: its code, and all that it says.
pub fn lab(folder: &Path, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> (i32, String) {
    let mut command = ashlar(["lab"]);
    let ended = ended(command.args(words).current_dir(folder));
    (ended.code, ended.said())
}

/// Scenarios that ship, as the command line names them where there is none of that name.
pub fn shipped(folder: &Path) -> Vec<String> {
    let (_, said) = lab(folder, ["show", "no-such-scenario"]);
    let names = said
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'));
    let (names, _) = names.expect("the names");
    names.split(", ").map(str::to_owned).collect()
}

/// Whether a scenario that ships is of databases: it has a section of what drives them, whatever else it has.
pub fn is_of_databases(folder: &Path, name: &str) -> bool {
    has_any(folder, name, &["[oltp]", "[scan]", "[fleet]"])
}

/// Whether a scenario that ships has one of these sections.
pub fn has_any(folder: &Path, name: &str, sections: &[&str]) -> bool {
    let (code, text) = lab(folder, ["show", name]);
    assert_eq!(code, 0, "{text}");
    text.lines().any(|line| sections.contains(&line.trim()))
}

/// Sends a signal to a process that need not be our child.
pub fn send(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

/// A child, killed when it is let go if it has not ended.
pub struct Running(Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).spawn().expect("it starts"))
    }

    /// What it says goes into a file.
    pub fn start_into(command: &mut Command, out: std::fs::File) -> Self {
        Self(command.stdout(out).spawn().expect("it starts"))
    }

    /// The words of the first line that it says, which must come in time; none if it ends without.
    pub fn first_words(&mut self) -> Vec<String> {
        self.first_words_within(TEST_TIMEOUT)
    }

    /// The same, of what may take so long on a busy machine.
    pub fn first_words_within(&mut self, patience: Duration) -> Vec<String> {
        let out = self.0.stdout.take().expect("not asked before");
        let (say, said) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut line = String::new();
            let read = out.read_line(&mut line);
            // The waiting thread may have given up. What comes later must find a reader all the same.
            let _ = say.send(read.map(|_| line));
            let _ = std::io::copy(&mut out, &mut std::io::sink());
        });
        let line = said.recv_timeout(patience).expect("a line in time");
        let line = line.expect("text");
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// What it says behind `ready`, which it must say first.
    pub fn ready(&mut self) -> Vec<String> {
        let mut words = self.first_words();
        assert_eq!(
            words.first().map(String::as_str),
            Some("ready"),
            "{words:?}"
        );
        words.split_off(1)
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("it ends", || {
            status = self.0.try_wait().expect("our child");
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// kill -9, and waits for its end; it must be alive.
    pub fn kill(&mut self) {
        self.0.kill().expect("our child");
        self.0.wait().expect("our child");
    }

    /// Sends it a signal and waits for its end.
    pub fn end(&mut self, signal: Signal) -> ExitStatus {
        kill_process(Pid::from_child(&self.0), signal).expect("it is alive");
        self.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a test that needs something can be had here. If not it says so; where `CI` is set, which has
/// everything, it fails.
pub fn is_there(what: &str, is_there: bool) -> bool {
    if !is_there {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!is_ci, "CI is set, and there is no {what}");
        eprintln!("SKIPPED: there is no {what}");
    }
    is_there
}

/// Whether there is a PostgreSQL.
pub fn has_postgresql() -> bool {
    let folder = Path::new("/usr/lib/postgresql");
    is_there("PostgreSQL in /usr/lib/postgresql", folder.exists())
}

/// Whether volumes can be attached.
pub fn can_attach() -> bool {
    let root = rustix::process::geteuid().is_root();
    is_there("root, which attaching needs", root)
        && ["/dev/fuse", "/dev/loop-control"]
            .iter()
            .all(|device| is_there(device, Path::new(device).exists()))
}

/// A folder that others may enter: a server of PostgreSQL is not root's.
pub fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("opened");
    folder
}
