use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Where a member of etcd listens for clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtcdEndpoint(String);

const ETCD_PORT: u16 = 2379;

impl EtcdEndpoint {
    /// `HOST:PORT`.
    pub fn authority(&self) -> &str {
        &self.0
    }
}

impl From<SocketAddr> for EtcdEndpoint {
    fn from(address: SocketAddr) -> Self {
        Self(address.to_string())
    }
}

impl FromStr for EtcdEndpoint {
    type Err = String;

    /// `ADDR:PORT` or `http://HOST[:PORT]`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        if text.starts_with("https://") {
            return Err(format!(
                "{text}: TLS to etcd is not there yet; name a client address without it (http://), on a network that \
                 only the cluster uses"
            ));
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let nonsense = || format!("{text:?} is neither ADDR:PORT nor http://HOST[:PORT]");
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        if rest.is_empty() || !rest.chars().all(plain) {
            return Err(nonsense());
        }
        if let Ok(address) = rest.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        match rest.split_once(':') {
            None if text.starts_with("http://") => Ok(Self(format!("{rest}:{ETCD_PORT}"))),
            Some((host, port)) if !host.is_empty() && port.parse().is_ok_and(|p: u16| p > 0) => {
                Ok(Self(rest.into()))
            }
            _ => Err(nonsense()),
        }
    }
}

impl fmt::Display for EtcdEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}
