//! The incremental receiver; see the module above for how it is used.

use super::rules::{Limits, Outline, Phase, Rules};
use super::{Header, Pdu};
use crate::pdu::{CommonHeader, DataDigest, Digests, Fatal, FatalStatus, Role};

/// The most bytes of a PDU before its data: PDO is one byte.
const HEAD_BYTES: usize = 256;

/// What the stream held next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// All input is consumed and the next step is not complete.
    NeedMore,
    /// A header; its payload follows in later steps.
    Pdu(Pdu),
    /// The next piece of payload, in the caller's own buffer; never empty.
    Data(&'a [u8]),
    /// The payload is complete.
    End {
        /// False if the PDU had a data digest and it does not match. Not fatal: the command fails with
        /// Transient Transport Error and the connection goes on.
        data_digest_ok: bool,
    },
}

/// Where in a PDU the stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// In what comes before data.
    Head,
    /// In the data; more than 0 bytes remain.
    Payload,
    /// In the data digest.
    Digest,
    /// Behind the data, without digest: [`Step::End`] is due.
    End,
    /// Behind a fatal error.
    Dead(Fatal),
}

/// Cuts one connection's incoming stream into PDUs.
#[derive(Debug, Clone)]
pub struct Receiver {
    rules: Rules,
    at: At,
    /// Payload bytes not yet seen.
    remaining: usize,
    /// True if the current PDU ends with a data digest.
    digested: bool,
    digest: DataDigest,
    /// Bytes of `head` (in `At::Head`) or of the data digest (in `At::Digest`) collected so far.
    collected: usize,
    head: [u8; HEAD_BYTES],
}

impl Receiver {
    /// A receiver for the end that plays `role`, before the connection is initialized.
    pub fn new(role: Role, limits: Limits) -> Self {
        Self {
            rules: Rules {
                role,
                phase: Phase::Initialize,
                digests: Digests::NONE,
                limits,
            },
            at: At::Head,
            remaining: 0,
            digested: false,
            digest: DataDigest::new(),
            collected: 0,
            head: [0; HEAD_BYTES],
        }
    }

    /// Opens the stream for commands and data, with the digests agreed on: a controller calls it when
    /// it answers ICReq, a host when it accepts ICResp. Other PDUs before it are a sequence error.
    pub fn open(&mut self, digests: Digests) {
        self.rules.digests = digests;
        self.rules.phase = Phase::Open;
    }

    /// Replaces the limits, for instance when a connection turns out to be an admin queue's. PDUs
    /// whose header was already seen keep theirs.
    pub fn set_limits(&mut self, limits: Limits) {
        self.rules.limits = limits;
    }

    /// The next step. Consumed bytes are cut off `input`; on [`Step::NeedMore`] it is empty. Call it
    /// until it says so, even with empty input: [`Step::End`] may be due.
    ///
    /// # Errors
    /// What to send in a terminate request; every later call returns it again.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Step<'a>, Fatal> {
        match self.at {
            At::Head => self.head(input),
            At::Payload => Ok(self.payload(input)),
            At::Digest => Ok(self.data_digest(input)),
            At::End => Ok(self.end(true)),
            At::Dead(fatal) => Err(fatal),
        }
    }

    /// Whether a PDU has begun and not ended: the peer owes bytes.
    pub fn is_inside_pdu(&self) -> bool {
        self.at != At::Head || self.collected > 0
    }

    /// Whether a PDU has begun of which nothing is known: not all of its header is there.
    pub fn is_inside_header(&self) -> bool {
        self.at == At::Head && self.collected > 0
    }

    /// Payload bytes of the current PDU that [`next`](Self::next) has not handed out: after a
    /// [`Step::Pdu`] or [`Step::Data`], what may be received directly in its destination.
    pub fn payload_remaining(&self) -> usize {
        if self.at == At::Payload {
            self.remaining
        } else {
            0
        }
    }

    /// Tells that the next payload bytes were received elsewhere and are `bytes`; they must not be more
    /// than [`payload_remaining`](Self::payload_remaining), what is more is ignored.
    pub fn payload_filled(&mut self, bytes: &[u8]) {
        let taken = bytes.len().min(self.payload_remaining());
        if taken > 0 {
            self.take_payload(&bytes[..taken]);
        }
    }

    /// The header that caused a [`Fatal`], as a terminate request returns it: up to 128 bytes, and no
    /// more of it than had been received.
    pub fn offending_header(&self) -> &[u8] {
        match self.at {
            At::Dead(_) => &self.head[..self.collected],
            _ => &[],
        }
    }

    fn head<'a>(&mut self, input: &mut &'a [u8]) -> Result<Step<'a>, Fatal> {
        if self.collected == 0 {
            let received = *input;
            if let Some(common) = CommonHeader::parse(received) {
                let outline = match self.rules.outline(common) {
                    Ok(outline) => outline,
                    Err(fatal) => return Err(self.die(fatal, received)),
                };
                if let Some((head, rest)) = received.split_at_checked(outline.before_data) {
                    *input = rest;
                    return self.accept(head, outline).map(Step::Pdu);
                }
            }
        }
        self.head_in_pieces(input)
    }

    /// The slow path: a header that came in several reads is put together first.
    #[cold]
    fn head_in_pieces<'a>(&mut self, input: &mut &'a [u8]) -> Result<Step<'a>, Fatal> {
        if !self.collect(input, CommonHeader::BYTES) {
            return Ok(Step::NeedMore);
        }
        let head = self.head;
        let Some(common) = CommonHeader::parse(&head) else {
            return Ok(Step::NeedMore);
        };
        let outline = match self.rules.outline(common) {
            Ok(outline) => outline,
            Err(fatal) => return Err(self.die(fatal, &head[..self.collected])),
        };
        if !self.collect(input, outline.before_data) {
            return Ok(Step::NeedMore);
        }
        let head = self.head;
        self.collected = 0;
        self.accept(&head[..outline.before_data], outline)
            .map(Step::Pdu)
    }

    /// Moves input into `head` until it holds `wanted` bytes; true if it does.
    fn collect(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.collected);
        let (taken, rest) = input.split_at(missing.min(input.len()));
        let end = self.collected + taken.len();
        if let Some(free) = self.head.get_mut(self.collected..end) {
            free.copy_from_slice(taken);
            self.collected = end;
            *input = rest;
        }
        self.collected >= wanted
    }

    /// Checks digest and content of a whole header; the stream goes on behind it.
    fn accept(&mut self, head: &[u8], outline: Outline) -> Result<Pdu, Fatal> {
        let (header, tail) = head.split_at(outline.header);
        if outline.header_digest && !tail.starts_with(&DataDigest::of(header)) {
            let fatal = Fatal::new(FatalStatus::HeaderDigestError);
            return Err(self.die(fatal, header));
        }
        let header = match Header::parse(outline.kind, header, outline.data) {
            Ok(parsed) => parsed,
            Err(fatal) => return Err(self.die(fatal, header)),
        };
        if outline.kind.is_initialize() {
            self.rules.phase = Phase::Initialized;
        }
        self.remaining = outline.data;
        self.digested = outline.data_digest;
        if outline.data > 0 {
            self.at = At::Payload;
            self.digest = DataDigest::new();
        }
        Ok(Pdu {
            header,
            data_len: outline.data,
        })
    }

    fn payload<'a>(&mut self, input: &mut &'a [u8]) -> Step<'a> {
        if input.is_empty() {
            return Step::NeedMore;
        }
        let (data, rest) = input.split_at(self.remaining.min(input.len()));
        *input = rest;
        self.take_payload(data);
        Step::Data(data)
    }

    fn take_payload(&mut self, data: &[u8]) {
        if self.digested {
            self.digest.update(data);
        }
        self.remaining -= data.len();
        if self.remaining == 0 {
            self.at = if self.digested { At::Digest } else { At::End };
        }
    }

    fn data_digest<'a>(&mut self, input: &mut &'a [u8]) -> Step<'a> {
        let expected = self.digest.bytes();
        if !self.collect(input, expected.len()) {
            return Step::NeedMore;
        }
        let ok = self.head.starts_with(&expected);
        self.end(ok)
    }

    fn end<'a>(&mut self, data_digest_ok: bool) -> Step<'a> {
        self.at = At::Head;
        self.collected = 0;
        Step::End { data_digest_ok }
    }

    /// Keeps the error and as much of the header as a terminate request returns.
    #[cold]
    fn die(&mut self, fatal: Fatal, received: &[u8]) -> Fatal {
        let declared = received.get(2).map_or(0, |&hlen| usize::from(hlen));
        let known = declared.clamp(CommonHeader::BYTES, crate::pdu::TERM_REQ_DATA_MAX);
        let kept = received.len().min(known);
        self.head[..kept].copy_from_slice(&received[..kept]);
        self.collected = kept;
        self.at = At::Dead(fatal);
        fatal
    }
}
