use std::fmt;
use std::str::FromStr;

use ashlar_nvme::fabrics::Nqn;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ControlError;

/// Longest name of a pool or a volume, in bytes.
const LONGEST: usize = 64;
/// Longest NQN, in bytes (NVMe Base Specification 2.0, 4.5).
const LONGEST_NQN: usize = 223;

/// Checks the name of a pool or a volume: 1 to 64 letters, digits, `-`, `_`, `.`, and neither `.`
/// nor `..`, which mean something else in a path.
///
/// # Errors
/// Usage, with `what` in front.
pub fn check_name(what: &str, name: &str) -> Result<(), ControlError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=LONGEST).contains(&name.len()) && name.chars().all(plain) && !matches!(name, "." | "..")
    {
        return Ok(());
    }
    Err(ControlError::usage(format!(
        "{what} {name:?}: a name has 1 to {LONGEST} letters, digits, `-`, `_`, `.`"
    )))
}

/// Checks what names a host: an NQN in one of its two forms, printable, so that it can stand in any
/// message and in any list.
pub(super) fn check_host(nqn: &str) -> Result<(), ControlError> {
    check_remembered_host(nqn)?;
    Nqn::new(nqn).map(drop).map_err(|error| {
        ControlError::usage(format!(
            "host {nqn:?}: {error}. Its own is in /etc/nvme/hostnqn; NQNs are \
             nqn.YYYY-MM.REVERSE.DOMAIN[:…] or nqn.2014-08.org.nvmexpress:uuid:UUID"
        ))
    })
}

/// Checks what may have named a host in an earlier version: anything printable without spaces.
pub(super) fn check_remembered_host(nqn: &str) -> Result<(), ControlError> {
    let printable = nqn.bytes().all(|byte| byte.is_ascii_graphic());
    if (1..=LONGEST_NQN).contains(&nqn.len()) && printable {
        return Ok(());
    }
    Err(ControlError::usage(format!(
        "host {nqn:?}: an NQN has 1 to {LONGEST_NQN} printable characters without spaces"
    )))
}

/// A volume's full name, `pool/volume`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct VolumeName {
    /// The pool.
    pub pool: String,
    /// The volume in it.
    pub name: String,
}

impl VolumeName {
    /// A name of checked parts.
    ///
    /// # Errors
    /// Usage: one of them is no name.
    pub fn new(pool: &str, name: &str) -> Result<Self, ControlError> {
        check_name("pool", pool)?;
        check_name("volume", name)?;
        Ok(Self {
            pool: pool.into(),
            name: name.into(),
        })
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.name)
    }
}

impl FromStr for VolumeName {
    type Err = ControlError;

    fn from_str(text: &str) -> Result<Self, ControlError> {
        let (pool, name) = text.split_once('/').ok_or_else(|| {
            ControlError::usage(format!("volume `{text}`: say POOL/VOLUME, as in tank/db"))
        })?;
        Self::new(pool, name)
    }
}
