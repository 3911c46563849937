//! A daemon with a volume, and what is attached of it.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// Whether attaching is possible here; where it must be, its absence fails the test.
pub fn possible() -> bool {
    let root = rustix::process::geteuid().is_root();
    let fuse = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let possible = root && fuse.is_ok() && Path::new("/dev/loop-control").exists();
    if !possible {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci.is_empty()),
            "CI must be root and have /dev/fuse and /dev/loop-control"
        );
        eprintln!("SKIPPED: attaching needs root, /dev/fuse and /dev/loop-control");
    }
    possible
}

/// Waits until something is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn ashlar(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Sends a signal to a process that need not be our child.
pub fn send(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

/// A process that serves, and its address.
struct Served {
    child: Child,
    address: String,
}

fn serve(arguments: &[&str], errors: &Path) -> Served {
    let errors = OpenOptions::new().create(true).append(true).open(errors);
    let mut child = ashlar(arguments)
        .stdout(Stdio::piped())
        .stderr(errors.expect("a file"))
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("it says something");
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("ready"), "{line}");
    Served {
        child,
        address: words.next().expect("an address").to_owned(),
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who serves what is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The daemon.
    InProcess,
    /// A server of its own, through our initiator.
    Initiator,
}

impl Way {
    pub const BOTH: [Self; 2] = [Self::InProcess, Self::Initiator];

    /// The process that serves, as `attach --list` names it.
    pub fn server(self) -> &'static str {
        match self {
            Self::InProcess => "daemon",
            Self::Initiator => "server",
        }
    }
}

/// A folder, a daemon with `tank/db` (or a bare target), and a folder to mount on.
pub struct Rig {
    dir: tempfile::TempDir,
    served: Option<Served>,
    address: String,
    way: Way,
}

impl Rig {
    /// A daemon with pool tank of two drives, and the empty volume tank/db.
    pub fn new(size: &str) -> Self {
        Self::with_drives(size, 1 << 30)
    }

    /// The same, on two drives of so many bytes.
    pub fn with_drives(size: &str, bytes: u64) -> Self {
        let mut rig = Self::empty();
        for drive in ["d0", "d1"] {
            let file = File::create(rig.path(drive)).expect("a file");
            file.set_len(bytes).expect("a sparse file");
        }
        rig.start("127.0.0.1:0");
        let drive = |name| format!("file:{}", rig.path(name).display());
        let (d0, d1) = (drive("d0"), drive("d1"));
        rig.ok(&["pool", "create", "tank", "--drive", &d0, "--drive", &d1]);
        rig.ok(&[
            "volume", "create", "tank/db", "--layout", "mirror:2", "--size", size,
        ]);
        rig
    }

    /// A bare target with one namespace: a file, which has a volatile cache.
    pub fn bare() -> (Self, String) {
        let mut rig = Self::empty();
        let device = format!("file:{}?size=512MiB", rig.path("ns").display());
        let nqn = "nqn.2026-01.io.ashlar:attach-test";
        let served = serve(
            &[
                "serve",
                "--device",
                &device,
                "--nqn",
                nqn,
                "--listen",
                "127.0.0.1:0",
                "--allow-any-host",
            ],
            &rig.path("errors"),
        );
        let url = format!("nvme-tcp://{}/{nqn}?ns=1", served.address);
        rig.served = Some(served);
        (rig, url)
    }

    fn empty() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join("mnt")).expect("a folder");
        Self {
            dir,
            served: None,
            address: String::new(),
            way: Way::InProcess,
        }
    }

    /// The same, and what is attached from now on is served this way.
    pub fn by(self, way: Way) -> Self {
        let mut rig = self;
        rig.way = way;
        rig
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn mount(&self) -> String {
        self.path("mnt").display().to_string()
    }

    fn start(&mut self, listen: &str) {
        let dir = self.path("node").display().to_string();
        let arguments = ["node", "--dir", &dir, "--listen", listen];
        let served = serve(&arguments, &self.path("errors"));
        self.address = served.address.clone();
        self.served = Some(served);
    }

    /// kill -9 of what serves the volume.
    pub fn kill_node(&mut self) {
        self.served = None;
    }

    /// Ends what serves the volume in order, as a service manager does.
    pub fn end_node(&mut self) {
        let mut served = self.served.take().expect("it runs");
        send(served.child.id() as i32, Signal::TERM);
        let status = served.child.wait().expect("our child");
        assert!(status.success(), "{status}");
    }

    /// Starts the daemon again where it was.
    pub fn restart_node(&mut self) {
        let address = self.address.clone();
        self.start(&address);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = ashlar(arguments);
        command
            .env("ASHLAR_API", self.path("node/api.sock"))
            .env("ASHLAR_ATTACH_STATE", self.path("state"));
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it runs")
    }

    /// A command that must succeed; its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// A command that must fail with this code, saying all of `names`.
    pub fn refuses(&self, arguments: &[&str], code: i32, names: &[&str]) {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        for name in names {
            assert!(
                error.contains(name),
                "{arguments:?} does not name {name:?}: {error}"
            );
        }
        assert!(!error.contains("panicked"), "{error}");
    }

    /// Attaches at the usual place, and the way that was said. A URL leaves no choice.
    pub fn attach(&self, volume: &str, more: &[&str]) {
        let mount = self.mount();
        let via: &[&str] = match self.way {
            Way::InProcess => &[],
            Way::Initiator => &["--via", "initiator"],
        };
        self.ok(&[&["attach", volume, "--mount", &mount], via, more].concat());
        let is_url = volume.contains("://");
        let expected = match self.way {
            Way::InProcess if !is_url => "fuse, in process",
            _ => "fuse, through the initiator",
        };
        let why = self.listed()["why"].clone();
        assert!(
            why.as_str().is_some_and(|why| why.starts_with(expected)),
            "{why}"
        );
    }

    pub fn detach(&self) {
        self.ok(&["detach", &self.mount()]);
    }

    /// What `attach --list` tells of the only attachment.
    pub fn listed(&self) -> Value {
        let text = self.ok(&["attach", "--list", "--json"]);
        let mut all: Value = serde_json::from_str(&text).expect("JSON");
        let list = all.as_array_mut().expect("a list");
        assert_eq!(list.len(), 1, "{list:?}");
        list.remove(0)
    }

    /// A process behind the attachment: `guardian`, `server` or `daemon`.
    pub fn pid(&self, which: &str) -> i32 {
        let pid = self.listed()["processes"][which]["pid"].as_i64();
        pid.expect("a process") as i32
    }

    /// Nothing is left of any attachment: mounts, loop devices, folders.
    pub fn is_clean(&self) {
        let place = self.dir.path().display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        assert!(!mounts.contains(&place), "{mounts}");
        let loops = Command::new("losetup").arg("-a").output().expect("losetup");
        let loops = String::from_utf8_lossy(&loops.stdout).into_owned();
        assert!(!loops.contains(&place), "{loops}");
        assert_eq!(self.ok(&["attach", "--list"]), "nothing is attached\n");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for file in ["errors", "state"] {
                let path = self.path(file);
                let logs = std::fs::read_dir(&path).into_iter().flatten().flatten();
                let files = logs.map(|entry| entry.path().join("log"));
                for file in files.chain([path]) {
                    let said = std::fs::read_to_string(&file).unwrap_or_default();
                    eprintln!("{}:\n{said}", file.display());
                }
            }
        }
        // What a failed test has left; there is nothing otherwise.
        let _ = self.run(&["detach", &self.mount(), "--force"]);
    }
}
