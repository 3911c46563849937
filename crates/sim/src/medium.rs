//! What the target's devices store, and a device over it that is slow and answers in any order.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use ashlar_block::{
    BlockDevice, BlockRange, Completion, Description, Durability, ErrorKind, Geometry, IoBuffer,
    IoError, Moment, Operation, Request,
};

use crate::chance::Chance;
use crate::profile::{Canary, DeviceShape};

/// A medium that outlives the processes that use it.
pub(crate) struct Medium {
    pub(crate) geometry: Geometry,
    live: Vec<u8>,
    /// What a power loss leaves, where there is a volatile cache.
    durable: Vec<u8>,
    shape: DeviceShape,
    pub(crate) canary: Option<Canary>,
    canaries: u32,
    /// Core and connection of closed connections, for [`Canary::NoDrain`].
    pub(crate) closed: BTreeSet<(usize, u32)>,
    /// Writes that a canary has acknowledged and not done.
    late: Vec<(Moment, BlockRange, Option<Vec<u8>>)>,
    /// Requests in devices.
    pub(crate) outstanding: usize,
}

/// A medium that its devices and the world share.
pub(crate) type Shared = Rc<RefCell<Medium>>;

impl Medium {
    pub(crate) fn new(geometry: Geometry, shape: DeviceShape, canary: Option<Canary>) -> Shared {
        let bytes = geometry.bytes() as usize;
        Rc::new(RefCell::new(Self {
            geometry,
            live: vec![0; bytes],
            durable: vec![0; bytes],
            shape,
            canary,
            canaries: 0,
            closed: BTreeSet::new(),
            late: Vec::new(),
            outstanding: 0,
        }))
    }

    /// The content of a block.
    pub(crate) fn block(&self, lba: u64) -> &[u8] {
        let bytes = self.geometry.block_size.bytes() as usize;
        let start = lba as usize * bytes;
        &self.live[start..start + bytes]
    }

    /// The power fails: of what was not durable, some blocks are lost.
    pub(crate) fn crash(&mut self, chance: &mut Chance) {
        let block = self.geometry.block_size.bytes() as usize;
        let lose = chance.pick(&[0, 100, 500, 1000]);
        for (live, durable) in self
            .live
            .chunks_mut(block)
            .zip(self.durable.chunks_mut(block))
        {
            if live != durable && chance.happens(lose) {
                live.copy_from_slice(durable);
            } else {
                durable.copy_from_slice(live);
            }
        }
    }

    /// Whether a canary sings now; it does so at most three times.
    fn sings(&mut self, canary: Canary, chance: &mut Chance) -> bool {
        let now = self.canary == Some(canary) && self.canaries < 3 && chance.happens(200);
        self.canaries += u32::from(now);
        now
    }

    fn put(&mut self, range: BlockRange, data: Option<&[u8]>, durable: bool) {
        let start = self.geometry.range_offset(range) as usize;
        let end = start + self.geometry.range_bytes(range);
        let durable = durable || !self.geometry.volatile_cache;
        for place in [Some(&mut self.live), durable.then_some(&mut self.durable)] {
            let Some(place) = place.and_then(|bytes| bytes.get_mut(start..end)) else {
                continue;
            };
            match data {
                Some(data) => place.copy_from_slice(data),
                None => place.fill(0),
            }
        }
    }

    fn get(&self, range: BlockRange, into: &mut IoBuffer) {
        let start = self.geometry.range_offset(range) as usize;
        let end = start + self.geometry.range_bytes(range);
        into.copy_from_slice(&self.live[start..end]);
    }

    fn flush(&mut self) {
        if self.canary != Some(Canary::IgnoredFlush) {
            self.durable.copy_from_slice(&self.live);
        }
    }

    /// Does what a canary has put off.
    pub(crate) fn catch_up(&mut self, now: Moment) {
        let mut due = std::mem::take(&mut self.late);
        due.retain(|(at, range, data)| {
            let later = *at > now;
            if !later {
                self.put(*range, data.as_deref(), false);
            }
            later
        });
        self.late.append(&mut due);
    }
}

struct Pending {
    request: Request,
    /// The first blocks take effect here, the others at `done_at`.
    first_at: Moment,
    first: u32,
    started: bool,
    done_at: Moment,
    fails: bool,
    zeroes: bool,
}

/// A device on one core.
pub(crate) struct SimDevice {
    medium: Shared,
    core: usize,
    chance: Chance,
    new: Vec<Request>,
    pending: Vec<Pending>,
}

impl SimDevice {
    pub(crate) fn new(medium: Shared, core: usize, chance: Chance) -> Self {
        Self {
            medium,
            core,
            chance,
            new: Vec::new(),
            pending: Vec::new(),
        }
    }

    fn plan(&mut self, now: Moment, request: Request) -> Pending {
        let shape = self.medium.borrow().shape;
        let slow = self.chance.happens(shape.slow_per_mille);
        let most = if slow { shape.slow } else { shape.time };
        let takes = self.chance.time(most);
        let share = self.chance.below(takes.as_nanos() as u64 + 1);
        Pending {
            first_at: Moment::from_nanos(now.as_nanos() + share),
            first: self.chance.below(u64::from(request.range.count) + 1) as u32,
            started: false,
            done_at: now + takes,
            fails: self.chance.happens(shape.fails_per_mille) && request.op != Operation::Flush,
            zeroes: self.chance.happens(500),
            request,
        }
    }

    /// Blocks `from` to `to` of a request take effect.
    fn apply(&self, medium: &mut Medium, pending: &Pending, from: u32, to: u32) {
        if from >= to {
            return;
        }
        let whole = pending.request.range;
        let range = BlockRange::new(whole.start.0 + u64::from(from), to - from);
        let bytes = |blocks: u32| (blocks as usize) << medium.geometry.block_size.shift();
        match pending.request.op {
            Operation::Write(durability) => {
                let data = pending.request.buffer.as_deref();
                let data = data.and_then(|data| data.get(bytes(from)..bytes(to)));
                medium.put(range, data, durability == Durability::Durable);
            }
            Operation::WriteZeroes { durability, .. } => {
                medium.put(range, None, durability == Durability::Durable);
            }
            Operation::Deallocate if pending.zeroes => medium.put(range, None, false),
            _ => {}
        }
    }

    fn finish(&mut self, now: Moment, mut pending: Pending) -> Option<Completion> {
        let shared = self.medium.clone();
        let medium = &mut *shared.borrow_mut();
        medium.outstanding -= 1;
        let write = pending.request.op.modifies();
        if pending.fails {
            let error = IoError::new(ErrorKind::Media, "a fault of the simulation");
            return Some(pending.request.complete(Err(error)));
        }
        if write && medium.sings(Canary::EarlyAck, &mut self.chance) {
            medium
                .late
                .push((now + SOON, pending.request.range, copy(&pending.request)));
            return Some(pending.request.complete(Ok(())));
        }
        if write && medium.sings(Canary::WrongPlace, &mut self.chance) {
            pending.request.range.start.0 = pending.request.range.start.0.saturating_sub(1);
        }
        let from = if pending.started { pending.first } else { 0 };
        self.apply(medium, &pending, from, pending.request.range.count);
        match pending.request.op {
            Operation::Flush => medium.flush(),
            Operation::Read => {
                if let Some(buffer) = &mut pending.request.buffer {
                    medium.get(pending.request.range, buffer);
                }
            }
            _ => {}
        }
        let dropped = medium.sings(Canary::DroppedCompletion, &mut self.chance);
        (!dropped).then(|| pending.request.complete(Ok(())))
    }

    /// [`Canary::NoDrain`]: the commands of closed connections are called done and done later.
    fn abandon(&mut self, now: Moment, done: &mut Vec<Completion>) {
        let shared = self.medium.clone();
        let medium = &mut *shared.borrow_mut();
        let core = self.core;
        let abandoned = |p: &mut Pending| {
            let connection = (p.request.tag >> 32) as u32;
            medium.closed.contains(&(core, connection))
        };
        let abandoned: Vec<Pending> = self.pending.extract_if(.., abandoned).collect();
        for pending in abandoned {
            medium.outstanding -= 1;
            if pending.request.op.modifies() {
                let late = (pending.done_at.max(now) + SOON * 10, pending.request.range);
                medium.late.push((late.0, late.1, copy(&pending.request)));
            }
            let error = IoError::new(ErrorKind::Aborted, "a canary");
            done.push(pending.request.complete(Err(error)));
        }
    }
}

const SOON: std::time::Duration = std::time::Duration::from_millis(20);

fn copy(request: &Request) -> Option<Vec<u8>> {
    request.buffer.as_deref().map(<[u8]>::to_vec)
}

impl BlockDevice for SimDevice {
    fn geometry(&self) -> Geometry {
        self.medium.borrow().geometry
    }

    fn submit(&mut self, request: Request) {
        self.medium.borrow_mut().outstanding += 1;
        self.new.push(request);
    }

    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        for request in std::mem::take(&mut self.new) {
            let pending = self.plan(now, request);
            self.pending.push(pending);
        }
        if !self.medium.borrow().closed.is_empty() {
            self.abandon(now, done);
        }
        self.medium.borrow_mut().catch_up(now);
        let mut pending = std::mem::take(&mut self.pending);
        for one in pending
            .iter_mut()
            .filter(|one| !one.started && one.first_at <= now)
        {
            one.started = true;
            self.apply(&mut self.medium.borrow_mut(), one, 0, one.first);
        }
        while let Some(at) = pending.iter().position(|one| one.done_at <= now) {
            let one = pending.swap_remove(at);
            done.extend(self.finish(now, one));
        }
        self.pending = pending;
    }

    fn next_deadline(&self) -> Option<Moment> {
        let due = |one: &Pending| {
            if one.started {
                one.done_at
            } else {
                one.first_at
            }
        };
        let late = self.medium.borrow().late.iter().map(|(at, ..)| *at).min();
        self.pending.iter().map(due).chain(late).min()
    }

    fn describe(&self) -> Description {
        Description::leaf("simulated")
    }
}

impl Drop for SimDevice {
    /// The process ends: what is in the device happens in part, or not at all.
    fn drop(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let shared = self.medium.clone();
        let medium = &mut *shared.borrow_mut();
        medium.outstanding -= pending.len() + self.new.len();
        for one in &pending {
            let count = one.request.range.count;
            let upto = self.chance.below(u64::from(count) + 1) as u32;
            self.apply(medium, one, if one.started { one.first } else { 0 }, upto);
        }
    }
}
