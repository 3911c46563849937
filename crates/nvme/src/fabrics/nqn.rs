//! NVMe Qualified Names (Base 2.1, 4.7).

use std::fmt;

use crate::text;

/// The name under which every discovery service answers.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";
const BYTES_MAX: usize = 223;

/// A valid NQN: `nqn.yyyy-mm.reverse.domain[:anything]` or the uuid form; at most 223 bytes of UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nqn(String);

/// Why a text is not an NQN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NqnError {
    /// Longer than 223 bytes; the length.
    TooLong(usize),
    /// Does not start with `nqn.`.
    Prefix,
    /// `nqn.` is not followed by `yyyy-mm.` with a month from 01 to 12.
    Date,
    /// No reverse domain name of labels of 1 to 63 letters, digits and hyphens.
    Domain,
    /// What follows `nqn.2014-08.org.nvmexpress:uuid:` is not a UUID.
    Uuid,
    /// A character that is not printable.
    Character,
}

impl Nqn {
    /// Checks `text`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, NqnError> {
        check(text)?;
        Ok(Self(text.to_owned()))
    }

    /// Checks only what every implementation insists on: prefix, length, printable characters.
    /// Kernels take names without date and domain, and people use them.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn lenient(text: &str) -> Result<Self, NqnError> {
        check_outline(text)?;
        Ok(Self(text.to_owned()))
    }

    /// The host NQN (uuid form) for a 16 byte UUID.
    pub fn from_uuid(uuid: [u8; 16]) -> Self {
        let mut text = UUID_PREFIX.to_owned();
        for (index, byte) in uuid.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for the well-known name of discovery services.
    pub fn is_discovery(&self) -> bool {
        self.0 == DISCOVERY_NQN
    }
}

/// Length, characters and prefix; what follows the prefix.
fn check_outline(name: &str) -> Result<&str, NqnError> {
    if name.len() > BYTES_MAX {
        return Err(NqnError::TooLong(name.len()));
    }
    if !name.chars().all(text::is_printable) {
        return Err(NqnError::Character);
    }
    name.strip_prefix("nqn.").ok_or(NqnError::Prefix)
}

fn check(text: &str) -> Result<(), NqnError> {
    let after = check_outline(text)?;
    if let Some(uuid) = text.strip_prefix(UUID_PREFIX) {
        return if is_uuid(uuid) {
            Ok(())
        } else {
            Err(NqnError::Uuid)
        };
    }
    let (date, name) = after.split_at_checked(8).ok_or(NqnError::Date)?;
    if !is_date(date.as_bytes()) {
        return Err(NqnError::Date);
    }
    let domain = name.split(':').next().unwrap_or_default();
    if domain.split('.').all(is_label) {
        Ok(())
    } else {
        Err(NqnError::Domain)
    }
}

/// `yyyy-mm.`
fn is_date(date: &[u8]) -> bool {
    let &[y0, y1, y2, y3, b'-', m0, m1, b'.'] = date else {
        return false;
    };
    let digits = [y0, y1, y2, y3, m0, m1].iter().all(u8::is_ascii_digit);
    let month = m0
        .wrapping_sub(b'0')
        .wrapping_mul(10)
        .wrapping_add(m1.wrapping_sub(b'0'));
    digits && (1..=12).contains(&month)
}

fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || *b == b'-')
        && bytes.first() != Some(&b'-')
        && bytes.last() != Some(&b'-')
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Nqn {
    type Err = NqnError;

    fn from_str(text: &str) -> Result<Self, NqnError> {
        Self::new(text)
    }
}

impl fmt::Display for NqnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(bytes) => write!(f, "an NQN has at most 223 bytes, this has {bytes}"),
            Self::Prefix => f.write_str("an NQN starts with \"nqn.\""),
            Self::Date => f.write_str("an NQN goes on with \"yyyy-mm.\" after \"nqn.\""),
            Self::Domain => {
                f.write_str("an NQN has a reverse domain name (com.example) after its date")
            }
            Self::Uuid => write!(f, "after \"{UUID_PREFIX}\" a UUID is expected"),
            Self::Character => f.write_str("an NQN has printable characters only"),
        }
    }
}

impl std::error::Error for NqnError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_hosts_and_people_use() {
        for good in [
            DISCOVERY_NQN,
            "nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5",
            "nqn.2016-06.io.spdk:cnode1",
            "nqn.2024-01.com.example.storage:any thing:ü.1",
        ] {
            assert_eq!(Nqn::new(good).map(|n| n.to_string()), Ok(good.to_owned()));
        }
        assert!(Nqn::lenient("nqn.mine").is_ok() && Nqn::lenient("mine").is_err());
        let uuid = Nqn::from_uuid([0xab; 16]);
        assert_eq!(Nqn::new(uuid.as_str()), Ok(uuid.clone()));
        assert!(Nqn::new(DISCOVERY_NQN).unwrap().is_discovery());
    }

    #[test]
    fn refuses_with_the_reason() {
        let long = format!("nqn.2024-01.com.example:{}", "x".repeat(200));
        assert_eq!(Nqn::new(&long), Err(NqnError::TooLong(224)));
        assert!(Nqn::new(&long[..223]).is_ok());
        for (bad, reason) in [
            ("", NqnError::Prefix),
            ("iqn.2024-01.com.example", NqnError::Prefix),
            ("nqn.", NqnError::Date),
            ("nqn.2024-13.com.example", NqnError::Date),
            ("nqn.2024-1.com.example", NqnError::Date),
            ("nqn.2024-01ü.com.example", NqnError::Date),
            ("nqn.2024-01.", NqnError::Domain),
            ("nqn.2024-01.com..example", NqnError::Domain),
            ("nqn.2024-01.-com:x", NqnError::Domain),
            ("nqn.2014-08.org.nvmexpress:uuid:12", NqnError::Uuid),
            ("nqn.2024-01.com.example:a\0b", NqnError::Character),
            ("nqn.2024-01.com.example:\u{1b}[2J", NqnError::Character),
            ("nqn.2024-01.com.example:\u{202e}b", NqnError::Character),
        ] {
            assert_eq!(Nqn::new(bad), Err(reason), "{bad}");
        }
    }
}
