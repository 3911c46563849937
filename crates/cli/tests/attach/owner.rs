//! What the daemon does to a volume that it serves in process is refused, or told to its users: as for a
//! host that is connected.

use std::fs;
use std::time::{Duration, Instant};

use ashlar_nvme_initiator::local_host;
use rustix::process::Signal;

use crate::common::{can_attach, eventually, send};
use crate::faults::{Writer, holds};
use crate::rig::Rig;

#[test]
fn a_volume_that_is_attached_is_in_use() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    rig.attach("tank/db", &["--fs", "xfs"]);
    let shown = rig.ok(&["volume", "show", "tank/db"]);
    assert!(
        shown.contains("nqn.2014-08.org.nvmexpress:uuid:"),
        "{shown}"
    );
    let writer = Writer::start(&rig.path("mnt/file"));
    let lets_go = format!("`ashlar detach {}`", rig.mount());
    let delete = ["volume", "delete", "tank/db", "--destroy-data"];
    rig.refuses(&delete, 2, &["in use by nqn.", &lets_go]);
    let export = ["pool", "export", "tank"];
    rig.refuses(&export, 2, &["is connected to a volume", &lets_go]);
    // Another machine, or another state folder on this one.
    let other = rig.path("other");
    fs::create_dir(&other).expect("a folder");
    let (other, elsewhere) = (other.display().to_string(), rig.path("elsewhere"));
    let elsewhere = elsewhere.display().to_string();
    let again = [
        "attach", "tank/db", "--mount", &other, "--state", &elsewhere,
    ];
    rig.refuses(&again, 3, &["tank/db is in use", "connected", "nqn."]);
    writer.advances();
    writer.end().0.expect("no error");
    rig.detach();
    rig.is_clean();
}

#[test]
fn a_volume_that_is_taken_away_fails_at_once() {
    if !can_attach() {
        return;
    }
    let host = local_host().nqn;
    let deny = ["volume", "deny", "tank/db", "--host", &host];
    let hosts = [&deny[..], &["--disconnect"]].concat();
    let delete = ["volume", "delete", "tank/db", "--destroy-data", "--force"];
    for (how, why) in [
        (&hosts[..], "does not let this host in"),
        (&delete, "was deleted"),
    ] {
        let rig = Rig::new("320MiB");
        rig.attach("tank/db", &["--fs", "xfs"]);
        let writer = Writer::start(&rig.path("mnt/file"));
        writer.advances();
        rig.refuses(&deny, 2, &[&host, "--disconnect"]);
        writer.advances();
        let start = Instant::now();
        rig.ok(how);
        writer.told();
        assert!(
            start.elapsed() < Duration::from_secs(15),
            "{:?}",
            start.elapsed()
        );
        eventually("it is listed", || rig.listed()["condition"] != "attached");
        let log = fs::read_dir(rig.path("state")).expect("a folder").flatten();
        let log = log.map(|entry| fs::read_to_string(entry.path().join("log")).expect("a log"));
        let log: String = log.collect();
        assert!(log.contains(why), "{log}");
        rig.ok(&["detach", &rig.mount(), "--force"]);
        rig.is_clean();
        rig.ok(&["pool", "list"]);
    }
}

#[test]
fn a_pool_that_is_exported_and_imported_is_a_pause() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    rig.attach("tank/db", &["--fs", "xfs"]);
    let file = rig.path("mnt/file");
    let writer = Writer::start(&file);
    for _ in 0..3 {
        writer.advances();
        rig.ok(&["pool", "export", "tank", "--force"]);
        std::thread::sleep(Duration::from_millis(300));
        let drive = |name| format!("file:{}", rig.path(name).display());
        let (d0, d1) = (drive("d0"), drive("d1"));
        rig.ok(&["pool", "import", "tank", "--drive", &d0, "--drive", &d1]);
        writer.advances();
    }
    let (result, acknowledged) = writer.end();
    result.expect("no error");
    rig.detach();
    holds(&rig, &file, acknowledged);
}

#[test]
fn a_guardian_that_is_ended_ends_the_attachment_and_not_the_daemon() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    rig.attach("tank/db", &["--fs", "ext4"]);
    let file = rig.path("mnt/file");
    let writer = Writer::start(&file);
    writer.advances();
    send(rig.pid("guardian"), Signal::TERM);
    let acknowledged = writer.told();
    rig.ok(&["detach", &rig.mount(), "--force"]);
    rig.is_clean();
    holds(&rig, &file, acknowledged);
}

#[test]
fn a_volume_that_grows_goes_on_and_is_larger_next_time() {
    if !can_attach() {
        return;
    }
    let rig = Rig::new("320MiB");
    rig.attach("tank/db", &["--fs", "xfs"]);
    let writer = Writer::start(&rig.path("mnt/file"));
    writer.advances();
    let said = rig.ok(&["volume", "resize", "tank/db", "--size", "480MiB"]);
    let mount = rig.mount();
    assert!(said.contains(&format!("xfs_growfs {mount}")), "{said}");
    if rig.listed()["means"] == "fuse" {
        let again = format!("ashlar detach {mount} && ashlar attach tank/db --mount {mount}");
        assert!(said.contains(&again), "{said}");
    }
    writer.advances();
    writer.end().0.expect("no error");
    rig.detach();
    rig.attach("tank/db", &[]);
    assert_eq!(rig.listed()["bytes"], 480 << 20);
    let requests = &rig.listed()["requests"];
    assert!(requests["read"]["arrived"].as_u64() > Some(0), "{requests}");
    rig.detach();
    rig.is_clean();
}
