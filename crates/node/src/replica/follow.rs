//! Whether a volume's commands come by another node than its owner, mostly and for a while: then that node had better own
//! it.

use std::time::Duration;

use ashlar_block::Moment;
use ashlar_replica::{MAX_MEMBERS, Position};

/// So much of a second's commands, in percent, is most of them.
const MOST: u64 = 70;
/// How long it must be so.
const LASTS: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Lead {
    by: Position,
    since: Moment,
}

/// Counts commands by the node that they come to, in one term of an owner.
#[derive(Debug)]
pub(super) struct Follow {
    me: Position,
    counts: [u64; MAX_MEMBERS],
    /// Since when they are counted.
    since: Moment,
    lead: Option<Lead>,
}

impl Follow {
    /// From the beginning of a term of the owner at `me`.
    pub(super) const fn new(me: Position, now: Moment) -> Self {
        Self {
            me,
            counts: [0; MAX_MEMBERS],
            since: now,
            lead: None,
        }
    }

    /// A command has come to a node.
    pub(super) const fn count(&mut self, by: Position) {
        self.counts[by.index()] += 1;
    }

    /// Looks at what has come. The node by which most has, when it has been so for long enough; and again after as long.
    pub(super) fn look(&mut self, now: Moment) -> Option<Position> {
        if now.since(self.since) < SECOND {
            return None;
        }
        let counts = std::mem::take(&mut self.counts);
        let began = std::mem::replace(&mut self.since, now);
        let all: u64 = counts.iter().sum();
        let leads = |by: &Position| counts[by.index()] * 100 > all * MOST;
        let by = Position::all().filter(|by| *by != self.me).find(leads);
        let Some(by) = by else {
            self.lead = None;
            return None;
        };
        let same = self.lead.filter(|lead| lead.by == by);
        let lead = same.unwrap_or(Lead { by, since: began });
        let is_over = now.since(lead.since) >= LASTS;
        self.lead = (!is_over).then_some(lead);
        is_over.then_some(by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN + Duration::from_secs(seconds)
    }

    fn place(index: usize) -> Position {
        Position::new(index).expect("a position")
    }

    /// Seconds at which a node is named, of so many with these commands each by the owner and the other.
    fn named(seconds: u64, commands: impl Fn(u64) -> (u64, u64)) -> Vec<u64> {
        let mut follow = Follow::new(place(0), at(0));
        let second = |second: u64| {
            let (mine, others) = commands(second);
            (0..mine).for_each(|_| follow.count(place(0)));
            (0..others).for_each(|_| follow.count(place(1)));
            assert_eq!(
                follow.look(at(second - 1) + Duration::from_millis(999)),
                None
            );
            let by = follow.look(at(second))?;
            assert_eq!(by, place(1));
            Some(second)
        };
        (1..=seconds).filter_map(second).collect()
    }

    #[test]
    fn most_of_the_commands_for_half_a_minute_are_needed() {
        assert_eq!(named(65, |_| (0, 1)), [30, 60]);
        assert_eq!(named(65, |_| (29, 71)), [30, 60]);
        assert!(named(65, |_| (30, 70)).is_empty());
        assert!(named(65, |_| (100, 0)).is_empty());
        let broken = |second| if second == 20 { (5, 5) } else { (0, 9) };
        assert_eq!(named(65, broken), [50]);
        let idle = |second| if second % 10 == 0 { (0, 0) } else { (0, 9) };
        assert!(named(65, idle).is_empty(), "a volume that rests stays");
    }
}
