//! A file that names the association in use, for a process that takes over when this one dies.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ashlar_block::{ErrorKind, IoError};

use crate::controller::Instance;
use crate::reconnect::{MOST_PORTALS, PathInstance};

/// Instead of a name, where a path has had no association.
const NO_NAME: &str = "-";
/// What a line has, filled up with blanks: a name, a blank, a portal.
const LINE_BYTES: usize = Instance::TEXT_BYTES + 1 + PORTAL_BYTES;
/// The longest name of a host, and a port.
const PORTAL_BYTES: usize = 253 + 6;

/// The portals of the paths that a file of this kind names.
///
/// # Errors
/// Names the file: it cannot be read or made, or holds something else.
pub fn recorded_portals(file: &Path) -> Result<Vec<String>, IoError> {
    let named = Record::open(file)?.predecessors;
    Ok(named.into_iter().map(|one| one.address).collect())
}

/// The file, open: a line a path. It has room for as many as there may be: writing into it again takes no space.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    /// The paths that were named in it when it was opened.
    pub(super) predecessors: Vec<PathInstance>,
}

impl Record {
    /// Opens it, or makes one that names none.
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
            text = format(&[])?;
            // Now, and not when it is needed, the disk may be full.
            file.write_all_at(text.as_bytes(), 0)?;
        }
        let predecessors = parse(&text).map_err(io::Error::other)?;
        Ok(Self { file, predecessors })
    }

    /// Whether there is room for these portals.
    pub(super) fn check(&self, portals: &[&str]) -> Result<(), IoError> {
        let path = |address: &&str| PathInstance {
            address: (*address).to_owned(),
            instance: None,
        };
        let paths: Vec<PathInstance> = portals.iter().map(path).collect();
        let checked = format(&paths);
        checked.map(drop).map_err(|error| {
            let what = format!("{}: {error}", portals.join(","));
            IoError::new(ErrorKind::InvalidRequest, what)
        })
    }

    /// Names the association of each path. It need not be durable: it does not outlive the machine's run.
    pub(super) fn write(&self, paths: &[PathInstance]) -> io::Result<()> {
        self.file.write_all_at(format(paths)?.as_bytes(), 0)
    }
}

fn format(paths: &[PathInstance]) -> io::Result<String> {
    let too_much = |path: &PathInstance| path.address.len() > PORTAL_BYTES;
    if paths.len() > MOST_PORTALS || paths.iter().any(too_much) {
        return Err(io::Error::other("there is no room for so many portals"));
    }
    let line = |at: usize| {
        let text = paths.get(at).map_or_else(String::new, |path| {
            let instance = path.instance;
            let name = instance.map_or(NO_NAME.to_owned(), |instance| instance.to_string());
            let width = Instance::TEXT_BYTES;
            format!("{name:width$} {}", path.address)
        });
        format!("{text:LINE_BYTES$}\n")
    };
    Ok((0..MOST_PORTALS).map(line).collect())
}

fn parse(text: &str) -> Result<Vec<PathInstance>, String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(path).collect()
}

fn path(line: &str) -> Result<PathInstance, String> {
    let unknown = || format!("`{}` names no path", line.trim());
    let (name, address) = line
        .split_at_checked(Instance::TEXT_BYTES)
        .ok_or_else(unknown)?;
    let instance = match name.trim() {
        NO_NAME => None,
        named => Some(named.parse()?),
    };
    let address = Some(address.trim()).filter(|address| !address.is_empty());
    Ok(PathInstance {
        address: address.ok_or_else(unknown)?.to_owned(),
        instance,
    })
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

    fn named(address: &str, instance: Option<Instance>) -> PathInstance {
        let address = address.to_owned();
        PathInstance { address, instance }
    }

    #[test]
    fn the_last_one_named_is_the_predecessor() {
        let path = scratch("last");
        let record = Record::open(&path).expect("a new file");
        assert_eq!(record.predecessors, []);
        assert_eq!(recorded_portals(&path).expect("again"), [""; 0]);
        for number in [u64::MAX, 1] {
            let instance = Instance {
                cntlid: 0xFFEF,
                uniquifier: 7,
                number,
            };
            let paths = [named("a:1", None), named("[::1]:4420", Some(instance))];
            record.write(&paths).expect("write");
            let record = Record::open(&path).expect("open");
            assert_eq!(record.predecessors, paths);
        }
        record.write(&[named("b:1", None)]).expect("write");
        assert_eq!(recorded_portals(&path).expect("one left"), ["b:1"]);
        let many = vec![named("b:1", None); MOST_PORTALS + 1];
        record.write(&many).expect_err("no room");
        std::fs::remove_file(&path).expect("clean up");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let path = scratch("damaged");
        for text in [
            "ffef 07 12",
            "-                        ",
            "ffef 07 12 a:1 and more than that",
        ] {
            std::fs::write(&path, text).expect("write");
            let error = Record::open(&path).expect_err("damaged");
            assert!(error.to_string().contains("ashlar-record"), "{error}");
        }
        std::fs::remove_file(&path).expect("clean up");
    }
}
