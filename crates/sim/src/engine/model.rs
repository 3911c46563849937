//! What every granule may hold: the set of values that a correct engine can return.
//!
//! An acknowledged write is durable, so a crash takes nothing that was acknowledged, and what it may
//! do is easily said: every write on its way then either happened or did not, per granule, and per
//! *group* for those that must be atomic; none of them happens later.
//!
//! Pass-through volumes promise less ([`raw`]): what was not flushed may be gone with the power, and
//! a granule may be in pieces.

mod pairs;
mod raw;

use ashlar_block::BlockRange;

pub(crate) use raw::Flushing;

use crate::content::ZERO;

/// A point in the order of events.
pub(crate) type Seq = u64;
/// A write's number; 0 is "as the volume was made".
pub(crate) type WriteId = u64;

/// Largest write that must be atomic, and the boundary it must not cross, in granules.
pub(crate) const ATOMIC_GRANULES: u32 = 16;
const BOUNDARY: u64 = 16;
/// Entries of a granule beyond which those that are history are forgotten.
const MOST_ENTRIES: usize = 48;

/// Why a value can no longer be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// This later write was acknowledged.
    Overwritten(WriteId),
    /// A read has returned this content instead.
    Seen(u64),
    /// It is part of an atomic write of which another part (this granule) did or did not happen.
    Torn(WriteId, u64),
    /// It was refused, or taken back.
    Refused(WriteId),
    /// The volume had become smaller, and has grown again.
    CutOff,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    write: WriteId,
    gone: Option<(Seq, Gone)>,
    /// What has taken its place is on the medium; it cannot come back. Always so where no volatile
    /// cache is passed through.
    buried: bool,
}

impl Entry {
    const fn new(write: WriteId) -> Self {
        Self {
            write,
            gone: None,
            buried: false,
        }
    }
}

/// A write, for as long as the model lives.
#[derive(Clone, Copy, Debug)]
struct Write {
    volume: usize,
    range: BlockRange,
    effect: Effect,
    submitted: Seq,
    /// When it was acknowledged, failed, or cut off by a crash; after that it takes no effect.
    ended: Option<Seq>,
    acknowledged: bool,
    /// A crash cut it off, and it must have happened as a whole or not at all.
    group: bool,
    /// What of it was done by then may have been lost with a cache.
    lost: bool,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Data; durable when it is acknowledged, if forced.
    Data { forced: bool },
    /// Zeroes; durable when that is acknowledged, if forced.
    Zero { forced: bool },
    /// Deallocates: zeroes where that is promised, zeroes or nothing on pass-through volumes.
    Drop,
}

impl Effect {
    const fn is_forced(self) -> bool {
        matches!(
            self,
            Self::Data { forced: true } | Self::Zero { forced: true }
        )
    }
}

/// A read on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) volume: usize,
    pub(crate) range: BlockRange,
    begun: Seq,
}

/// The model of a volume.
struct Volume {
    /// What each granule may hold; more than the volume has now, if it was larger.
    granules: Vec<Vec<Entry>>,
    size: u64,
    raw: bool,
    /// Losses of what was acknowledged and not flushed, and how many of them hosts were told by a flush that failed.
    losses: u64,
    told: u64,
}

/// The model of all volumes.
pub(crate) struct Model {
    volumes: Vec<Volume>,
    writes: Vec<Write>,
    open_writes: Vec<WriteId>,
    open_reads: Vec<Seq>,
    seq: Seq,
}

/// Whether a write of this range must be all or nothing.
pub(crate) fn is_atomic(range: BlockRange) -> bool {
    let last = range.start.0 + u64::from(range.count.max(1)) - 1;
    range.count <= ATOMIC_GRANULES && range.start.0 / BOUNDARY == last / BOUNDARY
}

impl Model {
    /// Volumes of these many granules, all zero, and whether they are passed through.
    pub(crate) fn new(volumes: &[(u64, bool)]) -> Self {
        let volume = |&(granules, raw): &(u64, bool)| Volume {
            granules: vec![vec![Entry::new(0)]; granules as usize],
            size: granules,
            raw,
            losses: 0,
            told: 0,
        };
        let first = Write {
            volume: 0,
            range: BlockRange::default(),
            effect: Effect::Zero { forced: true },
            submitted: 0,
            ended: Some(0),
            acknowledged: true,
            group: false,
            lost: false,
        };
        Self {
            volumes: volumes.iter().map(volume).collect(),
            writes: vec![first],
            open_writes: Vec::new(),
            open_reads: Vec::new(),
            seq: 0,
        }
    }

    fn tick(&mut self) -> Seq {
        self.seq += 1;
        self.seq
    }

    fn value(&self, write: WriteId) -> u64 {
        match self.writes[write as usize].effect {
            Effect::Data { .. } => write,
            Effect::Zero { .. } | Effect::Drop => ZERO,
        }
    }

    /// A write, or what makes zeroes, is on its way.
    pub(crate) fn submit(&mut self, volume: usize, range: BlockRange, effect: Effect) -> WriteId {
        let submitted = self.tick();
        let write = self.writes.len() as WriteId;
        self.writes.push(Write {
            volume,
            range,
            effect,
            submitted,
            ended: None,
            acknowledged: false,
            group: false,
            lost: false,
        });
        self.open_writes.push(write);
        let oldest_read = self.open_reads.first().copied().unwrap_or(submitted);
        let Volume {
            granules: all, raw, ..
        } = &mut self.volumes[volume];
        for granule in granules(range) {
            let entries = &mut all[granule];
            if entries.len() > MOST_ENTRIES {
                let may_return = |e: &Entry| *raw && !e.buried;
                entries.retain(|e| e.gone.is_none_or(|(at, _)| at > oldest_read) || may_return(e));
            }
            entries.push(Entry::new(write));
        }
        write
    }

    /// A write was answered.
    pub(crate) fn answer(&mut self, write: WriteId, done: bool) {
        let now = self.tick();
        self.open_writes.retain(|&open| open != write);
        let one = &mut self.writes[write as usize];
        one.ended = Some(now);
        one.acknowledged = done;
        let one = *one;
        let Volume {
            granules: all, raw, ..
        } = &mut self.volumes[one.volume];
        let forced = match one.effect {
            Effect::Data { forced } | Effect::Zero { forced } => forced || !*raw,
            Effect::Drop if *raw => return,
            Effect::Drop => true,
        };
        if !done || one.lost {
            return;
        }
        for granule in granules(one.range) {
            for entry in &mut all[granule] {
                let old = self.writes[entry.write as usize];
                if old.ended.is_none_or(|ended| ended >= one.submitted) {
                    continue;
                }
                entry.gone.get_or_insert((now, Gone::Overwritten(write)));
                entry.buried |= forced;
            }
        }
    }

    /// A write had no effect, and will have none.
    pub(crate) fn refute(&mut self, write: WriteId) {
        let now = self.tick();
        self.open_writes.retain(|&open| open != write);
        let one = &mut self.writes[write as usize];
        one.ended.get_or_insert(now);
        one.group = false;
        let (volume, range) = (one.volume, one.range);
        for granule in granules(range) {
            for entry in &mut self.volumes[volume].granules[granule] {
                if entry.write == write {
                    entry.gone = Some((now, Gone::Refused(write)));
                    entry.buried = true;
                }
            }
        }
    }

    /// Commands go up to here from now on.
    pub(crate) fn limit(&mut self, volume: usize, granules: u64) {
        self.volumes[volume].size = granules;
    }

    /// A volume has grown: what was behind its end reads as zeroes, and never was anything else.
    pub(crate) fn grow(&mut self, volume: usize, from: u64, to: u64) {
        let range = BlockRange::new(from, (to - from) as u32);
        let all = &mut self.volumes[volume].granules;
        if all.len() < to as usize {
            all.resize(to as usize, Vec::new());
        }
        let now = self.tick();
        for granule in granules(range) {
            for entry in &mut self.volumes[volume].granules[granule] {
                entry.gone.get_or_insert((now, Gone::CutOff));
                entry.buried = true;
            }
        }
        let zeroes = self.submit(volume, range, Effect::Zero { forced: true });
        self.answer(zeroes, true);
    }

    /// A read begins.
    pub(crate) fn read(&mut self, volume: usize, range: BlockRange) -> Reading {
        let begun = self.tick();
        self.open_reads.push(begun);
        Reading {
            volume,
            range,
            begun,
        }
    }

    /// A read has ended, or will never.
    pub(crate) fn read_over(&mut self, reading: &Reading) {
        self.open_reads.retain(|&open| open != reading.begun);
    }

    /// A read returned content `value` for the `index`th of its granules.
    ///
    /// # Errors
    /// What is wrong with that.
    pub(crate) fn observe(
        &mut self,
        reading: &Reading,
        index: usize,
        value: u64,
    ) -> Result<(), String> {
        let Reading { volume, begun, .. } = *reading;
        let granule = reading.range.start.0 as usize + index;
        let entries = &self.volumes[volume].granules[granule];
        let fits = |e: &&Entry| self.value(e.write) == value;
        let possible = |e: &Entry| e.gone.is_none_or(|(at, _)| at > begun);
        if !entries.iter().filter(fits).any(possible) {
            return Err(self.explain(volume, granule, value, begun));
        }
        if self.volumes[volume].raw {
            // What is in a cache may be gone with the power, and what came of a write in part is no
            // news of the rest.
            return Ok(());
        }
        let now = self.tick();
        self.decide(volume, granule, now, |model, entry| {
            let past = model.writes[entry.write as usize]
                .ended
                .is_some_and(|ended| ended < begun);
            (past && model.value(entry.write) != value).then_some(Gone::Seen(value))
        });
        self.spread(volume, granule, value, now);
        Ok(())
    }

    /// Rules out values of a granule.
    fn decide(
        &mut self,
        volume: usize,
        granule: usize,
        now: Seq,
        out: impl Fn(&Self, &Entry) -> Option<Gone>,
    ) {
        let mut entries = std::mem::take(&mut self.volumes[volume].granules[granule]);
        for entry in &mut entries {
            if entry.gone.is_none() {
                entry.gone = out(self, entry).map(|why| (now, why));
            }
        }
        self.volumes[volume].granules[granule] = entries;
    }

    /// What one granule says about the others of atomic writes that a crash cut off.
    fn spread(&mut self, volume: usize, granule: usize, value: u64, now: Seq) {
        let groups: Vec<WriteId> = self.volumes[volume].granules[granule]
            .iter()
            .map(|e| e.write)
            .filter(|&w| self.writes[w as usize].group)
            .collect();
        for group in groups {
            let write = self.writes[group as usize];
            let why = Gone::Torn(group, granule as u64);
            if self.value(group) == value {
                // It happened: nothing that was before it can be left anywhere.
                let before = move |model: &Self, e: &Entry| {
                    let ended = model.writes[e.write as usize].ended;
                    ended
                        .is_some_and(|ended| ended < write.submitted)
                        .then_some(why)
                };
                for other in granules(write.range) {
                    self.decide(volume, other, now, before);
                }
                self.writes[group as usize].group = false;
            } else if self.is_before(volume, granule, value, write.submitted) {
                // It did not happen.
                for other in granules(write.range) {
                    self.decide(volume, other, now, |_, e| (e.write == group).then_some(why));
                }
                self.writes[group as usize].group = false;
            }
        }
    }

    /// Whether content `value` can only be of writes that had ended before `at`.
    fn is_before(&self, volume: usize, granule: usize, value: u64, at: Seq) -> bool {
        let alive = self.volumes[volume].granules[granule]
            .iter()
            .filter(|e| e.gone.is_none() && self.value(e.write) == value);
        let mut any = false;
        for entry in alive {
            any = true;
            let ended = self.writes[entry.write as usize].ended;
            if ended.is_none_or(|ended| ended >= at) {
                return false;
            }
        }
        any
    }

    /// The engine is gone: what was on its way happened or did not, and will not any more.
    pub(crate) fn crash(&mut self) {
        let now = self.tick();
        for write in std::mem::take(&mut self.open_writes) {
            let one = &mut self.writes[write as usize];
            one.ended = Some(now);
            let whole = matches!(one.effect, Effect::Data { .. }) && !self.volumes[one.volume].raw;
            one.group = whole && one.range.count > 1 && is_atomic(one.range);
        }
        self.open_reads.clear();
    }

    fn explain(&self, volume: usize, granule: usize, value: u64, begun: Seq) -> String {
        let entries = &self.volumes[volume].granules[granule];
        let place = format!("volume {volume} granule {granule}");
        let what = self.name(value);
        let found = entries
            .iter()
            .filter(|e| self.value(e.write) == value)
            .filter_map(|e| e.gone)
            .max_by_key(|(at, _)| *at);
        let may: Vec<String> = entries
            .iter()
            .filter(|e| e.gone.is_none_or(|(at, _)| at > begun))
            .map(|e| self.name(self.value(e.write)))
            .collect();
        let may = may.join(" or ");
        match found {
            Some((_, Gone::Overwritten(write))) => format!(
                "lost: {place} holds {what}, but {} was acknowledged after it; it may hold {may}",
                self.describe(write)
            ),
            Some((_, Gone::Seen(seen))) => format!(
                "reverted: {place} holds {what}, but a read has returned {} since; it may hold {may}",
                self.name(seen)
            ),
            Some((_, Gone::Torn(write, other))) => format!(
                "torn: {place} holds {what}, but granule {other} says otherwise of {}; it may hold \
                 {may}",
                self.describe(write)
            ),
            Some((_, Gone::Refused(write))) => format!(
                "refused: {place} holds {what}, but {} had no effect; it may hold {may}",
                self.describe(write)
            ),
            Some((_, Gone::CutOff)) => {
                format!("leaked: {place} holds {what}, of before it was cut off; it may hold {may}")
            }
            None => {
                let known = self.writes.get(value as usize);
                match known.filter(|w| w.volume == volume && holds(w.range, granule)) {
                    Some(_) => format!("lost: {place} holds {what}, long gone; it may hold {may}"),
                    None => format!("strange: {place} holds {what}, which was never written there"),
                }
            }
        }
    }

    fn name(&self, value: u64) -> String {
        if value == ZERO {
            "zeroes".into()
        } else {
            format!("write {value}")
        }
    }

    /// A write, in words.
    pub(crate) fn describe(&self, write: WriteId) -> String {
        let one = &self.writes[write as usize];
        let how = match (one.ended, one.acknowledged) {
            (None, _) => "on its way",
            (Some(_), true) => "acknowledged",
            (Some(_), false) => "cut off or failed",
        };
        let what = match one.effect {
            Effect::Data { .. } => "write",
            Effect::Zero { .. } => "zeroing",
            Effect::Drop => "dropping",
        };
        format!(
            "{what} {write} (volume {} granules {}+{}, {how})",
            one.volume, one.range.start.0, one.range.count
        )
    }

    /// How many granules of a volume may be asked for.
    pub(crate) fn granules(&self, volume: usize) -> u64 {
        self.volumes[volume].size
    }
}

fn granules(range: BlockRange) -> std::ops::Range<usize> {
    let start = range.start.0 as usize;
    start..start + range.count as usize
}

fn holds(range: BlockRange, granule: usize) -> bool {
    granules(range).contains(&granule)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Effect = Effect::Data { forced: false };
    const ZEROES: Effect = Effect::Zero { forced: false };

    const ONE: BlockRange = BlockRange::new(0, 1);
    const FOUR: BlockRange = BlockRange::new(0, 4);

    fn look(model: &mut Model, granule: u64, value: u64) -> Result<(), String> {
        let reading = model.read(0, BlockRange::new(granule, 1));
        let seen = model.observe(&reading, 0, value);
        model.read_over(&reading);
        seen
    }

    fn says(result: Result<(), String>, word: &str) -> bool {
        result.is_err_and(|why| why.starts_with(word))
    }

    #[test]
    fn an_acknowledged_write_is_never_lost() {
        let mut model = Model::new(&[(4, false)]);
        let a = model.submit(0, ONE, DATA);
        model.answer(a, true);
        let b = model.submit(0, ONE, DATA);
        model.crash();
        assert!(says(look(&mut model, 0, ZERO), "lost"));
        assert!(says(look(&mut model, 0, 9), "strange"));
        assert!(look(&mut model, 0, a).is_ok());
        assert!(says(look(&mut model, 0, b), "reverted"), "it was not there");
        let zeroes = model.submit(0, ONE, ZEROES);
        model.answer(zeroes, true);
        assert!(says(look(&mut model, 0, a), "lost"));
        assert!(look(&mut model, 0, ZERO).is_ok());
    }

    #[test]
    fn a_value_once_read_stays() {
        let mut model = Model::new(&[(1, false)]);
        let a = model.submit(0, ONE, DATA);
        assert!(look(&mut model, 0, ZERO).is_ok(), "not yet");
        assert!(look(&mut model, 0, a).is_ok());
        model.crash();
        assert!(says(look(&mut model, 0, ZERO), "reverted"));
    }

    #[test]
    fn reads_and_writes_on_their_way_together_may_meet_in_any_order() {
        let mut model = Model::new(&[(1, false)]);
        let (a, b) = (model.submit(0, ONE, DATA), model.submit(0, ONE, DATA));
        let reading = model.read(0, ONE);
        model.answer(a, true);
        model.answer(b, true);
        assert!(model.observe(&reading, 0, ZERO).is_ok(), "it began before");
        assert!(says(look(&mut model, 0, ZERO), "lost"));
        assert!(look(&mut model, 0, a).is_ok());
        assert!(says(look(&mut model, 0, b), "reverted"));
    }

    #[test]
    fn small_writes_are_all_or_nothing_over_a_crash() {
        for first in [true, false] {
            let mut model = Model::new(&[(32, false)]);
            let a = model.submit(0, FOUR, DATA);
            model.answer(a, true);
            let b = model.submit(0, FOUR, DATA);
            model.crash();
            let (seen, other) = if first { (b, a) } else { (a, b) };
            assert!(look(&mut model, 2, seen).is_ok());
            assert!(says(look(&mut model, 0, other), "torn"));
            assert!(look(&mut model, 3, seen).is_ok());
        }
        assert!(!is_atomic(BlockRange::new(14, 4)) && !is_atomic(BlockRange::new(0, 17)));
        assert!(is_atomic(BlockRange::new(13, 3)));
    }

    #[test]
    fn a_write_beside_an_atomic_one_says_nothing_about_it() {
        let mut model = Model::new(&[(4, false)]);
        let b = model.submit(0, FOUR, DATA);
        let c = model.submit(0, ONE, DATA);
        model.crash();
        assert!(look(&mut model, 0, c).is_ok());
        assert!(look(&mut model, 1, b).is_ok());
        assert!(says(look(&mut model, 2, ZERO), "torn"));
    }
}
