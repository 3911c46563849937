//! PDUs to send, and the header that a receiver should make of each.

use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::pdu::{self, DataDigest, Fatal, FatalStatus, Framing, Role};
use ashlar_nvme::stream::Header;
use ashlar_nvme::{Command, Completion, Status};

/// One PDU after the connection is open, in either direction.
#[derive(Debug, Clone)]
pub enum Sent {
    Command(Vec<u8>),
    H2cData(Vec<u8>, u16),
    C2hData(Vec<u8>, bool),
    Response(u16),
    R2t(u32),
    TermReq(Role, Vec<u8>),
}

impl Sent {
    pub fn payload(&self) -> &[u8] {
        match self {
            Self::Command(data) | Self::H2cData(data, _) | Self::C2hData(data, _) => data,
            Self::TermReq(_, header) => header,
            Self::Response(_) | Self::R2t(_) => &[],
        }
    }

    pub fn header(&self) -> Header {
        let length = self.payload().len() as u32;
        match self {
            Self::Command(_) => {
                let sgl1 = SglDescriptor::in_capsule(length);
                Header::CapsuleCmd(Command::write(1, 77, 8, sgl1).with_cid(5))
            }
            Self::H2cData(_, ttag) => Header::H2cData(pdu::H2cData {
                cid: 5,
                ttag: *ttag,
                offset: 4096,
                length,
                last: true,
            }),
            Self::C2hData(_, last) => Header::C2hData(pdu::C2hData {
                cid: 5,
                offset: 0,
                length,
                last: *last,
                success: *last,
            }),
            Self::Response(cid) => {
                Header::CapsuleResp(Completion::new(*cid, Status::INVALID_FIELD.with_dnr()))
            }
            Self::R2t(length) => Header::R2t(pdu::R2t {
                cid: 5,
                ttag: 6,
                offset: 8192,
                length: *length,
            }),
            Self::TermReq(role, _) => {
                let term = pdu::TermReq {
                    code: 1,
                    information: 3,
                };
                match role {
                    Role::Host => Header::H2cTermReq(term),
                    Role::Controller => Header::C2hTermReq(term),
                }
            }
        }
    }

    pub fn write(&self, out: &mut Vec<u8>, framing: Framing) {
        let payload = self.payload();
        match self.header() {
            Header::CapsuleCmd(command) => {
                pdu::capsule_cmd(out, framing, &command, payload.len() as u32);
            }
            Header::CapsuleResp(completion) => pdu::capsule_resp(out, framing, &completion),
            Header::H2cData(data) => pdu::h2c_data(out, framing, &data),
            Header::C2hData(data) => pdu::c2h_data(out, framing, &data),
            Header::R2t(request) => pdu::r2t(out, framing, &request),
            Header::H2cTermReq(_) | Header::C2hTermReq(_) => {
                let Self::TermReq(role, header) = self else {
                    return;
                };
                let fatal = Fatal::at(FatalStatus::InvalidHeaderField, 3);
                return pdu::term_req(out, *role, fatal, header);
            }
            Header::IcReq(request) => request.encode(out),
            Header::IcResp(response) => response.encode(out),
        }
        if !payload.is_empty() {
            out.extend_from_slice(payload);
            if framing.digests.data {
                out.extend_from_slice(&DataDigest::of(payload));
            }
        }
    }
}
