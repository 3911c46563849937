//! Who agents log in as, and what that may do.

use std::net::IpAddr;

use postgres_protocol::password::scram_sha_256;

use super::words::Dialect;
use crate::server::DATABASE;

/// Who agents log in as.
pub(crate) const ROLE: &str = "ashlar_client";

/// Makes it, in an empty database: statements, one after the other.
pub(super) fn sql(speaks: Dialect, password: &str, from: &[IpAddr]) -> Vec<String> {
    match speaks {
        Dialect::Mariadb => {
            let users = from.iter().flat_map(|ip| mariadb(password, *ip));
            ONLY_BY_SOCKET
                .map(str::to_owned)
                .into_iter()
                .chain(users)
                .collect()
        }
        Dialect::PostgresFunctions | Dialect::PostgresClient => vec![postgres(password)],
    }
}

/// A new MariaDB has its owner at this machine's addresses, too, without a password.
const ONLY_BY_SOCKET: [&str; 2] = [
    "DELETE FROM mysql.global_priv WHERE host <> 'localhost'",
    "FLUSH PRIVILEGES",
];

/// A user of MariaDB is one from an address. It checks the password by a hash of it, and has no log of statements.
fn mariadb(password: &str, ip: IpAddr) -> [String; 2] {
    let user = format!("'{ROLE}'@'{ip}'");
    [
        format!("CREATE USER {user} IDENTIFIED BY '{password}'"),
        format!("GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON {DATABASE}.* TO {user}"),
    ]
}

/// The server is told what it checks the password by: a statement may be in its log.
fn postgres(password: &str) -> String {
    let verifier = scram_sha_256(password.as_bytes());
    // Of tables that are made later, too. What all may do by default is more than reading and writing rows.
    format!(
        "CREATE ROLE {ROLE} LOGIN PASSWORD '{verifier}'; \
         ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {ROLE}; \
         REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC; \
         GRANT CONNECT ON DATABASE {DATABASE} TO {ROLE}; \
         REVOKE CREATE ON SCHEMA public FROM PUBLIC; \
         REVOKE EXECUTE ON FUNCTION lo_creat(integer), lo_create(oid), lo_from_bytea(oid, bytea) FROM PUBLIC"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use ashlar_lab::Progress;

    use super::super::ports::Ports;
    use super::*;
    use crate::database::Database;
    use crate::mariadb::{MariaDb, MariaServer};
    use crate::postgres::{Logic, Postgres};
    use crate::server::{Door, Pair, Settings};

    #[test]
    fn the_role_reads_and_writes_rows_and_makes_nothing() {
        let dir = tempfile::tempdir().expect("folder");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).expect("its user comes in");
        let at = Ports::default().draw([127, 0, 0, 1].into()).expect("free");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let door = Some(Door::new(at, Vec::new()));
        let set = Settings {
            set: vec!["fsync=off".to_owned()],
            ..Settings::default()
        };
        let pair = Pair::start_listening([&a, &b], set, door).expect("starts");
        let owner = Postgres::new(&pair.url(), Logic::Client).expect("a database");
        let (password, progress) = ("0123abcd", Progress::silent());
        let made = postgres(password);
        assert!(!made.contains(password), "{made}");
        owner.execute(&made).expect("made");
        owner.execute("CREATE TABLE rows (id int)").expect("made");
        let log_in = |password: &str| {
            let (ip, port) = (at.ip(), at.port());
            let url =
                format!("host={ip} port={port} user={ROLE} dbname={DATABASE} password={password}");
            Postgres::new(&url, Logic::Client)
                .expect("words")
                .until(&progress)
        };
        let role = log_in(password);
        let done =
            role.execute("INSERT INTO rows VALUES (1); UPDATE rows SET id = 2; DELETE FROM rows");
        done.expect("may");
        for sql in [
            "CREATE TEMP TABLE other (id int)",
            "CREATE TABLE other (id int)",
            "SELECT lo_create(0)",
            "SELECT lo_from_bytea(0, 'large')",
            "CREATE SCHEMA other",
            "TRUNCATE rows",
        ] {
            let error = role.execute(sql).expect_err(sql).to_string();
            assert!(error.contains("permission denied"), "{sql}: {error}");
        }
        assert!(log_in("other").execute("SELECT 1").is_err());
    }

    #[test]
    fn the_same_role_of_a_mariadb_is_the_only_one_that_comes_in_by_an_address() {
        let dir = tempfile::tempdir().expect("folder");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).expect("its user comes in");
        let at = Ports::default().draw([127, 0, 0, 1].into()).expect("free");
        let Ok(server) = MariaServer::at(&dir.path().join("m")) else {
            return;
        };
        let server = server.listening(Some(Door::new(at, Vec::new())));
        server.start(Some(Settings::default())).expect("starts");
        let owner = MariaDb::new(&server.url(DATABASE)).expect("a database");
        for statement in sql(Dialect::Mariadb, "0123abcd", &[at.ip()]) {
            owner.execute(&statement).expect("made");
        }
        owner.execute("CREATE TABLE rows_ (id int)").expect("made");
        let log_in = |user: &str| {
            let url = format!("mariadb://{user}@{at}/{DATABASE}?prefer_socket=false");
            MariaDb::new(&url).expect("words")
        };
        let role = log_in(&format!("{ROLE}:0123abcd"));
        for sql in ["INSERT INTO rows_ VALUES (1)", "DELETE FROM rows_"] {
            role.execute(sql).expect("may");
        }
        for sql in ["CREATE TABLE other (id int)", "DROP TABLE rows_"] {
            let error = role.execute(sql).expect_err(sql).to_string();
            assert!(error.contains("denied"), "{sql}: {error}");
        }
        for user in ["root", ROLE, "mysql"] {
            let error = log_in(user).execute("SELECT 1").expect_err(user);
            let error = error.to_string();
            assert!(
                error.contains("denied") || error.contains("not allowed"),
                "{user}: {error}"
            );
        }
        server.kill().expect("ends");
    }
}
