//! fio's own verification, and many files at once, on an attached volume.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{can_attach, is_there};
use crate::life::content;
use crate::rig::Rig;

/// Threads that handle files, each in a folder of its own.
const THREADS: u64 = 3;
const STEPS: u64 = 120;
/// So many files there are at most in a folder.
const FILES: u64 = 12;
const LONGEST: u64 = 400_000;

fn fio(mount: &str, more: &[&str]) {
    let mut command = Command::new("fio");
    command
        .args(["--name=verify", "--rw=randwrite", "--bsrange=4k-256k"])
        .args(["--size=48m", "--numjobs=2", "--iodepth=8", "--randseed=7"])
        .args(["--verify=crc32c", "--verify_fatal=1"])
        // It would be left in the folder that the tests are run from.
        .arg("--verify_state_save=0")
        .arg(format!("--directory={mount}"))
        .args(more);
    let output = command.output().expect("fio");
    let said = [output.stdout, output.stderr].map(|out| String::from_utf8_lossy(&out).into_owned());
    assert!(output.status.success(), "{more:?}: {}", said.concat());
}

#[test]
fn what_fio_writes_it_finds_again() {
    if !can_attach() {
        return;
    }
    let has_fio = Command::new("fio").arg("--version").output().is_ok();
    if !is_there("fio", has_fio) {
        return;
    }
    let rig = Rig::new("512MiB");
    rig.attach("tank/db", &["--fs", "xfs"]);
    let mount = rig.mount();
    let direct = ["--ioengine=libaio", "--direct=1"];
    let cached = [
        "--ioengine=psync",
        "--fsync=16",
        "--filename_format=cached.$jobnum",
    ];
    for how in [&direct[..], &cached] {
        fio(&mount, how);
    }
    rig.detach();
    rig.attach("tank/db", &[]);
    for how in [&direct[..], &cached] {
        fio(&mount, &[how, &["--verify_only"]].concat());
    }
    rig.detach();
    rig.is_clean();
}

/// Makes, copies, renames, cuts and removes files; what must be there in the end.
fn handle_files(folder: &Path, seed: u64) -> BTreeMap<PathBuf, Vec<u8>> {
    fs::create_dir(folder).expect("a folder");
    let mut expected: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let mut state = seed;
    let mut below = |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for step in 0..STEPS {
        let path = folder.join(below(FILES).to_string());
        let other = folder.join(below(FILES).to_string());
        let known = expected.contains_key(&path);
        match below(6) {
            1 if known => {
                fs::remove_file(&path).expect("removed");
                expected.remove(&path);
            }
            2 if known && path != other => {
                fs::rename(&path, &other).expect("renamed");
                let bytes = expected.remove(&path).expect("known");
                expected.insert(other, bytes);
            }
            3 if known && path != other => {
                fs::copy(&path, &other).expect("copied");
                expected.insert(other, expected[&path].clone());
            }
            4 if known => {
                let file = File::options().write(true).open(&path).expect("a file");
                let length = below(LONGEST);
                file.set_len(length).expect("cut or longer");
                file.sync_all().expect("synced");
                expected
                    .entry(path)
                    .and_modify(|bytes| bytes.resize(length as usize, 0));
            }
            _ => {
                let bytes = content((step ^ seed) as u8, below(LONGEST) as usize);
                fs::write(&path, &bytes).expect("written");
                expected.insert(path, bytes);
            }
        }
        if below(8) == 0 {
            rustix::fs::sync();
        }
    }
    expected
}

fn check(expected: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, bytes) in expected {
        assert!(
            &fs::read(path).expect("it is there") == bytes,
            "{} is another",
            path.display()
        );
    }
}

#[test]
fn many_files_are_as_they_were_left() {
    if !can_attach() {
        return;
    }
    for kind in ["xfs", "ext4"] {
        let rig = Rig::new("400MiB");
        rig.attach("tank/db", &["--fs", kind]);
        let handled: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|seed| {
                    let folder = rig.path(&format!("mnt/{seed}"));
                    scope.spawn(move || handle_files(&folder, seed))
                })
                .collect();
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            ended.collect()
        });
        handled.iter().for_each(check);
        rig.detach();
        rig.attach("tank/db", &[]);
        handled.iter().for_each(check);
        let there: usize = (0..THREADS)
            .map(|seed| {
                fs::read_dir(rig.path(&format!("mnt/{seed}")))
                    .expect("a folder")
                    .count()
            })
            .sum();
        assert_eq!(there, handled.iter().map(BTreeMap::len).sum::<usize>());
        rig.detach();
        rig.is_clean();
    }
}
