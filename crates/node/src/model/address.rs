use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ControlError;

/// Longest name of an interface, in bytes.
const LONGEST_INTERFACE: usize = 15;

/// An address that goes where a service goes, `ADDRESS/PREFIX[%INTERFACE]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceAddress {
    ip: IpAddr,
    prefix: u8,
    interface: Option<String>,
}

impl ServiceAddress {
    /// What clients connect to.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Bits of its network.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The interface that has it. None: the one with a network that it is in.
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    fn wrong(text: &str, why: &str) -> ControlError {
        ControlError::usage(format!(
            "address {text:?}: {why}; say ADDRESS/PREFIX or ADDRESS/PREFIX%INTERFACE, as in 10.0.0.50/24%eth0"
        ))
    }
}

/// Whether two addresses are in one network of so many bits.
pub(crate) fn are_neighbours(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let differs = u32::from(one) ^ u32::from(other);
            differs.leading_zeros() >= u32::from(prefix)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            let differs = u128::from(one) ^ u128::from(other);
            differs.leading_zeros() >= u32::from(prefix)
        }
        _ => false,
    }
}

/// What is wrong with an address that one host of a network is to have, if anything.
fn trouble(ip: IpAddr, prefix: u8) -> Option<&'static str> {
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    if !(1..=longest).contains(&prefix) {
        return Some("the prefix has 1 to 32 bits (IPv6: 128)");
    }
    let is_of_one_link = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_of_one_link {
        return Some("no client can connect to it");
    }
    let IpAddr::V4(v4) = ip else { return None };
    let host = u32::from(v4) & u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    let all_ones = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    (prefix < 31 && (host == 0 || host == all_ones))
        .then_some("it is the network's own, or its broadcast address")
}

fn is_name_of_interface(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    let is_short = (1..=LONGEST_INTERFACE).contains(&name.len());
    is_short && name.bytes().all(plain) && !name.starts_with('-') && !matches!(name, "." | "..")
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)?;
        match &self.interface {
            Some(interface) => write!(f, "%{interface}"),
            None => Ok(()),
        }
    }
}

impl FromStr for ServiceAddress {
    type Err = ControlError;

    fn from_str(text: &str) -> Result<Self, ControlError> {
        let wrong = |why| Self::wrong(text, why);
        let (place, interface) = match text.split_once('%') {
            Some((place, interface)) => (place, Some(interface)),
            None => (text, None),
        };
        let (ip, prefix) = place
            .split_once('/')
            .ok_or_else(|| wrong("it has no prefix"))?;
        let ip: IpAddr = ip.parse().map_err(|_| wrong("this is no IP address"))?;
        let prefix = prefix
            .parse()
            .map_err(|_| wrong("the prefix is no number"))?;
        if let Some(why) = trouble(ip, prefix) {
            return Err(wrong(why));
        }
        if interface.is_some_and(|name| !is_name_of_interface(name)) {
            return Err(wrong("an interface has another name"));
        }
        Ok(Self {
            ip,
            prefix,
            interface: interface.map(str::to_owned),
        })
    }
}

impl TryFrom<String> for ServiceAddress {
    type Error = ControlError;

    fn try_from(text: String) -> Result<Self, ControlError> {
        text.parse()
    }
}

impl From<ServiceAddress> for String {
    fn from(address: ServiceAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_meant_and_what_makes_no_sense_is_named() {
        for text in [
            "10.0.0.50/24%eth0",
            "10.0.0.50/24",
            "10.0.0.0/31",
            "fd00::50/64%br-lan",
        ] {
            let address: ServiceAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
            let json = serde_json::to_string(&address).expect("JSON");
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(
                serde_json::from_str::<ServiceAddress>(&json).ok(),
                Some(address)
            );
        }
        for (text, why) in [
            ("10.0.0.50", "no prefix"),
            ("10.0.0.x/24", "no IP address"),
            ("10.0.0.50/33", "1 to 32 bits"),
            ("10.0.0.50/0", "1 to 32 bits"),
            ("10.0.0.50/24%", "an interface"),
            ("10.0.0.50/24%a b", "an interface"),
            ("10.0.0.50/24%-eth0", "an interface"),
            ("10.0.0.255/24", "broadcast"),
            ("10.0.0.0/24", "broadcast"),
            ("127.0.0.2/8", "no client"),
            ("224.0.0.1/4", "no client"),
            ("fe80::1/64", "no client"),
        ] {
            let error = text.parse::<ServiceAddress>().expect_err(text);
            assert!(error.message.contains(why), "{text}: {error}");
            assert!(error.message.contains(text), "{text}: {error}");
        }
    }

    #[test]
    fn neighbours_share_the_first_bits() {
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        assert!(are_neighbours(ip("10.0.0.1"), ip("10.0.0.50"), 24));
        assert!(!are_neighbours(ip("10.0.1.1"), ip("10.0.0.50"), 24));
        assert!(are_neighbours(ip("10.0.0.1"), ip("10.0.0.1"), 32));
        assert!(are_neighbours(ip("fd00::1"), ip("fd00::2"), 64));
        assert!(!are_neighbours(ip("fd00:0:0:1::1"), ip("fd00::2"), 64));
        assert!(!are_neighbours(ip("10.0.0.1"), ip("fd00::1"), 0));
    }
}
