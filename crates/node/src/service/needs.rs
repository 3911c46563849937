//! Programs that a service needs, looked for when it is made: a node that takes over is too late to say that one is missing.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::model::{ControlError, CreateService};

/// Where `attach` looks for administrators' programs.
const FOLDERS: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// A program that is not there.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    program: String,
    package: &'static str,
    what_for: String,
}

/// Whether this node has the programs that a service needs.
///
/// # Errors
/// Environment: one is missing.
pub(super) fn check(service: &CreateService) -> Result<(), ControlError> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    missing(service, &path, OsStr::new(FOLDERS)).map_or(Ok(()), |missing| {
        let Missing {
            program,
            package,
            what_for,
        } = missing;
        Err(ControlError::environment(format!(
            "service {}: {program} is not installed (package {package}), which is needed for {what_for}",
            service.name
        )))
    })
}

fn missing(service: &CreateService, path: &OsStr, folders: &OsStr) -> Option<Missing> {
    let user = service.user.as_ref().map(|user| Missing {
        program: "setpriv".into(),
        package: "util-linux",
        what_for: format!("user {user}"),
    });
    let file_system = service.file_system.as_ref().map(|kind| Missing {
        program: format!("mkfs.{kind}"),
        package: match kind.as_str() {
            "ext4" => "e2fsprogs",
            _ => "xfsprogs",
        },
        what_for: format!("file system {kind}"),
    });
    // The service's own shell looks by its path, the program that attaches does not.
    let user = user.filter(|one| !is_in(path, &one.program));
    user.or_else(|| file_system.filter(|one| !is_in(folders, &one.program)))
}

fn is_in(path: &OsStr, program: &str) -> bool {
    let mut places = std::env::split_paths(path).map(|folder: PathBuf| folder.join(program));
    places.any(|place| place.is_file())
}
