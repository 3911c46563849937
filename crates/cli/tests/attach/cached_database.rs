//! PostgreSQL on a disk that holds a file system already, behind a cache of a third of it: kill -9 for the daemon and
//! for everything in turn. In the end the disk has all of it by itself.

use std::fs::File;

use serde_json::Value;

use crate::cached::run;
use crate::crashes::{Death, Victim};
use crate::database::{Base, possible_here, shape};
use crate::rig::{Rig, Way};

const DISK: u64 = 700 << 20;

/// A disk with a file system of a common kind.
fn old_disk(rig: &Rig) -> String {
    let path = rig.path("disk");
    File::create(&path)
        .and_then(|file| file.set_len(DISK))
        .expect("a file");
    let path = path.display().to_string();
    run("mkfs.xfs", &["-q", &path]);
    path
}

/// What the cache has done in all the lives that were looked at.
#[derive(Default, Debug)]
struct Done {
    read_hits: u64,
    read_misses: u64,
    written_back: u64,
    written_around: u64,
}

impl Done {
    fn add(&mut self, rig: &Rig) {
        let cache = shown(rig)["cache"].clone();
        let count = |name: &str| cache[name].as_u64().expect("a number");
        self.read_hits += count("read_hits");
        self.read_misses += count("read_misses");
        self.written_back += count("written_back_bytes");
        self.written_around += count("written_around");
    }
}

fn shown(rig: &Rig) -> Value {
    let text = rig.ok(&["volume", "show", "tank/old", "--json"]);
    serde_json::from_str(&text).expect("JSON")
}

/// Bytes of all files that the server has.
fn bytes_below(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let bytes = entries.map(|entry| {
        let about = entry.metadata().expect("it is there");
        match about.is_dir() {
            true => bytes_below(&entry.path()),
            false => about.len(),
        }
    });
    bytes.sum()
}

#[test]
fn no_acknowledged_order_is_lost_behind_a_cache_and_its_disk_has_them_all_in_the_end() {
    if !possible_here() {
        return;
    }
    let is_long = std::env::var_os("ASHLAR_SOAK").is_some();
    let (rounds, cache) = if is_long { (100, 96) } else { (4, 20) };
    let mut rig = Rig::new("64MiB");
    let disk = old_disk(&rig);
    let size = format!("{cache}MiB");
    rig.ok(&[
        "volume",
        "create",
        "tank/old",
        "--backing",
        &disk,
        "--cache",
        &size,
    ]);
    rig.attach("tank/old", &[]);
    let set = [
        "max_wal_size=96MB",
        "min_wal_size=32MB",
        "shared_buffers=16MB",
    ];
    let base = Base::build(&rig, shape(is_long), &set);
    let mut done = Done::default();
    for number in 0..rounds {
        let victim = [Victim::Daemon, Victim::All][number % 2];
        let death = Death {
            number,
            way: Way::InProcess,
            victim,
        };
        done.add(&rig);
        death.under_load(&mut rig, &base);
        rig.attach("tank/old", &[]);
        base.start();
        base.is_whole(&format!("round {number}"));
        assert_eq!(shown(&rig)["cache"]["is_marked"], true, "round {number}");
    }
    done.add(&rig);
    base.kill();
    let bytes = bytes_below(&rig.path("mnt/pg"));
    eprintln!(
        "{} MiB behind a cache of {cache} MiB: {done:?}",
        bytes >> 20
    );
    assert!(
        bytes >= (3 * cache) << 20,
        "{bytes} bytes are not three caches"
    );
    assert!(done.written_back > cache << 20, "{done:?}");
    rig.detach();
    rig.ok(&["volume", "flush", "tank/old"]);
    rig.ok(&["volume", "delete", "tank/old"]);
    has_it_all(&rig, &disk, &base);
}

/// Without us.
fn has_it_all(rig: &Rig, disk: &str, base: &Base) {
    run("xfs_repair", &["-n", disk]);
    let mount = rig.mount();
    run("mount", &["-o", "loop", disk, &mount]);
    base.start();
    base.is_whole("all rounds, without the cache");
    base.kill();
    run("umount", &[&mount]);
    rig.is_clean();
    run("xfs_repair", &["-n", disk]);
}
