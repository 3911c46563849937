//! Bytes in: PDUs, and payloads into their buffers.

use std::ops::Range;

use ashlar_block::IoBuffer;
use ashlar_nvme::Status;
use ashlar_nvme::pdu::{Digests, Fatal, FatalStatus, Framing, H2cData, IcReq, IcResp};
use ashlar_nvme::stream::{Header, Pdu, Step};

use super::{Connection, Context, DIRECT_BYTES, MAXH2CDATA, Sink};
use crate::io::Transfer;
use crate::slot::Stage;

impl Connection {
    /// Takes bytes off `input` until it is empty or the connection cannot go on
    /// ([`accepts_input`](Self::accepts_input)). An error ends the connection.
    pub(crate) fn receive(
        &mut self,
        ctx: &mut Context<'_>,
        input: &mut &[u8],
    ) -> Result<(), Fatal> {
        while self.accepts_input() {
            let before = input.len();
            let step = self.receiver.next(input)?;
            self.dues.pay(before - input.len());
            match step {
                Step::NeedMore => return Ok(()),
                Step::Pdu(pdu) => self.pdu(ctx, pdu)?,
                Step::Data(bytes) => self.data(bytes),
                Step::End { data_digest_ok } => self.end(ctx, data_digest_ok)?,
            }
        }
        Ok(())
    }

    /// Where the rest of the current payload belongs, if it is large and has a buffer. The buffer
    /// comes back with [`direct_done`](Self::direct_done).
    pub(crate) fn direct(&mut self) -> Option<(IoBuffer, Range<usize>)> {
        let missing = self.receiver.payload_remaining();
        let Sink::Slot(index) = self.sink else {
            return None;
        };
        if missing < DIRECT_BYTES || self.skip > 0 {
            return None;
        }
        let slot = self.slots.get_mut(index);
        let range = slot.received..slot.received + missing;
        Some((slot.buffer.take()?, range))
    }

    /// `bytes` of the range that [`direct`](Self::direct) gave have arrived in the buffer.
    pub(crate) fn direct_done(&mut self, buffer: IoBuffer, bytes: usize) {
        let Sink::Slot(index) = self.sink else { return };
        let slot = self.slots.get_mut(index);
        let range = slot.received..slot.received + bytes;
        self.receiver.payload_filled(&buffer[range]);
        slot.received += bytes;
        slot.buffer = Some(buffer);
        self.dues.pay(bytes);
    }

    fn pdu(&mut self, ctx: &mut Context<'_>, pdu: Pdu) -> Result<(), Fatal> {
        match pdu.header {
            Header::CapsuleCmd(command) => self.command(ctx, command, pdu.data_len),
            Header::H2cData(data) => self.h2c_data(data),
            Header::IcReq(request) => {
                self.initialize(request);
                Ok(())
            }
            Header::H2cTermReq(_) => {
                self.sink = Sink::Discard(None);
                self.clear_output();
                self.finish();
                Ok(())
            }
            _ => Err(Fatal::new(FatalStatus::PduSequenceError)),
        }
    }

    fn initialize(&mut self, request: IcReq) {
        let digests = request.digests.and(Digests::BOTH);
        let response = IcResp {
            cpda: 0,
            digests,
            maxh2cdata: MAXH2CDATA,
        };
        self.output.head(|out| response.encode(out));
        self.receiver.open(digests);
        self.framing = Framing {
            digests,
            pda: request.hpda,
        };
    }

    fn h2c_data(&mut self, data: H2cData) -> Result<(), Fatal> {
        let out_of_range = Fatal::new(FatalStatus::DataTransferOutOfRange);
        let slot = self.slots.find(data.ttag).filter(|slot| slot.solicited);
        let slot = slot.ok_or(Fatal::at(FatalStatus::InvalidHeaderField, 10))?;
        if slot.command.cid.get() != data.cid {
            return Err(Fatal::at(FatalStatus::InvalidHeaderField, 8));
        }
        let Transfer::FromHost(wanted) = slot.transfer else {
            return Err(out_of_range);
        };
        let end = slot.received + data.length as usize;
        if data.offset as usize != slot.received || end > wanted || data.length == 0 {
            return Err(out_of_range);
        }
        if data.last && end < wanted {
            return Err(Fatal::new(FatalStatus::PduSequenceError));
        }
        self.sink = Sink::Slot(data.ttag);
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) {
        let Sink::Slot(index) = self.sink else { return };
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let bytes = &bytes[skipped..];
        let slot = self.slots.get_mut(index);
        let end = slot.received + bytes.len();
        // A connection that may not receive yet does not get here: the buffer is there.
        if let Some(place) = slot
            .buffer
            .as_mut()
            .and_then(|b| b.get_mut(slot.received..end))
        {
            place.copy_from_slice(bytes);
        }
        slot.received = end;
    }

    fn end(&mut self, ctx: &mut Context<'_>, digest_ok: bool) -> Result<(), Fatal> {
        match std::mem::replace(&mut self.sink, Sink::Discard(None)) {
            Sink::Discard(None) => Ok(()),
            Sink::Discard(Some(index)) => {
                self.respond(index);
                Ok(())
            }
            Sink::Slot(index) => self.payload_end(ctx, index, digest_ok),
        }
    }

    fn payload_end(&mut self, ctx: &mut Context<'_>, index: u16, ok: bool) -> Result<(), Fatal> {
        let slot = self.slots.get_mut(index);
        if !ok {
            slot.fail(Status::TRANSIENT_TRANSPORT_ERROR);
        }
        let Transfer::FromHost(wanted) = slot.transfer else {
            return Ok(());
        };
        if slot.received < wanted {
            return Ok(());
        }
        let was_asked_for = std::mem::take(&mut slot.solicited);
        let is_good = slot.status.is_success();
        self.pays |= was_asked_for && !self.dues.is_slow();
        let slot = self.slots.get_mut(index);
        if is_good {
            self.start(ctx, index)
        } else {
            slot.stage = Stage::Responding;
            self.respond(index);
            Ok(())
        }
    }
}
