//! A file that names the association in use, for a process that takes over when this one dies.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ashlar_block::{ErrorKind, IoError};

use crate::controller::Instance;

/// Instead of a name, where a path has had no association.
const NOBODY: &str = "-";
/// What a line has, filled up with blanks.
const LINE_BYTES: usize = Instance::TEXT_BYTES;

/// The file, open: a line a path. Writing into it again takes no space.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    /// Who was named in it when it was opened, a path each.
    pub(super) predecessors: Vec<Option<Instance>>,
}

impl Record {
    /// Opens it, or makes one of so many `paths` that names none.
    pub(super) fn open(path: &Path, paths: usize) -> Result<Self, IoError> {
        Self::try_open(path, paths).map_err(|error| {
            let what = format!("{}: {error}", path.display());
            IoError::new(ErrorKind::NotSent, what)
        })
    }

    fn try_open(path: &Path, paths: usize) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        if text.is_empty() {
            text = format(&vec![None; paths]);
            // Now, and not when it is needed, the disk may be full.
            file.write_all_at(text.as_bytes(), 0)?;
        }
        let predecessors = parse(&text).map_err(io::Error::other)?;
        if predecessors.len() != paths {
            let had = predecessors.len();
            let why = format!("it is of a device of {had} paths, this one has {paths}");
            return Err(io::Error::other(why));
        }
        Ok(Self { file, predecessors })
    }

    /// Names the association of each path. It need not be durable: it does not outlive the machine's run.
    pub(super) fn write(&self, instances: &[Option<Instance>]) -> io::Result<()> {
        self.file.write_all_at(format(instances).as_bytes(), 0)
    }
}

fn format(instances: &[Option<Instance>]) -> String {
    let line = |instance: &Option<Instance>| {
        let name = instance.map_or(NOBODY.to_owned(), |instance| instance.to_string());
        format!("{name:LINE_BYTES$}\n")
    };
    instances.iter().map(line).collect()
}

fn parse(text: &str) -> Result<Vec<Option<Instance>>, String> {
    let name = |line: &str| match line.trim() {
        "" | NOBODY => Ok(None),
        named => named.parse().map(Some),
    };
    text.lines().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let name = format!("ashlar-record-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn the_last_one_named_is_the_predecessor() {
        let path = scratch("last");
        let record = Record::open(&path, 2).expect("a new file");
        assert_eq!(record.predecessors, [None, None]);
        let again = Record::open(&path, 2).expect("again");
        assert_eq!(again.predecessors, [None, None]);
        for number in [u64::MAX, 1] {
            let instance = Instance {
                cntlid: 0xFFEF,
                uniquifier: 7,
                number,
            };
            record.write(&[None, Some(instance)]).expect("write");
            let record = Record::open(&path, 2).expect("open");
            assert_eq!(record.predecessors, [None, Some(instance)]);
        }
        let error = Record::open(&path, 1).expect_err("another device's");
        assert!(error.to_string().contains("2 paths"), "{error}");
        std::fs::remove_file(&path).expect("clean up");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let path = scratch("damaged");
        std::fs::write(&path, "ffef 07 12").expect("write");
        let error = Record::open(&path, 1).expect_err("damaged");
        assert!(error.to_string().contains("ashlar-record"), "{error}");
        std::fs::remove_file(&path).expect("clean up");
    }
}
