//! Tells an interface's neighbours of an address, and asks them whether one of them has it.

use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_ipv6_multicast_hops, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto,
    socket_with,
};

use super::links::Link;
use super::packet::{arp_socket, send_frame};
use super::words::{self, Arp, Mac};

/// Between two looks whether the time for an answer is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Neighbours are asked so often, and each time have so long to answer.
const ASKED: u32 = 3;
const ANSWERS_WITHIN: Duration = Duration::from_millis(300);
/// All nodes of a link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// What comes from another link is not believed: a router has counted it down.
const FROM_THIS_LINK: u32 = 255;

/// Neighbours of an interface can be spoken to.
pub(super) struct Neighbours {
    interface: u32,
    mac: Mac,
    socket: OwnedFd,
    ip: IpAddr,
}

impl Neighbours {
    /// To speak of an address to those of an interface.
    pub(super) fn of(link: &Link, ip: IpAddr) -> Result<Self, String> {
        let socket = match ip {
            IpAddr::V4(_) => arp_socket(LOOK_INTERVAL),
            IpAddr::V6(_) => discovery_socket(),
        };
        let failed = |errno| format!("a raw socket, which tells neighbours of {ip}: {errno}");
        Ok(Self {
            interface: link.ifindex,
            mac: link.mac()?,
            socket: socket.map_err(failed)?,
            ip,
        })
    }

    /// Tells all that the address is here.
    pub(super) fn tell(&self) -> Result<(), String> {
        let told = match self.ip {
            IpAddr::V4(ip) => [Arp::Request, Arp::Reply].into_iter().try_for_each(|kind| {
                let frame = words::arp_announcement(kind, self.mac, ip);
                send_frame(&self.socket, self.interface, &frame)
            }),
            IpAddr::V6(ip) => self.discover(&words::advertisement(self.mac, ip), ALL_NODES),
        };
        told.map_err(|errno| format!("announcing {}: {errno}", self.ip))
    }

    /// Who has the address, if one of them says so.
    pub(super) fn who_has(&self) -> Result<Option<Mac>, String> {
        let failed = |errno| format!("asking who has {}: {errno}", self.ip);
        for _ in 0..ASKED {
            self.ask().map_err(failed)?;
            let begun = Instant::now();
            while begun.elapsed() < ANSWERS_WITHIN {
                if let Some(owner) = self.hear().map_err(failed)? {
                    return Ok(Some(owner));
                }
            }
        }
        Ok(None)
    }

    fn ask(&self) -> Result<(), Errno> {
        match self.ip {
            IpAddr::V4(ip) => {
                let frame = words::arp_probe(self.mac, ip);
                send_frame(&self.socket, self.interface, &frame)
            }
            IpAddr::V6(ip) => {
                let message = words::solicitation(self.mac, ip);
                self.discover(&message, words::solicited(ip))
            }
        }
    }

    /// The next thing heard, if it is an answer.
    fn hear(&self) -> Result<Option<Mac>, Errno> {
        let mut heard = [0; 128];
        let (count, _) = match recv(&self.socket, &mut heard, RecvFlags::empty()) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            received => received?,
        };
        let heard = &heard[..count.min(heard.len())];
        Ok(match self.ip {
            IpAddr::V4(ip) => words::arp_answer(heard, self.mac, ip),
            IpAddr::V6(ip) => words::advertised(heard, self.mac, ip),
        })
    }

    fn discover(&self, message: &[u8], to: Ipv6Addr) -> Result<(), Errno> {
        let to = SocketAddrV6::new(to, 0, 0, self.interface);
        sendto(&self.socket, message, SendFlags::empty(), &to).map(drop)
    }
}

fn discovery_socket() -> Result<OwnedFd, Errno> {
    let socket = socket_with(
        AddressFamily::INET6,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(ipproto::ICMPV6),
    )?;
    set_ipv6_multicast_hops(&socket, FROM_THIS_LINK)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(LOOK_INTERVAL))?;
    Ok(socket)
}
