//! What a database is after a power cut.

use std::path::Path;

use ashlar_lab::{LabError, Progress};
use ashlar_oltp::built;
use ashlar_oltp::check::check;
use ashlar_oltp::database::Database;

use super::load::ROWS;
use super::seed::{database, server_at, settings};

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
    // PostgreSQL would wait five minutes for one that cannot start; it says so at once.
    if let Err(error) = server.start(Some(settings(false))) {
        // What is left of it, if anything.
        let _ = server.kill();
        return Ok(Some(format!("recovery fails: {}", shortened(&error))));
    }
    let found = database(&server).and_then(|database| inside(&database, acknowledged, progress));
    let stopped = server.stop();
    match found {
        Ok(Some(text)) => return Ok(Some(text)),
        Err(error) => return Ok(Some(format!("it cannot be read: {}", shortened(&error)))),
        Ok(None) => {}
    }
    if let Err(error) = stopped {
        return Ok(Some(format!("it does not stop: {}", shortened(&error))));
    }
    match server.check_checksums() {
        Ok(()) => Ok(None),
        Err(LabError::Check(text)) => Ok(Some(text)),
        Err(error) => Err(error),
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
