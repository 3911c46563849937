use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ashlar_reactor::Spin;
use ashlar_store::DRIVE_REPLY_TIMEOUT;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::files;
use crate::model::{ControlError, Reads, check_name};

/// A pool that is imported at start, wherever it was before.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigPool {
    pub name: String,
    /// Its drives, as devices are named.
    pub drives: Vec<String>,
}

/// What an operator sets: `ashlar.toml`, and above it the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where to listen for hosts; see [`Config::listen`].
    listen: Option<SocketAddr>,
    /// What hosts are told to connect to, if not `listen`.
    pub advertise: Option<SocketAddr>,
    /// The cores that serve hosts, one thread each; by default the first that the process may use.
    #[serde(default)]
    pub cores: Vec<usize>,
    /// Where to listen for the API over TCP, besides the socket.
    pub api: Option<SocketAddr>,
    /// When cores that serve hosts spin; see [`Config::spin`].
    #[serde(default, deserialize_with = "read_spin")]
    spin: Option<Spin>,
    /// Seconds after the loss of a drive at which copies of what it held are made on the others, unless
    /// an operator starts that before; see [`Config::repair_after`].
    repair_after_seconds: Option<u64>,
    /// Seconds that a drive may take for a request; see [`Config::drive_timeout`].
    drive_timeout_seconds: Option<u64>,
    /// Seconds that a pool waits at start for drives that it lacks; see [`Config::drive_wait`].
    drive_wait_seconds: Option<u64>,
    /// What reads of volumes with copies rely on; see [`Config::reads`].
    reads: Option<Reads>,
    /// The newest version of the protocol between nodes that may be spoken; see [`Config::protocol_at_most`].
    protocol_at_most: Option<u16>,
    /// How volumes know this machine when it attaches them, if that stays the same.
    #[serde(skip)]
    pub host: Option<String>,
    /// Pools to import at start, besides those that the daemon remembers.
    #[serde(default, rename = "pool")]
    pub pools: Vec<ConfigPool>,
}

impl Config {
    /// Where hosts connect unless something else is said.
    pub const LISTEN: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4420);

    /// Reads a file.
    ///
    /// # Errors
    /// Environment: it is not there or cannot be read. Usage: it makes no sense; the message names
    /// the key and the line.
    pub fn read(path: &Path) -> Result<Self, ControlError> {
        let text = files::read(path)?.ok_or_else(|| {
            ControlError::environment(format!("{}: there is no such file", path.display()))
        })?;
        Self::parse(&text).map_err(|why| ControlError::usage(format!("{}: {why}", path.display())))
    }

    /// The same with what the command line says, which counts more.
    pub fn overridden(self, listen: Option<SocketAddr>, api: Option<SocketAddr>) -> Self {
        Self {
            listen: listen.or(self.listen),
            api: api.or(self.api),
            ..self
        }
    }

    /// The same, which listens for hosts here unless something else was said.
    #[must_use]
    pub fn listening_at(self, usual: SocketAddr) -> Self {
        Self {
            listen: self.listen.or(Some(usual)),
            ..self
        }
    }

    /// Where to listen for hosts.
    pub fn listen(&self) -> SocketAddr {
        self.listen.unwrap_or(Self::LISTEN)
    }

    /// The same, whose cores spin like this if the command line says so.
    #[must_use]
    pub fn spinning(self, spin: Option<Spin>) -> Self {
        Self {
            spin: spin.or(self.spin),
            ..self
        }
    }

    /// When cores that serve hosts spin before they sleep: where that pays unless something else is said.
    pub fn spin(&self) -> Spin {
        self.spin.unwrap_or_default()
    }

    /// The same, whose reads of volumes with copies rely on this if the command line says so.
    #[must_use]
    pub fn reading(self, reads: Option<Reads>) -> Self {
        Self {
            reads: reads.or(self.reads),
            ..self
        }
    }

    /// What reads of volumes rely on that have copies on other nodes: their promises, unless something else is said.
    pub fn reads(&self) -> Reads {
        self.reads.unwrap_or_default()
    }

    /// The same, which speaks no newer protocol with other nodes if the command line says so.
    #[must_use]
    pub fn speaking_at_most(self, version: Option<u16>) -> Self {
        Self {
            protocol_at_most: version.or(self.protocol_at_most),
            ..self
        }
    }

    /// The newest version of the protocol between nodes that may be spoken: the program's unless something else is said.
    pub fn protocol_at_most(&self) -> Option<u16> {
        self.protocol_at_most
    }

    /// How long after a loss repair begins by itself: 5 minutes unless something else is said.
    pub fn repair_after(&self) -> Duration {
        Duration::from_secs(self.repair_after_seconds.unwrap_or(300))
    }

    /// How long a drive may take for a request before it counts as failed: 10 s unless something else is said.
    pub fn drive_timeout(&self) -> Duration {
        let said = self.drive_timeout_seconds.map(Duration::from_secs);
        said.unwrap_or(DRIVE_REPLY_TIMEOUT)
    }

    /// How long a pool waits at start for drives that it lacks before it goes on without them: 30 s unless
    /// something else is said.
    pub fn drive_wait(&self) -> Duration {
        Duration::from_secs(self.drive_wait_seconds.unwrap_or(30))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut config: Self =
            toml::from_str(text).map_err(|error| files::bad_toml(text, &error))?;
        config.cores.sort_unstable();
        if config.cores.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("cores: one of them is there twice".into());
        }
        if config
            .repair_after_seconds
            .is_some_and(|seconds| seconds > 365 * 86_400)
        {
            return Err("repair_after_seconds: at most a year".into());
        }
        if config
            .drive_timeout_seconds
            .is_some_and(|seconds| !(1..=3600).contains(&seconds))
        {
            return Err("drive_timeout_seconds: 1 to 3600".into());
        }
        if config
            .drive_wait_seconds
            .is_some_and(|seconds| seconds > 3600)
        {
            return Err("drive_wait_seconds: at most 3600".into());
        }
        if config.advertise.is_some_and(|address| address.port() == 0) {
            return Err("advertise: hosts cannot connect to port 0".into());
        }
        for (index, pool) in config.pools.iter().enumerate() {
            check_name("pool", &pool.name).map_err(|error| error.message)?;
            if config.pools[..index]
                .iter()
                .any(|other| other.name == pool.name)
            {
                return Err(format!("pool {} is there twice", pool.name));
            }
            if pool.drives.is_empty() {
                return Err(format!("pool {}: name its drives", pool.name));
            }
        }
        Ok(config)
    }
}

fn read_spin<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Spin>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_can_be_set() {
        let config = Config::parse(
            "listen = '0.0.0.0:4420'\nadvertise = '10.0.0.5:4420'\ncores = [3, 1]\n\
             api = '[::1]:8080'\nspin = '2000'\nrepair_after_seconds = 60\ndrive_timeout_seconds = 3\n\
             drive_wait_seconds = 0\nreads = 'confirmed'\nprotocol_at_most = 5\n[[pool]]\nname = 'tank'\ndrives = ['/dev/x']\n",
        )
        .expect("valid");
        assert_eq!(config.listen().to_string(), "0.0.0.0:4420");
        assert_eq!(config.cores, [1, 3]);
        assert_eq!(config.spin().to_string(), "2000");
        assert_eq!(config.repair_after(), Duration::from_secs(60));
        assert_eq!(config.drive_timeout(), Duration::from_secs(3));
        assert_eq!(config.drive_wait(), Duration::ZERO);
        assert_eq!(config.protocol_at_most(), Some(5));
        let four = config.clone().speaking_at_most(Some(4));
        assert_eq!(four.protocol_at_most(), Some(4));
        assert_eq!(config.reads(), Reads::Confirmed);
        assert_eq!(config.clone().reading(None).reads(), Reads::Confirmed);
        let leased = config.clone().reading("leased".parse().ok());
        assert_eq!(leased.reads(), Reads::Leased);
        assert_eq!(Config::default().reads(), Reads::Leased);
        assert_eq!(Config::default().drive_timeout(), Duration::from_secs(10));
        assert_eq!(Config::default().drive_wait(), Duration::from_secs(30));
        assert_eq!(Config::default().repair_after(), Duration::from_secs(300));
        assert_eq!(config.pools[0].drives, ["/dev/x"]);
        let over = config.overridden("127.0.0.1:1".parse().ok(), None);
        assert_eq!(over.clone().spinning(Some(Spin::Off)).spin(), Spin::Off);
        assert_eq!(over.clone().spinning(None).spin(), over.spin());
        assert_eq!(over.listen().to_string(), "127.0.0.1:1");
        assert_eq!(over.api.expect("kept").to_string(), "[::1]:8080");
        assert_eq!(Config::default().listen().to_string(), "127.0.0.1:4420");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("colour = 3", "colour"),
            ("[[pool]]\nname = 'a'\ndrives = ['/x']\nsize = 3", "size"),
            ("listen = 'here'", "listen"),
            ("spin = 'fast'", "auto, off"),
            ("reads = 'local'", "confirmed"),
            ("drive_timeout_seconds = 0", "drive_timeout_seconds"),
            ("drive_wait_seconds = 3601", "drive_wait_seconds"),
            ("cores = [1, 1]", "cores"),
            ("advertise = '1.2.3.4:0'", "port 0"),
            ("[[pool]]\nname = 'a'\ndrives = []", "drives"),
            ("[[pool]]\nname = 'a b'\ndrives = ['/x']", "a b"),
            (
                "[[pool]]\nname='a'\ndrives=['/x']\n[[pool]]\nname='a'\ndrives=['/y']",
                "twice",
            ),
        ] {
            let why = Config::parse(text).expect_err(text);
            assert!(why.contains(word), "{text}: {why}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Config::read(Path::new("/nowhere/ashlar.toml")).expect_err("none");
        assert_eq!(error.kind.exit_code(), 3);
        assert!(error.message.contains("/nowhere/ashlar.toml"), "{error}");
    }
}
