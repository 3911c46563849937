//! The PostgreSQL of an instance: what the service is told, and what is read of it in the end.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ashlar_lab::LabError;
use ashlar_node::model::CreateService;
use ashlar_oltp::server::{DATABASE, OWNER};
use ashlar_testbed::nodes::NODE;

use super::wrong;

pub(super) const SERVICE: &str = "pg";
/// In each node's own namespace.
pub(super) const PORT: u16 = 5432;

/// What it lies on, and where it is reached.
pub(super) struct Place {
    pub(super) volume: String,
    pub(super) mount: PathBuf,
    /// Each node's socket is in a folder of its name below.
    pub(super) run: PathBuf,
}

fn programs() -> Result<PathBuf, LabError> {
    ashlar_node::service::postgres().map_err(wrong)
}

/// A PostgreSQL whose node's clients are let in without a password: its network is the lab's own.
pub(super) fn postgres(place: &Place, set: &[String]) -> Result<CreateService, LabError> {
    let bin = programs()?;
    let quick = ashlar_node::service::quick_recovery(&bin);
    let bin = bin.display();
    let (db, run) = (place.mount.join("db"), place.run.display());
    let db = db.display();
    let settings: String = set.iter().map(|one| format!(" -c '{one}'")).collect();
    let start = format!(
        "test -s {db}/PG_VERSION || {{ {bin}/initdb -D {db} -U {OWNER} -k -E UTF8 --locale=C -A trust && \
         printf '{quick}' >> {db}/postgresql.conf && \
         echo 'host all all 0.0.0.0/0 trust' >> {db}/pg_hba.conf && \
         sync {db}/postgresql.conf {db}/pg_hba.conf; }} && \
         rm -f {db}/postmaster.pid {run}/${NODE}/.s.* && \
         exec {bin}/postgres -D {db} -p {PORT} -k {run}/${NODE} -c 'listen_addresses=*' \
         -c ashlar.epoch=$ASHLAR_EPOCH -c max_connections=120 -c external_pid_file={run}/${NODE}/pid{settings}"
    );
    let psql = format!("{bin}/psql -qXAt -h {run}/${NODE} -p {PORT} -U {OWNER} -d postgres -c");
    Ok(CreateService {
        name: SERVICE.into(),
        volumes: vec![place.volume.clone()],
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
    })
}

/// Has the server read all that it holds, and compare each block with its checksum; how many there are.
pub(super) fn verify(socket: &Path) -> Result<u64, LabError> {
    let bin = programs()?;
    let client = |program: &str, words: &[&str]| {
        let mut command = Command::new(bin.join(program));
        command.args(words).arg("-h").arg(socket);
        command.args(["-p", &PORT.to_string(), "-U", OWNER]);
        command.stdin(Stdio::null());
        command
    };
    let backup = ["-D", "-", "-F", "t", "-X", "none", "--no-manifest"];
    let read = client("pg_basebackup", &backup)
        .stdout(Stdio::null())
        .output();
    let read = read.map_err(|error| LabError::caused("pg_basebackup", error))?;
    if !read.status.success() {
        let said = String::from_utf8_lossy(&read.stderr);
        return Err(wrong(format!("pg_basebackup: {}", said.trim())));
    }
    let blocks = "select sum(pg_database_size(oid)) / 8192 from pg_database";
    let told = client("psql", &["-qXAt", "-d", "postgres", "-c", blocks]).output();
    let told = told.map_err(|error| LabError::caused("psql", error))?;
    let text = String::from_utf8_lossy(&told.stdout);
    let whole = text.trim().split('.').next().and_then(|n| n.parse().ok());
    whole.ok_or_else(|| wrong(format!("its size: {:?}", text.trim())))
}
