//! Bare Ethernet frames: what a packet socket is told about where they go.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, eth, sendto, socket_with};

/// A frame without options of an ARP packet, and its Ethernet header.
pub(super) type ArpFrame = [u8; 42];

/// The kernel's `sockaddr_ll`.
#[repr(C)]
struct LinkAddress {
    family: u16,
    /// In the order of the network; of a raw socket it is in the frame, too.
    protocol: u16,
    interface: i32,
    hardware: u16,
    kind: u8,
    length: u8,
    address: [u8; 8],
}

// SAFETY: the pointer is to all of a `sockaddr_ll` that outlives the call of `f`.
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        f(
            std::ptr::from_ref(self).cast(),
            size_of::<Self>() as SocketAddrLen,
        )
    }
}

/// A socket that sends frames, and hears the ARP of all interfaces for at most so long at a time.
pub(super) fn arp_socket(patience: Duration) -> Result<OwnedFd, Errno> {
    let socket = socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(eth::ARP),
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    Ok(socket)
}

/// Sends a frame out of the interface of this number.
pub(super) fn send_frame(socket: &OwnedFd, interface: u32, frame: &ArpFrame) -> Result<(), Errno> {
    let to = LinkAddress {
        family: AddressFamily::PACKET.as_raw(),
        protocol: 0x0806_u16.to_be(),
        interface: i32::try_from(interface).map_err(|_| Errno::NODEV)?,
        hardware: 0,
        kind: 0,
        length: 6,
        address: [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
    };
    sendto(socket, frame, SendFlags::empty(), &to).map(drop)
}
