//! A pool that is full under a running database.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use ashlar_oltp::database::Database as _;

use crate::common::eventually;
use crate::database::{Base, possible_here, shape};
use crate::rig::Rig;

/// Writes a file until that fails, as it must: what the kernel says.
fn write_until_full(path: &Path) -> std::io::Error {
    let mut file = File::create(path).expect("a file");
    let mut bytes = vec![0; 4 << 20];
    for seed in 0..256u32 {
        // Nothing that could be kept smaller.
        for (at, word) in bytes.chunks_exact_mut(4).enumerate() {
            let mixed = (at as u32 ^ seed << 20).wrapping_mul(2_654_435_761);
            word.copy_from_slice(&mixed.to_le_bytes());
        }
        if let Err(error) = file.write_all(&bytes).and_then(|()| file.sync_data()) {
            return error;
        }
    }
    panic!("a pool of two drives of 192 MiB has taken 1 GiB twice");
}

#[test]
fn a_database_on_a_full_pool_stops_and_goes_on_when_there_is_room() {
    if !possible_here() {
        return;
    }
    // The volume is several times what its pool holds.
    let rig = Rig::with_drives("1200MiB", 192 << 20);
    rig.attach("tank/db", &["--fs", "xfs"]);
    let set = [
        "max_wal_size=64MB",
        "min_wal_size=32MB",
        "shared_buffers=16MB",
    ];
    let base = Base::build(&rig, shape(false), &set);
    let load = base.load(1);
    base.advances(20);
    let told = write_until_full(&rig.path("mnt/other"));
    assert_eq!(told.kind(), ErrorKind::StorageFull, "{told}");
    eventually("the database has stopped", || {
        // Refused, too: then it is stopping.
        let _ = base.database().execute("CHECKPOINT");
        !base.runs()
    });
    let step = load.join().expect("the load");
    eprintln!("{told}; the clients: {:?}", step.problems);
    let listed = rig.listed();
    assert_eq!(listed["condition"], "attached", "{listed:#}");

    for name in ["d2", "d3"] {
        let drive = format!("file:{}?size=512MiB", rig.path(name).display());
        rig.ok(&["pool", "add", "tank", "--drive", &drive]);
    }
    // Space alone is enough if the file system's own log could be written; if not, it has to be mounted
    // again.
    let started = base.try_start();
    eprintln!("without another mount: {started:?}");
    if started.is_ok() {
        base.is_whole("a full pool, on the same mount");
        base.kill();
    }
    rig.ok(&["detach", &rig.mount(), "--force"]);
    rig.is_clean();
    rig.attach("tank/db", &[]);
    base.start();
    base.is_whole("a full pool");
    let load = base.load(2);
    base.advances(20);
    base.kill();
    load.join().expect("the load");
    rig.detach();
    rig.is_clean();
}
