//! What a machine that joins may be refused for, by the list of members alone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::document::{EtcdPlace, Membership, TokenEntry};
use super::joining::{Answer, Request, Role};
use super::secret::{Secret, now};
use super::{Founding, Home, MembersView, found, take};
use crate::cluster::Cluster;
use crate::config::QuorumConfig;
use crate::problem::{Kind, Problem};
use crate::shared::Shared;
use crate::store::Memory;
use crate::trust::key_pair;
use crate::versions::Versions;

const LONG: Duration = Duration::from_secs(60);

fn at(host: u8, port: u16) -> SocketAddr {
    ([127, 77, (std::process::id() % 250) as u8, host], port).into()
}

pub(crate) fn cluster(host: u8) -> (TempDir, Cluster) {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = Founding {
        cluster: "prod".into(),
        node: "a".into(),
        replication: at(host, 7000),
        portal: at(host, 4420),
        etcd: at(host, 2379),
        quorum: Some(vec!["127.0.0.1:1".into()]),
    };
    found(dir.path(), &plan).expect("founded");
    let home = Home::open(dir.path()).expect("readable").expect("a node");
    let mut config = home.config;
    config.quorum = QuorumConfig::memory();
    let cluster = Cluster::start(config, "a").expect("it starts");
    (dir, cluster)
}

fn etcd(host: u8) -> EtcdPlace {
    EtcdPlace {
        clients: at(host, 2379),
        peers: at(host, 2380),
    }
}

fn request(cluster: &Cluster, secret: &Secret, name: &str) -> Request {
    let host = name.as_bytes()[0];
    Request {
        cluster: cluster.cluster_id(),
        secret: secret.clone(),
        role: Role::Node,
        name: name.into(),
        replication: at(host, 7000),
        portal: at(host, 4420),
        etcd: etcd(host),
        rejoins: false,
        public_key: key_pair().expect("a key").public_key_raw().to_vec(),
        protocol: Versions::OURS.newest().into(),
        version: "0".into(),
        oldest_protocol: None,
    }
}

fn token(secret: &Secret) -> TokenEntry {
    TokenEntry::new(secret.hash(), now() + 100)
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (_dir, cluster) = cluster(1);
    let shared = cluster.0.shared.clone();
    let secret = Secret::random();
    let entry = token(&secret);
    let put = shared.clone();
    let members = cluster.wait(LONG, async move {
        let put = put.change(|members| {
            members.put_token(entry.clone());
            Ok(())
        });
        put.await.expect("changed").1
    });
    let members = members.expect("in time");
    let usual = || request(&cluster, &secret, "b");
    let wrong: [(&str, Kind, Request); 7] = [
        (
            "b (Ashlar 0) speaks versions 7 to 9 of the protocol between nodes",
            Kind::Conflict,
            Request {
                protocol: 9,
                oldest_protocol: Some(7),
                ..usual()
            },
        ),
        (
            "the token is of cluster",
            Kind::Conflict,
            Request {
                cluster: uuid::Uuid::nil(),
                ..usual()
            },
        ),
        (
            "has given no such token",
            Kind::Unauthorized,
            Request {
                secret: Secret::random(),
                ..usual()
            },
        ),
        (
            "has a already",
            Kind::Conflict,
            Request {
                name: "a".into(),
                ..usual()
            },
        ),
        (
            "is portal of node a already",
            Kind::Conflict,
            Request {
                portal: at(1, 4420),
                ..usual()
            },
        ),
        (
            "needs no witness",
            Kind::Conflict,
            Request {
                role: Role::Witness,
                ..usual()
            },
        ),
        (
            "no public key",
            Kind::Usage,
            Request {
                public_key: vec![4; 64],
                ..usual()
            },
        ),
    ];
    for (says, kind, request) in wrong {
        let asked = shared.clone();
        let answer = cluster.wait(LONG, async move { take(&asked, request).await });
        let Ok(Answer::Problem(problem)) = answer else {
            panic!("{says}: let in");
        };
        assert!(problem.message.contains(says), "{problem}");
        assert_eq!(problem.kind, kind, "{problem}");
        let asked = shared.clone();
        let after = cluster.wait(LONG, async move { asked.members().await.expect("read").0 });
        assert_eq!(after.expect("in time"), members, "{says}");
    }
    let right = usual();
    let answer = cluster.wait(LONG, async move { take(&shared, right).await });
    assert!(matches!(answer, Ok(Answer::Welcome(_))), "{answer:?}");
}

/// A list whose members bring etcd with them.
fn local(members: &Membership) -> Membership {
    let mut local = members.clone();
    local.quorum.clear();
    local.nodes[0].etcd = Some(etcd(1));
    local
}

#[test]
fn three_members_of_etcd_are_enough_and_a_lost_answer_is_found_again() {
    let (_dir, cluster) = cluster(2);
    let shared = &cluster.0.shared;
    let read = shared.clone();
    let members = cluster.wait(LONG, async move { read.members().await.expect("read").0 });
    let mut members = local(&members.expect("in time"));
    let mut enter = |name: &str, role| {
        let secret = Secret::random();
        members.put_token(token(&secret));
        let request = Request {
            role,
            ..request(&cluster, &secret, name)
        };
        let first = shared.enter(&mut members, &request)?;
        let again = shared.enter(&mut members, &request)?;
        assert_eq!(
            (first.id, first.runs_etcd),
            (again.id, again.runs_etcd),
            "{name}"
        );
        Ok::<_, Problem>((first.id.0, first.runs_etcd))
    };
    assert_eq!(enter("b", Role::Node), Ok((2, true)));
    assert_eq!(enter("w", Role::Witness), Ok((0, true)));
    assert_eq!(enter("c", Role::Node), Ok((3, false)), "it has three");
    let fourth = enter("x", Role::Witness).expect_err("a fourth");
    assert!(
        fourth.message.contains("3 members of etcd already"),
        "{fourth}"
    );
    let taken = enter("w", Role::Node).expect_err("a witness's name");
    assert!(taken.message.contains("has w already"), "{taken}");
}

/// Another machine that has read the token, and what the node it was for says of itself.
fn thief(request: &Request) -> Request {
    Request {
        cluster: request.cluster,
        secret: request.secret.clone(),
        name: request.name.clone(),
        version: request.version.clone(),
        public_key: key_pair().expect("a key").public_key_raw().to_vec(),
        ..*request
    }
}

fn answer(cluster: &Cluster, request: Request) -> Answer {
    let shared = cluster.0.shared.clone();
    let answer = cluster.wait(LONG, async move { take(&shared, request).await });
    answer.expect("in time")
}

fn refused(cluster: &Cluster, request: Request) -> Problem {
    match answer(cluster, request) {
        Answer::Problem(problem) => problem,
        Answer::Welcome(_) => panic!("it was given a certificate"),
    }
}

fn change(cluster: &Cluster, edit: impl Fn(&mut Membership) + Send + Sync + 'static) {
    let shared = cluster.0.shared.clone();
    let changed = cluster.wait(LONG, async move {
        let edit = |members: &mut Membership| {
            edit(members);
            Ok(())
        };
        shared.change(edit).await.map(drop)
    });
    changed.expect("in time").expect("changed");
}

#[test]
fn a_used_token_gives_nothing_to_another_key() {
    let (_dir, cluster) = cluster(3);
    let secret = Secret::random();
    let entry = token(&secret);
    change(&cluster, move |members| members.put_token(entry.clone()));
    let right = || request(&cluster, &secret, "b");
    let (first, stolen) = (right(), thief(&right()));
    let same = || Request {
        public_key: first.public_key.clone(),
        ..right()
    };
    assert!(matches!(answer(&cluster, same()), Answer::Welcome(_)));
    let used = refused(&cluster, stolen);
    assert_eq!(used.kind, Kind::Conflict, "{used}");
    for says in ["used already, by b", "`ashlar cluster token`"] {
        assert!(used.message.contains(says), "{used}");
    }
    // Its own key does not make a node of a witness, nor the other way round.
    let role = Role::Witness;
    let other = refused(&cluster, Request { role, ..same() });
    assert!(other.message.contains("used already, by b"), "{other}");
    // A list from before keys were remembered does not say whose it was.
    change(&cluster, |members| {
        let text = String::from_utf8(members.encode().expect("JSON")).expect("text");
        let (before, rest) = text.split_once(",\"used_key\":\"").expect("a key");
        let (_, after) = rest.split_once('"').expect("its end");
        *members = Membership::decode(format!("{before}{after}").as_bytes()).expect("an old list");
    });
    let unknown = refused(&cluster, same());
    assert!(unknown.message.contains("used already, by b"), "{unknown}");
}

#[test]
fn who_is_to_be_taken_out_waits_for_others_and_not_for_ever() {
    let (_dir, cluster) = cluster(5);
    let shared = cluster.0.shared.clone();
    let _joins = shared.turn.try_lock().expect("none else");
    let late = cluster.forget("b").expect_err("another joins");
    assert!(late.message.contains("others join cluster prod"), "{late}");
}

#[test]
fn a_token_that_is_too_late_gives_nothing_to_its_own_key() {
    let (_dir, cluster) = cluster(4);
    let secret = Secret::random();
    let entry = token(&secret);
    change(&cluster, move |members| members.put_token(entry.clone()));
    let first = request(&cluster, &secret, "b");
    let again = Request {
        public_key: first.public_key.clone(),
        ..request(&cluster, &secret, "b")
    };
    assert!(matches!(answer(&cluster, first), Answer::Welcome(_)));
    change(&cluster, |members| members.tokens[0].expires = now() - 10);
    let late = refused(&cluster, again);
    assert!(late.message.contains("too late"), "{late}");
}

fn memory(cluster: &Cluster) -> Memory {
    match &cluster.config().quorum {
        QuorumConfig::Memory(memory) => memory.clone(),
        QuorumConfig::Etcd(_) => panic!("it has none in memory"),
    }
}

/// What so many are told that ask at once, each with a token of its own.
fn ask(cluster: &Cluster, requests: Vec<Request>) -> Vec<Answer> {
    let shared = cluster.0.shared.clone();
    let answers = cluster.wait(LONG, async move {
        let ask = |request| {
            let shared: Arc<Shared> = shared.clone();
            tokio::spawn(async move { take(&shared, request).await })
        };
        let asked: Vec<_> = requests.into_iter().map(ask).collect();
        let mut answers = Vec::new();
        for answer in asked {
            answers.push(answer.await.expect("no panic"));
        }
        answers
    });
    answers.expect("in time")
}

#[test]
fn who_has_no_token_waits_for_none_and_holds_up_none() {
    let (_dir, cluster) = cluster(5);
    let secret = Secret::random();
    let entry = token(&secret);
    change(&cluster, move |members| members.put_token(entry.clone()));
    let shared = cluster.0.shared.clone();
    // Another joins, and etcd takes long.
    let (ends, end) = tokio::sync::oneshot::channel::<()>();
    let busy = shared.clone();
    let turn = cluster.0.shared.clone();
    let other = std::thread::spawn(move || {
        let turn = turn.turn.blocking_lock();
        let _ = end.blocking_recv();
        drop(turn);
    });
    while busy.turn.try_lock().is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let memory = memory(&cluster);
    let before = memory.reads();
    let strangers = (0..100).map(|_| request(&cluster, &Secret::random(), "b"));
    let began = Instant::now();
    for answer in ask(&cluster, strangers.collect()) {
        let Answer::Problem(problem) = answer else {
            panic!("let in");
        };
        assert!(problem.message.contains("no such token"), "{problem}");
    }
    let took = began.elapsed();
    // The cluster itself looks now and then.
    let (reads, looks) = (memory.reads() - before, took.as_millis() as u64 / 200 + 2);
    assert!(reads <= 2 * looks, "{reads} of the quorum in {took:?}");
    assert!(
        took < Duration::from_secs(10),
        "each waits for the others: {took:?}"
    );
    // A token that another node has made just now is found; its turn comes.
    let fresh = Secret::random();
    let entry = token(&fresh);
    change(&cluster, move |members| members.put_token(entry.clone()));
    shared.change_view(MembersView::forget_list);
    ends.send(()).expect("it waits");
    other.join().expect("no panic");
    let answers = ask(&cluster, vec![request(&cluster, &fresh, "b")]);
    assert!(matches!(answers[..], [Answer::Welcome(_)]), "{answers:?}");
}

#[test]
fn who_has_no_token_is_told_of_a_quorum_that_is_silent() {
    let (_dir, cluster) = cluster(6);
    memory(&cluster).set_away(true);
    let strangers = (0..50).map(|_| request(&cluster, &Secret::random(), "b"));
    for answer in ask(&cluster, strangers.collect()) {
        let Answer::Problem(problem) = answer else {
            panic!("let in");
        };
        assert!(problem.message.contains("does not answer"), "{problem}");
    }
}
