use bytes::Bytes;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::heads::Said;
use super::layout::{
    AttachBody, CopyAckBody, CopyBody, DigestAskBody, DigestBody, EntryBody, FetchBody, GrantBody,
    HAS_FETCH, HAS_HEADS, HEADER_BYTES, Header, JoinBody, MAGIC, NumberBody, RangeBody, RecordBody,
    RefuseBody, content, kind,
};
use super::{Codec, Frame, MAX_BODY_BYTES, MAX_DATA_BYTES, WireError, forward};
use crate::extent::{Extent, ExtentSet};
use crate::ids::{
    CopyId, Epoch, FetchId, Incarnation, Leaf, Low, NodeId, Nonce, Positions, ReplicaSequence,
    ReplicaUuid, SessionId, ShardId, VolumeId,
};
use crate::leaves::Leaves;
use crate::message::{Attach, Content, Envelope, Join, Message, Record, RecordKind, Refusal};

/// A pool's log has no room for the highest bit of a record's number.
const SEQUENCE_LIMIT: u64 = 1 << 63;

impl Codec {
    /// The message that bytes begin with.
    ///
    /// # Errors
    /// If they cannot become one, whatever follows.
    pub fn decode(self, bytes: &Bytes) -> Result<Frame, WireError> {
        let Some(head) = bytes.get(..HEADER_BYTES) else {
            let needs = HEADER_BYTES;
            return Ok(Frame::Partial { needs });
        };
        let header = self.header(head)?;
        let body_end = HEADER_BYTES + header.body_bytes.get() as usize;
        let end = body_end + header.data_bytes.get() as usize;
        if bytes.len() < end {
            return Ok(Frame::Partial { needs: end });
        }
        let body = &bytes[HEADER_BYTES..body_end];
        if crc32c::crc32c(body) != header.body_crc.get() {
            return Err(WireError::Checksum("body"));
        }
        let data = bytes.slice(body_end..end);
        if crc32c::crc32c(&data) != header.data_crc.get() {
            return Err(WireError::Checksum("data"));
        }
        let message = self.message(header.kind, body, data)?;
        let envelope = Envelope {
            volume: VolumeId(header.volume.get()),
            shard: ShardId(header.shard.get()),
            epoch: Epoch(header.epoch.get()),
            session: SessionId(header.session.get()),
            number: header.number.get(),
            message,
        };
        Ok(Frame::Whole {
            envelope,
            bytes: end,
        })
    }

    fn header(self, bytes: &[u8]) -> Result<Header, WireError> {
        let header = Header::read_from_bytes(bytes).map_err(|_| WireError::Magic)?;
        if header.magic != MAGIC {
            return Err(WireError::Magic);
        }
        if crc32c::crc32c(&bytes[..HEADER_BYTES - 4]) != header.header_crc.get() {
            return Err(WireError::Checksum("header"));
        }
        if header.version != self.version {
            return Err(WireError::Version {
                said: header.version,
                agreed: self.version,
            });
        }
        let limits = [
            ("a body", header.body_bytes.get(), MAX_BODY_BYTES),
            ("data", header.data_bytes.get(), MAX_DATA_BYTES),
        ];
        for (what, bytes, most) in limits {
            if bytes as usize > most {
                return Err(WireError::Length { what, bytes });
            }
        }
        Ok(header)
    }

    pub(super) fn message(self, kind: u8, body: &[u8], data: Bytes) -> Result<Message, WireError> {
        let carries = matches!(
            kind,
            kind::RECORD | kind::COPY | kind::FETCHED | kind::FORWARD | kind::DONE
        );
        if !carries && !data.is_empty() {
            let bytes = data.len() as u32;
            return Err(WireError::Length {
                what: "data",
                bytes,
            });
        }
        let (body, said) = self.split_heads(kind, body)?;
        Ok(match kind {
            kind::JOIN => {
                let body: JoinBody = whole(body)?;
                zeroes(&body.zero)?;
                Message::Join(Join {
                    owner: NodeId(body.owner.get()),
                    incarnation: Incarnation(body.incarnation.get()),
                    absent: positions(body.absent)?,
                    members: positions(body.members)?,
                    claim: said.claim,
                })
            }
            kind::RECORD => {
                let body: RecordBody = whole(body)?;
                zeroes(&body.zero)?;
                let extent = extent(body.first.get(), body.count.get())?;
                Message::Record(Record {
                    sequence: sequence(body.sequence.get())?,
                    low: Low(body.low.get()),
                    kind: match body.kind {
                        0 => RecordKind::Host,
                        1 => RecordKind::Base,
                        2 => RecordKind::Restore,
                        _ => return Err(WireError::Field("a record's kind")),
                    },
                    extent,
                    content: self.content(body.content, extent, data)?,
                })
            }
            kind::COPY => {
                let body: CopyBody = whole(body)?;
                zeroes(&body.zero)?;
                let extent = extent(body.first.get(), body.count.get())?;
                Message::Copy {
                    copy: CopyId(body.copy.get()),
                    extent,
                    content: self.content(body.content, extent, data)?,
                }
            }
            kind::ENTRY => {
                let body: EntryBody = whole(body)?;
                zeroes(&body.zero)?;
                let absent = positions(body.absent)?;
                Message::Entry { absent }
            }
            kind::COMMIT => Message::Commit {
                low: Low(number(body)?),
            },
            kind::GRANT_ASK => Message::GrantAsk {
                nonce: Nonce(number(body)?),
                heads: said.heads,
            },
            kind::DIGEST_ASK => {
                let body: DigestAskBody = whole(body)?;
                zeroes(&body.zero)?;
                let leaves = Leaves::new(Leaf(body.first.get()), body.count.get());
                Message::DigestAsk {
                    copy: CopyId(body.copy.get()),
                    leaves: leaves.ok_or(WireError::Field("a run of leaves"))?,
                    granules: body.granules.get(),
                }
            }
            kind::FETCH if self.version >= HAS_FETCH => {
                let body: FetchBody = whole(body)?;
                zeroes(&body.zero)?;
                zeroes(&[body.content])?;
                let extent = extent(body.first.get(), body.count.get())?;
                Message::Fetch {
                    fetch: FetchId(body.fetch.get()),
                    extent: self.fits(extent)?,
                }
            }
            kind::FETCHED if self.version >= HAS_FETCH => {
                let body: FetchBody = whole(body)?;
                zeroes(&body.zero)?;
                let extent = self.fits(extent(body.first.get(), body.count.get())?)?;
                Message::Fetched {
                    fetch: FetchId(body.fetch.get()),
                    extent,
                    content: match body.content {
                        content::NONE if data.is_empty() => None,
                        of => Some(self.content(of, extent, data)?),
                    },
                }
            }
            kind::HANDOFF => empty(body, Message::Handoff)?,
            kind::JOINED => Message::Joined(self.attach(body, said)?),
            kind::ATTACH => Message::Attach(self.attach(body, said)?),
            kind::REFUSE => {
                let body: RefuseBody = whole(body)?;
                zeroes(&body.zero)?;
                let reason = match body.reason {
                    0 => Refusal::Epoch,
                    1 => Refusal::Session,
                    2 => Refusal::OldImage,
                    3 if self.version >= HAS_HEADS => Refusal::Lags,
                    _ => return Err(WireError::Field("a refusal's reason")),
                };
                let promised = Epoch(body.promised.get());
                Message::Refuse { promised, reason }
            }
            kind::ACK => Message::Ack {
                sequence: ReplicaSequence(number(body)?),
            },
            kind::COPY_ACK => {
                let body: CopyAckBody = whole(body)?;
                zeroes(&body.zero)?;
                let copy = CopyId(body.copy.get());
                Message::CopyAck { copy }
            }
            kind::FAILED => empty(body, Message::Failed)?,
            kind::GRANT => {
                let body: GrantBody = whole(body)?;
                Message::Grant {
                    nonce: Nonce(body.nonce.get()),
                    free: body.free.get(),
                    head: said.head,
                }
            }
            kind::DIGEST => {
                let body: DigestBody = whole(body)?;
                zeroes(&body.zero)?;
                Message::Digest {
                    copy: CopyId(body.copy.get()),
                    digest: u128::from_le_bytes(body.digest),
                }
            }
            kind::FORWARD => self.forward(body, data)?,
            kind::DONE => forward::read_done(body, data)?,
            kind::LABEL_ASK => forward::read_label_ask(body)?,
            kind::LABELLED => forward::read_labelled(body)?,
            kind => return Err(WireError::Kind(kind)),
        })
    }

    pub(super) fn content(self, of: u8, extent: Extent, data: Bytes) -> Result<Content, WireError> {
        let bytes = data.len() as u32;
        let wrong = WireError::Length {
            what: "data",
            bytes,
        };
        match of {
            content::DATA => {
                let needs = u64::from(extent.count()) * u64::from(self.granule_bytes);
                (data.len() as u64 == needs)
                    .then_some(Content::Data(data))
                    .ok_or(wrong)
            }
            content::ZEROES => {
                self.fits(extent)?;
                data.is_empty().then_some(Content::Zeroes).ok_or(wrong)
            }
            _ => Err(WireError::Field("content")),
        }
    }

    /// What is asked for has room in a message.
    pub(super) fn fits(self, extent: Extent) -> Result<Extent, WireError> {
        let bytes = u64::from(extent.count()) * u64::from(self.granule_bytes);
        let wrong = WireError::Length {
            what: "what is asked for",
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        };
        let fits = bytes <= MAX_DATA_BYTES as u64;
        fits.then_some(extent).ok_or(wrong)
    }

    fn attach(self, body: &[u8], said: Said) -> Result<Attach, WireError> {
        let (body, rest): (AttachBody, _) = front(body)?;
        zeroes(&body.zero)?;
        Ok(Attach {
            uuid: ReplicaUuid(body.uuid),
            own: ranges(body.ranges.get(), rest)?,
            free: body.free.get(),
            has_fetch: self.version >= HAS_FETCH,
            head: said.head,
            heads: said.heads,
        })
    }
}

fn front<T>(body: &[u8]) -> Result<(T, &[u8]), WireError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let bytes = body.len() as u32;
    let wrong = WireError::Length {
        what: "a body",
        bytes,
    };
    T::read_from_prefix(body).map_err(|_| wrong)
}

pub(super) fn whole<T>(body: &[u8]) -> Result<T, WireError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let (value, rest) = front(body)?;
    empty(rest, value)
}

fn empty<T>(rest: &[u8], value: T) -> Result<T, WireError> {
    let bytes = rest.len() as u32;
    let wrong = WireError::Length {
        what: "a body",
        bytes,
    };
    rest.is_empty().then_some(value).ok_or(wrong)
}

fn number(body: &[u8]) -> Result<u64, WireError> {
    let body: NumberBody = whole(body)?;
    Ok(body.number.get())
}

/// What is reserved is zero, so that it can mean something one day.
pub(super) fn zeroes(reserved: &[u8]) -> Result<(), WireError> {
    let is_zero = reserved.iter().all(|&byte| byte == 0);
    is_zero
        .then_some(())
        .ok_or(WireError::Field("what is reserved"))
}

fn positions(bits: u8) -> Result<Positions, WireError> {
    Positions::from_bits(bits).ok_or(WireError::Field("positions"))
}

pub(super) fn extent(first: u64, count: u32) -> Result<Extent, WireError> {
    Extent::new(first, count).ok_or(WireError::Field("a range"))
}

/// A record's number, which a pool's log can keep.
fn sequence(said: u64) -> Result<ReplicaSequence, WireError> {
    match said {
        1..SEQUENCE_LIMIT => Ok(ReplicaSequence(said)),
        _ => Err(WireError::Field("a record's sequence")),
    }
}

fn ranges(count: u32, bytes: &[u8]) -> Result<ExtentSet, WireError> {
    if bytes.len() as u64 != u64::from(count) * size_of::<RangeBody>() as u64 {
        let bytes = bytes.len() as u32;
        return Err(WireError::Length {
            what: "ranges",
            bytes,
        });
    }
    let mut set = ExtentSet::new();
    for range in bytes.chunks_exact(size_of::<RangeBody>()) {
        let range: RangeBody = whole(range)?;
        zeroes(&range.zero)?;
        set.insert(extent(range.first.get(), range.count.get())?);
    }
    Ok(set)
}
