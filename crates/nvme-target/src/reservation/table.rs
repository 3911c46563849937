use std::collections::BTreeMap;

use ashlar_nvme::Status;
use ashlar_nvme::opcode::io;
use ashlar_nvme::reservation::{
    AcquireAction, Ask, Notification, Persistence, RegisterAction, Registrant, ReleaseAction,
    ReservationStatus, ReservationType,
};

/// Most hosts that may be registered with a namespace: as many as a granule of 4 KiB has room for, so that a table can
/// be kept in one.
const MOST_REGISTRANTS: usize = 168;
const _: () = assert!(HEADER + MOST_REGISTRANTS * ENTRY <= 4096);
/// Begins the table's form in bytes.
const MAGIC: &[u8; 8] = b"ASHRSV\x01\0";
const HEADER: usize = 32;
const ENTRY: usize = 24;

/// A Host Identifier.
pub type HostId = [u8; 16];

/// What a host may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Rights {
    pub(crate) const ALL: Self = Self {
        reads: true,
        writes: true,
    };

    /// Whether these allow a command of the NVM command set.
    pub(crate) fn allow(self, opcode: u8) -> bool {
        match opcode {
            io::READ | io::COMPARE | io::VERIFY => self.reads,
            // Their own rules are the table's.
            io::RESERVATION_REGISTER
            | io::RESERVATION_REPORT
            | io::RESERVATION_ACQUIRE
            | io::RESERVATION_RELEASE => true,
            _ => self.writes,
        }
    }
}

/// What others are to be told of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Whom, and what.
    pub told: Vec<(HostId, Notification)>,
    /// Hosts whose commands are to be ended (Preempt and Abort).
    pub ended: Vec<HostId>,
}

/// The registrants of a namespace, and its reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    keys: BTreeMap<HostId, u64>,
    held: Option<Held>,
    generation: u32,
    is_persistent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    kind: ReservationType,
    /// Whose it is; of a reservation of all registrants, who has taken it.
    holder: HostId,
}

/// Bytes that are no table.
#[derive(Debug, PartialEq, Eq)]
pub struct TableError(&'static str);

impl std::fmt::Display for TableError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "these are no reservations: {}", self.0)
    }
}

impl std::error::Error for TableError {}

const CONFLICT: Status = Status::RESERVATION_CONFLICT;

impl Table {
    /// What the host may do now.
    pub(crate) fn rights(&self, host: &HostId) -> Rights {
        let Some(held) = self.held else {
            return Rights::ALL;
        };
        let is_let_in = match held.kind.is_of_one() {
            true => held.holder == *host,
            false => self.keys.contains_key(host),
        };
        Rights {
            reads: is_let_in || held.kind.lets_read(),
            writes: is_let_in,
        }
    }

    fn holds(&self, host: &HostId) -> bool {
        let holds = |held: Held| match held.kind.is_of_all() {
            true => self.keys.contains_key(host),
            false => held.holder == *host,
        };
        self.held.is_some_and(holds)
    }

    /// Whether it outlives a loss of power.
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// Whether it outlives a loss of power from now on; true if that is news.
    pub(crate) fn persist(&mut self, persists: bool) -> bool {
        std::mem::replace(&mut self.is_persistent, persists) != persists
    }

    /// What Reservation Report tells.
    pub(crate) fn status(&self) -> ReservationStatus {
        let registrant = |(host, &key): (&HostId, &u64)| Registrant {
            host: *host,
            key,
            holds: self.holds(host),
        };
        ReservationStatus {
            generation: self.generation,
            kind: self.held.map(|held| held.kind),
            is_persistent: self.is_persistent,
            registrants: self.keys.iter().map(registrant).collect(),
        }
    }

    /// Does what a host asks for; nothing is changed by what is refused.
    pub(crate) fn execute(&mut self, host: HostId, ask: Ask) -> Result<News, Status> {
        let mut news = News::default();
        match ask {
            Ask::Register {
                action,
                ignores_key,
                persistence,
                current,
                new,
            } => {
                let current = (!ignores_key).then_some(current);
                // Zero names none: its host's reservation could not be preempted. Earlier states may have it.
                if new == 0 && action != RegisterAction::Unregister {
                    return Err(Status::INVALID_FIELD.with_dnr());
                }
                match action {
                    RegisterAction::Register => self.register(host, new)?,
                    RegisterAction::Replace => self.replace(host, current, new)?,
                    RegisterAction::Unregister => self.unregister(host, current, &mut news)?,
                }
                self.generation = self.generation.wrapping_add(1);
                match persistence {
                    Persistence::Unchanged => {}
                    Persistence::Off => self.is_persistent = false,
                    Persistence::On => self.is_persistent = true,
                }
            }
            Ask::Acquire {
                action,
                kind,
                current,
                preempted,
            } => {
                self.check_key(host, current)?;
                match action {
                    AcquireAction::Acquire => self.acquire(host, kind)?,
                    AcquireAction::Preempt | AcquireAction::PreemptAndAbort => {
                        self.preempt(host, kind, preempted, &mut news)?;
                        if action == AcquireAction::Preempt {
                            news.ended.clear();
                        }
                    }
                }
            }
            Ask::Release {
                action,
                kind,
                current,
            } => {
                self.check_key(host, current)?;
                match action {
                    ReleaseAction::Release => self.release(host, kind, &mut news)?,
                    ReleaseAction::Clear => self.clear(host, &mut news),
                }
            }
        }
        Ok(news)
    }

    /// The host is registered with this key.
    fn check_key(&self, host: HostId, key: u64) -> Result<(), Status> {
        match self.keys.get(&host) == Some(&key) {
            true => Ok(()),
            false => Err(CONFLICT),
        }
    }

    fn register(&mut self, host: HostId, key: u64) -> Result<(), Status> {
        match self.keys.get(&host) {
            Some(&known) if known == key => Ok(()),
            Some(_) => Err(CONFLICT),
            None if self.keys.len() >= MOST_REGISTRANTS => Err(Status::INTERNAL_ERROR.with_dnr()),
            None => {
                self.keys.insert(host, key);
                Ok(())
            }
        }
    }

    /// The host's registration, if it knows its key, or need not.
    fn own(&mut self, host: HostId, current: Option<u64>) -> Result<&mut u64, Status> {
        let key = self.keys.get_mut(&host).ok_or(CONFLICT)?;
        match current.is_none_or(|current| current == *key) {
            true => Ok(key),
            false => Err(CONFLICT),
        }
    }

    fn replace(&mut self, host: HostId, current: Option<u64>, new: u64) -> Result<(), Status> {
        *self.own(host, current)? = new;
        Ok(())
    }

    fn unregister(
        &mut self,
        host: HostId,
        current: Option<u64>,
        news: &mut News,
    ) -> Result<(), Status> {
        self.own(host, current)?;
        let held = self.held.filter(|_| self.holds(&host));
        self.keys.remove(&host);
        if let Some(held) = held
            && (!held.kind.is_of_all() || self.keys.is_empty())
        {
            self.held = None;
            self.tell_released(host, held.kind, news);
        }
        Ok(())
    }

    fn acquire(&mut self, host: HostId, kind: ReservationType) -> Result<(), Status> {
        match self.held {
            None => {
                self.held = Some(Held { kind, holder: host });
                Ok(())
            }
            Some(held) if held.kind == kind && self.holds(&host) => Ok(()),
            Some(_) => Err(CONFLICT),
        }
    }

    fn preempt(
        &mut self,
        host: HostId,
        kind: ReservationType,
        key: u64,
        news: &mut News,
    ) -> Result<(), Status> {
        let takes = match self.held {
            Some(held) if held.kind.is_of_all() => key == 0,
            Some(_) if key == 0 => return Err(Status::INVALID_FIELD.with_dnr()),
            Some(held) => self.keys.get(&held.holder) == Some(&key),
            None => false,
        };
        let is_meant = |(other, its): (&HostId, &u64)| match takes && key == 0 {
            true => *other != host,
            false => *its == key,
        };
        let mut losers: Vec<HostId> = self
            .keys
            .iter()
            .filter(|one| is_meant(*one))
            .map(|(id, _)| *id)
            .collect();
        if losers.is_empty() && !takes {
            return Err(CONFLICT);
        }
        let before = self.held.filter(|_| takes);
        // A host that preempts itself stays registered.
        losers.retain(|other| !takes || *other != host);
        for loser in &losers {
            let held_it = before.is_some() && self.holds(loser);
            if *loser != host {
                let what = match held_it {
                    true => Notification::ReservationPreempted,
                    false => Notification::RegistrationPreempted,
                };
                news.told.push((*loser, what));
                news.ended.push(*loser);
            }
        }
        self.keys.retain(|other, _| !losers.contains(other));
        if takes {
            self.held = Some(Held { kind, holder: host });
            if let Some(before) = before
                && before.kind != kind
            {
                self.tell_released(host, before.kind, news);
            }
        } else if self.held.is_some_and(|held| held.kind.is_of_all()) && self.keys.is_empty() {
            self.held = None;
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    fn release(&mut self, host: HostId, kind: u8, news: &mut News) -> Result<(), Status> {
        let Some(held) = self.held.filter(|_| self.holds(&host)) else {
            return Ok(());
        };
        if held.kind as u8 != kind {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        self.held = None;
        self.tell_released(host, held.kind, news);
        Ok(())
    }

    fn clear(&mut self, host: HostId, news: &mut News) {
        let what = match self.held.take() {
            Some(_) => Notification::ReservationPreempted,
            None => Notification::RegistrationPreempted,
        };
        let others = self.keys.keys().filter(|other| **other != host);
        news.told.extend(others.map(|other| (*other, what)));
        self.keys.clear();
        self.generation = self.generation.wrapping_add(1);
    }

    /// Registrants that could use the reservation are told that it is gone.
    fn tell_released(&self, by: HostId, kind: ReservationType, news: &mut News) {
        if !kind.is_of_one() {
            let others = self.keys.keys().filter(|other| **other != by);
            news.told
                .extend(others.map(|other| (*other, Notification::ReservationReleased)));
        }
    }

    /// Its form in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.generation.to_le_bytes());
        bytes[12] = self.held.map_or(0, |held| held.kind as u8);
        bytes[13] = u8::from(self.is_persistent);
        bytes[14..16].copy_from_slice(&(self.keys.len() as u16).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.held.map_or([0; 16], |held| held.holder));
        for (host, key) in &self.keys {
            bytes.extend_from_slice(host);
            bytes.extend_from_slice(&key.to_le_bytes());
        }
        bytes
    }

    /// The table whose form these bytes begin with; all behind it are zero.
    ///
    /// # Errors
    /// The bytes have another form.
    pub fn decode_padded(bytes: &[u8]) -> Result<Self, TableError> {
        let header = bytes
            .first_chunk::<HEADER>()
            .ok_or(TableError("too short"))?;
        let count = usize::from(u16::from_le_bytes([header[14], header[15]]));
        let (own, rest) = bytes
            .split_at_checked(HEADER + count * ENTRY)
            .ok_or(TableError("more registrants than there is room for"))?;
        match rest.iter().all(|&byte| byte == 0) {
            true => Self::decode(own),
            false => Err(TableError("something behind its end")),
        }
    }

    /// The table of this form.
    ///
    /// # Errors
    /// The bytes have another form.
    pub fn decode(bytes: &[u8]) -> Result<Self, TableError> {
        let (header, rest) = bytes
            .split_first_chunk::<HEADER>()
            .ok_or(TableError("too short"))?;
        if header[..8] != *MAGIC {
            return Err(TableError("another format, or another version of it"));
        }
        let (entries, rest) = rest.as_chunks::<ENTRY>();
        let count = usize::from(u16::from_le_bytes([header[14], header[15]]));
        if entries.len() != count || !rest.is_empty() || count > MOST_REGISTRANTS {
            return Err(TableError("another number of registrants than is said"));
        }
        let mut table = Self {
            generation: u32::from_le_bytes([header[8], header[9], header[10], header[11]]),
            is_persistent: header[13] != 0,
            ..Self::default()
        };
        for entry in entries {
            let (host, key) = entry
                .split_first_chunk::<16>()
                .ok_or(TableError("too short"))?;
            let key = u64::from_le_bytes(key.try_into().map_err(|_| TableError("too short"))?);
            table.keys.insert(*host, key);
        }
        if header[12] != 0 {
            let kind =
                ReservationType::from_byte(header[12]).ok_or(TableError("an unknown type"))?;
            let mut holder = [0; 16];
            holder.copy_from_slice(&header[16..]);
            if !kind.is_of_all() && !table.keys.contains_key(&holder) {
                return Err(TableError("a holder that is not registered"));
            }
            table.held = Some(Held { kind, holder });
        }
        Ok(table)
    }
}
