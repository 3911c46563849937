use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::model::ControlError;

/// Where a daemon's API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket.
    Socket(PathBuf),
    /// `HOST:PORT`, from `http://HOST:PORT`.
    Tcp(String),
}

impl Endpoint {
    /// Where it is unless something else is said.
    pub const DEFAULT: &str = "/run/ashlar/api.sock";
}

impl FromStr for Endpoint {
    type Err = ControlError;

    /// `http://HOST:PORT`, or the path of a socket.
    fn from_str(text: &str) -> Result<Self, ControlError> {
        let bad = |why: &str| ControlError::usage(format!("API `{text}`: {why}"));
        if text.is_empty() {
            return Err(bad("say the path of a socket or http://HOST:PORT"));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::Socket(text.into()));
        };
        if scheme != "http" {
            return Err(bad(
                "the daemon speaks http:// only; put a tunnel in front for TLS",
            ));
        }
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let address: Option<hyper::http::uri::Authority> = authority.parse().ok();
        match address {
            Some(address) if address.port_u16().is_some() && !authority.contains('@') => {
                Ok(Self::Tcp(authority.into()))
            }
            _ => Err(bad("say http://HOST:PORT")),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Tcp(authority) => write!(f, "http://{authority}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_or_a_url() {
        for (text, expected) in [
            ("/run/x.sock", Endpoint::Socket("/run/x.sock".into())),
            ("x.sock", Endpoint::Socket("x.sock".into())),
            ("http://127.0.0.1:80", Endpoint::Tcp("127.0.0.1:80".into())),
            ("http://[::1]:8080/", Endpoint::Tcp("[::1]:8080".into())),
            ("http://node-1:8080", Endpoint::Tcp("node-1:8080".into())),
        ] {
            assert_eq!(text.parse::<Endpoint>().expect(text), expected);
        }
        for text in [
            "",
            "https://x:1",
            "http://",
            "http://x",
            "http://x:99999",
            "http://x:1/path",
            "http://a@b:1",
            "unix:///x",
        ] {
            let error = text.parse::<Endpoint>().expect_err(text);
            assert_eq!(error.kind.exit_code(), 2, "{text}");
        }
    }
}
