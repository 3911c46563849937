use std::time::Duration;

use ashlar_block::{BlockSize, Geometry};
use ashlar_nvme::Command;
use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::fabrics::{CNTLID_DYNAMIC, Cc, Connect, ConnectData, property};
use ashlar_nvme::pdu::{self, DataDigest, Digests, Framing, H2cData, IcReq, Role};
use ashlar_nvme::stream::{Header, Limits, Receiver, Step};
use ashlar_nvme_target::ConnectionId;

use super::input::Input;
use crate::bench::Bench;

const NQN: &str = "nqn.2026-11.sim.ashlar:fuzz";

/// One connection of the fuzzer: it speaks as a host and checks that the answers can be read.
struct Line {
    id: ConnectionId,
    receiver: Receiver,
    framing: Framing,
    /// Requests for data: command, tag and length.
    wanted: Vec<(u16, u16, u32, u32)>,
}

/// A host that begins well and then sends anything: raw bytes, commands with any fields, data that
/// was or was not asked for, on an admin and an I/O queue. Nothing may be left when it leaves.
pub fn target_stream(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let settings = input.byte();
    let digests = Digests {
        header: settings & 1 != 0,
        data: settings & 2 != 0,
    };
    let mut geometry = Geometry::plain(BlockSize::B512, 512);
    geometry.deallocates = true;
    let mut bench = Bench::new(NQN, geometry, 0);
    let mut admin = Line::open(&mut bench, digests, 0);
    let enable = Command::property_set(property::CC, false, u64::from(Cc::ENABLED.0));
    admin.command(&mut bench, enable, &[]);
    let mut io = Line::open(&mut bench, digests, 1);
    while !input.is_empty() {
        let step = input.byte();
        let line = if step & 1 == 0 { &mut admin } else { &mut io };
        match step >> 1 & 7 {
            0 => {
                let most = usize::from(input.byte());
                bench.receive(line.id, input.take(most));
            }
            1..=3 => line.any_command(&mut bench, &mut input),
            4 => line.data(&mut bench, &mut input),
            5 => bench.pass(Duration::from_millis(u64::from(input.word()))),
            6 => line.likely_io(&mut bench, &mut input),
            _ => {
                bench.close(line.id);
                *line = Line::open(&mut bench, digests, u16::from(step & 1));
            }
        }
        admin.listen(&mut bench);
        io.listen(&mut bench);
    }
    bench.finish();
}

impl Line {
    /// A connection with a queue.
    fn open(bench: &mut Bench, digests: Digests, qid: u16) -> Self {
        let id = bench.accept();
        let mut line = Self {
            id,
            receiver: Receiver::new(
                Role::Host,
                Limits {
                    data: u32::MAX,
                    ..Limits::default()
                },
            ),
            framing: Framing::PLAIN,
            wanted: Vec::new(),
        };
        let mut out = Vec::new();
        let request = IcReq {
            hpda: 0,
            digests,
            maxr2t: 0,
        };
        request.encode(&mut out);
        bench.receive(id, &out);
        line.listen(bench);
        line.framing.digests = digests;
        let connect = Command::connect(Connect {
            record_format: 0,
            qid,
            sqsize: 31,
            attributes: 0,
            keep_alive_ms: 10_000,
        });
        let cntlid = if qid == 0 { CNTLID_DYNAMIC } else { 1 };
        let data = ConnectData::new([7; 16], cntlid, NQN, "nqn.2026-11.sim:fuzz");
        line.command(bench, connect, data.as_wire());
        line
    }

    fn command(&mut self, bench: &mut Bench, command: Command, data: &[u8]) {
        let mut out = Vec::new();
        pdu::capsule_cmd(&mut out, self.framing, &command, data.len() as u32);
        self.payload(&mut out, data);
        bench.receive(self.id, &out);
        self.listen(bench);
    }

    fn payload(&self, out: &mut Vec<u8>, data: &[u8]) {
        out.extend_from_slice(data);
        if self.framing.digests.data && !data.is_empty() {
            out.extend_from_slice(&DataDigest::of(data));
        }
    }

    /// A command with any fields and any data in its capsule.
    fn any_command(&mut self, bench: &mut Bench, input: &mut Input<'_>) {
        let mut wire = [0; 64];
        let head = input.take(64);
        wire[..head.len()].copy_from_slice(head);
        let bytes = usize::from(input.byte()) * 4;
        let data = input.take(bytes).to_vec();
        if let Some(command) = Command::parse(&wire) {
            self.command(bench, *command, &data);
        }
    }

    /// A command that has a chance to be carried out.
    fn likely_io(&mut self, bench: &mut Bench, input: &mut Input<'_>) {
        let (start, blocks) = (
            u64::from(input.word() % 600),
            u32::from(input.byte() % 9) + 1,
        );
        let (kind, cid) = (input.byte(), input.word());
        let bytes = blocks * 512;
        let outside = SglDescriptor::transport(bytes);
        let (command, data) = match kind % 6 {
            0 => (Command::read(1, start, blocks, outside), 0),
            1 => (Command::write(1, start, blocks, outside), 0),
            2 => (
                Command::write(1, start, blocks, SglDescriptor::in_capsule(bytes)),
                bytes,
            ),
            3 => (Command::write_zeroes(1, start, blocks, kind & 64 != 0), 0),
            4 => (Command::flush(1), 0),
            _ => {
                let mut compare = Command::read(1, start, blocks, outside);
                compare.opcode = ashlar_nvme::opcode::io::COMPARE;
                (compare, 0)
            }
        };
        self.command(bench, command.with_cid(cid), &vec![kind; data as usize]);
    }

    /// Data: what was asked for, or nearly.
    fn data(&mut self, bench: &mut Bench, input: &mut Input<'_>) {
        let twist = input.byte();
        let asked = self.wanted.pop();
        let (cid, ttag, offset, length) = asked.unwrap_or((0, u16::from(twist), 0, 512));
        let long = if twist & 1 != 0 {
            length
        } else {
            length.min(512)
        };
        let data = H2cData {
            cid: if twist & 2 != 0 { input.word() } else { cid },
            ttag: if twist & 4 != 0 { input.word() } else { ttag },
            offset: if twist & 8 != 0 {
                input.long() >> 8
            } else {
                offset
            },
            length: long.min(1 << 16),
            last: twist & 16 != 0 || long == length,
        };
        if long < length {
            self.wanted.push((cid, ttag, offset + long, length - long));
        }
        let mut out = Vec::new();
        pdu::h2c_data(&mut out, self.framing, &data);
        self.payload(&mut out, &vec![twist; data.length as usize]);
        bench.receive(self.id, &out);
    }

    /// Reads the target's answers, which must be well formed.
    fn listen(&mut self, bench: &mut Bench) {
        let output = bench.output(self.id);
        let mut bytes = &output[..];
        loop {
            match self.receiver.next(&mut bytes) {
                Ok(Step::NeedMore) => return,
                Ok(Step::Pdu(pdu)) => match pdu.header {
                    Header::IcResp(response) => self.receiver.open(response.digests),
                    Header::R2t(r2t) => {
                        self.wanted
                            .push((r2t.cid, r2t.ttag, r2t.offset, r2t.length));
                    }
                    _ => {}
                },
                Ok(Step::Data(_)) => {}
                Ok(Step::End { data_digest_ok }) => assert!(data_digest_ok, "a wrong digest"),
                Err(fatal) => panic!("the target's answer cannot be read: {fatal}"),
            }
        }
    }
}
