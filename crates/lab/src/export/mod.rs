//! A run in other tools' formats, and in full.

mod diskspd;
mod fio;
mod hlog;
mod latencies;
mod tables;

pub use latencies::{Interval, Latencies, LatencyLog};

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::runner::RunOutcome;
use crate::{Journal, LabError, ResultFile, scenario};

impl RunOutcome {
    /// Writes the run's directory: `result.json`, `sweep.toml` or `scenario.toml` (the
    /// scenario's text), `result.csv`, `series.csv`, `result.fio.json`, `result.diskspd.xml`,
    /// `latency.hlog`, `report.html`.
    pub fn write(&self, dir: &Path) -> Result<(), LabError> {
        check_out_dir(dir)?;
        let json = serde_json::to_string_pretty(&self.result)
            .map_err(|error| LabError::caused("result.json", error))?;
        let plan = match &self.source {
            Some(text) => ("scenario.toml", text.clone()),
            None => ("sweep.toml", scenario::ScenarioFile::of(&self.plan).text()?),
        };
        let files = [
            ("result.json", json + "\n"),
            plan,
            ("result.csv", tables::cells(&self.result)?),
            ("series.csv", tables::series(self)?),
            ("result.fio.json", fio::json(self)?),
            ("result.diskspd.xml", diskspd::xml(self)?),
            ("latency.hlog", hlog::log(self)?),
            ("report.html", self.result.html()?),
        ];
        files
            .iter()
            .try_for_each(|(name, text)| write(&dir.join(name), text))
    }
}

/// Makes `dir` and makes sure that it can be written to, before anything is measured.
///
/// # Errors
/// An environment error that names the directory.
pub fn check_out_dir(dir: &Path) -> Result<(), LabError> {
    let refuse = |error| LabError::caused(format!("output directory {}", dir.display()), error);
    std::fs::create_dir_all(dir).map_err(refuse)?;
    let probe = dir.join(".ashlar-lab-probe");
    std::fs::write(&probe, []).map_err(refuse)?;
    std::fs::remove_file(&probe).map_err(refuse)
}

/// The same of a run that has no journal. (One that has, begins with it.)
///
/// # Errors
/// A usage error, too, if something is there that the run would throw away.
pub fn new_out_dir(dir: &Path) -> Result<(), LabError> {
    Journal::refuse_used(dir)?;
    check_out_dir(dir)
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), LabError> {
    write_whole(path, text)
}

/// Writes a file that is either what it was or all of `text`, whatever ends this process, or the machine, meanwhile:
/// beside it first, under its name with `.new`, and in its place when it is on the storage.
///
/// # Errors
/// It cannot be written; what was there before is there.
pub fn write_whole(path: &Path, text: &str) -> Result<(), LabError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    let put = || {
        let mut file = File::create(new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(new, path)?;
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    put().map_err(|error| {
        // Half of it is of no use, and may be what fills the storage.
        let _ = std::fs::remove_file(new);
        LabError::caused(path.display(), error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_outlives_a_write_that_fails() {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("result.json");
        write_whole(&path, "first").expect("written");
        // A storage without room.
        std::os::unix::fs::symlink("/dev/full", dir.path().join("result.json.new"))
            .expect("linked");
        let error = write_whole(&path, "second").expect_err("no room");
        assert!(
            error.exit_code() == 3 && error.to_string().contains("result.json: "),
            "{error}"
        );
        let read = || std::fs::read_to_string(&path).expect("there");
        assert_eq!(read(), "first");
        write_whole(&path, "third").expect("written");
        assert_eq!(read(), "third");
        assert_eq!(
            std::fs::read_dir(dir.path()).expect("read").count(),
            1,
            "nothing else is left"
        );
    }
}
