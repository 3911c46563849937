//! What neighbours say to each other: ARP of IPv4 (RFC 826, RFC 5227), neighbour discovery of IPv6 (RFC 4861). Bytes only.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::packet::ArpFrame;

/// A hardware address of Ethernet.
pub(super) type Mac = [u8; 6];

const EVERYONE: Mac = [0xff; 6];
const NO_ONE: Mac = [0; 6];
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// What is advertised counts more than what was known.
const OVERRIDE: u8 = 0x20;

/// What an ARP packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arp {
    Request = 1,
    Reply = 2,
}

/// An ARP packet to all, in its frame.
fn arp(kind: Arp, mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> ArpFrame {
    let mut frame = [0; 42];
    frame[..6].copy_from_slice(&EVERYONE);
    frame[6..12].copy_from_slice(&mac);
    // ARP; Ethernet and IPv4, with addresses of 6 and 4 bytes.
    frame[12..21].copy_from_slice(&[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0]);
    frame[21] = kind as u8;
    frame[22..28].copy_from_slice(&mac);
    frame[28..32].copy_from_slice(&sender.octets());
    let target_mac = if kind == Arp::Reply { EVERYONE } else { NO_ONE };
    frame[32..38].copy_from_slice(&target_mac);
    frame[38..].copy_from_slice(&target.octets());
    frame
}

/// Tells all that an address is here. Some learn from requests, some from replies: both are sent.
pub(super) fn arp_announcement(kind: Arp, mac: Mac, ip: Ipv4Addr) -> ArpFrame {
    arp(kind, mac, ip, ip)
}

/// Asks who has an address, without claiming one.
pub(super) fn arp_probe(mac: Mac, ip: Ipv4Addr) -> ArpFrame {
    arp(Arp::Request, mac, Ipv4Addr::UNSPECIFIED, ip)
}

/// Who says to this interface that it has the address.
pub(super) fn arp_answer(frame: &[u8], mac: Mac, ip: Ipv4Addr) -> Option<Mac> {
    let frame: &ArpFrame = frame.get(..42)?.try_into().ok()?;
    let is_reply = frame[12..14] == [0x08, 0x06] && frame[20..22] == [0, Arp::Reply as u8];
    let is_of_it = frame[28..32] == ip.octets() && frame[32..38] == mac;
    let sender: Mac = frame[22..28].try_into().ok()?;
    (is_reply && is_of_it && sender != mac).then_some(sender)
}

/// A message of neighbour discovery: the kernel adds the sum.
fn discovery(kind: u8, flags: u8, option: u8, mac: Mac, ip: Ipv6Addr) -> [u8; 32] {
    let mut message = [0; 32];
    (message[0], message[4]) = (kind, flags);
    message[8..24].copy_from_slice(&ip.octets());
    (message[24], message[25]) = (option, 1);
    message[26..].copy_from_slice(&mac);
    message
}

/// Tells all that an address is here.
pub(super) fn advertisement(mac: Mac, ip: Ipv6Addr) -> [u8; 32] {
    discovery(NEIGHBOUR_ADVERTISEMENT, OVERRIDE, 2, mac, ip)
}

/// Asks who has an address.
pub(super) fn solicitation(mac: Mac, ip: Ipv6Addr) -> [u8; 32] {
    discovery(NEIGHBOUR_SOLICITATION, 0, 1, mac, ip)
}

/// Where a solicitation goes.
pub(super) fn solicited(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = ip.octets();
    let high = u16::from(a) | 0xff00;
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, u16::from_be_bytes([b, c]))
}

/// Who says that it has the address.
pub(super) fn advertised(message: &[u8], mac: Mac, ip: Ipv6Addr) -> Option<Mac> {
    let message: &[u8; 32] = message.get(..32)?.try_into().ok()?;
    let is_of_it = message[0] == NEIGHBOUR_ADVERTISEMENT && message[8..24] == ip.octets();
    let sender: Mac = message[26..].try_into().ok()?;
    (is_of_it && message[24..26] == [2, 1] && sender != mac).then_some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: Mac = [2, 0, 0, 0, 0, 1];
    const OTHER: Mac = [2, 0, 0, 0, 0, 2];

    #[test]
    fn only_an_answer_of_another_about_this_address_counts() {
        let ip = Ipv4Addr::new(10, 0, 0, 50);
        let mut answer = arp(Arp::Reply, OTHER, ip, Ipv4Addr::UNSPECIFIED);
        answer[32..38].copy_from_slice(&MINE);
        assert_eq!(arp_answer(&answer, MINE, ip), Some(OTHER));
        assert_eq!(arp_answer(&answer, OTHER, ip), None);
        assert_eq!(arp_answer(&answer, MINE, Ipv4Addr::new(10, 0, 0, 51)), None);
        assert_eq!(arp_answer(&answer[..41], MINE, ip), None);
        assert_eq!(arp_answer(&arp_probe(OTHER, ip), MINE, ip), None);
        let ip: Ipv6Addr = "fd00::1:50".parse().expect("an address");
        assert_eq!(
            solicited(ip),
            "ff02::1:ff01:50".parse::<Ipv6Addr>().expect("one")
        );
        assert_eq!(advertised(&advertisement(OTHER, ip), MINE, ip), Some(OTHER));
        assert_eq!(advertised(&advertisement(MINE, ip), MINE, ip), None);
        assert_eq!(advertised(&solicitation(OTHER, ip), MINE, ip), None);
    }

    #[test]
    fn an_announcement_is_as_the_standard_has_it() {
        let frame = arp_announcement(Arp::Request, MINE, Ipv4Addr::new(10, 0, 0, 50));
        let expected = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2,
            0, 0, 0, 0, 1, 10, 0, 0, 50, 0, 0, 0, 0, 0, 0, 10, 0, 0, 50,
        ];
        assert_eq!(frame, expected);
    }
}
