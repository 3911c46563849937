//! How far copies claim to have come: behind the bodies of some messages, by connections whose version has that.

use zerocopy::{FromBytes, IntoBytes};

use super::layout::{HAS_HEADS, HeadBody, MarkBody, kind};
use super::{Codec, WireError};
use crate::heads::{Heads, Mark};
use crate::ids::{Head, MAX_MEMBERS, ReplicaUuid};
use crate::message::Message;

/// What is said behind a body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    pub(super) heads: Heads,
    pub(super) claim: Mark,
    pub(super) head: Head,
}

/// Bytes of it.
const fn bytes(kind: u8) -> usize {
    match kind {
        kind::JOIN => size_of::<MarkBody>(),
        kind::GRANT_ASK => MAX_MEMBERS * size_of::<MarkBody>(),
        kind::JOINED | kind::ATTACH => size_of::<HeadBody>() + MAX_MEMBERS * size_of::<MarkBody>(),
        kind::GRANT => size_of::<HeadBody>(),
        _ => 0,
    }
}

impl Codec {
    const fn has_heads(self) -> bool {
        self.version >= HAS_HEADS
    }

    /// Appends what a message says behind its body.
    pub(super) fn put_heads(self, message: &Message, to: &mut Vec<u8>) {
        if !self.has_heads() {
            return;
        }
        match message {
            Message::Join(join) => put_mark(to, join.claim),
            Message::GrantAsk { heads, .. } => put_marks(to, heads),
            Message::Joined(attach) | Message::Attach(attach) => {
                put_head(to, attach.head);
                put_marks(to, &attach.heads);
            }
            Message::Grant { head, .. } => put_head(to, *head),
            _ => {}
        }
    }

    /// A body, and what is said behind it.
    pub(super) fn split_heads(self, kind: u8, body: &[u8]) -> Result<(&[u8], Said), WireError> {
        let more = match self.has_heads() {
            true => bytes(kind),
            false => 0,
        };
        let wrong = WireError::Length {
            what: "a body",
            bytes: body.len() as u32,
        };
        let at = body.len().checked_sub(more).ok_or(wrong)?;
        let (body, more) = body.split_at(at);
        let mut said = Said::default();
        match kind {
            _ if more.is_empty() => {}
            kind::JOIN => said.claim = mark(more).ok_or(wrong)?,
            kind::GRANT_ASK => said.heads = marks(more).ok_or(wrong)?,
            _ => {
                let (of, more) = HeadBody::read_from_prefix(more).map_err(|_| wrong)?;
                said.head = Head(of.head.get());
                said.heads = marks(more).ok_or(wrong)?;
            }
        }
        Ok((body, said))
    }
}

fn put_mark(to: &mut Vec<u8>, mark: Mark) {
    let body = MarkBody {
        replica: mark.replica.0,
        head: mark.head.0.into(),
    };
    to.extend_from_slice(body.as_bytes());
}

fn put_marks(to: &mut Vec<u8>, heads: &Heads) {
    heads.marks().iter().for_each(|&mark| put_mark(to, mark));
}

fn put_head(to: &mut Vec<u8>, head: Head) {
    let head = head.0.into();
    to.extend_from_slice(HeadBody { head }.as_bytes());
}

/// Those of all positions, if they are there.
fn marks(bytes: &[u8]) -> Option<Heads> {
    let mut marks = [Mark::default(); MAX_MEMBERS];
    for (to, of) in marks.iter_mut().zip(bytes.chunks(size_of::<MarkBody>())) {
        *to = mark(of)?;
    }
    Some(Heads::new(marks))
}

fn mark(bytes: &[u8]) -> Option<Mark> {
    let body = MarkBody::read_from_bytes(bytes).ok()?;
    Some(Mark {
        replica: ReplicaUuid(body.replica),
        head: Head(body.head.get()),
    })
}
