use bytes::Bytes;
use zerocopy::IntoBytes;

use super::layout::{
    AttachBody, CopyAckBody, CopyBody, DigestAskBody, DigestBody, EntryBody, FetchBody, GrantBody,
    HAS_FETCH, HAS_HEADS, HEADER_BYTES, Header, JoinBody, MAGIC, NumberBody, RangeBody, RecordBody,
    RefuseBody, content, kind,
};
use super::{Codec, Encoded, forward};
use crate::extent::{Extent, ExtentSet};
use crate::ids::FetchId;
use crate::member::MAX_RANGES;
use crate::message::{Attach, Content, Envelope, Message, RecordKind, Refusal};

impl Codec {
    /// A message's bytes.
    pub fn encode(self, envelope: &Envelope) -> Encoded {
        let since = match envelope.message {
            Message::Fetch { .. } | Message::Fetched { .. } => HAS_FETCH,
            Message::Refuse {
                reason: Refusal::Lags,
                ..
            } => HAS_HEADS,
            _ => self.version,
        };
        debug_assert!(self.version >= since, "not of this version");
        let mut head = vec![0; HEADER_BYTES];
        let (kind, data) = body(&envelope.message, &mut head);
        self.put_heads(&envelope.message, &mut head);
        let body = &head[HEADER_BYTES..];
        let mut header = Header {
            magic: MAGIC,
            version: self.version,
            kind,
            shard: envelope.shard.0.into(),
            volume: envelope.volume.0.into(),
            epoch: envelope.epoch.0.into(),
            session: envelope.session.0.into(),
            number: envelope.number.into(),
            body_bytes: (body.len() as u32).into(),
            data_bytes: (data.len() as u32).into(),
            body_crc: crc32c::crc32c(body).into(),
            data_crc: crc32c::crc32c(&data).into(),
            header_crc: 0.into(),
        };
        let crc = crc32c::crc32c(&header.as_bytes()[..HEADER_BYTES - 4]);
        header.header_crc = crc.into();
        head[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        Encoded { head, data }
    }
}

/// Appends a message's body; says its kind and data.
fn body(message: &Message, to: &mut Vec<u8>) -> (u8, Bytes) {
    let mut data = Bytes::new();
    let kind = match message {
        Message::Join(join) => {
            let body = JoinBody {
                incarnation: join.incarnation.0.into(),
                owner: join.owner.0.into(),
                absent: join.absent.bits(),
                members: join.members.bits(),
                zero: [0; 2],
            };
            put(to, &body, kind::JOIN)
        }
        Message::Record(record) => {
            let body = RecordBody {
                sequence: record.sequence.0.into(),
                low: record.low.0.into(),
                first: record.extent.first().into(),
                count: record.extent.count().into(),
                kind: match record.kind {
                    RecordKind::Host => 0,
                    RecordKind::Base => 1,
                    RecordKind::Restore => 2,
                },
                content: split(&record.content, &mut data),
                zero: [0; 2],
            };
            put(to, &body, kind::RECORD)
        }
        Message::Copy {
            copy,
            extent,
            content,
        } => {
            let body = CopyBody {
                first: extent.first().into(),
                count: extent.count().into(),
                copy: copy.0.into(),
                content: split(content, &mut data),
                zero: [0; 7],
            };
            put(to, &body, kind::COPY)
        }
        Message::Entry { absent } => {
            let absent = absent.bits();
            let zero = [0; 7];
            put(to, &EntryBody { absent, zero }, kind::ENTRY)
        }
        Message::Commit { low } => number(to, low.0, kind::COMMIT),
        Message::GrantAsk { nonce, .. } => number(to, nonce.0, kind::GRANT_ASK),
        Message::DigestAsk {
            copy,
            leaves,
            granules,
        } => {
            let body = DigestAskBody {
                first: leaves.first().0.into(),
                copy: copy.0.into(),
                count: leaves.count().into(),
                granules: (*granules).into(),
                zero: [0; 4],
            };
            put(to, &body, kind::DIGEST_ASK)
        }
        Message::Fetch { fetch, extent } => put(to, &fetch_body(*fetch, *extent, 0), kind::FETCH),
        Message::Fetched {
            fetch,
            extent,
            content,
        } => {
            let content = match content {
                Some(content) => split(content, &mut data),
                None => content::NONE,
            };
            put(to, &fetch_body(*fetch, *extent, content), kind::FETCHED)
        }
        Message::Handoff => kind::HANDOFF,
        Message::Joined(of) => attach(to, of, kind::JOINED),
        Message::Attach(of) => attach(to, of, kind::ATTACH),
        Message::Refuse { promised, reason } => {
            let body = RefuseBody {
                promised: promised.0.into(),
                reason: match reason {
                    Refusal::Epoch => 0,
                    Refusal::Session => 1,
                    Refusal::OldImage => 2,
                    Refusal::Lags => 3,
                },
                zero: [0; 3],
            };
            put(to, &body, kind::REFUSE)
        }
        Message::Ack { sequence } => number(to, sequence.0, kind::ACK),
        Message::CopyAck { copy } => {
            let copy = copy.0.into();
            let zero = [0; 4];
            put(to, &CopyAckBody { copy, zero }, kind::COPY_ACK)
        }
        Message::Failed => kind::FAILED,
        Message::Grant { nonce, free, .. } => {
            let nonce = nonce.0.into();
            let free = (*free).into();
            put(to, &GrantBody { nonce, free }, kind::GRANT)
        }
        Message::Digest { copy, digest } => {
            let body = DigestBody {
                digest: digest.to_le_bytes(),
                copy: copy.0.into(),
                zero: [0; 4],
            };
            put(to, &body, kind::DIGEST)
        }
        Message::Forward(command) => forward::forward(to, command, &mut data),
        Message::LabelAsk { origin } => forward::label_ask(to, *origin),
        Message::Labelled { origin, writes } => forward::labelled(to, *origin, *writes),
        Message::Done { forward, outcome } => forward::done(to, *forward, outcome, &mut data),
    };
    (kind, data)
}

fn fetch_body(fetch: FetchId, extent: Extent, content: u8) -> FetchBody {
    FetchBody {
        first: extent.first().into(),
        count: extent.count().into(),
        fetch: fetch.0.into(),
        content,
        zero: [0; 7],
    }
}

pub(super) fn put(to: &mut Vec<u8>, body: &(impl IntoBytes + zerocopy::Immutable), kind: u8) -> u8 {
    to.extend_from_slice(body.as_bytes());
    kind
}

fn number(to: &mut Vec<u8>, number: u64, kind: u8) -> u8 {
    let number = number.into();
    put(to, &NumberBody { number }, kind)
}

pub(super) fn split(of: &Content, data: &mut Bytes) -> u8 {
    match of {
        Content::Data(bytes) => {
            *data = bytes.clone();
            content::DATA
        }
        Content::Zeroes => content::ZEROES,
    }
}

fn count(set: &ExtentSet) -> u32 {
    set.iter().count() as u32
}

fn ranges(to: &mut Vec<u8>, set: &ExtentSet) {
    for extent in set.iter() {
        let body = RangeBody {
            first: extent.first().into(),
            count: extent.count().into(),
            zero: [0; 4],
        };
        to.extend_from_slice(body.as_bytes());
    }
}

fn attach(to: &mut Vec<u8>, attach: &Attach, kind: u8) -> u8 {
    let own = attach.own.coarsened(MAX_RANGES);
    let body = AttachBody {
        uuid: attach.uuid.0,
        free: attach.free.into(),
        ranges: count(&own).into(),
        zero: [0; 4],
    };
    let kind = put(to, &body, kind);
    ranges(to, &own);
    kind
}
