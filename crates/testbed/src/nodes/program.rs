//! The program that a node is started from: the one that has made the cluster, until the node is upgraded; and what it
//! may speak with others.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ashlar_lab::LabError;

use super::{Nodes, Seat, remove};
use crate::process::own_program;

impl Nodes {
    /// Where it is written down for the next start of the node.
    fn program_link(&self, name: &str) -> PathBuf {
        self.folder(&Seat::node(name)).join("program")
    }

    pub(super) fn program(&self, name: &str) -> Result<PathBuf, LabError> {
        let link = self.program_link(name);
        match std::fs::read_link(&link) {
            Ok(program) => Ok(program),
            Err(error) if error.kind() == ErrorKind::NotFound => own_program(),
            Err(error) => Err(LabError::caused(link.display(), error)),
        }
    }

    /// From the next start on a node is this program.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn set_program(&self, name: &str, program: &Path) -> Result<(), LabError> {
        let link = self.program_link(name);
        remove(std::fs::remove_file(&link), &link)?;
        symlink(program, &link).map_err(|error| LabError::caused(link.display(), error))
    }

    /// Where it is written down what a node may speak with others at the most.
    fn protocol_file(&self, name: &str) -> PathBuf {
        self.folder(&Seat::node(name)).join("protocol")
    }

    /// What a node is told of the protocol between nodes.
    pub(super) fn protocol(&self, name: &str) -> Result<Option<String>, LabError> {
        let file = self.protocol_file(name);
        match std::fs::read_to_string(&file) {
            Ok(newest) => Ok(Some(newest)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LabError::caused(file.display(), error)),
        }
    }

    /// From the next start on a node speaks nothing newer with others than this, or all that its program speaks.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn set_protocol(&self, name: &str, newest: Option<u16>) -> Result<(), LabError> {
        let file = self.protocol_file(name);
        match newest {
            Some(newest) => std::fs::write(&file, newest.to_string())
                .map_err(|error| LabError::caused(file.display(), error)),
            None => remove(std::fs::remove_file(&file), &file),
        }
    }

    /// Whether all that runs of a node, and is not its mounts' or another program's, is this program.
    pub fn runs(&self, name: &str, program: &Path) -> bool {
        let all = self.processes(&Seat::node(name));
        let of = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let mut programs = all.iter().filter_map(of).peekable();
        programs.peek().is_some() && programs.all(|one| one == program)
    }
}
