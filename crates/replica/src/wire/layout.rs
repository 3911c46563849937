//! What lies on the wire, byte by byte; `docs/replication.md` has the tables.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "ASHR".
pub(super) const MAGIC: [u8; 4] = *b"ASHR";
/// The newest version that this program speaks: raised with that of the connections between nodes. Since 1: commands
/// that members forward (FWD, DONE, LABEL), and JOINED says which copy it is of. Since 2: JOIN says who has copies.
/// Since 3: DIGEST? is about a run of leaves. Since 5: FETCH and FETCHED. Since 6: how far copies have come.
pub const WIRE_VERSION: u8 = 6;
/// From this version on there are FETCH and FETCHED.
pub(super) const HAS_FETCH: u8 = 5;
/// From this version on it is said how far copies claim to have come.
pub const HAS_HEADS: u8 = 6;
/// Bytes before a message's body.
pub const HEADER_BYTES: usize = 48;

macro_rules! layouts { ($($(#[$doc:meta])* $name:ident[$bytes:expr] { $($field:ident: $of:ty,)* })*) => { $(
    $(#[$doc])*
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub(super) struct $name { $(pub(super) $field: $of,)* }
    const _: () = assert!(size_of::<$name>() == $bytes);
)* } }

layouts! {
    /// What every message begins with.
    Header[48] {
        magic: [u8; 4],
        version: u8,
        kind: u8,
        shard: U16,
        volume: U64,
        epoch: U32,
        session: U32,
        number: U32,
        body_bytes: U32,
        data_bytes: U32,
        body_crc: U32,
        data_crc: U32,
        header_crc: U32,
    }
    JoinBody[16] {
        incarnation: U64,
        owner: U32,
        absent: u8,
        members: u8,
        zero: [u8; 2],
    }
    RecordBody[32] {
        sequence: U64,
        low: U64,
        first: U64,
        count: U32,
        kind: u8,
        content: u8,
        zero: [u8; 2],
    }
    CopyBody[24] {
        first: U64,
        count: U32,
        copy: U32,
        content: u8,
        zero: [u8; 7],
    }
    /// FETCH: nothing in `content`.
    FetchBody[24] {
        first: U64,
        count: U32,
        fetch: U32,
        content: u8,
        zero: [u8; 7],
    }
    EntryBody[8] {
        absent: u8,
        zero: [u8; 7],
    }
    /// COMMIT, GRANT? and ACK: one number.
    NumberBody[8] {
        number: U64,
    }
    DigestAskBody[24] {
        first: U64,
        copy: U32,
        count: U32,
        granules: U32,
        zero: [u8; 4],
    }
    /// JOINED and ATTACH.
    AttachBody[32] {
        uuid: [u8; 16],
        free: U64,
        ranges: U32,
        zero: [u8; 4],
    }
    /// JOINED and ATTACH are followed by as many as they say.
    RangeBody[16] {
        first: U64,
        count: U32,
        zero: [u8; 4],
    }
    RefuseBody[8] {
        promised: U32,
        reason: u8,
        zero: [u8; 3],
    }
    CopyAckBody[8] {
        copy: U32,
        zero: [u8; 4],
    }
    GrantBody[16] {
        nonce: U64,
        free: U64,
    }
    /// Behind JOIN, and three of them behind GRANT?, JOINED and ATTACH, by position: which copy, and how far it claims to
    /// have come.
    MarkBody[24] {
        replica: [u8; 16],
        head: U64,
    }
    /// Behind GRANT, and before those of JOINED and ATTACH: how far the copy claims to have come.
    HeadBody[8] {
        head: U64,
    }
    DigestBody[24] {
        digest: [u8; 16],
        copy: U32,
        zero: [u8; 4],
    }
    ForwardBody[72] {
        registrant: [u8; 16],
        forward: U64,
        host: U64,
        association: U64,
        writes: U64,
        first: U64,
        count: U32,
        label_epoch: U32,
        what: u8,
        content: u8,
        zero: [u8; 6],
    }
    LabelAskBody[16] {
        host: U64,
        association: U64,
    }
    DoneBody[16] {
        forward: U64,
        outcome: u8,
        zero: [u8; 7],
    }
    LabelledBody[24] {
        host: U64,
        association: U64,
        writes: U64,
    }
}

/// Kinds, as the header says them. Owners' are below 64, members' from 64 on.
pub(super) mod kind {
    pub(in crate::wire) const JOIN: u8 = 1;
    pub(in crate::wire) const RECORD: u8 = 2;
    pub(in crate::wire) const COPY: u8 = 3;
    pub(in crate::wire) const ENTRY: u8 = 4;
    pub(in crate::wire) const COMMIT: u8 = 5;
    pub(in crate::wire) const GRANT_ASK: u8 = 6;
    pub(in crate::wire) const DIGEST_ASK: u8 = 7;
    pub(in crate::wire) const HANDOFF: u8 = 8;
    pub(in crate::wire) const DONE: u8 = 9;
    pub(in crate::wire) const LABELLED: u8 = 10;
    pub(in crate::wire) const FETCH: u8 = 11;
    pub(in crate::wire) const JOINED: u8 = 64;
    pub(in crate::wire) const ATTACH: u8 = 65;
    pub(in crate::wire) const REFUSE: u8 = 66;
    pub(in crate::wire) const ACK: u8 = 67;
    pub(in crate::wire) const COPY_ACK: u8 = 68;
    pub(in crate::wire) const FAILED: u8 = 69;
    pub(in crate::wire) const GRANT: u8 = 70;
    pub(in crate::wire) const DIGEST: u8 = 71;
    pub(in crate::wire) const FORWARD: u8 = 72;
    pub(in crate::wire) const LABEL_ASK: u8 = 73;
    pub(in crate::wire) const FETCHED: u8 = 74;
}

/// What a record's or copy's content is.
pub(super) mod content {
    pub(in crate::wire) const DATA: u8 = 0;
    pub(in crate::wire) const ZEROES: u8 = 1;
    /// Of what was to be fetched: it cannot be read.
    pub(in crate::wire) const NONE: u8 = 2;
}

/// What a forwarded command wants.
pub(super) mod what {
    pub(in crate::wire) const READ: u8 = 0;
    pub(in crate::wire) const WRITE: u8 = 1;
    pub(in crate::wire) const GET_REGISTER: u8 = 2;
    pub(in crate::wire) const SET_REGISTER: u8 = 3;
    pub(in crate::wire) const CONSULT: u8 = 4;
}

/// How one has ended.
pub(super) mod outcome {
    pub(in crate::wire) const WRITTEN: u8 = 0;
    pub(in crate::wire) const READ: u8 = 1;
    pub(in crate::wire) const NOT_OWNER: u8 = 2;
    pub(in crate::wire) const STALE: u8 = 3;
    pub(in crate::wire) const PATH_GONE: u8 = 4;
    pub(in crate::wire) const FAILED: u8 = 5;
    pub(in crate::wire) const OUT_OF_RANGE: u8 = 6;
    pub(in crate::wire) const RESERVED: u8 = 7;
    pub(in crate::wire) const ADVICE: u8 = 8;
}
