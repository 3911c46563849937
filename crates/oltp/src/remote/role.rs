//! Who agents log in as, and what that may do.

use postgres_protocol::password::scram_sha_256;

use crate::server::DATABASE;

/// Who agents log in as.
pub(crate) const ROLE: &str = "ashlar_client";

/// Makes it, in an empty database. The server is told what it checks the password by: a statement may be in its log.
pub(super) fn sql(password: &str) -> String {
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
        let made = sql(password);
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
}
