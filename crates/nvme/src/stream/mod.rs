//! Cutting a byte stream into PDUs, without I/O.
//!
//! A [`Receiver`] belongs to one connection. Its owner reads bytes from wherever they come, gives
//! them to [`Receiver::next`] until it says [`Step::NeedMore`], and acts on each step:
//!
//! ```text
//! Pdu ─▶ (if data_len > 0:) Data* ─▶ End ─▶ Pdu …
//! ```
//!
//! The steps do not depend on how the stream was cut into reads, except where one `Data` ends and the
//! next begins. A payload can also be received directly in its destination: after `Pdu`, read up to
//! [`Receiver::payload_remaining`] bytes there and report them with [`Receiver::payload_filled`];
//! `next` then goes on with the data digest or the next PDU.
//!
//! A [`Fatal`] is final: send it in a terminate request with [`Receiver::offending_header`] and close.

mod receiver;
mod rules;

pub use receiver::{Receiver, Step};
pub use rules::Limits;

use crate::command::{Command, Completion};
use crate::pdu::{C2hData, Fatal, FatalStatus, H2cData, IcReq, IcResp, PduType, R2t};
use crate::pdu::{CommonHeader, TermReq, TransferWire, flags};
use zerocopy::FromBytes;

/// A whole PDU header that was checked, digest included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pdu {
    /// What it says.
    pub header: Header,
    /// Payload bytes that follow; with 0 there is neither [`Step::Data`] nor [`Step::End`].
    pub data_len: usize,
}

/// A header by type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Initialize Connection Request.
    IcReq(IcReq),
    /// Initialize Connection Response.
    IcResp(IcResp),
    /// The host ends the connection.
    H2cTermReq(TermReq),
    /// The controller ends the connection.
    C2hTermReq(TermReq),
    CapsuleCmd(Command),
    CapsuleResp(Completion),
    /// Data of a write.
    H2cData(H2cData),
    /// Data of a read.
    C2hData(C2hData),
    /// Ready to Transfer.
    R2t(R2t),
}

/// Offsets in data PDUs and R2T, for the Fatal Error Information.
const FLAGS_AT: u32 = 1;
const LENGTH_AT: u32 = 16;

impl Header {
    /// Parses a header whose type and length were checked; `data_len` is what PLEN leaves for data.
    fn parse(kind: PduType, header: &[u8], data_len: usize) -> Result<Self, Fatal> {
        let short = Fatal::at(FatalStatus::InvalidHeaderField, 2);
        let (common, body) = CommonHeader::read_from_prefix(header).map_err(|_| short)?;
        Ok(match kind {
            PduType::IcReq => Self::IcReq(IcReq::parse(body)?),
            PduType::IcResp => Self::IcResp(IcResp::parse(body)?),
            PduType::H2cTermReq => Self::H2cTermReq(TermReq::parse(body).ok_or(short)?),
            PduType::C2hTermReq => Self::C2hTermReq(TermReq::parse(body).ok_or(short)?),
            PduType::CapsuleCmd => Self::CapsuleCmd(*Command::parse(body).ok_or(short)?),
            PduType::CapsuleResp => Self::CapsuleResp(*Completion::parse(body).ok_or(short)?),
            PduType::H2cData => Self::H2cData(h2c_data(transfer(body)?, common.flags, data_len)?),
            PduType::C2hData => Self::C2hData(c2h_data(transfer(body)?, common.flags, data_len)?),
            PduType::R2t => Self::R2t(r2t(transfer(body)?)?),
        })
    }
}

/// The body of a data PDU or R2T, its range within 32 bits.
fn transfer(body: &[u8]) -> Result<&TransferWire, Fatal> {
    let Ok((wire, _)) = TransferWire::ref_from_prefix(body) else {
        return Err(Fatal::at(FatalStatus::InvalidHeaderField, 2));
    };
    match wire.offset.get().checked_add(wire.length.get()) {
        Some(_) => Ok(wire),
        None => Err(Fatal::new(FatalStatus::DataTransferOutOfRange)),
    }
}

/// DATAL must be what PLEN says.
fn check_length(wire: &TransferWire, data_len: usize) -> Result<(), Fatal> {
    if wire.length.get() as usize == data_len {
        Ok(())
    } else {
        Err(Fatal::at(FatalStatus::InvalidHeaderField, LENGTH_AT))
    }
}

fn h2c_data(wire: &TransferWire, flags: u8, data_len: usize) -> Result<H2cData, Fatal> {
    check_length(wire, data_len)?;
    Ok(H2cData {
        cid: wire.cccid.get(),
        ttag: wire.ttag.get(),
        offset: wire.offset.get(),
        length: wire.length.get(),
        last: flags & flags::LAST != 0,
    })
}

fn c2h_data(wire: &TransferWire, flags: u8, data_len: usize) -> Result<C2hData, Fatal> {
    check_length(wire, data_len)?;
    let last = flags & flags::LAST != 0;
    let success = flags & flags::SUCCESS != 0;
    if success && !last {
        return Err(Fatal::at(FatalStatus::InvalidHeaderField, FLAGS_AT));
    }
    Ok(C2hData {
        cid: wire.cccid.get(),
        offset: wire.offset.get(),
        length: wire.length.get(),
        last,
        success,
    })
}

fn r2t(wire: &TransferWire) -> Result<R2t, Fatal> {
    if wire.length.get() == 0 {
        return Err(Fatal::at(FatalStatus::InvalidHeaderField, LENGTH_AT));
    }
    Ok(R2t {
        cid: wire.cccid.get(),
        ttag: wire.ttag.get(),
        offset: wire.offset.get(),
        length: wire.length.get(),
    })
}
