//! What is there already, behind a cache: a file system of an old disk, and rules by its files.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{can_attach, eventually};
use crate::rig::Rig;

/// Its end is within 4 KiB.
const DISK: u64 = (128 << 20) + 2560;

pub fn run(program: &str, arguments: &[&str]) {
    let out = Command::new(program).args(arguments).output();
    let out = out.expect("it can be started");
    assert!(out.status.success(), "{program} {arguments:?}: {out:?}");
}

/// A disk with a file system of 1 KiB blocks, which is refused where sectors are larger.
fn old_disk(rig: &Rig) -> String {
    let path = rig.path("disk");
    File::create(&path)
        .and_then(|file| file.set_len(DISK))
        .expect("a file");
    let path = path.display().to_string();
    run("mkfs.ext4", &["-q", "-F", "-b", "1024", &path]);
    path
}

fn cached(rig: &Rig) -> String {
    let disk = old_disk(rig);
    rig.ok(&[
        "volume",
        "create",
        "tank/old",
        "--backing",
        &disk,
        "--cache",
        "32MiB",
    ]);
    rig.attach("tank/old", &[]);
    disk
}

fn written(path: &Path, bytes: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let mut file = File::create(path).expect("a file");
    file.write_all(&data).expect("written");
    file.sync_all().expect("synced");
    data
}

#[test]
fn a_file_system_of_small_blocks_is_used_and_left_whole() {
    if !can_attach() {
        return;
    }
    let mut rig = Rig::new("64MiB");
    let disk = cached(&rig);
    let shown: Value =
        serde_json::from_str(&rig.ok(&["volume", "show", "tank/old", "--json"])).expect("JSON");
    assert_eq!(shown["block_bytes"], 512, "{shown:#}");
    let file = rig.path("mnt/file");
    let data = written(&file, 3_000_001);
    // Parts of blocks, here and there.
    for name in 0..50 {
        fs::write(rig.path(&format!("mnt/{name}")), [name; 700]).expect("written");
    }
    run("sync", &["-f", &rig.mount()]);
    rig.kill_node();
    // Something is in the cache only: the disk by itself is not to be mistaken for what the volume held.
    cannot_be_mounted(&rig, &disk);
    rig.restart_node();
    rig.ok(&["detach", &rig.mount(), "--force"]);
    rig.attach("tank/old", &[]);
    assert!(fs::read(&file).expect("read") == data, "after a crash");
    rig.detach();
    rig.ok(&["volume", "flush", "tank/old"]);
    rig.ok(&["volume", "delete", "tank/old"]);
    run("e2fsck", &["-fn", &disk]);
    let mount = rig.mount();
    run("mount", &["-o", "loop,ro", &disk, &mount]);
    let (found, small) = (fs::read(&file), fs::read(rig.path("mnt/7")));
    run("umount", &[&mount]);
    assert!(found.expect("read") == data, "without the cache");
    assert_eq!(small.expect("read"), [7; 700]);
}

/// Whatever is said that it holds.
fn cannot_be_mounted(rig: &Rig, disk: &str) {
    let place = rig.path("raw");
    fs::create_dir_all(&place).expect("a folder");
    for kind in ["auto", "ext4"] {
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", "loop,ro", disk]).arg(&place);
        let out = mount.output().expect("it can be started");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success(), "{kind}: it was mounted");
        assert!(said.contains("wrong fs type"), "{kind}: {said}");
    }
}

fn add(pattern: &str) -> Vec<&str> {
    rule(&["add", "tank/old", "--exclude", pattern])
}

fn rule<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["cache", "rule"][..], more].concat()
}

#[test]
fn files_are_kept_out_by_rules() {
    if !can_attach() {
        return;
    }
    let mut rig = Rig::new("64MiB");
    cached(&rig);
    let log = rig.path("mnt/log");
    fs::create_dir(&log).expect("a folder");
    written(&log.join("1"), 1 << 20);
    let pattern = format!("{}/**", log.display());
    let refuses = |pattern: &str, names: &[&str]| rig.refuses(&add(pattern), 2, names);
    let nothing = format!("{}/nothing*", log.display());
    refuses(&nothing, &["matches no file", "nothing*"]);
    refuses("/no/such/place/**", &["matches nothing", "/no/such/place"]);
    refuses("relative/**", &["whole path"]);
    let elsewhere = format!("{}/**", rig.path("node").display());
    refuses(&elsewhere, &["tank/old", "node"]);
    rig.refuses(&rule(&["list", "tank/db"]), 3, &["caches nothing"]);

    let said = rig.ok(&add(&pattern));
    assert!(said.contains("1 files"), "{said}");
    let listed = |rig: &Rig| -> Value {
        let text = rig.ok(&["cache", "rule", "list", "tank/old", "--json"]);
        let rules: Value = serde_json::from_str(&text).expect("JSON");
        rules[0].clone()
    };
    let bytes = |rule: &Value| rule["bytes"].as_u64().unwrap_or(0);
    assert!(bytes(&listed(&rig)) >= 1 << 20, "{}", listed(&rig));
    let writes = |rule: &Value| rule["writes"].as_u64().unwrap_or(0);
    // In place: where it lies is known.
    let file = File::options().write(true).open(log.join("1"));
    let mut file = file.expect("a file");
    file.write_all(&[1; 65536]).expect("written");
    file.sync_all().expect("synced");
    drop(file);
    assert!(writes(&listed(&rig)) > 0, "{}", listed(&rig));
    // A file that comes is found by itself, also after a restart of the daemon.
    written(&log.join("2"), 2 << 20);
    eventually("the new file is found", || listed(&rig)["files"] == 2);
    assert!(bytes(&listed(&rig)) >= 3 << 20, "{}", listed(&rig));
    rig.detach();
    rig.end_node();
    rig.restart_node();
    assert_eq!(listed(&rig)["exclude"], pattern.as_str());
    rig.attach("tank/old", &[]);
    eventually("it is looked up again", || listed(&rig)["files"] == 2);
    rig.ok(&rule(&["remove", "tank/old", "--exclude", &pattern]));
    assert_eq!(listed(&rig), Value::Null);
    rig.refuses(
        &rule(&["remove", "tank/old", "--exclude", &pattern]),
        3,
        &["has no rule"],
    );
    rig.detach();
}
