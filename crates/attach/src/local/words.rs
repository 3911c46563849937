//! What a guardian and a daemon say to each other: a line of JSON each, over a unix socket. The first of a
//! connection may bring a descriptor along.

use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::counters::Tallies;

/// Longest line that is read.
const LONGEST: usize = 64 << 10;

/// An attachment that wants to be served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The volume: `tank/db`.
    pub volume: String,
    /// What makes it the same one, as attachments are told apart by: `uuid …`.
    pub identity: String,
    /// The bytes that it has at least.
    pub bytes: u64,
    /// Its logical block in bytes.
    pub block_bytes: u32,
    /// Who wants it: the host's NQN.
    pub host: String,
    /// Where it is attached, for people.
    pub mount: PathBuf,
    /// Another process may have read requests that it did not answer.
    pub takes_over: bool,
}

/// Why a wish is not met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// In a sentence.
    pub why: String,
    /// It may be met later, although no setting changes.
    pub may_change: bool,
}

/// Why an attachment is not served any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// It was unmounted, or its connection to the kernel has ended.
    Unmounted,
    /// For now; this is why. I/O waits until it is served again.
    ForNow(String),
    /// For good; this is why. I/O is to fail.
    ForGood(String),
}

/// What a daemon is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    /// Whether it would serve this.
    May(Wish),
    /// To serve this; the descriptor comes with it.
    Serve(Wish),
    /// What has arrived at the attachment of a volume, by its identity.
    Count(String),
    /// To let go of what it serves on this connection.
    LetGo,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Yes,
    No(Refusal),
    Counts(Option<Tallies>),
    /// Unasked, when it no longer serves what it said yes to.
    Over(Over),
}

/// Says a line, and gives a descriptor along with it.
pub(super) fn say(
    stream: &mut UnixStream,
    what: &impl Serialize,
    gift: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let gifts: Vec<BorrowedFd<'_>> = gift.into_iter().collect();
    if !gifts.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&gifts)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let sent = sendmsg(
        &*stream,
        &[IoSlice::new(&line)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    stream.write_all(&line[sent..])
}

/// Lines of a connection, and the descriptor that came with them.
#[derive(Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    gift: Option<OwnedFd>,
}

impl Lines {
    /// The next line; nothing at the connection's end.
    pub(super) fn next<T: DeserializeOwned>(
        &mut self,
        stream: &UnixStream,
    ) -> io::Result<Option<T>> {
        loop {
            if let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if self.bytes.len() > LONGEST {
                return Err(io::Error::other("a line is too long"));
            }
            if !self.more(stream)? {
                return Ok(None);
            }
        }
    }

    /// The descriptor that has come.
    pub(super) fn take_gift(&mut self) -> Option<OwnedFd> {
        self.gift.take()
    }

    fn more(&mut self, stream: &UnixStream) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = loop {
            match recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                got => break got?.bytes,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(gifts) = message {
                // Of several, the last; the others are closed.
                self.gift = gifts.last().or(self.gift.take());
            }
        }
        self.bytes.extend_from_slice(&bytes[..got]);
        Ok(got > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn lines_and_a_descriptor_arrive_however_they_are_cut() {
        let (mut here, there) = UnixStream::pair().expect("sockets");
        let (mut gift, given) = UnixStream::pair().expect("sockets");
        let wish = Wish {
            volume: "tank/db".into(),
            identity: "uuid 1".into(),
            bytes: 1 << 30,
            block_bytes: 4096,
            host: "nqn.x".into(),
            mount: "/mnt".into(),
            takes_over: true,
        };
        use std::os::fd::AsFd;
        say(&mut here, &Ask::Serve(wish.clone()), Some(given.as_fd())).expect("said");
        drop(given);
        say(&mut here, &Ask::LetGo, None).expect("said");
        here.write_all(b"\"let").expect("said");
        let mut lines = Lines::default();
        let first: Option<Ask> = lines.next(&there).expect("heard");
        assert!(matches!(first, Some(Ask::Serve(heard)) if heard == wish));
        let second = lines.next(&there).expect("heard");
        assert!(matches!(second, Some(Ask::LetGo)));
        drop(lines.take_gift().expect("a descriptor"));
        assert_eq!(gift.read(&mut [0; 1]).expect("its end"), 0);
        here.write_all(b"_go\"\n???\n").expect("said");
        assert!(matches!(lines.next(&there), Ok(Some(Ask::LetGo))));
        assert!(lines.next::<Ask>(&there).is_err(), "not a word");
        drop(here);
        assert!(matches!(lines.next::<Ask>(&there), Ok(None)));
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let (mut here, there) = UnixStream::pair().expect("sockets");
        let writer = std::thread::spawn(move || here.write_all(&vec![b'x'; 4 * LONGEST]));
        assert!(Lines::default().next::<Ask>(&there).is_err());
        drop(there);
        assert!(writer.join().expect("no panic").is_err());
    }
}
