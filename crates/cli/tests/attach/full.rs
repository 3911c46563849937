//! A pool that is full under a running database.

use std::fs;

use crate::database::{Base, possible_here, shape};
use crate::rig::{Rig, eventually};

#[test]
fn a_database_on_a_full_pool_stops_and_goes_on_when_there_is_room() {
    if !possible_here() {
        return;
    }
    // The volume is three times what its pool holds.
    let rig = Rig::with_drives("1GiB", 512 << 20);
    rig.attach("tank/db", &["--fs", "xfs"]);
    let set = [
        "max_wal_size=64MB",
        "min_wal_size=32MB",
        "shared_buffers=16MB",
    ];
    let base = Base::build(&rig, shape(false), &set);
    let load = base.load(1);
    base.advances(20);
    let fill =
        "INSERT INTO filler SELECT repeat(md5(random()::text), 60) FROM generate_series(1, 4000)";
    base.sql("CREATE TABLE filler (line text)").expect("made");
    base.sql("ALTER TABLE filler ALTER COLUMN line SET STORAGE PLAIN")
        .expect("plain");
    let mut filled = 0;
    let why = loop {
        match base.sql(fill) {
            Ok(()) => filled += 1,
            Err(why) => break why,
        }
        assert!(filled < 200, "{filled} x 8 MB were taken");
    };
    eprintln!("after {filled} x 8 MB: {why}");
    eventually("it has stopped", || load.is_finished());
    let step = load.join().expect("the load");
    eprintln!("the clients: {:?}", step.problems);
    std::thread::sleep(std::time::Duration::from_secs(2));
    eprintln!("it runs: {}", base.runs());
    eprintln!("{}", rig.ok(&["attach", "--list"]));
    let log = fs::read_to_string(rig.path("mnt/pg/server.log"));
    eprintln!("{log:?}");
    let text = fs::read_to_string(rig.path("state"));
    eprintln!("{text:?}");
    base.kill();
    let drive = format!("file:{}?size=512MiB", rig.path("d2").display());
    let more = format!("file:{}?size=512MiB", rig.path("d3").display());
    rig.ok(&["pool", "add", "tank", "--drive", &drive]);
    rig.ok(&["pool", "add", "tank", "--drive", &more]);
    let detached = rig.run(&["detach", &rig.mount()]);
    eprintln!("detach: {detached:?}");
    if !detached.status.success() {
        rig.ok(&["detach", &rig.mount(), "--force"]);
    }
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
