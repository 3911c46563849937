//! What a database is after a power cut.

use std::path::{Path, PathBuf};

use ashlar_lab::{LabError, Progress};
use ashlar_oltp::built;
use ashlar_oltp::check::check;
use ashlar_oltp::database::Database;

use super::load::ROWS;
use super::seed::{database, server_at, settings};

/// What a machine lacks, in the words of PostgreSQL and of the kernel: no database is broken by that. Whole
/// phrases, for what is searched also names files, folders and rows.
const LACKS: [&str; 13] = [
    "No space left on device",
    "Cannot allocate memory",
    "out of memory",
    "Too many open files",
    "signal 9",
    "could not create semaphores",
    "could not map anonymous shared memory",
    "could not create any TCP/IP sockets",
    "could not create any Unix-domain sockets",
    "could not create listen socket for",
    "no socket created for listening",
    "postmaster.pid\" already exists",
    ".lock\" already exists",
];
/// Class 53 of SQLSTATE: insufficient resources, as errors are told here.
const RESOURCES: &str = "[53";
/// What a server says that has come as far as reading what is there.
const HAS_READ: [&str; 5] = [
    "database system was ",
    "file \"",
    "control file",
    "directory",
    "PANIC",
];

/// Recovers the database below `mount`, and says what is wrong with it; nothing if nothing is.
/// `acknowledged` commits of the ledger must be there.
///
/// # Errors
/// What keeps it from being looked at, that has nothing to do with its data.
pub(super) fn complaint(
    mount: &Path,
    acknowledged: u64,
    progress: &Progress,
) -> Result<Option<String>, LabError> {
    let server = server_at(mount)?;
    let log = Log::of(mount);
    // PostgreSQL would wait five minutes for one that cannot start; it says so at once.
    if let Err(error) = server.start(Some(settings(false))) {
        // What is left of it, if anything.
        let _ = server.kill();
        return match is_of_data(&log.since()) {
            true => Ok(Some(format!("recovery fails: {}", shortened(&error)))),
            false => Err(error),
        };
    }
    let found =
        database(&server, progress).and_then(|database| inside(&database, acknowledged, progress));
    let stopped = server.stop();
    match found {
        Ok(Some(text)) => return Ok(Some(text)),
        Err(error) => return judged("it cannot be read", error, &log),
        Ok(None) => {}
    }
    if let Err(error) = stopped {
        return judged("it does not stop", error, &log);
    }
    match server.check_checksums() {
        Ok(()) => Ok(None),
        Err(LabError::Check(text)) => Ok(Some(text)),
        Err(error) => Err(error),
    }
}

/// A complaint about a database that was started, unless the machine is to blame.
fn judged(what: &str, error: LabError, log: &Log) -> Result<Option<String>, LabError> {
    let told = error.to_string();
    if is_lack(&told) || told.contains(RESOURCES) || tells_a_lack(&log.since()) {
        return Err(error);
    }
    Ok(Some(format!("{what}: {}", shortened(&error))))
}

pub(super) fn is_lack(text: &str) -> bool {
    LACKS.iter().any(|lack| text.contains(lack))
}

/// Whether what went wrong, by a server's log, was that something is lacking.
fn tells_a_lack(said: &str) -> bool {
    let failures = ["FATAL", "PANIC", "could not", "signal", "exit code"];
    let is_failure = |line: &&str| failures.iter().any(|word| line.contains(word));
    said.lines().filter(is_failure).any(is_lack)
}

/// Whether a server that could not be started failed by what it read, and not by what the machine lacks.
fn is_of_data(said: &str) -> bool {
    !tells_a_lack(said) && HAS_READ.iter().any(|word| said.contains(word))
}

/// A server's log, from a moment on.
struct Log {
    file: PathBuf,
    from: usize,
}

impl Log {
    fn of(mount: &Path) -> Self {
        let file = mount.join("db/server.log");
        let from = std::fs::metadata(&file).map_or(0, |found| found.len() as usize);
        Self { file, from }
    }

    /// What was added since then.
    fn since(&self) -> String {
        let all = std::fs::read(&self.file).unwrap_or_default();
        String::from_utf8_lossy(all.get(self.from..).unwrap_or_default()).into_owned()
    }
}

/// Acknowledged commits, rows, conditions 1 to 12.
fn inside(
    database: &dyn Database,
    acknowledged: u64,
    progress: &Progress,
) -> Result<Option<String>, LabError> {
    let mut watcher = database.watcher()?;
    let sql = format!("SELECT count(*) FROM ashlar_ledger WHERE n <= {acknowledged}");
    let found = watcher.number(&sql)?;
    if u64::try_from(found) != Ok(acknowledged) {
        let text = format!("{acknowledged} commits were acknowledged, {found} are there");
        return Ok(Some(text));
    }
    let rows = watcher.number("SELECT count(*) FROM ashlar_pages")?;
    if rows != i64::from(ROWS) {
        return Ok(Some(format!("ashlar_pages has {rows} rows, not {ROWS}")));
    }
    let marker = built(database)?;
    Ok(check(watcher.as_mut(), &marker.shape, progress)?.complaint())
}

/// The end of a long text is what PostgreSQL says last.
fn shortened(error: &LabError) -> String {
    let text = error.to_string();
    match text.split_once("server.log says: ") {
        Some((_, said)) => said.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_lacks_something_breaks_no_database() {
        let begun =
            "LOG:  starting PostgreSQL 15.8\nLOG:  listening on Unix socket \"/x/.s.PGSQL.5432\"\n";
        let recovers =
            format!("{begun}LOG:  database system was interrupted; last known up at 2026\n");
        for (said, expected) in [
            (
                format!("{recovers}PANIC:  could not locate a valid checkpoint record\n"),
                true,
            ),
            (
                format!("{recovers}FATAL:  invalid page in block 3 of relation base/5/1259\n"),
                true,
            ),
            (
                "FATAL:  incorrect checksum in control file\n".to_owned(),
                true,
            ),
            (
                "PANIC:  could not read file \"global/pg_control\": read 0 of 296\n".to_owned(),
                true,
            ),
            (
                format!(
                    "{recovers}FATAL:  could not extend file \"base/5/1\": No space left on device\n"
                ),
                false,
            ),
            (
                format!("{recovers}LOG:  startup process was terminated by signal 9: Killed\n"),
                false,
            ),
            (
                format!(
                    "{recovers}LOG:  startup process was terminated by signal 11: Segmentation\n"
                ),
                true,
            ),
            (
                "FATAL:  could not map anonymous shared memory: Cannot allocate memory\n"
                    .to_owned(),
                false,
            ),
            (
                "FATAL:  could not create any Unix-domain sockets\n".to_owned(),
                false,
            ),
            (
                "FATAL:  lock file \"postmaster.pid\" already exists\n".to_owned(),
                false,
            ),
            (
                "FATAL:  could not create semaphores: No space left\n".to_owned(),
                false,
            ),
            (
                "FATAL:  lock file \"/tmp/.s.PGSQL.5432.lock\" already exists\n".to_owned(),
                false,
            ),
            (
                format!("{recovers}PANIC:  could not open file \"/x/sockets/db/pg_wal/1\"\n"),
                true,
            ),
            // It has not come so far, and its log does not say why.
            (begun.to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(is_of_data(&said), expected, "{said}");
        }
    }

    #[test]
    fn a_database_that_cannot_be_asked_for_want_of_memory_is_not_broken() {
        let dir = tempfile::tempdir().expect("folder");
        std::fs::create_dir(dir.path().join("db")).expect("made");
        let file = dir.path().join("db/server.log");
        std::fs::write(
            &file,
            "LOG:  process was terminated by signal 9: long ago\n",
        )
        .expect("written");
        let log = Log::of(dir.path());
        let of = |text: &str| judged("it cannot be read", LabError::environment(text), &log);
        std::fs::write(
            &file,
            [
                &std::fs::read(&file).expect("read")[..],
                b"LOG:  listening on Unix socket\n",
            ]
            .concat(),
        )
        .expect("written");
        assert!(of("invalid page in block 7 [XX001]").is_ok_and(|found| found.is_some()));
        for said in [
            "/x/sockets/.s.PGSQL.5432: invalid page in block 7 [XX001]",
            "could not create unique index: Key (a)=(1) already exists [23505]",
        ] {
            let found = of(said).expect("a complaint");
            assert!(found.is_some(), "{said}");
        }
        assert!(of("sorry [53300]").is_err());
        assert!(of("out of memory [53200]").is_err());
        let mut more = std::fs::read(&file).expect("read");
        more.extend(b"LOG:  server process was terminated by signal 9: Killed\n");
        std::fs::write(&file, more).expect("written");
        assert!(of("connection closed").is_err());
    }
}
