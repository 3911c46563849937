//! kill -9 and SIGSTOP for everything in turn.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{Ended, TEST_TIMEOUT, can_attach, ended, eventually, send};
use crate::rig::{Rig, Way};

const BLOCK: usize = 8192;
const BLOCKS: u64 = 256;

/// Writes blocks with an fsync each, and knows what was acknowledged.
pub struct Writer {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

fn block(sequence: u64) -> Vec<u8> {
    sequence.to_le_bytes().repeat(BLOCK / 8)
}

impl Writer {
    pub fn start(file: &Path) -> Self {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(file);
        let file = file.expect("a file");
        let (stop, done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, acknowledged) = (stop.clone(), done.clone());
        let thread = std::thread::spawn(move || {
            for sequence in 1.. {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                let at = sequence % BLOCKS * BLOCK as u64;
                file.write_all_at(&block(sequence), at)?;
                file.sync_data()?;
                acknowledged.store(sequence, Ordering::Release);
            }
            Ok(())
        });
        Self {
            stop,
            done,
            thread: Some(thread),
        }
    }

    /// Waits until more is acknowledged.
    pub fn advances(&self) {
        let before = self.done.load(Ordering::Acquire);
        eventually("the writer goes on", || {
            self.done.load(Ordering::Acquire) > before + 5
        });
    }

    /// Whether an error has ended it.
    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Waits until an error ends it, and says what was acknowledged before. Not asked to stop: it might
    /// do so between two writes, before it meets the error.
    pub fn told(self) -> u64 {
        eventually("the writer is told", || self.is_finished());
        let (result, acknowledged) = self.end();
        assert!(result.is_err(), "it ended without an error");
        acknowledged
    }

    pub fn end(mut self) -> (std::io::Result<()>, u64) {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("a thread");
        let start = Instant::now();
        while !thread.is_finished() {
            assert!(start.elapsed() < TEST_TIMEOUT, "the writer hangs");
            std::thread::sleep(Duration::from_millis(10));
        }
        (
            thread.join().expect("no panic"),
            self.done.load(Ordering::Acquire),
        )
    }
}

/// Every block holds what was last acknowledged for it, or what came after.
fn check(file: &Path, acknowledged: u64) {
    let file = File::open(file).expect("a file");
    let oldest = acknowledged.saturating_sub(BLOCKS) + 1;
    for sequence in oldest..=acknowledged {
        let mut bytes = vec![0; BLOCK];
        file.read_exact_at(&mut bytes, sequence % BLOCKS * BLOCK as u64)
            .expect("read");
        let found = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        assert!(
            found == sequence || found == sequence + BLOCKS,
            "{found} instead of {sequence}"
        );
        assert_eq!(bytes, block(found), "a torn block");
    }
}

/// Attached again, the volume has what was acknowledged.
pub fn holds(rig: &Rig, file: &Path, acknowledged: u64) {
    rig.attach("tank/db", &[]);
    check(file, acknowledged);
    rig.detach();
    rig.is_clean();
}

#[test]
fn killed_servers_and_daemons_cost_a_pause_and_no_error() {
    if !can_attach() {
        return;
    }
    let mut rig = Rig::new("320MiB").by(Way::Initiator);
    rig.attach("tank/db", &["--fs", "xfs"]);
    let file = rig.path("mnt/file");
    let writer = Writer::start(&file);
    writer.advances();
    for round in 0..3 {
        send(rig.pid("server"), Signal::KILL);
        writer.advances();
        rig.kill_node();
        // The server that takes over must wait for the daemon, too.
        if round == 1 {
            send(rig.pid("server"), Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(300));
        rig.restart_node();
        writer.advances();
    }
    let listed = rig.listed();
    assert_eq!(listed["condition"], "attached", "{listed:#}");
    assert!(
        listed["processes"]["restarts"].as_u64() >= Some(4),
        "{listed:#}"
    );
    let (result, acknowledged) = writer.end();
    result.expect("no error");
    rig.detach();
    holds(&rig, &file, acknowledged);
}

/// A daemon that serves in process, killed and ended in order, at once and while it comes back.
#[test]
fn a_daemon_that_ends_is_a_pause_and_no_error() {
    if !can_attach() {
        return;
    }
    let mut rig = Rig::new("320MiB");
    rig.attach("tank/db", &["--fs", "xfs"]);
    let file = rig.path("mnt/file");
    let writer = Writer::start(&file);
    writer.advances();
    for round in 0..6u64 {
        match round % 2 {
            0 => rig.kill_node(),
            _ => rig.end_node(),
        }
        std::thread::sleep(Duration::from_millis(round % 3 * 200));
        rig.restart_node();
        writer.advances();
        if round == 3 {
            // One that has hardly begun.
            rig.kill_node();
            rig.restart_node();
            rig.kill_node();
            rig.restart_node();
            writer.advances();
        }
    }
    let listed = rig.listed();
    assert_eq!(listed["condition"], "attached", "{listed:#}");
    assert!(
        listed["processes"]["restarts"].as_u64() >= Some(6),
        "{listed:#}"
    );
    let (result, acknowledged) = writer.end();
    result.expect("no error");
    rig.detach();
    holds(&rig, &file, acknowledged);
}

#[test]
fn a_stopped_server_is_cleared_by_force_in_bounded_time() {
    if can_attach() {
        Way::BOTH.into_iter().for_each(stop_server);
    }
}

fn stop_server(way: Way) {
    let rig = Rig::new("320MiB").by(way);
    rig.attach("tank/db", &["--fs", "xfs"]);
    let writer = Writer::start(&rig.path("mnt/file"));
    writer.advances();
    let server = rig.pid(way.server());
    send(server, Signal::STOP);
    eventually("it is listed as stopped", || {
        rig.listed()["condition"] == "stopped"
    });
    rig.refuses(&["detach", &rig.mount()], 3, &["in use by", "open file"]);
    let start = Instant::now();
    rig.ok(&["detach", &rig.mount(), "--force"]);
    assert!(
        start.elapsed() < Duration::from_secs(25),
        "{:?}",
        start.elapsed()
    );
    writer.told();
    eventually("nothing is left", || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        !mounts.contains(&rig.mount())
    });
    rig.is_clean();
    // Only the daemon is still there; by force or not, it is not the attachment's to kill.
    if way == Way::InProcess {
        send(server, Signal::CONT);
    }
    // The volume is as it was at some moment, and can be used.
    rig.attach("tank/db", &[]);
    rig.detach();
}

#[test]
fn without_guardian_and_server_io_fails_at_once_and_detach_clears_it() {
    if can_attach() {
        Way::BOTH.into_iter().for_each(kill_guardian_and_server);
    }
}

fn kill_guardian_and_server(way: Way) {
    let mut rig = Rig::new("320MiB").by(way);
    rig.attach("tank/db", &["--fs", "ext4"]);
    let file = rig.path("mnt/file");
    let writer = Writer::start(&file);
    writer.advances();
    let (guardian, server) = (rig.pid("guardian"), rig.pid(way.server()));
    send(guardian, Signal::KILL);
    // The server alone goes on.
    eventually("it is listed as unguarded", || {
        rig.listed()["condition"] == "unguarded"
    });
    writer.advances();
    send(server, Signal::KILL);
    eventually("it is listed as unserved", || {
        rig.listed()["condition"] == "unserved"
    });
    let said = rig.ok(&["attach", "--list"]);
    let (start, force) = (said.find("`ashlar node`"), said.find("--force"));
    assert!(start.is_some() && start < force, "{said}");
    let start = Instant::now();
    let acknowledged = writer.told();
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    let Ended { code, error, .. } = ended(&mut rig.command(&["detach", &rig.mount()]));
    assert!(code == 0 && error.contains("no server"), "{error}");
    if way == Way::InProcess {
        rig.kill_node();
        rig.restart_node();
    }
    rig.is_clean();
    holds(&rig, &file, acknowledged);
}

#[test]
fn a_daemon_that_never_comes_back_is_an_error_in_the_stated_time() {
    if can_attach() {
        Way::BOTH.into_iter().for_each(lose_daemon);
    }
}

fn lose_daemon(way: Way) {
    let mut rig = Rig::new("320MiB").by(way);
    rig.attach("tank/db", &["--fs", "xfs", "--timeout", "3s"]);
    let writer = Writer::start(&rig.path("mnt/file"));
    writer.advances();
    rig.kill_node();
    let start = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    writer.told();
    let waited = start.elapsed();
    let expected = Duration::from_secs(2)..Duration::from_secs(20);
    assert!(expected.contains(&waited), "{waited:?}");
    rig.ok(&["detach", &rig.mount(), "--force"]);
    rig.is_clean();
}
