//! What accesses are like besides pattern, size and depth: where they go, how large they are, what comes between them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{CellSpec, Configuration, LabError};

/// The same for all cells of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// Where random accesses go.
    pub distribution: Distribution,
    /// After so many writes of a thread, a flush; 0: none.
    pub flush_every: u32,
    /// Between the end of an access and the next of its slot.
    pub think: Duration,
    /// Sizes of accesses and their shares; the cell's own size if there are none.
    pub sizes: Vec<Share>,
    /// Percent of the accesses that give space back.
    pub trim_pct: u8,
}

/// A size, and how many of 100 accesses have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Bytes.
    pub bytes: u32,
    /// Percent.
    pub pct: u8,
}

/// Where random accesses go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Distribution {
    /// Everywhere alike.
    #[default]
    Uniform,
    /// The k-th most popular place gets 1/k^theta of what the most popular one gets; places are strewn.
    Zipf(f64),
    /// So many percent of the accesses go to so many percent of the space, the first of it.
    Hot {
        /// Percent of the accesses.
        accesses: u8,
        /// Percent of the space.
        space: u8,
    },
}

/// Exponents that a generator draws from exactly enough.
const THETAS: std::ops::RangeInclusive<f64> = 0.01..=5.0;
/// A flush after more writes than this is none.
const MOST_BETWEEN: u32 = 1_000_000_000;
const LONGEST_THINK: Duration = Duration::from_secs(3600);

impl Access {
    /// Bytes of the largest access, where the cell's are of `block`.
    pub(crate) fn largest(&self, block: u32) -> u32 {
        self.sizes
            .iter()
            .map(|share| share.bytes)
            .max()
            .unwrap_or(block)
    }

    /// A cell, for each size that its accesses have.
    pub(crate) fn cells(&self, cell: CellSpec) -> Vec<CellSpec> {
        let sized = |share: &Share| CellSpec {
            block_bytes: share.bytes,
            ..cell
        };
        match &self.sizes[..] {
            [] => vec![cell],
            sizes => sizes.iter().map(sized).collect(),
        }
    }

    /// Bytes of an access, on average, where the cell's are of `block`.
    pub(crate) fn mean_bytes(&self, block: u32) -> f64 {
        match &self.sizes[..] {
            [] => f64::from(block),
            sizes => {
                let of = |share: &Share| f64::from(share.bytes) * f64::from(share.pct) / 100.0;
                sizes.iter().map(of).sum()
            }
        }
    }

    /// The same, with accesses going where a configuration has them go.
    pub(crate) fn on(&self, configuration: &Configuration) -> Self {
        Self {
            distribution: configuration.distribution.unwrap_or(self.distribution),
            ..self.clone()
        }
    }

    /// Refuses what cannot be, by its name on the command line.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::usage(why));
        if self.flush_every > MOST_BETWEEN {
            return refuse(format!(
                "fsync {}: at most {MOST_BETWEEN}",
                self.flush_every
            ));
        }
        if self.think > LONGEST_THINK {
            return refuse(format!("think {:?}: at most an hour", self.think));
        }
        if self.trim_pct > 90 {
            return refuse(format!("trim {} %: at most 90", self.trim_pct));
        }
        if self.sizes.is_empty() {
            return Ok(());
        }
        let all: u32 = self.sizes.iter().map(|share| u32::from(share.pct)).sum();
        if all != 100 {
            return refuse(format!("sizes: shares add up to {all} %, not 100"));
        }
        for share in &self.sizes {
            if share.bytes % 512 != 0 || !(512..=2 << 20).contains(&share.bytes) {
                return refuse(format!(
                    "sizes: {} bytes: must be a multiple of 512, at most 2 MiB",
                    share.bytes
                ));
            }
        }
        Ok(())
    }

    /// In words, where it is not the plain thing.
    pub fn words(&self) -> Option<String> {
        let sizes = self.sizes.iter();
        let sizes = sizes.map(|of| {
            let bytes = crate::units::short_bytes(u64::from(of.bytes));
            format!("{} % of {bytes}", of.pct)
        });
        let sizes: Vec<String> = sizes.collect();
        let all = [
            (self.distribution != Distribution::Uniform)
                .then(|| format!("addresses {}", self.distribution)),
            (!sizes.is_empty()).then(|| format!("accesses {}", sizes.join(", "))),
            (self.flush_every > 0)
                .then(|| format!("a flush after every {} writes", self.flush_every)),
            (!self.think.is_zero()).then(|| format!("{:?} of thinking", self.think)),
            (self.trim_pct > 0).then(|| format!("{} % trims", self.trim_pct)),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(theta) => write!(f, "zipf:{theta}"),
            Self::Hot { accesses, space } => write!(f, "hot:{accesses}/{space}"),
        }
    }
}

impl FromStr for Distribution {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let percent = |text: &str, most| text.parse::<u8>().ok().filter(|n| (1..=most).contains(n));
        let found = match text.split_once(':') {
            None if text == "uniform" || text == "random" => Some(Self::Uniform),
            Some(("zipf", theta)) => {
                let theta = theta.parse().ok().filter(|theta| THETAS.contains(theta));
                theta.map(Self::Zipf)
            }
            Some(("hot", of)) => of.split_once('/').and_then(|(accesses, space)| {
                Some(Self::Hot {
                    accesses: percent(accesses, 100)?,
                    space: percent(space, 99)?,
                })
            }),
            _ => None,
        };
        found.ok_or_else(|| {
            LabError::usage(format!(
                "distribution {text:?}: must be uniform, zipf:THETA ({} to {}) or hot:ACCESSES/SPACE, in percent \
                 (hot:80/20)",
                THETAS.start(),
                THETAS.end()
            ))
        })
    }
}

impl TryFrom<String> for Distribution {
    type Error = LabError;

    fn try_from(text: String) -> Result<Self, LabError> {
        text.parse()
    }
}

impl From<Distribution> for String {
    fn from(distribution: Distribution) -> Self {
        distribution.to_string()
    }
}

impl FromStr for Share {
    type Err = LabError;

    /// `4k:60`
    fn from_str(text: &str) -> Result<Self, LabError> {
        let wrong = || LabError::usage(format!("size {text:?}: must be SIZE:PERCENT, as 4k:60"));
        let (bytes, pct) = text.split_once([':', '/']).ok_or_else(wrong)?;
        Ok(Self {
            bytes: crate::units::parse_block(bytes)?,
            pct: pct.parse().map_err(|_| wrong())?,
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.bytes, self.pct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_parse_and_print() {
        for text in ["uniform", "zipf:1.2", "hot:80/20", "hot:100/14"] {
            assert_eq!(text.parse::<Distribution>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "zipf",
            "zipf:0",
            "zipf:x",
            "zipf:NaN",
            "hot:80",
            "hot:0/20",
            "hot:80/100",
            "hot:101/20",
            "pareto:0.2",
        ] {
            let error = text.parse::<Distribution>().expect_err(text);
            assert!(
                error.exit_code() == 2 && error.to_string().contains(text),
                "{error}"
            );
        }
        let share: Share = "64k:40".parse().expect("a share");
        assert_eq!((share.bytes, share.pct), (65536, 40));
        assert!("64k".parse::<Share>().is_err());
    }

    #[test]
    fn what_cannot_be_is_named() {
        let share = |bytes, pct| Share { bytes, pct };
        let wrong = |access: Access| access.check().expect_err("refused").to_string();
        let sizes = |sizes: &[Share]| Access {
            sizes: sizes.to_vec(),
            ..Access::default()
        };
        assert!(wrong(sizes(&[share(4096, 60), share(8192, 50)])).contains("110 %"));
        assert!(wrong(sizes(&[share(1000, 100)])).contains("1000 bytes"));
        assert!(
            wrong(Access {
                trim_pct: 95,
                ..Access::default()
            })
            .contains("trim 95")
        );
        assert_eq!(sizes(&[share(4096, 60), share(65536, 40)]).check(), Ok(()));
        assert_eq!(Access::default().words(), None);
    }
}
