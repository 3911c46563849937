//! Grants: promises not to activate. They protect reads only; epochs protect everything else.
//!
//! A grant lasts [`GRANT`] on paper. Who asked counts from *sending* the question, on a clock that may be slow, and
//! who granted from *receiving* it, on a clock that may be fast: so it ends for the one before it ends for the other,
//! as long as both clocks keep within [`DRIFT_PER_MILLE`].

use std::time::Duration;

use ashlar_block::Moment;

use crate::canary::{Cage, Canary};
use crate::ids::{Incarnation, MAX_MEMBERS, NodeId, Nonce, Position, Positions};

/// How long a grant lasts: D.
pub const GRANT: Duration = Duration::from_millis(1500);
/// How often it is renewed.
pub const GRANT_EVERY: Duration = Duration::from_millis(150);
/// What clocks may run fast or slow, of a thousand.
pub const DRIFT_PER_MILLE: u32 = 10;
/// What an owner leaves unused of a grant for what happens between its look at the clock and the answer.
pub const GRANT_MARGIN: Duration = Duration::from_millis(20);

/// How long an owner may rely on a grant after sending the question: D(1-ρ) - 20 ms.
pub fn reliance() -> Duration {
    GRANT * (1000 - DRIFT_PER_MILLE) / 1000 - GRANT_MARGIN
}

/// How long a grantor keeps its promise after receiving the question: D(1+ρ).
pub fn promise() -> Duration {
    GRANT * (1000 + DRIFT_PER_MILLE) / 1000
}

/// An owner's side: what the members have promised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    nonce: u64,
    /// When questions were sent, oldest first.
    asked: Vec<Asked>,
    granted: [Option<Granted>; MAX_MEMBERS],
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    nonce: Nonce,
    at: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    nonce: Nonce,
    until: Moment,
}

impl Held {
    /// A new question, to be sent to all now.
    pub(crate) fn ask(&mut self, now: Moment) -> Nonce {
        self.nonce += 1;
        let nonce = Nonce(self.nonce);
        self.asked.retain(|asked| now - asked.at < GRANT);
        self.asked.push(Asked { nonce, at: now });
        nonce
    }

    /// The newest question.
    pub(crate) fn newest(&self) -> Nonce {
        Nonce(self.nonce)
    }

    /// When the newest question was sent.
    pub(crate) fn last_asked(&self) -> Option<Moment> {
        self.asked.last().map(|asked| asked.at)
    }

    /// An answer. Answers to questions that are too old to count are dropped.
    pub(crate) fn granted(&mut self, by: Position, nonce: Nonce) {
        let Some(asked) = self.asked.iter().find(|asked| asked.nonce == nonce) else {
            return;
        };
        let until = asked.at + reliance();
        let slot = &mut self.granted[by.index()];
        if slot.is_none_or(|old| old.nonce < nonce) {
            *slot = Some(Granted { nonce, until });
        }
    }

    /// What was granted there was another copy's.
    pub(crate) fn forget(&mut self, position: Position) {
        self.granted[position.index()] = None;
    }

    /// Whether all of these have promised until after `now`.
    pub(crate) fn covers(&self, needed: Positions, now: Moment) -> bool {
        needed.iter().all(|position| {
            self.granted[position.index()].is_some_and(|granted| now < granted.until)
        })
    }

    /// Whether all of these have answered a question newer than `nonce`.
    pub(crate) fn confirmed_since(&self, needed: Positions, nonce: Nonce) -> bool {
        needed.iter().all(|position| {
            self.granted[position.index()].is_some_and(|granted| granted.nonce > nonce)
        })
    }
}

/// A grantor's side: until when it has promised not to activate, and to which process.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    /// What this process cannot remember: what the one before it has promised.
    forgotten_until: Moment,
    promised: Option<Promise>,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    node: NodeId,
    incarnation: Incarnation,
    until: Moment,
}

impl Given {
    /// A process starts: what the one before it has promised may still count.
    pub(crate) fn new(now: Moment, cage: Cage) -> Self {
        let forgets = cage.sings(Canary::ForgetPromise);
        let forgotten_until = if forgets { now } else { now + promise() };
        Self {
            forgotten_until,
            promised: None,
        }
    }

    /// Promises. An older promise to another process holds, too, as far as it goes beyond.
    pub(crate) fn give(&mut self, node: NodeId, incarnation: Incarnation, now: Moment) {
        if let Some(old) = self.promised
            && (old.node, old.incarnation) != (node, incarnation)
        {
            self.forgotten_until = self.forgotten_until.max(old.until);
        }
        self.promised = Some(Promise {
            node,
            incarnation,
            until: now + promise(),
        });
    }

    /// That process reads no more: it has said so, or is certified dead.
    pub(crate) fn void(&mut self, node: NodeId, incarnation: Incarnation) {
        let is_it = |promise: &Promise| promise.node == node && promise.incarnation <= incarnation;
        if self.promised.as_ref().is_some_and(is_it) {
            self.promised = None;
        }
    }

    /// An owner hands over that has served. It reads no more, and older ones stopped reading before it began to serve;
    /// a newer one would be followed. So no promise counts any more, nor one that this process cannot remember.
    pub(crate) fn void_all(&mut self, now: Moment) {
        self.promised = None;
        self.forgotten_until = now;
    }

    /// Until when the newest promise binds.
    pub(crate) fn until(&self) -> Option<Moment> {
        self.promised.map(|promise| promise.until)
    }

    /// Whether a promise still binds.
    pub(crate) fn binds(&self, now: Moment) -> bool {
        now < self.forgotten_until || self.promised.is_some_and(|promise| now < promise.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_nanos(1_000_000_000);

    #[test]
    fn a_grant_ends_for_the_owner_before_it_ends_for_the_grantor() {
        let owner_real = reliance() * 1000 / (1000 - DRIFT_PER_MILLE);
        let grantor_real = promise() * 1000 / (1000 + DRIFT_PER_MILLE);
        assert!(owner_real < grantor_real);
    }

    #[test]
    fn an_owner_counts_from_sending() {
        let member = Position::new(1).expect("a position");
        let needed = Positions::NONE.with(member);
        let mut held = Held::default();
        let nonce = held.ask(START);
        assert!(!held.covers(needed, START));
        held.granted(member, nonce);
        assert!(held.covers(needed, START + (reliance() - Duration::from_nanos(1))));
        assert!(!held.covers(needed, START + reliance()));
        assert!(!held.confirmed_since(needed, nonce));
        held.granted(member, Nonce(99));
        assert!(!held.confirmed_since(needed, nonce), "not asked with it");
    }

    #[test]
    fn a_promise_outlives_a_restart_and_a_newer_promise() {
        let cage = Cage::default();
        let given = Given::new(START, cage);
        assert!(given.binds(START + GRANT) && !given.binds(START + promise()));
        let (first, second) = (NodeId(1), NodeId(2));
        let mut given = Given::new(Moment::ORIGIN, cage);
        let late = START + promise();
        given.give(first, Incarnation(1), late);
        given.give(second, Incarnation(1), late);
        given.void(second, Incarnation(1));
        assert!(given.binds(late), "the first one's promise holds");
        given.give(first, Incarnation(1), late + promise());
        given.void(first, Incarnation(1));
        assert!(!given.binds(late + promise()));
        let mut given = Given::new(START, cage);
        given.give(first, Incarnation(1), START);
        given.void_all(START);
        assert!(!given.binds(START));
    }
}
