//! A write's way in, unit by unit of 64 KiB. Where it covers whole slots of a unit and nothing else, it
//! goes to fresh space past the ring; the rest goes into the ring. So whatever a write does in a
//! unit is in one record, or in records of one batch, and happens as a whole.

mod admit;
mod bypass;

use std::collections::VecDeque;
use std::ops::Range;

use ashlar_block::{ErrorKind, IoError, Request};
use slab::Slab;

use super::access::Access;
use super::access::locks::SlotKey;
use super::base::Base;
use super::identity::Identity;
use super::invariant::invariant;
use super::journal::logs::Logs;
use super::journal::{Journal, Staged};
use super::map::{Map, leaf_id};
use super::mending;
use super::rebuild::Rebuild;
use super::reservations::reserving::Reserving;
use super::space::Space;
use super::tier::{self, Tiers};
use super::volumes::VolumeTable;
use super::waiting::admission::Admission;
use crate::ReplicaTag;
use crate::format::PageId;
use crate::sizes::{GRANULE, Grain, LEAF_GRANULES, UNIT_GRANULES};
pub(super) use admit::Outlook;
use bypass::BypassOp;

/// Hosts' writes that have no answer yet.
#[derive(Default)]
pub(super) struct Writes {
    ops: Slab<WriteOp>,
    /// Parts of them that go past the ring.
    bypasses: Slab<BypassOp>,
    /// Those that wait to be let in.
    queue: Admission,
    /// What follows from their steps for others.
    next: VecDeque<Next>,
}

/// What is to be done next for a write.
pub(super) enum Next {
    /// A page of the map is wanted, for one that is to be let in.
    Load(PageId),
    /// A slot is locked no more.
    Unlock(SlotKey),
}

/// A write that comes.
pub(super) struct Write {
    pub(super) volume: u32,
    pub(super) request: Request,
    pub(super) tag: Option<ReplicaTag>,
}

/// What the steps of writes may use.
pub(super) struct Around<'a> {
    pub(super) base: &'a mut Base,
    pub(super) identity: &'a Identity,
    pub(super) space: &'a mut Space,
    pub(super) volumes: &'a VolumeTable,
    pub(super) tiers: &'a mut Tiers,
    pub(super) journal: &'a mut Journal,
    pub(super) logs: &'a mut Logs,
    pub(super) map: &'a mut Map,
    pub(super) access: &'a mut Access,
    pub(super) rebuild: &'a Rebuild,
}

impl Around<'_> {
    fn reserving(&mut self) -> Reserving<'_> {
        Reserving {
            base: self.base,
            space: self.space,
            volumes: self.volumes,
            journal: self.journal,
            logs: self.logs,
            map: self.map,
        }
    }

    fn tiers(&mut self) -> (&mut Tiers, tier::Around<'_>) {
        let around = tier::Around {
            base: self.base,
            volumes: self.volumes,
            space: self.space,
            map: self.map,
        };
        (self.tiers, around)
    }

    fn mending(&mut self) -> mending::Around<'_> {
        mending::Around {
            base: self.base,
            identity: self.identity,
            space: self.space,
            logs: self.logs,
            map: self.map,
            rebuild: self.rebuild,
        }
    }
}

/// A host's write.
struct WriteOp {
    volume: u32,
    serial: u64,
    tag: Option<ReplicaTag>,
    request: Request,
    /// Parts that are not published yet.
    parts: usize,
    /// A part found no drive to be written to.
    failed: bool,
    /// Its leaves are pinned: it waits for some of them, or is on its way.
    pinned: bool,
    /// Leaves that were not there when it came, and that it counts on.
    held: Vec<PageId>,
}

impl WriteOp {
    /// What it is, in words.
    fn describe(&self) -> String {
        let Self {
            volume, request, ..
        } = self;
        format!(
            "volume {volume} granules {}+{}",
            request.range.start.0, request.range.count
        )
    }

    /// Its granules.
    fn range(&self) -> Range<u64> {
        let first = self.request.range.start.0;
        first..first + u64::from(self.request.range.count)
    }

    fn bytes(&self) -> &[u8] {
        self.request.buffer.as_deref().unwrap_or(&[])
    }
}

/// Granules of one unit, or of one slot, that a request covers.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) first: u64,
    pub(super) granules: u16,
}

impl Piece {
    pub(super) fn range(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.granules)
    }
}

/// A range of granules, unit by unit.
fn pieces(range: Range<u64>) -> impl Iterator<Item = Piece> {
    let units = Grain::K64.slots_of(range.clone());
    units.map(move |unit| {
        let first = range.start.max(unit * UNIT_GRANULES);
        let end = range.end.min((unit + 1) * UNIT_GRANULES);
        Piece {
            first,
            granules: (end - first) as u16,
        }
    })
}

impl Writes {
    /// A write comes; commands that came before have smaller serial numbers.
    pub(super) fn begin(&mut self, serial: u64, write: Write) {
        let Write {
            volume,
            request,
            tag,
        } = write;
        let op = self.ops.insert(WriteOp {
            volume,
            serial,
            tag,
            request,
            parts: 0,
            failed: false,
            pinned: false,
            held: Vec::new(),
        });
        self.queue.push(volume, serial, op);
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Those that wait to be let in.
    pub(super) const fn queue(&self) -> &Admission {
        &self.queue
    }

    /// The first of those that wait, in words.
    pub(super) fn describe_first(&self) -> String {
        let first = self.queue.fronts().next();
        let first = first.and_then(|op| self.ops.get(op));
        first.map_or_else(|| "none".into(), WriteOp::describe)
    }

    /// What is to be done next.
    pub(super) fn take_next(&mut self) -> Option<Next> {
        self.next.pop_front()
    }

    /// The bytes of a write from this one on; none if there is no such write.
    pub(super) fn bytes_from(&self, op: usize, offset: usize) -> Option<&[u8]> {
        Some(&self.ops.get(op)?.bytes()[offset..])
    }

    /// What makes a write a record of a replicated volume.
    pub(super) fn tag(&self, op: usize) -> Option<ReplicaTag> {
        self.ops.get(op)?.tag
    }

    /// Whether a write of a volume that came before this one has no answer yet.
    pub(super) fn has_older(&self, volume: u32, serial: u64) -> bool {
        let mut writes = self.ops.iter();
        writes.any(|(_, write)| write.volume == volume && write.serial < serial)
    }

    /// The write is let in.
    fn start(&mut self, op: usize, bypass: bool, around: &mut Around<'_>) {
        let Some(write) = self.ops.get_mut(op) else {
            return invariant!(around.base, "write {op} was let in, but is not there");
        };
        let (volume, range) = (write.volume, write.range());
        if !std::mem::replace(&mut write.pinned, true) {
            around.map.pin(volume, range.clone());
        }
        write.held = hold_leaves(volume, range.clone(), around.map);
        let (tiers, mut of_tiers) = around.tiers();
        tiers.written(volume, range.clone(), &mut of_tiers);
        let grain = around.map.grain(volume);
        // Only at its ends can a write cover a part of a slot: what is whole is in one piece.
        let is_whole = |piece: &Piece| bypass && grain.divides(&piece.range());
        let (whole, rest): (Vec<Piece>, Vec<Piece>) = pieces(range.clone()).partition(is_whole);
        write.parts = rest.len() + usize::from(!whole.is_empty());
        let offset = |first: u64| (first - range.start) as usize * GRANULE;
        for piece in rest {
            for slot in grain.slots_of(piece.range()) {
                let key = SlotKey { volume, slot };
                around.reserving().reserve_if_needed(key);
            }
            around.journal.stage_piece(Staged {
                op,
                volume,
                first: piece.first,
                granules: piece.granules,
                offset: offset(piece.first),
            });
        }
        if let (Some(first), Some(last)) = (whole.first(), whole.last()) {
            let slots = grain.slots_of(first.first..last.range().end);
            self.begin_bypass(op, slots, offset(first.first), around);
        }
    }

    /// A part of a write is durable and published, or has failed.
    pub(super) fn part_done(&mut self, op: usize, around: &mut Around<'_>) {
        let Some(write) = self.ops.get_mut(op) else {
            return invariant!(
                around.base,
                "a part of write {op} is done, but it is not there"
            );
        };
        let Some(left) = write.parts.checked_sub(1) else {
            return invariant!(around.base, "write {op} has more parts done than it has");
        };
        write.parts = left;
        if left > 0 {
            return;
        }
        let result = if write.failed {
            let why = format!("volume {}: no drive is left for a slot", write.volume);
            Err(IoError::new(ErrorKind::Media, why))
        } else {
            Ok(())
        };
        self.end(op, result, around);
    }

    fn end(&mut self, op: usize, result: Result<(), IoError>, around: &mut Around<'_>) {
        let Some(write) = self.ops.try_remove(op) else {
            return invariant!(around.base, "write {op} has ended twice");
        };
        if write.pinned {
            around.map.unpin(write.volume, write.range());
        }
        for leaf in write.held {
            around.map.let_go(leaf);
        }
        around.base.complete(write.request, result);
    }

    /// The engine has stopped: all of them fail.
    pub(super) fn fail(&mut self, why: &str, around: &mut Around<'_>) {
        self.queue.clear();
        let all: Vec<usize> = self.ops.iter().map(|(op, _)| op).collect();
        for op in all {
            let error = IoError::new(ErrorKind::Latched, why.to_owned());
            self.end(op, Err(error), around);
        }
    }
}

/// Counts on the leaves of a range of granules that are not there yet, until the write is done.
fn hold_leaves(volume: u32, range: Range<u64>, map: &mut Map) -> Vec<PageId> {
    let leaves = range.start / LEAF_GRANULES..range.end.div_ceil(LEAF_GRANULES);
    let leaves = leaves.map(|leaf| leaf_id(volume, leaf));
    let held: Vec<PageId> = leaves.filter(|&leaf| !map.has_page(leaf)).collect();
    for &leaf in &held {
        map.hold(leaf);
    }
    held
}
