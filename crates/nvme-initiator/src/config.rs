use std::fmt;
use std::time::Duration;

use ashlar_nvme::pdu::Digests;
use uuid::Uuid;

/// Who we are to a target: what `--allow-host` lists, and what reservations belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The host NQN.
    pub nqn: String,
    /// The host identifier; one NQN must always come with the same one.
    pub id: [u8; 16],
}

impl Host {
    /// A host whose identifier follows from its NQN: the UUID in it (`…:uuid:…`), or a hash.
    pub fn named(nqn: &str) -> Self {
        let inside = nqn.rsplit_once(":uuid:").map(|(_, uuid)| uuid);
        let uuid = inside
            .and_then(|text| Uuid::parse_str(text).ok())
            .unwrap_or_else(|| Uuid::new_v5(&Uuid::NAMESPACE_URL, nqn.as_bytes()));
        Self {
            nqn: nqn.to_owned(),
            id: uuid.into_bytes(),
        }
    }
}

/// Which requests may be sent again after a connection was lost with their outcome unknown.
///
/// Sending a write twice is harmless to its own blocks, but a first copy that is still on its way
/// inside the target could land *after* a newer write to the same blocks. So nothing is sent on a
/// new association before the target has said that the lost one is over, its commands done or
/// dropped: by Cross-Controller Reset, which Ashlar's target has. It does not matter whether the
/// target had noticed the loss.
///
/// A write that is not repeated fails at once with its outcome unknown: it may still take effect until
/// this object's next association is there.
///
/// Of a target without Cross-Controller Reset we only know that it accepted a new Connect. Ashlar's
/// of earlier versions had then waited for the commands of every connection whose end it had noticed;
/// of others, [`Replay::Reads`] at least repeats no write. A write whose outcome is unknown may still
/// land late there, as it may if this process is restarted while the network is silent: then it is not
/// known which association to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Replay {
    /// Reads, writes, write zeroes and deallocate.
    #[default]
    All,
    /// Only reads; for targets of which nothing is known.
    Reads,
    None,
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Reads => "reads",
            Self::None => "none",
        })
    }
}

/// Everything that decides how a remote namespace is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `host:port`, as given; for messages. The driver resolves it.
    pub address: String,
    /// Further portals of the subsystem, on other targets perhaps: each is a path to the namespace.
    pub others: Vec<String>,
    /// The subsystem's NQN.
    pub nqn: String,
    /// Who we are.
    pub host: Host,
    /// The namespace; without it the first active one.
    pub nsid: Option<u32>,
    /// Digests to ask for. A controller that does not grant them is refused.
    pub digests: Digests,
    /// I/O queue pairs a device object, each a TCP connection.
    pub queues: u16,
    /// Commands outstanding on one I/O queue pair.
    pub depth: u16,
    /// Keep-alive time-out: the controller gives us up after this much silence. Zero: none.
    pub keep_alive: Duration,
    /// Longest wait for a connection or a command before the association is given up.
    pub timeout: Duration,
    /// Longest time without a path that can be used before requests fail for good.
    pub loss: Duration,
    /// What is sent again after a loss.
    pub replay: Replay,
    /// New portals are learned from the targets' discovery service, and those that are gone are let go. One of
    /// ours must be among those that it names: else it speaks of other addresses than we do.
    pub discovers: bool,
    /// The portal of this host's own node, one of ours: it is taken for a while though another is better, so that
    /// ownership comes to where the host is.
    pub prefers: Option<String>,
    /// Paths by which a target hands commands on to another are taken, if there is no better one. Without, commands wait
    /// until a target that has the namespace itself says so.
    pub forwards: bool,
    /// This host has reserved the namespace. When another takes that away everything fails, for good.
    pub holds_reservation: bool,
    /// Once connected, only [`loss`](Self::loss) ends the patience: a target that refuses us, or puts
    /// requests off or leaves them unanswered, is taken to be starting or under repair. For a mounted file
    /// system an error is worse than a wait.
    pub patient: bool,
}

impl Config {
    /// The defaults for a subsystem at `address`: one queue of 128, no digests, 15 s keep-alive,
    /// 30 s a command, 60 s until a loss is final, replay of everything.
    pub fn new(address: &str, nqn: &str, host: Host) -> Self {
        Self {
            address: address.to_owned(),
            others: Vec::new(),
            nqn: nqn.to_owned(),
            host,
            nsid: None,
            digests: Digests::NONE,
            queues: 1,
            depth: 128,
            keep_alive: Duration::from_secs(15),
            timeout: Duration::from_secs(30),
            loss: Duration::from_secs(60),
            replay: Replay::All,
            discovers: false,
            prefers: None,
            forwards: true,
            holds_reservation: false,
            patient: false,
        }
    }

    /// `ADDRESS[,ADDRESS…] NQN`, as errors name the far end.
    pub fn peer(&self) -> String {
        format!("{} {}", self.portals().join(","), self.nqn)
    }

    /// All portals.
    pub fn portals(&self) -> Vec<&str> {
        let others = self.others.iter().map(String::as_str);
        std::iter::once(&*self.address).chain(others).collect()
    }

    /// The same for each portal alone.
    pub fn paths(&self) -> Vec<Self> {
        let portals = self.portals().into_iter();
        portals.map(|address| self.path(address)).collect()
    }

    /// The same for one portal, which need not be among them.
    pub fn path(&self, address: &str) -> Self {
        Self {
            address: address.to_owned(),
            others: Vec::new(),
            ..self.clone()
        }
    }

    /// Adds portals that are not among them yet.
    pub fn add_portals(&mut self, portals: impl IntoIterator<Item = String>) {
        for portal in portals {
            if !self.portals().contains(&&*portal) {
                self.others.push(portal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_its_identifier() {
        let nqn = "nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(Host::named(nqn).id[..4], [0x00, 0x11, 0x22, 0x33]);
        let (a, b) = (
            Host::named("nqn.2026-01.x:a"),
            Host::named("nqn.2026-01.x:b"),
        );
        assert_eq!(a, Host::named("nqn.2026-01.x:a"));
        assert_ne!(a.id, b.id);
    }
}
