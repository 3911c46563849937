//! A host, scripted: what it sends is up to the test, what it gets is parsed.

use std::collections::HashMap;

use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::fabrics::{CNTLID_DYNAMIC, Cc, Connect, ConnectData, property};
use ashlar_nvme::pdu::{self, DataDigest, Digests, Framing, H2cData, IcReq, R2t, Role, TermReq};
use ashlar_nvme::stream::{Header, Limits, Receiver, Step};
use ashlar_nvme::{Command, Completion, Status};

use crate::world::{HOST, NQN, World};

/// The end of a command.
#[derive(Clone, Debug)]
pub struct Reply {
    pub completion: Completion,
    pub data: Vec<u8>,
}

impl Reply {
    pub fn status(&self) -> Status {
        self.completion.status()
    }

    pub fn dw0(&self) -> u32 {
        self.completion.dw0.get()
    }
}

/// One queue's connection.
pub struct Host {
    pub wire: usize,
    pub digests: Digests,
    receiver: Receiver,
    framing: Framing,
    next_cid: u16,
    /// Payload bytes of the read that is arriving.
    arriving: Vec<u8>,
    arriving_header: Option<pdu::C2hData>,
    pub replies: HashMap<u16, Reply>,
    pub r2ts: Vec<R2t>,
    pub terminated: Option<TermReq>,
    /// Replies that a test has taken out.
    taken: usize,
    /// It has sent bytes that are no PDU.
    pub has_babbled: bool,
    pub hostnqn: String,
    pub hostid: [u8; 16],
}

impl Host {
    /// Connects and agrees on digests.
    pub fn dial(world: &mut World, digests: Digests) -> Self {
        let mut host = Self::silent(world);
        host.initialize(world, digests);
        host
    }

    /// Connects and says nothing.
    pub fn silent(world: &mut World) -> Self {
        Self {
            wire: world.dial(),
            digests: Digests::NONE,
            receiver: Receiver::new(
                Role::Host,
                Limits {
                    data: 2 << 20,
                    ..Limits::default()
                },
            ),
            framing: Framing::PLAIN,
            next_cid: 0,
            arriving: Vec::new(),
            arriving_header: None,
            replies: HashMap::new(),
            r2ts: Vec::new(),
            terminated: None,
            taken: 0,
            has_babbled: false,
            hostnqn: HOST.into(),
            hostid: [7; 16],
        }
    }

    fn initialize(&mut self, world: &mut World, digests: Digests) {
        let mut bytes = Vec::new();
        IcReq {
            hpda: 0,
            digests,
            maxr2t: 0,
        }
        .encode(&mut bytes);
        world.push(self.wire, &bytes);
        self.settle(world);
        assert_eq!(self.digests, digests, "the target grants the digests");
    }

    /// Lets everything happen, then reads what came.
    pub fn settle(&mut self, world: &mut World) {
        world.settle();
        let bytes = std::mem::take(&mut world.wires[self.wire].output);
        let mut input = &bytes[..];
        loop {
            match self
                .receiver
                .next(&mut input)
                .expect("the target speaks NVMe/TCP")
            {
                Step::NeedMore => return,
                Step::Pdu(pdu) => self.pdu(pdu.header),
                Step::Data(data) => self.arriving.extend_from_slice(data),
                Step::End { data_digest_ok } => self.end(data_digest_ok),
            }
        }
    }

    fn pdu(&mut self, header: Header) {
        assert!(
            self.terminated.is_none(),
            "{header:?} after a terminate request"
        );
        match header {
            Header::IcResp(response) => {
                assert_eq!((response.cpda, response.maxh2cdata % 4), (0, 0));
                assert!(response.maxh2cdata >= 4096);
                self.digests = response.digests;
                self.framing = Framing {
                    digests: self.digests,
                    pda: 0,
                };
                self.receiver.open(self.digests);
            }
            Header::CapsuleResp(completion) => self.reply(completion, Vec::new()),
            Header::C2hData(data) => {
                assert!(data.last && data.success && data.offset == 0);
                self.arriving_header = Some(data);
            }
            Header::R2t(request) => self.r2ts.push(request),
            Header::C2hTermReq(request) => self.terminated = Some(request),
            other => panic!("the target sent {other:?}"),
        }
    }

    fn end(&mut self, digest_ok: bool) {
        assert!(digest_ok, "the target's data digest");
        let data = std::mem::take(&mut self.arriving);
        if let Some(header) = self.arriving_header.take() {
            assert_eq!(header.length as usize, data.len());
            self.reply(Completion::new(header.cid, Status::SUCCESS), data);
        }
    }

    fn reply(&mut self, completion: Completion, data: Vec<u8>) {
        let old = self
            .replies
            .insert(completion.cid.get(), Reply { completion, data });
        assert!(
            old.is_none(),
            "command {} is completed twice",
            completion.cid.get()
        );
    }

    /// The bytes of a capsule.
    pub fn capsule(&self, command: &Command, in_capsule: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        pdu::capsule_cmd(&mut bytes, self.framing, command, in_capsule.len() as u32);
        self.payload(&mut bytes, in_capsule);
        bytes
    }

    fn payload(&self, bytes: &mut Vec<u8>, data: &[u8]) {
        bytes.extend_from_slice(data);
        if self.digests.data && !data.is_empty() {
            bytes.extend(DataDigest::of(data));
        }
    }

    /// The bytes of an H2CData PDU.
    pub fn h2c(&self, header: &H2cData, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        pdu::h2c_data(&mut bytes, self.framing, header);
        self.payload(&mut bytes, data);
        bytes
    }

    /// Commands sent and not yet answered.
    pub fn outstanding(&self) -> usize {
        usize::from(self.next_cid) - self.replies.len() - self.taken
    }

    pub fn cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    /// Sends a command; nothing has happened yet when this returns.
    pub fn send(&mut self, world: &mut World, command: Command, in_capsule: &[u8]) -> u16 {
        let cid = self.cid();
        let bytes = self.capsule(&command.with_cid(cid), in_capsule);
        world.push(self.wire, &bytes);
        cid
    }

    /// Sends a write of data that the target must ask for.
    pub fn answer_r2t(&mut self, world: &mut World, data: &[u8]) {
        let request = self.r2ts.remove(0);
        let mut done = 0;
        while let Some(piece) = pdu::h2c_data_of(&request, done, 64 << 10) {
            let from = piece.offset as usize;
            let bytes = self.h2c(&piece, &data[from..from + piece.length as usize]);
            world.push(self.wire, &bytes);
            done += piece.length;
        }
    }

    /// Sends a command with in-capsule data and waits for its end.
    pub fn call(&mut self, world: &mut World, command: Command, in_capsule: &[u8]) -> Reply {
        let cid = self.send(world, command, in_capsule);
        self.settle(world);
        self.taken += 1;
        self.replies.remove(&cid).expect("the command ends")
    }

    /// Sends a command whose data the target asks for, and waits for its end.
    pub fn call_r2t(&mut self, world: &mut World, command: Command, data: &[u8]) -> Reply {
        let cid = self.send(world, command, &[]);
        self.settle(world);
        assert_eq!(self.r2ts.len(), 1, "one R2T");
        assert_eq!((self.r2ts[0].cid, self.r2ts[0].offset), (cid, 0));
        self.answer_r2t(world, data);
        self.settle(world);
        self.taken += 1;
        self.replies.remove(&cid).expect("the command ends")
    }

    /// Connect as this host.
    pub fn connect_to(
        &mut self,
        world: &mut World,
        nqn: &str,
        parameters: Connect,
        cntlid: u16,
    ) -> Reply {
        let data = ConnectData::new(self.hostid, cntlid, nqn, &self.hostnqn);
        self.call(world, Command::connect(parameters), data.as_wire())
    }

    pub fn connect_bytes(&mut self, qid: u16, cntlid: u16, entries: u16) -> Vec<u8> {
        let data = ConnectData::new(self.hostid, cntlid, NQN, &self.hostnqn);
        let cid = self.cid();
        let command = Command::connect(queue(qid, entries)).with_cid(cid);
        self.capsule(&command, data.as_wire())
    }

    /// CC.EN: makes the controller ready.
    pub fn enable(&mut self, world: &mut World) {
        let cc = u64::from(Cc::ENABLED.0);
        let reply = self.call(world, Command::property_set(property::CC, false, cc), &[]);
        assert!(reply.status().is_success());
    }

    /// An admin queue to the subsystem, ready, and its controller's id.
    pub fn admin(world: &mut World, digests: Digests) -> (Self, u16) {
        let mut host = Self::dial(world, digests);
        let reply = host.connect_to(world, NQN, queue(0, 32), CNTLID_DYNAMIC);
        assert!(reply.status().is_success(), "{:?}", reply.status());
        host.enable(world);
        (host, reply.completion.connected_cntlid())
    }

    /// An I/O queue of that controller.
    pub fn io(world: &mut World, cntlid: u16, qid: u16, entries: u16, digests: Digests) -> Self {
        let mut host = Self::dial(world, digests);
        let reply = host.connect_to(world, NQN, queue(qid, entries), cntlid);
        assert!(reply.status().is_success(), "{:?}", reply.status());
        host
    }

    /// Both, without digests.
    pub fn pair(world: &mut World) -> (Self, Self) {
        let (admin, cntlid) = Self::admin(world, Digests::NONE);
        let io = Self::io(world, cntlid, 1, 128, Digests::NONE);
        (admin, io)
    }
}

/// Connect's parameters for a queue of `entries`.
pub fn queue(qid: u16, entries: u16) -> Connect {
    Connect {
        record_format: 0,
        qid,
        sqsize: entries - 1,
        attributes: 0,
        keep_alive_ms: 0,
    }
}

/// A write of `data` in the capsule to blocks of `block` bytes.
pub fn write_in(slba: u64, data: &[u8], block: usize) -> Command {
    let sgl = SglDescriptor::in_capsule(data.len() as u32);
    Command::write(1, slba, (data.len() / block) as u32, sgl)
}

/// A write of `bytes` that the target must ask for.
pub fn write_out(slba: u64, bytes: usize, block: usize) -> Command {
    let sgl = SglDescriptor::transport(bytes as u32);
    Command::write(1, slba, (bytes / block) as u32, sgl)
}

pub fn read(slba: u64, bytes: usize, block: usize) -> Command {
    let sgl = SglDescriptor::transport(bytes as u32);
    Command::read(1, slba, (bytes / block) as u32, sgl)
}

/// Bytes that differ from each other and between seeds.
pub fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| {
            (i as u8)
                .wrapping_mul(31)
                .wrapping_add((i >> 8) as u8 ^ seed)
        })
        .collect()
}
