//! A volume that two targets serve: the mounted file system goes on while paths change, one is killed, and it
//! comes back.

use std::fs::{File, OpenOptions};
use std::io::{PipeWriter, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::common::{self, Running, ashlar, can_attach, eventually};
use crate::rig::Rig;

const NQN: &str = "nqn.2026-01.io.ashlar:attach-paths";
const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;

/// A block device without a volatile cache that two processes may serve.
struct Medium {
    device: PathBuf,
    _dir: tempfile::TempDir,
}

impl Medium {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let image = dir.path().join("image");
        let file = File::create(&image).expect("a file");
        file.set_len(64 << 20).expect("a sparse file");
        // Another process may take the device that it has found to be free: then it finds another one.
        let mut device = None;
        eventually("a loop device", || {
            let mut losetup = Command::new("losetup");
            losetup.args(["-f", "--show", "--direct-io=on", "--sector-size", "4096"]);
            let ended = common::ended(losetup.arg(&image));
            device = (ended.code == 0).then(|| PathBuf::from(ended.out.trim()));
            device.is_some()
        });
        let device = device.expect("a loop device");
        let name = device.file_name().expect("a name").to_string_lossy();
        let cache = format!("/sys/block/{name}/queue/write_cache");
        std::fs::write(cache, "write through").expect("root");
        Self { device, _dir: dir }
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

/// One of the two targets.
struct Target {
    ids: &'static str,
    address: String,
    running: Option<(Running, PipeWriter)>,
}

impl Target {
    fn new(ids: &'static str) -> Self {
        // Its own also while it is stopped.
        let address = ashlar_oltp::Ports::default().draw(Ipv4Addr::LOCALHOST.into());
        let address = address.expect("a port").to_string();
        Self {
            ids,
            address,
            running: None,
        }
    }

    fn start(&mut self, (rig, medium): (&Rig, &Medium), state: &str) {
        let (orders, writer) = std::io::pipe().expect("a pipe");
        let device = format!("{}?share=on", medium.device.display());
        let mut command = ashlar(["serve", "--allow-any-host", "--orders", "--nqn", NQN]);
        command.args(["--device", &device, "--listen", &self.address]);
        command.args(["--controller-ids", self.ids, "--path", state]);
        let errors = OpenOptions::new()
            .create(true)
            .append(true)
            .open(rig.path("errors"));
        command.stderr(errors.expect("a file"));
        let mut running = Running::start(command.stdin(orders));
        running.ready();
        self.running = Some((running, writer));
    }

    fn order(&mut self, state: &str) {
        let (_, orders) = self.running.as_mut().expect("it runs");
        writeln!(orders, "path {state}").expect("a reader");
    }

    /// kill -9.
    fn kill(&mut self) {
        self.running = None;
    }
}

/// What `attach --list` says of the path to a target: its state, and whether it is in use.
fn path(rig: &Rig, target: &Target) -> (String, bool) {
    let listed = rig.listed();
    let paths = listed["paths"].as_array().cloned().unwrap_or_default();
    let is_its = |path: &&Value| path["address"] == target.address.as_str();
    let path = paths.iter().find(is_its).expect("a path each");
    let state = path["state"].as_str().expect("a state").to_owned();
    (state, path["in_use"] == true)
}

fn pattern(generation: u64) -> Vec<u8> {
    generation.to_le_bytes().repeat(BLOCK / 8)
}

/// Writes one block after the other, each durable before the next.
struct Load {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(file: &Path) -> Self {
        let mut how = OpenOptions::new();
        let dsync = rustix::fs::OFlags::DSYNC.bits() as i32;
        let how = how.write(true).create(true).custom_flags(dsync);
        let file = how.open(file).expect("a file");
        let (stop, written) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, count) = (stop.clone(), written.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let generation = count.load(Ordering::SeqCst);
                let at = generation % BLOCKS * BLOCK as u64;
                let write = file.write_all_at(&pattern(generation), at);
                write.expect("no write fails");
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self {
            stop,
            written,
            thread,
        }
    }

    fn goes_on(&self) {
        let before = self.written.load(Ordering::SeqCst);
        eventually("the load goes on", || {
            assert!(!self.thread.is_finished(), "it has failed");
            self.written.load(Ordering::SeqCst) > before + BLOCKS
        });
    }

    /// How many blocks were written.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("no write has failed");
        self.written.load(Ordering::SeqCst)
    }
}

fn check(file: &Path, written: u64) {
    let bytes = std::fs::read(file).expect("it is there");
    for generation in written.saturating_sub(BLOCKS)..written {
        let at = (generation % BLOCKS) as usize * BLOCK;
        assert_eq!(bytes[at..at + BLOCK], pattern(generation), "{generation}");
    }
}

#[test]
fn a_file_system_goes_on_while_paths_change_and_targets_die() {
    if !can_attach() {
        return;
    }
    let (medium, rig) = (Medium::new(), Rig::empty());
    let (mut one, mut two) = (Target::new("1-99"), Target::new("100-199"));
    one.start((&rig, &medium), "optimized");
    two.start((&rig, &medium), "inaccessible");
    // Short, since one target cannot say of the other's commands that they have ended.
    let url = format!("nvme-tcp://{},{}/{NQN}?kato=1s", one.address, two.address);
    rig.attach(&url, &["--fs", "ext4"]);
    let file = rig.path("mnt/load");
    let load = Load::start(&file);
    load.goes_on();
    for _ in 0..2 {
        assert_eq!(path(&rig, &one), ("optimized".into(), true));
        one.order("change");
        eventually("it waits", || path(&rig, &one).0 == "changing");
        two.order("optimized");
        one.order("inaccessible");
        eventually("the other is in use", || path(&rig, &two).1);
        load.goes_on();
        two.kill();
        eventually("it is noticed", || path(&rig, &two).0 == "down");
        let text = rig.ok(&["attach", "--list"]);
        assert!(text.contains("no path, I/O waits"), "{text}");
        one.order("optimized");
        load.goes_on();
        two.start((&rig, &medium), "inaccessible");
        let back = ("inaccessible".to_owned(), false);
        eventually("it is back", || path(&rig, &two) == back);
        load.goes_on();
    }
    let written = load.end();
    rig.detach();
    rig.attach(&url, &[]);
    check(&file, written);
    rig.detach();
    rig.is_clean();
}
