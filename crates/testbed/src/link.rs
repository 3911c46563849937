//! Agents and coordinators over TCP: frames, and who is let in.
//!
//! A frame is its length in four bytes, most significant first, and that many bytes. Before anything else both sides
//! show that they know the token, which itself is not sent: each makes a proof of what both have drawn by chance.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use ashlar_lab::agent::{ClientLink, Clients, Link};
use ashlar_lab::{Agents, LabError};
use ashlar_node::Token;
use ashlar_oltp::{RemoteUsers, Secret};
use rustix::net::sockopt;
use uuid::Uuid;

/// The longest frame: histograms of a turn are some hundred KiB.
const LONGEST: usize = 64 << 20;
/// The same, before the other side has shown that it may say anything.
const LONGEST_UNKNOWN: usize = 1024;
/// How long connecting, and letting in, may take.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer whose machine has gone is noticed after this: first asked, asked again, so often.
const ASKED_AFTER: Duration = Duration::from_secs(5);
const ASKED_EVERY: Duration = Duration::from_secs(5);
const ASKED_TIMES: u32 = 3;
/// The same of one that was sent something, when it is not asked.
const CONFIRMS_WITHIN_MS: u32 = 20_000;

/// A connection to the other side.
pub struct TcpLink {
    stream: TcpStream,
    /// What has come, and is not yet a whole frame.
    come: Vec<u8>,
    longest: usize,
}

impl TcpLink {
    /// Over this one; what says nothing, or nothing any more, is given up.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn new(stream: TcpStream) -> Result<Self, LabError> {
        let set = || {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(PEER_TIMEOUT))?;
            sockopt::set_socket_keepalive(&stream, true)?;
            sockopt::set_tcp_keepidle(&stream, ASKED_AFTER)?;
            sockopt::set_tcp_keepintvl(&stream, ASKED_EVERY)?;
            sockopt::set_tcp_keepcnt(&stream, ASKED_TIMES)?;
            sockopt::set_tcp_user_timeout(&stream, CONFIRMS_WITHIN_MS)?;
            std::io::Result::Ok(())
        };
        set().map_err(|error| LabError::caused("connection", error))?;
        Ok(Self {
            stream,
            come: Vec::new(),
            longest: LONGEST_UNKNOWN,
        })
    }

    /// The first whole frame of what has come.
    fn frame(&mut self) -> Result<Option<String>, LabError> {
        let Some((head, rest)) = self.come.split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length > self.longest {
            return Err(LabError::environment(format!(
                "a message of {length} bytes, where {} is the most",
                self.longest
            )));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let text = String::from_utf8(body.to_vec());
        let text = text.map_err(|_| LabError::environment("a message that is no text"))?;
        self.come.drain(..head.len() + length);
        Ok(Some(text))
    }

    fn heard(&mut self) -> Result<String, LabError> {
        let silent =
            || LabError::environment(format!("no answer within {} s", PEER_TIMEOUT.as_secs()));
        self.receive(PEER_TIMEOUT)?.ok_or_else(silent)
    }

    /// The agent's side of letting in. Who has the token may still be refused, and is told why.
    pub fn let_in<T>(
        &mut self,
        token: &Token,
        claim: impl FnOnce() -> Result<T, &'static str>,
    ) -> Result<T, LabError> {
        let ours = Uuid::new_v4().simple().to_string();
        self.send(&ours)?;
        let said = self.heard()?;
        let (theirs, proof) = said.split_once(' ').unwrap_or_default();
        if !token.is_proof(&["coordinator", &ours, theirs], proof) {
            self.send("refused that is not the token of this agent")?;
            return Err(LabError::environment("does not have the token"));
        }
        let claimed = match claim() {
            Ok(claimed) => claimed,
            Err(why) => {
                self.send(&format!("refused {why}"))?;
                return Err(LabError::environment(why));
            }
        };
        self.send(&format!(
            "welcome {}",
            token.proof(&["agent", &ours, theirs])
        ))?;
        self.longest = LONGEST;
        Ok(claimed)
    }

    /// The coordinator's side.
    fn ask_in(&mut self, token: &Token) -> Result<(), LabError> {
        let theirs = self.heard()?;
        let ours = Uuid::new_v4().simple().to_string();
        let proof = token.proof(&["coordinator", &theirs, &ours]);
        self.send(&format!("{ours} {proof}"))?;
        let said = self.heard()?;
        match said.split_once(' ') {
            Some(("welcome", proof)) if token.is_proof(&["agent", &theirs, &ours], proof) => {
                self.longest = LONGEST;
                Ok(())
            }
            Some(("refused", why)) => Err(LabError::environment(why)),
            _ => Err(LabError::environment("is no agent with this token")),
        }
    }
}

impl Link for TcpLink {
    fn send(&mut self, message: &str) -> Result<(), LabError> {
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let frame = [&length.to_be_bytes()[..], message.as_bytes()].concat();
        self.stream
            .write_all(&frame)
            .map_err(|error| LabError::caused("connection", error))
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<String>, LabError> {
        let end = Instant::now() + patience;
        let failed = |error| LabError::caused("connection", error);
        let mut bytes = [0; 65536];
        loop {
            if let Some(frame) = self.frame()? {
                return Ok(Some(frame));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            // Zero would be for ever.
            let left = left.max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left)).map_err(failed)?;
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(LabError::environment("connection closed")),
                Ok(count) => self.come.extend_from_slice(&bytes[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(failed(error)),
                },
            }
        }
    }
}

/// Connects to the agents of a run; none if it has none.
pub fn greet(agents: &Agents) -> Result<Option<Clients>, LabError> {
    match agents.addresses.is_empty() {
        true => Ok(None),
        false => greet_as("client", agents).map(Some),
    }
}

/// Connects to agents that an option of this name has given.
pub(super) fn greet_as(option: &str, agents: &Agents) -> Result<Clients, LabError> {
    let token = Token::read(&agents.token_file)
        .map_err(|error| LabError::environment(format!("--token-file: {error}")))?;
    let mut links: Vec<ClientLink> = Vec::new();
    for address in &agents.addresses {
        if links.iter().any(|link| link.name == *address) {
            return Err(LabError::usage(format!(
                "--{option} {address}: is given twice"
            )));
        }
        let named = |error: LabError| match error.exit_code() {
            2 => LabError::usage(format!("--{option} {error}")),
            _ => LabError::caused(format!("{option} {address}"), error),
        };
        let mut link = connect(address).map_err(named)?;
        link.ask_in(&token).map_err(named)?;
        let peer = link.stream.peer_addr().ok();
        links.push(ClientLink {
            name: address.clone(),
            peer: peer.map(|peer| peer.ip().to_canonical()),
            link: Box::new(link),
        });
    }
    Clients::greet(links)
}

/// Does something with the agents of a run as users of its databases; with none, if it has none.
///
/// # Errors
/// As [`greet`]'s; agents cannot reach this machine's servers; or what is done fails.
pub fn with_agents<T>(
    agents: &Agents,
    what: impl FnOnce(Option<&RemoteUsers<'_>>) -> Result<T, LabError>,
) -> Result<T, LabError> {
    let Some(clients) = greet(agents)? else {
        return what(None);
    };
    let users = RemoteUsers::new(&clients, agents.serve_on, draw_secret(agents)?)?;
    what(Some(&users))
}

/// What agents log in to databases of a run by: both ends know the token, and what is drawn is told.
pub(super) fn draw_secret(agents: &Agents) -> Result<Secret, LabError> {
    let token = Token::read(&agents.token_file)
        .map_err(|error| LabError::environment(format!("--token-file: {error}")))?;
    let drawn = Uuid::new_v4().simple().to_string();
    let password = database_password(&token, &drawn);
    Ok(Secret { drawn, password })
}

pub(super) fn database_password(token: &Token, drawn: &str) -> String {
    token.proof(&["database", drawn])
}

fn connect(address: &str) -> Result<TcpLink, LabError> {
    let found = address
        .to_socket_addrs()
        .map_err(|error| LabError::usage(format!("{address}: {error}")))?;
    let found: Vec<SocketAddr> = found.collect();
    let mut why = LabError::environment("has no address");
    for address in found {
        match TcpStream::connect_timeout(&address, PEER_TIMEOUT) {
            Ok(stream) => return TcpLink::new(stream),
            Err(error) => why = LabError::environment(error.to_string()),
        }
    }
    Err(why)
}
