use std::time::Duration;

use ashlar_block::{IoBuffer, Label, Moment};
use ashlar_nvme::{Command, Status};

use crate::io::Transfer;

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The slot is unused.
    Free,
    /// Its data is arriving, in the capsule or after an R2T.
    Receiving,
    /// It waits for a buffer.
    Starved,
    /// A device has it.
    Executing,
    /// An asynchronous event request without an event, or a Connect that must wait.
    Parked,
    /// Done; its response waits for room in the output.
    Responding,
}

/// One outstanding command.
pub(crate) struct Slot {
    pub(crate) stage: Stage,
    pub(crate) command: Command,
    /// How old it may be, if its namespace's device wants to know.
    pub(crate) label: Option<Label>,
    /// Bytes of its connection's share that it holds.
    pub(crate) held: usize,
    /// The data it moves, and which way.
    pub(crate) transfer: Transfer,
    /// Bytes received from the host so far.
    pub(crate) received: usize,
    /// Its data: from the host, or for the host.
    pub(crate) buffer: Option<IoBuffer>,
    /// What its execution needs beyond that.
    pub(crate) working: Option<IoBuffer>,
    /// An R2T was sent: the host owes data.
    pub(crate) solicited: bool,
    /// Since when, as far as a tick has seen, data has been asked for.
    asked: Option<Moment>,
    /// Bytes that its device requests move or look at.
    pub(crate) worked_bytes: usize,
    /// Device requests outstanding.
    pub(crate) requests: u16,
    /// What it will end with.
    pub(crate) status: Status,
    /// DW0 and DW1 of its completion.
    pub(crate) result: u64,
}

impl Slot {
    pub(crate) fn new(command: Command) -> Self {
        Self {
            stage: Stage::Receiving,
            command,
            label: None,
            held: 0,
            transfer: Transfer::None,
            received: 0,
            buffer: None,
            working: None,
            solicited: false,
            asked: None,
            worked_bytes: 0,
            requests: 0,
            status: Status::SUCCESS,
            result: 0,
        }
    }

    /// Keeps the first error.
    pub(crate) fn fail(&mut self, status: Status) {
        if self.status.is_success() {
            self.status = status;
        }
    }
}

/// The commands of one connection, by slot number.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    limit: usize,
}

impl Slots {
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// A slot for `command`; `None` when the host has sent more than its queue holds.
    pub(crate) fn take(&mut self, command: Command) -> Option<u16> {
        let slot = Slot::new(command);
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            return Some(index);
        }
        if self.slots.len() >= self.limit {
            return None;
        }
        self.slots.push(slot);
        u16::try_from(self.slots.len() - 1).ok()
    }

    /// Frees the slot and what it holds.
    pub(crate) fn release(&mut self, index: u16) {
        let slot = &mut self.slots[index as usize];
        slot.stage = Stage::Free;
        slot.buffer = None;
        slot.working = None;
        slot.solicited = false;
        self.free.push(index);
    }

    /// Whether some data has been asked for so long ago, and is not whole.
    pub(crate) fn has_neglected(&mut self, now: Moment, limit: Duration) -> bool {
        let mut asked = self.slots.iter_mut().filter(|slot| slot.solicited);
        asked.any(|slot| now.since(*slot.asked.get_or_insert(now)) > limit)
    }

    pub(crate) fn get_mut(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    /// A slot that a peer named: may be out of range or free.
    pub(crate) fn find(&mut self, index: u16) -> Option<&mut Slot> {
        self.slots
            .get_mut(index as usize)
            .filter(|slot| slot.stage != Stage::Free)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Slot)> {
        let used = |(_, slot): &(u16, &Slot)| slot.stage != Stage::Free;
        self.slots
            .iter()
            .enumerate()
            .map(|(i, slot)| (i as u16, slot))
            .filter(used)
    }
}
