//! A new folder for a run's files and servers, removed with everything in it at the end. Only a folder that was not
//! there before is ever removed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::LabError;

/// What the names of such folders begin with.
const PREFIX: &str = "ashlar-";

#[derive(Debug)]
pub struct OwnFolder(PathBuf);

impl OwnFolder {
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
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
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
