//! Images of a node's drives, as an operator copies them: put aside while the node is down, and put back later.

use std::path::PathBuf;
use std::process::Command;

use ashlar_lab::LabError;

use super::Nodes;

impl Nodes {
    fn image(&self, name: &str, number: u32) -> PathBuf {
        self.dir.join(name).join(format!("image-{number}"))
    }

    /// Copies the drives of a node that does not run.
    ///
    /// # Errors
    /// They cannot be copied.
    pub fn keep_image(&self, name: &str) -> Result<(), LabError> {
        for number in 0..self.drives {
            let (from, to) = (self.drive(name, number), self.image(name, number));
            // The files have holes, which a plain copy would fill.
            let copied = Command::new("cp")
                .arg("--sparse=always")
                .args([&from, &to])
                .status();
            let copied = copied.map_err(|error| LabError::caused("cp", error))?;
            if !copied.success() {
                let from = from.display();
                return Err(LabError::environment(format!(
                    "{from} cannot be copied: {copied}"
                )));
            }
        }
        Ok(())
    }

    /// Puts that copy in the place of the drives.
    ///
    /// # Errors
    /// There is none, or it cannot be moved.
    pub fn restore_image(&self, name: &str) -> Result<(), LabError> {
        for number in 0..self.drives {
            let (from, to) = (self.image(name, number), self.drive(name, number));
            std::fs::rename(&from, &to).map_err(|error| LabError::caused(from.display(), error))?;
        }
        Ok(())
    }

    /// Whether a node has said that its pool is an older image of itself.
    ///
    /// # Errors
    /// It does not answer.
    pub fn knows_old_image(&self, name: &str) -> Result<bool, LabError> {
        let events = self.client(name)?.events(0);
        let events = events.map_err(|error| LabError::caused(format!("node {name}"), error))?;
        Ok(events.iter().any(|event| event.kind == "old_image"))
    }
}
