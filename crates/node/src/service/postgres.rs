//! The PostgreSQL that is installed on this machine, and what a service has it do.

use std::path::{Path, PathBuf};

use crate::model::ControlError;

/// The programs of the newest version.
///
/// # Errors
/// Environment: there is none.
pub fn postgres() -> Result<PathBuf, ControlError> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let programs = versions
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists());
    programs.max_by_key(|bin| version(bin)).ok_or_else(|| {
        ControlError::environment(
            "--postgres: there is no PostgreSQL in /usr/lib/postgresql (Debian: postgresql)",
        )
    })
}

/// For `printf`, into the `postgresql.conf` of a new cluster: another node replays at most a minute, and does not open
/// each file of a volume that it has just mounted. Before 14, PostgreSQL knows no other way.
pub fn quick_recovery(programs: &Path) -> &'static str {
    match version(programs) {
        Some(14..) => "checkpoint_timeout = 1min\\nrecovery_init_sync_method = syncfs\\n",
        _ => "checkpoint_timeout = 1min\\n",
    }
}

fn version(programs: &Path) -> Option<u32> {
    programs.parent()?.file_name()?.to_str()?.parse().ok()
}
