//! Copies of a cluster: by reference where the file system can, so that a restore takes no time and
//! changes nothing about where the data lie.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use ashlar_lab::LabError;

/// Puts a copy of `from` in the place of `to`: whole, or not at all.
pub(super) fn replace(from: &Path, to: &Path) -> Result<(), LabError> {
    let fresh = to.with_extension("new");
    let caused = |path: &Path, e| LabError::caused(path.display(), e);
    if fresh.exists() {
        std::fs::remove_dir_all(&fresh).map_err(|e| caused(&fresh, e))?;
    }
    let copied = Command::new("cp")
        .args(["-a", "--reflink=auto", "--"])
        .arg(from)
        .arg(&fresh)
        .output()
        .map_err(|e| LabError::caused("cp", e))?;
    if !copied.status.success() {
        let complaint = String::from_utf8_lossy(&copied.stderr).trim().to_owned();
        // Half a copy is none.
        let _ = std::fs::remove_dir_all(&fresh);
        return Err(LabError::environment(complaint));
    }
    if to.exists() {
        std::fs::remove_dir_all(to).map_err(|e| caused(to, e))?;
    }
    std::fs::rename(&fresh, to).map_err(|e| caused(to, e))
}

/// Files of up to so many bytes are compared whole: what decides how all others are read is in them
/// (`pg_control`, maps of files, status of transactions). The rest would take as long as a copy.
const SMALL: u64 = 256 << 10;

/// Checks that two trees have the same files of the same sizes and times, and small ones of the same
/// contents.
///
/// # Errors
/// A failed check that names the first file that differs; environment errors for what cannot be read.
pub(super) fn same(one: &Path, other: &Path) -> Result<(), LabError> {
    let (left, right) = (files(one)?, files(other)?);
    let missing = right.keys().find(|path| !left.contains_key(*path));
    let mut differs = missing.cloned();
    for (path, about) in &left {
        if differs.is_some() {
            break;
        }
        let is_same = right.get(path) == Some(about)
            && (about.0 > SMALL || is_same(&one.join(path), &other.join(path))?);
        differs = (!is_same).then(|| path.clone());
    }
    match differs {
        None => Ok(()),
        Some(path) => Err(LabError::check(format!(
            "{}: {} is not as it was saved",
            other.display(),
            path.display()
        ))),
    }
}

/// Whether two small files, or links, are the same.
fn is_same(one: &Path, other: &Path) -> Result<bool, LabError> {
    let caused = |path: &Path, e| LabError::caused(path.display(), e);
    let read = |path: &Path| match std::fs::read_link(path) {
        Ok(target) => Ok(target.into_os_string().into_encoded_bytes()),
        Err(_) => std::fs::read(path).map_err(|e| caused(path, e)),
    };
    Ok(read(one)? == read(other)?)
}

type Files = BTreeMap<PathBuf, (u64, Option<std::time::SystemTime>)>;

fn files(root: &Path) -> Result<Files, LabError> {
    let caused = |path: &Path, e| LabError::caused(path.display(), e);
    let mut found = Files::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|e| caused(&folder, e))? {
            let path = entry.map_err(|e| caused(&folder, e))?.path();
            let about = std::fs::symlink_metadata(&path).map_err(|e| caused(&path, e))?;
            if about.is_dir() {
                folders.push(path);
            } else if about.is_file() || about.is_symlink() {
                let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
                found.insert(name, (about.len(), about.modified().ok()));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes};

    use super::*;

    /// Changes a file, and nothing that its size and time would tell.
    fn change(path: &Path, at: usize) {
        let when = fs::metadata(path)
            .expect("there")
            .modified()
            .expect("a time");
        let mut data = fs::read(path).expect("read");
        data[at] ^= 1;
        fs::write(path, data).expect("written");
        let file = File::options().write(true).open(path).expect("opened");
        file.set_times(FileTimes::new().set_modified(when))
            .expect("set");
    }

    #[test]
    fn what_is_not_as_it_was_saved_is_found() {
        let dir = tempfile::tempdir().expect("folder");
        let (data, saved) = (dir.path().join("data"), dir.path().join("saved"));
        fs::create_dir_all(data.join("global")).expect("made");
        fs::write(data.join("global/pg_control"), [7; 8192]).expect("written");
        fs::write(data.join("large"), vec![7; SMALL as usize + 1]).expect("written");
        std::os::unix::fs::symlink("nowhere", data.join("link")).expect("linked");
        let damages: [(&str, &dyn Fn()); 6] = [
            ("pg_control", &|| {
                change(&data.join("global/pg_control"), 5000)
            }),
            ("large", &|| {
                fs::write(data.join("large"), [7; 9]).expect("written")
            }),
            ("large", &|| {
                let file = File::options().write(true).open(data.join("large"));
                let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
                let times = FileTimes::new().set_modified(later);
                file.expect("opened").set_times(times).expect("set");
            }),
            ("large", &|| {
                fs::remove_file(data.join("large")).expect("removed")
            }),
            ("more", &|| {
                fs::write(data.join("more"), "x").expect("written")
            }),
            ("link", &|| {
                fs::remove_file(data.join("link")).expect("removed");
                std::os::unix::fs::symlink("another", data.join("link")).expect("linked");
            }),
        ];
        replace(&data, &saved).expect("saved");
        for (name, damage) in damages {
            assert_eq!(same(&saved, &data), Ok(()));
            damage();
            let error = same(&saved, &data).expect_err(name);
            assert!(
                error.exit_code() == 1 && error.to_string().contains(name),
                "{error}"
            );
            replace(&saved, &data).expect("put back");
        }
        assert_eq!(same(&saved, &data), Ok(()));
    }
}
