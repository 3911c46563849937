//! A PostgreSQL on two replicated volumes of two nodes: what it has acknowledged is there wherever it runs next.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::cluster::{A, B, HOSTS, Rig};
use crate::common::{
    TEST_TIMEOUT, can_attach, eventually, eventually_within, has_postgresql, is_there, refuses,
    send,
};

const PORT: &str = "54330";

/// What a node's own server answers, if one answers there.
fn sql(rig: &Rig, node: usize, mount: &str, text: &str) -> Option<String> {
    let mounts = format!("--mount=/proc/{}/ns/mnt", rig.nodes[node].mounts.id());
    let mut command = Command::new("nsenter");
    command.args([&*mounts, "runuser", "-u", "postgres", "--", "psql"]);
    command.args(["-qXAt", "-d", "postgres", "-p", PORT, "-h", mount, "-c"]);
    let output = command.arg(text).current_dir("/").output().expect("psql");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(said)
}

/// A client of the network is let in.
fn let_in(rig: &Rig, mount: &str) {
    let rule = format!("host all all {}/32 trust", HOSTS[3]);
    let text = format!(
        "copy (select $${rule}$$) to program $$cat >> {mount}/db/pg_hba.conf$$; select pg_reload_conf()"
    );
    assert_eq!(sql(rig, A, mount, &text), Some("t".into()));
}

/// The server that a client finds which knows both nodes: libpq tries the one, then the other.
fn found(rig: &Rig) -> Option<String> {
    let [_, a, b, _] = HOSTS;
    let target = "user=postgres dbname=postgres target_session_attrs=read-write connect_timeout=2";
    let mut command = rig.inside("client", "psql");
    command.args(["-qXAt", "-c", "select host(inet_server_addr())"]);
    command.arg(format!("host={a},{b} port={PORT} {target}"));
    let output = command.output().expect("psql");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(said)
}

/// The first process of a node's own server.
fn postmaster(rig: &Rig, node: usize, mount: &str) -> i32 {
    let inside = format!("/proc/{}/root{mount}", rig.nodes[node].mounts.id());
    let file = Path::new(&inside).join("db/postmaster.pid");
    let text = std::fs::read_to_string(file).expect("it runs");
    let first = text.lines().next().and_then(|line| line.parse().ok());
    first.expect("a number")
}

#[test]
fn a_postgresql_is_killed_moved_and_taken_over_with_all_that_it_has_acknowledged() {
    let has_etcd = is_there("etcd", Path::new("/usr/bin/etcd").exists());
    if !has_etcd || !can_attach() || !has_postgresql() {
        return;
    }
    let mut rig = Rig::on_a_bridge();
    for volume in ["tank/data", "tank/wal"] {
        let words = [
            "--size",
            "400MiB",
            "--layout",
            "mirror:2",
            "--replicas",
            "2",
        ];
        rig.ok(A, &[&["volume", "create", volume], &words[..]].concat());
        rig.await_in_sync(A, volume);
        // Either may have been the first.
        rig.ok(A, &["volume", "move", volume, "--to", "a"]);
    }
    let [data, wal] = ["data", "wal"].map(|name| rig.path(name).display().to_string());
    let create = [
        "service",
        "create",
        "pg",
        "--postgres",
        "--port",
        PORT,
        "--volume",
        "tank/data",
        "--mount",
        &data,
        "--volume",
        "tank/wal",
        "--mount",
        &wal,
    ];
    rig.ok(A, &create);
    // Two file systems and a cluster are made.
    eventually_within(TEST_TIMEOUT * 3, "it runs", || {
        rig.show(A, "pg")["state"] == "running"
    });
    let mut rows = 0;
    // A row that was acknowledged is there, and so are all before it.
    let mut write = |rig: &Rig, node: usize| {
        eventually("it takes writes", || {
            let text = format!(
                "create table if not exists t (n int primary key); insert into t values ({rows})"
            );
            sql(rig, node, &data, &text).is_some()
        });
        rows += 1;
        let found = sql(rig, node, &data, "select count(*) from t");
        assert_eq!(found, Some(rows.to_string()));
    };
    write(&rig, A);
    let_in(&rig, &data);
    let is_found_at = |rig: &Rig, node: usize| {
        let address = HOSTS[1 + node].to_string();
        eventually("a client finds it", || {
            found(rig).as_ref() == Some(&address)
        });
    };
    is_found_at(&rig, A);

    // kill -9 of the database: where it was.
    send(postmaster(&rig, A, &data), Signal::KILL);
    eventually("it was started again", || rig.show(A, "pg")["starts"] == 2);
    let again = rig.becomes(A, "pg", "running");
    assert_eq!(
        (&again["failures"], &again["node"]),
        (&1.into(), &"a".into())
    );
    write(&rig, A);

    // By hand.
    rig.ok(A, &["service", "move", "pg", "--to", "b"]);
    rig.becomes(B, "pg", "running");
    assert_eq!(sql(&rig, A, &data, "select 1"), None, "it runs once");
    is_found_at(&rig, B);
    write(&rig, B);

    // The daemon is killed: nothing is left of it there, and the other has all of it.
    for volume in ["tank/data", "tank/wal"] {
        rig.await_in_sync(B, volume);
    }
    rig.daemon(B).kill();
    let taken = rig.becomes(A, "pg", "running");
    assert!(taken["moves"].as_u64() >= Some(2), "{taken}");
    eventually("it has ended where it was", || {
        sql(&rig, B, &data, "select 1").is_none()
    });
    is_found_at(&rig, A);
    write(&rig, A);
    rig.start(B);
    rig.becomes(B, "pg", "elsewhere");
    refuses(
        &mut rig.command(B, &create),
        3,
        &["there is a service pg already"],
    );

    rig.ok(B, &["service", "stop", "pg"]);
    for node in [A, B] {
        rig.becomes(node, "pg", "stopped");
    }
    rig.ok(A, &["service", "delete", "pg"]);
    for node in [A, B] {
        rig.daemon(node).end(Signal::TERM);
    }
}
