//! What is kept for each of a volume's places: some may be empty.

use serde::{Deserialize, Serialize};

use crate::ids::{MAX_MEMBERS, Position, Positions};

/// Something for each place that is taken. A place that is given up stays empty until it is given again: the others
/// keep theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Option<T>>", into = "Vec<Option<T>>")]
#[serde(bound(serialize = "T: Copy + Serialize", deserialize = "T: Deserialize<'de>"))]
pub struct Seats<T>([Option<T>; MAX_MEMBERS]);

impl<T: Copy> Seats<T> {
    /// No place is taken.
    pub const NONE: Self = Self([const { None }; MAX_MEMBERS]);

    /// What is at a place.
    pub const fn get(&self, position: Position) -> Option<T> {
        self.0[position.index()]
    }

    /// The places that are taken.
    pub fn positions(&self) -> Positions {
        self.iter().map(|(position, _)| position).collect()
    }

    /// Each that is taken.
    pub fn iter(&self) -> impl Iterator<Item = (Position, T)> {
        Position::all().filter_map(|position| Some((position, self.get(position)?)))
    }

    /// How many are taken.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// The first that is not taken.
    pub fn free(&self) -> Option<Position> {
        Position::all().find(|&position| self.get(position).is_none())
    }

    /// Where something is.
    pub fn find(&self, is_it: impl Fn(T) -> bool) -> Option<Position> {
        let mut found = self.iter().filter(|(_, one)| is_it(*one));
        found.next().map(|(position, _)| position)
    }

    /// With something at a place.
    #[must_use]
    pub fn with(mut self, position: Position, one: T) -> Self {
        self.0[position.index()] = Some(one);
        self
    }

    /// With a place given up.
    #[must_use]
    pub fn without(mut self, position: Position) -> Self {
        self.0[position.index()] = None;
        self
    }

    /// Something else for each.
    #[must_use]
    pub fn map<U>(self, to: impl Fn(T) -> U) -> Seats<U> {
        Seats(self.0.map(|one| one.map(&to)))
    }

    /// The first places, one for each.
    ///
    /// # Errors
    /// There are more than [`MAX_MEMBERS`].
    pub fn first(all: impl IntoIterator<Item = T>) -> Result<Self, String> {
        Self::try_from(all.into_iter().map(Some).collect::<Vec<_>>())
    }
}

impl<T: Copy + PartialEq> Seats<T> {
    /// The places at which both have the same.
    pub fn same(&self, other: &Self) -> Positions {
        let is_same = |position: &Position| self.get(*position) == other.get(*position);
        Position::all().filter(is_same).collect()
    }
}

impl<T> TryFrom<Vec<Option<T>>> for Seats<T> {
    type Error = String;

    fn try_from(all: Vec<Option<T>>) -> Result<Self, Self::Error> {
        let count = all.len();
        let mut seats = [const { None }; MAX_MEMBERS];
        if count > MAX_MEMBERS {
            return Err(format!("{count} members"));
        }
        for (seat, one) in seats.iter_mut().zip(all) {
            *seat = one;
        }
        Ok(Self(seats))
    }
}

impl<T: Copy> From<Seats<T>> for Vec<Option<T>> {
    fn from(seats: Seats<T>) -> Self {
        let taken = seats.iter().map(|(position, _)| position.index() + 1);
        let count = taken.last().unwrap_or(0);
        seats.0.into_iter().take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_given_up_moves_no_other() {
        let at = |index| Position::new(index).expect("a position");
        let all = Seats::first([7u32, 8, 9]).expect("three");
        let left = all.without(at(1));
        assert_eq!((left.get(at(0)), left.get(at(2))), (Some(7), Some(9)));
        assert_eq!(left.free(), Some(at(1)));
        assert_eq!(left.find(|one| one == 9), Some(at(2)));
        assert_eq!(Vec::from(left), [Some(7), None, Some(9)]);
        assert_eq!(Vec::from(all.without(at(2))), [Some(7), Some(8)]);
        assert_eq!(Seats::try_from(Vec::from(left)), Ok(left));
        assert!(Seats::first([1u32, 2, 3, 4]).is_err());
    }
}
