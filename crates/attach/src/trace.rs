//! A record of every request that arrives: what an fsync becomes can be looked up.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::counters::Kind;

/// A file with a line a request: `SEQUENCE read|write|flush|zero OFFSET LENGTH`, in bytes, in the order
/// of arrival. A server that takes over begins again at 1.
pub(crate) struct Trace {
    file: File,
    lines: Vec<u8>,
    sequence: u64,
}

impl Trace {
    /// Adds to the file, which is made if it is not there.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self {
            file,
            lines: Vec::new(),
            sequence: 0,
        })
    }

    pub(crate) fn note(&mut self, kind: Kind, offset: u64, length: u64) {
        self.sequence += 1;
        // Writing to memory does not fail.
        let _ = writeln!(
            self.lines,
            "{} {} {offset} {length}",
            self.sequence,
            kind.name()
        );
    }

    /// Writes down what has been noted; before anything of it is answered.
    pub(crate) fn save(&mut self) -> io::Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let result = self.file.write_all(&self.lines);
        self.lines.clear();
        result
    }
}
