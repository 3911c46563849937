//! Interfaces of this machine and their addresses, by `ip` of iproute2.

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::super::run;
use super::words::Mac;
use crate::model::{ServiceAddress, are_neighbours};

/// `ip` asks the kernel, which may wait for a driver that hangs; a service that is taken down waits no longer than this.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Clients' connections are told of their end within so long, or not.
const CUT_WITHIN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Link {
    pub(super) ifindex: u32,
    #[serde(rename = "ifname")]
    pub(super) name: String,
    flags: Vec<String>,
    link_type: String,
    #[serde(rename = "address")]
    hardware: String,
    #[serde(rename = "addr_info")]
    addresses: Vec<Given>,
}

/// An address of an interface.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Given {
    local: Option<IpAddr>,
    prefixlen: u8,
    /// Another address of its network came before it: with that one, it goes.
    secondary: bool,
}

impl Link {
    /// Its hardware address, which neighbours learn.
    pub(super) fn mac(&self) -> Result<Mac, String> {
        let mut mac = [0; 6];
        let mut parts = self.hardware.split(':');
        let is_read = mac.iter_mut().all(|byte| {
            let part = parts.next().map(|part| u8::from_str_radix(part, 16));
            part.and_then(Result::ok).map(|read| *byte = read).is_some()
        });
        if self.link_type == "ether" && is_read && parts.next().is_none() {
            return Ok(mac);
        }
        Err(format!("interface {}: it is no Ethernet", self.name))
    }

    /// Whether it is switched on.
    pub(super) fn is_up(&self) -> bool {
        self.flags.iter().any(|flag| flag == "UP")
    }

    /// Whether there is something at the other end of its cable.
    pub(super) fn has_carrier(&self) -> bool {
        self.flags.iter().any(|flag| flag == "LOWER_UP")
    }

    /// The prefix with which it has an address, if it has it.
    pub(super) fn prefix_of(&self, ip: IpAddr) -> Option<u8> {
        let given = self.addresses.iter().find(|one| one.local == Some(ip));
        given.map(|one| one.prefixlen)
    }

    /// The addresses that go with one, unless the kernel is told to keep them.
    fn going_with(&self, ip: IpAddr, prefix: u8) -> Vec<IpAddr> {
        let is_secondary = |one: &&Given| one.local == Some(ip) && one.secondary;
        if self.addresses.iter().any(|one| is_secondary(&one)) {
            return Vec::new();
        }
        let others = self.addresses.iter().filter_map(|one| {
            let local = one.local.filter(|local| *local != ip && one.secondary)?;
            (one.prefixlen == prefix && are_neighbours(local, ip, prefix)).then_some(local)
        });
        others.collect()
    }

    /// Whether an address is in one of its networks. That the address itself is there counts for nothing.
    fn has_network_of(&self, ip: IpAddr) -> bool {
        let others = self.addresses.iter().filter_map(|one| {
            let local = one.local.filter(|local| *local != ip)?;
            Some(are_neighbours(local, ip, one.prefixlen))
        });
        self.link_type == "ether" && others.into_iter().any(|is| is)
    }
}

fn ip(words: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(words).stdin(Stdio::null());
    command
}

/// All interfaces.
pub(super) fn all() -> Result<Vec<Link>, String> {
    let mut command = ip(&["-json", "address", "show"]);
    let listed = run::printed(&mut command, ANSWERS_WITHIN);
    let listed = listed.map_err(|why| format!("iproute2: {why}"))?;
    serde_json::from_slice(&listed).map_err(|error| format!("ip -json address show: {error}"))
}

/// The interface that is to have an address.
pub(super) fn choose<'a>(links: &'a [Link], address: &ServiceAddress) -> Result<&'a Link, String> {
    let ip = address.ip();
    if let Some(name) = address.interface() {
        let named = links.iter().find(|link| link.name == name);
        return named.ok_or_else(|| format!("there is no interface {name}"));
    }
    let mut fit = links.iter().filter(|link| link.has_network_of(ip));
    match (fit.next(), fit.next()) {
        (Some(link), None) => Ok(link),
        (None, _) => Err(format!(
            "no interface has a network that {ip} is in: name one, {address}%INTERFACE"
        )),
        (Some(one), Some(other)) => Err(format!(
            "interfaces {} and {} have a network that {ip} is in: name one, {address}%INTERFACE",
            one.name, other.name
        )),
    }
}

/// Gives an interface the address.
pub(super) fn add(link: &Link, address: &ServiceAddress) -> Result<(), String> {
    let place = format!("{}/{}", address.ip(), address.prefix());
    let mut command = ip(&["address", "add", &place, "dev", &link.name]);
    if address.ip().is_ipv6() {
        // Usable at once: that no other has it was asked when the service was made. Never the source of what this
        // machine sends by itself.
        command.args(["nodad", "preferred_lft", "0"]);
    }
    run::finished(&mut command, ANSWERS_WITHIN)
}

/// Takes the address from an interface that has it. Those of its network that came after it stay.
pub(super) fn remove(link: &Link, ip_address: IpAddr, prefix: u8) -> Result<(), String> {
    let others = link.going_with(ip_address, prefix);
    if !others.is_empty() {
        keep_secondaries(&link.name, &others);
    }
    let place = format!("{ip_address}/{prefix}");
    let mut command = ip(&["address", "delete", &place, "dev", &link.name]);
    run::finished(&mut command, ANSWERS_WITHIN)
}

/// When the first address of a network goes, the kernel takes the others with it, or makes one of them the first. This
/// sets the latter. It stays so: another service may be about to rely on it.
fn keep_secondaries(link: &str, others: &[IpAddr]) {
    let file = format!("/proc/sys/net/ipv4/conf/{link}/promote_secondaries");
    if let Err(error) = std::fs::write(&file, "1") {
        // Two nodes with the address are worse.
        tracing::error!("{file}: {error}: with the address of a service these go, too: {others:?}");
    }
}

/// Ends what clients have open to an address. They get a reset at once, which is impossible when the address is gone.
pub(super) fn cut_clients(ip_address: IpAddr) {
    let mut command = Command::new("ss");
    command.args(["-K", "-H", "-n", "-t", "src"]);
    command.arg(ip_address.to_string()).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // Not every kernel can. Then clients learn it from the next owner, when they say something.
    let _ = run::ended(&mut command, CUT_WITHIN);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ip` of iproute2 6.1 prints it.
    const SHOWN: &str = r#"[
        {"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"link_type":"loopback",
         "address":"00:00:00:00:00:00","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},
        {"ifindex":2,"link_index":5,"ifname":"eth0","flags":["BROADCAST","UP"],"link_type":"ether",
         "address":"02:00:00:00:00:0a","addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24},
         {"family":"inet6","local":"fd00::1","prefixlen":64,"scope":"global"}]},
        {"ifindex":3,"ifname":"eth1","flags":["BROADCAST"],"link_type":"ether","address":"02:00:00:00:00:0b",
         "addr_info":[{"family":"inet","local":"10.0.1.1","prefixlen":24},
         {"family":"inet","local":"10.0.1.50","prefixlen":24},{"family":"inet6","local":"fd00::2","prefixlen":64}]},
        {}]"#;

    fn chosen(text: &str) -> Result<String, String> {
        let links: Vec<Link> = serde_json::from_str(SHOWN).expect("read");
        let address = text.parse().expect("an address");
        choose(&links, &address).map(|link| link.name.clone())
    }

    #[test]
    fn the_interface_is_the_one_that_is_named_or_the_only_one_with_the_network() {
        assert_eq!(chosen("10.0.0.50/24").as_deref(), Ok("eth0"));
        assert_eq!(chosen("10.0.1.50/24").as_deref(), Ok("eth1"));
        assert_eq!(chosen("10.9.0.50/24%eth1").as_deref(), Ok("eth1"));
        for (text, why) in [
            ("10.9.0.50/24", "no interface has a network"),
            ("fd00::50/64", "eth0 and eth1"),
            ("10.0.0.50/24%eth7", "no interface eth7"),
        ] {
            assert!(chosen(text).expect_err(text).contains(why));
        }
    }

    #[test]
    fn what_an_interface_is_and_has_is_read() {
        let links: Vec<Link> = serde_json::from_str(SHOWN).expect("read");
        assert_eq!(links[1].mac(), Ok([2, 0, 0, 0, 0, 10]));
        assert!(links[0].mac().is_err() && links[3].mac().is_err());
        assert_eq!((links[1].is_up(), links[2].is_up()), (true, false));
        assert_eq!(
            (links[0].has_carrier(), links[1].has_carrier()),
            (true, false)
        );
        let ip = "10.0.1.50".parse().expect("an address");
        assert_eq!(
            (links[1].prefix_of(ip), links[2].prefix_of(ip)),
            (None, Some(24))
        );
    }
}
