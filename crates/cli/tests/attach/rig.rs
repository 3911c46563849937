//! A daemon with a volume, and what is attached of it.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use rustix::process::Signal;

use crate::common::{self, Running, ashlar};

/// A process that serves, and its address.
struct Served {
    process: Running,
    address: String,
}

fn serve(arguments: &[&str], errors: &Path) -> Served {
    let errors = OpenOptions::new().create(true).append(true).open(errors);
    let mut process = Running::start(ashlar(arguments).stderr(errors.expect("a file")));
    let address = process.ready().swap_remove(0);
    Served { process, address }
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

    /// Nothing that serves, and a folder to mount on.
    pub fn empty() -> Self {
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
        let status = served.process.end(Signal::TERM);
        assert!(status.success(), "{status}");
    }

    /// Starts the daemon again where it was.
    pub fn restart_node(&mut self) {
        let address = self.address.clone();
        self.start(&address);
    }

    /// A command to the daemon, about attachments of this folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = ashlar(arguments);
        command
            .env("ASHLAR_API", self.path("node/api.sock"))
            .env("ASHLAR_ATTACH_STATE", self.path("state"));
        command
    }

    /// A command that must succeed; its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        common::ok(&mut self.command(arguments))
    }

    /// A command that must fail with this code, saying all of `names`.
    pub fn refuses(&self, arguments: &[&str], code: i32, names: &[&str]) {
        common::refuses(&mut self.command(arguments), code, names);
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
        let _ = self.command(&["detach", &self.mount(), "--force"]).output();
    }
}
