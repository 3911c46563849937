//! A file that names the association in use, for a process that takes over when this one dies.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ashlar_block::{ErrorKind, IoError};

use crate::controller::Instance;

/// The file, open: writing into it again takes no space.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    /// Who was named in it when it was opened.
    pub(super) predecessor: Option<Instance>,
}

impl Record {
    /// Opens it, or makes an empty one.
    pub(super) fn open(path: &Path) -> Result<Self, IoError> {
        Self::try_open(path).map_err(|error| {
            let what = format!("{}: {error}", path.display());
            IoError::new(ErrorKind::NotSent, what)
        })
    }

    fn try_open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        if text.is_empty() {
            // Now, and not when it is needed, the disk may be full.
            file.write_all_at(&[b' '; Instance::TEXT_BYTES], 0)?;
        }
        let predecessor = match text.trim() {
            "" => None,
            named => Some(named.parse().map_err(io::Error::other)?),
        };
        Ok(Self { file, predecessor })
    }

    /// Names an association. It need not be durable: it does not outlive the machine's run.
    pub(super) fn write(&self, instance: Instance) -> io::Result<()> {
        self.file.write_all_at(instance.to_string().as_bytes(), 0)
    }
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
        let record = Record::open(&path).expect("a new file");
        assert_eq!(record.predecessor, None);
        assert_eq!(Record::open(&path).expect("again").predecessor, None);
        for number in [u64::MAX, 1] {
            let instance = Instance {
                cntlid: 0xFFEF,
                uniquifier: 7,
                number,
            };
            record.write(instance).expect("write");
            let record = Record::open(&path).expect("open");
            assert_eq!(record.predecessor, Some(instance));
        }
        std::fs::remove_file(&path).expect("clean up");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let path = scratch("damaged");
        std::fs::write(&path, "ffef 07 12").expect("write");
        let error = Record::open(&path).expect_err("damaged");
        assert!(error.to_string().contains("ashlar-record"), "{error}");
        std::fs::remove_file(&path).expect("clean up");
    }
}
