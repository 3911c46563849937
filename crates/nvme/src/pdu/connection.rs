//! ICReq and ICResp: what the two ends agree on first (TCP Transport 3.6.2.2 and 3.6.2.3).

use super::{Digests, Fatal, FatalStatus, Framing, PduType, framing::Outgoing};
use crate::layout::layout;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The largest HPDA or CPDA: data aligned to 128 bytes.
pub const PDA_MAX: u8 = 31;
/// The smallest MAXH2CDATA a controller may offer.
pub const MAXH2CDATA_MIN: u32 = 4096;

/// ICReq: what the host asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IcReq {
    /// HPDA: alignment the host wants for data sent to it, in dwords minus one.
    pub hpda: u8,
    /// Digests the host wants.
    pub digests: Digests,
    /// MAXR2T: R2Ts the host can have outstanding a command, minus one.
    pub maxr2t: u32,
}

/// ICResp: what the controller grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcResp {
    /// CPDA: alignment the controller wants for data sent to it, in dwords minus one.
    pub cpda: u8,
    /// Digests in force from the next PDU on.
    pub digests: Digests,
    /// MAXH2CDATA: the most payload bytes of one H2CData PDU; at least 4096, a multiple of 4.
    pub maxh2cdata: u32,
}

/// Both bodies on the wire, reserved bytes included.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Body {
    pfv: U16,
    pda: u8,
    dgst: u8,
    limit: U32,
    reserved: [u8; 112],
}

layout!(Body, 120, pfv @ 0, pda @ 2, dgst @ 3, limit @ 4);

/// Offsets in the PDU, for the Fatal Error Information.
const PFV_AT: u32 = 8;
const PDA_AT: u32 = 10;
const LIMIT_AT: u32 = 12;

impl Body {
    fn new(pda: u8, digests: Digests, limit: u32) -> Self {
        Self {
            pfv: U16::new(0),
            pda,
            dgst: digests.bits(),
            limit: U32::new(limit),
            reserved: [0; 112],
        }
    }

    /// A body of a version and alignment that we know.
    fn parse(body: &[u8]) -> Result<&Self, Fatal> {
        let Ok((body, _)) = Self::ref_from_prefix(body) else {
            return Err(Fatal::at(FatalStatus::InvalidHeaderField, 2));
        };
        if body.pfv.get() != 0 {
            return Err(Fatal::at(FatalStatus::UnsupportedParameter, PFV_AT));
        }
        if body.pda > PDA_MAX {
            return Err(Fatal::at(FatalStatus::InvalidHeaderField, PDA_AT));
        }
        Ok(body)
    }

    fn write(&self, out: &mut Vec<u8>, kind: PduType) {
        let pdu = Outgoing {
            kind,
            flags: 0,
            body: self.as_bytes(),
            data_bytes: 0,
        };
        Framing::PLAIN.write(out, &pdu);
    }
}

impl IcReq {
    /// Appends the PDU, 128 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Body::new(self.hpda, self.digests, self.maxr2t).write(out, PduType::IcReq);
    }

    /// Parses what follows the common header.
    ///
    /// # Errors
    /// The Fatal Error Status to answer with: another PFV than 0, HPDA above 31.
    pub fn parse(body: &[u8]) -> Result<Self, Fatal> {
        let body = Body::parse(body)?;
        Ok(Self {
            hpda: body.pda,
            digests: Digests::from_bits(body.dgst),
            maxr2t: body.limit.get(),
        })
    }
}

impl IcResp {
    /// Appends the PDU, 128 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Body::new(self.cpda, self.digests, self.maxh2cdata).write(out, PduType::IcResp);
    }

    /// Parses what follows the common header.
    ///
    /// # Errors
    /// The Fatal Error Status to answer with: another PFV than 0, CPDA above 31, MAXH2CDATA below
    /// 4096 or not a multiple of 4.
    pub fn parse(body: &[u8]) -> Result<Self, Fatal> {
        let body = Body::parse(body)?;
        let maxh2cdata = body.limit.get();
        if maxh2cdata < MAXH2CDATA_MIN || !maxh2cdata.is_multiple_of(4) {
            return Err(Fatal::at(FatalStatus::InvalidHeaderField, LIMIT_AT));
        }
        Ok(Self {
            cpda: body.pda,
            digests: Digests::from_bits(body.dgst),
            maxh2cdata,
        })
    }

    /// True if the controller granted the digests that `request` asked for, as a host must insist.
    pub fn grants(&self, request: &IcReq) -> bool {
        self.digests == request.digests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_with_the_offset_of_the_field() {
        let mut out = Vec::new();
        let good = IcResp {
            cpda: 0,
            digests: Digests::BOTH,
            maxh2cdata: 131_072,
        };
        good.encode(&mut out);
        assert_eq!(out.len(), 128);
        assert_eq!(IcResp::parse(&out[8..]), Ok(good));

        let broken = |at: usize, byte: u8| {
            let mut bytes = out.clone();
            bytes[at] = byte;
            IcResp::parse(&bytes[8..]).map_err(|fatal| (fatal.status, fatal.information))
        };
        use FatalStatus::{InvalidHeaderField, UnsupportedParameter};
        assert_eq!(broken(9, 1), Err((UnsupportedParameter, 8)));
        assert_eq!(broken(10, 32), Err((InvalidHeaderField, 10)));
        assert_eq!(broken(12, 2), Err((InvalidHeaderField, 12)));
        assert_eq!(broken(14, 0), Err((InvalidHeaderField, 12)));
    }
}
