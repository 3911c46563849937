//! What an owner knows of a learner in one session: what it still misses, and which leaves were proven equal.

use std::collections::BTreeMap;

use ashlar_block::Moment;

use super::line::Place;
use super::unreadable::Unreadable;
use super::walk::{AT_ONCE, Walk};
use crate::event::{Shape, Turn};
use crate::extent::{Extent, ExtentSet};
use crate::ids::{CopyId, ReplicaSequence};
use crate::leaves::Leaves;
use crate::message::Content;

/// A record that the learner has not acknowledged, or that is not durable here.
#[derive(Debug)]
struct Sent {
    extent: Extent,
    /// What it carries: zeroes have none.
    granules: u64,
    is_local: bool,
    is_acknowledged: bool,
}

/// A copy that holds its range.
#[derive(Debug)]
pub(crate) struct Copying {
    pub(crate) extent: Extent,
    /// Only a canary copies without a place in the line.
    pub(crate) place: Option<Place>,
    /// It was read here, and is the learner's to do.
    pub(crate) is_sent: bool,
}

impl Copying {
    pub(crate) const fn new(extent: Extent, place: Option<Place>) -> Self {
        let is_sent = false;
        Self {
            extent,
            place,
            is_sent,
        }
    }
}

/// Leaves whose digests are compared, under their lock.
#[derive(Debug)]
pub(crate) struct Proving {
    pub(crate) leaves: Leaves,
    pub(crate) place: Place,
    pub(crate) ours: Option<u128>,
    pub(crate) theirs: Option<u128>,
}

/// A learner's session.
#[derive(Debug)]
pub(crate) struct Learner {
    /// What was missed, and not copied nor written since.
    missing: ExtentSet,
    /// Of that, what is on its way.
    claimed: ExtentSet,
    /// And what cannot be read here.
    pub(super) unreadable: Unreadable,
    /// Pieces that another copy is asked for.
    pub(super) healing: usize,
    /// Nothing before this granule is to be claimed.
    front: u64,
    pub(crate) copies: BTreeMap<CopyId, Copying>,
    pub(crate) waiting_copies: usize,
    sent: BTreeMap<ReplicaSequence, Sent>,
    /// What all of them carry.
    sent_granules: u64,
    /// Which leaves are to be proven yet.
    pub(super) walk: Walk,
    pub(super) proving: BTreeMap<CopyId, Proving>,
    /// Runs of leaves that wait for their range.
    pub(super) waiting_proofs: usize,
    next_copy: u32,
}

impl Learner {
    pub(crate) fn new(missing: ExtentSet) -> Self {
        Self {
            missing,
            claimed: ExtentSet::new(),
            unreadable: Unreadable::new(),
            healing: 0,
            front: 0,
            copies: BTreeMap::new(),
            waiting_copies: 0,
            sent: BTreeMap::new(),
            sent_granules: 0,
            walk: Walk::default(),
            proving: BTreeMap::new(),
            waiting_proofs: 0,
            next_copy: 0,
        }
    }

    pub(crate) fn number(&mut self) -> CopyId {
        self.next_copy += 1;
        CopyId(self.next_copy)
    }

    /// What is not known to be there.
    pub(crate) fn left(&self) -> ExtentSet {
        let mut left = self.missing.clone();
        self.sent.values().for_each(|sent| left.insert(sent.extent));
        left
    }

    /// Granules that are still to be copied.
    pub(crate) fn missing(&self) -> u64 {
        self.missing.granules()
    }

    /// Records that it has not acknowledged.
    pub(crate) fn behind(&self) -> usize {
        self.sent.len()
    }

    /// Granules that they carry.
    pub(crate) const fn behind_granules(&self) -> u64 {
        self.sent_granules
    }

    /// A record was sent.
    pub(crate) fn sent(
        &mut self,
        record: ReplicaSequence,
        extent: Extent,
        content: &Content,
        is_local: bool,
    ) {
        let granules = match content {
            Content::Data(_) => extent.count().into(),
            Content::Zeroes => 0,
        };
        let one = Sent {
            extent,
            granules,
            is_local,
            is_acknowledged: false,
        };
        self.take_sent(record);
        self.sent.insert(record, one);
        self.sent_granules += granules;
    }

    fn take_sent(&mut self, record: ReplicaSequence) -> Option<Sent> {
        let sent = self.sent.remove(&record)?;
        self.sent_granules -= sent.granules;
        Some(sent)
    }

    /// A record is durable here. Returns what the learner does not miss any more.
    pub(crate) fn local(&mut self, record: ReplicaSequence) -> ExtentSet {
        if let Some(sent) = self.sent.get_mut(&record) {
            sent.is_local = true;
        }
        self.settle(record)
    }

    /// A record is durable there. Returns what the learner does not miss any more.
    pub(crate) fn acknowledged(&mut self, record: ReplicaSequence) -> ExtentSet {
        if let Some(sent) = self.sent.get_mut(&record) {
            sent.is_acknowledged = true;
        }
        self.settle(record)
    }

    fn settle(&mut self, record: ReplicaSequence) -> ExtentSet {
        let is_done = |sent: &Sent| sent.is_acknowledged && sent.is_local;
        if !self.sent.get(&record).is_some_and(is_done) {
            return ExtentSet::new();
        }
        let Some(done) = self.take_sent(record) else {
            return ExtentSet::new();
        };
        let mut clean = ExtentSet::from(done.extent);
        let newer = self.sent.range(record..).map(|(_, sent)| sent.extent);
        newer.for_each(|extent| clean.remove(extent));
        for extent in clean.iter() {
            self.missing.remove(extent);
            let written = self.unreadable.written(extent);
            written.iter().for_each(|one| self.claimed.remove(one));
        }
        clean
    }

    /// A record failed here: the learner may have it. A leaf that was proven stays so: before the learner can be
    /// added, it acknowledges the record that restores the range.
    pub(crate) fn failed(&mut self, record: ReplicaSequence) {
        if let Some(sent) = self.take_sent(record) {
            self.misses(sent.extent);
        }
    }

    /// Digests differ: the leaf is copied again.
    pub(crate) fn differs(&mut self, extent: Extent) {
        self.misses(extent);
    }

    fn misses(&mut self, extent: Extent) {
        self.missing.insert(extent);
        self.front = self.front.min(extent.first());
    }

    /// The next piece to copy.
    pub(crate) fn claim(&mut self, most: u32) -> Option<Extent> {
        loop {
            let piece = self.missing.front_from(self.front, most)?;
            match self.claimed.apart_from(piece) {
                Ok(piece) => {
                    let piece = self.unreadable.cut(piece);
                    self.front = piece.end();
                    self.claimed.insert(piece);
                    return Some(piece);
                }
                Err(end) => self.front = end,
            }
        }
    }

    /// Pieces that are on their way, or wait for their range.
    pub(crate) fn under_way(&self) -> usize {
        self.copies.len() + self.waiting_copies + self.healing
    }

    /// A copy is durable there.
    pub(crate) fn copied(&mut self, copy: CopyId) -> Option<Copying> {
        let copying = self.copies.remove(&copy)?;
        self.claimed.remove(copying.extent);
        self.missing.remove(copying.extent);
        self.unreadable.given(copying.extent);
        Some(copying)
    }

    /// A piece could not be read here.
    pub(super) fn unread(&mut self, copy: CopyId, now: Moment) -> Option<Copying> {
        let copying = self.copies.remove(&copy)?;
        if !self.unreadable.add(copying.extent, now) {
            self.unclaim(copying.extent);
        }
        Some(copying)
    }

    /// What could not be read is tried again, if it is time.
    pub(super) fn read_again(&mut self, now: Moment) {
        let again = self.unreadable.again(now);
        again.iter().for_each(|extent| self.unclaim(extent));
    }

    /// Another copy has given back what could not be read.
    pub(super) fn healed(&mut self, granule: Extent) {
        if self.unreadable.healed(granule) {
            self.unclaim(granule);
        }
    }

    fn unclaim(&mut self, extent: Extent) {
        self.claimed.remove(extent);
        self.front = self.front.min(extent.first());
    }

    /// Whether everything that was missed is there.
    pub(crate) fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.copies.is_empty() && self.waiting_copies == 0
    }

    /// Whether it has not done something that it was given.
    pub(crate) fn owes(&self) -> bool {
        let is_proving = self.proving.values().any(|one| one.theirs.is_none());
        let is_behind = self.sent.values().any(|sent| !sent.is_acknowledged);
        is_proving || is_behind || self.copies.values().any(|copying| copying.is_sent)
    }

    /// What is to be proven now: nothing while something is missed.
    pub(super) fn unproven(&mut self, turn: &Turn<'_>, shape: Shape) -> Option<Leaves> {
        let under_way = self.proving.len() + self.waiting_proofs;
        if !self.is_clean() || under_way >= AT_ONCE {
            return None;
        }
        self.walk.take(turn, shape, Leaves::MOST)
    }

    /// Whether every leaf, of so many, was proven equal.
    pub(super) fn is_proven(&self, leaves: u64) -> bool {
        self.walk.is_over(leaves) && self.proving.is_empty() && self.waiting_proofs == 0
    }

    /// Whether all that it has not acknowledged is in `open`.
    pub(crate) fn lags_only(&self, open: impl Fn(ReplicaSequence) -> bool) -> bool {
        self.sent.keys().all(|&record| open(record))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn extent(first: u64, count: u32) -> Extent {
        Extent::new(first, count).expect("an extent")
    }

    #[derive(Clone, Debug)]
    enum Step {
        Claim(u32),
        /// Of what is on its way, which.
        Copied(usize),
        Unread(usize),
        /// Another copy has given back what could not be read last.
        Healed,
        Again,
        Differs(u64, u32),
        Written(u64, u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u32..6).prop_map(Step::Claim),
            (0usize..4).prop_map(Step::Copied),
            (0usize..4).prop_map(Step::Unread),
            Just(Step::Healed),
            Just(Step::Again),
            (0u64..60, 1u32..9).prop_map(|(first, count)| Step::Differs(first, count)),
            (0u64..60, 1u32..9).prop_map(|(first, count)| Step::Written(first, count)),
        ]
    }

    proptest! {
        /// The next piece is always the first of what is missed and not on its way.
        #[test]
        fn pieces_are_claimed_in_order_and_once(steps in prop::collection::vec(step(), 0..60)) {
            let mut learner = Learner::new([extent(2, 20), extent(30, 1), extent(40, 12)].into_iter().collect());
            let mut under_way: Vec<CopyId> = Vec::new();
            let mut now = Moment::ORIGIN;
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Claim(most) => {
                        let mut open = learner.missing.clone();
                        learner.claimed.iter().for_each(|one| open.remove(one));
                        let next = open.front_from(0, most).map(|piece| learner.unreadable.cut(piece));
                        let claimed = learner.claim(most);
                        prop_assert_eq!(claimed, next);
                        if let Some(extent) = claimed {
                            let copy = learner.number();
                            learner.copies.insert(copy, Copying::new(extent, None));
                            under_way.push(copy);
                        }
                    }
                    Step::Copied(which) => {
                        if which < under_way.len() {
                            learner.copied(under_way.remove(which));
                        }
                    }
                    Step::Unread(which) => {
                        if which < under_way.len() {
                            learner.unread(under_way.remove(which), now);
                        }
                    }
                    Step::Healed => {
                        let granule = learner.unreadable.first();
                        granule.into_iter().for_each(|granule| learner.healed(granule));
                    }
                    Step::Again => {
                        now = now + Duration::from_secs(61);
                        learner.read_again(now);
                    }
                    Step::Differs(first, count) => learner.differs(extent(first, count)),
                    Step::Written(first, count) => {
                        let record = ReplicaSequence(n as u64);
                        learner.sent(record, extent(first, count), &Content::Zeroes, true);
                        learner.acknowledged(record);
                    }
                }
                let mut open = learner.missing.clone();
                learner.claimed.iter().for_each(|one| open.remove(one));
                prop_assert!(open.iter().all(|one| one.first() >= learner.front), "{} is left behind", learner.front);
            }
        }
    }

    #[test]
    fn a_piece_of_much_that_is_missed_costs_no_more_than_one_of_little() {
        const PIECES: u64 = 100_000;
        let missing = (0..PIECES).map(|n| extent(2 * n, 1)).collect();
        let mut learner = Learner::new(missing);
        let began = Instant::now();
        for _ in 0..PIECES {
            let extent = learner.claim(64).expect("a piece");
            let copy = learner.number();
            learner.copies.insert(copy, Copying::new(extent, None));
            learner.copied(copy);
        }
        assert!(learner.is_clean() && learner.claim(64).is_none());
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
    }

    /// What hosts write anywhere is missed no more, and each look at the learner asks how much that is.
    #[test]
    fn a_write_to_much_that_is_missed_costs_no_more_than_one_to_little() {
        const PIECES: u64 = 1_000_000;
        const WRITES: u64 = 50_000;
        let missing = (0..PIECES).map(|n| extent(2 * n, 1)).collect();
        let mut learner = Learner::new(missing);
        let began = Instant::now();
        for n in 0..WRITES {
            // Scattered, and none twice: the factor is odd, and no multiple of 5.
            let piece = n * 618_033_989 % PIECES;
            let record = ReplicaSequence(n);
            learner.sent(record, extent(2 * piece, 1), &Content::Zeroes, true);
            learner.acknowledged(record);
            assert_eq!(learner.missing(), PIECES - n - 1);
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}
