//! Attach, write, detach, attach again.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::{can_attach, eventually, send};
use crate::rig::{Rig, Way};

pub fn content(seed: u8, length: usize) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn write_files(folder: &Path) {
    for index in 0..8u8 {
        let bytes = content(index, 300_000 * (usize::from(index) + 1) + 17);
        fs::write(folder.join(format!("f{index}")), bytes).expect("written");
    }
}

fn check_files(folder: &Path) {
    for index in 0..8u8 {
        let bytes = fs::read(folder.join(format!("f{index}"))).expect("read");
        let expected = content(index, 300_000 * (usize::from(index) + 1) + 17);
        assert!(bytes == expected, "file {index} is another");
    }
}

#[test]
fn what_is_written_is_there_after_detach_and_attach() {
    if !can_attach() {
        return;
    }
    Way::BOTH.into_iter().for_each(write_and_attach_again);
}

fn write_and_attach_again(way: Way) {
    let rig = Rig::new("512MiB").by(way);
    let mount = rig.path("mnt");
    rig.refuses(
        &["attach", "tank/db", "--mount", &rig.mount()],
        2,
        &["tank/db holds no file system", "--fs"],
    );
    rig.is_clean();
    rig.attach("tank/db", &["--fs", "xfs"]);
    write_files(&mount);
    let listed = rig.listed();
    assert_eq!(listed["condition"], "attached");
    assert_eq!(listed["file_system"], "xfs");
    rig.detach();
    rig.is_clean();
    assert!(fs::read_dir(&mount).expect("a folder").next().is_none());

    // What is there is mounted, and never formatted unless that was asked for.
    rig.refuses(
        &["attach", "tank/db", "--mount", &rig.mount(), "--fs", "ext4"],
        2,
        &["tank/db is not formatted", "xfs", "--destroy-data"],
    );
    rig.is_clean();
    rig.attach("tank/db", &[]);
    check_files(&mount);
    // A hole that was punched reads as zeroes.
    let file = mount.join("f7");
    let punched = Command::new("fallocate")
        .args(["-p", "-o", "65536", "-l", "131072"])
        .arg(&file)
        .status();
    assert!(punched.expect("it runs").success());
    let trimmed = Command::new("fstrim").arg(&mount).status();
    assert!(trimmed.expect("it runs").success());
    let zeroed = rig.listed()["requests"]["zero"]["bytes"].as_u64();
    assert!(zeroed.is_some_and(|bytes| bytes > 100 << 20), "{zeroed:?}");
    rig.detach();

    rig.attach("tank/db", &["--fs", "ext4", "--destroy-data"]);
    assert_eq!(rig.listed()["file_system"], "ext4");
    assert!(!mount.join("f0").exists());
    write_files(&mount);
    rig.detach();
    rig.attach("tank/db", &["-o", "ro"]);
    check_files(&mount);
    assert!(fs::write(mount.join("x"), "x").is_err(), "it is read only");
    rig.detach();
    rig.is_clean();
}

#[test]
fn a_namespace_is_attached_by_its_url() {
    if !can_attach() {
        return;
    }
    let (rig, url) = Rig::bare();
    rig.attach(&url, &["--fs", "xfs"]);
    write_files(&rig.path("mnt"));
    assert_eq!(rig.listed()["volatile_cache"], true);
    rig.detach();
    rig.attach(&url, &[]);
    check_files(&rig.path("mnt"));
    rig.detach();
    rig.is_clean();
}

/// All of a stripe is taken from the beginning: that is not data.
#[test]
fn a_new_stripe_is_empty_and_one_that_was_written_is_not() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("512MiB");
    rig.ok(&[
        "volume", "create", "tank/raw", "--layout", "stripe", "--size", "384MiB",
    ]);
    rig.attach("tank/raw", &["--fs", "xfs"]);
    write_files(&rig.path("mnt"));
    rig.detach();
    rig.refuses(
        &["attach", "tank/raw", "--mount", &rig.mount(), "--fs", "xfs"],
        2,
        &["tank/raw is not formatted", "xfs"],
    );
    rig.is_clean();
}

#[test]
fn an_attachment_that_is_on_its_way_is_listed_so() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    let mount = rig.mount();
    let mut attach = rig.command(&["attach", "tank/db", "--mount", &mount, "--fs", "xfs"]);
    let mut running = attach.spawn().expect("it starts");
    let pid = running.id() as i32;
    // Stopped again and again, until it is found half way.
    eventually("it is on its way", || {
        assert_eq!(
            running.try_wait().expect("a child"),
            None,
            "it was too fast"
        );
        send(pid, Signal::STOP);
        let text = rig.ok(&["attach", "--list", "--json"]);
        let is_on_its_way = text.contains("\"attaching\"");
        if !is_on_its_way {
            send(pid, Signal::CONT);
            std::thread::sleep(Duration::from_millis(2));
        }
        is_on_its_way
    });
    rig.refuses(&["attach", "tank/db", "--mount", &mount], 3, &[&mount]);
    send(pid, Signal::CONT);
    assert!(running.wait().expect("a child").success());
    assert_eq!(rig.listed()["condition"], "attached");
    rig.detach();
    rig.is_clean();
}

#[test]
fn what_was_unmounted_by_hand_is_listed_so_and_detached() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    rig.attach("tank/db", &["--fs", "xfs"]);
    write_files(&rig.path("mnt"));
    let unmounted = Command::new("umount").arg(rig.mount()).status();
    assert!(unmounted.expect("umount").success());
    assert_eq!(rig.listed()["condition"], "unmounted");
    let list = rig.ok(&["attach", "--list"]);
    assert!(list.contains("`ashlar detach` clears it"), "{list}");
    rig.detach();
    rig.is_clean();
    rig.attach("tank/db", &[]);
    check_files(&rig.path("mnt"));
    rig.detach();
    rig.is_clean();
}
