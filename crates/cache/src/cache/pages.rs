//! Pages of bits: what is true here, and what is durable. A page is written by one request at a time; who needs a
//! change to be durable waits for the next write that has it.
//!
//! A flush of the backing device can make tens of thousands of pages due at once. They are written a few at a time, those
//! first that something waits for, and stay due while there is no memory for them. So do those for which the fast device has
//! no room: [`space`](super::space) says what becomes of what waits for them.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use ashlar_block::{ErrorKind, IoError, Moment};

use super::io::Target;
use super::{BLOCK, Cache, News, Owner};
use crate::bits::Bits;
use crate::lately::Lately;
use crate::layout::{PAGE, Said, encode_page};
use crate::policy::BlockIndex;

/// Pages that are written at a time: 1 MiB of the memory for requests.
const MOST_ON_THEIR_WAY: usize = 256;
/// How long pages for which there was no room are left alone.
const RETRY: Duration = Duration::from_secs(1);
/// How many of them are tried then; when one finds room, so many more are at once.
const AGAIN_AT_A_TIME: usize = 64;

/// How a granule is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is not.
    Absent,
    /// As the backing device has it.
    Clean,
    /// Newer than there.
    Dirty,
}

impl State {
    fn is_cached(self) -> bool {
        self != Self::Absent
    }

    fn is_dirty(self) -> bool {
        self == Self::Dirty
    }
}

/// When a page is to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    #[default]
    Not,
    /// When nothing else is.
    Some,
    /// Something waits for it.
    Awaited,
}

/// Pages that are to be written, each in the order in which that was found. What is said of a page counts: it can be in
/// both.
#[derive(Default)]
pub(super) struct DuePages {
    awaited: VecDeque<u64>,
    others: VecDeque<u64>,
    on_their_way: usize,
    /// For which there was no room: of those, whose older self is durable, and others. When they are tried again.
    refused: BTreeSet<u64>,
    refused_new: BTreeSet<u64>,
    again_at: Option<Moment>,
}

impl DuePages {
    fn add(&mut self, number: u64, page: &mut Page, due: Due) {
        if page.due >= due {
            return;
        }
        page.due = due;
        match due {
            Due::Not => {}
            Due::Some => self.others.push_back(number),
            Due::Awaited => self.awaited.push_back(number),
        }
    }

    /// Of a page that is refused and new nothing is durable, which is what a crash finds then.
    fn is_over(&self) -> bool {
        let none_waits = self.awaited.is_empty() && self.others.is_empty();
        self.on_their_way == 0 && none_waits && self.refused.is_empty()
    }

    fn is_refused(&self, page: u64) -> bool {
        self.refused.contains(&page) || self.refused_new.contains(&page)
    }

    fn first(&self) -> Option<(u64, Due)> {
        let awaited = self.awaited.front().map(|&page| (page, Due::Awaited));
        awaited.or_else(|| self.others.front().map(|&page| (page, Due::Some)))
    }

    fn pop(&mut self, due: Due) {
        match due {
            Due::Awaited => self.awaited.pop_front(),
            Due::Some | Due::Not => self.others.pop_front(),
        };
    }
}

/// 32 MiB of the backing device.
#[derive(Default)]
pub(super) struct Page {
    /// The fast device has these, and they can be read there.
    pub(super) present: Bits,
    /// Of these, newer than the backing device.
    pub(super) dirty: Bits,
    /// Of these, on their way back; and of those, written by a host meanwhile.
    pub(super) returning: Bits,
    pub(super) overtaken: Bits,
    /// Of these, written back, and not flushed there yet; and what was written through, is clean, and no page says so yet.
    pub(super) written: Bits,
    /// To be recorded as clean when the flush under way is done.
    pub(super) settling: Bits,
    /// As the page says, or will once it is written: cached, and newer.
    pub(super) cached: Bits,
    pub(super) newer: Bits,
    /// What of it was written last of what is clean.
    lately: Lately,
    /// Counts changes of the three.
    version: u64,
    durable: u64,
    writing: Option<u64>,
    /// The fast device has it, with something that is cached or was.
    is_stored: bool,
    due: Due,
    waiting: Vec<(u64, usize)>,
}

impl Page {
    pub(super) fn found(said: Said) -> Self {
        Self {
            present: said.cached.clone(),
            dirty: said.newer.clone(),
            cached: said.cached,
            newer: said.newer,
            lately: said.lately,
            is_stored: true,
            ..Self::default()
        }
    }

    /// Its bytes, as it is to be found.
    pub(super) fn encode(&self, number: u64) -> Vec<u8> {
        encode_page(number, &self.cached, &self.newer, &self.lately)
    }

    /// The flush after which something of it became clean that was written; 0 if that is not known.
    pub(super) const fn lately(&self) -> u64 {
        self.lately.turn()
    }

    /// Of what is clean, what was written last.
    pub(super) fn written_lately(&self) -> impl Iterator<Item = usize> {
        let clean = |&at: &usize| self.cached.get(at) && !self.newer.get(at);
        self.lately.places().filter(clean)
    }

    /// All that is cached from a place on is newer than the backing device; how much was not.
    pub(super) fn believe(&mut self, from: usize) -> u64 {
        let clean = |at: &usize| *at >= from && !self.newer.get(*at);
        let clean: Vec<usize> = self.cached.iter().filter(clean).collect();
        for &at in &clean {
            self.newer.set(at, true);
            self.dirty.set(at, true);
        }
        clean.len() as u64
    }

    /// Whether something is known of a block that begins there: here, or as the page says or will.
    pub(super) fn knows_block(&self, first: usize) -> bool {
        let mut granules = first..first + BLOCK as usize;
        granules.any(|at| self.present.get(at) || self.cached.get(at))
    }

    /// Blocks of which something is known.
    pub(super) fn blocks(&self, number: u64) -> impl Iterator<Item = BlockIndex> {
        let all = (0..PAGE as usize).step_by(BLOCK as usize);
        let known = all.filter(|&first| self.knows_block(first));
        known.map(move |first| BlockIndex(((number * PAGE + first as u64) / BLOCK) as u32))
    }

    fn is_nothing(&self) -> bool {
        let written = self.writing.is_none() && self.durable == self.version;
        let quiet = written && self.due == Due::Not;
        quiet && self.present.is_empty() && self.cached.is_empty() && self.waiting.is_empty()
    }

    /// How it is due that has changed since it was written.
    fn still_due(&self) -> Due {
        match self.waiting.is_empty() {
            true => Due::Some,
            false => Due::Awaited,
        }
    }

    /// Whether a crash would find what it has said before; else it finds nothing.
    fn may_be_found(&self) -> bool {
        self.is_stored || self.writing.is_some()
    }

    /// What can be recorded as clean after a flush of the backing device is to be so after the one that begins now.
    pub(super) fn settle(&mut self) {
        let [present, dirty] = [self.present.words(), self.dirty.words()];
        let [cached, written] = [self.cached.words(), self.written.words()];
        self.settling = Bits::from_words(|at| {
            let fresh = !dirty[at] & !cached[at];
            self.settling.words()[at] | present[at] & (fresh | dirty[at] & written[at])
        });
    }

    /// Bytes of memory. What is rarer than what is cached has some only while there is some.
    pub(super) fn bytes(&self) -> usize {
        let all = [
            &self.present,
            &self.dirty,
            &self.returning,
            &self.overtaken,
            &self.written,
            &self.settling,
            &self.cached,
            &self.newer,
        ];
        let waiting = self.waiting.capacity() * size_of::<(u64, usize)>();
        let bits: usize = all.into_iter().map(Bits::bytes).sum();
        size_of::<Self>() + waiting + bits
    }

    /// Lets go of memory for what there is nothing of any more.
    pub(super) fn shrink(&mut self) {
        let rarer = [
            &mut self.dirty,
            &mut self.returning,
            &mut self.overtaken,
            &mut self.written,
            &mut self.newer,
        ];
        rarer.into_iter().for_each(Bits::shrink);
    }

    /// What has come in clean and is not recorded is forgotten; how much that was.
    pub(super) fn forget_unrecorded(&mut self) -> u64 {
        let fresh = Bits::from_words(|at| {
            self.present.words()[at] & !self.dirty.words()[at] & !self.cached.words()[at]
        });
        self.present.remove(&fresh);
        fresh.count()
    }

    /// That flush is done, the cache's so many'th: what was newer, and whether anything has changed.
    pub(super) fn settled(&mut self, turn: u64) -> Option<u64> {
        let settling = std::mem::take(&mut self.settling);
        if settling.is_empty() {
            return None;
        }
        let newer = self.dirty.common(&settling).count();
        self.lately.add(turn, &self.written.common(&settling));
        for bits in [&mut self.dirty, &mut self.written, &mut self.newer] {
            bits.remove(&settling);
        }
        self.cached.add(&settling);
        self.shrink();
        Some(newer)
    }
}

impl Cache {
    pub(super) fn page_of(&mut self, granule: u64) -> (&mut Page, usize) {
        let page = self.pages.entry(granule / PAGE).or_default();
        (page, (granule % PAGE) as usize)
    }

    pub(super) fn looked_up(&self, granule: u64, of: impl Fn(&Page) -> &Bits) -> bool {
        let page = self.pages.get(&(granule / PAGE));
        page.is_some_and(|page| of(page).get((granule % PAGE) as usize))
    }

    /// Of a range, which may be far larger than what is cached, the granules of which something is known.
    pub(super) fn known_in(&self, range: &Range<u64>) -> Vec<u64> {
        let pages = self
            .pages
            .range(range.start / PAGE..range.end.div_ceil(PAGE));
        let known = pages.flat_map(|(&page, bits)| {
            let cached = bits.cached.iter().filter(|&at| !bits.present.get(at));
            let known = bits.present.iter().chain(cached);
            known.map(move |at| page * PAGE + at as u64)
        });
        known.filter(|granule| range.contains(granule)).collect()
    }

    pub(super) fn is_present(&self, granule: u64) -> bool {
        self.looked_up(granule, |page| &page.present)
    }

    pub(super) fn is_dirty(&self, granule: u64) -> bool {
        self.looked_up(granule, |page| &page.dirty)
    }

    /// The bits of a page have changed and are to be durable soon.
    pub(super) fn changed(&mut self, page: u64) {
        if let Some(one) = self.pages.get_mut(&page) {
            one.version += 1;
            self.due.add(page, one, Due::Some);
        }
    }

    /// `op` waits until the page is durable as it is now.
    pub(super) fn wait_for_page(&mut self, page: u64, op: usize) {
        if let Some(one) = self.pages.get_mut(&page) {
            one.waiting.push((one.version, op));
            self.due.add(page, one, Due::Awaited);
        }
    }

    /// No page is written any more.
    pub(super) fn forget_waiters(&mut self) {
        self.pages
            .values_mut()
            .for_each(|page| page.waiting.clear());
    }

    /// Whether all that has changed is durable.
    pub(super) fn pages_are_durable(&self) -> bool {
        self.due.is_over()
    }

    /// Sets whether a granule is cached and newer, as the page says; whether that is a change.
    pub(super) fn record(&mut self, granule: u64, state: State) -> bool {
        let (cached, newer) = (state.is_cached(), state.is_dirty());
        let (page, at) = self.page_of(granule);
        let before = (page.cached.get(at), page.newer.get(at));
        page.cached.set(at, cached);
        page.newer.set(at, newer);
        before != (cached, newer)
    }

    /// Sets whether a granule can be read here, and is newer.
    pub(super) fn put(&mut self, granule: u64, state: State) {
        let (present, dirty) = (state.is_cached(), state.is_dirty());
        let (page, at) = self.page_of(granule);
        let before = (page.present.get(at), page.dirty.get(at));
        page.present.set(at, present);
        page.dirty.set(at, dirty);
        page.written.set(at, false);
        page.settling.set(at, false);
        self.cached = self.cached + u64::from(present) - u64::from(before.0);
        self.dirty = self.dirty + u64::from(dirty) - u64::from(before.1);
    }

    /// Whether what a page has forgotten has to be durable: a crash could find it.
    pub(super) fn forgets_later(&mut self, page: u64) -> bool {
        self.changed(page);
        let page = self.pages.get(&page);
        page.is_some_and(Page::may_be_found)
    }

    /// Whether there is no room for a page of which nothing is durable.
    pub(super) fn lacks_page(&self, page: u64) -> bool {
        self.due.refused_new.contains(&page)
    }

    /// Writes pages that are due, as many as may be on their way.
    pub(super) fn write_pages(&mut self) {
        self.try_refused_again();
        while self.failure.is_none()
            && self.due.on_their_way < MOST_ON_THEIR_WAY
            && let Some((number, due)) = self.due.first()
        {
            let refused = self.due.is_refused(number);
            let page = self.pages.get_mut(&number);
            let page = page.filter(|page| page.due == due && page.writing.is_none() && !refused);
            let Some(page) = page else {
                // It was due twice; or is on its way, and comes again when it has arrived.
                self.due.pop(due);
                self.is_not_due(number, due);
                continue;
            };
            if !page.is_stored && page.cached.is_empty() {
                // Nothing says nothing.
                self.due.pop(due);
                page.due = Due::Not;
                page.durable = page.version;
                self.page_is_durable(number);
                continue;
            }
            let (version, bytes) = (page.version, page.encode(number));
            let at = self.layout.page_at(number);
            if self
                .write(Target::FAST, Owner::Page(number), at, &bytes)
                .is_err()
            {
                // There is no memory: who has it lets go of it.
                return;
            }
            self.due.pop(due);
            self.due.on_their_way += 1;
            if let Some(page) = self.pages.get_mut(&number) {
                page.due = Due::Not;
                page.writing = Some(version);
            }
        }
    }

    /// A page is not written now that was found to be due so.
    fn is_not_due(&mut self, number: u64, due: Due) {
        if let Some(page) = self.pages.get_mut(&number)
            && page.due == due
        {
            page.due = Due::Not;
        }
    }

    pub(super) fn page_written(&mut self, page: u64, result: Result<(), IoError>) {
        self.due.on_their_way -= 1;
        match result {
            Err(error) if error.kind() == ErrorKind::NoSpace => self.page_refused(page, &error),
            Err(error) => self.fail(format!("a page of the cache could not be written: {error}")),
            Ok(()) => {
                if let Some(one) = self.pages.get_mut(&page) {
                    one.durable = one.writing.take().unwrap_or(one.durable);
                    if !std::mem::replace(&mut one.is_stored, true) {
                        self.has_room_again();
                        let waits = self.due.again_at.as_mut();
                        waits.into_iter().for_each(|at| *at = self.now);
                    }
                }
                self.page_is_durable(page);
            }
        }
    }

    fn page_is_durable(&mut self, page: u64) {
        let Some(one) = self.pages.get_mut(&page) else {
            return;
        };
        let durable = one.durable;
        let over: Vec<usize> = one
            .waiting
            .extract_if(.., |(version, _)| *version <= durable)
            .map(|(_, op)| op)
            .collect();
        if one.version > durable {
            let due = one.still_due();
            self.due.add(page, one, due);
        } else if one.is_nothing() {
            self.pages.remove(&page);
        }
        for op in over {
            self.tell(op, News::Recorded);
        }
    }

    /// There is no room for a page: it is written when there is, and what waits for it hears of that.
    fn page_refused(&mut self, page: u64, error: &IoError) {
        self.has_no_room(error);
        let Some(one) = self.pages.get_mut(&page) else {
            return;
        };
        one.writing = None;
        let is_new = !one.is_stored;
        match is_new {
            true => self.due.refused_new.insert(page),
            false => self.due.refused.insert(page),
        };
        self.due.again_at.get_or_insert(self.now + RETRY);
        for (_, op) in std::mem::take(&mut one.waiting) {
            self.tell(op, News::NoRoom { is_new });
        }
    }

    fn try_refused_again(&mut self) {
        if self.due.again_at.is_none_or(|at| at > self.now) {
            return;
        }
        let mut refused = std::mem::take(&mut self.due.refused);
        let new = &mut self.due.refused_new;
        refused.extend((0..AGAIN_AT_A_TIME).map_while(|_| new.pop_first()));
        self.due.again_at = (!new.is_empty()).then_some(self.now + RETRY);
        for number in refused {
            if let Some(page) = self.pages.get_mut(&number) {
                let due = page.still_due();
                self.due.add(number, page, due);
            }
        }
    }

    /// When pages are tried again for which there was no room.
    pub(super) fn pages_deadline(&self) -> Option<Moment> {
        self.due.again_at
    }
}
