//! What every block may hold: the set of values that a correct store can return.
//!
//! A value is the number of the write that put it there. A write that is on its way may take effect
//! at any time, and again if it is replayed; once it has been answered it takes no effect any more.
//! So after a write was acknowledged, only writes that were on their way together with it, and
//! later ones, may be seen.

use ashlar_block::BlockRange;

use crate::content::ZERO;

/// A point in the order of events.
pub(crate) type Seq = u64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    value: u64,
    submitted: Seq,
    /// When it was answered; `None` while it is on its way.
    answered: Option<Seq>,
    /// It failed, and this session has not been told that it cannot happen any more: its commands
    /// may still be in the target until the session has connected again.
    loose: Option<usize>,
}

impl Entry {
    /// Whether it can take no effect after `at`, as `session` sees it.
    fn is_past(&self, at: Seq, session: usize) -> bool {
        self.answered.is_some_and(|answered| answered < at)
            && self.loose.is_none_or(|owner| owner == session)
    }
}

#[derive(Clone, Debug, Default)]
struct Block {
    /// What it may hold now, or may come to hold.
    entries: Vec<Entry>,
    /// Everything that was ever written, for judging a power loss.
    history: Vec<Entry>,
    /// Acknowledged writes that may be in a cache: when submitted, when acknowledged, by whom.
    cached: Vec<(Seq, Seq, usize)>,
    /// Values answered before this must not come back, not even by a power loss.
    floor: Seq,
}

/// How a write was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done, and durable or not.
    Done { durable: bool },
    /// Done, or left as it was: deallocate.
    Maybe,
    /// Failed: any of its blocks may have been written.
    Failed,
}

/// Acknowledged writes that a power loss has taken, by session.
#[derive(Clone, Copy, Debug)]
struct Loss {
    session: usize,
    acknowledged: Seq,
}

/// The model of one namespace.
pub(crate) struct Model {
    blocks: Vec<Block>,
    losses: Vec<Loss>,
    /// When the power last failed.
    crash: Seq,
    seq: Seq,
}

impl Model {
    pub(crate) fn new(blocks: u64) -> Self {
        let zero = Entry {
            value: ZERO,
            submitted: 0,
            answered: Some(0),
            loose: None,
        };
        let block = Block {
            entries: vec![zero],
            history: vec![zero],
            ..Block::default()
        };
        Self {
            blocks: vec![block; blocks as usize],
            losses: Vec::new(),
            crash: 0,
            seq: 0,
        }
    }

    /// The next point in the order of events.
    pub(crate) fn tick(&mut self) -> Seq {
        self.seq += 1;
        self.seq
    }

    fn range(&mut self, range: BlockRange) -> impl Iterator<Item = &mut Block> {
        let start = range.start.0 as usize;
        self.blocks[start..start + range.count as usize].iter_mut()
    }

    /// A write is on its way.
    pub(crate) fn submit(&mut self, range: BlockRange, value: u64) -> Seq {
        let submitted = self.tick();
        for block in self.range(range) {
            block.entries.push(Entry {
                value,
                submitted,
                answered: None,
                loose: None,
            });
        }
        submitted
    }

    /// The write of `session` that was submitted at `submitted` was answered.
    pub(crate) fn answer(
        &mut self,
        range: BlockRange,
        submitted: Seq,
        answer: Answer,
        session: usize,
    ) {
        let now = self.tick();
        let before_crash = submitted < self.crash;
        for block in self.range(range) {
            let mine = block.entries.iter_mut().find(|e| e.submitted == submitted);
            if let Some(mine) = mine {
                mine.answered = Some(now);
                mine.loose = (answer == Answer::Failed).then_some(session);
                block.history.push(*mine);
            }
            let Answer::Done { durable } = answer else {
                continue;
            };
            if before_crash && !durable {
                // It may have been executed, and lost, before its answer arrived.
                continue;
            }
            block.entries.retain(|e| !e.is_past(submitted, session));
            if durable {
                block.floor = block.floor.max(submitted);
            } else {
                block.cached.push((submitted, now, session));
            }
        }
    }

    /// A flush of `session` that was submitted at `submitted` succeeded.
    pub(crate) fn flushed(&mut self, submitted: Seq, session: usize) -> Result<(), String> {
        let lied = |loss: &Loss| loss.session == session && loss.acknowledged < submitted;
        if self.losses.iter().any(lied) {
            return Err("a flush succeeded over acknowledged writes that were lost".into());
        }
        for block in &mut self.blocks {
            let floor = &mut block.floor;
            block.cached.retain(|&(written, acknowledged, _)| {
                let covered = acknowledged < submitted;
                if covered {
                    *floor = (*floor).max(written);
                }
                !covered
            });
        }
        Ok(())
    }

    /// A flush of `session` that was submitted at `submitted` has failed: its owner knows that
    /// writes acknowledged before may be gone, and no later flush speaks for them.
    pub(crate) fn flush_failed(&mut self, submitted: Seq, session: usize) {
        let told = |acknowledged: Seq, owner: usize| owner == session && acknowledged < submitted;
        self.losses
            .retain(|loss| !told(loss.acknowledged, loss.session));
        for block in &mut self.blocks {
            block
                .cached
                .retain(|&(_, acknowledged, owner)| !told(acknowledged, owner));
        }
    }

    /// What a read that begins now may return for each block; later writes are added by
    /// [`Expected::also`].
    pub(crate) fn read(&mut self, range: BlockRange, session: usize) -> Expected {
        let begun = self.tick();
        let values = |block: &mut Block| block.entries.iter().map(|e| e.value).collect();
        Expected {
            range,
            begun,
            session,
            values: self.range(range).map(values).collect(),
        }
    }

    /// A read returned `value` for the `index`th block. Older values cannot come back after that.
    pub(crate) fn observed(&mut self, expected: &Expected, index: usize, value: u64) -> bool {
        let session = expected.session;
        if !expected.values[index].contains(&value) {
            return false;
        }
        let begun = expected.begun;
        let block = &mut self.blocks[expected.range.start.0 as usize + index];
        block
            .entries
            .retain(|e| e.value == value || !e.is_past(begun, session));
        true
    }

    /// Whether a block may hold `value` now.
    pub(crate) fn may_hold(&self, lba: u64, value: u64) -> bool {
        self.blocks[lba as usize]
            .entries
            .iter()
            .any(|entry| entry.value == value)
    }

    /// The values that a block may hold, for messages.
    pub(crate) fn describe(&self, lba: u64) -> String {
        let values: Vec<u64> = self.blocks[lba as usize]
            .entries
            .iter()
            .map(|e| e.value)
            .collect();
        format!("{values:?}")
    }

    /// The power has failed and left `value` in block `lba`.
    pub(crate) fn crashed(&mut self, lba: u64, value: u64) -> Result<(), String> {
        let now = self.tick();
        self.crash = now;
        let block = &mut self.blocks[lba as usize];
        let known = block
            .entries
            .iter()
            .chain(&block.history)
            .filter(|e| e.value == value);
        let last = known.map(|e| e.answered.unwrap_or(Seq::MAX)).max();
        let Some(last) = last else {
            return Err(format!(
                "LBA {lba} holds write {value}, which was never made"
            ));
        };
        if last < block.floor {
            return Err(format!(
                "LBA {lba} fell back to write {value}, past a durable one"
            ));
        }
        for &(submitted, acknowledged, session) in &block.cached {
            if last < submitted {
                self.losses.push(Loss {
                    session,
                    acknowledged,
                });
            }
        }
        block.cached.clear();
        block.floor = block.floor.max(last.min(now));
        block.entries.retain(|e| e.answered.is_none());
        let survivor = Entry {
            value,
            submitted: 0,
            answered: Some(now),
            loose: None,
        };
        block.entries.push(survivor);
        // The next power loss may fall back to what this one has left.
        block.history.push(survivor);
        Ok(())
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }
}

/// What an outstanding read may return.
#[derive(Debug)]
pub(crate) struct Expected {
    range: BlockRange,
    begun: Seq,
    session: usize,
    values: Vec<Vec<u64>>,
}

impl Expected {
    /// A write of `value` was submitted while the read is outstanding.
    pub(crate) fn also(&mut self, range: BlockRange, value: u64) {
        let first = self.range.start.0;
        for (index, values) in self.values.iter_mut().enumerate() {
            if BlockRange::new(first + index as u64, 1).overlaps(range) {
                values.push(value);
            }
        }
    }

    /// What the `index`th block may be.
    pub(crate) fn of(&self, index: usize) -> &[u64] {
        &self.values[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: BlockRange = BlockRange::new(0, 1);
    const DONE: Answer = Answer::Done { durable: false };

    fn holds(model: &Model) -> Vec<u64> {
        (0..10).filter(|&value| model.may_hold(0, value)).collect()
    }

    #[test]
    fn only_concurrent_and_later_writes_survive_an_acknowledgement() {
        let mut model = Model::new(1);
        let first = model.submit(ONE, 1);
        let second = model.submit(ONE, 2);
        assert_eq!(holds(&model), [0, 1, 2]);
        model.answer(ONE, first, DONE, 0);
        assert_eq!(holds(&model), [1, 2]);
        model.answer(ONE, second, DONE, 0);
        assert_eq!(holds(&model), [1, 2], "they were on their way together");
        let third = model.submit(ONE, 3);
        model.answer(ONE, third, Answer::Failed, 0);
        assert_eq!(holds(&model), [1, 2, 3]);
        let fourth = model.submit(ONE, 4);
        model.answer(ONE, fourth, DONE, 0);
        assert_eq!(holds(&model), [4], "a failed write must not land later");
    }

    #[test]
    fn a_read_decides_between_answered_writes_and_sees_later_ones() {
        let mut model = Model::new(1);
        let (a, b) = (model.submit(ONE, 1), model.submit(ONE, 2));
        model.answer(ONE, a, DONE, 0);
        model.answer(ONE, b, DONE, 0);
        let mut read = model.read(ONE, 0);
        model.submit(ONE, 3);
        read.also(ONE, 3);
        assert!(!model.observed(&read, 0, 0) && model.observed(&read, 0, 1));
        assert_eq!(holds(&model), [1, 3]);
    }

    #[test]
    fn a_power_loss_takes_cached_writes_and_a_flush_must_tell() {
        let mut model = Model::new(1);
        let a = model.submit(ONE, 1);
        model.answer(ONE, a, Answer::Done { durable: true }, 0);
        let b = model.submit(ONE, 2);
        model.answer(ONE, b, DONE, 0);
        assert!(model.crashed(0, 0).is_err());
        assert!(model.crashed(0, 1).is_ok());
        assert_eq!(holds(&model), [1]);
        let flush = model.tick();
        assert!(model.flushed(flush, 0).is_err() && model.flushed(flush, 1).is_ok());
        let failed = model.tick();
        model.flush_failed(failed, 0);
        assert!(model.flushed(flush, 0).is_ok());
        let c = model.submit(ONE, 3);
        model.answer(ONE, c, DONE, 0);
        let flush = model.tick();
        assert!(model.flushed(flush, 0).is_ok());
        assert!(model.crashed(0, 1).is_err(), "it was flushed");
    }
}
