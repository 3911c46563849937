//! The line of a shard's operations: what overlaps waits for what came before it.

use crate::extent::{Extent, ExtentSet};

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place(u64);

/// A range, locked by its place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locked {
    pub(crate) place: Place,
    pub(crate) extent: Extent,
}

/// What has come to its turn.
#[derive(Debug)]
pub(crate) struct Ready<T> {
    pub(crate) range: Locked,
    pub(crate) what: T,
}

#[derive(Debug)]
struct Standing<T> {
    place: Place,
    extent: Extent,
    /// What waits; nothing once it has its range.
    waits: Option<T>,
}

/// Operations in the order of their arrival. An operation has its range when no older one that is still in the line
/// overlaps it, and keeps it until it leaves.
#[derive(Debug)]
pub(crate) struct Line<T> {
    standing: Vec<Standing<T>>,
    next: u64,
}

impl<T> Line<T> {
    pub(crate) const fn new() -> Self {
        let standing = Vec::new();
        Self { standing, next: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.standing.is_empty()
    }

    /// Joins the end of the line.
    pub(crate) fn join(&mut self, extent: Extent, what: T) {
        let place = Place(self.next);
        self.next += 1;
        self.standing.push(Standing {
            place,
            extent,
            waits: Some(what),
        });
    }

    /// The next operation whose turn it is, of those that `may` begin. `skips` says which go past the line, `follows` which
    /// let another begin first that has come before, wherever it is.
    pub(crate) fn next(
        &mut self,
        may: impl Fn(&T, Extent) -> bool,
        skips: impl Fn(&T) -> bool,
        follows: impl Fn(&T, &T) -> bool,
    ) -> Option<Ready<T>> {
        let at = (0..self.standing.len()).find(|&at| {
            let own = &self.standing[at];
            let Some(what) = own.waits.as_ref().filter(|what| may(what, own.extent)) else {
                return false;
            };
            let mut older = self.standing[..at].iter();
            skips(what)
                || !older.any(|other| {
                    let mut waits = other.waits.iter();
                    other.extent.overlaps(own.extent) || waits.any(|other| follows(what, other))
                })
        })?;
        let own = &mut self.standing[at];
        let what = own.waits.take()?;
        let range = Locked {
            place: own.place,
            extent: own.extent,
        };
        Some(Ready { range, what })
    }

    /// Leaves the line.
    pub(crate) fn leave(&mut self, place: Place) {
        let at = self.standing.iter().position(|own| own.place == place);
        debug_assert!(at.is_some(), "{place:?} is not in the line");
        if let Some(at) = at {
            self.standing.remove(at);
        }
    }

    /// Whether something like that waits for what has this place, or for what waits for it.
    pub(crate) fn is_waited_for(&self, place: Place, like: impl Fn(&T) -> bool) -> bool {
        let mut behind = self.standing.iter().skip_while(|own| own.place != place);
        let Some(own) = behind.next() else {
            return false;
        };
        let mut held: ExtentSet = [own.extent].into_iter().collect();
        for other in behind {
            let waiting = other.waits.as_ref();
            let Some(what) = waiting.filter(|_| held.overlaps(other.extent)) else {
                continue;
            };
            if like(what) {
                return true;
            }
            held.insert(other.extent);
        }
        false
    }

    /// Takes out what waits and is not wanted any more.
    pub(crate) fn withdraw(&mut self, mut unwanted: impl FnMut(Extent, &T) -> bool) {
        self.standing.retain(|own| {
            let Standing { extent, waits, .. } = own;
            !waits.as_ref().is_some_and(|what| unwanted(*extent, what))
        });
    }

    /// What waits.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (Extent, &T)> {
        let waiting = |own| {
            let Standing { extent, waits, .. }: &Standing<T> = own;
            waits.as_ref().map(|what| (*extent, what))
        };
        self.standing.iter().filter_map(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(first: u64, count: u32) -> Extent {
        Extent::new(first, count).expect("an extent")
    }

    #[test]
    fn what_overlaps_waits_in_line_even_behind_what_waits() {
        let mut line = Line::new();
        line.join(extent(0, 4), 'a');
        line.join(extent(2, 4), 'b');
        line.join(extent(5, 1), 'c');
        line.join(extent(9, 1), 'd');
        let next = |line: &mut Line<char>| line.next(|_, _| true, |_| false, |_, _| false);
        let a = next(&mut line).expect("the first");
        let d = next(&mut line).expect("one beside it");
        assert_eq!((a.what, d.what), ('a', 'd'));
        assert!(
            next(&mut line).is_none(),
            "c waits for b, which waits for a"
        );
        assert!(line.is_waited_for(a.range.place, |what| *what == 'b'));
        assert!(
            line.is_waited_for(a.range.place, |what| *what == 'c'),
            "behind b"
        );
        assert!(!line.is_waited_for(a.range.place, |what| *what == 'd'));
        assert!(!line.is_waited_for(d.range.place, |_| true));
        line.leave(a.range.place);
        let b = next(&mut line).expect("the next");
        assert_eq!(b.what, 'b');
        assert!(next(&mut line).is_none());
        line.leave(b.range.place);
        assert_eq!(next(&mut line).expect("the last").what, 'c');
    }

    #[test]
    fn a_change_of_rights_follows_writes_that_wait_wherever_they_are() {
        let mut line = Line::new();
        line.join(extent(0, 8), 'l');
        line.join(extent(2, 1), 'w');
        line.join(extent(9, 1), 'r');
        line.join(extent(12, 1), 'w');
        let follows = |what: &char, older: &char| (*what, *older) == ('r', 'w');
        let next = |line: &mut Line<char>| line.next(|_, _| true, |_| false, follows);
        let lock = next(&mut line).expect("the lock");
        assert_eq!(next(&mut line).expect("a later write").what, 'w');
        assert!(next(&mut line).is_none(), "the write before waits");
        line.leave(lock.range.place);
        assert_eq!(next(&mut line).expect("that write").what, 'w');
        // It has begun: reads wait for it.
        assert_eq!(next(&mut line).expect("rights").what, 'r');
    }
}
