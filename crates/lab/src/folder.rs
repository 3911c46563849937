//! A new folder for a run's files and servers, removed with everything in it at the end. Only a folder that was not
//! there before is ever removed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::LabError;

/// What the names of such folders begin with.
const PREFIX: &str = "ashlar-";
/// The longest path of a unix socket, in bytes.
pub const LONGEST_SOCKET: usize = 107;

/// Refuses a directory below which sockets would have too long paths, before anything is made there: its own path may
/// have `most` bytes.
///
/// # Errors
/// A usage error that names the directory, how long its path is, and how long it may be.
pub fn check_length(dir: &Path, most: usize) -> Result<(), LabError> {
    let whole = whole(dir);
    let has = whole.as_os_str().len();
    if has <= most {
        return Ok(());
    }
    Err(LabError::usage(format!(
        "{}: its path has {has} bytes, and may have {most} at most: there are unix sockets below it, whose paths have at \
         most {LONGEST_SOCKET}",
        whole.display()
    )))
}

/// As the kernel names it, or will when it is made.
fn whole(dir: &Path) -> PathBuf {
    if let Ok(known) = dir.canonicalize() {
        return known;
    }
    match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => {
            whole(Path::new(".")).join(name)
        }
        (Some(parent), Some(name)) => whole(parent).join(name),
        _ => dir.to_owned(),
    }
}

#[derive(Debug)]
pub struct OwnFolder(PathBuf);

impl OwnFolder {
    /// How long the name of one is at most, in bytes: no process has a larger number than 4,194,304.
    pub const LONGEST_NAME: usize = PREFIX.len() + "4194304-999".len();

    /// Makes one below `base`, which is made if it is not there.
    ///
    /// # Errors
    /// An environment error that names the folder.
    pub fn make(base: &Path) -> Result<Self, LabError> {
        let refuse = |error| LabError::caused(format!("folder {}", base.display()), error);
        std::fs::create_dir_all(base).map_err(refuse)?;
        let base = base.canonicalize().map_err(refuse)?;
        for number in 0..1000 {
            let path = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    // A server that runs as another user must get in.
                    let open = std::fs::Permissions::from_mode(0o755);
                    std::fs::set_permissions(&path, open).map_err(refuse)?;
                    return Ok(Self(path));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(refuse(error)),
            }
        }
        let base = base.display();
        Err(LabError::environment(format!(
            "folder {base}: too many old runs"
        )))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// It stays, with everything in it.
    pub fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // One that is kept has no path any more: there is nothing of this name.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes folders that a run made, which was killed before it could.
///
/// # Errors
/// An environment error that names what cannot be removed.
pub fn remove_left(folders: &[PathBuf]) -> Result<(), LabError> {
    for folder in folders {
        let is_one = folder
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if is_one && folder.is_dir() {
            std::fs::remove_dir_all(folder)
                .map_err(|error| LabError::caused(folder.display(), error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_unless_it_is_kept() {
        let base = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let make = || OwnFolder::make(base.path()).expect("a folder");
        let gone = make().path().to_owned();
        let kept = make().keep();
        assert!(!gone.exists() || gone == kept);
        std::fs::write(kept.join("file"), "").expect("it is there");
    }

    #[test]
    fn a_path_that_is_too_long_is_refused_before_it_is_there() {
        let base = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let has = base.path().as_os_str().len();
        let name = base.path().file_name().expect("a name");
        assert!(name.len() <= OwnFolder::LONGEST_NAME);
        let (dir, link) = (base.path().join("far/away"), base.path().join("link"));
        assert_eq!(check_length(&dir, has + 9), Ok(()));
        let refused = check_length(&dir, has + 8).expect_err("a byte more");
        assert_eq!(refused.exit_code(), 2);
        let said = refused.to_string();
        assert!(
            said.contains("far/away") && said.contains(&format!("may have {}", has + 8)),
            "{said}"
        );
        // What counts is where it leads.
        std::fs::create_dir_all(&dir).expect("made");
        std::os::unix::fs::symlink(&dir, &link).expect("a link");
        assert!(check_length(&link.join("b"), has + 10).is_err());
    }
}
