//! What the tests of the cluster share.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// An address of this test program alone: loopback has sixteen million.
pub(crate) fn address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed) + 1;
    let pid = std::process::id();
    let ip = [
        127,
        1 + (pid % 250) as u8,
        (pid / 250 % 256) as u8,
        number as u8,
    ];
    let listener = TcpListener::bind(SocketAddr::from((ip, 0))).expect("a port");
    listener.local_addr().expect("an address")
}
