//! A blocking NVMe/TCP host on std sockets.

#![allow(dead_code)] // Each test program has its own use of it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::fabrics::{CNTLID_DYNAMIC, Cc, Connect, ConnectData, property};
use ashlar_nvme::pdu::{self, Framing, IcReq, Role};
use ashlar_nvme::stream::{Header, Limits, Receiver, Step};
use ashlar_nvme::{Command, Completion, Status};

use crate::common::TEST_TIMEOUT;

/// A host, and the subsystem that it wants.
#[derive(Clone, Debug)]
pub struct Who {
    pub subsystem: String,
    pub nqn: String,
    pub id: [u8; 16],
}

/// A connection that has been greeted. Its other end may be killed at any moment.
pub struct Wire {
    pub stream: TcpStream,
    receiver: Receiver,
    pending: Vec<u8>,
    chunk: Vec<u8>,
    /// The most bytes in a PDU of data to the target.
    pub most_h2c: u32,
}

impl Wire {
    pub fn greeted(address: SocketAddr) -> io::Result<Self> {
        let mut stream = open(address)?;
        stream.write_all(&greeting())?;
        Self::over(stream)
    }

    /// Reads the answer to a greeting that was sent.
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        let limits = Limits {
            data: 2 << 20,
            ..Limits::default()
        };
        let mut wire = Self {
            stream,
            receiver: Receiver::new(Role::Host, limits),
            pending: Vec::new(),
            chunk: vec![0; 128 << 10],
            most_h2c: 0,
        };
        match wire.next()? {
            (Header::IcResp(response), _) => {
                wire.receiver.open(response.digests);
                wire.most_h2c = response.maxh2cdata;
                Ok(wire)
            }
            (other, _) => panic!("greeted with {other:?}"),
        }
    }

    pub fn send(&mut self, command: &Command, data: &[u8]) -> io::Result<()> {
        self.stream.write_all(&capsule(command, data))
    }

    /// The next PDU with its payload.
    pub fn next(&mut self) -> io::Result<(Header, Vec<u8>)> {
        let mut header = None;
        let mut payload = Vec::new();
        loop {
            let mut input = &self.pending[..];
            let done = loop {
                let step = self.receiver.next(&mut input);
                match step.expect("the target speaks NVMe/TCP") {
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
                return Ok((header, payload));
            }
            match self.stream.read(&mut self.chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.pending.extend_from_slice(&self.chunk[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("no answer within {TEST_TIMEOUT:?}")
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A queue whose connection is not expected to break.
pub struct Client {
    pub wire: Wire,
    cid: u16,
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    stream.set_write_timeout(Some(TEST_TIMEOUT))?;
    Ok(stream)
}

/// A bare connection.
pub fn dial(address: SocketAddr) -> TcpStream {
    open(address).expect("the target accepts")
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
        let wire = Wire::over(stream).expect("a greeting");
        Self { wire, cid: 0 }
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
        let sent = self.wire.send(&command.with_cid(self.cid), data);
        sent.expect("the target listens");
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
        match self.wire.next() {
            Ok(pdu) => Some(pdu),
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => None,
                _ => panic!("no answer: {error}"),
            },
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
    #[must_use]
    pub fn has_answer(&mut self, within: Duration) -> bool {
        let stream = &self.wire.stream;
        stream.set_read_timeout(Some(within)).expect("a socket");
        let there = stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
        stream
            .set_read_timeout(Some(TEST_TIMEOUT))
            .expect("a socket");
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
