//! A reactor and a device on it, for tests: one request at a time, or many.

use std::time::{Duration, Instant};

use ashlar_block::{
    BlockDevice, BlockRange, Checked, Completion, Durability, IoBuffer, IoError, Operation, Request,
};
use ashlar_reactor::{Handle, Opener, Options, Reactor};

pub(crate) struct Bench {
    // Dropped first: it holds files of the reactor's.
    pub(crate) device: Checked<Box<dyn BlockDevice>>,
    reactor: Reactor,
}

impl Bench {
    pub(crate) fn open(opener: &dyn Opener) -> Self {
        let options = Options {
            pool_bytes: 64 << 20,
            ..Options::default()
        };
        let reactor = Reactor::new(&options).expect("io_uring is available");
        let device = opener.open(reactor.handle()).expect("opens");
        Self {
            device: Checked::new(device),
            reactor,
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.reactor.handle().clone()
    }

    pub(crate) fn buffer(&self, len: usize) -> IoBuffer {
        self.reactor.handle().buffers().get(len).expect("buffer")
    }

    /// Submits all and waits for all; completions in the order of their tags.
    pub(crate) fn run_all(&mut self, requests: Vec<Request>) -> Vec<Completion> {
        let count = requests.len();
        for request in requests {
            self.device.submit(request);
        }
        let mut done = Vec::new();
        let start = Instant::now();
        loop {
            self.device.poll(self.reactor.handle().now(), &mut done);
            if done.len() >= count {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no completion");
            let latest = self.reactor.handle().now() + Duration::from_millis(100);
            let deadline = self.device.next_deadline().unwrap_or(latest).min(latest);
            self.reactor.turn(Some(deadline)).expect("turn");
        }
        assert_eq!(done.len(), count, "completed more than once");
        done.sort_by_key(|completion| completion.tag);
        done
    }

    pub(crate) fn run(&mut self, request: Request) -> Completion {
        self.run_all(vec![request]).remove(0)
    }

    pub(crate) fn read(&mut self, range: BlockRange) -> Result<Vec<u8>, IoError> {
        let buffer = self.buffer(self.device.geometry().range_bytes(range));
        let done = self.run(Request::read(1, range, buffer));
        done.result?;
        Ok(done.buffer.expect("the buffer comes back").to_vec())
    }

    pub(crate) fn write(
        &mut self,
        range: BlockRange,
        fill: u8,
        durability: Durability,
    ) -> Result<(), IoError> {
        let mut buffer = self.buffer(self.device.geometry().range_bytes(range));
        buffer.fill(fill);
        let done = self.run(Request::write(2, range, buffer, durability));
        assert!(done.buffer.is_some(), "the buffer comes back");
        done.result
    }

    pub(crate) fn flush(&mut self) -> Result<(), IoError> {
        self.run(Request::flush(3)).result
    }

    pub(crate) fn zero(&mut self, op: Operation, range: BlockRange) -> Result<(), IoError> {
        let request = Request {
            tag: 4,
            op,
            range,
            buffer: None,
        };
        self.run(request).result
    }
}

/// Whether the test may do what needs root. Where it may not it says so; in CI it must.
pub(crate) fn root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    assert!(
        root || std::env::var("CI").as_deref() != Ok("true"),
        "{test} needs root in CI"
    );
    if !root {
        eprintln!("SKIPPED {test}: needs root");
    }
    root
}

/// Runs a system tool and gives its output.
pub(crate) fn tool(command: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(command)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} {arguments:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).trim().into()
}

/// A small file system of its own, unmounted at the end.
pub(crate) struct Mounted(pub(crate) tempfile::TempDir);

impl Mounted {
    pub(crate) fn tmpfs(size: &str) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().display().to_string();
        let size = format!("size={size}");
        tool("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &path]);
        Self(directory)
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let path = self.0.path().display().to_string();
        tool("umount", &["--lazy", &path]);
    }
}

/// A file as a block device, taken down at the end.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    pub(crate) fn new(file: &std::path::Path, sector: u32) -> Self {
        let file = file.display().to_string();
        let sector = sector.to_string();
        let arguments = ["--find", "--show", "--sector-size", &sector, &file];
        Self(tool("losetup", &arguments))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        tool("losetup", &["--detach", &self.0]);
    }
}
