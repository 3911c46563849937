use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use ashlar_device::parse_size;
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::ControlError;

/// Most drives of a pool.
const MAX_DRIVES: u32 = 64;

/// How much of a pool is kept for repair, as text: `auto`, `none`, `drives:1`, or a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ReserveSpec {
    /// The largest drive's worth, as long as some volume takes fewer drives than there are.
    #[default]
    Auto,
    /// Nothing.
    None,
    /// So many of the largest drives' worth, at least 1.
    Drives(u32),
    /// So many raw bytes, at least 1.
    Bytes(u64),
}

impl fmt::Display for ReserveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Drives(drives) => write!(f, "drives:{drives}"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for ReserveSpec {
    type Err = ControlError;

    /// Parses it; the error says what there is.
    fn from_str(text: &str) -> Result<Self, ControlError> {
        let bad = || {
            ControlError::usage(format!(
                "reserve `{text}`: say auto, none, drives:N (1 to {MAX_DRIVES}) or a size, as in 500GiB"
            ))
        };
        match (text, text.strip_prefix("drives:")) {
            ("auto", _) => Ok(Self::Auto),
            ("none", _) => Ok(Self::None),
            (_, Some(drives)) => {
                let drives = drives.parse().ok();
                let drives = drives.filter(|drives| (1..=MAX_DRIVES).contains(drives));
                drives.map(Self::Drives).ok_or_else(bad)
            }
            (size, None) => {
                let bytes = parse_size(size).ok().filter(|&bytes| bytes > 0);
                bytes.map(Self::Bytes).ok_or_else(bad)
            }
        }
    }
}

impl TryFrom<String> for ReserveSpec {
    type Error = ControlError;

    fn try_from(text: String) -> Result<Self, ControlError> {
        text.parse()
    }
}

impl From<ReserveSpec> for String {
    fn from(reserve: ReserveSpec) -> Self {
        reserve.to_string()
    }
}

impl PartialSchema for ReserveSpec {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("How much of a pool is kept for repair."))
            .pattern(Some(
                r"^(auto|none|drives:[1-9][0-9]?|[1-9][0-9]*[A-Za-z]*)$",
            ))
            .examples([serde_json::json!("auto"), serde_json::json!("drives:1")])
            .into()
    }
}

impl ToSchema for ReserveSpec {
    fn name() -> Cow<'static, str> {
        "ReserveSpec".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (text, reserve) in [
            ("auto", ReserveSpec::Auto),
            ("none", ReserveSpec::None),
            ("drives:2", ReserveSpec::Drives(2)),
            ("1048576", ReserveSpec::Bytes(1 << 20)),
        ] {
            assert_eq!(text.parse::<ReserveSpec>().expect(text), reserve);
            assert_eq!(reserve.to_string(), text);
        }
        let size: ReserveSpec = "2GiB".parse().expect("a size");
        assert_eq!(size, ReserveSpec::Bytes(2 << 30));
        for text in ["", "0", "drives:0", "drives:65", "drives:", "much", "-1"] {
            assert!(text.parse::<ReserveSpec>().is_err(), "{text}");
        }
    }
}
