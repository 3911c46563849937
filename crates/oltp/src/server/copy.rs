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

/// Checks that two trees have the same files of the same sizes and times.
pub(super) fn same(one: &Path, other: &Path) -> Result<(), LabError> {
    let (left, right) = (files(one)?, files(other)?);
    let differs = left
        .iter()
        .find(|(path, what)| right.get(*path) != Some(what));
    let missing = right.keys().find(|path| !left.contains_key(*path));
    match differs.map(|(path, _)| path).or(missing) {
        None => Ok(()),
        Some(path) => Err(LabError::check(format!(
            "{}: {} is not as it was saved",
            other.display(),
            path.display()
        ))),
    }
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
            } else {
                let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
                found.insert(name, (about.len(), about.modified().ok()));
            }
        }
    }
    Ok(found)
}
