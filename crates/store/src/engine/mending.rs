//! What is being made good: copies that are written again, slots that are put together from their columns,
//! strips that are read granule by granule.

use std::collections::VecDeque;

use ashlar_block::{IoBuffer, Request};
use slab::Slab;

use super::Owner;
use super::access::locks::SlotKey;
use super::base::{Base, To};
use super::identity::Identity;
use super::invariant::invariant;
use super::journal::logs::Logs;
use super::map::Map;
use super::parity::{For, Gather, Gathered, Wish};
use super::rebuild::Rebuild;
use super::salvage::{Salvage, Strip};
use super::space::Space;
use crate::sizes::UNIT_GRANULES;

/// Granules of slots that are being put together at a time; others wait.
const GRANULES: usize = 32 * UNIT_GRANULES as usize;

/// A granule being written again on the copies that were bad.
struct Repair {
    key: SlotKey,
    pending: usize,
}

/// What the making good of something may use.
pub(super) struct Around<'a> {
    pub(super) base: &'a mut Base,
    pub(super) identity: &'a Identity,
    pub(super) space: &'a mut Space,
    pub(super) logs: &'a mut Logs,
    pub(super) map: &'a Map,
    pub(super) rebuild: &'a Rebuild,
}

impl Around<'_> {
    /// Sends a request to a drive that is in service, or on its way back.
    pub(super) fn send(
        &mut self,
        drive: usize,
        owner: Owner,
        request: impl FnOnce(u64) -> Request,
    ) {
        let is_out = !self.rebuild.is_written(drive as u16, &self.space.drives);
        let to = To {
            drive,
            owner,
            is_out,
        };
        self.base.send(to, request);
    }

    pub(super) fn buffer(&mut self, bytes: usize) -> Option<IoBuffer> {
        self.base.buffer(self.logs, bytes)
    }
}

/// What is made, for the one that wants it.
pub(super) enum Made {
    /// A copy that a walk has asked for, as far as it can be read.
    Copy {
        job: usize,
        copy: usize,
        strip: Option<Strip>,
    },
    /// A slot is put together.
    Slot { who: For, found: Gathered },
}

/// All of it that is under way, and slots that wait to be put together.
#[derive(Default)]
pub(super) struct Mending {
    repairs: Slab<Repair>,
    gathers: Slab<Gather>,
    wishes: VecDeque<Wish>,
    salvages: Slab<Salvage>,
    /// Made, and not handed out yet.
    made: VecDeque<Made>,
}

impl Mending {
    /// Copies of a granule are written again, of a slot that is locked for it.
    pub(super) fn begin_repair(&mut self, key: SlotKey, copies: usize) -> usize {
        let pending = copies;
        self.repairs.insert(Repair { key, pending })
    }

    /// One of them is written, or its drive is out; returns the slot once all are.
    pub(super) fn repair_written(&mut self, id: usize, base: &mut Base) -> Option<SlotKey> {
        let Some(repair) = self.repairs.get_mut(id) else {
            invariant!(base, "copy {id} was mended, but was not to be");
            return None;
        };
        repair.pending -= 1;
        let is_over = repair.pending == 0;
        is_over.then(|| self.repairs.remove(id).key)
    }

    /// A slot that is wanted: it comes out of [`next_wish`](Self::next_wish).
    pub(super) fn wish(&mut self, wish: Wish) {
        self.wishes.push_back(wish);
    }

    /// The next slot to be put together, if few enough are.
    pub(super) fn next_wish(&mut self) -> Option<Wish> {
        let under_way: usize = self.gathers.iter().map(|(_, one)| one.granules()).sum();
        match under_way < GRANULES {
            true => self.wishes.pop_front(),
            false => None,
        }
    }

    pub(super) fn begin_gather(&mut self, gather: Gather) -> usize {
        self.gathers.insert(gather)
    }

    pub(super) fn gather(&self, id: usize) -> Option<&Gather> {
        self.gathers.get(id)
    }

    pub(super) fn gather_mut(&mut self, id: usize) -> Option<&mut Gather> {
        self.gathers.get_mut(id)
    }

    pub(super) fn end_gather(&mut self, id: usize) -> Option<Gather> {
        self.gathers.try_remove(id)
    }

    pub(super) fn has_made(&mut self, made: Made) {
        self.made.push_back(made);
    }

    /// What is to be handed out next.
    pub(super) fn next_made(&mut self) -> Option<Made> {
        self.made.pop_front()
    }

    pub(super) fn begin_salvage(&mut self, salvage: Salvage) -> usize {
        self.salvages.insert(salvage)
    }

    pub(super) fn salvage(&self, id: usize) -> Option<&Salvage> {
        self.salvages.get(id)
    }

    pub(super) fn salvage_mut(&mut self, id: usize) -> Option<&mut Salvage> {
        self.salvages.get_mut(id)
    }

    pub(super) fn end_salvage(&mut self, id: usize) -> Option<Salvage> {
        self.salvages.try_remove(id)
    }
}
