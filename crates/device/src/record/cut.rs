//! What may be there after the power went.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;

use super::format::{Entry, Kind};
use super::{Trace, TraceError};

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is there, and had to be: a flush that covers it had completed, or it was durable by itself.
    Settled,
    /// It is there by chance.
    There,
    /// It is not.
    Missing,
    /// Of its units (of [`PowerCut::tear`] bytes) those are there.
    Torn(Vec<bool>),
}

/// The power goes: at one moment, for all devices that the same process recorded.
///
/// Every change that a completed flush covers (it had completed before the flush was submitted), and
/// every completed durable one, is there. Every other that had been submitted is there, is missing, or is
/// torn, whatever became of its neighbours. Changes of the same bytes that were not in flight together stay
/// in order; of two that were, either may be the later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// The last stamp that is before it.
    pub at: u64,
    /// What chance follows from.
    pub seed: u64,
    /// Bytes that a drive writes whole: 512 or 4096.
    pub tear: u32,
}

/// A change and what became of it.
pub(super) struct Landing {
    /// Its place in the trace.
    pub(super) entry: usize,
    pub(super) fate: Fate,
}

/// A change that was submitted.
struct Change {
    entry: usize,
    /// When it completed, if it did.
    done: Option<usize>,
    settled: bool,
}

impl PowerCut {
    /// A moment within a span of time: right after an entry of the traces. Of a few, each as likely as any
    /// other, it is the one at which most bytes were not settled.
    ///
    /// # Errors
    /// Nothing was recorded in that time, or as [`write_image`](super::write_image)'s.
    pub fn moment(
        traces: &[Trace],
        span: &RangeInclusive<u64>,
        seed: u64,
    ) -> Result<u64, TraceError> {
        let stamps = traces.iter().flat_map(Trace::entries).map(|entry| entry.at);
        let stamps: Vec<u64> = stamps.filter(|at| span.contains(at)).collect();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut worst = None;
        for _ in 0..CANDIDATES {
            let Some(&at) = random.choice(&stamps) else {
                break;
            };
            let cut = Self {
                at,
                seed,
                tear: 4096,
            };
            let mut bytes = 0;
            for trace in traces {
                bytes += cut.unsettled_bytes(trace)?;
            }
            worst = worst.max(Some((bytes, at)));
        }
        let nothing = || TraceError::new("nothing was recorded in that time");
        worst.map(|(_, at)| at).ok_or_else(nothing)
    }

    fn unsettled_bytes(&self, trace: &Trace) -> Result<u64, TraceError> {
        let changes = self.changes(trace)?;
        let unsettled = changes.iter().filter(|change| !change.settled);
        let entries = unsettled.filter_map(|change| trace.entry(change.entry));
        Ok(entries
            .filter(|entry| entry.kind == Kind::Write)
            .map(|entry| entry.len)
            .sum())
    }

    /// What becomes of every change of a trace before the cut, in the order in which they landed.
    /// `device` numbers the devices, whose chances differ.
    pub(super) fn landings(&self, trace: &Trace, device: u64) -> Result<Vec<Landing>, TraceError> {
        let mut changes = self.changes(trace)?;
        let mut random = fastrand::Rng::with_seed(self.seed ^ device.rotate_left(40));
        let mood = Mood {
            there: random.f64(),
            torn: random.f64(),
        };
        let mut landings = Vec::with_capacity(changes.len());
        for change in changes.drain(..) {
            let Some(entry) = trace.entry(change.entry) else {
                continue;
            };
            let (place, fate) = match change.settled {
                true => (change.entry, Fate::Settled),
                false => {
                    // It landed at some time while it was in flight.
                    let late = change.done.unwrap_or(usize::MAX);
                    let place = if random.bool() { change.entry } else { late };
                    (place, self.fate(entry, &mood, &mut random))
                }
            };
            let entry = change.entry;
            landings.push((place, Landing { entry, fate }));
        }
        landings.sort_by_key(|(place, landing)| (*place, landing.entry));
        Ok(landings.into_iter().map(|(_, landing)| landing).collect())
    }

    /// The changes before the cut, in the order of their submission, and which of them are settled.
    fn changes(&self, trace: &Trace) -> Result<Vec<Change>, TraceError> {
        let through = !trace.header().volatile_cache;
        let mut changes: Vec<Change> = Vec::new();
        let mut pending: HashMap<u64, Pending> = HashMap::new();
        // Complete and not settled, in the order of their completion.
        let mut cached: VecDeque<(usize, usize)> = VecDeque::new();
        let entries = trace.entries().enumerate();
        for (index, entry) in entries.take_while(|(_, entry)| entry.at <= self.at) {
            match entry.kind {
                Kind::Opened if pending.is_empty() => {}
                Kind::Opened => {
                    let why = "before the cut its recording ended with requests in flight, whose outcome is not known: choose an earlier one";
                    return Err(TraceError::new(why));
                }
                Kind::Flush => drop(pending.insert(entry.id, Pending::Flush(index))),
                Kind::Done => match pending.remove(&entry.id) {
                    Some(Pending::Flush(begun)) if !entry.flag => {
                        while let Some((_, at)) = cached.pop_front_if(|(done, _)| *done < begun) {
                            changes[at].settled = true;
                        }
                    }
                    Some(Pending::Change(at)) if !entry.flag => {
                        changes[at].done = Some(index);
                        let durable = trace.entry(changes[at].entry).is_some_and(|e| e.flag);
                        changes[at].settled = durable || through;
                        if !changes[at].settled {
                            cached.push_back((index, at));
                        }
                    }
                    Some(_) => {}
                    None => return Err(TraceError::new("ends what was not begun")),
                },
                Kind::Read => {}
                Kind::Write | Kind::WriteZeroes | Kind::Deallocate => {
                    pending.insert(entry.id, Pending::Change(changes.len()));
                    changes.push(Change {
                        entry: index,
                        done: None,
                        settled: false,
                    });
                }
            }
        }
        Ok(changes)
    }

    fn fate(&self, entry: &Entry, mood: &Mood, random: &mut fastrand::Rng) -> Fate {
        let units = entry.len.div_ceil(u64::from(self.tear));
        if units > 1 && random.f64() < mood.torn {
            let units = usize::try_from(units).unwrap_or(usize::MAX).min(MOST_UNITS);
            // Half of the time from one end, otherwise anywhere.
            let pieces = match random.bool() {
                true => {
                    let first = random.usize(..units);
                    (0..units).map(|unit| unit < first).collect()
                }
                false => (0..units).map(|_| random.bool()).collect(),
            };
            return Fate::Torn(pieces);
        }
        match random.f64() < mood.there {
            true => Fate::There,
            false => Fate::Missing,
        }
    }
}

/// Of so many moments the worst is taken.
const CANDIDATES: usize = 8;

/// Zeroing may cover a whole device; of what is behind so many units nothing is there if it is torn.
const MOST_UNITS: usize = 1 << 16;

/// What is in flight.
enum Pending {
    /// The change of this number.
    Change(usize),
    /// A flush, submitted at this entry.
    Flush(usize),
}

/// How one power cut treats what is not settled.
struct Mood {
    there: f64,
    torn: f64,
}
