use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Where a member of etcd listens for clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtcdEndpoint {
    authority: String,
    is_tls: bool,
}

const ETCD_PORT: u16 = 2379;

impl EtcdEndpoint {
    /// `HOST:PORT`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The same, by certificates of the cluster.
    pub(crate) fn with_tls(address: SocketAddr) -> Self {
        Self {
            authority: address.to_string(),
            is_tls: true,
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// TLS is spoken with members that nodes bring with them, which have certificates of the cluster.
    pub(crate) fn without_tls(&self) -> Result<(), String> {
        match self.is_tls {
            false => Ok(()),
            true => Err(format!(
                "{self}: TLS to an etcd of others is not there yet; name a client address without it (http://), on a \
                 network that only the cluster uses"
            )),
        }
    }
}

impl From<SocketAddr> for EtcdEndpoint {
    fn from(address: SocketAddr) -> Self {
        Self {
            authority: address.to_string(),
            is_tls: false,
        }
    }
}

impl FromStr for EtcdEndpoint {
    type Err = String;

    /// `ADDR:PORT` or `http://HOST[:PORT]`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        if let Some(rest) = text.strip_prefix("https://") {
            let plain: Self = format!("http://{rest}").parse()?;
            return Ok(Self {
                is_tls: true,
                ..plain
            });
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
            None if text.starts_with("http://") => Ok(Self {
                authority: format!("{rest}:{ETCD_PORT}"),
                is_tls: false,
            }),
            Some((host, port)) if !host.is_empty() && port.parse().is_ok_and(|p: u16| p > 0) => {
                Ok(Self {
                    authority: rest.into(),
                    is_tls: false,
                })
            }
            _ => Err(nonsense()),
        }
    }
}

impl fmt::Display for EtcdEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}
