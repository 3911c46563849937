//! What pass-through volumes promise: what was flushed, or written by force, stays; what was not may
//! be gone with the power, unit by unit, and then what was there before is back.

use super::{Entry, Gone, Model, Reading, Seq};

/// A flush on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flushing {
    volume: usize,
    begun: Seq,
    /// Losses that were told by then.
    told: u64,
}

impl Model {
    /// Whether a volume is passed through.
    pub(crate) fn is_raw(&self, volume: usize) -> bool {
        self.volumes[volume].raw
    }

    /// A flush begins.
    pub(crate) fn flush(&mut self, volume: usize) -> Flushing {
        let begun = self.tick();
        let told = self.volumes[volume].told;
        Flushing {
            volume,
            begun,
            told,
        }
    }

    /// A flush was acknowledged: what was acknowledged before it began is on the medium.
    ///
    /// # Errors
    /// Something of that was lost, and no flush has said so before this one began.
    pub(crate) fn flushed(&mut self, flushing: &Flushing) -> Result<(), String> {
        let volume = &mut self.volumes[flushing.volume];
        if !volume.raw {
            return Ok(());
        }
        if flushing.told != volume.losses {
            let volume = flushing.volume;
            return Err(format!(
                "untold: volume {volume} has lost what was acknowledged, and a flush says that all is there"
            ));
        }
        let covered = |entry: &Entry| match entry.gone {
            Some((at, Gone::Overwritten(_))) => at < flushing.begun,
            _ => false,
        };
        for entry in volume.granules.iter_mut().flatten() {
            entry.buried |= covered(entry);
        }
        Ok(())
    }

    /// A flush has failed: what was lost by now is told.
    pub(crate) fn flush_failed(&mut self, flushing: &Flushing) {
        self.forgive(flushing.volume);
    }

    /// Something that was acknowledged is lost: a flush has to say so.
    pub(crate) fn is_to_be_told(&mut self, volume: usize) {
        self.volumes[volume].losses += 1;
    }

    /// Whether that is so of something.
    pub(crate) fn is_untold(&self, volume: usize) -> bool {
        let volume = &self.volumes[volume];
        volume.told != volume.losses
    }

    /// What was lost by now need not be told any more.
    pub(crate) fn forgive(&mut self, volume: usize) {
        let volume = &mut self.volumes[volume];
        volume.told = volume.losses;
    }

    /// Caches are gone: what was there before unflushed writes may be there again.
    pub(crate) fn lose_caches(&mut self) {
        let raw = self.volumes.iter_mut().filter(|volume| volume.raw);
        for entry in raw.flat_map(|volume| volume.granules.iter_mut().flatten()) {
            if !entry.buried {
                entry.gone = None;
            }
        }
    }

    /// One volume's cache is gone, and nothing else happens: a write that is on its way may have been in it, too.
    pub(crate) fn lose_cache_of(&mut self, volume: usize) {
        for entry in self.volumes[volume].granules.iter_mut().flatten() {
            if !entry.buried {
                entry.gone = None;
            }
        }
        for &write in &self.open_writes {
            let one = &mut self.writes[write as usize];
            one.lost |= one.volume == volume && !one.effect.is_forced();
        }
    }

    /// A read of a pass-through volume found these values in the pieces of a granule.
    ///
    /// # Errors
    /// What is wrong with that.
    pub(crate) fn observe_pieces(
        &mut self,
        reading: &Reading,
        index: usize,
        values: &[u64],
    ) -> Result<(), String> {
        let mut values = values.to_vec();
        values.dedup();
        values
            .into_iter()
            .try_for_each(|value| self.observe(reading, index, value))
    }
}

#[cfg(test)]
mod tests {
    use ashlar_block::BlockRange;

    use super::super::Effect;
    use super::*;
    use crate::content::ZERO;

    const ONE: BlockRange = BlockRange::new(0, 1);
    const DATA: Effect = Effect::Data { forced: false };

    fn model() -> Model {
        Model::new(&[(4, true)])
    }

    fn acknowledged(model: &mut Model, effect: Effect) -> u64 {
        let write = model.submit(0, ONE, effect);
        model.answer(write, true);
        write
    }

    fn may_hold(model: &mut Model, values: &[u64]) -> bool {
        let reading = model.read(0, ONE);
        let seen = model.observe_pieces(&reading, 0, values);
        model.read_over(&reading);
        seen.is_ok()
    }

    #[test]
    fn what_was_not_flushed_may_be_gone_with_the_power() {
        let mut model = model();
        let a = acknowledged(&mut model, DATA);
        let flushing = model.flush(0);
        let b = acknowledged(&mut model, DATA);
        model.flushed(&flushing).expect("nothing is lost");
        assert!(may_hold(&mut model, &[b]) && !may_hold(&mut model, &[a]));
        model.crash();
        assert!(!may_hold(&mut model, &[a]), "the power is still there");
        model.lose_caches();
        assert!(may_hold(&mut model, &[b, a, b]) && !may_hold(&mut model, &[ZERO]));
        let c = acknowledged(&mut model, Effect::Data { forced: true });
        model.lose_caches();
        assert!(may_hold(&mut model, &[c]) && !may_hold(&mut model, &[c, b]));
    }

    #[test]
    fn a_loss_is_told_by_the_first_flush_that_ends_after_it() {
        let mut model = model();
        let before = model.flush(0);
        model.is_to_be_told(0);
        let after = model.flush(0);
        for flushing in [before, after] {
            assert!(model.flushed(&flushing).is_err());
        }
        model.flush_failed(&after);
        assert!(model.flushed(&before).is_err(), "it began before that");
        let last = model.flush(0);
        assert!(model.flushed(&last).is_ok());
    }

    #[test]
    fn deallocated_blocks_may_hold_what_they_held() {
        let mut model = model();
        let a = acknowledged(&mut model, Effect::Data { forced: true });
        acknowledged(&mut model, Effect::Drop);
        assert!(may_hold(&mut model, &[a]) && may_hold(&mut model, &[ZERO]));
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut model = model();
        let a = acknowledged(&mut model, DATA);
        model.grow(0, 0, 4);
        model.lose_caches();
        assert!(!may_hold(&mut model, &[a]) && may_hold(&mut model, &[ZERO]));
    }
}
