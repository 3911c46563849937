//! Reservations (Base 2.1, 8.1.22): fields of the four commands, the Reservation Status data structure,
//! the Reservation Notification log page.

use crate::command::{Command, SglDescriptor, opcode};

/// Bits of RESCAP (Identify Namespace).
pub mod rescap {
    /// Persist through power loss.
    pub const PERSISTENT: u8 = 1 << 0;
    /// All six types.
    pub const ALL_TYPES: u8 = 0b111_1110;
    /// Ignore Existing Key as revision 1.3 has it.
    pub const IGNORE_EXISTING_KEY: u8 = 1 << 7;
}

/// Bits of the Reservation Notification Mask feature (82h): what is not told.
pub mod masked {
    /// Registration Preempted.
    pub const REGISTRATION_PREEMPTED: u32 = 1 << 1;
    /// Reservation Released.
    pub const RESERVATION_RELEASED: u32 = 1 << 2;
    /// Reservation Preempted.
    pub const RESERVATION_PREEMPTED: u32 = 1 << 3;
}

/// CDW11 bit 0 of Reservation Report: the extended data structure, with host identifiers of 128 bits.
const EXTENDED: u32 = 1;
/// CDW10 bit 3: the existing key is not looked at.
const IGNORE_KEY: u32 = 1 << 3;

/// RTYPE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReservationType {
    /// One holder writes, all read.
    WriteExclusive = 1,
    /// One holder reads and writes.
    ExclusiveAccess = 2,
    /// One holder; registrants write, all read.
    WriteExclusiveRegistrants = 3,
    /// One holder; registrants read and write.
    ExclusiveAccessRegistrants = 4,
    /// All registrants hold it and write, all read.
    WriteExclusiveAll = 5,
    /// All registrants hold it, read and write.
    ExclusiveAccessAll = 6,
}

impl ReservationType {
    /// Every type.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrants,
        Self::ExclusiveAccessRegistrants,
        Self::WriteExclusiveAll,
        Self::ExclusiveAccessAll,
    ];

    /// The type of this number.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| *one as u8 == byte)
    }

    /// Whether every registrant is a holder.
    pub fn is_of_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// Whether it is for the holder alone.
    pub fn is_of_one(self) -> bool {
        matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether others may read.
    pub fn lets_read(self) -> bool {
        self as u8 % 2 == 1
    }
}

/// RREGA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterAction {
    /// A key for a host that has none.
    Register,
    /// The key goes.
    Unregister,
    /// Another key.
    Replace,
}

/// CPTPL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// As it was.
    Unchanged,
    /// Lost with the power.
    Off,
    /// Kept through a loss of power.
    On,
}

/// RACQA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcquireAction {
    /// Take it if it is free.
    Acquire,
    /// Take keys, and perhaps the reservation, away from others.
    Preempt,
    /// The same, and end their commands.
    PreemptAndAbort,
}

/// RRELA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseAction {
    /// Give it back.
    Release,
    /// All keys and the reservation go.
    Clear,
}

/// What a reservation command asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Reservation Register.
    Register {
        /// RREGA.
        action: RegisterAction,
        /// IEKEY.
        ignores_key: bool,
        /// CPTPL.
        persistence: Persistence,
        /// CRKEY.
        current: u64,
        /// NRKEY.
        new: u64,
    },
    /// Reservation Acquire.
    Acquire {
        /// RACQA.
        action: AcquireAction,
        /// RTYPE.
        kind: ReservationType,
        /// CRKEY.
        current: u64,
        /// PRKEY.
        preempted: u64,
    },
    /// Reservation Release.
    Release {
        /// RRELA.
        action: ReleaseAction,
        /// RTYPE, unchecked: it is compared with the one that is held.
        kind: u8,
        /// CRKEY.
        current: u64,
    },
}

/// Bytes of data that the command brings; `None` for one that is no such command.
pub fn data_bytes(opcode: u8) -> Option<usize> {
    match opcode {
        opcode::io::RESERVATION_REGISTER | opcode::io::RESERVATION_ACQUIRE => Some(16),
        opcode::io::RESERVATION_RELEASE => Some(8),
        _ => None,
    }
}

fn key(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?))
}

impl Ask {
    /// What a command with this data asks for; `None` if a field has a reserved value.
    pub fn parse(command: &Command, data: &[u8]) -> Option<Self> {
        let cdw10 = command.cdw10.get();
        let (action, kind) = (cdw10 & 0b111, (cdw10 >> 8) as u8);
        let ignores_key = cdw10 & IGNORE_KEY != 0;
        let current = key(data, 0)?;
        match command.opcode {
            opcode::io::RESERVATION_REGISTER => Some(Self::Register {
                action: match action {
                    0 => RegisterAction::Register,
                    1 => RegisterAction::Unregister,
                    2 => RegisterAction::Replace,
                    _ => return None,
                },
                ignores_key,
                persistence: match cdw10 >> 30 {
                    0b00 => Persistence::Unchanged,
                    0b10 => Persistence::Off,
                    0b11 => Persistence::On,
                    _ => return None,
                },
                current,
                new: key(data, 8)?,
            }),
            opcode::io::RESERVATION_ACQUIRE if !ignores_key => Some(Self::Acquire {
                action: match action {
                    0 => AcquireAction::Acquire,
                    1 => AcquireAction::Preempt,
                    2 => AcquireAction::PreemptAndAbort,
                    _ => return None,
                },
                kind: ReservationType::from_byte(kind)?,
                current,
                preempted: key(data, 8)?,
            }),
            opcode::io::RESERVATION_RELEASE if !ignores_key => Some(Self::Release {
                action: match action {
                    0 => ReleaseAction::Release,
                    1 => ReleaseAction::Clear,
                    _ => return None,
                },
                kind,
                current,
            }),
            _ => None,
        }
    }

    /// The command and its data, for namespace `nsid`.
    pub fn to_command(self, nsid: u32) -> (Command, Vec<u8>) {
        let ignore = |ignores: bool| if ignores { IGNORE_KEY } else { 0 };
        let (opcode, cdw10, keys) = match self {
            Self::Register {
                action,
                ignores_key,
                persistence,
                current,
                new,
            } => {
                let cptpl = match persistence {
                    Persistence::Unchanged => 0b00,
                    Persistence::Off => 0b10,
                    Persistence::On => 0b11,
                };
                let cdw10 = action as u32 | ignore(ignores_key) | cptpl << 30;
                (opcode::io::RESERVATION_REGISTER, cdw10, vec![current, new])
            }
            Self::Acquire {
                action,
                kind,
                current,
                preempted,
            } => {
                let cdw10 = action as u32 | u32::from(kind as u8) << 8;
                (
                    opcode::io::RESERVATION_ACQUIRE,
                    cdw10,
                    vec![current, preempted],
                )
            }
            Self::Release {
                action,
                kind,
                current,
            } => {
                let cdw10 = action as u32 | u32::from(kind) << 8;
                (opcode::io::RESERVATION_RELEASE, cdw10, vec![current])
            }
        };
        let data: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        let sgl = SglDescriptor::in_capsule(data.len() as u32);
        let mut command = Command::new(opcode, nsid).with_data(sgl);
        command.cdw10.set(cdw10);
        (command, data)
    }
}

/// A host that is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registrant {
    /// Host Identifier.
    pub host: [u8; 16],
    pub key: u64,
    /// It holds the reservation.
    pub holds: bool,
}

/// Reservation Status, extended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationStatus {
    /// GEN: counts registrations, preemptions and clears.
    pub generation: u32,
    /// RTYPE.
    pub kind: Option<ReservationType>,
    /// PTPLS.
    pub is_persistent: bool,
    pub registrants: Vec<Registrant>,
}

const HEADER: usize = 64;
const ENTRY: usize = 64;
/// CNTLID of a registrant without a certain controller.
const ANY_CONTROLLER: u16 = 0xffff;

impl ReservationStatus {
    /// The command that asks for so many `bytes`, a multiple of 4.
    pub fn report(nsid: u32, bytes: u32) -> Command {
        let sgl = SglDescriptor::transport(bytes);
        let mut command = Command::new(opcode::io::RESERVATION_REPORT, nsid).with_data(sgl);
        command.cdw10.set(bytes / 4 - 1);
        command.cdw11.set(EXTENDED);
        command
    }

    /// Bytes that a Reservation Report asks for, and whether of the extended structure.
    pub fn asked(command: &Command) -> (u64, bool) {
        let bytes = (u64::from(command.cdw10.get()) + 1) * 4;
        (bytes, command.cdw11.get() & EXTENDED != 0)
    }

    /// The structure's bytes, all of them.
    pub fn to_page(&self) -> Vec<u8> {
        let mut page = vec![0; HEADER];
        page[..4].copy_from_slice(&self.generation.to_le_bytes());
        page[4] = self.kind.map_or(0, |kind| kind as u8);
        let count = u16::try_from(self.registrants.len()).unwrap_or(u16::MAX);
        page[5..7].copy_from_slice(&count.to_le_bytes());
        page[9] = u8::from(self.is_persistent);
        for one in self.registrants.iter().take(usize::from(count)) {
            let mut entry = [0; ENTRY];
            entry[..2].copy_from_slice(&ANY_CONTROLLER.to_le_bytes());
            entry[2] = u8::from(one.holds);
            entry[8..16].copy_from_slice(&one.key.to_le_bytes());
            entry[16..32].copy_from_slice(&one.host);
            page.extend_from_slice(&entry);
        }
        page
    }

    /// Parses the structure. `None` if it ends before its registrants do.
    pub fn parse(page: &[u8]) -> Option<Self> {
        let (header, rest) = page.split_at_checked(HEADER)?;
        let count = usize::from(u16::from_le_bytes([header[5], header[6]]));
        let entries = rest.as_chunks::<ENTRY>().0.get(..count)?;
        let registrant = |entry: &[u8; ENTRY]| {
            Some(Registrant {
                host: *entry[16..].first_chunk()?,
                key: key(entry, 8)?,
                holds: entry[2] & 1 != 0,
            })
        };
        Some(Self {
            generation: u32::from_le_bytes(*header.first_chunk()?),
            kind: ReservationType::from_byte(header[4]),
            is_persistent: header[9] & 1 != 0,
            registrants: entries.iter().map(registrant).collect::<Option<_>>()?,
        })
    }
}

/// What has happened to a registrant's reservation by another's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Notification {
    /// Its key was taken away.
    RegistrationPreempted = 1,
    /// The reservation that it could use was given back.
    ReservationReleased = 2,
    /// The reservation was taken over, or cleared.
    ReservationPreempted = 3,
}

impl Notification {
    /// The bit of [`masked`] for it.
    pub fn mask(self) -> u32 {
        1 << self as u8
    }

    /// The log page that tells it: the `count`th of its controller, and so many wait behind it.
    pub fn to_page(self, nsid: u32, count: u64, waiting: usize) -> Vec<u8> {
        let mut page = vec![0; 64];
        page[..8].copy_from_slice(&count.to_le_bytes());
        page[8] = self as u8;
        page[9] = u8::try_from(waiting).unwrap_or(u8::MAX);
        page[12..16].copy_from_slice(&nsid.to_le_bytes());
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_round_trip_and_reserved_values_are_refused() {
        let asks = [
            Ask::Register {
                action: RegisterAction::Replace,
                ignores_key: true,
                persistence: Persistence::On,
                current: 1,
                new: u64::MAX,
            },
            Ask::Acquire {
                action: AcquireAction::PreemptAndAbort,
                kind: ReservationType::ExclusiveAccessAll,
                current: 7,
                preempted: 9,
            },
            Ask::Release {
                action: ReleaseAction::Clear,
                kind: 3,
                current: 4,
            },
        ];
        for ask in asks {
            let (command, data) = ask.to_command(5);
            assert_eq!(Some(data.len()), data_bytes(command.opcode));
            assert_eq!(Ask::parse(&command, &data), Some(ask));
            assert_eq!(Ask::parse(&command, &data[..7]), None);
            let mut odd = command;
            odd.cdw10.set(odd.cdw10.get() | 0b111);
            assert_eq!(Ask::parse(&odd, &data), None);
        }
    }

    #[test]
    fn a_report_round_trips() {
        let status = ReservationStatus {
            generation: 9,
            kind: Some(ReservationType::ExclusiveAccess),
            is_persistent: true,
            registrants: vec![Registrant {
                host: [7; 16],
                key: 5,
                holds: true,
            }],
        };
        let page = status.to_page();
        assert_eq!((page.len(), page[4], page[9]), (128, 2, 1));
        assert_eq!(ReservationStatus::parse(&page), Some(status));
        assert_eq!(ReservationStatus::parse(&page[..127]), None);
    }
}
