//! The proof among copies in sync: leaf after leaf, digests of all are compared while nothing changes the leaf. One
//! question is about several leaves, and where they differ about each of them ([`Walk`]).
//!
//! A leaf's place in the line is the common point: what overlaps it is committed, so all copies in sync have it, and
//! what comes later waits until all have answered. It is taken every so often, so paced that hosts do not feel it; or
//! at once, when an operator asks.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::Moment;

use super::line::{Locked, Place};
use super::patience::is_late;
use super::peer::Link;
use super::resync::asked;
use super::walk::{AT_ONCE, Walk};
use super::{Job, Owner, Work};
use crate::canary::Canary;
use crate::event::{Alarm, Difference, Effect, Proof, Turn};
use crate::ids::{CopyId, MAX_MEMBERS, Position, Positions};
use crate::leaves::Leaves;
use crate::message::Message;
use crate::replica::TICK;

/// A copy with so many differences is another one: no more are looked for.
const MOST_DIFFERENCES: usize = 1024;
/// The epoch of a volume's first owner: 1 is that of its key as it was made.
const FIRST_TERM: u32 = 2;
/// Numbers of these questions; learners' are below.
const FIRST: u32 = 1 << 31;
/// Copies that do not tell more leaves than this of a walk hang: they are not asked any more, and were not compared.
const MOST_LATE: usize = 4;
/// The next walk that is to begin at once waits so long after one that ended so.
const AGAIN: Duration = Duration::from_secs(600);

/// A walk through all leaves.
#[derive(Debug)]
pub(super) struct Audit {
    /// Who was compared at the beginning, and who is from then until now.
    began: Positions,
    with: Positions,
    walk: Walk,
    is_asked: bool,
    /// As fast as it goes.
    hurries: bool,
    /// Runs of leaves that wait for their place.
    waiting: usize,
    comparing: BTreeMap<CopyId, Comparing>,
    numbers: u32,
    leaves: u64,
    /// What a copy has of a leaf could not be told, here or in time.
    has_unread: bool,
    /// Leaves that others have not told in time.
    late: usize,
    differences: Vec<Difference>,
}

/// Leaves whose digests are on their way.
#[derive(Debug)]
struct Comparing {
    leaves: Leaves,
    place: Place,
    since: Moment,
    ours: Option<u128>,
    theirs: [Option<u128>; MAX_MEMBERS],
    /// Who is not waited for any longer.
    late: Positions,
}

/// How much is compared at once.
#[derive(Clone, Copy, Debug)]
struct Room {
    questions: usize,
    /// Leaves of one.
    leaves: u32,
}

impl Room {
    const NONE: Self = Self {
        questions: 0,
        leaves: 0,
    };
    /// As fast as it goes.
    const ALL: Self = Self {
        questions: AT_ONCE,
        leaves: Leaves::MOST,
    };
}

impl Comparing {
    fn is_whole(&self, with: Positions) -> bool {
        self.ours.is_some() && !with.iter().any(|one| self.waits_for(one))
    }

    fn waits_for(&self, one: Position) -> bool {
        self.theirs[one.index()].is_none() && !self.late.has(one)
    }
}

impl Audit {
    /// Leaves cannot be compared. Of several, each is asked for.
    fn leaves_out(&mut self, leaves: Leaves) {
        match leaves.only() {
            Some(_) => self.has_unread = true,
            None => self.walk.differ(leaves),
        }
    }

    /// The place of what is being compared.
    pub(super) fn place_of(&self, copy: CopyId) -> Option<Place> {
        self.comparing.get(&copy).map(|comparing| comparing.place)
    }
}

/// Whose digest it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Us,
    Of(Position),
}

/// Whether a digest's number is of this.
pub(super) const fn is_audits(copy: CopyId) -> bool {
    copy.0 >= FIRST
}

impl Owner {
    /// An operator wants to know now whether the copies are equal.
    pub(crate) fn verify(&mut self, turn: &mut Turn<'_>) {
        match self.audit.as_mut() {
            Some(audit) if audit.is_asked => {}
            Some(audit) => {
                audit.walk = Walk::default();
                (audit.is_asked, audit.hurries) = (true, true);
            }
            None => self.begin_audit(turn, true),
        }
        self.go_on_with_audit(turn, Room::ALL);
    }

    /// An owner that has not heard of one before it: a copy may have come back as it was at another time. In a volume's
    /// first term there is nothing to compare.
    pub(crate) const fn proves_at_once(&mut self) {
        self.proves_at_once = self.epoch.0 > FIRST_TERM;
    }

    /// Whether a copy may have come back as it was at another time, and was not compared yet.
    pub(crate) const fn is_unproven(&self) -> bool {
        self.proves_at_once
    }

    /// Time has passed.
    pub(super) fn audit_tick(&mut self, turn: &mut Turn<'_>) {
        let every = turn.config.limits.prove_every;
        let has_others = !self.comparable().is_empty();
        let since = turn.now - self.proven_at;
        let is_due = since >= every || self.proves_at_once && since >= self.proof_waits;
        if self.audit.is_none() && has_others && is_due && self.is_based() {
            self.begin_audit(turn, false);
        }
        let Some(audit) = &self.audit else { return };
        let room = match audit.hurries {
            true => Room::ALL,
            // Half of the time is left for what keeps it from going on.
            false => {
                let ticks = (every.as_nanos() / 2 / TICK.as_nanos()).max(1);
                let leaves = u128::from(self.shape(turn.at()).leaves());
                Room {
                    questions: 1,
                    leaves: u32::try_from(leaves.div_ceil(ticks)).unwrap_or(Leaves::MOST),
                }
            }
        };
        self.go_on_with_audit(turn, room);
    }

    /// Members in sync that can be asked.
    fn comparable(&self) -> Positions {
        let live = self.peers.iter().flatten();
        let live = live.filter(|peer| peer.link == Link::Live);
        let live: Positions = live.map(|peer| peer.position).collect();
        live.minus(live.minus(self.stored.key.in_sync))
    }

    fn begin_audit(&mut self, turn: &mut Turn<'_>, is_asked: bool) {
        self.proven_at = turn.now;
        let with = self.comparable();
        self.audit = Some(Audit {
            began: with,
            with,
            walk: Walk::default(),
            is_asked,
            hurries: is_asked || self.proves_at_once,
            waiting: 0,
            comparing: BTreeMap::new(),
            numbers: FIRST,
            leaves: 0,
            has_unread: false,
            late: 0,
            differences: Vec::new(),
        });
    }

    /// Has up to so much compared at once.
    fn go_on_with_audit(&mut self, turn: &mut Turn<'_>, room: Room) {
        if !self.is_serving() || !self.is_based() || self.moving.is_some() || self.ends {
            return;
        }
        let shape = self.shape(turn.at());
        let Some(audit) = self.audit.as_mut() else {
            return;
        };
        let has_enough = audit.differences.len() >= MOST_DIFFERENCES || audit.with.is_empty();
        while !has_enough
            && audit.waiting + audit.comparing.len() < room.questions
            && let Some(leaves) = audit.walk.take(turn, shape, room.leaves)
            && let Some(extent) = shape.run(leaves)
        {
            if self.lost.tries(extent) {
                // Behind what is tried again there, hosts' writes beside it would wait.
                audit.leaves_out(leaves);
                continue;
            }
            audit.waiting += 1;
            self.line.join(extent, Work::Audit { leaves });
        }
        let has_all = has_enough || audit.walk.is_over(shape.leaves());
        if has_all && audit.waiting + audit.comparing.len() == 0 {
            return self.end_audit(turn);
        }
        self.start_work(turn);
    }

    /// Leaves have their place: all compute the digest of `range`, which is what the volume had of them when they were
    /// given it.
    pub(super) fn audit_starts(&mut self, turn: &mut Turn<'_>, leaves: Leaves, range: Locked) {
        let Locked { place, extent } = range;
        let epoch = self.epoch;
        let Some(audit) = self.audit.as_mut() else {
            return self.line.leave(place);
        };
        let granules = asked(self.stored.key.size, extent);
        audit.waiting -= 1;
        if self.lost.overlaps(extent) {
            // Copies may differ there. What is next goes on with the next tick.
            audit.leaves_out(leaves);
            return self.line.leave(place);
        }
        audit.numbers += 1;
        let copy = CopyId(audit.numbers);
        let comparing = Comparing {
            leaves,
            place,
            since: turn.now,
            ours: None,
            theirs: [None; MAX_MEMBERS],
            late: Positions::NONE,
        };
        audit.comparing.insert(copy, comparing);
        for position in audit.with.iter() {
            if let Some(peer) = self.peers[position.index()].as_mut() {
                let ask = Message::DigestAsk {
                    copy,
                    leaves,
                    granules,
                };
                peer.send(turn, epoch, ask);
            }
        }
        let token = turn.patient_token();
        self.jobs.insert(token, Job::Audit(copy));
        turn.local.digest(token, extent);
    }

    /// A digest has come.
    pub(super) fn audited(&mut self, turn: &mut Turn<'_>, copy: CopyId, by: By, digest: u128) {
        let Some(audit) = self.audit.as_mut() else {
            return;
        };
        if let Some(comparing) = audit.comparing.get_mut(&copy) {
            match by {
                By::Us => comparing.ours = Some(digest),
                By::Of(position) => comparing.theirs[position.index()] = Some(digest),
            }
        }
        self.settle_audit(turn);
    }

    /// Since when a copy has not sent a digest that it was asked for.
    pub(super) fn audit_waits_since(&self, position: Position) -> Option<Moment> {
        let audit = self.audit.as_ref();
        let audit = audit.filter(|audit| audit.with.has(position))?;
        let asked = audit.comparing.values();
        let asked = asked.filter(|one| one.waits_for(position));
        asked.map(|one| one.since).min()
    }

    /// A session is over, or nothing comes of what was asked: that copy is not compared any more.
    pub(super) fn audit_forgets(&mut self, turn: &mut Turn<'_>, position: Position) {
        if let Some(audit) = self.audit.as_mut() {
            audit.with = audit.with.without(position);
            self.settle_audit(turn);
        }
    }

    /// A copy takes too long for leaves: its drives may take long to say that a sector is lost. Of several, each is asked
    /// for; one is not compared with it, and all others are.
    pub(super) fn audit_late(&mut self, turn: &mut Turn<'_>, position: Position) {
        let audit = self.audit.as_mut();
        let Some(audit) = audit.filter(|audit| audit.with.has(position)) else {
            return;
        };
        let late = audit.comparing.iter_mut();
        let late = late.filter(|(_, one)| one.waits_for(position) && is_late(turn, one.since));
        let mut runs = Vec::new();
        for (&copy, one) in late {
            match one.leaves.only() {
                Some(_) => {
                    one.late = one.late.with(position);
                    audit.late += 1;
                }
                None => runs.push(copy),
            }
        }
        if audit.late > MOST_LATE {
            return self.audit_forgets(turn, position);
        }
        runs.into_iter()
            .for_each(|copy| self.audit_unreadable(turn, copy));
        self.settle_audit(turn);
    }

    /// Compares what is whole, and goes on.
    fn settle_audit(&mut self, turn: &mut Turn<'_>) {
        let Some(audit) = self.audit.as_mut() else {
            return;
        };
        let with = audit.with;
        let whole = audit.comparing.iter();
        let whole = whole.filter_map(|(&copy, one)| one.is_whole(with).then_some(copy));
        let whole: Vec<CopyId> = whole.collect();
        for copy in &whole {
            let Some(done) = audit.comparing.remove(copy) else {
                continue;
            };
            self.line.leave(done.place);
            let blind = turn.sings(Canary::ProofBlind);
            let differs = |one: &Position| !blind && done.theirs[one.index()] != done.ours;
            let told = with.minus(done.late);
            let differing: Positions = told.iter().filter(differs).collect();
            audit.hurries |= !differing.is_empty();
            let Some(leaf) = done
                .leaves
                .only()
                .or(differing.is_empty().then_some(done.leaves.first()))
            else {
                audit.walk.differ(done.leaves);
                // Nothing is handed over, and what was begun is begun again, until it is known which leaf it is.
                self.proves_at_once = true;
                continue;
            };
            match done.late.is_empty() {
                true => audit.leaves += u64::from(done.leaves.count()),
                false => audit.has_unread = true,
            }
            for position in differing.iter() {
                if !audit.differences.iter().any(|one| one.position == position) {
                    turn.alarm(Alarm::Diverged { position, leaf });
                }
                audit.differences.push(Difference { position, leaf });
                // Nothing is handed to it from now on, however long the walk takes.
                let late = turn.sings(Canary::DivergedStays);
                if let Some(peer) = self.peers[position.index()].as_mut().filter(|_| !late) {
                    peer.has_failed = true;
                }
            }
        }
        if !whole.is_empty() {
            self.go_on_after_leaves(turn);
        }
    }

    fn go_on_after_leaves(&mut self, turn: &mut Turn<'_>) {
        let Some(audit) = &self.audit else { return };
        let room = match audit.hurries {
            true => Room::ALL,
            false => Room::NONE,
        };
        self.go_on_with_audit(turn, room);
        self.start_work(turn);
    }

    /// What leaves hold could not be told here. Of several, each is asked for; one is not compared.
    pub(super) fn audit_unreadable(&mut self, turn: &mut Turn<'_>, copy: CopyId) {
        let Some(audit) = self.audit.as_mut() else {
            return;
        };
        let Some(comparing) = audit.comparing.remove(&copy) else {
            return;
        };
        audit.leaves_out(comparing.leaves);
        self.line.leave(comparing.place);
        self.go_on_after_leaves(turn);
    }

    /// All that could be compared is. A copy that differs has left the in-sync set, or is about to, and comes back as a
    /// learner, whose leaves are proven and copied where they differ: what hosts have read is what this copy holds.
    fn end_audit(&mut self, turn: &mut Turn<'_>) {
        let Some(audit) = self.audit.take() else {
            return;
        };
        self.proven_at = turn.now;
        // One whose session has ended meanwhile was not compared in full, and may be back.
        let others = self.stored.key.in_sync.without(turn.config.position);
        self.proves_at_once &= audit.with != audit.began || !others.within(audit.began);
        self.proof_waits = match audit.late > MOST_LATE {
            true => AGAIN,
            false => Duration::ZERO,
        };
        turn.out.push(Effect::Proven(Proof {
            is_asked: audit.is_asked,
            leaves: audit.leaves,
            compared: match audit.has_unread {
                true => Positions::NONE,
                false => audit.with,
            },
            differences: audit.differences,
        }));
        self.consider_change(turn);
    }
}
