//! How far copies are with what they missed, and how long that will take.

use std::time::Duration;

use ashlar_block::Moment;
use ashlar_replica::{MAX_MEMBERS, Position};

use crate::pool::Pace;

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// A copy that is given what it missed, or misses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is in sync, or not reached: nothing is given to it.
    Idle,
    /// It misses so many bytes of a volume of that size, or is compared if none.
    Filled { left: u64, volume: u64 },
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResyncView {
    /// Of what it missed when this began; none while it is not known, or everything is there.
    pub(crate) percent: Option<u8>,
    /// Until everything is there; none before there is a rate.
    pub(crate) left: Option<Duration>,
}

/// All copies of a volume, as its owner has seen them.
#[derive(Default)]
pub(super) struct Resyncs {
    looked: Option<Moment>,
    copies: [Resync; MAX_MEMBERS],
}

#[derive(Default)]
struct Resync {
    /// The most that was left since this began.
    most: u64,
    /// What hosts write meanwhile does not take it back.
    furthest: u8,
    pace: Pace,
}

impl Resyncs {
    /// Notes how far all are, now and then, whether or not that is asked for.
    pub(super) fn look(&mut self, now: Moment, seen: impl Fn(Position) -> Seen) {
        if self.looked.is_some_and(|at| now.since(at) < EVERY) {
            return;
        }
        self.looked = Some(now);
        for (index, copy) in self.copies.iter_mut().enumerate() {
            match Position::new(index).map(&seen) {
                Some(Seen::Filled { left, volume }) => copy.note(now, left, volume),
                Some(Seen::Idle) | None => *copy = Resync::default(),
            }
        }
    }

    /// How far a copy is that was seen to be so just now.
    pub(super) fn view(&self, now: Moment, position: Position, seen: Seen) -> ResyncView {
        let copy = self.copies.get(position.index());
        match (copy, seen) {
            (Some(copy), Seen::Filled { left, volume }) if left > 0 => copy.view(now, left, volume),
            _ => ResyncView::default(),
        }
    }
}

/// What is there of a volume: the pace is of that, so that it does not depend on how much was missed.
fn share(left: u64, volume: u64) -> f64 {
    1.0 - left as f64 / volume.max(1) as f64
}

impl Resync {
    fn note(&mut self, now: Moment, left: u64, volume: u64) {
        self.most = self.most.max(left);
        self.furthest = self.percent(left);
        self.pace.note(now, share(left, volume));
    }

    fn percent(&self, left: u64) -> u8 {
        let most = u128::from(self.most.max(left).max(1));
        let done = (most - u128::from(left)) * 100 / most;
        // It is done when it is in sync.
        self.furthest.max(done.min(99) as u8)
    }

    fn view(&self, now: Moment, left: u64, volume: u64) -> ResyncView {
        // Of one that was not looked at yet, nothing is known.
        let percent = (self.most > 0).then(|| self.percent(left));
        ResyncView {
            percent,
            left: self.pace.left(now, share(left, volume)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: u64 = 1 << 30;

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN + Duration::from_secs(seconds)
    }

    fn filled(left: u64) -> Seen {
        let volume = VOLUME;
        Seen::Filled { left, volume }
    }

    /// A copy that is seen to miss so much, second after second from that one on; what is shown each time.
    fn shown(resyncs: &mut Resyncs, first: u64, seen: &[Seen]) -> Vec<(Option<u8>, Option<u64>)> {
        let position = Position::new(1).expect("a position");
        let seen = seen.iter().zip(first..);
        seen.map(|(&seen, second)| {
            resyncs.look(at(second), |one| match one == position {
                true => seen,
                false => Seen::Idle,
            });
            let view = resyncs.view(at(second), position, seen);
            (view.percent, view.left.map(|left| left.as_secs()))
        })
        .collect()
    }

    #[test]
    fn an_end_is_said_when_there_is_a_rate() {
        let mut resyncs = Resyncs::default();
        let seen = [1000, 900, 800, 700].map(filled);
        assert_eq!(
            shown(&mut resyncs, 0, &seen),
            [
                (Some(0), None),
                (Some(10), None),
                (Some(20), Some(8)),
                (Some(30), Some(7))
            ]
        );
        // All is there, and it is compared; then it is in sync.
        let nothing = (None, None);
        assert_eq!(
            shown(&mut resyncs, 4, &[filled(0), Seen::Idle]),
            [nothing; 2]
        );
    }

    #[test]
    fn what_hosts_write_meanwhile_takes_nothing_back() {
        let mut resyncs = Resyncs::default();
        let seen = [1000, 500, 1100, 1080].map(filled);
        let percents = shown(&mut resyncs, 0, &seen);
        let percents: Vec<_> = percents.iter().map(|one| one.0).collect();
        assert_eq!(percents, [Some(0), Some(50), Some(50), Some(50)]);
    }

    #[test]
    fn a_copy_that_was_away_begins_anew() {
        let mut resyncs = Resyncs::default();
        let seen = [filled(1000), filled(200), Seen::Idle, filled(400)];
        let last = shown(&mut resyncs, 0, &seen).pop();
        assert_eq!(last, Some((Some(0), None)));
    }

    #[test]
    fn one_that_stands_still_has_no_end() {
        let mut resyncs = Resyncs::default();
        let seen = [filled(1000); 70];
        assert_eq!(shown(&mut resyncs, 0, &seen).pop(), Some((Some(0), None)));
    }
}
