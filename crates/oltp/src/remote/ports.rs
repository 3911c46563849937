//! Ports for servers that are stopped and started again at the same one.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;

/// The kernel gives these to connections, so that one could have a server's port while that is stopped.
const GIVEN: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Its range where nothing is told.
const USUALLY_GIVEN: RangeInclusive<u16> = 32768..=60999;
/// Below are ports of much that is usual on a machine.
const FIRST: u16 = 10_000;
/// Ports are tried so often.
const MOST_TRIES: usize = 1000;

/// Those that a run has drawn.
#[derive(Debug, Default)]
pub struct Ports {
    drawn: Vec<u16>,
}

impl Ports {
    /// Draws another that is free.
    ///
    /// # Errors
    /// There is none, or this is no address of ours.
    pub fn draw(&mut self, ip: IpAddr) -> std::io::Result<SocketAddr> {
        let own = own(&given());
        let mut tried = Ok(());
        for _ in 0..MOST_TRIES {
            let port = own.get(fastrand::usize(..own.len().max(1)));
            let Some(port) = port.copied().filter(|port| !self.drawn.contains(port)) else {
                continue;
            };
            let at = SocketAddr::new(ip, port);
            match TcpListener::bind(at) {
                Ok(_) => {
                    self.drawn.push(port);
                    return Ok(at);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => tried = Err(error),
                Err(error) => return Err(error),
            }
        }
        tried.and_then(|()| Err(std::io::Error::other("no port is left")))
    }
}

fn given() -> RangeInclusive<u16> {
    let text = std::fs::read_to_string(GIVEN).unwrap_or_default();
    let mut ends = text.split_whitespace().map(str::parse);
    match (ends.next(), ends.next()) {
        (Some(Ok(first)), Some(Ok(last))) => first..=last,
        _ => USUALLY_GIVEN,
    }
}

/// Those that the kernel does not give; all, where it gives all.
fn own(given: &RangeInclusive<u16>) -> Vec<u16> {
    let all = FIRST..=u16::MAX;
    let own: Vec<u16> = all.clone().filter(|port| !given.contains(port)).collect();
    match own.is_empty() {
        true => all.collect(),
        false => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_none_that_a_connection_may_get_and_all_different() {
        let mut ports = Ports::default();
        let ip = IpAddr::from([127, 0, 0, 1]);
        let draw = |_| ports.draw(ip).expect("free").port();
        let mut drawn: Vec<u16> = (0..300).map(draw).collect();
        let given = given();
        assert!(drawn.iter().all(|port| !given.contains(port)), "{given:?}");
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 300);
        assert!(ports.draw(IpAddr::from([192, 0, 2, 1])).is_err());
        assert_eq!(own(&(1024..=65535)).len(), 55_536);
        assert_eq!(own(&(20_000..=65_533)).len(), 10_002);
    }
}
