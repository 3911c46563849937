//! What is uncertain, and can be read at no copy. The owner serves all else.
//!
//! Copies may differ there, and what could not be read may be readable later. So no read of it is answered, and no copy
//! is added, until a host has written it everywhere, or it was read after all and given to all.
//!
//! The base need not stay open for it: then no record would ever be known to be committed, and the next owner's base
//! would be all that hosts have written since. This copy keeps what is lost in its own plane, durably, before it says
//! that all else is committed. The other copy need not: an owner without this one has no copy beside it that could
//! differ. With several others that does not hold, and the base stays open.

use std::time::Duration;

use ashlar_block::{IoError, Moment};

use super::heal::HealOf;
use super::line::Locked;
use super::unreadable::{AGAIN, AGAIN_MOST, is_lost};
use super::{Job, Owner, Work};
use crate::canary::Canary;
use crate::event::{Alarm, Effect, Outcome, Turn};
use crate::extent::{Extent, ExtentSet};
use crate::ids::{Positions, ReplicaSequence, Token};
use crate::local::{EntryChange, OwnPlane};

/// Granules of the base that could not be read.
#[derive(Debug)]
pub(super) struct Lost {
    granules: ExtentSet,
    /// Those of them that are being tried again.
    tried: ExtentSet,
    again: Moment,
    pause: Duration,
    /// What this copy remembers as uncertain whatever else is committed, durably, and what it is to remember instead.
    kept: ExtentSet,
    keeping: Option<Keeping>,
    /// All else of the base is committed.
    is_apart: bool,
    /// What people were told of.
    told: Option<Extent>,
}

#[derive(Debug)]
struct Keeping {
    token: Token,
    granules: ExtentSet,
}

impl Lost {
    pub(super) const fn new() -> Self {
        Self {
            granules: ExtentSet::new(),
            tried: ExtentSet::new(),
            again: Moment::ORIGIN,
            pause: AGAIN,
            kept: ExtentSet::new(),
            keeping: None,
            is_apart: false,
            told: None,
        }
    }

    /// Whether the base counts as committed but for this.
    pub(super) const fn is_apart(&self) -> bool {
        self.is_apart
    }

    fn all(&self) -> ExtentSet {
        let mut all = self.granules.clone();
        all.add(&self.tried);
        all
    }

    /// What is to be kept instead of what is, if anything: all of it, and nothing only when nothing is lost. What is
    /// kept without need does no harm.
    fn to_keep(&self) -> Option<ExtentSet> {
        let all = self.all();
        let mut rest = all.clone();
        self.kept.iter().for_each(|kept| rest.remove(kept));
        let is_over = all.is_empty() && !self.kept.is_empty();
        (is_over || !rest.is_empty()).then_some(all)
    }

    /// It is remembered, durably, if that is what has ended. Only what is lost then can be lost later: all else of the
    /// base was committed before.
    pub(super) fn kept(&mut self, token: Token) -> bool {
        let Some(done) = self.keeping.take_if(|keeping| keeping.token == token) else {
            return false;
        };
        (self.kept, self.is_apart) = (done.granules, true);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.granules.is_empty() && self.tried.is_empty()
    }

    pub(super) const fn granules(&self) -> &ExtentSet {
        &self.granules
    }

    /// Whether it was found to be lost before: reading it may take as long as its drive does.
    pub(super) fn tries(&self, granule: Extent) -> bool {
        self.tried.overlaps(granule)
    }

    /// Whether something there may differ between copies.
    pub(super) fn overlaps(&self, extent: Extent) -> bool {
        self.granules.overlaps(extent) || self.tried.overlaps(extent)
    }

    fn has_all(&self, extent: Extent) -> bool {
        let end = self.all().apart_from(extent);
        end.is_err_and(|end| end >= extent.end())
    }

    fn add(&mut self, granule: Extent, now: Moment) {
        self.tried.remove(granule);
        self.granules.insert(granule);
        self.again = now + self.pause;
    }

    /// All copies in sync have the same there from now on. Whether nothing is lost any more.
    fn written(&mut self, extent: Extent) -> bool {
        let was_empty = self.is_empty();
        self.told.take_if(|told| told.overlaps(extent));
        self.granules.remove(extent);
        self.tried.remove(extent);
        !was_empty && self.is_empty()
    }

    /// Whether people are to be told of it: one by one, as long as it is so.
    fn tells(&mut self, granule: Extent) -> bool {
        let is_new = self.told.is_none();
        self.told.get_or_insert(granule);
        is_new
    }

    /// What is to be tried again now.
    fn again(&mut self, now: Moment) -> ExtentSet {
        if self.granules.is_empty() || now < self.again {
            return ExtentSet::new();
        }
        self.pause = (self.pause * 2).min(AGAIN_MOST);
        let again = std::mem::take(&mut self.granules);
        self.tried.add(&again);
        again
    }
}

impl Owner {
    /// A piece of the base could not be read here.
    pub(super) fn base_unread(&mut self, turn: &mut Turn<'_>, range: Locked, error: &IoError) {
        if !is_lost(error) {
            return self.local_failed(turn);
        }
        let Locked { place, extent } = range;
        let fetch = self.fetch(turn, error, extent, HealOf::Base(place));
        if fetch.is_none() {
            self.base_unhealed(turn, range, Positions::NONE);
        }
    }

    /// No copy has given it, and these have lost it, too. Of several granules each is tried alone: this copy may have lost
    /// one, and another copy another one.
    pub(super) fn base_unhealed(&mut self, turn: &mut Turn<'_>, range: Locked, lost: Positions) {
        let Locked { place, extent } = range;
        if extent.count() > 1 {
            self.base_pieces -= 1;
            self.line.leave(place);
            return self.begin_bases(turn, &extent.into());
        }
        // Once: a copy that is only slow to say that it has lost it would hand it back, again and again.
        if !self.lost.tries(extent) && self.hands_errors_over(turn, lost) {
            return;
        }
        self.base_pieces -= 1;
        self.line.leave(place);
        self.lost.add(extent, turn.now);
        if self.lost.tells(extent) {
            turn.alarm(Alarm::Lost {
                position: turn.config.position,
                hosts: self.shape(turn.at()).seen(extent),
            });
        }
        self.run_reads(turn);
        self.start_work(turn);
    }

    fn begin_bases(&mut self, turn: &mut Turn<'_>, these: &ExtentSet) {
        self.uncertain.add(these);
        for granule in these.iter().flat_map(|extent| extent.pieces(1)) {
            self.base_pieces += 1;
            self.line.join(granule, Work::Base);
        }
        self.start_work(turn);
    }

    /// What is lost is tried again, if it is time.
    pub(super) fn try_lost(&mut self, turn: &mut Turn<'_>) {
        let again = self.lost.again(turn.now);
        if !again.is_empty() {
            self.begin_bases(turn, &again);
        }
    }

    /// A host writes there: what is tried again of it, and has not come to anything, is not waited for.
    pub(super) fn give_way(&mut self, turn: &Turn<'_>, extent: Extent) {
        if !self.lost.tries(extent) {
            return;
        }
        let tried = self.lost.tried.clone();
        let is_tried = |piece: Extent| piece.overlaps(extent) && tried.overlaps(piece);
        let mut given_up = self.give_up_fetches(is_tried);
        self.jobs.retain(|_, job| match *job {
            Job::Base(range) if is_tried(range.extent) => {
                given_up.push(range);
                false
            }
            _ => true,
        });
        given_up
            .iter()
            .for_each(|range| self.line.leave(range.place));
        let mut pieces: Vec<Extent> = given_up.iter().map(|range| range.extent).collect();
        self.line.withdraw(|piece, work| {
            let is_it = matches!(work, Work::Base) && is_tried(piece);
            pieces.extend(is_it.then_some(piece));
            is_it
        });
        self.base_pieces -= pieces.len();
        for piece in pieces {
            self.uncertain.remove(piece);
            self.lost.add(piece, turn.now);
        }
    }

    /// A write has failed here, and what was there before cannot be read. Whether it was lost before: then it stays so,
    /// and the copies may differ there as they might.
    pub(super) fn stays_lost(&mut self, turn: &mut Turn<'_>, sequence: ReplicaSequence) -> bool {
        let op = self.ops.get(sequence);
        if !op.is_some_and(|op| self.lost.has_all(op.extent)) {
            return false;
        }
        if let Some(op) = self.ops.remove(sequence) {
            self.line.leave(op.place);
            if let Some(command) = op.command {
                turn.answer(command, Outcome::Failed);
            }
        }
        self.run_reads(turn);
        self.start_work(turn);
        true
    }

    /// Remembers what is lost, once it is all that is left of the base: then all else need not stay uncertain with it.
    pub(super) fn keep_lost(&mut self, turn: &mut Turn<'_>) {
        let others = self.stored.key.in_sync.without(turn.config.position);
        let is_alike = others.count() <= 1;
        let is_left = self.lost.is_apart || is_alike && self.is_all_but_lost_known();
        if !is_left || !self.is_serving() || !turn.entry.is_quiet() {
            return;
        }
        let Some(granules) = self.lost.to_keep() else {
            return;
        };
        if turn.sings(Canary::LostForgotten) {
            self.lost.is_apart = true;
            return;
        }
        let token = turn.persist(EntryChange {
            entry: turn.entry.durable(),
            marks_uncertain: false,
            marks: ExtentSet::new(),
            members: self.stored.key.members.positions(),
            own: OwnPlane::Keep(granules.clone()),
        });
        self.lost.keeping = Some(Keeping { token, granules });
    }

    /// A change is committed: all copies in sync have it.
    pub(super) fn no_more_lost(&mut self, turn: &mut Turn<'_>, extent: Extent) {
        if self.lost.written(extent) {
            turn.out.push(Effect::InSync(self.stored.key.in_sync));
        }
    }

    /// Whether a read can come to nothing but an error. A change of it that is under way is waited for.
    pub(super) fn is_lost_here(&self, extent: Extent) -> bool {
        let changes = || self.ops.iter().any(|(_, op)| op.extent.overlaps(extent));
        self.lost.overlaps(extent) && !changes()
    }
}
