//! Fabrics commands (Base 2.1, chapter 6) and what goes with them: names, addresses, properties.

mod address;
mod connect;
mod nqn;
pub mod property;

pub use address::{AddressFamily, TransportType};
pub use connect::{
    CATTR_DISABLE_FLOW_CONTROL, CNTLID_DYNAMIC, Connect, ConnectData, InvalidParameter,
};
pub use nqn::{DISCOVERY_NQN, Nqn, NqnError};
pub use property::{Cap, Cc, Csts, Shutdown};

use crate::command::{Command, opcode};

impl Command {
    /// A Fabrics command without data.
    fn fabrics(fctype: u8) -> Self {
        Self::new(opcode::FABRICS, u32::from(fctype))
    }

    /// Disconnect: ends an I/O queue.
    pub fn disconnect() -> Self {
        Self::fabrics(opcode::fabrics::DISCONNECT)
    }

    /// RECFMT of Connect and Disconnect; only 0 is defined.
    pub fn record_format(&self) -> u16 {
        self.cdw10.get() as u16
    }

    /// Property Get of a property of 4 or (`wide`) 8 bytes.
    pub fn property_get(offset: u32, wide: bool) -> Self {
        let mut command = Self::fabrics(opcode::fabrics::PROPERTY_GET);
        command.cdw10.set(u32::from(wide));
        command.cdw11.set(offset);
        command
    }

    /// Property Set of a property of 4 or (`wide`) 8 bytes.
    pub fn property_set(offset: u32, wide: bool, value: u64) -> Self {
        let mut command = Self::fabrics(opcode::fabrics::PROPERTY_SET);
        command.cdw10.set(u32::from(wide));
        command.cdw11.set(offset);
        command.cdw12.set(value as u32);
        command.cdw13.set((value >> 32) as u32);
        command
    }

    /// ATTRIB of Property Get and Set in bytes: 4 or 8; `None` for reserved sizes.
    pub fn property_bytes(&self) -> Option<u8> {
        match self.cdw10.get() & 0b111 {
            0 => Some(4),
            1 => Some(8),
            _ => None,
        }
    }

    /// OFST of Property Get and Set, see [`property`].
    pub fn property_offset(&self) -> u32 {
        self.cdw11.get()
    }

    /// VALUE of Property Set.
    pub fn property_value(&self) -> u64 {
        u64::from(self.cdw12.get()) | u64::from(self.cdw13.get()) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_commands_lie_where_hosts_put_them() {
        let set = Command::property_set(property::CC, false, 0x0046_0001);
        let bytes = set.as_wire();
        assert_eq!(bytes[..2], [0x7f, 0x40]);
        assert_eq!(bytes[4], 0x00);
        assert_eq!(bytes[40], 0);
        assert_eq!(bytes[44..52], [0x14, 0, 0, 0, 0x01, 0, 0x46, 0]);
        assert_eq!(set.property_bytes(), Some(4));
        assert_eq!(set.property_value(), 0x0046_0001);

        let get = Command::property_get(property::CAP, true);
        assert_eq!(get.as_wire()[4], 0x04);
        assert_eq!((get.property_bytes(), get.property_offset()), (Some(8), 0));
        assert_eq!(get.fctype(), opcode::fabrics::PROPERTY_GET);
    }
}
