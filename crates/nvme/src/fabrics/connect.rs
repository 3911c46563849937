//! Connect (Base 2.1, 6.3): command, data and the reasons it is refused for.

use crate::command::{Command, Completion, SglDescriptor, opcode};
use crate::layout::{layout, wire};
use crate::status::Status;
use crate::text;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// CNTLID in the Connect data of an admin queue: the controller chooses (dynamic model).
pub const CNTLID_DYNAMIC: u16 = 0xffff;
/// CATTR: the host wants no submission queue flow control (SQHD unused).
pub const CATTR_DISABLE_FLOW_CONTROL: u8 = 1 << 2;

/// The Connect command's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Connect {
    /// RECFMT, 0.
    pub record_format: u16,
    /// QID, 0 for the admin queue.
    pub qid: u16,
    /// SQSIZE, entries minus one.
    pub sqsize: u16,
    /// CATTR: priority class (1:0), [`CATTR_DISABLE_FLOW_CONTROL`].
    pub attributes: u8,
    /// KATO in milliseconds, 0 for none; admin queue only.
    pub keep_alive_ms: u32,
}

/// The Connect command's data.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectData {
    /// HOSTID; not zero.
    pub hostid: [u8; 16],
    /// CNTLID: [`CNTLID_DYNAMIC`] or, for an I/O queue, the controller it belongs to.
    pub cntlid: U16,
    reserved18: [u8; 238],
    /// SUBNQN, NUL padded.
    pub subnqn: [u8; 256],
    /// HOSTNQN, NUL padded.
    pub hostnqn: [u8; 256],
    reserved768: [u8; 256],
}

wire!(ConnectData);
layout!(ConnectData, 1024, hostid @ 0, cntlid @ 16, subnqn @ 256, hostnqn @ 512);

impl ConnectData {
    /// Data for a host's Connect.
    pub fn new(hostid: [u8; 16], cntlid: u16, subnqn: &str, hostnqn: &str) -> Self {
        let mut data = Self {
            hostid,
            cntlid: U16::new(cntlid),
            ..Self::default()
        };
        text::set_terminated(&mut data.subnqn, subnqn);
        text::set_terminated(&mut data.hostnqn, hostnqn);
        data
    }

    /// SUBNQN as text, not validated; see [`Nqn`](super::Nqn).
    pub fn subnqn(&self) -> String {
        text::get(&self.subnqn)
    }

    /// HOSTNQN as it is, not validated; `None` if it has no end in its field or is not UTF-8.
    pub fn exact_hostnqn(&self) -> Option<&str> {
        text::terminated(&self.hostnqn)
    }

    /// HOSTNQN as text, not validated; see [`Nqn`](super::Nqn).
    pub fn hostnqn(&self) -> String {
        text::get(&self.hostnqn)
    }
}

impl Command {
    /// Connect, with its [`ConnectData`] in the capsule.
    pub fn connect(parameters: Connect) -> Self {
        let data = SglDescriptor::in_capsule(ConnectData::BYTES as u32);
        let mut command = Self::fabrics(opcode::fabrics::CONNECT).with_data(data);
        let (format, qid) = (parameters.record_format, parameters.qid);
        command.cdw10.set(u32::from(format) | u32::from(qid) << 16);
        command
            .cdw11
            .set(u32::from(parameters.sqsize) | u32::from(parameters.attributes) << 16);
        command.cdw12.set(parameters.keep_alive_ms);
        command
    }

    /// Connect's parameters.
    pub fn connect_parameters(&self) -> Connect {
        Connect {
            record_format: self.record_format(),
            qid: (self.cdw10.get() >> 16) as u16,
            sqsize: self.cdw11.get() as u16,
            attributes: (self.cdw11.get() >> 16) as u8,
            keep_alive_ms: self.cdw12.get(),
        }
    }
}

/// Which field Connect Invalid Parameters (182h) complains about: IATTR and IPO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InvalidParameter {
    /// A byte offset in the submission queue entry.
    Command(u16),
    /// A byte offset in the Connect data.
    Data(u16),
}

impl InvalidParameter {
    /// QID of the command.
    pub const QID: Self = Self::Command(42);
    /// SQSIZE of the command.
    pub const SQSIZE: Self = Self::Command(44);
    /// CATTR of the command.
    pub const CATTR: Self = Self::Command(46);
    /// KATO of the command.
    pub const KATO: Self = Self::Command(48);
    /// HOSTID of the data.
    pub const HOSTID: Self = Self::Data(0);
    /// CNTLID of the data.
    pub const CNTLID: Self = Self::Data(16);
    /// SUBNQN of the data.
    pub const SUBNQN: Self = Self::Data(256);
    /// HOSTNQN of the data.
    pub const HOSTNQN: Self = Self::Data(512);

    fn dw0(self) -> u32 {
        match self {
            Self::Command(offset) => u32::from(offset),
            Self::Data(offset) => u32::from(offset) | 1 << 16,
        }
    }
}

impl Completion {
    /// A successful Connect's response.
    pub fn connected(cid: u16, cntlid: u16) -> Self {
        Self::new(cid, Status::SUCCESS).with_dw0(u32::from(cntlid))
    }

    /// CNTLID of a successful Connect's response.
    pub fn connected_cntlid(&self) -> u16 {
        self.dw0.get() as u16
    }

    /// True if a successful Connect's response asks for authentication (AUTHREQ, either kind).
    pub fn connected_needs_authentication(&self) -> bool {
        self.dw0.get() >> 16 & 0b110 != 0
    }

    /// Connect refused for one of its parameters (182h, do not retry).
    pub fn connect_invalid(cid: u16, parameter: InvalidParameter) -> Self {
        Self::new(cid, Status::CONNECT_INVALID_PARAMETERS.with_dnr()).with_dw0(parameter.dw0())
    }

    /// What a response with status Connect Invalid Parameters complains about.
    pub fn connect_invalid_parameter(&self) -> InvalidParameter {
        let offset = self.dw0.get() as u16;
        if self.dw0.get() & 1 << 16 != 0 {
            InvalidParameter::Data(offset)
        } else {
            InvalidParameter::Command(offset)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_data_round_trip() {
        let parameters = Connect {
            record_format: 0,
            qid: 3,
            sqsize: 127,
            attributes: CATTR_DISABLE_FLOW_CONTROL,
            keep_alive_ms: 5000,
        };
        let command = Command::connect(parameters);
        assert_eq!(command.connect_parameters(), parameters);
        let data = ConnectData::new([7; 16], 9, "nqn.2014-08.org.nvmexpress.discovery", "nqn.h");
        let back = ConnectData::parse(data.as_wire()).unwrap();
        assert_eq!(back.subnqn(), "nqn.2014-08.org.nvmexpress.discovery");
        assert_eq!(back.hostnqn(), "nqn.h");
        assert_eq!(back.cntlid.get(), 9);
        assert!(ConnectData::parse(&data.as_wire()[..1023]).is_none());
    }

    #[test]
    fn refusal_names_the_field() {
        let refused = Completion::connect_invalid(1, InvalidParameter::SUBNQN);
        assert_eq!(refused.dw0.get(), 0x0001_0100);
        assert_eq!(
            refused.connect_invalid_parameter(),
            InvalidParameter::SUBNQN
        );
        let refused = Completion::connect_invalid(1, InvalidParameter::SQSIZE);
        assert_eq!(
            refused.connect_invalid_parameter(),
            InvalidParameter::SQSIZE
        );
        assert_eq!(Completion::connected(1, 0x1234).connected_cntlid(), 0x1234);
        assert!(
            Completion::new(1, Status::SUCCESS)
                .with_dw0(0x0002_0001)
                .connected_needs_authentication()
        );
    }
}
