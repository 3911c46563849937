//! Responses out: completions, and data for the host.

use ashlar_nvme::log::ErrorInformation;
use ashlar_nvme::pdu::{self, C2hData, DataDigest};
use ashlar_nvme::{Completion, Status};

use super::Connection;
use crate::controller::Role;
use crate::io::Transfer;
use crate::slot::Stage;

impl Connection {
    /// Answers a command that is done, as soon as there is room.
    pub(super) fn respond(&mut self, index: u16) {
        if !self.may_answer() {
            // The last words have been said.
            return self.release(index);
        }
        if self.output.is_full() {
            self.slots.get_mut(index).stage = Stage::Responding;
            self.ready.push_back(index);
            return;
        }
        let slot = self.slots.get_mut(index);
        let is_read = matches!(slot.transfer, Transfer::ToHost(_)) && slot.status.is_success();
        match slot.buffer.take().filter(|_| is_read) {
            Some(buffer) => {
                let bytes = buffer.len();
                self.data_header(index, bytes);
                let digest = self.framing.digests.data.then(|| DataDigest::of(&buffer));
                self.payload_queued += bytes;
                let place = self.output.keep(buffer);
                self.output.payload(place, 0..bytes);
                if let Some(digest) = digest {
                    self.output.head(|out| out.extend(digest));
                }
            }
            None => self.completion(index),
        }
        self.release(index);
    }

    /// Answers an admin command with data, which goes out with the headers: it is small and rare.
    pub(super) fn respond_with(&mut self, index: u16, data: &[u8]) {
        if !self.may_answer() {
            return self.release(index);
        }
        self.data_header(index, data.len());
        let digested = self.framing.digests.data;
        self.output.head(|out| {
            out.extend_from_slice(data);
            if digested {
                out.extend(DataDigest::of(data));
            }
        });
        self.release(index);
    }

    /// The header of a command's only C2HData PDU, which is its completion too: real initiators
    /// take SUCCESS whether or not they have switched flow control off.
    fn data_header(&mut self, index: u16, bytes: usize) {
        let cid = self.slots.get_mut(index).command.cid.get();
        let framing = self.framing;
        let data = C2hData {
            cid,
            offset: 0,
            length: bytes as u32,
            last: true,
            success: true,
        };
        self.output.head(|out| pdu::c2h_data(out, framing, &data));
    }

    fn completion(&mut self, index: u16) {
        let framing = self.framing;
        if !self.slots.get_mut(index).status.is_success() {
            self.note_failure(index);
        }
        let slot = self.slots.get_mut(index);
        let mut completion =
            Completion::new(slot.command.cid.get(), slot.status).with_result(slot.result);
        if let Some(queue) = &self.queue {
            completion = completion.with_sqhd(queue.head);
            completion.sqid.set(queue.id);
        }
        self.output
            .head(|out| pdu::capsule_resp(out, framing, &completion));
    }

    /// Leaves a trace of a failed command, and an alarm when a device has failed a write.
    #[cold]
    fn note_failure(&mut self, index: u16) {
        let Some(queue) = &self.queue else { return };
        let slot = self.slots.get_mut(index);
        let mut error = ErrorInformation::default();
        error.sqid.set(queue.id);
        error.cid = slot.command.cid;
        error.status_field.set(slot.status.to_wire());
        error.nsid = slot.command.nsid;
        error.opcode = slot.command.opcode;
        if queue.id > 0 {
            error.lba.set(slot.command.slba());
        }
        queue.controller.record_error(error);
        let (status, nsid) = (slot.status, slot.command.nsid.get());
        if let Role::Io(subsystem) = &queue.controller.role {
            let subsystem = subsystem.clone();
            self.news |= status.is(Status::WRITE_FAULT) && subsystem.degrade();
            if status.is(Status::ANA_TRANSITION) {
                self.path_refused(&subsystem, nsid);
            }
        }
    }
}
