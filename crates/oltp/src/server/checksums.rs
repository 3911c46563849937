//! Data checksums: a page that was only written in part is found by them.

use ashlar_lab::LabError;

use super::Server;

impl Server {
    /// Gives every page of a stopped server a checksum, from now on, too.
    ///
    /// # Errors
    /// It runs, was not stopped in order, or PostgreSQL's own complaint.
    pub fn enable_checksums(&self) -> Result<(), LabError> {
        self.checksums("--enable").map(drop)
    }

    /// Reads every page of a stopped server and checks it.
    ///
    /// # Errors
    /// A failed check, with the first bad page; environment if it runs or was not stopped in order.
    pub fn check_checksums(&self) -> Result<(), LabError> {
        self.checksums("--check").map(drop).map_err(|error| {
            let text = error.to_string();
            let mut lines = text.lines();
            match lines.find(|line| line.contains("checksum verification failed in")) {
                Some(line) => LabError::check(line.trim()),
                None => error,
            }
        })
    }

    fn checksums(&self, what: &str) -> Result<String, LabError> {
        self.ours()?;
        let data = self.data().display().to_string();
        self.engine.run("pg_checksums", &[what, "-D", &data])
    }
}
