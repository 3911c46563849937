//! Availability groups of the lab, and faults under a load: what starts also ends, and what clients see is told.

#[path = "../common/mod.rs"]
mod common;
mod hosts;
#[path = "../common/typed.rs"]
mod typed;
mod versus;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{
    Running, ashlar, eventually, has_postgresql, is_there, lab, ok, open_folder, own_mounts,
    refuses, within,
};
use serde_json::Value;

/// Whether there is all that a group needs.
fn has_group() -> bool {
    let programs = ["/usr/bin/etcd", "/usr/bin/patroni", "/usr/sbin/haproxy"];
    has_postgresql()
        && programs
            .iter()
            .all(|path| is_there(path, Path::new(path).exists()))
}

fn words(dir: &Path, words: &str) -> (i32, String) {
    lab(dir, words.split_whitespace())
}

fn result(dir: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(dir.join(name).join("result.json")).expect("a result");
    serde_json::from_str(&text).expect("JSON")
}

/// Processes that work below a folder.
fn working_in(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("proc").flatten();
    let places = all.filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok());
    let below = places.filter(|place| place.starts_with(folder));
    below.map(|place| place.display().to_string()).collect()
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let room = open_folder();
    let dir = room.path();
    for (code, name, text) in [
        (
            2,
            "no second node",
            "failover --topology standalone --fault kill-node --out o",
        ),
        (
            2,
            "has no daemon of ours",
            "failover --topology group --fault kill-daemon --out o",
        ),
        (
            2,
            "plain directory",
            "failover --topology standalone --fault drive-dies --out o",
        ),
        (
            2,
            "drives of the lab's own",
            "failover --topology group --fault drive-dies --standby . --out o",
        ),
        (
            2,
            "explode",
            "failover --topology group --fault explode --out o",
        ),
        (2, "--topology", "failover --fault move --out o"),
        (2, "--fault", "failover --topology group --out o"),
        (
            2,
            "--rounds 0",
            "failover --topology group --fault move --rounds 0 --out o",
        ),
        (
            2,
            "--commit",
            "failover --topology group --fault move --commit local --out o",
        ),
        (
            2,
            "--host: --topology standalone",
            "failover --topology standalone --fault kill-database --host 127.0.0.1:1 --token-file t --out o",
        ),
        (
            2,
            "--topology group",
            "failover --host 127.0.0.1:1 --token-file t --out o",
        ),
        (2, "no group of ours", "cluster stop --dir nothing"),
        (
            2,
            "for up and start",
            "cluster stop --dir nothing --loopback",
        ),
        (
            2,
            "--host is for start and fci",
            "cluster status --dir nothing --host 127.0.0.1:1 --token-file t",
        ),
        (
            2,
            "--place-a",
            "cluster start --dir g --host 127.0.0.1:1 --token-file t --place-a .",
        ),
        (
            2,
            "--token-file",
            "cluster start --dir g --host 127.0.0.1:1",
        ),
    ] {
        let (found, said) = words(dir, text);
        assert!(
            found == code && said.contains(name),
            "{text}: {found} {said}"
        );
    }
    if has_group() {
        std::fs::create_dir(dir.join("full")).expect("made");
        std::fs::write(dir.join("full/mine"), "").expect("written");
        let (code, said) = words(dir, "cluster start --dir full");
        assert!(
            code == 2 && said.contains("holds other things (mine)"),
            "{said}"
        );
    }
}

/// Sockets have short paths: what is below a long one would not come up, after minutes perhaps.
#[test]
fn a_path_that_is_too_long_for_sockets_is_refused_before_anything_is_made() {
    let room = open_folder();
    let dir = room.path();
    let long = "x".repeat(90);
    let fault = "--rounds 1 --fault kill-database --out o";
    for text in [
        format!("failover --topology standalone,group {fault} --dir {long}"),
        format!("failover --topology fci {fault} --dir {long}"),
        format!("failover --topology group {fault} --standby {long}"),
        format!("cluster start --dir {long}"),
        format!("cluster start --dir g --place-a volume:no/such --place-b {long}"),
        format!("cluster up --dir {long}"),
        format!("cluster fci --dir {long}"),
        format!("ha --dir {long} --out o"),
    ] {
        let (code, said) = words(dir, &text);
        assert!(
            code == 2 && said.contains(&long) && said.contains("unix sockets"),
            "{text}: {code} {said}"
        );
        let left: Vec<_> = std::fs::read_dir(dir).expect("list").collect();
        assert!(left.is_empty(), "{text}: {left:?}");
    }
}

/// A server that is started again at once: the gap is seen, and nothing is lost.
#[test]
fn a_fault_is_seen_by_clients_and_nothing_is_lost() {
    if !has_postgresql() {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    std::fs::create_dir(dir.join("place")).expect("made");
    let (code, said) = words(
        dir,
        "failover --topology standalone --fault kill-database --rounds 1 --before 1s --after 1s --users 4 \
         --dir place --out o",
    );
    assert_eq!(code, 0, "{said}");
    let result = result(dir, "o");
    assert_eq!(
        (&result["kind"], &result["partial"]),
        (&"faults".into(), &false.into())
    );
    let cell = &result["cells"][0];
    assert_eq!(
        (&cell["topology"], &cell["fault"]),
        (&"standalone".into(), &"kill-database".into())
    );
    let round = &cell["rounds"][0];
    let number = |key: &str| round[key].as_f64().expect("a number");
    // It was really killed under them.
    assert!(
        number("gap_s") > 0.05 && number("failures") >= 4.0,
        "{round}"
    );
    assert!(
        number("longest_wait_s") >= number("gap_s") / 2.0 && number("silence_s") > 0.05,
        "{round}"
    );
    assert!(
        number("acknowledged") > 20.0 && number("probes") > 5.0,
        "{round}"
    );
    for key in [
        "missing",
        "stale_acknowledged",
        "probes_missing",
        "both_primaries_s",
    ] {
        assert_eq!(number(key), 0.0, "{key}: {round}");
    }
    assert_eq!(round["served_again"], true);
    let conditions = round["consistency"].as_object().expect("conditions");
    assert!(
        conditions.len() == 12 && conditions.values().all(|one| one == "pass"),
        "{round}"
    );
    let left: Vec<_> = std::fs::read_dir(dir.join("place"))
        .expect("list")
        .collect();
    assert!(left.is_empty(), "{left:?}");

    let report = std::fs::read_to_string(dir.join("o/report.html")).expect("a report");
    assert!(report.contains("How long clients were not served") && !report.contains("FAILED"));
    std::fs::remove_file(dir.join("o/report.html")).expect("removed");
    let (code, said) = words(dir, "report o");
    assert_eq!(code, 0, "{said}");
    let again = std::fs::read_to_string(dir.join("o/report.html")).expect("a report");
    assert!(report == again, "the same report from its result");

    let document = include_str!("../../../../docs/results.md");
    let (_, section) = document.split_once("\n## Faults\n").expect("a section");
    for key in round.as_object().expect("keys").keys() {
        assert!(
            section.contains(&format!("`{key}`")),
            "docs/results.md does not name {key}"
        );
    }
}

/// An instance on a volume with two copies whose daemon is killed under its clients, whose drives die, and whose drives
/// hang while its kernel lives: the other node serves.
#[test]
fn an_instance_moves_when_its_daemon_or_its_drives_fail_and_nothing_is_lost() {
    if !has_group() || !rustix::process::geteuid().is_root() {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    std::fs::create_dir(dir.join("place")).expect("made");
    let (code, said) = words(
        dir,
        "failover --topology fci --fault kill-daemon,drive-dies,drive-hangs --rounds 1 --before 1s --after 1s --users 4 \
         --dir place --out o",
    );
    assert_eq!(code, 0, "{said}");
    let result = result(dir, "o");
    let cells = result["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 3, "{result}");
    for cell in cells {
        moved_and_lost_nothing(&cell["rounds"][0]);
    }
    assert!(result["verified_blocks"].as_u64() > Some(1000), "{result}");
    let left: Vec<_> = std::fs::read_dir(dir.join("place"))
        .expect("list")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A group whose primary's drive hangs: it says in any case for how long clients were not served, and loses nothing.
#[test]
fn a_group_whose_drive_hangs_is_told_as_it_is() {
    let is_root = rustix::process::geteuid().is_root();
    if !has_group() || !is_there("root, which attaching needs", is_root) {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    std::fs::create_dir(dir.join("place")).expect("made");
    let (code, said) = words(
        dir,
        "failover --topology group --tuning fast --fault drive-hangs --rounds 1 --before 1s --after 1s --hold 5s \
         --users 4 --dir place --out o",
    );
    let result = result(dir, "o");
    let round = &result["cells"][0]["rounds"][0];
    let number = |key: &str| round[key].as_f64().expect("a number");
    assert!(
        round["served_again"] == true && number("acknowledged") > 20.0,
        "{said}"
    );
    // Patroni asks its database whether it lives, which needs no drive; so the group waits for it until it is mended.
    let outlasted = round["outlasted"] == true;
    assert_eq!(code, i32::from(outlasted), "{said}");
    assert!(outlasted || round["moved"] == true, "{round}");
    assert!(!outlasted || number("gap_s") >= 5.0, "{round}");
    for key in ["missing", "stale_acknowledged", "probes_missing"] {
        assert_eq!(number(key), 0.0, "{key}: {round}");
    }
    let mut left = std::fs::read_dir(dir.join("place")).expect("list");
    assert!(left.next().is_none() && working_in(dir).is_empty());
}

/// A group whose primary's drive dies gets it back, and copies the other database to it: the next round has a whole group.
/// Its checkpoints take longer than anything is waited for, unless they are asked for at once.
#[test]
fn a_group_whose_drive_died_is_whole_again() {
    let is_root = rustix::process::geteuid().is_root();
    if !has_group() || !is_there("root, which attaching needs", is_root) {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    // As long as it may be: all sockets below it come up.
    let place = dir.join("y".repeat(49 - 1 - dir.as_os_str().len()));
    std::fs::create_dir(&place).expect("made");
    // With Patroni's defaults: the fast ones lose their leader on a machine that is busy enough.
    let words = format!(
        "failover --topology group --fault drive-dies --rounds 2 --before 1s --after 1s --hold 60s \
         --users 2 --set checkpoint_timeout=30min --dir {} --out o",
        place.display()
    );
    let (code, said) = lab(dir, words.split_whitespace());
    assert_eq!(code, 0, "{said}");
    let result = result(dir, "o");
    let rounds = result["cells"][0]["rounds"].as_array().expect("rounds");
    assert_eq!(rounds.len(), 2, "{result}");
    for round in rounds {
        assert!(
            round["moved"] == true && round["whole_after_s"].as_f64() > Some(0.0),
            "{round}"
        );
    }
    // The second was done to the same group, whose primary was the node that had taken over.
    assert_eq!(rounds[0]["to"], rounds[1]["from"]);
    assert_eq!(said.matches("group is made").count(), 1, "{said}");
    let mut left = std::fs::read_dir(&place).expect("list");
    assert!(left.next().is_none() && working_in(dir).is_empty());
}

/// Its clients are served by another node, and there is all that they and we were told.
fn moved_and_lost_nothing(round: &Value) {
    let number = |key: &str| round[key].as_f64().expect("a number");
    assert!(round["moved"] == true && number("gap_s") > 0.0, "{round}");
    assert!(
        number("acknowledged") > 10.0 && number("probes") > 5.0,
        "{round}"
    );
    for key in [
        "missing",
        "stale_acknowledged",
        "probes_missing",
        "both_primaries_s",
    ] {
        assert_eq!(number(key), 0.0, "{key}: {round}");
    }
    // Every write is traced to the epoch of the volume: one of each node, the other node's the higher.
    let epochs = round["epochs"].as_array().expect("epochs");
    let of = |key: &str| -> Vec<u64> {
        let value = |one: &Value| one[key].as_u64().expect("a number");
        epochs.iter().map(value).collect()
    };
    assert!(epochs.len() >= 2 && of("epoch").is_sorted_by(|one, next| one < next));
    assert_eq!(of("probes").iter().sum::<u64>(), number("probes") as u64);
    assert!(of("transactions").iter().all(|&count| count > 0), "{round}");
    let nodes = epochs.iter().map(|one| one["nodes"].to_string());
    let (from, to) = (&round["from"], &round["to"]);
    assert_eq!(
        nodes.collect::<Vec<_>>(),
        [format!("[{from}]"), format!("[{to}]")]
    );
}

/// From its start to its end, with a starter that is killed half way first.
#[test]
fn a_group_starts_and_leaves_nothing() {
    if !has_group() {
        return;
    }
    let room = open_folder();
    let group = room.path().join("g");
    let cluster = |action: &str| {
        let mut command = ashlar(["lab", "cluster", action, "--tuning", "fast", "--dir"]);
        command.arg(&group);
        command
    };
    let mut starter = cluster("start")
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    eventually("etcd runs", || working_in(&group).len() >= 3);
    starter.kill().expect("ours");
    starter.wait().expect("ours");
    let (code, said) = lab(room.path(), ["cluster", "start", "--dir", "g"]);
    assert!(
        code == 2 && said.contains("a group runs there already"),
        "{said}"
    );
    ok(&mut cluster("stop"));
    assert!(!group.exists() && working_in(&group).is_empty());

    ok(&mut cluster("start"));
    let status = ok(cluster("status").arg("--json"));
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let nodes = status["nodes"].as_array().expect("nodes");
    let roles: Vec<&Value> = nodes.iter().map(|node| &node["role"]).collect();
    assert!(
        roles.contains(&&"primary".into()) && roles.contains(&&"sync-standby".into()),
        "{status}"
    );
    assert_eq!(
        (&status["etcd_members"], &status["listener"]),
        (&3.into(), &true.into())
    );
    let moved = ok(&mut cluster("move"));
    let was_a = nodes[0]["role"] == "primary";
    let now = if was_a { "b: Primary" } else { "a: Primary" };
    assert!(moved.contains(now), "{status} {moved}");
    ok(&mut cluster("stop"));
    assert!(!group.exists() && working_in(&group).is_empty());
    let spaces = status["namespaces"].as_array().expect("names").iter();
    let mut names = spaces.map(|name| name.as_str().expect("a name"));
    assert!(
        !names.any(|name| Path::new("/run/netns").join(name).exists()),
        "{status}"
    );
}

/// An instance on a volume with copies on two nodes: it stays when its starter ends, and is found by its directory.
#[test]
fn an_instance_starts_moves_and_leaves_nothing() {
    let is_root = rustix::process::geteuid().is_root();
    if !has_group() || !is_there("root, which attaching needs", is_root) {
        return;
    }
    let room = open_folder();
    let dir = room.path().join("i");
    let cluster = |action: &str| {
        let mut command = ashlar(["lab", "cluster", action, "--dir", "i", "--json"]);
        command.current_dir(room.path());
        command
    };
    let status = |text: String| -> Value { serde_json::from_str(&text).expect("JSON") };
    // A small volume: an empty one is read as a whole before it gets a file system.
    ok(cluster("fci").args(["--drive-size", "2GiB"]));
    let (code, said) = words(room.path(), "cluster fci --dir i");
    assert!(code == 2 && said.contains("holds other things"), "{said}");
    let found = status(ok(&mut cluster("status")));
    assert_eq!(
        (&found["kind"], &found["in_sync"]),
        (&"fci".into(), &true.into())
    );
    let moved = status(ok(&mut cluster("move")));
    assert_ne!(moved["primary"], found["primary"], "{moved}");
    // Through the listener, wherever it runs.
    let url = found["url"].as_str().expect("a URL").to_owned();
    let run = [
        "lab",
        "oltp",
        "--db",
        &url,
        "--warehouses",
        "1",
        "--users",
        "2",
    ];
    let run = run
        .into_iter()
        .chain(["--seconds", "1", "--ramp", "0s", "--out", "o"]);
    let (code, said) = lab(room.path(), run.skip(1));
    assert_eq!(code, 0, "{said}");
    ok(ashlar(["lab", "cluster", "stop", "--dir", "i"]).current_dir(room.path()));
    assert!(!dir.exists() && working_in(&dir).is_empty());
    let spaces = found["namespaces"].as_array().expect("names").iter();
    let mut names = spaces.map(|name| name.as_str().expect("a name"));
    assert!(names.len() >= 3, "{found}");
    assert!(
        !names.any(|name| Path::new("/run/netns").join(name).exists()),
        "{found}"
    );
}

/// One database on a volume of a pool here, the other on a namespace at an address: both are attached, and let go.
#[test]
fn a_group_is_on_volumes_and_lets_them_go() {
    let is_root = rustix::process::geteuid().is_root();
    if !has_group() || !is_there("root, which attaching needs", is_root) {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    let (code, said) = words(dir, "cluster up --nodes 1 --loopback --dir n");
    assert_eq!(code, 0, "{said}");
    let api = dir.join("n/a/state/api.sock");
    // Groups beside it must not keep mounted what this one is to let go.
    let holder = own_mounts("true");
    let ours = |text: &str| {
        let mut command = within(&holder, dir, &ashlar(text.split_whitespace()));
        command.env("ASHLAR_API", &api);
        command
    };
    ok(&mut ours(
        "volume create tank/a --size 1GiB --layout mirror:2",
    ));
    let device = format!("file:{}?size=512MiB", dir.join("other").display());
    let nqn = "nqn.2026-11.org.example:other";
    let serve =
        format!("serve --listen 127.0.0.1:0 --allow-any-host --nqn {nqn} --device {device}");
    let mut server = Running::start(&mut ours(&serve));
    let address = server.ready().swap_remove(0);
    let mounts = || {
        let all = std::fs::read_to_string(format!("/proc/{}/mounts", holder.id()));
        let all = all.expect("mounts");
        let ours = all
            .lines()
            .filter(|line| line.contains(&*dir.to_string_lossy()));
        ours.filter(|line| line.contains(" xfs ")).count()
    };
    // One of them is not there: what was attached for it is let go.
    let start = "lab cluster start --tuning fast --dir g --place-a volume:tank/a --place-b";
    refuses(
        &mut ours(&format!("{start} volume:tank/none")),
        3,
        &["--place-b tank/none"],
    );
    assert!(mounts() == 0 && !dir.join("g").exists());
    ok(&mut ours(&format!(
        "{start} nvme-tcp://{address}/{nqn}?ns=1"
    )));
    assert_eq!(mounts(), 2);
    let places = format!("/proc/{}/root{}/g/places", holder.id(), dir.display());
    let places = Path::new(&places);
    assert!(places.join("a/node-a/data").exists() && places.join("b/node-b/data").exists());
    let status = ok(&mut ours("lab cluster status --dir g"));
    assert!(
        status.contains("Primary") && status.contains("SyncStandby"),
        "{status}"
    );
    ok(&mut ours("lab cluster stop --dir g"));
    assert!(mounts() == 0 && !dir.join("g").exists());
    server.kill();
    let (code, said) = words(dir, "cluster down --dir n");
    assert_eq!(code, 0, "{said}");
}

/// A scenario that asks for Patroni, on two places: each group's standby is on a place of its own, and one runs at a time.
#[test]
fn a_scenario_has_its_groups_kept() {
    if !has_group() {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    let scenario = "name = 'kept'\n[measure]\nseconds = 0.5\nramp = 0\nrepeat = 1\n[oltp]\nwarehouses = 1\n\
                    small = true\nusers = [1]\ngroup = 'patroni'\ntopology = ['availability-group']\n";
    std::fs::write(dir.join("kept.toml"), scenario).expect("written");
    let names = ["near", "near.standby", "far", "far.standby"];
    for name in names {
        std::fs::create_dir(dir.join(name)).expect("made");
    }
    let place = |name: &str| format!("--place {name}={} ", dir.join(name).display());
    let places: String = names.map(place).concat();
    let (code, said) = words(dir, &format!("run kept.toml {places}--out o"));
    assert_eq!(code, 0, "{said}");
    let result = result(dir, "o");
    let all = result["configurations"].as_array().expect("configurations");
    let standbys: Vec<&Value> = all.iter().map(|of| &of["standby_place"]).collect();
    assert_eq!(standbys, ["near.standby", "far.standby"]);
    for of in all {
        assert!(of["oltp"]["steps"][0]["nopm"].as_f64() > Some(0.0), "{of}");
    }
    assert!(
        result["flags"].to_string().contains("kept by Patroni"),
        "{result}"
    );
    for name in names {
        let mut left = std::fs::read_dir(dir.join(name)).expect("list");
        assert!(left.next().is_none() && working_in(&dir.join(name)).is_empty());
    }
}

/// The long rounds, with a program in place of ours that ends as it is told.
#[test]
fn long_rounds_go_on_with_the_fault_at_which_they_were_interrupted() {
    use std::os::unix::fs::PermissionsExt;
    let room = open_folder();
    let dir = room.path();
    let program = dir.join("program");
    let text = "#!/bin/sh\n\
                for word; do\n\
                case $last in --fault) fault=$word ;; --out) out=$word ;;\n\
                --resume) out=$word fault=$(basename $word .now) again=again: ;; esac\n\
                last=$word\n\
                done\n\
                cd \"$(dirname \"$0\")\" && echo $again$fault >> calls && mkdir -p $out && exit $(cat $fault)\n";
    std::fs::write(&program, text).expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("set");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/soak-faults.sh");
    let run = |codes: [u8; 4]| {
        let faults = ["kill-node", "cut-network", "move", "stop-node"];
        for (fault, code) in faults.iter().zip(codes) {
            std::fs::write(dir.join(fault), code.to_string()).expect("written");
        }
        let _ = std::fs::remove_file(dir.join("calls"));
        let mut command = Command::new(script);
        command.arg(&program).arg(dir.join("out"));
        command
            .env("SOAK_FAULTS_OF", faults.join(" "))
            .env("SOAK_DIR", dir);
        let code = command.output().expect("it runs").status.code();
        let calls = std::fs::read_to_string(dir.join("calls")).unwrap_or_default();
        (code, calls.replace('\n', " "))
    };
    // One loses something, the next is interrupted.
    let wanted = (Some(3), "kill-node cut-network move ".into());
    assert_eq!(run([0, 1, 3, 0]), wanted);
    let kept = |name: &str| dir.join("out").join(name).exists();
    assert!(kept("kill-node") && kept("cut-network.failed") && !kept("move"));
    let wanted = (Some(1), "cut-network again:move stop-node ".into());
    assert_eq!(run([0, 1, 0, 0]), wanted);
    assert_eq!(run([0, 0, 0, 0]), (Some(0), "cut-network ".into()));
    assert_eq!(run([1, 1, 1, 1]), (Some(0), String::new()));
}

/// Every fault of a group, in rounds: minutes.
#[test]
fn a_group_loses_nothing_in_any_fault() {
    if std::env::var_os("ASHLAR_SOAK").is_none() || !has_group() {
        return;
    }
    let room = open_folder();
    let (code, said) = words(
        room.path(),
        "failover --topology group --tuning fast --rounds 2 --before 2s --after 3s --hold 20s \
         --fault kill-database,kill-node,stop-node,cut-network,etcd-down,move --dir place --out o",
    );
    assert_eq!(code, 0, "{said}");
}

/// Every fault of an instance on a volume with copies, ten times: the better part of an hour.
#[test]
fn an_instance_loses_nothing_in_any_fault() {
    let is_root = rustix::process::geteuid().is_root();
    if std::env::var_os("ASHLAR_SOAK").is_none() || !has_group() || !is_root {
        return;
    }
    let room = open_folder();
    std::fs::create_dir(room.path().join("place")).expect("made");
    let (code, said) = words(
        room.path(),
        "failover --topology fci --rounds 10 --before 2s --after 3s --hold 20s --dir place --out o --fault \
         kill-database,kill-daemon,kill-node,stop-node,cut-network,drive-dies,drive-hangs,etcd-down,move",
    );
    assert_eq!(code, 0, "{said}");
}
