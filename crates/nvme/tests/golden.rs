//! Bytes as a Linux host puts them on the wire, written out by hand from its driver's behaviour.

use ashlar_nvme::command::{DataPointer, SglDescriptor, opcode};
use ashlar_nvme::fabrics::{Connect, ConnectData, Nqn};
use ashlar_nvme::pdu::{self, Digests, Framing, IcReq, IcResp, Role};
use ashlar_nvme::stream::{Header, Limits, Receiver, Step};
use ashlar_nvme::{Command, Completion, Status};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5";
const SUBSYSTEM: &str = "nqn.2024-01.com.example:vol1";

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// The header of the first PDU in `bytes`, as a controller with these digests sees it.
fn at_controller(bytes: &[u8], digests: Option<Digests>) -> (Header, usize) {
    let mut receiver = Receiver::new(Role::Controller, Limits::default());
    if let Some(digests) = digests {
        receiver.open(digests);
    }
    match receiver.next(&mut &bytes[..]) {
        Ok(Step::Pdu(pdu)) => (pdu.header, pdu.data_len),
        other => panic!("{other:?}"),
    }
}

#[test]
fn icreq_with_both_digests() {
    let mut golden = unhex("00 00 80 00 80000000 0000 00 03 00000000");
    golden.resize(128, 0);
    let request = IcReq {
        hpda: 0,
        digests: Digests::BOTH,
        maxr2t: 0,
    };
    let mut built = Vec::new();
    request.encode(&mut built);
    assert_eq!(built, golden);
    assert_eq!(at_controller(&golden, None), (Header::IcReq(request), 0));
}

#[test]
fn icresp_answers_it() {
    let mut golden = unhex("01 00 80 00 80000000 0000 00 03 00000200");
    golden.resize(128, 0);
    let response = IcResp {
        cpda: 0,
        digests: Digests::BOTH,
        maxh2cdata: 131_072,
    };
    let mut built = Vec::new();
    response.encode(&mut built);
    assert_eq!(built, golden);
    let mut receiver = Receiver::new(Role::Host, Limits::default());
    let step = receiver.next(&mut &golden[..]).unwrap();
    assert!(matches!(step, Step::Pdu(pdu) if pdu.header == Header::IcResp(response)));
}

#[test]
fn connect_of_an_admin_queue() {
    let mut golden = unhex(
        "04 00 48 48 48040000
         7f 40 0000 01 000000 0000000000000000 0000000000000000
         0000000000000000 00040000 000000 01
         0000 0000 1f00 00 00 88130000 000000000000000000000000",
    );
    assert_eq!(golden.len(), 72);
    golden.extend_from_slice(&unhex("2cd2c43b a90a 45c1 a8cd 86b33ab273b5 ffff"));
    golden.resize(72 + 256, 0);
    golden.extend_from_slice(SUBSYSTEM.as_bytes());
    golden.resize(72 + 512, 0);
    golden.extend_from_slice(HOST.as_bytes());
    golden.resize(72 + 1024, 0);

    let parameters = Connect {
        record_format: 0,
        qid: 0,
        sqsize: 31,
        attributes: 0,
        keep_alive_ms: 5000,
    };
    let hostid: [u8; 16] = golden[72..88].try_into().unwrap();
    let command = Command::connect(parameters);
    let data = ConnectData::new(hostid, 0xffff, SUBSYSTEM, HOST);
    let mut built = Vec::new();
    pdu::capsule_cmd(&mut built, Framing::PLAIN, &command, 1024);
    built.extend_from_slice(data.as_wire());
    assert_eq!(built, golden);

    let (header, data_len) = at_controller(&golden, Some(Digests::NONE));
    let Header::CapsuleCmd(seen) = header else {
        panic!("{header:?}");
    };
    assert_eq!(data_len, 1024);
    assert_eq!(seen.fctype(), opcode::fabrics::CONNECT);
    assert_eq!(seen.connect_parameters(), parameters);
    let in_capsule = DataPointer::InCapsule {
        offset: 0,
        length: 1024,
    };
    assert_eq!(seen.data(), in_capsule);
    let data = ConnectData::parse(&golden[72..]).unwrap();
    assert_eq!(Nqn::new(&data.hostnqn()).unwrap(), Nqn::from_uuid(hostid));
    assert_eq!(data.subnqn(), SUBSYSTEM);
}

#[test]
fn read_of_eight_blocks() {
    let golden = unhex(
        "04 00 48 00 48000000
         02 40 0510 01000000 0000000000000000 0000000000000000
         0000000000000000 00100000 000000 5a
         0008000001000000 0700 0000 00000000 00000000 0000 0000",
    );
    let command =
        Command::read(1, 0x1_0000_0800, 8, SglDescriptor::transport(4096)).with_cid(0x1005);
    let mut built = Vec::new();
    pdu::capsule_cmd(&mut built, Framing::PLAIN, &command, 0);
    assert_eq!(built, golden);
    assert_eq!(
        at_controller(&golden, Some(Digests::NONE)),
        (Header::CapsuleCmd(command), 0)
    );
}

#[test]
fn read_with_digests_has_its_crc_behind_the_header() {
    // The flags and PLEN differ from the plain capsule, and CRC-32C (little-endian) follows.
    let command = Command::read(1, 0, 8, SglDescriptor::transport(4096));
    let framing = Framing {
        digests: Digests::BOTH,
        pda: 0,
    };
    let mut built = Vec::new();
    pdu::capsule_cmd(&mut built, framing, &command, 0);
    assert_eq!(built.len(), 76);
    assert_eq!(built[..8], [0x04, 0x01, 72, 0, 76, 0, 0, 0]);
    assert_eq!(built[72..], bitwise_crc32c(&built[..72]).to_le_bytes());
}

/// CRC-32C by its definition, independent of the crate under test.
fn bitwise_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

#[test]
fn response_capsule() {
    let golden = unhex("05 00 18 00 18000000 00000000 00000000 0100 0000 0510 04 80");
    let completion = Completion::new(0x1005, Status::INVALID_FIELD.with_dnr()).with_sqhd(1);
    let mut built = Vec::new();
    pdu::capsule_resp(&mut built, Framing::PLAIN, &completion);
    assert_eq!(built, golden);
}
