//! What hosts may see. A granule is a register. A write that is pending may take effect at any time, and again, for
//! hosts retry; once it was acknowledged it has. For each granule a set of what is possible is kept: the value, and
//! which pending writes have taken effect.

/// The value that one write leaves in each of its granules; 0 is zeroes.
pub(crate) type Value = u32;

/// Writers that can have a write pending, at most.
pub(crate) const MOST_WRITERS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Possible {
    value: Value,
    /// By writer, whether its pending write has taken effect.
    done: u8,
}

/// A write of one writer that has begun and is not over.
#[derive(Clone, Debug)]
struct Pending {
    first: usize,
    end: usize,
    value: Value,
    /// It has taken effect, or never will.
    is_fenced: bool,
}

/// All granules.
#[derive(Debug)]
pub(crate) struct Model {
    granules: Vec<Vec<Possible>>,
    pending: [Option<Pending>; MOST_WRITERS],
    /// Writers of which nothing may take effect.
    fenced: [bool; MOST_WRITERS],
    /// Grows whenever something becomes possible.
    version: u64,
}

impl Model {
    pub(crate) fn new(granules: usize) -> Self {
        let zero = Possible { value: 0, done: 0 };
        Self {
            granules: vec![vec![zero]; granules],
            pending: [const { None }; MOST_WRITERS],
            fenced: [false; MOST_WRITERS],
            version: 0,
        }
    }

    /// Grows whenever something becomes possible.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// A writer's write begins: it may take effect from now on.
    pub(crate) fn begin(&mut self, writer: usize, granules: std::ops::Range<u64>, value: Value) {
        self.give_up(writer);
        let (first, end) = (granules.start as usize, granules.end as usize);
        self.pending[writer] = Some(Pending {
            first,
            end,
            value,
            is_fenced: self.fenced[writer],
        });
        (first..end).for_each(|granule| self.close(granule));
        self.version += 1;
    }

    /// It was acknowledged: it has taken effect.
    ///
    /// # Errors
    /// If what was seen since says that it has not.
    pub(crate) fn acknowledged(&mut self, writer: usize) -> Result<(), String> {
        let Some(pending) = self.pending[writer].take() else {
            return Err(format!("writer {writer} has no write"));
        };
        for granule in pending.first..pending.end {
            let set = &mut self.granules[granule];
            set.retain(|possible| possible.done >> writer & 1 == 1);
            if set.is_empty() {
                return Err(format!("granule {granule}: nothing explains it"));
            }
            self.forget_done(granule, writer);
        }
        self.version += 1;
        Ok(())
    }

    /// A writer's write has taken effect by now, or never will.
    pub(crate) const fn settle(&mut self, writer: usize) {
        if let Some(pending) = &mut self.pending[writer] {
            pending.is_fenced = true;
        }
    }

    /// The same, and so it is of what the writer sends from now on. Whether that is news.
    pub(crate) const fn fence(&mut self, writer: usize) -> bool {
        self.settle(writer);
        !std::mem::replace(&mut self.fenced[writer], true)
    }

    /// It may take effect again, from now on.
    pub(crate) fn unfence(&mut self, writer: usize) {
        self.fenced[writer] = false;
        let pending = self.pending[writer].as_mut();
        let Some(pending) = pending.filter(|pending| pending.is_fenced) else {
            return;
        };
        pending.is_fenced = false;
        (pending.first..pending.end).for_each(|granule| self.close(granule));
        self.version += 1;
    }

    /// A writer does not go on with its write: it has taken effect, or never will.
    pub(crate) fn give_up(&mut self, writer: usize) {
        let Some(pending) = self.pending[writer].take() else {
            return;
        };
        for granule in pending.first..pending.end {
            self.forget_done(granule, writer);
        }
        self.version += 1;
    }

    /// Whether a writer's write has taken effect is of no interest any more.
    fn forget_done(&mut self, granule: usize, writer: usize) {
        let set = &mut self.granules[granule];
        set.iter_mut()
            .for_each(|possible| possible.done &= !(1 << writer));
        set.sort_unstable();
        set.dedup();
    }

    /// Whether a granule may hold this now.
    pub(crate) fn may_be(&self, granule: usize, value: Value) -> bool {
        self.granules[granule]
            .iter()
            .any(|possible| possible.value == value)
    }

    /// What a granule may hold now.
    pub(crate) fn values(&self, granule: usize) -> Vec<Value> {
        let mut values: Vec<Value> = self.granules[granule].iter().map(|p| p.value).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// A granule was seen to hold this just now, by a read that is as good as answered: it stays seen.
    ///
    /// # Errors
    /// If no order of the writes explains it.
    pub(crate) fn seen(&mut self, granule: usize, value: Value) -> Result<(), String> {
        let set = &mut self.granules[granule];
        if set.iter().all(|possible| possible.value == value) && !set.is_empty() {
            return Ok(());
        }
        set.retain(|possible| possible.value == value);
        if set.is_empty() {
            return Err(format!(
                "a read of granule {granule} sees {value}, which no order of the writes explains: lost or reverted"
            ));
        }
        self.close(granule);
        Ok(())
    }

    fn close(&mut self, granule: usize) {
        let covers = |pending: &Pending| {
            !pending.is_fenced && (pending.first..pending.end).contains(&granule)
        };
        loop {
            let set = &self.granules[granule];
            let mut more: Vec<Possible> = Vec::new();
            for (writer, pending) in self.pending.iter().enumerate() {
                let Some(pending) = pending.as_ref().filter(|pending| covers(pending)) else {
                    continue;
                };
                more.extend(set.iter().map(|possible| Possible {
                    value: pending.value,
                    done: possible.done | 1 << writer,
                }));
            }
            more.retain(|possible| !set.contains(possible));
            if more.is_empty() {
                return;
            }
            let set = &mut self.granules[granule];
            set.extend(more);
            set.sort_unstable();
            set.dedup();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_stays_and_what_was_acknowledged_has_happened() {
        let mut model = Model::new(1);
        model.begin(0, 0..1, 7);
        model.begin(1, 0..1, 8);
        assert_eq!(model.values(0), [0, 7, 8]);
        model.seen(0, 7).expect("one of them");
        assert_eq!(model.values(0), [7, 8], "0 is gone; 8 may come");
        model.acknowledged(0).expect("it was seen");
        model.seen(0, 8).expect("the other");
        assert_eq!(model.values(0), [8]);
        assert!(
            model.seen(0, 7).is_err(),
            "it was acknowledged, and may not come again"
        );
    }

    #[test]
    fn what_a_fenced_writer_has_sent_has_taken_effect_or_never_will() {
        let mut model = Model::new(1);
        model.begin(0, 0..1, 7);
        assert!(model.fence(0) && !model.fence(0));
        assert_eq!(model.values(0), [0, 7], "it may have been done before");
        model.seen(0, 0).expect("it was not");
        assert!(model.seen(0, 7).is_err(), "nor may it be done later");
        let mut model = Model::new(1);
        model.begin(0, 0..1, 7);
        model.fence(0);
        model.acknowledged(0).expect("it was done before");
        assert_eq!(model.values(0), [7]);
        model.begin(0, 0..1, 8);
        assert_eq!(model.values(0), [7], "it is not let in");
        model.unfence(0);
        assert_eq!(model.values(0), [7, 8]);
        model.give_up(0);
        model.seen(0, 7).expect("it was not done");
        assert_eq!(model.values(0), [7], "and is not sent again");
    }
}
