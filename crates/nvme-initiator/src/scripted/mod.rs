//! For tests: the controller's end of a stream, which says what it is told to say.

pub(crate) mod target;

use std::collections::VecDeque;

use ashlar_block::{BufferPool, Gather, IoBuffer};
use ashlar_nvme::pdu::{
    self, C2hData, DataDigest, Digests, Framing, H2cData, IcResp, R2t, Role, TermReq,
};
use ashlar_nvme::stream::{Header, Limits, Receiver, Step};
use ashlar_nvme::{Command, Completion, Status};

use crate::queue_pair::QueuePair;

/// Flags of a data PDU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flags {
    pub last: bool,
    pub success: bool,
}

impl Flags {
    pub(crate) const NONE: Self = Self {
        last: false,
        success: false,
    };
    pub(crate) const LAST: Self = Self {
        last: true,
        ..Self::NONE
    };
    /// No completion follows.
    pub(crate) const SUCCESS: Self = Self {
        success: true,
        ..Self::LAST
    };
}

/// The controller's end of one stream.
pub(crate) struct Peer {
    receiver: Receiver,
    framing: Framing,
    /// What ICResp grants; `None` never answers.
    pub grant: Option<Digests>,
    pub maxh2cdata: u32,
    /// Commands received, with their in-capsule data.
    pub commands: VecDeque<(Command, Vec<u8>)>,
    /// H2CData received.
    pub data: VecDeque<(H2cData, Vec<u8>)>,
    /// Writes whose data is coming, for the target's use.
    pub pending: Vec<(Command, Vec<u8>, usize)>,
    /// Reports of reservations that are not answered yet, for the target's use.
    pub reports: Vec<u16>,
    /// Cross-Controller Resets, likewise.
    pub resets: Vec<u16>,
    /// A terminate request received.
    pub terminated: Option<TermReq>,
    current: Option<Header>,
    payload: Vec<u8>,
    out: Vec<u8>,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self {
            receiver: Receiver::new(Role::Controller, Limits::default()),
            framing: Framing::PLAIN,
            grant: Some(Digests::NONE),
            maxh2cdata: 4096,
            commands: VecDeque::new(),
            data: VecDeque::new(),
            pending: Vec::new(),
            reports: Vec::new(),
            resets: Vec::new(),
            terminated: None,
            current: None,
            payload: Vec::new(),
            out: Vec::new(),
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let mut input = bytes;
        loop {
            match self
                .receiver
                .next(&mut input)
                .expect("the host speaks correctly")
            {
                Step::NeedMore => return,
                Step::Pdu(pdu) => {
                    self.payload.clear();
                    self.current = Some(pdu.header);
                    if pdu.data_len == 0 {
                        self.whole();
                    }
                }
                Step::Data(piece) => self.payload.extend_from_slice(piece),
                Step::End { data_digest_ok } => {
                    assert!(data_digest_ok);
                    self.whole();
                }
            }
        }
    }

    fn whole(&mut self) {
        let payload = std::mem::take(&mut self.payload);
        match self.current.take().expect("a header came first") {
            Header::IcReq(_) => {
                let Some(digests) = self.grant else { return };
                let response = IcResp {
                    cpda: 0,
                    digests,
                    maxh2cdata: self.maxh2cdata,
                };
                response.encode(&mut self.out);
                self.framing.digests = digests;
                self.receiver.open(digests);
            }
            Header::CapsuleCmd(command) => self.commands.push_back((command, payload)),
            Header::H2cData(data) => self.data.push_back((data, payload)),
            Header::H2cTermReq(request) => self.terminated = Some(request),
            other => panic!("{other:?} from a host"),
        }
    }

    /// Takes what is to go to the host.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn answer(&mut self, completion: &Completion) {
        pdu::capsule_resp(&mut self.out, self.framing, completion);
    }

    pub(crate) fn complete(&mut self, cid: u16, status: Status) {
        self.answer(&Completion::new(cid, status));
    }

    pub(crate) fn r2t(&mut self, cid: u16, offset: u32, length: u32) {
        let request = R2t {
            cid,
            ttag: 7,
            offset,
            length,
        };
        pdu::r2t(&mut self.out, self.framing, &request);
    }

    /// A data PDU.
    pub(crate) fn send(&mut self, cid: u16, offset: u32, bytes: &[u8], flags: Flags) {
        let data = C2hData {
            cid,
            offset,
            length: bytes.len() as u32,
            last: flags.last,
            success: flags.success,
        };
        pdu::c2h_data(&mut self.out, self.framing, &data);
        self.out.extend_from_slice(bytes);
        if self.framing.digests.data {
            self.out.extend_from_slice(&DataDigest::of(bytes));
        }
    }

    /// Moves bytes both ways until nothing moves.
    pub(crate) fn exchange(&mut self, pair: &mut QueuePair) {
        loop {
            let mut out = Gather::default();
            pair.transmit(&mut out);
            let sent: Vec<u8> = out.chunks().flatten().copied().collect();
            self.feed(&sent);
            pair.sent(&mut out);
            let back = self.take();
            pair.receive(&back);
            if sent.is_empty() && back.is_empty() {
                return;
            }
        }
    }
}

thread_local! {
    static POOL: BufferPool = BufferPool::new(16 << 20);
}

pub(crate) fn pool() -> BufferPool {
    POOL.with(Clone::clone)
}

/// A buffer of `bytes` times `value`.
pub(crate) fn buffer(bytes: usize, value: u8) -> IoBuffer {
    let mut buffer = pool().get(bytes).expect("room");
    buffer.fill(value);
    buffer
}
