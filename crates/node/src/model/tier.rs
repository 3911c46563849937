use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::{ControlError, DriveClass, LayoutSpec};

/// Where what is small and hot of a volume lies, as text: `mirror:2`, `mirror:2@nvme`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HotSpec {
    /// Copies of each slot there, 1 to 4.
    pub copies: u8,
    /// The class of drives that hold it; those of the volume's other homes, without one.
    pub class: Option<DriveClass>,
}

impl fmt::Display for HotSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mirror:{}", self.copies)?;
        self.class.map_or(Ok(()), |class| write!(f, "@{class}"))
    }
}

impl FromStr for HotSpec {
    type Err = ControlError;

    /// Parses it; the error says what is wrong and what there is.
    fn from_str(text: &str) -> Result<Self, ControlError> {
        let bad = |why: &str| ControlError::usage(format!("hot home `{text}`: {why}"));
        let (layout, class) = match text.split_once('@') {
            Some((layout, class)) => (layout, Some(class)),
            None => (text, None),
        };
        let class = class.map(str::parse).transpose();
        let class = class.map_err(|why: String| bad(&why))?;
        match layout.parse::<LayoutSpec>() {
            Ok(LayoutSpec::Mirror { copies }) => Ok(Self { copies, class }),
            Ok(_) => Err(bad("it is a mirror, as in mirror:2@nvme")),
            Err(why) => Err(bad(&why.message)),
        }
    }
}

impl TryFrom<String> for HotSpec {
    type Error = ControlError;

    fn try_from(text: String) -> Result<Self, ControlError> {
        text.parse()
    }
}

impl From<HotSpec> for String {
    fn from(hot: HotSpec) -> Self {
        hot.to_string()
    }
}

impl PartialSchema for HotSpec {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Where what is small and hot of a volume lies."))
            .pattern(Some(r"^mirror:[1-4](@(nvme|ssd|hdd))?$"))
            .examples([serde_json::json!("mirror:2@nvme")])
            .into()
    }
}

impl ToSchema for HotSpec {
    fn name() -> Cow<'static, str> {
        "HotSpec".into()
    }
}

/// A volume's hot home. What is counted began when the pool was imported.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierStatus {
    /// How it is laid out, and on which drives.
    pub hot: HotSpec,
    /// How much of the volume may be there.
    pub share_percent: u8,
    /// The same in bytes.
    pub share_bytes: u64,
    /// Bytes that are there.
    pub hot_bytes: u64,
    /// It is nearly full, and gives up what is cold.
    pub demoting: bool,
    /// Slots that hosts' reads have found at home: there or in the volume's layout.
    pub reads: u64,
    /// Of these, there.
    pub read_hits: u64,
    /// The share of them; none before the first read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<f64>,
    /// Bytes of slots that have moved there.
    pub promoted_bytes: u64,
    /// Bytes of slots that have moved from there.
    pub demoted_bytes: u64,
    /// Bytes that drives were given for each byte that hosts have written: in the ring, at home and for moves, all
    /// copies and parity, without the pool's map. None before the first write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_bytes_per_user_byte: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::super::{Check, CreateVolume, VolumeName};
    use super::*;

    #[test]
    fn a_share_is_of_a_hot_home_and_has_bounds() {
        let volume = VolumeName::new("tank", "db").expect("a name");
        let layout = "parity:4+1".parse().expect("a layout");
        let with = |hot: Option<&str>, share| CreateVolume {
            hot: hot.map(|hot| hot.parse().expect("a mirror")),
            hot_share_percent: share,
            ..CreateVolume::new(&volume, 1 << 30, layout)
        };
        let fast = Some("mirror:2@nvme");
        for fine in [with(None, None), with(fast, None), with(fast, Some(90))] {
            assert_eq!(fine.check(), Ok(()));
        }
        for (bad, why) in [
            (with(None, Some(20)), "a share of 20 % is for a hot home"),
            (
                with(fast, Some(0)),
                "a share of 0 % for hot home mirror:2@nvme",
            ),
            (with(fast, Some(91)), "it is 1 to 90"),
        ] {
            let message = bad.check().expect_err(why).message;
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn hot_homes_are_mirrors_and_say_their_drives() {
        let plain = HotSpec {
            copies: 2,
            class: None,
        };
        let fast = HotSpec {
            class: Some(DriveClass::Nvme),
            ..plain
        };
        for (text, hot) in [("mirror:2", plain), ("mirror:2@nvme", fast)] {
            assert_eq!(text.parse(), Ok(hot));
            assert_eq!(hot.to_string(), text);
        }
        for (text, why) in [
            ("parity:4+1", "it is a mirror"),
            ("stripe@nvme", "it is a mirror"),
            ("mirror", "how many copies"),
            ("mirror:5@nvme", "1 to 4"),
            ("mirror:2@fast", "class `fast`"),
            ("", "there are mirror:N"),
        ] {
            let refused = text.parse::<HotSpec>().expect_err(text);
            let message = refused.message;
            assert!(message.contains(&format!("hot home `{text}`")), "{message}");
            assert!(message.contains(why), "{message}");
        }
    }
}
