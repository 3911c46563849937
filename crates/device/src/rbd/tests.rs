use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ashlar_block::{BlockRange, BlockSize, Durability, Operation, Request};

use super::{RbdName, open};
use crate::testing::Bench;

/// A Ceph of one node, as long as it lives.
struct Ceph {
    script: PathBuf,
    dir: tempfile::TempDir,
}

impl Ceph {
    /// None where Ceph is not installed, which is said; where `CI` is set, which has everything, that fails.
    fn start() -> Option<Self> {
        let installed = Command::new("ceph-osd")
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        if installed.is_err() {
            let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
            assert!(!is_ci, "CI is set, and there is no ceph-osd");
            eprintln!("SKIPPED: rbd was NOT tested, for there is no ceph-osd here");
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ceph-one.sh");
        let dir = tempfile::tempdir().expect("a directory");
        let ceph = Self { script, dir };
        ceph.tell("up");
        Some(ceph)
    }

    fn tell(&self, verb: &str) {
        let told = Command::new(&self.script)
            .args([verb.as_ref(), self.dir.path()])
            .status();
        assert!(told.expect("the script runs").success(), "{verb}");
    }

    fn conf(&self) -> PathBuf {
        self.dir.path().join("ceph.conf")
    }

    fn rbd(&self, words: &[&str]) {
        let done = Command::new("rbd")
            .arg("-c")
            .arg(self.conf())
            .args(words)
            .status();
        assert!(done.expect("rbd runs").success(), "{words:?}");
    }

    fn name(&self, image: &str) -> RbdName {
        RbdName {
            pool: "rbd".to_owned(),
            image: image.to_owned(),
            conf: Some(self.conf()),
            id: None,
        }
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        self.tell("down");
    }
}

#[test]
fn an_image_holds_what_is_written_and_is_what_ceph_has() {
    let Some(ceph) = Ceph::start() else { return };
    ceph.rbd(&["create", "--size", "64M", "rbd/db"]);
    let wrong = open(&ceph.name("none"), BlockSize::B4096);
    let wrong = wrong.err().expect("there is no such image").to_string();
    assert!(
        wrong.contains("`rbd:rbd/none`: the image does not open"),
        "{wrong}"
    );
    let image = open(&ceph.name("db"), BlockSize::B4096).expect("opens");
    assert_eq!(image.geometry().bytes(), 64 << 20);
    let range = |first, count| BlockRange::new(first, count);
    let mut bench = Bench::open(&*image);
    bench
        .write(range(7, 3), 0xAB, Durability::Durable)
        .expect("written");
    bench
        .write(range(5000, 256), 0xCD, Durability::Cached)
        .expect("written");
    bench.flush().expect("flushed");
    // Many at once, each its own place.
    let writes = (0..64).map(|at| {
        let mut buffer = bench.buffer(4096);
        buffer.fill(at as u8);
        Request::write(at, range(9000 + at, 1), buffer, Durability::Durable)
    });
    let writes = writes.collect();
    assert!(bench.run_all(writes).iter().all(|done| done.result.is_ok()));
    let zeroes = Operation::WriteZeroes {
        durability: Durability::Durable,
        deallocate: true,
    };
    let zeroed = bench.run(Request {
        tag: 1,
        op: zeroes,
        range: range(8, 1),
        buffer: None,
    });
    zeroed.result.expect("zeroed");
    let read = bench.read(range(6, 4)).expect("read");
    let firsts: Vec<u8> = read.chunks(4096).map(|block| block[0]).collect();
    assert_eq!(firsts, [0, 0xAB, 0, 0xAB]);
    assert!(
        bench
            .read(range(9063, 1))
            .expect("read")
            .iter()
            .all(|&byte| byte == 63)
    );
    drop(bench);
    drop(image);
    // As Ceph's own program reads it.
    let raw = ceph.dir.path().join("raw");
    ceph.rbd(&["export", "--no-progress", "rbd/db", &raw.to_string_lossy()]);
    let raw = std::fs::read(raw).expect("exported");
    assert_eq!(raw.len(), 64 << 20);
    assert!(
        raw[5000 * 4096..5256 * 4096]
            .iter()
            .all(|&byte| byte == 0xCD)
    );
    assert_eq!(
        [raw[7 * 4096], raw[8 * 4096], raw[9 * 4096]],
        [0xAB, 0, 0xAB]
    );
}
