//! An NVMe/TCP host on std sockets that hides nothing: no replay, no reconnection, so that what was
//! acknowledged and what was on its way is known exactly.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use ashlar_nvme::command::{DsmRange, SglDescriptor};
use ashlar_nvme::fabrics::{CNTLID_DYNAMIC, Cc, Connect, ConnectData, property};
use ashlar_nvme::pdu::{self, Framing, IcReq, R2t, Role};
use ashlar_nvme::stream::{Header, Limits, Receiver, Step};
use ashlar_nvme::{Command, Status};

use crate::common::PATIENCE;

pub const BLOCK: usize = 4096;
/// Writes up to this size carry their data with the command.
const IN_CAPSULE: usize = 16 << 10;

struct Wire {
    stream: TcpStream,
    receiver: Receiver,
    pending: Vec<u8>,
    chunk: Vec<u8>,
    most_h2c: u32,
}

impl Wire {
    fn greeted(address: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut bytes = Vec::new();
        IcReq::default().encode(&mut bytes);
        stream.write_all(&bytes)?;
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

    fn send(&mut self, command: &Command, data: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(data.len() + 128);
        pdu::capsule_cmd(&mut bytes, Framing::PLAIN, command, data.len() as u32);
        bytes.extend_from_slice(data);
        self.stream.write_all(&bytes)
    }

    /// Sends what the controller asks for.
    fn answer(&mut self, request: &R2t, data: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while let Some(piece) = pdu::h2c_data_of(request, done, self.most_h2c) {
            let mut bytes = Vec::new();
            pdu::h2c_data(&mut bytes, Framing::PLAIN, &piece);
            let from = piece.offset as usize;
            bytes.extend_from_slice(&data[from..from + piece.length as usize]);
            self.stream.write_all(&bytes)?;
            done += piece.length;
        }
        Ok(())
    }

    /// The next PDU with its payload.
    fn next(&mut self) -> io::Result<(Header, Vec<u8>)> {
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
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("no answer within {PATIENCE:?}")
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn call(&mut self, command: Command, data: &[u8]) -> io::Result<(Status, u16)> {
        self.send(&command.with_cid(1), data)?;
        match self.next()? {
            (Header::CapsuleResp(done), _) => Ok((done.status(), done.connected_cntlid())),
            (other, _) => panic!("the target answers {other:?}"),
        }
    }

    fn connect(&mut self, nqn: &str, qid: u16, cntlid: u16) -> io::Result<u16> {
        let parameters = Connect {
            record_format: 0,
            qid,
            sqsize: 31,
            attributes: 0,
            keep_alive_ms: 0,
        };
        let data = ConnectData::new([7; 16], cntlid, nqn, "nqn.2024-01.com.example:life");
        let (status, cntlid) = self.call(Command::connect(parameters), data.as_wire())?;
        assert!(status.is_success(), "connecting to {nqn}: {status:?}");
        Ok(cntlid)
    }
}

/// A command that has ended.
pub struct Done {
    pub cid: u16,
    pub status: Status,
    pub data: Vec<u8>,
}

/// A controller with one I/O queue.
pub struct Host {
    _admin: Wire,
    io: Wire,
    /// What was read so far, or waits to be asked for, by command.
    data: HashMap<u16, Vec<u8>>,
}

impl Host {
    pub fn connect(address: SocketAddr, nqn: &str) -> io::Result<Self> {
        let mut admin = Wire::greeted(address)?;
        let cntlid = admin.connect(nqn, 0, CNTLID_DYNAMIC)?;
        let on = Command::property_set(property::CC, false, u64::from(Cc::ENABLED.0));
        assert!(admin.call(on, &[])?.0.is_success());
        let mut io = Wire::greeted(address)?;
        io.connect(nqn, 1, cntlid)?;
        Ok(Self {
            _admin: admin,
            io,
            data: HashMap::new(),
        })
    }

    pub fn submit_read(&mut self, cid: u16, block: u64, blocks: u64) -> io::Result<()> {
        let sgl = SglDescriptor::transport(blocks as u32 * BLOCK as u32);
        let command = Command::read(1, block, blocks as u32, sgl).with_cid(cid);
        self.io.send(&command, &[])
    }

    pub fn submit_write(&mut self, cid: u16, block: u64, data: Vec<u8>) -> io::Result<()> {
        let (bytes, blocks) = (data.len() as u32, (data.len() / BLOCK) as u32);
        if data.len() <= IN_CAPSULE {
            let sgl = SglDescriptor::in_capsule(bytes);
            let command = Command::write(1, block, blocks, sgl).with_cid(cid);
            return self.io.send(&command, &data);
        }
        let sgl = SglDescriptor::transport(bytes);
        let command = Command::write(1, block, blocks, sgl).with_cid(cid);
        self.data.insert(cid, data);
        self.io.send(&command, &[])
    }

    pub fn submit_deallocate(&mut self, cid: u16, block: u64, blocks: u64) -> io::Result<()> {
        let range = DsmRange::new(block, blocks as u32);
        let bytes = range.as_wire();
        let sgl = SglDescriptor::in_capsule(bytes.len() as u32);
        let command = Command::deallocate(1, 1, sgl).with_cid(cid);
        self.io.send(&command, bytes)
    }

    /// Waits for the next command's end.
    pub fn next(&mut self) -> io::Result<Done> {
        loop {
            match self.io.next()? {
                (Header::CapsuleResp(done), _) => {
                    let cid = done.cid.get();
                    return Ok(Done {
                        cid,
                        status: done.status(),
                        data: self.data.remove(&cid).unwrap_or_default(),
                    });
                }
                (Header::C2hData(piece), bytes) => {
                    let (cid, last) = (piece.cid, piece.last && piece.success);
                    self.data.entry(cid).or_default().extend(bytes);
                    if last {
                        return Ok(Done {
                            cid,
                            status: Status::SUCCESS,
                            data: self.data.remove(&cid).unwrap_or_default(),
                        });
                    }
                }
                (Header::R2t(request), _) => {
                    let data = self.data.remove(&request.cid).unwrap_or_default();
                    self.io.answer(&request, &data)?;
                    self.data.insert(request.cid, data);
                }
                (other, _) => panic!("the target answers {other:?}"),
            }
        }
    }
}
