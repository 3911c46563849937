//! The PostgreSQL of an instance: what the service is told, and what is read of it in the end.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use ashlar_lab::LabError;
use ashlar_node::model::CreateService;
use ashlar_oltp::server::{DATABASE, OWNER};
pub(super) use ashlar_testbed::instance::SERVICE;
use ashlar_testbed::nodes::NODE;

use super::wrong;

/// In each node's own namespace.
pub(super) const PORT: u16 = 5432;

/// What it lies on, and where it is reached; the same on each node, but for what a node's environment says.
pub(super) struct Place {
    /// PostgreSQL's programs.
    pub(super) programs: PathBuf,
    pub(super) mount: PathBuf,
    /// Each node's socket is in a folder of its name below.
    pub(super) run: PathBuf,
    /// At which addresses it listens, and at which port, as a shell reads it.
    pub(super) listen: String,
    pub(super) port: String,
    /// A file with the password that all need who come in; without one the network is the lab's own.
    pub(super) password: Option<PathBuf>,
}

pub(super) fn programs() -> Result<PathBuf, LabError> {
    ashlar_node::service::postgres().map_err(wrong)
}

/// A PostgreSQL on the volume.
pub(super) fn postgres(place: &Place, volume: &str, set: &[String]) -> CreateService {
    let quick = ashlar_node::service::quick_recovery(&place.programs);
    let bin = place.programs.display();
    let (db, run) = (place.mount.join("db"), place.run.display());
    let (db, Place { listen, port, .. }) = (db.display(), place);
    let settings: String = set.iter().map(|one| format!(" -c '{one}'")).collect();
    let (auth, method, with_password) = match &place.password {
        None => ("-A trust".to_owned(), "trust", String::new()),
        Some(file) => {
            let (file, method) = (file.display(), "scram-sha-256");
            let auth = format!("-A {method} --pwfile={file}");
            (auth, method, format!("PGPASSWORD=$(cat {file}) "))
        }
    };
    let lets_in = |who: &str| format!("echo 'host {who} {method}' >> {db}/pg_hba.conf && ");
    let lets_in = [
        "all all 0.0.0.0/0",
        "all all ::/0",
        "replication all 0.0.0.0/0",
        "replication all ::/0",
    ]
    .map(lets_in)
    .concat();
    let start = format!(
        "test -s {db}/PG_VERSION || {{ {bin}/initdb -D {db} -U {OWNER} -k -E UTF8 --locale=C {auth} && \
         printf '{quick}' >> {db}/postgresql.conf && {lets_in}\
         sync {db}/postgresql.conf {db}/pg_hba.conf; }} && \
         rm -f {db}/postmaster.pid {run}/${NODE}/.s.* && \
         exec {bin}/postgres -D {db} -p {port} -k {run}/${NODE} -c \"listen_addresses={listen}\" \
         -c ashlar.epoch=$ASHLAR_EPOCH -c max_connections=120 -c external_pid_file={run}/${NODE}/pid{settings}"
    );
    let psql = format!(
        "{with_password}{bin}/psql -qXAt -h {run}/${NODE} -p {port} -U {OWNER} -d postgres -c"
    );
    CreateService {
        name: SERVICE.into(),
        volumes: vec![volume.to_owned()],
        mounts: vec![place.mount.clone()],
        user: Some("postgres".into()),
        start,
        drain: Some(format!("{psql} checkpoint -c checkpoint")),
        stop: Some(format!("{bin}/pg_ctl -D {db} -W -m fast stop")),
        ready: Some(format!(
            "{psql} \"select 1 from pg_database where datname = '{DATABASE}'\" | grep -q 1 || \
             {psql} 'create database {DATABASE}'"
        )),
        file_system: Some("xfs".into()),
        address: None,
    }
}

/// Has the server that this leads to read all that it holds, and compare each block with its checksum; how many there are.
/// A password is not in the URL: words of a command are seen by all.
pub(super) fn verify(url: &str, password: Option<&str>) -> Result<u64, LabError> {
    let bin = programs()?;
    let client = |program: &str, words: &[&str]| {
        let mut command = Command::new(bin.join(program));
        command.args(words).args(["-d", url]).stdin(Stdio::null());
        command.envs(password.map(|password| ("PGPASSWORD", password)));
        command
    };
    let backup = ["-D", "-", "-F", "t", "-X", "none", "--no-manifest"];
    let read = client("pg_basebackup", &backup)
        .stdout(Stdio::null())
        .output();
    let read = read.map_err(|error| LabError::caused("pg_basebackup", error))?;
    if !read.status.success() {
        let said = String::from_utf8_lossy(&read.stderr);
        return Err(refused(said.trim()));
    }
    let blocks = "select sum(pg_database_size(oid)) / 8192 from pg_database";
    let told = client("psql", &["-qXAt", "-c", blocks]).output();
    let told = told.map_err(|error| LabError::caused("psql", error))?;
    let text = String::from_utf8_lossy(&told.stdout);
    let whole = text.trim().split('.').next().and_then(|n| n.parse().ok());
    whole.ok_or_else(|| wrong(format!("its size: {:?}", text.trim())))
}

/// What pg_basebackup has said that failed: a block that does not match is damage, anything else trouble on the way.
fn refused(said: &str) -> LabError {
    let said = format!("pg_basebackup: {said}");
    match said.contains("checksum verification failed") || said.contains("checksum error") {
        true => LabError::check(said),
        false => wrong(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_does_not_match_is_a_failed_check() {
        let damage = "WARNING:  checksum verification failed in file \"./base/5/1\", block 3: calculated 1 but \
                      expected 2\npg_basebackup: error: checksum error occurred";
        assert_eq!(refused(damage).exit_code(), 1);
        let gone = "pg_basebackup: error: connection to server on socket failed";
        assert_eq!(refused(gone).exit_code(), 3);
    }
}
