//! Sockets.
#![allow(unsafe_code)]

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::AFTERLIFE;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// What a peer may send before we have taken what it sent: a queue of 128 writes of 4 KiB, and again
/// as much. The kernel counts its own overhead in, and doubles what it is asked for.
const RECEIVE_BYTES: usize = 1 << 20;

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
    widen(&socket);
    Ok(socket)
}

/// Lets the kernel take more from the peer from the beginning than it would by itself.
///
/// It lets a socket's window grow with what was read in a round trip, so a peer that keeps a fixed
/// number of commands in flight finds it closed again and again: with 128 writes of 4 KiB it was for 90 %
/// of the time, and each time it opened the peer's data was sent on, from within our receive, at our
/// expense. Only for speed: what fails is left as it was. Accepted sockets inherit it.
fn widen(socket: &OwnedFd) {
    let granted = sockopt::socket_recv_buffer_size(socket).unwrap_or(0);
    if granted >= 2 * RECEIVE_BYTES
        || sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BYTES).is_err()
    {
        return;
    }
    // Having been told a size the kernel no longer adapts it, unless it is told to.
    let unlocked: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the option's value is an integer that outlives the call.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUF_LOCK,
            (&raw const unlocked).cast(),
            size_of_val(&unlocked) as libc::socklen_t,
        )
    };
}

/// Between two looks whether an address is free.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A listening TCP socket and the address it got (which names the port when 0 was asked for).
/// Accepted sockets inherit TCP_NODELAY. An address in use is waited for, [`AFTERLIFE`] at most: a process that
/// is started again at once after a kill finds its own.
///
/// # Errors
/// The kernel's, with the address.
pub fn listen(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), NetError> {
    let start = Instant::now();
    loop {
        match listen_now(address) {
            Err(error) if error.errno == Errno::ADDRINUSE && start.elapsed() < AFTERLIFE => {
                std::thread::sleep(LOOK_EVERY);
            }
            ended => return ended,
        }
    }
}

fn listen_now(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), NetError> {
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
