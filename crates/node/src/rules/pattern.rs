use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::model::ControlError;

/// Most files that a pattern may name.
const MOST: usize = 65_536;

/// A pattern of paths: `*` and `?` stand for what is in one name, `**` for any number of folders.
pub(super) struct Pattern {
    text: String,
    /// As far as there are no wildcards.
    base: PathBuf,
    rest: Vec<String>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Result<Self, ControlError> {
        let wild = |name: &&str| name.contains(['*', '?']);
        let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty()).collect();
        if !text.starts_with('/') || names.contains(&"..") {
            return Err(ControlError::usage(format!(
                "{text}: must be a whole path, as in /srv/db/pg_wal/**"
            )));
        }
        let plain = names.iter().take_while(|name| !wild(name)).count();
        let base = Path::new("/").join(names[..plain].join("/"));
        let mut rest: Vec<String> = names[plain..].iter().map(ToString::to_string).collect();
        if rest.is_empty() && base.is_dir() {
            rest.push("**".to_owned());
        }
        rest.dedup_by(|one, before| one == "**" && before == "**");
        Ok(Self {
            text: text.to_owned(),
            base,
            rest,
        })
    }

    /// What the pattern begins with, without links.
    pub(super) fn base(&self) -> Result<PathBuf, ControlError> {
        fs::canonicalize(&self.base).map_err(|error| {
            let base = self.base.display();
            ControlError::usage(format!("{}: matches nothing: {base}: {error}", self.text))
        })
    }

    /// Regular files of one file system that it names. Links are not followed behind the base.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>, ControlError> {
        let base = self.base()?;
        let about = |error| {
            ControlError::environment(format!("{}: {}: {error}", self.text, base.display()))
        };
        let device = fs::metadata(&base).map_err(about)?.dev();
        let mut walk = Walk {
            device,
            found: Vec::new(),
            visited: HashSet::new(),
        };
        walk.visit(&base, &self.rest).map_err(about)?;
        if walk.found.len() > MOST {
            return Err(ControlError::usage(format!(
                "{}: matches more than {MOST} files",
                self.text
            )));
        }
        walk.found.sort();
        walk.found.dedup();
        Ok(walk.found)
    }
}

struct Walk {
    device: u64,
    found: Vec<PathBuf>,
    /// Folders, and how many names were left there: with several `**` there are many ways to one.
    visited: HashSet<(PathBuf, usize)>,
}

impl Walk {
    fn visit(&mut self, path: &Path, rest: &[String]) -> std::io::Result<()> {
        let Some(found) = self.look(path)? else {
            return Ok(());
        };
        if found.is_dir() && !self.visited.insert((path.to_owned(), rest.len())) {
            return Ok(());
        }
        let Some((name, behind)) = rest.split_first() else {
            if found.is_file() && self.found.len() <= MOST {
                self.found.push(path.to_owned());
            }
            return Ok(());
        };
        if name == "**" {
            // It stands for no folder, too.
            self.visit(path, behind)?;
        }
        if !found.is_dir() || self.found.len() > MOST {
            return Ok(());
        }
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            match name == "**" {
                true => self.visit(&entry.path(), rest)?,
                false if matches(name.as_bytes(), entry.file_name().as_encoded_bytes()) => {
                    self.visit(&entry.path(), behind)?;
                }
                false => {}
            }
        }
        Ok(())
    }

    /// What is there now, on this file system.
    fn look(&self, path: &Path) -> std::io::Result<Option<Metadata>> {
        match fs::symlink_metadata(path) {
            // It went meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => Ok(Some(found?).filter(|found| found.dev() == self.device)),
        }
    }
}

/// Whether a name is as a pattern of one name says.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    // Where to go on if what follows the last star does not fit.
    let mut star: Option<(usize, usize)> = None;
    while of < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, of));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[of] => (at, of) = (at + 1, of + 1),
            _ => match star {
                Some((behind, from)) => {
                    star = Some((behind, from + 1));
                    (at, of) = (behind, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_whole() {
        for (pattern, name, fits) in [
            ("*", "anything", true),
            ("*.log", "a.log", true),
            ("*.log", "a.log.1", false),
            ("a*b*c", "axxbyybc", true),
            ("a*b*c", "axxbyyb", false),
            ("??", "ab", true),
            ("??", "abc", false),
            ("", "a", false),
        ] {
            let found = matches(pattern.as_bytes(), name.as_bytes());
            assert_eq!(found, fits, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_names_files_and_no_links() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("a path");
        for file in ["wal/1", "wal/2.gz", "wal/deep/3", "data/4"] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "x").expect("written");
        }
        std::os::unix::fs::symlink(root.join("wal"), root.join("link")).expect("a link");
        std::os::unix::fs::symlink(root.join("data/4"), root.join("wal/out")).expect("a link");
        let names = |pattern: &str| -> Vec<String> {
            let pattern = Pattern::new(&format!("{}/{pattern}", root.display())).expect("sound");
            let files = pattern.files().expect("walked").into_iter();
            let short = |path: PathBuf| {
                path.strip_prefix(&root)
                    .expect("below")
                    .display()
                    .to_string()
            };
            files.map(short).collect()
        };
        assert_eq!(names("wal/**"), ["wal/1", "wal/2.gz", "wal/deep/3"]);
        assert_eq!(names("wal"), ["wal/1", "wal/2.gz", "wal/deep/3"]);
        assert_eq!(names("link/*"), ["wal/1", "wal/2.gz"]);
        assert_eq!(names("**/*.gz"), ["wal/2.gz"]);
        assert_eq!(names("*/4"), ["data/4"]);
        assert_eq!(names("wal/1"), ["wal/1"]);
        assert_eq!(names("wal/nothing*"), [""; 0]);
        // Without a memory of where it was the walk would go 2^24 ways.
        let deep = root.join("a/".repeat(24));
        fs::create_dir_all(&deep).expect("made");
        fs::write(deep.join("5"), "x").expect("written");
        let many = "**/*/".repeat(12);
        assert_eq!(names(&format!("{many}5")).len(), 1);
        assert_eq!(names(&format!("{many}nothing")), [""; 0]);
        let missing = Pattern::new("/no/such/place/**").expect("sound");
        let error = missing.files().expect_err("nothing");
        assert!(error.message.contains("matches nothing"), "{error}");
        for text in ["relative/**", "", "/a/../b"] {
            assert!(Pattern::new(text).is_err(), "{text}");
        }
    }
}
