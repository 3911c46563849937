//! What users ask for, and whether what they are told is true.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ashlar_block::{
    BlockRange, BufferPool, Completion, Durability, ErrorKind, IoBuffer, IoError, Moment,
    Operation, Request,
};

use super::layouts::SLOT;
use super::model::{Effect, Flushing, Model, Reading, WriteId};
use super::pages::UNIT;
use super::plan::{Spread, Wish};
use super::seam::memory;
use crate::chance::Chance;
use crate::content;

const GRANULE: usize = 4096;
/// Largest request, in granules.
const MOST: u64 = 64;

/// How users behave; follows from the seed.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    /// Commands in all.
    pub(crate) commands: u64,
    /// Most at once.
    pub(crate) depth: usize,
    /// Longest pause between two; a hundredth of them is a thousand times longer.
    pub(crate) pause: Duration,
    /// Of a thousand commands: reads, and what makes zeroes, and flushes. The rest writes.
    pub(crate) reads: u32,
    pub(crate) zeroes: u32,
    pub(crate) flushes: u32,
    /// Of a thousand writes, those that cover whole slots.
    pub(crate) slots: u32,
    /// Of a thousand places, those near a hot spot.
    pub(crate) hot: u32,
}

impl Habits {
    /// No commands but those that are asked for one by one.
    pub(crate) fn none() -> Self {
        Self {
            commands: 0,
            depth: 8,
            pause: Duration::ZERO,
            reads: 0,
            zeroes: 0,
            flushes: 0,
            slots: 0,
            hot: 0,
        }
    }

    /// Habits from chance.
    pub(crate) fn draw(chance: &mut Chance, commands: u64) -> Self {
        Self {
            commands: chance.between(commands / 4, commands),
            depth: chance.pick(&[1, 2, 4, 8, 16, 32]),
            pause: Duration::from_micros(chance.pick(&[0, 10, 100, 1000])),
            reads: chance.pick(&[50, 200, 500]),
            zeroes: chance.pick(&[0, 20, 60, 200]),
            flushes: chance.pick(&[0, 20, 100]),
            slots: chance.pick(&[0, 50, 200, 600]),
            hot: chance.pick(&[0, 500, 900, 1000]),
        }
    }
}

impl Habits {
    /// Users who write a lot, everywhere.
    pub(crate) fn fill(&mut self) {
        self.reads = 50;
        self.zeroes = self.zeroes.min(20);
        self.slots = 900;
        self.hot = 0;
        self.depth = self.depth.max(4);
    }
}

/// A command on its way.
struct Op {
    volume: usize,
    op: Operation,
    range: BlockRange,
    write: Option<WriteId>,
    reading: Option<Reading>,
    flushing: Option<Flushing>,
    since: Moment,
    /// Its volume was deleted, or made smaller, under it.
    cut_off: bool,
}

/// What may go wrong without being a fault of the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excuses {
    /// The volumes are larger than the pool.
    pub(crate) full: bool,
    /// Drives are gone: pass-through volumes have lost what was on them, and wide ones cannot be made.
    pub(crate) lost: bool,
    /// Drives were taken out by order.
    pub(crate) fewer: bool,
    /// Volumes of one copy on a drive that rots: blocks of theirs may be lost, and say so.
    pub(crate) frail: BTreeSet<usize>,
    /// Volumes that may have been told to stop when a copy is missing.
    pub(crate) stops: BTreeSet<usize>,
    /// All there is of a pool rots: it may stop.
    pub(crate) rotten: bool,
    /// Volumes that cache devices which fail what they are asked.
    pub(crate) cached: BTreeSet<usize>,
}

/// A command was answered.
pub(crate) struct Answer {
    /// What it was.
    pub(crate) named: String,
    /// It was a write for which there was no space: volume, and slots that it reaches into.
    pub(crate) refused: Option<(usize, u64)>,
}

pub(crate) struct Load {
    habits: Habits,
    chance: Chance,
    pool: BufferPool,
    outstanding_before: usize,
    hot: Vec<Vec<u64>>,
    spreads: Vec<Spread>,
    /// Volumes that cache.
    caches: BTreeSet<usize>,
    ops: BTreeMap<u64, Op>,
    checks: VecDeque<(usize, BlockRange)>,
    next_tag: u64,
    next_at: Moment,
    left: u64,
    pub(crate) answered: u64,
    /// Volumes that take commands.
    open: BTreeSet<usize>,
    pub(crate) excuses: Excuses,
}

/// A command that is to be drawn up.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    pub(crate) volume: usize,
    pub(crate) op: Operation,
    pub(crate) range: BlockRange,
}

/// A command for a volume.
pub(crate) struct Asked {
    pub(crate) volume: usize,
    pub(crate) request: Request,
}

impl Load {
    pub(crate) fn new(habits: Habits, mut chance: Chance, model: &Model, wishes: &[Wish]) -> Self {
        let spots = |chance: &mut Chance, volume: usize| {
            let count = chance.between(1, 4);
            let granules = model.granules(volume);
            (0..count).map(|_| chance.below(granules)).collect()
        };
        let hot = (0..wishes.len()).map(|v| spots(&mut chance, v));
        let hot = hot.collect();
        Self {
            left: habits.commands,
            habits,
            chance,
            outstanding_before: memory().outstanding_bytes(),
            pool: memory(),
            hot,
            spreads: wishes.iter().map(|wish| wish.spread).collect(),
            caches: (wishes.iter().enumerate())
                .filter(|(_, wish)| wish.cache.is_some())
                .map(|(volume, _)| volume)
                .collect(),
            ops: BTreeMap::new(),
            checks: VecDeque::new(),
            next_tag: 1,
            next_at: Moment::ORIGIN,
            answered: 0,
            open: BTreeSet::new(),
            excuses: Excuses::default(),
        }
    }

    /// A volume takes commands.
    pub(crate) fn open(&mut self, volume: usize) {
        self.open.insert(volume);
    }

    /// Whether any volume takes commands.
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// A volume takes no more commands from here on; those on their way may fail.
    pub(crate) fn close(&mut self, volume: usize) {
        self.open.remove(&volume);
        self.cut_off(volume, 0);
    }

    /// A volume takes no more commands behind this granule.
    pub(crate) fn cut_off(&mut self, volume: usize, granules: u64) {
        for op in self.ops.values_mut() {
            let reaches = op.range.start.0 + u64::from(op.range.count) > granules;
            op.cut_off |= op.volume == volume && (reaches || granules == 0);
        }
    }

    /// Whether a command for a volume is on its way.
    pub(crate) fn uses(&self, volume: usize) -> bool {
        self.ops.values().any(|op| op.volume == volume)
    }

    /// Whether everything that was to be asked was answered.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && self.is_idle()
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.ops.is_empty() && self.checks.is_empty()
    }

    /// When the next command may be asked for.
    pub(crate) fn next(&self) -> Option<Moment> {
        let depth = self.ops.len() < self.habits.depth.max(1);
        let more = depth && (self.left > 0 || !self.checks.is_empty());
        more.then_some(self.next_at)
    }

    /// Nothing more is asked for by the users themselves.
    pub(crate) fn stop(&mut self) {
        self.left = 0;
    }

    pub(crate) fn rest(&mut self, until: Moment) {
        self.next_at = self.next_at.max(until);
    }

    /// Reads everything, soon.
    pub(crate) fn check_all(&mut self, model: &Model) {
        for volume in self.open.clone() {
            let granules = model.granules(volume);
            let mut at = 0;
            while at < granules {
                let count = self.chance.between(1, MOST).min(granules - at);
                let range = self.spreads[volume].cut(BlockRange::new(at, count as u32));
                self.checks.push_back((volume, range));
                at += u64::from(range.count);
            }
        }
    }

    /// The next command, if it is time.
    pub(crate) fn ask(&mut self, now: Moment, model: &mut Model) -> Option<Asked> {
        if self.next().is_none_or(|at| at > now) {
            return None;
        }
        let command = match self.next_check(model) {
            Some((volume, range)) => Command {
                volume,
                op: Operation::Read,
                range,
            },
            None if self.open.is_empty() => {
                self.left = 0;
                return None;
            }
            None => {
                self.left = self.left.checked_sub(1)?;
                self.pause(now);
                self.draw(model)
            }
        };
        // Without memory the command is not asked for.
        self.command(command, now, model)
    }

    /// The next range to be read of those that are still there.
    fn next_check(&mut self, model: &Model) -> Option<(usize, BlockRange)> {
        while let Some((volume, range)) = self.checks.pop_front() {
            let left = model.granules(volume).saturating_sub(range.start.0);
            let count = left.min(u64::from(range.count)) as u32;
            if count > 0 && self.open.contains(&volume) {
                return Some((volume, BlockRange::new(range.start.0, count)));
            }
        }
        None
    }

    fn pause(&mut self, now: Moment) {
        let pause = self.habits.pause;
        self.next_at = match self.chance.happens(10) {
            true => now + self.chance.time(pause * 1000),
            false => now + self.chance.time(pause),
        };
    }

    fn draw(&mut self, model: &Model) -> Command {
        let open: Vec<usize> = self.open.iter().copied().collect();
        let volume = self.chance.pick(&open);
        let Habits {
            reads,
            zeroes,
            flushes,
            ..
        } = self.habits;
        let dice = self.chance.below(1000) as u32;
        if dice < flushes {
            return Command {
                volume,
                op: Operation::Flush,
                range: BlockRange::default(),
            };
        }
        let durability = self.chance.pick(&[Durability::Cached, Durability::Durable]);
        let op = if dice < flushes + reads {
            Operation::Read
        } else if dice < flushes + reads + zeroes {
            match self.chance.happens(500) {
                true => Operation::Deallocate,
                false => Operation::WriteZeroes {
                    durability,
                    deallocate: self.chance.happens(500),
                },
            }
        } else {
            Operation::Write(durability)
        };
        let place = self.place(volume, model.granules(volume));
        let range = self.spreads[volume].cut(place);
        Command { volume, op, range }
    }

    fn place(&mut self, volume: usize, granules: u64) -> BlockRange {
        let whole = self.chance.happens(self.habits.slots);
        // Of slots of any grain.
        let aligned = self.chance.pick(&[SLOT, SLOT, 2, 4, 8]);
        let count = if whole {
            aligned * self.chance.pick(&[1, 1, 2, MOST / SLOT])
        } else {
            match self.chance.below(10) {
                0..=4 => self.chance.between(1, 4),
                5..=7 => self.chance.between(1, SLOT),
                8 => self.chance.pick(&[2, 4]),
                _ => self.chance.between(1, MOST),
            }
        };
        let count = count.min(granules);
        let mut start = if self.chance.happens(self.habits.hot) {
            let spot = self.chance.pick(&self.hot[volume]);
            (spot + self.chance.below(24)).saturating_sub(8)
        } else {
            self.chance.below(granules)
        };
        start = start.min(granules - count);
        if whole {
            start = start / aligned * aligned;
        }
        BlockRange::new(start, count as u32)
    }

    fn buffer(&mut self, op: Operation, range: BlockRange) -> Option<Option<IoBuffer>> {
        match op.has_buffer() {
            true => self.pool.get(range.count as usize * GRANULE).map(Some),
            false => Some(None),
        }
    }

    fn submit(
        &mut self,
        command: Command,
        mut buffer: Option<IoBuffer>,
        now: Moment,
        model: &mut Model,
    ) -> Asked {
        let Command { volume, op, range } = command;
        let tag = self.next_tag;
        self.next_tag += 1;
        let write = effect(op).map(|effect| model.submit(volume, range, effect));
        let flushing = (op == Operation::Flush).then(|| model.flush(volume));
        let reading = (op == Operation::Read).then(|| model.read(volume, range));
        if let (Some(buffer), Some(write)) = (&mut buffer, write) {
            let first = key(volume, range.start.0);
            content::fill(buffer, GRANULE, first, write);
        }
        let since = now;
        self.ops.insert(
            tag,
            Op {
                volume,
                op,
                range,
                write,
                reading,
                flushing,
                since,
                cut_off: false,
            },
        );
        let request = Request {
            tag,
            op,
            range,
            buffer,
        };
        Asked { volume, request }
    }

    /// Asks for this command now.
    pub(crate) fn command(
        &mut self,
        command: Command,
        now: Moment,
        model: &mut Model,
    ) -> Option<Asked> {
        let buffer = self.buffer(command.op, command.range)?;
        Some(self.submit(command, buffer, now, model))
    }

    /// A command was answered.
    ///
    /// # Errors
    /// What is wrong with the answer.
    pub(crate) fn done(&mut self, done: Completion, model: &mut Model) -> Result<Answer, String> {
        let Completion {
            tag,
            buffer,
            result,
        } = done;
        let Some(op) = self.ops.remove(&tag) else {
            return Err(format!("command {tag} was answered, but is not on its way"));
        };
        self.answered += 1;
        if let Some(reading) = &op.reading {
            let checked = match (&result, &buffer) {
                (Ok(()), Some(buffer)) => check_read(reading, buffer, model),
                (Ok(()), None) => Err("a read came back without its buffer".into()),
                (Err(_), _) => Ok(()),
            };
            model.read_over(reading);
            checked.map_err(|why| format!("{why} (command {tag}: {})", op.name()))?;
        }
        match (&op.flushing, &result) {
            (Some(flushing), Ok(())) => model.flushed(flushing)?,
            (Some(flushing), Err(_)) => model.flush_failed(flushing),
            (None, _) => {}
        }
        let error = result.err();
        let kind = error.as_ref().map(IoError::kind);
        // What a cache has no room for goes around: what it says is of a device that has done a part.
        let is_cached = self.caches.contains(&op.volume);
        let refused = kind == Some(ErrorKind::NoSpace) && !is_cached;
        match op.write {
            // What there is no space for is refused as a whole, and so is what a volume that has
            // stopped does not take.
            Some(write) if refused || kind == Some(ErrorKind::ReadOnly) && !is_cached => {
                model.refute(write);
            }
            Some(write) => model.answer(write, error.is_none()),
            None => {}
        }
        let named = op.name();
        let Some(error) = error else {
            return Ok(Answer {
                named,
                refused: None,
            });
        };
        if !self.is_excused(&op, error.kind(), model) {
            return Err(format!("command {tag}: {named} failed: {error}"));
        }
        if error.kind() == ErrorKind::Corrupt || is_cached && op.op == Operation::Read {
            self.look_closer(&op);
        }
        Ok(Answer {
            named: format!("{named}: {error}"),
            refused: refused.then(|| (op.volume, slots(op.range))),
        })
    }

    /// Of what was read something is lost: the rest is read without it.
    fn look_closer(&mut self, op: &Op) {
        let half = op.range.count / 2;
        if half > 0 {
            let first = op.range.start.0;
            let parts = [
                (first, half),
                (first + u64::from(half), op.range.count - half),
            ];
            let parts = parts.map(|(first, count)| (op.volume, BlockRange::new(first, count)));
            self.checks.extend(parts);
        }
    }

    fn is_excused(&self, op: &Op, error: ErrorKind, model: &Model) -> bool {
        if self.caches.contains(&op.volume) {
            let fails = self.excuses.cached.contains(&op.volume);
            let is_full = error == ErrorKind::NoSpace && matches!(op.op, Operation::Write(_));
            return fails || is_full && self.excuses.full || op.cut_off;
        }
        match error {
            ErrorKind::InvalidRequest | ErrorKind::OutOfRange => op.cut_off,
            ErrorKind::NoSpace => {
                self.excuses.full
                    && matches!(op.op, Operation::Write(_))
                    && !model.is_raw(op.volume)
            }
            ErrorKind::ReadOnly => {
                let fewer = self.excuses.lost || self.excuses.fewer;
                fewer && op.write.is_some() && self.excuses.stops.contains(&op.volume)
            }
            ErrorKind::Corrupt => {
                op.op == Operation::Read && self.excuses.frail.contains(&op.volume)
            }
            ErrorKind::Latched if self.excuses.rotten => true,
            ErrorKind::Media
            | ErrorKind::Disconnected
            | ErrorKind::Latched
            | ErrorKind::Timeout => self.excuses.lost && model.is_raw(op.volume),
            _ => false,
        }
    }

    /// The engine is gone, and so is what was on its way.
    pub(crate) fn crash(&mut self) {
        self.ops.clear();
        self.checks.clear();
    }

    /// The commands that have waited since before `since`.
    pub(crate) fn waiting(&self, since: Moment) -> Vec<String> {
        let late = self.ops.iter().filter(|(_, op)| op.since < since);
        late.map(|(tag, op)| format!("command {tag}: {}", op.name()))
            .collect()
    }

    /// Memory that was handed out in this world and has not come back.
    pub(crate) fn outstanding_bytes(&self) -> usize {
        self.pool
            .outstanding_bytes()
            .saturating_sub(self.outstanding_before)
    }
}

impl Op {
    fn name(&self) -> String {
        let Self {
            volume, op, range, ..
        } = self;
        let write = self.write.map_or(String::new(), |w| format!(" as {w}"));
        let Operation::Flush = op else {
            let (start, count) = (range.start.0, range.count);
            return format!("{op:?} of volume {volume} granules {start}+{count}{write}");
        };
        format!("flush of volume {volume}")
    }
}

/// What names a granule in its content.
pub(crate) fn key(volume: usize, granule: u64) -> u64 {
    (volume as u64) << 40 | granule
}

fn check_read(reading: &Reading, buffer: &IoBuffer, model: &mut Model) -> Result<(), String> {
    let range = reading.range;
    if buffer.len() != range.count as usize * GRANULE {
        return Err(format!("a read returned {} bytes", buffer.len()));
    }
    let mut values = Vec::with_capacity(range.count as usize);
    for (index, bytes) in buffer.chunks(GRANULE).enumerate() {
        values.extend(check_granule(reading, index, bytes, model)?);
    }
    model.observe_together(reading, &values)
}

/// What one granule of a read holds, if it is of one piece.
fn check_granule(
    reading: &Reading,
    index: usize,
    bytes: &[u8],
    model: &mut Model,
) -> Result<Option<u64>, String> {
    let Reading { volume, range, .. } = *reading;
    let granule = range.start.0 + index as u64;
    let value = |bytes| {
        content::read(bytes, key(volume, granule)).map_err(|why| {
            // LBAs in the message are keys: volume and granule.
            format!("volume {volume} granule {granule} is {why}")
        })
    };
    match value(bytes) {
        Ok(value) => model.observe(reading, index, value).map(|()| Some(value)),
        Err(_) if model.is_raw(volume) => {
            let pieces: Result<Vec<u64>, String> = bytes.chunks(UNIT).map(value).collect();
            model.observe_pieces(reading, index, &pieces?)?;
            Ok(None)
        }
        Err(why) => Err(why),
    }
}

/// Whether a granule may hold what was found of it, past all that hosts read.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_found(
    volume: usize,
    granule: u64,
    bytes: &[u8],
    model: &mut Model,
) -> Result<(), String> {
    let reading = model.read(volume, BlockRange::new(granule, 1));
    let checked = check_granule(&reading, 0, bytes, model);
    model.read_over(&reading);
    checked.map(drop)
}

/// What an operation does, if anything.
fn effect(op: Operation) -> Option<Effect> {
    let forced = |durability| durability == Durability::Durable;
    match op {
        Operation::Write(durability) => Some(Effect::Data {
            forced: forced(durability),
        }),
        Operation::WriteZeroes { durability, .. } => Some(Effect::Zero {
            forced: forced(durability),
        }),
        Operation::Deallocate => Some(Effect::Drop),
        Operation::Read | Operation::Flush => None,
    }
}

/// Slots that a range reaches into.
fn slots(range: BlockRange) -> u64 {
    let end = range.start.0 + u64::from(range.count);
    end.div_ceil(SLOT) - range.start.0 / SLOT
}
