//! What the granules of one read say of each other. A write that is atomic is seen whole or not at all,
//! by a read that runs beside it too: a read that returns one granule of it returns all that it covers,
//! but for those that a later write has changed.

use super::{Effect, Model, Reading, WriteId, ZERO, holds, is_atomic};

/// What a granule was read to hold.
#[derive(Clone, Copy)]
struct Seen {
    granule: usize,
    value: u64,
}

impl Model {
    /// A read returned these contents, granule by granule, each of which was possible.
    ///
    /// # Errors
    /// The atomic write that the read has seen in part.
    pub(crate) fn observe_together(&self, reading: &Reading, values: &[u64]) -> Result<(), String> {
        if self.volumes[reading.volume].raw {
            return Ok(());
        }
        for (index, &value) in values.iter().enumerate() {
            if self.is_atomic_data(value) {
                self.observe_beside(reading, index, value, values)?;
            }
        }
        Ok(())
    }

    /// The granules of a read beside one that holds `value`, of an atomic write.
    fn observe_beside(
        &self,
        reading: &Reading,
        index: usize,
        value: WriteId,
        values: &[u64],
    ) -> Result<(), String> {
        let first = reading.range.start.0 as usize;
        let range = self.writes[value as usize].range;
        for (other, &beside) in values.iter().enumerate() {
            let granule = first + other;
            let covers = holds(range, granule) && beside != value;
            let seen = Seen {
                granule,
                value: beside,
            };
            let whole = Seen {
                granule: first + index,
                value,
            };
            if covers && self.is_older(reading, seen, whole) {
                return Err(format!(
                    "torn: one read of volume {} returned granule {} of {}, but granule {granule} \
                     as it was before: {}",
                    reading.volume,
                    first + index,
                    self.describe(value),
                    self.name(beside)
                ));
            }
        }
        Ok(())
    }

    /// Whether what one granule holds can only be older than an atomic write whose content another holds.
    fn is_older(&self, reading: &Reading, seen: Seen, whole: Seen) -> bool {
        let Seen {
            granule,
            value: content,
        } = seen;
        let submitted = self.writes[whole.value as usize].submitted;
        let is_atomic = self.is_atomic_data(content);
        if is_atomic && holds(self.writes[content as usize].range, whole.granule) {
            // Each covers both granules, and each is the last at one of them.
            return true;
        }
        let entries = &self.volumes[reading.volume].granules[granule];
        let mut possible = entries.iter().filter(|entry| {
            let alive = entry.gone.is_none_or(|(at, _)| at > reading.begun);
            alive && self.value(entry.write) == content
        });
        possible.all(|entry| {
            let ended = self.writes[entry.write as usize].ended;
            ended.is_some_and(|ended| ended < submitted)
        })
    }

    fn is_atomic_data(&self, value: u64) -> bool {
        let write = self.writes.get(value as usize).filter(|_| value != ZERO);
        write.is_some_and(|one| matches!(one.effect, Effect::Data { .. }) && is_atomic(one.range))
    }
}

#[cfg(test)]
mod tests {
    use ashlar_block::BlockRange;

    use super::*;

    const DATA: Effect = Effect::Data { forced: false };
    const FOUR: BlockRange = BlockRange::new(0, 4);

    #[test]
    fn an_atomic_write_is_seen_whole_or_not_at_all() {
        let mut model = Model::new(&[(16, false)]);
        let a = model.submit(0, FOUR, DATA);
        model.answer(a, true);
        let reading = model.read(0, FOUR);
        let b = model.submit(0, FOUR, DATA);
        let c = model.submit(0, BlockRange::new(2, 1), DATA);
        let sees = |values: [u64; 4]| model.observe_together(&reading, &values).is_ok();
        assert!(sees([a; 4]) && sees([b; 4]) && sees([b, b, c, b]) && sees([a, a, c, a]));
        assert!(!sees([a, b, b, b]) && !sees([b, b, c, a]) && !sees([b, b, ZERO, b]));
    }

    #[test]
    fn a_write_beside_it_may_be_older_or_younger() {
        let mut model = Model::new(&[(16, false)]);
        let reading = model.read(0, FOUR);
        let one = model.submit(0, BlockRange::new(3, 1), DATA);
        let b = model.submit(0, FOUR, DATA);
        let sees = |model: &Model, values: [u64; 4]| model.observe_together(&reading, &values);
        assert!(sees(&model, [b, b, b, one]).is_ok(), "they run together");
        let late = model.submit(0, BlockRange::new(3, 1), DATA);
        model.answer(late, true);
        let again = model.submit(0, FOUR, DATA);
        assert!(sees(&model, [again, again, again, late]).is_err());
        assert!(sees(&model, [b, b, b, late]).is_ok());
    }
}
