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

/// A line of shell that makes a new cluster in `db` below a mount point, with its log in `pg_wal` below another, if it
/// is not there. It has its name when it is whole: what was killed on the way is made anew. A log beside which no
/// cluster was begun is another's, and kept.
pub fn make_cluster(programs: &Path, mount: &Path, log: Option<&Path>) -> String {
    let (bin, quick) = (programs.display(), quick_recovery(programs));
    let (db, new) = (mount.join("db"), mount.join("db.new"));
    let (mount, db, new) = (mount.display(), db.display(), new.display());
    let log = log.map(|log| log.join("pg_wal"));
    let log = log.as_ref().map(|log| log.display());
    let (is_ours, remove, options) = match log {
        Some(log) => (
            format!("{{ test -e {new} || test ! -e {log} || rmdir {log}; }} && "),
            format!("rm -rf {log} {new}"),
            format!(" --waldir={log}"),
        ),
        None => (String::new(), format!("rm -rf {new}"), String::new()),
    };
    format!(
        "test -s {db}/PG_VERSION || {{ {is_ours}{remove} && \
         {bin}/initdb -D {new}{options} -k -E UTF8 --locale=C.UTF-8 -A peer && \
         printf '{quick}' >> {new}/postgresql.conf && sync {new}/postgresql.conf && \
         mv -T {new} {db} && sync {mount}; }}"
    )
}

fn version(programs: &Path) -> Option<u32> {
    programs.parent()?.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    /// As `initdb` does it: it says the version first, and the rest takes a while. It makes nothing where something is.
    const INITDB: &str = r#"#!/bin/sh
log=${3#--waldir=}
test ! -e "$2" && test ! -e "$log" || exit 1
mkdir "$2" "$log" && echo 14 > "$2/PG_VERSION" && echo > "$log/1" || exit 1
test ! -e ${0%/*}/kill || kill -9 $$
echo > "$2/postgresql.conf"
"#;

    #[test]
    fn a_cluster_whose_making_was_killed_is_made_anew_and_the_log_of_another_is_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        let make = |name: &str| std::fs::create_dir(at(name)).expect("made");
        ["bin", "data", "log"].into_iter().for_each(make);
        std::fs::write(at("bin/initdb"), INITDB).expect("written");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(at("bin/initdb"), executable).expect("set");
        let line = make_cluster(&at("bin"), &at("data"), Some(&at("log")));
        let run = || {
            let made = Command::new("sh").args(["-c", &line]).status();
            made.expect("there is a shell").success()
        };
        make("log/pg_wal");
        std::fs::write(at("log/pg_wal/1"), "another's").expect("written");
        assert!(!run() && at("log/pg_wal/1").exists());
        std::fs::remove_dir_all(at("log/pg_wal")).expect("removed");
        std::fs::write(at("bin/kill"), "").expect("written");
        for _ in 0..2 {
            assert!(!run() && !at("data/db").exists());
        }
        std::fs::remove_file(at("bin/kill")).expect("removed");
        for _ in 0..2 {
            assert!(run() && !at("data/db.new").exists());
            let settings = std::fs::read_to_string(at("data/db/postgresql.conf"));
            let settings = settings.expect("it has settings");
            assert_eq!(settings.matches("checkpoint_timeout").count(), 1);
        }
    }
}
