use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use ashlar_store::{Grain, Layout};
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::ControlError;

/// Most drives that a stripe takes, in this version.
const MAX_COLUMNS: u8 = 8;

/// How a volume is laid out over the drives of its pool, as text: `mirror:2`, `parity:4+1`,
/// `stripe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum LayoutSpec {
    /// Every block on this many drives, 1 to 4.
    Mirror {
        /// Copies.
        copies: u8,
    },
    /// Full stripes of data and parity.
    Parity {
        /// Drives with data in a stripe, 2 to 7; with parity 8 at most, in this version.
        data: u8,
        /// Drives with parity in a stripe, 1 or 2.
        parity: u8,
    },
    /// In place and without redundancy.
    Stripe {
        /// Drives, 1 to 8; all of the pool's when `None`.
        columns: Option<u8>,
    },
}

impl LayoutSpec {
    /// Drives that may be lost at the same time without losing data.
    pub fn drive_losses(self) -> u8 {
        match self {
            Self::Mirror { copies } => copies.saturating_sub(1),
            Self::Parity { parity, .. } => parity,
            Self::Stripe { .. } => 0,
        }
    }

    /// Drives that it needs at least.
    pub fn min_drives(self) -> usize {
        match self {
            Self::Mirror { copies } => copies.into(),
            Self::Parity { data, parity } => usize::from(data) + usize::from(parity),
            Self::Stripe { columns } => columns.unwrap_or(1).into(),
        }
    }

    /// The grain that its volumes have by default; none if they are passed through.
    pub fn default_grain(self) -> Option<Grain> {
        self.homes().map(Layout::default_grain)
    }

    /// Share of raw space that holds data, before reserves. A slot is cut into strips of whole blocks
    /// of 4 KiB: whatever number of columns does not divide its blocks wastes some.
    pub fn efficiency(self, grain: Option<Grain>) -> f64 {
        let grain = grain.or(self.default_grain());
        let homes = self.homes().zip(grain);
        homes.map_or(1.0, |(layout, grain)| layout.efficiency(grain))
    }

    fn homes(self) -> Option<Layout> {
        match self {
            Self::Mirror { copies } => Some(Layout::Mirror { copies }),
            Self::Parity { data, parity } => Some(Layout::Parity { data, parity }),
            Self::Stripe { .. } => None,
        }
    }
}

impl From<Layout> for LayoutSpec {
    fn from(layout: Layout) -> Self {
        match layout {
            Layout::Mirror { copies } => Self::Mirror { copies },
            Layout::Parity { data, parity } => Self::Parity { data, parity },
            Layout::Stripe { columns } => Self::Stripe {
                columns: Some(columns),
            },
        }
    }
}

impl fmt::Display for LayoutSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mirror { copies } => write!(f, "mirror:{copies}"),
            Self::Parity { data, parity } => write!(f, "parity:{data}+{parity}"),
            Self::Stripe { columns: None } => f.write_str("stripe"),
            Self::Stripe { columns: Some(n) } => write!(f, "stripe:{n}"),
        }
    }
}

impl FromStr for LayoutSpec {
    type Err = ControlError;

    /// Parses it; the error says what is wrong and what there is.
    fn from_str(text: &str) -> Result<Self, ControlError> {
        let bad = |why: &str| ControlError::usage(format!("layout `{text}`: {why}"));
        let number = |digits: &str, least: u8, most: u8, what: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let value = digits.parse::<u8>().ok().filter(|_| plain);
            value
                .filter(|value| (least..=most).contains(value))
                .ok_or_else(|| bad(&format!("{what} must be {least} to {most}")))
        };
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        match (kind, rest) {
            ("mirror", Some(copies)) => Ok(Self::Mirror {
                copies: number(copies, 1, 4, "the number of copies")?,
            }),
            ("parity", Some(rest)) => {
                let (data, parity) = rest
                    .split_once('+')
                    .ok_or_else(|| bad("say parity:DATA+PARITY, as in parity:4+1"))?;
                let most = "data and parity take 8 drives at most, in this version";
                let what = format!("{most}: the number of data drives");
                let data = number(data, 2, MAX_COLUMNS - 1, &what)?;
                let parity = number(parity, 1, 2, "the number of parity drives")?;
                match data + parity <= MAX_COLUMNS {
                    true => Ok(Self::Parity { data, parity }),
                    false => Err(bad(most)),
                }
            }
            ("stripe", None) => Ok(Self::Stripe { columns: None }),
            ("stripe", Some(columns)) => Ok(Self::Stripe {
                columns: Some(number(columns, 1, 8, "the number of drives")?),
            }),
            ("mirror", None) => Err(bad("say how many copies, as in mirror:2")),
            ("parity", None) => Err(bad("say parity:DATA+PARITY, as in parity:4+1")),
            _ => Err(bad(
                "there are mirror:N (1 to 4), parity:K+M (M 1 or 2, 8 in all at most), stripe and stripe:N",
            )),
        }
    }
}

impl TryFrom<String> for LayoutSpec {
    type Error = ControlError;

    fn try_from(text: String) -> Result<Self, ControlError> {
        text.parse()
    }
}

impl From<LayoutSpec> for String {
    fn from(layout: LayoutSpec) -> Self {
        layout.to_string()
    }
}

impl PartialSchema for LayoutSpec {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(
                "How a volume is laid out over the drives of its pool.",
            ))
            .pattern(Some(
                r"^(mirror:[1-4]|parity:([2-7]\+1|[2-6]\+2)|stripe(:[1-8])?)$",
            ))
            .examples([
                serde_json::json!("mirror:2"),
                serde_json::json!("parity:4+1"),
            ])
            .into()
    }
}

impl ToSchema for LayoutSpec {
    fn name() -> Cow<'static, str> {
        "LayoutSpec".into()
    }
}

/// What becomes of data when something goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing acknowledged is lost, and every read is right.
    Survives,
    /// An error, never wrong data: for what is affected, and where the pool's own map or logs are and
    /// have no other copy, for the pool, which stops or is not imported.
    Detected,
    /// Passed on as the drive does it: data may be lost or wrong.
    Unprotected,
}

/// What a layout survives. Faults of one kind at a time, on no more drives than `drive_losses`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Survives {
    /// Drives that may die at the same time. If half or fewer are left before it is durable which were
    /// the first, an operator must say that these may go on alone.
    pub drive_losses: u8,
    /// The daemon is killed while its hosts keep running.
    pub node_crash: Outcome,
    /// The power fails; drives lose what they had not flushed.
    pub power_loss: Outcome,
    /// A write that power loss cut in the middle.
    pub torn_write: Outcome,
    /// Blocks whose content has changed, or that cannot be read.
    pub noise: Outcome,
    /// A write that went to another place.
    pub misdirected_write: Outcome,
    /// A write that the drive acknowledged and never did.
    pub phantom_write: Outcome,
}

impl Survives {
    /// What the engine promises for a layout.
    pub fn by(layout: LayoutSpec) -> Self {
        let drive_losses = layout.drive_losses();
        let (logged, checked) = match layout {
            LayoutSpec::Stripe { .. } => (Outcome::Unprotected, Outcome::Unprotected),
            _ if drive_losses == 0 => (Outcome::Survives, Outcome::Detected),
            _ => (Outcome::Survives, Outcome::Survives),
        };
        Self {
            drive_losses,
            // Bytes that a drive has taken do not depend on the daemon; hosts send the rest again.
            node_crash: Outcome::Survives,
            power_loss: logged,
            torn_write: logged,
            noise: checked,
            misdirected_write: checked,
            phantom_write: checked,
        }
    }
}
