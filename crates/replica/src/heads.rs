//! How far other copies' pools have come, as each copy remembers: one that comes back with less is an older image of
//! itself, or its drives have lost what they had said to be durable.
//!
//! A pool counts its changes. A copy *claims* the count that its pool had when it was imported, and whenever the copy has
//! made something durable since. Grants carry claims, and the owner tells each member those of all in sync; all keep
//! them durably, as soon as all nodes have agreed on a version that has this. A copy that claims less than it has claimed
//! before lacks what it has acknowledged: it owns nothing and is in sync with none, until it was made equal. A sound one
//! never claims less.

use std::time::Duration;

use ashlar_block::Moment;

use crate::canary::Canary;
use crate::event::Turn;
use crate::ids::{Head, MAX_MEMBERS, Position, Positions, ReplicaUuid};
use crate::local::Imported;

/// What was heard is made durable so often, at most.
const REMEMBER_EVERY: Duration = Duration::from_millis(100);

/// What was heard of a place's copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Which copy.
    pub replica: ReplicaUuid,
    /// It has claimed so much; 0 says nothing.
    pub head: Head,
}

/// What was heard of copies, by position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heads([Mark; MAX_MEMBERS]);

impl Heads {
    /// Nothing but this.
    pub const fn new(marks: [Mark; MAX_MEMBERS]) -> Self {
        Self(marks)
    }

    /// By position.
    pub const fn marks(&self) -> [Mark; MAX_MEMBERS] {
        self.0
    }

    /// The most that this copy has claimed.
    pub fn of(&self, position: Position, replica: ReplicaUuid) -> Head {
        let mark = self.0[position.index()];
        match mark.replica == replica {
            true => mark.head,
            false => Head(0),
        }
    }

    /// A copy claims this.
    fn hear(&mut self, position: Position, mark: Mark) {
        if mark.head != Head(0) && self.of(position, mark.replica) < mark.head {
            self.0[position.index()] = mark;
        }
    }

    /// Whether anything is said of any.
    fn says_something(&self) -> bool {
        self.0.iter().any(|mark| mark.head != Head(0))
    }

    /// What was heard of these does not count any more.
    fn forget(&mut self, positions: Positions) {
        for position in positions.iter() {
            self.0[position.index()] = Mark::default();
        }
    }
}

impl Turn<'_> {
    /// Whether a copy claims less than it has claimed before, as is remembered here.
    pub(crate) fn lags_behind(&self, position: Position, claim: Mark) -> bool {
        let says_something = claim.head != Head(0);
        let known = self.heads.of(position, claim.replica);
        says_something && claim.head < known && !self.sings(Canary::LagsUnseen)
    }
}

/// What this copy claims, and what it has heard of others.
#[derive(Debug)]
pub(crate) struct HeadBook {
    me: Position,
    claim: Head,
    heads: Heads,
    /// Nothing is heard of these: what others remember of them may be from before they left.
    absent: Positions,
    /// The store is given what was heard: there is no program in the cluster that refuses a pool with such an entry.
    is_kept: bool,
    /// There is more than what the store was given to remember.
    is_news: bool,
    remembered: Option<Moment>,
}

impl HeadBook {
    /// A process begins with what its store's import found. What its entry says of who is absent may be older than what
    /// is remembered, and is not looked at. An entry that has something was written when that was agreed on.
    pub(crate) fn new(me: Position, imported: &Imported) -> Self {
        Self {
            me,
            claim: imported.head,
            heads: imported.heads,
            absent: Positions::NONE,
            is_kept: imported.heads.says_something(),
            is_news: false,
            remembered: None,
        }
    }

    /// All nodes have agreed on a version that has this.
    pub(crate) const fn keep(&mut self) {
        self.is_kept = true;
    }

    /// What this copy claims.
    pub(crate) const fn claim(&self) -> Head {
        self.claim
    }

    /// It has made something durable, and has come so far.
    pub(crate) fn comes_to(&mut self, head: Head) {
        self.claim = self.claim.max(head);
    }

    /// What was heard of a copy.
    pub(crate) fn of(&self, position: Position, replica: ReplicaUuid) -> Head {
        self.heads.of(position, replica)
    }

    /// What an owner tells its members: of itself, too.
    pub(crate) fn told(&self, replica: ReplicaUuid) -> Heads {
        let mut told = self.heads;
        let head = self.claim;
        told.forget(Positions::NONE.with(self.me));
        told.hear(self.me, Mark { replica, head });
        told
    }

    /// Another copy, in sync as this one is, claims this.
    pub(crate) fn hear(&mut self, position: Position, mark: Mark) {
        if position == self.me || self.absent.has(position) {
            return;
        }
        let before = self.heads;
        self.heads.hear(position, mark);
        self.is_news |= self.heads != before;
    }

    /// An owner says this of all in sync. It has heard what this copy knows, and has seen who was made equal since, and may
    /// have less than before.
    pub(crate) fn believe(&mut self, told: &Heads) {
        let before = self.heads;
        for position in Position::all() {
            let mark = told.marks()[position.index()];
            let is_news = position != self.me && !self.absent.has(position);
            if is_news && mark.head != Head(0) {
                self.heads.0[position.index()] = mark;
            }
        }
        self.is_news |= self.heads != before;
    }

    /// Who is not in sync from now on. One that comes back was made equal, and counts from there; and one that was absent
    /// itself has not heard who did.
    pub(crate) fn settle(&mut self, absent: Positions) {
        let before = self.heads;
        self.absent = match absent.has(self.me) {
            true => Position::all().collect(),
            false => absent,
        };
        self.heads.forget(self.absent);
        self.is_news |= self.heads != before;
    }

    /// What the store is to remember, if there is something new, and it is time.
    pub(crate) fn take_news(&mut self, now: Moment) -> Option<Heads> {
        let is_early = |at: Moment| now - at < REMEMBER_EVERY;
        if !self.is_news || self.remembered.is_some_and(is_early) {
            return None;
        }
        self.take_all(now)
    }

    /// The same, whether it is time or not.
    pub(crate) fn take_all(&mut self, now: Moment) -> Option<Heads> {
        let is_due = self.is_kept && std::mem::take(&mut self.is_news);
        is_due.then(|| {
            self.remembered = Some(now);
            self.heads
        })
    }
}
