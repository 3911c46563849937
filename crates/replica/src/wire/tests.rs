use ashlar_block::{AssociationId, HostId, Label, Registrant};
use bytes::Bytes;
use proptest::prelude::*;

use super::layout::{HAS_FETCH, HAS_HEADS};
use super::{Codec, Frame, HEADER_BYTES, MAX_DATA_BYTES, WIRE_VERSION, WireError};
use crate::event::{HostOperation, Outcome};
use crate::extent::{Extent, ExtentSet};
use crate::fence::Origin;
use crate::heads::{Heads, Mark};
use crate::ids::{
    CopyId, Epoch, FetchId, ForwardId, Head, Incarnation, Leaf, Low, NodeId, Nonce, Positions,
    ReplicaSequence, ReplicaUuid, SessionId, ShardId, VolumeId,
};
use crate::leaves::Leaves;
use crate::member::MAX_RANGES;
use crate::message::{
    Attach, Content, Envelope, Forward, Join, Message, Record, RecordKind, Refusal,
};

const CODEC: Codec = Codec {
    granule_bytes: 8,
    version: WIRE_VERSION,
};

fn extents() -> impl Strategy<Value = Extent> {
    (0u64..1 << 40, 1u32..20).prop_map(|(first, count)| Extent::new(first, count).expect("fits"))
}

fn sets() -> impl Strategy<Value = ExtentSet> {
    prop::collection::vec(extents(), 0..20).prop_map(ExtentSet::from_iter)
}

fn positions() -> impl Strategy<Value = Positions> {
    (0u8..8).prop_map(|bits| Positions::from_bits(bits).expect("three bits"))
}

fn contents(extent: Extent) -> impl Strategy<Value = Content> {
    let bytes = extent.count() as usize * CODEC.granule_bytes as usize;
    prop_oneof![
        Just(Content::Zeroes),
        prop::collection::vec(any::<u8>(), bytes).prop_map(|data| Content::Data(data.into())),
    ]
}

fn records() -> impl Strategy<Value = Message> {
    let kinds = prop_oneof![
        Just(RecordKind::Host),
        Just(RecordKind::Base),
        Just(RecordKind::Restore)
    ];
    let content = extents().prop_flat_map(|extent| (Just(extent), contents(extent)));
    (1..1u64 << 63, any::<u64>(), kinds, content).prop_map(
        |(sequence, low, kind, (extent, content))| {
            Message::Record(Record {
                sequence: ReplicaSequence(sequence),
                low: Low(low),
                kind,
                extent,
                content,
            })
        },
    )
}

fn messages() -> impl Strategy<Value = Message> {
    let reasons = prop_oneof![
        Just(Refusal::Epoch),
        Just(Refusal::Session),
        Just(Refusal::OldImage),
        Just(Refusal::Lags)
    ];
    let copies = extents().prop_flat_map(|extent| (Just(extent), contents(extent)));
    prop_oneof![
        records(),
        (
            any::<u32>(),
            any::<u64>(),
            positions(),
            positions(),
            marks()
        )
            .prop_map(|(owner, incarnation, absent, members, claim)| {
                Message::Join(Join {
                    owner: NodeId(owner),
                    incarnation: Incarnation(incarnation),
                    absent,
                    members,
                    claim,
                })
            }),
        (any::<u32>(), copies).prop_map(|(copy, (extent, content))| Message::Copy {
            copy: CopyId(copy),
            extent,
            content
        }),
        positions().prop_map(|absent| Message::Entry { absent }),
        any::<u64>().prop_map(|low| Message::Commit { low: Low(low) }),
        (any::<u64>(), [marks(), marks(), marks()]).prop_map(|(nonce, marks)| {
            Message::GrantAsk {
                nonce: Nonce(nonce),
                heads: Heads::new(marks),
            }
        }),
        (
            any::<u32>(),
            0..u64::MAX - 1024,
            1..=Leaves::MOST,
            any::<u32>()
        )
            .prop_map(|(copy, leaf, count, granules)| Message::DigestAsk {
                copy: CopyId(copy),
                leaves: Leaves::new(Leaf(leaf), count).expect("a run"),
                granules,
            }),
        (any::<u32>(), extents()).prop_map(|(fetch, extent)| Message::Fetch {
            fetch: FetchId(fetch),
            extent
        }),
        (any::<u32>(), fetched()).prop_map(|(fetch, (extent, content))| Message::Fetched {
            fetch: FetchId(fetch),
            extent,
            content
        }),
        Just(Message::Handoff),
        attaches().prop_map(Message::Attach),
        attaches().prop_map(Message::Joined),
        (any::<u32>(), reasons).prop_map(|(promised, reason)| Message::Refuse {
            promised: Epoch(promised),
            reason
        }),
        any::<u64>().prop_map(|sequence| Message::Ack {
            sequence: ReplicaSequence(sequence)
        }),
        any::<u32>().prop_map(|copy| Message::CopyAck { copy: CopyId(copy) }),
        Just(Message::Failed),
        (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(nonce, free, head)| {
            Message::Grant {
                nonce: Nonce(nonce),
                free,
                head: Head(head),
            }
        }),
        (any::<u32>(), any::<u128>()).prop_map(|(copy, digest)| Message::Digest {
            copy: CopyId(copy),
            digest
        }),
        (any::<u64>(), any::<[u8; 16]>(), operations()).prop_map(
            |(forward, registrant, operation)| {
                Message::Forward(Forward {
                    forward: ForwardId(forward),
                    registrant: Registrant(registrant),
                    operation,
                })
            }
        ),
        (any::<u64>(), outcomes()).prop_map(|(forward, outcome)| Message::Done {
            forward: ForwardId(forward),
            outcome
        }),
        origins().prop_map(|origin| Message::LabelAsk { origin }),
        (origins(), any::<u64>()).prop_map(|(origin, writes)| Message::Labelled { origin, writes }),
    ]
}

fn fetched() -> impl Strategy<Value = (Extent, Option<Content>)> {
    let content = |extent| prop::option::of(contents(extent));
    extents().prop_flat_map(move |extent| (Just(extent), content(extent)))
}

fn attaches() -> impl Strategy<Value = Attach> {
    let heads = [marks(), marks(), marks()];
    (marks(), sets(), any::<u64>(), heads).prop_map(|(mark, own, free, heads)| Attach {
        uuid: mark.replica,
        own,
        free,
        has_fetch: true,
        head: mark.head,
        heads: Heads::new(heads),
    })
}

fn marks() -> impl Strategy<Value = Mark> {
    (any::<[u8; 16]>(), any::<u64>()).prop_map(|(replica, head)| Mark {
        replica: ReplicaUuid(replica),
        head: Head(head),
    })
}

fn origins() -> impl Strategy<Value = Origin> {
    (any::<u64>(), any::<u64>()).prop_map(|(host, association)| Origin {
        host: HostId(host),
        association: AssociationId(association),
    })
}

fn some_bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..100).prop_map(Bytes::from)
}

fn operations() -> impl Strategy<Value = HostOperation> {
    let label = || (any::<u32>(), any::<u64>()).prop_map(|(epoch, writes)| Label { epoch, writes });
    let content = extents().prop_flat_map(|extent| (Just(extent), contents(extent)));
    let granule = contents(Extent::new(0, 1).expect("a granule"));
    prop_oneof![
        extents().prop_map(|extent| HostOperation::Read { extent }),
        Just(HostOperation::GetRegister),
        (content, origins(), label()).prop_map(|((extent, content), origin, label)| {
            HostOperation::Write {
                extent,
                content,
                origin,
                label,
            }
        }),
        (granule, origins(), label()).prop_map(|(content, origin, label)| {
            HostOperation::SetRegister {
                content,
                origin,
                label,
            }
        }),
        (some_bytes(), origins(), label()).prop_map(|(question, origin, label)| {
            HostOperation::Consult {
                question,
                origin,
                label,
            }
        }),
    ]
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Written),
        some_bytes().prop_map(Outcome::Read),
        Just(Outcome::NotOwner),
        Just(Outcome::Stale),
        Just(Outcome::PathGone),
        Just(Outcome::Failed),
        Just(Outcome::OutOfRange),
        Just(Outcome::Reserved),
        some_bytes().prop_map(Outcome::Advice),
    ]
}

fn envelopes() -> impl Strategy<Value = Envelope> {
    let header = (
        any::<u64>(),
        any::<u16>(),
        any::<u32>(),
        any::<u32>(),
        any::<u32>(),
    );
    (header, messages()).prop_map(
        |((volume, shard, epoch, session, number), message)| Envelope {
            volume: VolumeId(volume),
            shard: ShardId(shard),
            epoch: Epoch(epoch),
            session: SessionId(session),
            number,
            message,
        },
    )
}

fn bytes(envelope: &Envelope) -> Bytes {
    let encoded = CODEC.encode(envelope);
    [&encoded.head[..], &encoded.data[..]].concat().into()
}

proptest! {
    #[test]
    fn what_was_sent_is_what_is_received(envelope in envelopes(), tail in any::<[u8; 9]>()) {
        let sent = bytes(&envelope);
        let stream: Bytes = [&sent[..], &tail[..]].concat().into();
        let whole = Frame::Whole { envelope, bytes: sent.len() };
        prop_assert_eq!(CODEC.decode(&stream), Ok(whole));
        for cut in 0..sent.len() {
            let Ok(Frame::Partial { needs }) = CODEC.decode(&sent.slice(..cut)) else {
                return Err(TestCaseError::fail("a part is a part"));
            };
            prop_assert!(needs > cut && needs <= sent.len());
        }
    }

    #[test]
    fn one_damaged_bit_is_noticed(envelope in envelopes(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut damaged = bytes(&envelope).to_vec();
        let at = at.index(damaged.len());
        damaged[at] ^= 1 << bit;
        prop_assert!(CODEC.decode(&damaged.into()).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = CODEC.decode(&noise.into());
    }

    /// Bodies that pass the checksums and mean nothing.
    #[test]
    fn no_body_makes_it_panic(
        kind in any::<u8>(),
        body in prop::collection::vec(any::<u8>(), 0..80),
        data in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let _ = CODEC.message(kind, &body, data.into());
    }
}

fn sample() -> Vec<u8> {
    let message = Message::Commit { low: Low(7) };
    bytes(&Envelope {
        volume: VolumeId(0x1122),
        shard: ShardId(3),
        epoch: Epoch(4),
        session: SessionId(5),
        number: 6,
        message,
    })
    .to_vec()
}

#[test]
fn a_message_is_laid_out_as_the_document_says() {
    let bytes = sample();
    assert_eq!(bytes.len(), HEADER_BYTES + 8);
    assert_eq!(&bytes[..8], b"ASHR\x06\x05\x03\0");
    assert_eq!(bytes[8..16], 0x1122u64.to_le_bytes());
    assert_eq!(bytes[16..20], 4u32.to_le_bytes());
    assert_eq!(bytes[20..24], 5u32.to_le_bytes());
    assert_eq!(bytes[24..28], 6u32.to_le_bytes());
    assert_eq!(bytes[28..36], 8u64.to_le_bytes());
    assert_eq!(bytes[48..56], 7u64.to_le_bytes());
}

/// The sample with a field of its header changed, and the checksum made right again.
fn changed(at: usize, to: &[u8]) -> Result<Frame, WireError> {
    let mut bytes = sample();
    bytes[at..at + to.len()].copy_from_slice(to);
    let crc = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    CODEC.decode(&bytes.into())
}

#[test]
fn another_version_another_kind_and_lengths_that_cannot_be_are_refused() {
    let (said, agreed) = (1, WIRE_VERSION);
    assert_eq!(
        changed(4, &[said]),
        Err(WireError::Version { said, agreed })
    );
    assert_eq!(changed(5, &[63]), Err(WireError::Kind(63)));
    assert_eq!(changed(0, b"ASHX"), Err(WireError::Magic));
    let bytes = MAX_DATA_BYTES as u32 + 1;
    let wrong = |what| Err(WireError::Length { what, bytes });
    assert_eq!(changed(32, &bytes.to_le_bytes()), wrong("data"));
    assert_eq!(changed(28, &bytes.to_le_bytes()), wrong("a body"));
}

/// A pool could not be imported that has such a record in its log; nor is there memory for so many zeroes.
#[test]
fn a_record_that_a_log_cannot_keep_is_refused() {
    let refused = |sequence, count| {
        let message = Message::Record(Record {
            sequence: ReplicaSequence(sequence),
            low: Low(0),
            kind: RecordKind::Host,
            extent: Extent::new(0, count).expect("an extent"),
            content: Content::Zeroes,
        });
        CODEC.decode(&bytes(&envelope(message))).is_err()
    };
    let most = MAX_DATA_BYTES as u32 / CODEC.granule_bytes;
    assert!(!refused(1, most) && !refused((1 << 63) - 1, 1));
    assert!(refused(0, 1) && refused(1 << 63, 1) && refused(1, most + 1));
}

fn envelope(message: Message) -> Envelope {
    Envelope {
        volume: VolumeId(1),
        shard: ShardId(0),
        epoch: Epoch(1),
        session: SessionId(1),
        number: 0,
        message,
    }
}

#[test]
fn an_uncertain_set_that_is_too_fine_is_said_coarser() {
    let fine = (0..2 * MAX_RANGES as u64).filter_map(|n| Extent::new(n * 2, 1));
    let message = Message::Joined(Attach {
        uuid: ReplicaUuid::NEW,
        own: fine.clone().collect(),
        free: 1,
        has_fetch: true,
        head: Head(1),
        heads: Heads::default(),
    });
    let envelope = envelope(message);
    let Ok(Frame::Whole { envelope, .. }) = CODEC.decode(&bytes(&envelope)) else {
        panic!("a message");
    };
    let Message::Joined(Attach { own: uncertain, .. }) = envelope.message else {
        panic!("JOINED");
    };
    assert!(fine.clone().all(|extent| uncertain.overlaps(extent)));
    assert!(uncertain.runs() <= MAX_RANGES);
}

/// A connection has one version, whatever else its two ends speak.
#[test]
fn a_message_is_of_its_connections_version() {
    let newer = Codec {
        version: WIRE_VERSION + 1,
        ..CODEC
    };
    let Ok(Frame::Whole { envelope, .. }) = CODEC.decode(&sample().into()) else {
        panic!("a message");
    };
    let encoded = newer.encode(&envelope);
    assert_eq!(encoded.head[4], WIRE_VERSION + 1);
    let bytes = Bytes::from(encoded.head);
    assert!(
        matches!(newer.decode(&bytes), Ok(Frame::Whole { envelope: same, .. }) if same == envelope)
    );
    let (said, agreed) = (WIRE_VERSION + 1, WIRE_VERSION);
    assert_eq!(
        CODEC.decode(&bytes),
        Err(WireError::Version { said, agreed })
    );
}

/// Who speaks an older version is known by its connection: it is not asked, and says nothing of the kind.
#[test]
fn an_older_version_has_no_fetch() {
    let older = Codec {
        version: HAS_FETCH - 1,
        ..CODEC
    };
    let codec = Codec {
        version: HAS_FETCH,
        ..CODEC
    };
    let attach = |has_fetch| Attach {
        uuid: ReplicaUuid([9; 16]),
        own: Extent::new(3, 2).into_iter().collect(),
        free: 1,
        has_fetch,
        head: Head(0),
        heads: Heads::default(),
    };
    for message in [Message::Joined, Message::Attach] {
        for (codec, has_fetch) in [(older, false), (codec, true)] {
            let sent = codec.encode(&envelope(message(attach(true)))).head;
            let Ok(Frame::Whole { envelope: is, .. }) = codec.decode(&sent.into()) else {
                panic!("a message");
            };
            assert_eq!(is.message, message(attach(has_fetch)));
        }
    }
    let sent = older.encode(&envelope(Message::Handoff)).head;
    assert_eq!(sent.len(), HEADER_BYTES, "as it was");
    let extent = Extent::new(3, 2).expect("an extent");
    let fetch = FetchId(1);
    let content = None;
    let newer = [
        Message::Fetch { fetch, extent },
        Message::Fetched {
            fetch,
            extent,
            content,
        },
    ];
    for message in newer {
        let sent = CODEC.encode(&envelope(message)).head;
        let (kind, body) = (sent[5], &sent[HEADER_BYTES..]);
        assert!(CODEC.message(kind, body, Bytes::new()).is_ok());
        assert_eq!(
            older.message(kind, body, Bytes::new()),
            Err(WireError::Kind(kind))
        );
    }
}

/// One small message does not make its receiver read, or hold, more than a message may have.
#[test]
fn what_has_no_room_in_a_message_is_not_asked_for() {
    let most = MAX_DATA_BYTES as u32 / CODEC.granule_bytes;
    let asked = |count| {
        let extent = Extent::new(0, count).expect("an extent");
        let fetch = FetchId(1);
        let fetched = |content| Message::Fetched {
            fetch,
            extent,
            content,
        };
        let read = Message::Forward(Forward {
            forward: ForwardId(1),
            registrant: Registrant::default(),
            operation: HostOperation::Read { extent },
        });
        let zeroes = fetched(Some(Content::Zeroes));
        [
            Message::Fetch { fetch, extent },
            fetched(None),
            zeroes,
            read,
        ]
    };
    for (count, is_refused) in [(most, false), (most + 1, true), (u32::MAX, true)] {
        for message in asked(count) {
            let answer = CODEC.decode(&bytes(&envelope(message)));
            let is_wrong = matches!(answer, Err(WireError::Length { .. }));
            assert_eq!(is_wrong, is_refused, "{answer:?}");
        }
    }
}

/// Who speaks an older version says nothing of how far it has come, and hears nothing; what it does say is as it was.
#[test]
fn an_older_version_says_nothing_of_heads() {
    let older = Codec {
        version: HAS_HEADS - 1,
        ..CODEC
    };
    let says = Mark {
        replica: ReplicaUuid([9; 16]),
        head: Head(7),
    };
    let messages = |mark: Mark| {
        let attach = Attach {
            uuid: says.replica,
            own: Extent::new(3, 2).into_iter().collect(),
            free: 1,
            has_fetch: true,
            head: mark.head,
            heads: Heads::new([mark; 3]),
        };
        [
            Message::Join(Join {
                owner: NodeId(1),
                incarnation: Incarnation(1),
                absent: Positions::NONE,
                members: Positions::first(2),
                claim: mark,
            }),
            Message::Joined(attach.clone()),
            Message::Attach(attach),
            Message::GrantAsk {
                nonce: Nonce(1),
                heads: Heads::new([mark; 3]),
            },
            Message::Grant {
                nonce: Nonce(1),
                free: 1,
                head: mark.head,
            },
        ]
    };
    let more = [24, 80, 80, 72, 8];
    for ((sent, heard), more) in messages(says)
        .into_iter()
        .zip(messages(Mark::default()))
        .zip(more)
    {
        let newer = CODEC.encode(&envelope(sent.clone())).head;
        let bytes = older.encode(&envelope(sent)).head;
        assert_eq!(newer.len(), bytes.len() + more);
        let Ok(Frame::Whole { envelope: is, .. }) = older.decode(&bytes.into()) else {
            panic!("a message");
        };
        assert_eq!(is.message, heard);
        let (kind, body) = (newer[5], &newer[HEADER_BYTES..newer.len() - 1]);
        let cut = CODEC.message(kind, body, Bytes::new());
        assert!(cut.is_err(), "{cut:?}");
    }
}
