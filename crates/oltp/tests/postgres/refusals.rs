//! Bad input and bad luck: each is told by name.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress, ResultFile};
use ashlar_oltp::database::{Database, Sought};
use ashlar_oltp::{Logic, Mode, Postgres, begin, build, built, run};

use crate::cluster::{Cluster, OWNER};
use crate::work::{BUILD, plan, postgres};

fn refused(url: &str) -> LabError {
    let database = Postgres::new(url, Logic::Functions).expect("a URL");
    let Err(error) = built(&database) else {
        panic!("it was let in");
    };
    assert_eq!(error.exit_code(), 3);
    error
}

#[test]
fn what_is_wrong_is_named() {
    let Some(cluster) = Cluster::start(&["max_connections=12"]) else {
        return;
    };
    cluster.sql("postgres", "CREATE ROLE stranger LOGIN PASSWORD 'right'");
    let stranger = |password: &str| {
        format!(
            "{}&password={password}",
            cluster.url("postgres", "stranger")
        )
    };
    let error = refused(&stranger("wrong-one")).to_string();
    assert!(error.contains("password authentication failed"), "{error}");
    assert!(
        error.contains("stranger@") && !error.contains("wrong-one"),
        "{error}"
    );
    let error = refused(&stranger("right")).to_string();
    assert!(
        error.contains("holds no schema"),
        "the right password lets in: {error}"
    );

    let error = refused(&cluster.url("nowhere", OWNER)).to_string();
    assert!(error.contains("\"nowhere\" does not exist"), "{error}");
    let error = refused("postgres:///x?host=/nonexistent&user=me").to_string();
    assert!(error.contains("postgres://me@/nonexistent/x"), "{error}");
    let Err(error) = Postgres::new("postgres://me:secret@:x/", Logic::Client) else {
        panic!("no URL");
    };
    assert!(
        error.exit_code() == 2 && !error.to_string().contains("secret"),
        "{error}"
    );

    let database = postgres(&cluster, "postgres", Logic::Functions);
    cluster.sql("postgres", "CREATE TABLE mine (x integer)");
    let error = build(database.as_ref(), &BUILD, &Progress::silent()).expect_err("in the way");
    assert!(
        error.exit_code() == 2 && error.to_string().contains("mine"),
        "{error}"
    );
    cluster.sql("postgres", "DROP TABLE mine");
    build(database.as_ref(), &BUILD, &Progress::silent()).expect("built");

    let sought = |users| Sought {
        option: "--users",
        users,
    };
    let error = database.check_users(sought(20)).expect_err("too many");
    assert!(
        error.to_string().contains("--users 20") && error.to_string().contains("12"),
        "{error}"
    );
    database.check_users(sought(4)).expect("few enough");
    let many = plan(&[1, 20], Mode::Timed);
    let mut result = begin(database.as_ref(), &many).expect("begins");
    let ran = run(&database, &many, &mut result, &Progress::silent());
    assert!(
        ran.is_err() && result.steps.is_empty(),
        "refused before the first step"
    );

    cluster.sql("postgres", "DELETE FROM ashlar_oltp");
    let error = built(database.as_ref())
        .expect_err("half-built")
        .to_string();
    assert!(error.contains("half-built"), "{error}");
}

#[test]
fn a_server_that_dies_leaves_what_was_measured() {
    let Some(cluster) = Cluster::start(&[]) else {
        return;
    };
    let database = postgres(&cluster, "postgres", Logic::Functions);
    build(database.as_ref(), &BUILD, &Progress::silent()).expect("built");
    let mut long = plan(&[2, 3], Mode::Timed);
    long.measure = Duration::from_secs(60);
    let mut result = begin(database.as_ref(), &long).expect("begins");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            cluster.crash();
        });
        run(&database, &long, &mut result, &Progress::silent()).expect("it is told in the result");
    });
    assert!(
        result.head.partial && !result.head.problems.is_empty(),
        "{result:?}"
    );
    assert_eq!(result.steps.len(), 1, "no further step is begun");
    let step = &result.steps[0];
    assert!(
        step.partial && step.lost_users == 2 && step.elapsed_s < 30.0,
        "{step:?}"
    );
    assert_eq!(step.nopm_source, "client");
    assert!(
        result.head.problems[0].contains("or has died"),
        "{:?}",
        result.head.problems
    );
    assert!(step.transactions["new_order"].count > 0, "{step:?}");
    assert_eq!(result.complaint(), None, "nothing was found inconsistent");
}

/// Says to the first so many who come that it is starting up, and nothing to the others.
fn starting_up(socket: &std::path::Path, how_often: usize) {
    use std::io::{Read, Write};
    let listener = std::os::unix::net::UnixListener::bind(socket).expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().take(how_often) {
            let mut stream = stream.expect("a client");
            let _ = stream.read(&mut [0; 1024]);
            let said = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0";
            let mut answer = vec![b'E'];
            answer.extend((said.len() as u32 + 4).to_be_bytes());
            answer.extend(said);
            let _ = stream.write_all(&answer);
        }
    });
}

#[test]
fn a_database_that_is_starting_up_is_waited_for_and_not_forever() {
    let dir = tempfile::tempdir().expect("folder");
    let url = format!("postgres:///x?host={}&user=me", dir.path().display());
    let socket = dir.path().join(".s.PGSQL.5432");
    let database = Postgres::new(&url, Logic::Functions).expect("a URL");
    let (progress, said) = heard();
    starting_up(&socket, 4);
    database
        .await_ready(Duration::from_secs(20), &progress)
        .expect("the fifth connection is not told to wait");
    let said: Vec<u8> = said.try_iter().flatten().collect();
    let said = String::from_utf8(said).expect("text");
    assert_eq!(said.matches("is starting up").count(), 1, "{said}");
    std::fs::remove_file(&socket).expect("removed");
    starting_up(&socket, 1000);
    let error = database
        .await_ready(Duration::from_millis(300), &Progress::silent())
        .expect_err("it never ends")
        .to_string();
    assert!(
        error.contains("is starting up") && error.contains("--wait"),
        "{error}"
    );
    let stop = Arc::new(AtomicBool::new(true));
    let begun = Instant::now();
    let error = database
        .await_ready(Duration::from_secs(60), &Progress::silent().until(stop))
        .expect_err("it is to end")
        .to_string();
    assert!(error.contains("interrupted"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// Progress whose lines are received.
fn heard() -> (Progress, Receiver<Vec<u8>>) {
    struct Ear(Sender<Vec<u8>>);
    impl Write for Ear {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.send(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (tell, said) = channel();
    (Progress::lines(Box::new(Ear(tell))), said)
}
