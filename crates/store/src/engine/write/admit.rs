//! Which writes are let in: those whose slots have homes, or for which space can be reserved.

use std::collections::BTreeSet;
use std::ops::Range;

use ashlar_block::{ErrorKind, IoError};

use super::{Around, Next, WriteOp, Writes, pieces};
use crate::engine::access::locks::SlotKey;
use crate::engine::checkpoint::Checkpoint;
use crate::engine::class::Class;
use crate::engine::clear::Clears;
use crate::engine::drives::media::full;
use crate::engine::invariant::invariant;
use crate::engine::space::Space;
use crate::engine::state::Retired;
use crate::engine::volumes::VolumeTable;
use crate::engine::waiting::admission::Wanting;
use crate::format::LogId;
use crate::sizes::{Grain, LEAF_GRANULES, UNIT_GRANULES};

/// From so many writes under way on, and with the ring so full, small whole slots go past the ring.
const BUSY_WRITES: usize = 4;
const BUSY_RING: f64 = 0.5;

/// Writes behind the first of a volume whose leaves are loaded together with its own.
const AHEAD: usize = 64;

/// Where space for writes may come from that is not there yet, and what places take, beside what all steps of writes use.
pub(in crate::engine) struct Outlook<'a> {
    pub(in crate::engine) clears: &'a Clears,
    pub(in crate::engine) checkpoint: &'a mut Checkpoint,
    /// Copies that pages of the map should have.
    pub(in crate::engine) copies: usize,
}

/// What becomes of a volume's first write that waits.
enum Verdict {
    Go {
        bypass: bool,
    },
    Wait,
    Load,
    NoSpace,
    /// A copy is missing, and the volume is set to stop then.
    Stopped(IoError),
    /// The volume was deleted, or made smaller, since it came.
    OutOfRange,
}

impl WriteOp {
    /// Most slots that it may need, if they have this grain.
    fn slots(&self, grain: Grain) -> u64 {
        let slots = grain.slots_of(self.range());
        slots.end - slots.start
    }
}

impl Writes {
    /// Lets in what may come in: of each volume in order, and of all, who waits longest first.
    pub(in crate::engine) fn admit(&mut self, outlook: &mut Outlook<'_>, around: &mut Around<'_>) {
        let mut wanting = Wanting::default();
        for volume in self.queue.volumes() {
            while self.admit_next(volume, &mut wanting, outlook, around) {}
        }
    }

    /// Whether the first write of a volume waits no more.
    fn admit_next(
        &mut self,
        volume: u32,
        wanting: &mut Wanting,
        outlook: &mut Outlook<'_>,
        around: &mut Around<'_>,
    ) -> bool {
        let Some(op) = self.queue.front(volume) else {
            return false;
        };
        let Some(write) = self.ops.get(op) else {
            invariant!(around.base, "write {op} waits, but is not there");
            return false;
        };
        let range = write.range();
        let refusal = match self.admission_check(volume, range, wanting, outlook, around) {
            Verdict::Wait => return false,
            Verdict::Load => {
                self.load_for_waiting(volume, around);
                return false;
            }
            Verdict::Go { bypass } => {
                self.queue.pop(volume);
                self.start(op, bypass, around);
                return true;
            }
            Verdict::NoSpace => {
                let media = around.volumes.class_of(volume);
                let media = media.and_then(|class| class.media);
                let why = format!("volume {volume}: {}", full(media));
                IoError::new(ErrorKind::NoSpace, why)
            }
            Verdict::Stopped(why) => why,
            Verdict::OutOfRange => {
                let why = format!("volume {volume} was deleted or made smaller");
                IoError::new(ErrorKind::OutOfRange, why)
            }
        };
        self.queue.pop(volume);
        self.end(op, Err(refusal), around);
        true
    }

    /// Loads what the next writes in the queue will need, so that they do not wait one after another.
    /// What is here of it stays until they are done.
    fn load_for_waiting(&mut self, volume: u32, around: &mut Around<'_>) {
        for op in self.queue.first(volume, AHEAD) {
            let Some(write) = self.ops.get_mut(op) else {
                continue;
            };
            if std::mem::replace(&mut write.pinned, true) {
                continue;
            }
            let range = write.range();
            around.map.pin(volume, range.clone());
            let missing = around.map.missing_leaves(volume, range);
            self.next.extend(missing.into_iter().map(Next::Load));
        }
    }

    fn admission_check(
        &self,
        volume: u32,
        range: Range<u64>,
        wanting: &mut Wanting,
        outlook: &mut Outlook<'_>,
        around: &mut Around<'_>,
    ) -> Verdict {
        let (first, end) = (range.start, range.end);
        if around.volumes.end(volume).is_none_or(|last| last < end) {
            return Verdict::OutOfRange;
        }
        if let Some(why) = around.volumes.stop_error(volume) {
            return Verdict::Stopped(why);
        }
        let Some(class) = around.volumes.class_of(volume) else {
            invariant!(
                around.base,
                "volume {volume} takes writes, but has no homes"
            );
            return Verdict::Wait;
        };
        let bypass = !self.is_better_in_ring(end - first, around);
        let (mut fresh, mut whole) = (0, 0);
        for piece in pieces(first..end) {
            let slots = class.grain.slots_of(piece.range());
            // A unit is inside one leaf.
            if around.map.location(volume, slots.start).is_none() {
                return Verdict::Load;
            }
            match bypass && class.grain.divides(&piece.range()) {
                true => whole += slots.end - slots.start,
                false => fresh += around.without_homes(volume, slots),
            }
        }
        let leaves = first / LEAF_GRANULES..end.div_ceil(LEAF_GRANULES);
        let pages = around.map.pages_for(volume, leaves);
        // Who came earlier has the first claim on what is free.
        let behind = fresh + whole > 0 && wanting.slots.contains(&class);
        if behind || pages > 0 && wanting.places || whole > 0 && wanting.bypass {
            return Verdict::Wait;
        }
        let room = around.space.spare_slots(class);
        let fits = fresh + whole <= room;
        if fits
            && !around
                .space
                .has_places_for(around.map, pages, outlook.copies)
        {
            if !self.more_places_may_come(outlook, around) {
                return Verdict::NoSpace;
            }
            wanting.places = true;
            return Verdict::Wait;
        }
        if fits {
            // A map log that is filling up is destage's until a checkpoint has emptied it.
            let is_full =
                || around.logs.is_map_busy() || around.base.is_short_of_memory(around.logs);
            if whole > 0 && is_full() {
                wanting.bypass = true;
                return Verdict::Wait;
            }
            return Verdict::Go { bypass };
        }
        if self.more_slots_may_come(class, outlook.clears, around) {
            wanting.slots.insert(class);
            return Verdict::Wait;
        }
        // No room to write whole slots elsewhere: what has a home can still go through the ring.
        if around.without_homes(volume, class.grain.slots_of(first..end)) <= room {
            Verdict::Go { bypass: false }
        } else {
            Verdict::NoSpace
        }
    }

    /// Whether a write of so many granules takes the ring although it may cover whole slots. Past the
    /// ring it takes two durable steps, one after the other, and fewer bytes. So a small one goes
    /// into a ring that takes it at once, as long as there are few of them.
    fn is_better_in_ring(&self, granules: u64, around: &Around<'_>) -> bool {
        let logs = &around.logs;
        let at_once = !logs.is_appending(LogId::Ring) && logs.fill(LogId::Ring) < BUSY_RING;
        granules < UNIT_GRANULES && at_once && self.ops.len() < BUSY_WRITES
    }

    /// Whether slots of this class are on their way or can be made.
    fn more_slots_may_come(&self, class: Class, clears: &Clears, around: &Around<'_>) -> bool {
        let space = &around.space;
        let is_it = |volume| around.volumes.class_of(volume) == Some(class);
        space.segments.is_coming(class)
            || space.growth(class) > 0
            || around
                .access
                .retires(|what| matches!(what, Retired::Slot(_)))
            || self.supersede_any_of(class, around)
            || clears.may_begin_any(self, is_it)
            || space.upkeep.is_giving_back()
            || space.is_reopening()
            || around.rebuild.returns().is_busy() && space.has_closed_segments(class)
    }

    /// Whether places may be found that are not there yet.
    fn more_places_may_come(&self, outlook: &mut Outlook<'_>, around: &Around<'_>) -> bool {
        if around.map.has_emptied_leaves() {
            // They have their places until a checkpoint leaves them out.
            outlook.checkpoint.clear_remains();
            return true;
        }
        outlook.checkpoint.is_under_way()
            || around.space.upkeep.is_giving_back()
            || around
                .access
                .retires(|what| matches!(what, Retired::Slot(_)))
            || outlook.clears.may_begin_any(self, |_| true)
    }

    /// The classes of which writes that wait need more slots than there are.
    pub(in crate::engine) fn short_of(
        &self,
        volumes: &VolumeTable,
        space: &Space,
    ) -> BTreeSet<Class> {
        let short = |op: usize| {
            let write = self.ops.get(op)?;
            let class = volumes.class_of(write.volume)?;
            (write.slots(class.grain) > space.spare_slots(class)).then_some(class)
        };
        self.queue.fronts().filter_map(short).collect()
    }
}

impl Around<'_> {
    /// How many of these slots have neither a home nor the reservation of one. Their leaves are here.
    fn without_homes(&self, volume: u32, slots: Range<u64>) -> u64 {
        let unhomed = slots.filter(|&slot| {
            let key = SlotKey { volume, slot };
            self.space.needs_home(self.map, key) && !self.space.reservations.has(key)
        });
        unhomed.count() as u64
    }
}
