use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::problem::Problem;

fn failed(path: &Path, what: &str, error: &std::io::Error) -> Problem {
    Problem::environment(format!("{} {what}: {error}", path.display()))
}

/// Writes a file that is its owner's alone, durably and as a whole. Its folder is made if it is not there.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Problem> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| failed(folder, "cannot be made", &error))?;
    let new = path.with_extension("new");
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error: std::io::Error| failed(path, "cannot be written", &error))
}

/// Reads a file that must be its owner's alone.
pub(crate) fn read_private(path: &Path) -> Result<String, Problem> {
    let cannot = |error: std::io::Error| failed(path, "cannot be read", &error);
    let mode = std::fs::metadata(path)
        .map_err(cannot)?
        .permissions()
        .mode()
        & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Problem::environment(format!(
            "{} has mode {mode:04o}: others may use it; `chmod 600` it, and have this node leave and join again if \
             they may have",
            path.display()
        )));
    }
    std::fs::read_to_string(path).map_err(cannot)
}
