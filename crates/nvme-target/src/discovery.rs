//! The discovery log page (Base 2.1, 5.1.12.3.1): which subsystems a host may connect to, and where.

use std::net::SocketAddr;

use ashlar_nvme::fabrics::AddressFamily;
use ashlar_nvme::log::{DiscoveryEntry, DiscoveryHeader, SubsystemType};

use crate::subsystem::Host;
use crate::target::Target;

/// The whole page for `host`, which has connected to `local`.
pub(crate) fn page(target: &Target, host: &Host, local: SocketAddr) -> Vec<u8> {
    let roster = target.roster();
    let allowed = roster.subsystems.iter().filter(|s| s.allows(&host.nqn));
    let entries: Vec<DiscoveryEntry> = allowed
        .flat_map(|subsystem| {
            let here = subsystem.advertise.unwrap_or(local);
            let mut elsewhere = subsystem.portals();
            elsewhere.retain(|portal| *portal != here);
            let portals = std::iter::once(here).chain(elsewhere);
            portals.map(|portal| entry(&subsystem.nqn, portal))
        })
        .collect();
    let mut page = DiscoveryHeader::new(roster.generation, entries.len() as u64)
        .as_wire()
        .to_vec();
    for entry in &entries {
        page.extend_from_slice(entry.as_wire());
    }
    page
}

fn entry(nqn: &str, address: SocketAddr) -> DiscoveryEntry {
    // A dual-stack listener sees IPv4 hosts under mapped addresses, which no host can connect to.
    let ip = address.ip().to_canonical();
    let family = if ip.is_ipv4() {
        AddressFamily::Ipv4
    } else {
        AddressFamily::Ipv6
    };
    let port = address.port();
    DiscoveryEntry::tcp(SubsystemType::Nvm, family, &ip.to_string(), port, nqn)
}
