//! `nvme-tcp://ADDR:PORT[,ADDR:PORT…]/NQN?ns=1&…`: a remote namespace as a command line names it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ashlar_nvme::fabrics::Nqn;

use crate::config::{Config, Host, Replay};

/// The scheme, with its separator.
pub const SCHEME: &str = "nvme-tcp://";
/// The port that IANA gave to NVMe/TCP.
pub const DEFAULT_PORT: u16 = 4420;
/// Most commands outstanding on one queue pair: what a command identifier's slot bits can tell.
pub const DEPTH_MAX: u16 = 1024;
const QUEUES_MAX: u16 = 64;
/// Most portals of one URL.
const PORTALS_MAX: usize = 8;

/// What is wrong with a URL, naming the piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlError(String);

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UrlError {}

fn wrong<T>(message: impl Into<String>) -> Result<T, UrlError> {
    Err(UrlError(message.into()))
}

/// Parses `nvme-tcp://ADDR[:PORT][,ADDR[:PORT]…]/NQN[?option=value&…]`; IPv6 addresses stand in brackets.
/// Several addresses are several paths to one namespace.
///
/// Options: `ns` (namespace identifier), `hdgst`, `ddgst` (`on`, `off`), `queues` (1 to 64),
/// `depth` (1 to 1024), `kato`, `timeout`, `loss` (durations such as `500ms`, `15s`, `2m`), `replay`
/// (`all`, `reads`, `none`), `discover` (`on`, `off`), `prefer` (one of the addresses), `forwards` (`on`, `off`: non-optimized paths are not
/// taken), `hostnqn`. `host` is who we are unless `hostnqn` says otherwise.
///
/// # Errors
/// Names the piece that is missing or wrong.
pub fn parse(url: &str, host: &Host) -> Result<Config, UrlError> {
    let Some(rest) = url.strip_prefix(SCHEME) else {
        return wrong(format!("'{url}' does not start with {SCHEME}"));
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (rest, None),
    };
    let Some((authority, nqn)) = place.split_once('/') else {
        return wrong(format!("'{url}' names no subsystem: {SCHEME}ADDR:PORT/NQN"));
    };
    check_nqn("subsystem NQN", nqn)?;
    let mut portals = authority
        .split(',')
        .map(address)
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(twice) = (1..portals.len()).find(|&at| portals[..at].contains(&portals[at])) {
        return wrong(format!(
            "'{}' is named twice in '{authority}'",
            portals[twice]
        ));
    }
    if portals.len() > PORTALS_MAX {
        return wrong(format!(
            "'{authority}' names more than {PORTALS_MAX} portals"
        ));
    }
    let mut config = Config::new(&portals[0], nqn, host.clone());
    config.others = portals.split_off(1);
    for option in query.into_iter().flat_map(|query| query.split('&')) {
        let Some((name, value)) = option.split_once('=') else {
            return wrong(format!("option '{option}' has no value"));
        };
        set(&mut config, name, value)?;
    }
    if let Some(home) = config
        .prefers
        .as_deref()
        .filter(|home| !config.portals().contains(home))
    {
        return wrong(format!("prefer={home}: not one of '{authority}'"));
    }
    Ok(config)
}

/// Checks `ADDR[:PORT]` and gives it with the port.
///
/// # Errors
/// Names the piece that is missing or wrong.
pub fn address(text: &str) -> Result<String, UrlError> {
    if let Ok(bare) = text.parse::<Ipv6Addr>() {
        return wrong(format!("IPv6 address '{bare}' must stand in brackets"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return wrong(format!("port '{port}' in '{text}' is not 1 to 65535")),
        },
    };
    match host.strip_prefix('[') {
        Some(inner) => check_v6(inner, text)?,
        None => check_name(host, text)?,
    }
    Ok(format!("{host}:{port}"))
}

fn check_v6(inner: &str, text: &str) -> Result<(), UrlError> {
    match inner.strip_suffix(']').map(str::parse::<Ipv6Addr>) {
        Some(Ok(_)) => Ok(()),
        _ => wrong(format!("'[{inner}' in '{text}' is not an IPv6 address")),
    }
}

fn check_name(host: &str, text: &str) -> Result<(), UrlError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-' || b == b'_';
    let numeric = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if host.is_empty() || !host.bytes().all(plain) {
        return wrong(format!("'{text}' has no valid address before the port"));
    }
    if numeric && host.parse::<IpAddr>().is_err() {
        return wrong(format!("'{host}' in '{text}' is not an IPv4 address"));
    }
    Ok(())
}

fn check_nqn(what: &str, nqn: &str) -> Result<(), UrlError> {
    match Nqn::lenient(nqn) {
        Ok(_) => Ok(()),
        Err(error) => wrong(format!("{what} '{}': {error}", nqn.escape_debug())),
    }
}

fn set(config: &mut Config, name: &str, value: &str) -> Result<(), UrlError> {
    match name {
        "ns" => config.nsid = Some(number(name, value, 1, 0xffff_fffe)?),
        "hdgst" => config.digests.header = switch(name, value)?,
        "ddgst" => config.digests.data = switch(name, value)?,
        "queues" => config.queues = number(name, value, 1, u32::from(QUEUES_MAX))? as u16,
        "depth" => config.depth = number(name, value, 1, u32::from(DEPTH_MAX))? as u16,
        "kato" => config.keep_alive = keep_alive(value)?,
        "timeout" => config.timeout = positive(name, value)?,
        "loss" => config.loss = duration(name, value)?,
        "replay" => config.replay = replay(value)?,
        "prefer" => config.prefers = Some(address(value)?),
        "forwards" => config.forwards = switch(name, value)?,
        "discover" => config.discovers = switch(name, value)?,
        "hostnqn" => {
            check_nqn("hostnqn", value)?;
            config.host = Host::named(value);
        }
        _ => {
            return wrong(format!(
                "unknown option '{name}' (ns, hdgst, ddgst, queues, depth, kato, timeout, loss, \
                 replay, discover, prefer, forwards, hostnqn)"
            ));
        }
    }
    Ok(())
}

fn number(name: &str, value: &str, least: u32, most: u32) -> Result<u32, UrlError> {
    match value.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => wrong(format!(
            "{name}={value}: not a number from {least} to {most}"
        )),
    }
}

fn switch(name: &str, value: &str) -> Result<bool, UrlError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => wrong(format!("{name}={value}: neither 'on' nor 'off'")),
    }
}

fn replay(value: &str) -> Result<Replay, UrlError> {
    match value {
        "all" => Ok(Replay::All),
        "reads" => Ok(Replay::Reads),
        "none" => Ok(Replay::None),
        _ => wrong(format!("replay={value}: not 'all', 'reads' or 'none'")),
    }
}

/// Connect's KATO field is 32 bits of milliseconds.
fn keep_alive(value: &str) -> Result<Duration, UrlError> {
    let time = duration("kato", value)?;
    if time.as_millis() > u128::from(u32::MAX) {
        return wrong(format!("kato={value}: longer than 49 days"));
    }
    Ok(time)
}

fn positive(name: &str, value: &str) -> Result<Duration, UrlError> {
    match duration(name, value)? {
        Duration::ZERO => wrong(format!("{name}={value}: must be above zero")),
        time => Ok(time),
    }
}

fn duration(name: &str, value: &str) -> Result<Duration, UrlError> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = value.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => {
            return wrong(format!(
                "{name}={value}: not a duration such as 500ms, 15s or 2m"
            ));
        }
    };
    match count
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(milliseconds))
    {
        Some(total) => Ok(Duration::from_millis(total)),
        None => wrong(format!(
            "{name}={value}: not a duration such as 500ms, 15s or 2m"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host() -> Host {
        Host::named("nqn.2026-01.test:host")
    }

    #[test]
    fn every_option_is_understood() {
        let url = "nvme-tcp://[::1]:4421/nqn.2026-01.test:s?ns=2&hdgst=on&ddgst=on&queues=2\
                   &kato=5s&timeout=1500ms&loss=2m&replay=reads&discover=on&forwards=off&hostnqn=nqn.2026-01.test:h&depth=32";
        let config = parse(url, &host()).expect("valid");
        assert_eq!(config.address, "[::1]:4421");
        assert_eq!((config.nsid, config.queues, config.depth), (Some(2), 2, 32));
        assert!(
            config.digests.header && config.digests.data && config.discovers && !config.forwards
        );
        assert_eq!(config.keep_alive, Duration::from_secs(5));
        assert_eq!(config.timeout, Duration::from_millis(1500));
        assert_eq!(config.loss, Duration::from_secs(120));
        assert_eq!(
            (config.replay, &*config.host.nqn),
            (Replay::Reads, "nqn.2026-01.test:h")
        );
    }

    #[test]
    fn the_port_may_be_left_out() {
        let config = parse("nvme-tcp://10.0.0.1/nqn.2026-01.test:s", &host()).expect("valid");
        assert_eq!((&*config.address, config.nsid), ("10.0.0.1:4420", None));
        assert_eq!(address("[fe80::1]"), Ok("[fe80::1]:4420".into()));
        assert_eq!(address("db-1.example"), Ok("db-1.example:4420".into()));
    }

    #[test]
    fn several_portals_are_several_paths() {
        let url = "nvme-tcp://10.0.0.1,[::1]:4421/nqn.2026-01.test:s?ns=2&prefer=10.0.0.1";
        let config = parse(url, &host()).expect("valid");
        assert_eq!(config.portals(), ["10.0.0.1:4420", "[::1]:4421"]);
        assert_eq!(config.prefers.as_deref(), Some("10.0.0.1:4420"));
        let paths = config.paths();
        assert_eq!((&*paths[1].address, paths[1].nsid), ("[::1]:4421", Some(2)));
        assert_eq!(config.peer(), "10.0.0.1:4420,[::1]:4421 nqn.2026-01.test:s");
    }

    #[test]
    fn errors_name_the_piece() {
        let base = "nvme-tcp://127.0.0.1:4420/nqn.2026-01.test:s";
        let cases = [
            ("tcp://x", "nvme-tcp://"),
            ("nvme-tcp://127.0.0.1:4420", "no subsystem"),
            ("nvme-tcp://127.0.0.1:99999/nqn.2026-01.x", "99999"),
            ("nvme-tcp://127.0.0.1:0/nqn.2026-01.x", "port '0'"),
            ("nvme-tcp://127.0.0.256:1/nqn.2026-01.x", "127.0.0.256"),
            ("nvme-tcp://::1/nqn.2026-01.x", "brackets"),
            ("nvme-tcp://[::g]:1/nqn.2026-01.x", "[::g]"),
            ("nvme-tcp://:1/nqn.2026-01.x", "no valid address"),
            ("nvme-tcp://a:1,b:0/nqn.2026-01.x", "port '0'"),
            ("nvme-tcp://a,/nqn.2026-01.x", "no valid address"),
            (
                "nvme-tcp://a,b,a:4420/nqn.2026-01.x",
                "'a:4420' is named twice",
            ),
            ("nvme-tcp://a,b,c,d,e,f,g,h,i/nqn.2026-01.x", "more than 8"),
            ("nvme-tcp://127.0.0.1:1/iqn.x", "iqn.x"),
            (&format!("{base}?ns=0"), "ns=0"),
            (&format!("{base}?ns"), "'ns'"),
            (&format!("{base}?hdgst=yes"), "hdgst=yes"),
            (&format!("{base}?discover=1"), "discover=1"),
            (&format!("{base}?prefer=127.0.0.2"), "prefer=127.0.0.2:4420"),
            (&format!("{base}?prefer=:"), "port ''"),
            (&format!("{base}?queues=65"), "queues=65"),
            (&format!("{base}?depth=4096"), "depth=4096"),
            (&format!("{base}?kato=5"), "kato=5"),
            (&format!("{base}?timeout=0s"), "timeout=0s"),
            (&format!("{base}?loss=99999999999999999999s"), "loss="),
            (&format!("{base}?replay=some"), "replay=some"),
            (&format!("{base}?hostnqn=me"), "hostnqn"),
            (&format!("{base}?colour=red"), "colour"),
        ];
        for (url, piece) in cases {
            let error = parse(url, &host()).expect_err(url).to_string();
            assert!(error.contains(piece), "{url}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,80}") {
            let _ = parse(&text, &host());
            let _ = parse(&format!("nvme-tcp://{text}"), &host());
            let _ = parse(&format!("nvme-tcp://h:1/nqn.2026-01.x?{text}"), &host());
        }
    }
}
