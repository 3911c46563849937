//! The commands of one queue pair, by slot; a command identifier is a slot and its generation, so
//! that a late or repeated answer is told from the answer to the slot's next command.

use ashlar_block::{IoBuffer, Moment};
use ashlar_nvme::{Command, Completion};

use super::{Data, Submission};

/// A part of a write that the controller has asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub request: ashlar_nvme::pdu::R2t,
    /// Bytes of it already handed to a batch.
    pub done: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    None,
    ToHost,
    InCapsule,
    OnRequest,
}

#[derive(Debug)]
pub(super) struct Slot {
    generation: u16,
    busy: bool,
    pub user: u64,
    pub command: Command,
    pub flow: Flow,
    /// At home, or lent to a batch or a receive.
    pub buffer: Option<IoBuffer>,
    /// Bytes the command moves in all.
    pub len: u32,
    /// Bytes received, or asked for by R2T.
    pub moved: u32,
    pub wanted: Option<Wanted>,
    /// Part of a batch that is being sent.
    pub lent: bool,
    /// The command capsule was handed to a batch.
    pub sent: bool,
    /// LAST was seen.
    pub all_data: bool,
    /// A data digest did not match.
    pub corrupt: bool,
    /// The answer, while the buffer is still lent.
    pub answer: Option<Completion>,
    issued: Option<Moment>,
}

impl Slot {
    fn idle() -> Self {
        Self {
            generation: 0,
            busy: false,
            user: 0,
            command: Command::default(),
            flow: Flow::None,
            buffer: None,
            len: 0,
            moved: 0,
            wanted: None,
            lent: false,
            sent: false,
            all_data: false,
            corrupt: false,
            answer: None,
            issued: None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    slot_bits: u32,
}

impl Slots {
    /// Slots for `depth` commands, 1 to 1024: at least six bits of generation are left.
    pub(super) fn new(depth: u16) -> Self {
        let depth = depth.clamp(1, 1024);
        Self {
            slots: (0..depth).map(|_| Slot::idle()).collect(),
            free: (0..depth).rev().collect(),
            slot_bits: u32::from(depth).next_power_of_two().trailing_zeros(),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn get(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    /// Fills a free slot; gives the submission back if there is none.
    pub(super) fn fill(&mut self, now: Moment, new: Submission) -> Result<u16, Submission> {
        let Some(index) = self.free.pop() else {
            return Err(new);
        };
        let cid = self.next_cid(index);
        let slot = self.get(index);
        let (flow, buffer) = match new.data {
            Data::None => (Flow::None, None),
            Data::ToHost(buffer) => (Flow::ToHost, Some(buffer)),
            Data::ToController(buffer) => (Flow::OnRequest, Some(buffer)),
        };
        *slot = Slot {
            generation: slot.generation,
            busy: true,
            user: new.user,
            command: new.command.with_cid(cid),
            flow,
            len: buffer.as_ref().map_or(0, |buffer| buffer.len() as u32),
            buffer,
            issued: new.timed.then_some(now),
            ..Slot::idle()
        };
        Ok(index)
    }

    /// The next generation's identifier; FFFFh is left out, as the specification advises.
    fn next_cid(&mut self, index: u16) -> u16 {
        let generations = (1u32 << (16 - self.slot_bits)) - 1;
        let bits = self.slot_bits;
        let slot = self.get(index);
        loop {
            slot.generation = ((u32::from(slot.generation) + 1) & generations) as u16;
            let cid = slot.generation << bits | index;
            if cid != u16::MAX {
                return cid;
            }
        }
    }

    /// The slot of a command that was sent and not yet answered.
    pub(super) fn find(&mut self, cid: u16) -> Option<(u16, &mut Slot)> {
        let index = cid & ((1u32 << self.slot_bits) - 1) as u16;
        let slot = self.slots.get_mut(usize::from(index))?;
        let current = slot.busy && slot.sent && slot.answer.is_none();
        (current && slot.command.cid.get() == cid).then_some((index, slot))
    }

    /// Empties a slot and gives its buffer.
    pub(super) fn release(&mut self, index: u16) -> (u64, Option<IoBuffer>) {
        let slot = self.get(index);
        slot.busy = false;
        let content = (slot.user, slot.buffer.take());
        self.free.push(index);
        content
    }

    /// The oldest command that is timed: its opcode and when it was submitted.
    pub(super) fn oldest(&self) -> Option<(&Command, Moment)> {
        self.slots
            .iter()
            .filter(|slot| slot.busy)
            .filter_map(|slot| Some((&slot.command, slot.issued?)))
            .min_by_key(|(_, issued)| *issued)
    }

    /// The slots in use.
    pub(super) fn busy(&self) -> impl Iterator<Item = u16> + '_ {
        let busy = self.slots.iter().enumerate().filter(|(_, slot)| slot.busy);
        busy.map(|(index, _)| index as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission(user: u64) -> Submission {
        Submission {
            user,
            command: Command::keep_alive(),
            data: Data::None,
            timed: true,
        }
    }

    #[test]
    fn identifiers_differ_between_generations_and_are_never_all_ones() {
        for depth in [1, 3, 128, 1024] {
            let mut slots = Slots::new(depth);
            let mut seen = Vec::new();
            for user in 0..70 {
                let index = slots.fill(Moment::ORIGIN, submission(user)).expect("room");
                let slot = slots.get(index);
                slot.sent = true;
                let cid = slot.command.cid.get();
                assert_ne!(cid, u16::MAX);
                if user < 60 {
                    assert!(!seen.contains(&cid), "depth {depth}, {cid:#x} again");
                }
                seen.push(cid);
                assert!(slots.find(cid).is_some());
                assert_eq!(slots.release(index).0, user);
                assert!(slots.find(cid).is_none(), "a late answer finds nothing");
            }
        }
    }

    #[test]
    fn a_full_queue_gives_the_submission_back() {
        let mut slots = Slots::new(2);
        let at = Moment::from_nanos;
        assert!(slots.fill(at(5), submission(1)).is_ok());
        assert!(slots.fill(at(3), submission(2)).is_ok());
        assert_eq!(slots.fill(at(1), submission(3)).map_err(|s| s.user), Err(3));
        assert_eq!(slots.oldest().map(|(_, issued)| issued), Some(at(3)));
        assert_eq!((slots.outstanding(), slots.has_room()), (2, false));
    }
}
