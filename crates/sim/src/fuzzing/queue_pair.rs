use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::{BufferPool, Gather, IoBuffer, Moment};
use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::pdu::{self, C2hData, DataDigest, Digests, Framing, IcResp, R2t, Role};
use ashlar_nvme::stream::{Header, Limits, Receiver, Step};
use ashlar_nvme::{Command, Completion, Status};
use ashlar_nvme_initiator::queue_pair::{Data, Finished, QueuePair, Settings, Submission};

use super::input::Input;

struct Controller {
    pair: QueuePair,
    pool: BufferPool,
    framing: Framing,
    ears: Receiver,
    /// Identifiers of commands that have arrived.
    cids: Vec<u16>,
    /// Buffer bytes of each outstanding submission.
    outstanding: BTreeMap<u64, Option<usize>>,
    next: u64,
    direct: Option<(IoBuffer, std::ops::Range<usize>)>,
}

/// A controller that says anything to a queue pair: raw bytes, or PDUs about its commands with nearly
/// right fields. Every command must end once, with its buffer.
pub fn initiator_stream(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let settings = input.byte();
    let digests = Digests {
        header: settings & 1 != 0,
        data: settings & 2 != 0,
    };
    let mut controller = Controller::new(digests, settings & 4 != 0);
    if settings & 8 == 0 {
        controller.greet(digests);
    }
    let mut now = Moment::ORIGIN;
    while !input.is_empty() {
        let step = input.byte();
        match step & 7 {
            0 => {
                let most = usize::from(input.byte());
                let raw = input.take(most).to_vec();
                controller.say(&raw, usize::from(step >> 3) + 1);
            }
            1 | 2 => controller.ask(now, step >> 3),
            3 => controller.complete(&mut input, step),
            4 | 5 => controller.data(&mut input, step),
            6 => controller.r2t(&mut input, step),
            _ => {
                now = now + Duration::from_millis(u64::from(input.byte()) * 4);
                controller.pair.check_time(now);
            }
        }
        controller.listen();
    }
    controller.finish();
}

impl Controller {
    fn new(digests: Digests, admin: bool) -> Self {
        let settings = Settings {
            digests,
            depth: 8,
            timeout: Duration::from_secs(1),
            in_capsule: 1024,
            admin,
        };
        let mut new = Self {
            pair: QueuePair::new(Moment::ORIGIN, settings),
            pool: BufferPool::new(1),
            framing: Framing::PLAIN,
            ears: Receiver::new(
                Role::Controller,
                Limits {
                    data: u32::MAX,
                    ..Limits::default()
                },
            ),
            cids: Vec::new(),
            outstanding: BTreeMap::new(),
            next: 0,
            direct: None,
        };
        new.listen();
        new
    }

    fn greet(&mut self, digests: Digests) {
        let mut out = Vec::new();
        let response = IcResp {
            cpda: 0,
            digests,
            maxh2cdata: 4096,
        };
        response.encode(&mut out);
        self.say(&out, 1000);
        self.framing.digests = digests;
    }

    /// Bytes for the queue pair, in pieces, sometimes straight into their place.
    fn say(&mut self, bytes: &[u8], cut: usize) {
        for piece in bytes.chunks(cut.max(1)) {
            let mut rest = piece;
            if let Some((mut buffer, range)) = self.direct.take() {
                let filled = rest.len().min(range.len());
                buffer[range.start..range.start + filled].copy_from_slice(&rest[..filled]);
                self.pair.direct_done(buffer, filled);
                rest = &rest[filled..];
            }
            self.pair.receive(rest);
            if cut.is_multiple_of(2) {
                self.direct = self.pair.direct(1);
            }
        }
    }

    fn ask(&mut self, now: Moment, kind: u8) {
        let bytes = [512, 1024, 4096, 9000][usize::from(kind >> 2 & 3)];
        let Some(buffer) = self.pool.get(bytes) else {
            return;
        };
        let nothing = SglDescriptor::transport(0);
        let (command, data, bytes) = match kind & 3 {
            0 => (Command::flush(1), Data::None, None),
            1 => (
                Command::write(1, 0, 1, nothing),
                Data::ToController(buffer),
                Some(bytes),
            ),
            _ => (
                Command::read(1, 0, 1, nothing),
                Data::ToHost(buffer),
                Some(bytes),
            ),
        };
        let submission = Submission {
            user: self.next,
            command,
            data,
            timed: kind & 16 == 0,
        };
        if self.pair.submit(now, submission).is_ok() {
            self.outstanding.insert(self.next, bytes);
        }
        self.next += 1;
    }

    fn cid(&self, input: &mut Input<'_>) -> u16 {
        let choice = usize::from(input.byte());
        match self.cids.get(choice % (self.cids.len() + 1)) {
            Some(&cid) => cid,
            None => input.word(),
        }
    }

    fn complete(&mut self, input: &mut Input<'_>, step: u8) {
        let cid = self.cid(input);
        let status = if step & 8 == 0 {
            Status::SUCCESS
        } else {
            Status::from_wire(input.word())
        };
        let mut out = Vec::new();
        pdu::capsule_resp(&mut out, self.framing, &Completion::new(cid, status));
        self.say(&out, 1000);
    }

    fn data(&mut self, input: &mut Input<'_>, step: u8) {
        let cid = self.cid(input);
        let length = u32::from(input.word() % 9001);
        let data = C2hData {
            cid,
            offset: if step & 8 == 0 {
                0
            } else {
                u32::from(input.word())
            },
            length,
            last: step & 48 != 0,
            success: step & 32 != 0,
        };
        let payload = vec![step; length as usize];
        let mut out = Vec::new();
        pdu::c2h_data(&mut out, self.framing, &data);
        out.extend_from_slice(&payload);
        if self.framing.digests.data && length > 0 {
            let mut digest = DataDigest::of(&payload);
            digest[0] ^= step >> 7;
            out.extend_from_slice(&digest);
        }
        self.say(
            &out,
            usize::from(input.byte()) * 8 + 1 + usize::from(step & 64),
        );
    }

    fn r2t(&mut self, input: &mut Input<'_>, step: u8) {
        let request = R2t {
            cid: self.cid(input),
            ttag: input.word(),
            offset: if step & 8 == 0 {
                0
            } else {
                u32::from(input.word())
            },
            length: u32::from(input.word()),
        };
        let mut out = Vec::new();
        pdu::r2t(&mut out, self.framing, &request);
        self.say(&out, 1000);
    }

    /// Hears what the queue pair says, which must be well formed, and takes what has ended.
    fn listen(&mut self) {
        loop {
            let mut batch = Gather::default();
            self.pair.transmit(&mut batch);
            let bytes: Vec<u8> = batch.chunks().flatten().copied().collect();
            self.pair.sent(&mut batch);
            while let Some(finished) = self.pair.finished() {
                self.ended(finished);
            }
            if bytes.is_empty() {
                return;
            }
            self.hear(&bytes);
        }
    }

    fn hear(&mut self, mut bytes: &[u8]) {
        loop {
            match self.ears.next(&mut bytes) {
                Ok(Step::NeedMore) => return,
                Ok(Step::Pdu(pdu)) => match pdu.header {
                    Header::IcReq(request) => self.ears.open(request.digests),
                    Header::CapsuleCmd(command) => self.cids.push(command.cid.get()),
                    _ => {}
                },
                Ok(Step::Data(_)) => {}
                Ok(Step::End { data_digest_ok }) => assert!(data_digest_ok, "a wrong digest"),
                Err(fatal) => panic!("the host's bytes cannot be read: {fatal}"),
            }
        }
    }

    fn ended(&mut self, finished: Finished) {
        let Some(bytes) = self.outstanding.remove(&finished.user) else {
            panic!("command {} ended twice", finished.user);
        };
        assert_eq!(
            finished.buffer.as_ref().map(|buffer| buffer.len()),
            bytes,
            "its buffer"
        );
    }

    fn finish(mut self) {
        if let Some((buffer, _)) = self.direct.take() {
            self.pair.direct_done(buffer, 0);
        }
        self.listen();
        self.pair.fail(ashlar_nvme_initiator::Failure::Closed);
        let mut ended = Vec::new();
        self.pair.abandon(|finished| ended.push(finished));
        ended.into_iter().for_each(|finished| self.ended(finished));
        assert!(
            self.outstanding.is_empty(),
            "commands never ended: {:?}",
            self.outstanding
        );
        drop(self.pair);
        assert_eq!(self.pool.outstanding_bytes(), 0, "buffers are left");
    }
}
