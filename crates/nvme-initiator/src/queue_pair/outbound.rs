//! What goes out: ICReq, command capsules, the data that R2Ts ask for, a terminate request.

use std::ops::Range;

use ashlar_block::Gather;
use ashlar_nvme::pdu::{self, DataDigest, H2cData, IcReq, Role};

use super::slots::{Flow, Wanted};
use super::{Phase, QueuePair};

/// A batch is closed at this many bytes: what is submitted meanwhile need not wait for more.
const BATCH_BYTES: usize = 1 << 20;
/// Most H2CData PDUs of one command in a batch, so that a small MAXH2CDATA cannot make more parts
/// than one system call takes.
const PIECES: usize = 64;

fn is_full(out: &Gather) -> bool {
    out.is_full() || out.len() >= BATCH_BYTES
}

impl QueuePair {
    /// Appends what there is to say. The batch must come back through [`sent`](Self::sent) before
    /// the next call, which otherwise does nothing.
    pub fn transmit(&mut self, out: &mut Gather) {
        if !self.lent.is_empty() {
            return;
        }
        if let Some(fatal) = self.terminate.take() {
            let offending = self.receiver.offending_header();
            return out.head(|head| pdu::term_req(head, Role::Host, fatal, offending));
        }
        if self.failure.is_some() {
            return;
        }
        match self.phase {
            Phase::Fresh => {
                let request = self.request();
                out.head(|head| request.encode(head));
                self.phase = Phase::Initializing;
            }
            Phase::Initializing => {}
            Phase::Open => {
                self.answer(out);
                self.commands(out);
            }
        }
    }

    pub(super) fn request(&self) -> IcReq {
        IcReq {
            hpda: 0,
            digests: self.settings.digests,
            maxr2t: 0,
        }
    }

    /// Sends command capsules, with their data where it fits.
    fn commands(&mut self, out: &mut Gather) {
        while !is_full(out) {
            let Some(index) = self.to_send.pop_front() else {
                return;
            };
            let framing = self.framing;
            let slot = self.slots.get(index);
            slot.sent = true;
            let in_capsule = if slot.flow == Flow::InCapsule {
                slot.len
            } else {
                0
            };
            out.head(|head| pdu::capsule_cmd(head, framing, &slot.command, in_capsule));
            let Some(buffer) = (in_capsule > 0).then(|| slot.buffer.take()).flatten() else {
                continue;
            };
            slot.lent = true;
            let digest = framing.digests.data.then(|| DataDigest::of(&buffer));
            let place = out.keep(buffer);
            out.payload(place, 0..in_capsule as usize);
            if let Some(digest) = digest {
                out.head(|head| head.extend_from_slice(&digest));
            }
            self.lent.push_back(index);
        }
    }

    /// Sends the data that the controller has asked for.
    fn answer(&mut self, out: &mut Gather) {
        while !is_full(out) {
            let Some(&index) = self.to_answer.front() else {
                return;
            };
            if self.answer_one(index, out) {
                self.to_answer.pop_front();
            } else {
                return;
            }
        }
    }

    /// Sends data for one R2T, at most [`PIECES`] PDUs; true if that was all of it.
    fn answer_one(&mut self, index: u16, out: &mut Gather) -> bool {
        let (framing, most) = (self.framing, self.max_h2c);
        let slot = self.slots.get(index);
        let (Some(wanted), Some(buffer)) = (slot.wanted, slot.buffer.take()) else {
            return true;
        };
        slot.lent = true;
        self.digests.clear();
        let pieces = Pieces { wanted, most }.take(PIECES);
        if framing.digests.data {
            let digest = |piece: H2cData| DataDigest::of(&buffer[range(&piece)]);
            self.digests.extend(pieces.clone().map(digest));
        }
        let place = out.keep(buffer);
        let mut left = wanted;
        for (at, piece) in pieces.enumerate() {
            out.head(|head| pdu::h2c_data(head, framing, &piece));
            out.payload(place, range(&piece));
            if let Some(digest) = self.digests.get(at) {
                out.head(|head| head.extend_from_slice(digest));
            }
            left.done += piece.length;
        }
        self.lent.push_back(index);
        let all = left.done == left.request.length;
        slot.wanted = (!all).then_some(left);
        all
    }
}

/// The PDUs that are left to send for an R2T.
#[derive(Clone)]
struct Pieces {
    wanted: Wanted,
    most: u32,
}

impl Iterator for Pieces {
    type Item = H2cData;

    fn next(&mut self) -> Option<H2cData> {
        let piece = pdu::h2c_data_of(&self.wanted.request, self.wanted.done, self.most)?;
        self.wanted.done += piece.length;
        Some(piece)
    }
}

fn range(piece: &H2cData) -> Range<usize> {
    let start = piece.offset as usize;
    start..start + piece.length as usize
}
