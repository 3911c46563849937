use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::problem::Problem;

/// Fewest bytes of a key.
pub const SHORTEST_KEY: usize = 32;
const LONGEST_KEY: u64 = 4096;

/// Bytes of a proof.
pub(crate) const MAC_BYTES: usize = 32;

/// The secret that all nodes of a cluster share. It never travels, and is never shown.
#[derive(Clone)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// The key of these bytes.
    ///
    /// # Errors
    /// Usage: they are fewer than 32.
    pub fn new(bytes: &[u8]) -> Result<Self, Problem> {
        match bytes.len() < SHORTEST_KEY {
            true => Err(Problem::usage(format!(
                "a cluster's key has {SHORTEST_KEY} bytes at least, this one {}",
                bytes.len()
            ))),
            false => Ok(Self(bytes.into())),
        }
    }

    /// The key in a file. White space at its end is no part of it.
    ///
    /// # Errors
    /// Environment: the file is not there, others than its owner may use it, or it is too short or too long.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        let shown = path.display();
        let cannot = |error: std::io::Error| {
            Problem::environment(format!(
                "key file {shown} cannot be read: {error}; make one with \
                 `(umask 077; head -c 32 /dev/urandom | base64 > {shown})`, the same on all nodes"
            ))
        };
        let file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if !metadata.is_file() {
            return Err(Problem::environment(format!("key file {shown} is no file")));
        }
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(Problem::environment(format!(
                "key file {shown} has mode {mode:04o}: others may use it; make a new key, or at least \
                 `chmod 600 {shown}`"
            )));
        }
        if metadata.size() > LONGEST_KEY {
            return Err(Problem::environment(format!(
                "key file {shown} has {} bytes: at most {LONGEST_KEY}",
                metadata.size()
            )));
        }
        let mut bytes = Vec::new();
        let read = file.take(LONGEST_KEY).read_to_end(&mut bytes);
        read.map_err(cannot)?;
        let key = bytes.trim_ascii_end();
        Self::new(key).map_err(|problem| {
            let message = format!("key file {shown}: {}", problem.message);
            Problem::environment(message)
        })
    }

    /// What only who knows the key can make of these parts, and of no others.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        mac(&self.0, parts)
    }
}

/// HMAC-SHA256 over parts, each with its length: "ab", "c" is another text than "a", "bc".
pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; MAC_BYTES] {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        unreachable!("HMAC takes keys of every length");
    };
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}
