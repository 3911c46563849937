//! What a session is asked to do, and whether its answers are right.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::{
    BlockRange, BufferPool, Completion, Durability, ErrorKind, Geometry, Moment, Operation, Request,
};
use ashlar_nvme_initiator::Replay;

use crate::content;
use crate::env::Env;
use crate::model::{Answer, Expected, Model, Seq};
use crate::profile::Canary;

struct Asked {
    op: Operation,
    range: BlockRange,
    submitted: Seq,
    value: u64,
    expected: Option<Expected>,
}

/// The requests of one session. It writes to its own part of the namespace and reads all of it.
pub(crate) struct Load {
    session: usize,
    geometry: Geometry,
    own: BlockRange,
    left: u64,
    depth: u64,
    largest: u32,
    think: Duration,
    next_at: Moment,
    next_tag: u64,
    asked: BTreeMap<u64, Asked>,
    replay: Replay,
    /// The last acknowledged write, for [`Canary::LateReplay`].
    acknowledged: Option<(BlockRange, u64)>,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
}

const UNTRACKED: u64 = u64::MAX;

impl Load {
    pub(crate) fn new(
        env: &mut Env<'_>,
        session: usize,
        geometry: Geometry,
        own: BlockRange,
        replay: Replay,
    ) -> Self {
        let largest = own.count.min(geometry.max_blocks) as usize;
        let busy = if env.profile.disturbs() { 40 } else { 2 };
        Self {
            session,
            geometry,
            own,
            left: env.profile.requests,
            depth: env.chance.between(1, env.profile.depth),
            largest: env.chance.pick(&[1, 8, largest as u32, largest as u32]),
            think: Duration::from_millis(env.chance.pick(&[0, busy, 4 * busy])),
            next_at: Moment::ORIGIN,
            next_tag: 0,
            asked: BTreeMap::new(),
            replay,
            acknowledged: None,
            completed: 0,
            failed: 0,
        }
    }

    /// Whether everything was asked and answered.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && self.asked.is_empty()
    }

    /// What it waits for, for messages.
    pub(crate) fn waiting(&self) -> String {
        let tags: Vec<&u64> = self.asked.keys().collect();
        format!(
            "session {}: {} to ask, {tags:?} asked",
            self.session, self.left
        )
    }

    /// When the next request is due.
    pub(crate) fn next(&self) -> Option<Moment> {
        let more = self.left > 0 && (self.asked.len() as u64) < self.depth;
        more.then_some(self.next_at)
    }

    /// The next request, if it is due.
    pub(crate) fn ask(
        &mut self,
        env: &mut Env<'_>,
        model: &mut Model,
        pool: &BufferPool,
    ) -> Option<(Request, BlockRange)> {
        if self.next().is_none_or(|at| at > env.now) {
            return None;
        }
        let op = operation(env, self.geometry.volatile_cache);
        let range = self.range(env, model, op);
        let mut buffer = None;
        if op.has_buffer() {
            buffer = Some(pool.get(self.geometry.range_bytes(range))?);
        }
        if env.chance.happens(300) {
            self.next_at = env.now + env.chance.time(self.think);
        }
        self.left -= 1;
        let tag = self.next_tag;
        self.next_tag += 1;
        let value = match op {
            Operation::Write(_) => ((self.session as u64 + 1) << 32) | (tag + 1),
            _ => content::ZERO,
        };
        if let (Operation::Write(_), Some(buffer)) = (op, &mut buffer) {
            content::fill(buffer, self.block(), range.start.0, value);
        }
        let (mut submitted, mut expected) = (0, None);
        match op {
            Operation::Read => expected = Some(model.read(range, self.session)),
            Operation::Flush => submitted = model.tick(),
            _ => submitted = model.submit(range, value),
        }
        env.trace.say(env.now, || {
            format!("session {} asks {tag}: {op:?} {range}", self.session)
        });
        let asked = Asked {
            op,
            range,
            submitted,
            value,
            expected,
        };
        self.asked.insert(tag, asked);
        let request = Request {
            tag,
            op,
            range,
            buffer,
        };
        Some((request, range))
    }

    /// Another write was submitted, which outstanding reads may see.
    pub(crate) fn also(&mut self, range: BlockRange, value: u64) {
        let reads = self
            .asked
            .values_mut()
            .filter_map(|asked| asked.expected.as_mut());
        reads.for_each(|expected| expected.also(range, value));
    }

    /// The value that a request just made will put in place.
    pub(crate) fn value_of(&self, tag: u64) -> Option<u64> {
        let asked = self.asked.get(&tag)?;
        asked.op.modifies().then_some(asked.value)
    }

    fn block(&self) -> usize {
        self.geometry.block_size.bytes() as usize
    }

    fn range(&self, env: &mut Env<'_>, model: &Model, op: Operation) -> BlockRange {
        if op == Operation::Flush {
            return BlockRange::default();
        }
        let (start, count) = if op == Operation::Read && env.chance.happens(200) {
            (0, model.blocks())
        } else {
            (self.own.start.0, u64::from(self.own.count))
        };
        let blocks = env.chance.size(self.largest as usize) as u64;
        // Half of all requests meet in a few blocks.
        let room = if env.chance.happens(500) {
            count
        } else {
            count.min(blocks + 4)
        };
        BlockRange::new(start + env.chance.below(room - blocks + 1), blocks as u32)
    }

    /// A write of old that is repeated unseen.
    pub(crate) fn late_replay(&mut self, env: &mut Env<'_>, pool: &BufferPool) -> Option<Request> {
        let wanted = env.profile.canary == Some(Canary::LateReplay) && env.chance.happens(30);
        let (range, value) = self.acknowledged.filter(|_| wanted)?;
        let mut buffer = pool.get(self.geometry.range_bytes(range))?;
        content::fill(&mut buffer, self.block(), range.start.0, value);
        Some(Request::write(UNTRACKED, range, buffer, Durability::Cached))
    }

    /// Takes an answer and judges it.
    pub(crate) fn completed(
        &mut self,
        env: &mut Env<'_>,
        model: &mut Model,
        completion: Completion,
    ) -> Result<(), String> {
        if completion.tag == UNTRACKED {
            return Ok(());
        }
        let Some(asked) = self.asked.remove(&completion.tag) else {
            return Err(format!("request {} was answered twice", completion.tag));
        };
        self.completed += 1;
        let (tag, session) = (completion.tag, self.session);
        env.trace.say(env.now, || {
            format!("session {session} gets {tag}: {:?}", completion.result)
        });
        if asked.op.has_buffer() && completion.buffer.is_none() {
            return Err(format!("request {tag} came back without its buffer"));
        }
        let judged = match &completion.result {
            Ok(()) => self.judge_success(model, &asked, completion.buffer.as_deref()),
            Err(error) => {
                self.failed += 1;
                let may = self.may_fail(env, &asked, error.kind());
                self.note_failure(model, &asked);
                if may {
                    Ok(())
                } else {
                    Err(format!("it failed: {error}"))
                }
            }
        };
        let Asked { op, range, .. } = asked;
        judged.map_err(|why| format!("session {session} request {tag} {op:?} {range}: {why}"))
    }

    fn judge_success(
        &mut self,
        model: &mut Model,
        asked: &Asked,
        data: Option<&[u8]>,
    ) -> Result<(), String> {
        let uncached = !self.geometry.volatile_cache;
        let durable = match asked.op {
            Operation::Read => return self.judge_read(model, asked, data.unwrap_or_default()),
            Operation::Flush => return model.flushed(asked.submitted, self.session),
            Operation::Deallocate => {
                model.answer(asked.range, asked.submitted, Answer::Maybe, self.session);
                return Ok(());
            }
            Operation::Write(durability) | Operation::WriteZeroes { durability, .. } => {
                durability == Durability::Durable || uncached
            }
        };
        if let Some(data) = data {
            let block = self.block();
            for (at, lba) in data.chunks(block).zip(asked.range.start.0..) {
                if content::read(at, lba) != Ok(asked.value) {
                    return Err("the written buffer came back changed".into());
                }
            }
            if self.acknowledged.is_none() || asked.submitted.is_multiple_of(8) {
                self.acknowledged = Some((asked.range, asked.value));
            }
        }
        let answer = Answer::Done { durable };
        model.answer(asked.range, asked.submitted, answer, self.session);
        Ok(())
    }

    fn judge_read(&self, model: &mut Model, asked: &Asked, data: &[u8]) -> Result<(), String> {
        let Some(expected) = &asked.expected else {
            return Ok(());
        };
        let start = asked.range.start.0;
        for (index, block) in data.chunks(self.block()).enumerate() {
            let lba = start + index as u64;
            let value = content::read(block, lba).map_err(|why| format!("LBA {lba} {why}"))?;
            if !model.observed(expected, index, value) {
                let may = expected.of(index);
                return Err(format!("LBA {lba} reads as write {value}, may be {may:?}"));
            }
        }
        Ok(())
    }

    fn note_failure(&self, model: &mut Model, asked: &Asked) {
        match asked.op {
            Operation::Read => {}
            Operation::Flush => model.flush_failed(asked.submitted, self.session),
            _ => model.answer(asked.range, asked.submitted, Answer::Failed, self.session),
        }
    }

    /// Whether what happens in this world excuses a failure.
    fn may_fail(&self, env: &Env<'_>, asked: &Asked, kind: ErrorKind) -> bool {
        let profile = &env.profile;
        match kind {
            ErrorKind::Media => profile.device.fails_per_mille > 0,
            ErrorKind::Timeout => profile.half_open || profile.flips > 0,
            ErrorKind::Disconnected if profile.disturbs() => match (self.replay, asked.op) {
                (_, Operation::Flush) | (Replay::None, _) => true,
                (Replay::Reads, op) => op.modifies(),
                (Replay::All, _) => false,
            },
            _ => false,
        }
    }
}

fn operation(env: &mut Env<'_>, flushes: bool) -> Operation {
    let durability = if env.chance.happens(250) {
        Durability::Durable
    } else {
        Durability::Cached
    };
    let deallocate = env.chance.happens(300);
    match env.chance.below(100) {
        0..40 => Operation::Read,
        40..82 => Operation::Write(durability),
        82..88 if flushes => Operation::Flush,
        88..94 => Operation::WriteZeroes {
            durability,
            deallocate,
        },
        94..97 => Operation::Deallocate,
        _ => Operation::Write(durability),
    }
}
