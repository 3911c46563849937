//! A blocking NVMe/TCP host on std sockets.

#![allow(dead_code)] // Each test program has its own use of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::fabrics::{CNTLID_DYNAMIC, Cc, Connect, ConnectData, property};
use ashlar_nvme::pdu::{self, Framing, IcReq, Role};
use ashlar_nvme::stream::{Header, Limits, Receiver, Step};
use ashlar_nvme::{Command, Completion, Status};

use crate::common::PATIENCE;

/// A host, and the subsystem that it wants.
#[derive(Clone, Debug)]
pub struct Who {
    pub subsystem: String,
    pub nqn: String,
    pub id: [u8; 16],
}

pub struct Client {
    pub stream: TcpStream,
    receiver: Receiver,
    pending: Vec<u8>,
    cid: u16,
}

/// A bare connection.
pub fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the target accepts");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// The 128 bytes that open a connection.
pub fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    IcReq::default().encode(&mut bytes);
    bytes
}

pub fn capsule(command: &Command, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pdu::capsule_cmd(&mut bytes, Framing::PLAIN, command, data.len() as u32);
    bytes.extend_from_slice(data);
    bytes
}

/// Connect for a queue of 32 entries, with its data.
pub fn connect_as(who: &Who, qid: u16, cntlid: u16) -> (Command, ConnectData) {
    let parameters = Connect {
        record_format: 0,
        qid,
        sqsize: 31,
        attributes: 0,
        keep_alive_ms: 0,
    };
    (
        Command::connect(parameters),
        ConnectData::new(who.id, cntlid, &who.subsystem, &who.nqn),
    )
}

impl Client {
    /// Connects and is greeted.
    pub fn greeted(address: SocketAddr) -> Self {
        let mut stream = dial(address);
        stream.write_all(&greeting()).expect("the target listens");
        Self::over(stream)
    }

    /// Reads the answer to a greeting that was sent.
    pub fn over(stream: TcpStream) -> Self {
        let receiver = Receiver::new(
            Role::Host,
            Limits {
                data: 2 << 20,
                ..Limits::default()
            },
        );
        let mut client = Self {
            stream,
            receiver,
            pending: Vec::new(),
            cid: 0,
        };
        match client.next().expect("a greeting") {
            (Header::IcResp(response), _) => client.receiver.open(response.digests),
            (other, _) => panic!("greeted with {other:?}"),
        }
        client
    }

    /// An admin queue whose controller is enabled, and the controller's id.
    pub fn admin_as(who: &Who, address: SocketAddr) -> (Self, u16) {
        let mut client = Self::greeted(address);
        let (command, data) = connect_as(who, 0, CNTLID_DYNAMIC);
        let (completion, _) = client.call(command, data.as_wire());
        assert!(
            completion.status().is_success(),
            "{:?}",
            completion.status()
        );
        let on = Command::property_set(property::CC, false, u64::from(Cc::ENABLED.0));
        assert!(client.call(on, &[]).0.status().is_success());
        (client, completion.connected_cntlid())
    }

    /// An I/O queue.
    pub fn io_as(who: &Who, address: SocketAddr, cntlid: u16, qid: u16) -> Self {
        let mut client = Self::greeted(address);
        let (command, data) = connect_as(who, qid, cntlid);
        let (completion, _) = client.call(command, data.as_wire());
        assert!(
            completion.status().is_success(),
            "{:?}",
            completion.status()
        );
        client
    }

    /// Sends a command.
    pub fn send(&mut self, command: Command, data: &[u8]) -> u16 {
        self.cid += 1;
        let bytes = capsule(&command.with_cid(self.cid), data);
        self.stream.write_all(&bytes).expect("the target listens");
        self.cid
    }

    /// Sends a command and waits for its end.
    pub fn call(&mut self, command: Command, data: &[u8]) -> (Completion, Vec<u8>) {
        let cid = self.send(command, data);
        let (completion, data) = self.reply();
        assert_eq!(completion.cid.get(), cid);
        (completion, data)
    }

    /// The next command's end.
    pub fn reply(&mut self) -> (Completion, Vec<u8>) {
        match self.next().expect("an answer") {
            (Header::CapsuleResp(completion), _) => (completion, Vec::new()),
            (Header::C2hData(data), bytes) => (Completion::new(data.cid, Status::SUCCESS), bytes),
            (other, _) => panic!("the target answers {other:?}"),
        }
    }

    /// The next PDU with its payload; `None` when the connection has ended.
    pub fn next(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut header = None;
        let mut payload = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            let mut input = &self.pending[..];
            let done = loop {
                match self
                    .receiver
                    .next(&mut input)
                    .expect("the target speaks NVMe/TCP")
                {
                    Step::NeedMore => break false,
                    Step::Pdu(pdu) => {
                        header = Some(pdu.header);
                        if pdu.data_len == 0 {
                            break true;
                        }
                    }
                    Step::Data(bytes) => payload.extend_from_slice(bytes),
                    Step::End { .. } => break true,
                }
            };
            self.pending = input.to_vec();
            if let Some(header) = header.filter(|_| done) {
                return Some((header, payload));
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(bytes) => self.pending.extend_from_slice(&chunk[..bytes]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no answer in {PATIENCE:?}: {error}"),
            }
        }
    }

    pub fn write(&mut self, slba: u64, data: &[u8]) -> Status {
        self.send_write(slba, data);
        self.reply().0.status()
    }

    /// Sends a write; its answer is the next reply.
    pub fn send_write(&mut self, slba: u64, data: &[u8]) {
        let sgl = SglDescriptor::in_capsule(data.len() as u32);
        self.send(Command::write(1, slba, data.len() as u32 / 4096, sgl), data);
    }

    /// Whether something comes within this time.
    pub fn has_answer(&mut self, within: Duration) -> bool {
        let stream = &self.stream;
        stream.set_read_timeout(Some(within)).expect("a socket");
        let there = stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        there
    }

    /// How the next command has ended; `None` when the connection has.
    pub fn next_status(&mut self) -> Option<Status> {
        match self.next()?.0 {
            Header::CapsuleResp(completion) => Some(completion.status()),
            other => panic!("the target answers {other:?}"),
        }
    }

    pub fn read(&mut self, slba: u64, bytes: u32) -> Vec<u8> {
        let (status, data) = self.try_read(slba, bytes);
        assert!(status.is_success());
        data
    }

    pub fn try_read(&mut self, slba: u64, bytes: u32) -> (Status, Vec<u8>) {
        let command = Command::read(1, slba, bytes / 4096, SglDescriptor::transport(bytes));
        let (completion, data) = self.call(command, &[]);
        (completion.status(), data)
    }
}
