use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// A socket that could not be made, naming the address.
#[derive(Debug)]
pub struct NetError {
    what: &'static str,
    address: SocketAddr,
    errno: Errno,
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.what, self.address, self.errno)
    }
}

impl std::error::Error for NetError {}

/// A TCP socket for `address`'s family, with Nagle's algorithm off.
pub fn stream_socket(address: SocketAddr) -> Result<OwnedFd, NetError> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let failed = |errno| NetError {
        what: "make a socket for",
        address,
        errno,
    };
    let socket =
        net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    sockopt::set_tcp_nodelay(&socket, true).map_err(failed)?;
    Ok(socket)
}

/// A listening TCP socket and the address it got (which names the port when 0 was asked for).
/// Accepted sockets inherit TCP_NODELAY.
pub fn listen(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), NetError> {
    let failed = |errno| NetError {
        what: "listen on",
        address,
        errno,
    };
    let socket = stream_socket(address)?;
    // A restarted target must get its port back while old connections linger.
    sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    net::bind(&socket, &address).map_err(failed)?;
    net::listen(&socket, 4096).map_err(failed)?;
    let bound = net::getsockname(&socket).map_err(failed)?;
    let bound = SocketAddr::try_from(bound).map_err(failed)?;
    Ok((socket, bound))
}
