//! What comes in: ICResp, completions, data, R2Ts; each checked against the command it names.

use std::ops::Range;

use ashlar_block::IoBuffer;
use ashlar_nvme::pdu::{C2hData, Fatal, FatalStatus, Framing, IcResp, R2t};
use ashlar_nvme::stream::{Header, Pdu, Step};
use ashlar_nvme::{Completion, Status};

use super::slots::{Flow, Slot, Wanted};
use super::{Finished, Outcome, Phase, QueuePair};
use crate::failure::Failure;

/// Where CCCID lies in a data PDU or R2T, for the Fatal Error Information.
const CCCID_AT: u32 = 8;
/// Where CID lies in a response capsule.
const RESPONSE_CID_AT: u32 = 20;
/// Where DGST lies in ICResp.
const DGST_AT: u32 = 11;

/// The data PDU whose payload is arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inbound {
    slot: u16,
    /// Where in the buffer the next byte goes.
    at: usize,
    last: bool,
    success: bool,
}

/// What the controller did that it must not.
struct Violation {
    what: &'static str,
    fatal: Fatal,
}

fn violation<T>(what: &'static str, fatal: Fatal) -> Result<T, Violation> {
    Err(Violation { what, fatal })
}

const fn wrong_field(offset: u32) -> Fatal {
    Fatal::at(FatalStatus::InvalidHeaderField, offset)
}

const SEQUENCE: Fatal = Fatal::new(FatalStatus::PduSequenceError);
const OUT_OF_RANGE: Fatal = Fatal::new(FatalStatus::DataTransferOutOfRange);
const LIMIT: Fatal = Fatal::new(FatalStatus::DataTransferLimitExceeded);

impl QueuePair {
    /// Takes the next bytes of the stream.
    pub fn receive(&mut self, bytes: &[u8]) {
        let mut input = bytes;
        while self.failure.is_none() {
            let outcome = match self.receiver.next(&mut input) {
                Ok(Step::NeedMore) => return,
                Ok(Step::Pdu(pdu)) => self.pdu(pdu),
                Ok(Step::Data(piece)) => {
                    self.place(piece);
                    Ok(())
                }
                Ok(Step::End { data_digest_ok }) => self.payload_end(data_digest_ok),
                Err(fatal) => violation("malformed PDU", fatal),
            };
            if let Err(Violation { what, fatal }) = outcome {
                self.terminate = Some(fatal);
                self.fail(Failure::Protocol { fatal, what });
            }
        }
    }

    /// The destination of the rest of the payload that is arriving, if that is at least `least`
    /// bytes: the caller may receive into it and must give it back by
    /// [`direct_done`](Self::direct_done) before it calls [`receive`](Self::receive) again.
    pub fn direct(&mut self, least: usize) -> Option<(IoBuffer, Range<usize>)> {
        let rest = self.receiver.payload_remaining();
        if rest == 0 || rest < least || self.failure.is_some() {
            return None;
        }
        let inbound = self.inbound?;
        let buffer = self.slots.get(inbound.slot).buffer.take()?;
        Some((buffer, inbound.at..inbound.at + rest))
    }

    /// Takes a destination back, with `filled` bytes of it received.
    pub fn direct_done(&mut self, buffer: IoBuffer, filled: usize) {
        let Some(inbound) = &mut self.inbound else {
            return;
        };
        let start = inbound.at;
        inbound.at += filled;
        if let Some(bytes) = buffer.get(start..start + filled) {
            self.receiver.payload_filled(bytes);
        }
        self.slots.get(inbound.slot).buffer = Some(buffer);
    }

    fn pdu(&mut self, pdu: Pdu) -> Result<(), Violation> {
        match pdu.header {
            Header::CapsuleResp(completion) => self.response(completion),
            Header::C2hData(data) => self.data(data),
            Header::R2t(request) => self.ready_to_transfer(request),
            Header::IcResp(response) => self.initialized(response),
            Header::C2hTermReq(request) => {
                self.fail(Failure::Terminated(request));
                Ok(())
            }
            // The receiver lets only a controller's PDUs through.
            Header::IcReq(_)
            | Header::H2cTermReq(_)
            | Header::CapsuleCmd(_)
            | Header::H2cData(_) => violation("a host's PDU", wrong_field(0)),
        }
    }

    fn initialized(&mut self, response: IcResp) -> Result<(), Violation> {
        if self.phase != Phase::Initializing {
            return violation("ICResp without ICReq", SEQUENCE);
        }
        if !response.grants(&self.request()) {
            let asked = self.settings.digests;
            if response.digests == response.digests.and(asked) {
                self.fail(Failure::Unusable(
                    "the controller does not grant the digests that were asked for".into(),
                ));
                return Ok(());
            }
            let fatal = Fatal::at(FatalStatus::UnsupportedParameter, DGST_AT);
            return violation("digests that were not asked for", fatal);
        }
        self.max_h2c = response.maxh2cdata;
        self.framing = Framing {
            digests: response.digests,
            pda: response.cpda,
        };
        self.receiver.open(response.digests);
        self.phase = Phase::Open;
        Ok(())
    }

    fn response(&mut self, completion: Completion) -> Result<(), Violation> {
        let Some((index, slot)) = self.slots.find(completion.cid.get()) else {
            return violation("a completion of no command", wrong_field(RESPONSE_CID_AT));
        };
        let success = completion.status().is_success();
        if success {
            check_complete(slot)?;
        }
        if let Some(wanted) = slot.wanted.take() {
            if wanted.done > 0 {
                return violation("a completion amid its data transfer", SEQUENCE);
            }
            self.to_answer.retain(|&waiting| waiting != index);
        }
        self.complete(index, completion);
        Ok(())
    }

    /// Finishes a command, at once or when its buffer comes home.
    fn complete(&mut self, index: u16, mut completion: Completion) {
        let slot = self.slots.get(index);
        if slot.corrupt && completion.status().is_success() {
            completion = Completion::new(completion.cid.get(), Status::TRANSIENT_TRANSPORT_ERROR);
        }
        if slot.lent {
            slot.answer = Some(completion);
            return;
        }
        let (user, buffer) = self.slots.release(index);
        self.finished.push_back(Finished {
            user,
            outcome: Outcome::Answered(completion),
            buffer,
        });
    }

    fn data(&mut self, data: C2hData) -> Result<(), Violation> {
        let Some((index, slot)) = self.slots.find(data.cid) else {
            return violation("data for no command", wrong_field(CCCID_AT));
        };
        if slot.flow != Flow::ToHost {
            return violation("data for a command that takes none", wrong_field(CCCID_AT));
        }
        if slot.all_data {
            return violation("data after the last data", SEQUENCE);
        }
        if data.offset != slot.moved {
            return violation("data out of order", OUT_OF_RANGE);
        }
        if data.length > slot.len - slot.moved {
            return violation("data beyond the request", OUT_OF_RANGE);
        }
        slot.all_data = data.last;
        self.inbound = Some(Inbound {
            slot: index,
            at: data.offset as usize,
            last: data.last,
            success: data.success,
        });
        Ok(())
    }

    fn place(&mut self, piece: &[u8]) {
        let Some(inbound) = &mut self.inbound else {
            return;
        };
        let start = inbound.at;
        inbound.at += piece.len();
        let slot = self.slots.get(inbound.slot);
        if let Some(room) = slot
            .buffer
            .as_mut()
            .and_then(|b| b.get_mut(start..inbound.at))
        {
            room.copy_from_slice(piece);
        }
    }

    fn payload_end(&mut self, digest_ok: bool) -> Result<(), Violation> {
        let Some(inbound) = self.inbound.take() else {
            return Ok(());
        };
        let slot = self.slots.get(inbound.slot);
        slot.moved = inbound.at as u32;
        slot.corrupt |= !digest_ok;
        if !(inbound.last && inbound.success) {
            return Ok(());
        }
        check_complete(slot)?;
        let completion = Completion::new(slot.command.cid.get(), Status::SUCCESS);
        self.complete(inbound.slot, completion);
        Ok(())
    }

    fn ready_to_transfer(&mut self, request: R2t) -> Result<(), Violation> {
        let Some((index, slot)) = self.slots.find(request.cid) else {
            return violation("R2T for no command", wrong_field(CCCID_AT));
        };
        if slot.flow != Flow::OnRequest {
            return violation(
                "R2T for a command without data to send",
                wrong_field(CCCID_AT),
            );
        }
        if slot.wanted.is_some() {
            return violation("a second R2T while one is active", LIMIT);
        }
        if request.offset != slot.moved {
            return violation("R2T out of order", OUT_OF_RANGE);
        }
        if request.length == 0 || request.length > slot.len - slot.moved {
            return violation("R2T beyond the request", OUT_OF_RANGE);
        }
        slot.moved += request.length;
        slot.wanted = Some(Wanted { request, done: 0 });
        self.to_answer.push_back(index);
        Ok(())
    }
}

/// A command may succeed only when all its data has moved.
fn check_complete(slot: &Slot) -> Result<(), Violation> {
    let moved = slot.moved == slot.len && slot.wanted.is_none();
    match slot.flow {
        Flow::ToHost if !moved => violation("a successful read with too little data", SEQUENCE),
        Flow::OnRequest if !moved => violation("a successful write that took no data", SEQUENCE),
        _ => Ok(()),
    }
}
