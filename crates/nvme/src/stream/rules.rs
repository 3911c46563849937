//! What a common header may say, by role, phase and negotiated limits.

use crate::pdu::{
    CommonHeader, Digests, Fatal, FatalStatus, PDA_MAX, PduType, Role, TERM_REQ_DATA_MAX, flags,
};

/// Offsets in the common header, for the Fatal Error Information.
const TYPE_AT: u32 = 0;
const FLAGS_AT: u32 = 1;
const HLEN_AT: u32 = 2;
const PDO_AT: u32 = 3;
const PLEN_AT: u32 = 4;

const DIGEST_BYTES: usize = 4;

/// What one side accepts, in payload bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// A controller's: the most in-capsule data, at least 8192 for admin and Fabrics commands.
    pub in_capsule: u32,
    /// The most data of one data PDU: a controller's MAXH2CDATA, a host's largest transfer.
    pub data: u32,
    /// The alignment this side asked for: a controller's CPDA, a host's HPDA (dwords minus one).
    pub pda: u8,
}

impl Default for Limits {
    /// 16 KiB in capsule, 1 MiB a data PDU, no alignment beyond dwords.
    fn default() -> Self {
        Self {
            in_capsule: 16 << 10,
            data: 1 << 20,
            pda: 0,
        }
    }
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The peer's ICReq or ICResp has not been seen.
    Initialize,
    /// It has been seen; the owner has not opened the stream yet.
    Initialized,
    /// Commands and data.
    Open,
}

/// Everything that decides whether a common header is legal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub role: Role,
    pub phase: Phase,
    pub digests: Digests,
    pub limits: Limits,
}

/// Where the parts of a legal PDU lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outline {
    pub kind: PduType,
    /// Bytes that the header digest covers.
    pub header: usize,
    /// Bytes up to the data: header, digest and padding; at most 255.
    pub before_data: usize,
    pub data: usize,
    pub header_digest: bool,
    pub data_digest: bool,
}

impl Rules {
    /// Checks a common header and finds the PDU's parts.
    pub(super) fn outline(&self, common: &CommonHeader) -> Result<Outline, Fatal> {
        let kind = self.kind(common)?;
        if common.hlen != kind.header_bytes() {
            return Err(invalid(HLEN_AT));
        }
        let header = usize::from(common.hlen);
        let header_digest = self.digests.header && kind.has_digests();
        if kind.has_digests() && (common.flags & flags::HDGST != 0) != header_digest {
            return Err(invalid(FLAGS_AT));
        }
        let header_end = header + if header_digest { DIGEST_BYTES } else { 0 };
        let Some(rest) = (common.plen.get() as usize).checked_sub(header_end) else {
            return Err(invalid(PLEN_AT));
        };
        let mut outline = Outline {
            kind,
            header,
            before_data: header_end,
            data: 0,
            header_digest,
            data_digest: false,
        };
        match (rest, kind) {
            (0, PduType::H2cData | PduType::C2hData) => return Err(invalid(PLEN_AT)),
            (0, _) => {}
            (_, PduType::H2cTermReq | PduType::C2hTermReq) => outline.data = rest,
            (_, PduType::CapsuleCmd | PduType::H2cData | PduType::C2hData) => {
                self.place_data(&mut outline, common)?;
            }
            _ => return Err(invalid(PLEN_AT)),
        }
        self.check_limit(&outline)?;
        Ok(outline)
    }

    /// The type, if the peer may send it now.
    fn kind(&self, common: &CommonHeader) -> Result<PduType, Fatal> {
        let kind = PduType::from_byte(common.pdu_type).ok_or(invalid(TYPE_AT))?;
        if kind.sender() == self.role {
            return Err(invalid(TYPE_AT));
        }
        let in_sequence = match self.phase {
            Phase::Initialize => kind.is_initialize() || kind.is_terminate(),
            Phase::Initialized => kind.is_terminate(),
            Phase::Open => !kind.is_initialize(),
        };
        if in_sequence {
            Ok(kind)
        } else {
            Err(Fatal::new(FatalStatus::PduSequenceError))
        }
    }

    /// Finds data and data digest by PDO.
    fn place_data(&self, outline: &mut Outline, common: &CommonHeader) -> Result<(), Fatal> {
        outline.data_digest = self.digests.data;
        if (common.flags & flags::DDGST != 0) != outline.data_digest {
            return Err(invalid(FLAGS_AT));
        }
        let pdo = usize::from(common.pdo);
        let alignment = (usize::from(self.limits.pda.min(PDA_MAX)) + 1) * 4;
        if pdo < outline.before_data || !pdo.is_multiple_of(alignment) {
            return Err(invalid(PDO_AT));
        }
        let tail = if outline.data_digest { DIGEST_BYTES } else { 0 };
        match (common.plen.get() as usize).checked_sub(pdo + tail) {
            None | Some(0) => Err(invalid(PLEN_AT)),
            Some(data) => {
                outline.before_data = pdo;
                outline.data = data;
                Ok(())
            }
        }
    }

    fn check_limit(&self, outline: &Outline) -> Result<(), Fatal> {
        let limit = match outline.kind {
            PduType::CapsuleCmd => self.limits.in_capsule as usize,
            PduType::H2cTermReq | PduType::C2hTermReq => TERM_REQ_DATA_MAX,
            _ => self.limits.data as usize,
        };
        if outline.data <= limit {
            Ok(())
        } else if outline.kind.is_terminate() {
            Err(invalid(PLEN_AT))
        } else {
            Err(Fatal::new(FatalStatus::DataTransferLimitExceeded))
        }
    }
}

const fn invalid(offset: u32) -> Fatal {
    Fatal::at(FatalStatus::InvalidHeaderField, offset)
}
