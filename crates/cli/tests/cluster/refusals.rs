//! What does not fit is refused with the reason and the next step, and nothing is changed.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{ended, eventually, ok, refuses};
use crate::rig::{Cluster, begin, has_cluster};

/// Runs a daemon that must end by itself with this code, and say these in its log.
fn ends(cluster: &Cluster, (seat, code): (&str, i32), command: &mut Command, says: &[&str]) {
    let before = cluster.log(seat).len();
    let mut child = command.stdout(Stdio::null()).spawn().expect("it starts");
    let mut status = None;
    eventually("it ends", || {
        status = child.try_wait().expect("our child");
        status.is_some()
    });
    let status = status.expect("it has ended");
    let log = cluster.log(seat);
    let said = &log[before..];
    assert_eq!(status.code(), Some(code), "{said}");
    for word in says {
        assert!(said.contains(word), "{word:?} is not said: {said}");
    }
}

#[test]
fn files_keys_and_names_that_do_not_fit_are_refused() {
    if !has_cluster() {
        return;
    }
    let cluster = Cluster::up();
    let usual = cluster.path("cluster.toml");
    let three = [
        "volume", "create", "tank/db", "--size", "16MiB", "--layout", "mirror:2",
    ];
    let three = [&three[..], &["--replicas", "3"]].concat();
    refuses(
        &mut cluster.to("a", &three),
        2,
        &["3 replicas need 3 nodes"],
    );
    let four = [&three[..8], &["4"]].concat();
    refuses(&mut cluster.to("a", &four), 2, &["replicas"]);
    // Two nodes of one name in the file, and two daemons under one name.
    let twice = cluster.file("twice.toml", |text| {
        text.replace("name = \"b\"", "name = \"a\"")
    });
    ends(
        &cluster,
        ("b", 2),
        &mut cluster.daemon("b", &twice),
        &["node a is there twice"],
    );
    let mut second = cluster.daemon_in(&cluster.path("a").join("second"), "a", &usual);
    ends(&cluster, ("a", 3), &mut second, &["10.78.0.1:4430"]);
    let stranger = cluster.file("stranger.toml", |text| {
        text.replace("name = \"b\"", "name = \"z\"")
    });
    ends(
        &cluster,
        ("b", 2),
        &mut cluster.daemon("b", &stranger),
        &["b", "z"],
    );
    // Neither is harmed.
    cluster.make_volume();
    // Another key: no peer hears it.
    cluster.kill("b");
    let other = cluster.path("other-key");
    let file = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&other);
    std::io::Write::write_all(&mut file.expect("a file"), &[b'x'; 64]).expect("written");
    let keyed = cluster.file("keyed.toml", |text| {
        text.replace("\"key\"", "\"other-key\"")
    });
    let before = cluster.log("b").len();
    begin(&mut cluster.daemon("b", &keyed));
    eventually("the other key is told of", || {
        cluster.log("b")[before..].contains("another key")
            || cluster.log("a").contains("another key")
    });
    cluster.kill("b");
    // A node of another cluster.
    let named = cluster.file("named.toml", |text| text.replace("\"lab\"", "\"other\""));
    ends(
        &cluster,
        ("b", 3),
        &mut cluster.daemon("b", &named),
        &["/ashlar/other/id", "name the etcd"],
    );
    // After all that it comes back as if nothing had been.
    begin(&mut cluster.daemon("b", &usual));
    eventually("all copies are in sync", || is_in_sync(&cluster));
    // And its copies are equal, from either node.
    for node in ["a", "b"] {
        // What was seen to be in sync just before may be found gone, and come again.
        eventually("the copies are compared, and equal", || {
            let said = ended(&mut cluster.to(node, &["volume", "verify", "tank/db", "--json"]));
            let not_yet = ["served by no node at present", "no other copy was compared"];
            if not_yet.iter().any(|words| said.error.contains(words)) {
                return false;
            }
            assert_eq!(said.code, 0, "{}", said.error);
            let said = said.out;
            let proof: serde_json::Value = serde_json::from_str(&said).expect("JSON");
            let result = &proof["copies"][0]["result"];
            assert!(result == "agrees" || result == "not_compared", "{said}");
            result == "agrees" && proof["bytes"] == 16 << 20
        });
    }
}

fn is_in_sync(cluster: &Cluster) -> bool {
    let shown = cluster.volume("a");
    let copies = shown["replicas"].as_array().expect("copies");
    copies.iter().all(|copy| copy["state"] == "in_sync") && !shown["owner"].is_null()
}

fn copy_folder(from: &Path, to: &Path) {
    let words = ["-a", "--sparse=always"];
    let done = Command::new("cp").args(words).arg(from).arg(to).status();
    assert!(done.expect("cp runs").success());
}

fn start_etcd(cluster: &Cluster) {
    let etcd = cluster.status["etcd"]["endpoint"]
        .as_str()
        .expect("an address");
    let mut command = cluster.within("etcd", "/usr/bin/etcd");
    command
        .args(["--name", "etcd", "--data-dir"])
        .arg(cluster.path("etcd/data"));
    let peers = etcd.replace("2379", "2380");
    command.args([
        "--listen-client-urls",
        etcd,
        "--advertise-client-urls",
        etcd,
    ]);
    command.args([
        "--listen-peer-urls",
        &peers,
        "--initial-advertise-peer-urls",
        &peers,
    ]);
    command.args(["--initial-cluster", &format!("etcd={peers}")]);
    let starts = || {
        let log = cluster.log("etcd");
        log.matches("ready to serve client requests").count()
    };
    let before = starts();
    begin(&mut command);
    // A node waits for it ten seconds, which a busy machine may need for its start.
    eventually("etcd serves", || starts() > before);
}

#[test]
fn a_quorum_that_was_emptied_or_restored_is_not_believed() {
    if !has_cluster() {
        return;
    }
    let cluster = Cluster::up();
    let usual = cluster.path("cluster.toml");
    cluster.make_volume();
    let data = cluster.path("etcd/data");
    let (old, newest) = (cluster.path("etcd/old"), cluster.path("etcd/newest"));
    cluster.kill("etcd");
    copy_folder(&data, &old);
    start_etcd(&cluster);
    // The backup knows less than what comes now.
    cluster.kill("b");
    begin(&mut cluster.daemon("b", &usual));
    eventually("b has come back", || {
        cluster.log("b").contains("incarnation 2") && is_in_sync(&cluster)
    });
    for seat in ["a", "b", "etcd"] {
        cluster.kill(seat);
    }
    fs::rename(&data, &newest).expect("moved");
    for (backup, says) in [
        (None, "has no /ashlar/lab/id"),
        (Some(&old), "older backup"),
    ] {
        if let Some(backup) = backup {
            copy_folder(backup, &data);
        }
        start_etcd(&cluster);
        ends(
            &cluster,
            ("b", 3),
            &mut cluster.daemon("b", &usual),
            &[says],
        );
        cluster.kill("etcd");
        fs::remove_dir_all(&data).expect("removed");
    }
    fs::rename(&newest, &data).expect("moved");
    start_etcd(&cluster);
    for name in ["a", "b"] {
        begin(&mut cluster.daemon(name, &usual));
    }
    let comes_back = || {
        let shown = ended(&mut cluster.to("a", &["volume", "show", "tank/db"]));
        shown.code == 0 && is_in_sync(&cluster)
    };
    eventually("all copies are in sync", comes_back);
}

#[test]
fn a_pool_that_was_copied_with_dd_is_not_taken_for_the_other_copy() {
    if !has_cluster() {
        return;
    }
    let cluster = Cluster::up();
    let usual = cluster.path("cluster.toml");
    cluster.make_volume();
    cluster.kill("b");
    for drive in ["drive-0", "drive-1"] {
        let to = cluster.path("b").join(drive);
        fs::rename(&to, cluster.path("b").join(format!("own-{drive}"))).expect("moved");
        copy_folder(&cluster.path("a").join(drive), &to);
    }
    begin(&mut cluster.daemon("b", &usual));
    eventually("b is up", || {
        let shown = ended(&mut cluster.to("b", &["pool", "list"]));
        shown.code == 0
    });
    let pools = ok(&mut cluster.to("b", &["pool", "status", "--json"]));
    assert!(!pools.contains("\"online\""), "{pools}");
    let import = ["pool", "import", "tank", "--drive"];
    let drives =
        ["drive-0", "drive-1"].map(|name| cluster.path("b").join(name).display().to_string());
    let import = [&import[..], &[&drives[0], "--drive", &drives[1]]].concat();
    refuses(
        &mut cluster.to("b", &import),
        3,
        &["another pool tank", "--as"],
    );
    // A busy quorum may have it begin another term.
    eventually("the true copy serves", || {
        cluster.volume("a")["owner"] == "a"
    });
}
