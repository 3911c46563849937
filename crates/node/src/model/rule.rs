use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::request::Check;
use super::{ByteRange, ControlError};

/// Longest pattern.
const MAX_PATTERN: usize = 4096;
/// Longest name of a host.
const MAX_HOST: usize = 255;
/// Most ranges of a rule.
pub const MOST_RULE_RANGES: usize = 16_384;

/// Where the files lie that a rule names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleExtents {
    /// How many files there are.
    pub files: u64,
    /// Their bytes on the volume, in order of address.
    pub ranges: Vec<ByteRange>,
}

/// Files to be kept out of a cache, or the same again, as they lie now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutRule {
    /// Which files: a whole path, in which `*` and `?` stand for what is in one name, and `**` for any folders.
    pub exclude: String,
    /// The machine that has the file system mounted, and looks the files up.
    pub host: String,
    /// Only if the rule is there.
    #[serde(default)]
    pub renews: bool,
    /// Where they lie.
    pub extents: RuleExtents,
}

/// A rule that is to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveRule {
    /// As it was given.
    pub exclude: String,
}

/// Files that are kept out of a cache: reads of them do not enter, and what is written is absorbed and leaves soon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CacheRule {
    /// Which files.
    pub exclude: String,
    /// The machine that looks them up.
    pub host: String,
    /// How many there were.
    pub files: u64,
    /// Bytes that they have on the volume.
    pub bytes: u64,
    /// Seconds since they were looked up; absent if they were not since the daemon has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_s: Option<f64>,
    /// Parts of reads that the rule kept out, since it came into service; a part is 64 KiB at most.
    pub reads: u64,
    /// Parts of writes that it did.
    pub writes: u64,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

fn check_pattern(exclude: &str) -> Result<(), ControlError> {
    if !exclude.starts_with('/') || exclude.len() > MAX_PATTERN {
        return Err(ControlError::usage(format!(
            "exclude `{exclude}`: must be a whole path of at most {MAX_PATTERN} bytes"
        )));
    }
    Ok(())
}

impl Check for PutRule {
    fn check(&self) -> Result<(), ControlError> {
        check_pattern(&self.exclude)?;
        if self.host.is_empty() || self.host.len() > MAX_HOST {
            return Err(ControlError::usage(format!(
                "host `{}`: must have 1 to {MAX_HOST} bytes",
                self.host
            )));
        }
        let ranges = &self.extents.ranges;
        if ranges.len() > MOST_RULE_RANGES {
            let count = ranges.len();
            return Err(ControlError::usage(format!(
                "{count} ranges: {MOST_RULE_RANGES} at most"
            )));
        }
        match ranges
            .iter()
            .find(|one| one.offset.checked_add(one.bytes).is_none())
        {
            Some(range) => Err(ControlError::usage(format!(
                "range at {} of {} bytes: has no end",
                range.offset, range.bytes
            ))),
            None => Ok(()),
        }
    }
}

impl Check for RemoveRule {
    fn check(&self) -> Result<(), ControlError> {
        check_pattern(&self.exclude)
    }
}
