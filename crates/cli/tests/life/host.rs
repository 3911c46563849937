//! An NVMe/TCP host on std sockets that hides nothing: no replay, no reconnection, so that what was
//! acknowledged and what was on its way is known exactly.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;

use ashlar_nvme::command::{DsmRange, SglDescriptor};
use ashlar_nvme::fabrics::{CNTLID_DYNAMIC, Cc, property};
use ashlar_nvme::pdu::{self, Framing, R2t};
use ashlar_nvme::stream::Header;
use ashlar_nvme::{Command, Status};

use crate::wire::{Who, Wire, connect_as};

pub const BLOCK: usize = 4096;
/// Writes up to this size carry their data with the command.
const IN_CAPSULE: usize = 16 << 10;

/// Sends what the controller asks for.
fn answer(wire: &mut Wire, request: &R2t, data: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while let Some(piece) = pdu::h2c_data_of(request, done, wire.most_h2c) {
        let mut bytes = Vec::new();
        pdu::h2c_data(&mut bytes, Framing::PLAIN, &piece);
        let from = piece.offset as usize;
        bytes.extend_from_slice(&data[from..from + piece.length as usize]);
        wire.stream.write_all(&bytes)?;
        done += piece.length;
    }
    Ok(())
}

fn call(wire: &mut Wire, command: Command, data: &[u8]) -> io::Result<(Status, u16)> {
    wire.send(&command.with_cid(1), data)?;
    match wire.next()? {
        (Header::CapsuleResp(done), _) => Ok((done.status(), done.connected_cntlid())),
        (other, _) => panic!("the target answers {other:?}"),
    }
}

fn connect(wire: &mut Wire, who: &Who, qid: u16, cntlid: u16) -> io::Result<u16> {
    let (command, data) = connect_as(who, qid, cntlid);
    let (status, cntlid) = call(wire, command, data.as_wire())?;
    assert!(status.is_success(), "connecting to {who:?}: {status:?}");
    Ok(cntlid)
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
    /// Bytes of the volume's blocks.
    block: usize,
}

impl Host {
    pub fn connect(address: SocketAddr, nqn: &str) -> io::Result<Self> {
        let who = Who {
            subsystem: nqn.into(),
            nqn: "nqn.2024-01.com.example:life".into(),
            id: [7; 16],
        };
        let mut admin = Wire::greeted(address)?;
        let cntlid = connect(&mut admin, &who, 0, CNTLID_DYNAMIC)?;
        let on = Command::property_set(property::CC, false, u64::from(Cc::ENABLED.0));
        assert!(call(&mut admin, on, &[])?.0.is_success());
        let mut io = Wire::greeted(address)?;
        connect(&mut io, &who, 1, cntlid)?;
        Ok(Self {
            _admin: admin,
            io,
            data: HashMap::new(),
            block: BLOCK,
        })
    }

    /// The volume has blocks of so many bytes.
    pub fn of_blocks(mut self, bytes: usize) -> Self {
        self.block = bytes;
        self
    }

    pub fn submit_read(&mut self, cid: u16, block: u64, blocks: u64) -> io::Result<()> {
        let sgl = SglDescriptor::transport(blocks as u32 * self.block as u32);
        let command = Command::read(1, block, blocks as u32, sgl).with_cid(cid);
        self.io.send(&command, &[])
    }

    pub fn submit_write(&mut self, cid: u16, block: u64, data: Vec<u8>) -> io::Result<()> {
        let (bytes, blocks) = (data.len() as u32, (data.len() / self.block) as u32);
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
                    answer(&mut self.io, &request, &data)?;
                    self.data.insert(request.cid, data);
                }
                (other, _) => panic!("the target answers {other:?}"),
            }
        }
    }
}
