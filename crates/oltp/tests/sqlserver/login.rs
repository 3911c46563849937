//! Who is let in, and what the server is told before.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ashlar_lab::Progress;
use ashlar_oltp::SqlServer;
use ashlar_oltp::database::Database;
use ashlar_oltp::schema::State;

use super::server::{Acts, Answer, Asked, Server, error, rows};
use super::words::{self, Login, Told, Type, column};

/// Lets in who has this password, and has no tables.
struct Door {
    encryption: u8,
    password: &'static str,
    told: Option<Told>,
}

const OPEN: Door = Door {
    encryption: 2,
    password: "s3cret",
    told: None,
};

impl Acts for Door {
    fn encryption(&self) -> u8 {
        self.encryption
    }

    fn log_in(&mut self, login: &Login) -> Answer {
        let refused = Told {
            code: 18456,
            class: 14,
            text: format!("Login failed for user '{}'.", login.user),
            procedure: String::new(),
        };
        match (&self.told, login.password == self.password) {
            (Some(told), _) => error(words::DONE, told),
            (None, true) => Answer::Tokens(words::welcome(&login.database)),
            (None, false) => error(words::DONE, &refused),
        }
    }

    fn batch(&mut self, _: &str) -> Answer {
        rows(&[column("name", Type::NVarChar(128))], &[])
    }
}

fn state(door: Door) -> (Server<Door>, Result<State, String>) {
    let server = Server::start(door);
    let database = SqlServer::new(&server.url()).expect("a URL");
    let state = database.state().map_err(|error| {
        assert_eq!(error.exit_code(), 3);
        let text = error.to_string();
        assert!(text.starts_with("sqlserver://sa@127.0.0.1:"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
        text
    });
    (server, state)
}

#[test]
fn a_login_names_user_database_and_program_and_wants_no_encryption() {
    let (server, state) = state(OPEN);
    assert_eq!(state, Ok(State::Empty));
    let asked = server.asked();
    let [Asked::Hello(hello), Asked::Login(login), Asked::Batch(sql)] = &asked[..] else {
        panic!("{asked:?}");
    };
    let option = |number| hello.iter().find(|option| option.0 == number);
    assert_eq!(option(1).map(|of| &of.1[..]), Some(&[2][..]), "encryption");
    assert_eq!(option(4).map(|of| &of.1[..]), Some(&[0][..]), "MARS");
    let text = |text: &str| text.to_owned();
    assert_eq!(
        login,
        &Login {
            user: text("sa"),
            password: text("s3cret"),
            application: text("ashlar-oltp"),
            database: text("tpcc"),
        }
    );
    assert_eq!(sql, "SELECT name FROM sys.tables WHERE is_ms_shipped = 0");
}

#[test]
fn a_refused_login_is_told_with_the_servers_words() {
    let (_server, state) = state(Door {
        password: "another",
        ..OPEN
    });
    let text = state.expect_err("refused");
    assert!(
        text.ends_with("Login failed for user 'sa'. (18456)"),
        "{text}"
    );
}

#[test]
fn a_server_that_requires_encryption_gets_no_password() {
    for encryption in [1, 3] {
        let (server, state) = state(Door { encryption, ..OPEN });
        let text = state.expect_err("there is no TLS");
        assert!(text.contains("requires encryption"), "{text}");
        let asked = server.asked();
        assert!(matches!(asked[..], [Asked::Hello(_)]), "{asked:?}");
    }
}

#[test]
fn a_server_that_recovers_a_database_is_waited_for() {
    let server = Server::start(Door {
        told: Some(Told {
            code: 922,
            class: 14,
            text: "Database 'tpcc' is being recovered. Waiting until recovery is finished.".into(),
            procedure: String::new(),
        }),
        ..OPEN
    });
    let database = SqlServer::new(&server.url()).expect("a URL");
    let silent = Progress::silent();
    let short = Duration::from_millis(300);
    let error = database.await_ready(short, &silent).expect_err("recovers");
    let text = error.to_string();
    assert!(
        text.contains("being recovered") && text.contains("--wait"),
        "{text}"
    );
    super::server::lock(&server.acts).told = None;
    assert_eq!(database.await_ready(short, &silent), Ok(()));
}

#[test]
fn a_server_that_is_not_there_is_told_at_once() {
    let database = SqlServer::new("sqlserver://sa:s3cret@127.0.0.1:1/tpcc").expect("a URL");
    let error = database.state().expect_err("no server");
    assert_eq!(error.exit_code(), 3);
    assert!(
        error.to_string().contains("is the server running"),
        "{error}"
    );
}

/// Takes everything and says nothing once it has let in.
struct Mute;

impl Acts for Mute {
    fn batch(&mut self, _: &str) -> Answer {
        Answer::Raw(Vec::new())
    }
}

#[test]
fn who_is_to_end_does_not_wait_for_a_server_that_hangs() {
    let server = Server::start(Mute);
    let stop = Arc::new(AtomicBool::new(true));
    let ends = Progress::silent().until(stop);
    let database = SqlServer::new(&server.url()).expect("a URL").until(&ends);
    let begun = Instant::now();
    let error = database.state().expect_err("no answer").to_string();
    assert!(error.contains("interrupted"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{error}");
}
