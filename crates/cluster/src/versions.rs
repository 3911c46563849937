//! Versions of what nodes say to each other: of their handshake, orders and messages, which are raised together.
//!
//! ```text
//! a node speaks a range ── both ends of a connection take the newest that both speak
//! the list of members ──── has one that all have agreed on: raised when all can, and from then on none speaks less
//! ```

use std::fmt;

use serde::Serialize;

/// Versions that a program speaks: from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Versions {
    oldest: u16,
    newest: u16,
}

impl Versions {
    /// This program's. Since 2: hello and answers say all that their program speaks. Since 5: what cannot be read is asked
    /// for at another copy. Since 6: copies say how far they have come. The next is spoken beside this one until all nodes
    /// have it: what it says otherwise goes by the connection's version, and what it leaves behind (a key's format, what
    /// copies keep of each other) by what the cluster has agreed on.
    pub const OURS: Self = Self {
        oldest: 4,
        newest: 6,
    };

    /// Versions from one to another.
    pub const fn new(oldest: u16, newest: u16) -> Option<Self> {
        match oldest <= newest {
            true => Some(Self { oldest, newest }),
            false => None,
        }
    }

    pub const fn oldest(self) -> u16 {
        self.oldest
    }

    pub const fn newest(self) -> u16 {
        self.newest
    }

    /// Whether this one is spoken.
    pub fn has(self, version: u16) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The newest that both speak.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    /// Nothing newer than this, as a program that does not know better; none if this one is not spoken.
    pub fn at_most(self, newest: u16) -> Option<Self> {
        self.has(newest).then_some(Self { newest, ..self })
    }

    /// Nothing older than this from now on; one that is not spoken changes nothing.
    #[must_use]
    pub fn since(self, agreed: u16) -> Self {
        match self.has(agreed) {
            true => Self {
                oldest: agreed,
                ..self
            },
            false => self,
        }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => write!(f, "version {}", self.newest),
            false => write!(f, "versions {} to {}", self.oldest, self.newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_agreed_on_ends_what_is_older() {
        let ours = Versions::new(3, 5).expect("a range");
        assert_eq!(Versions::new(5, 3), None);
        assert_eq!(Some(ours.since(4)), Versions::new(4, 5));
        assert_eq!(ours.since(4).since(3), ours.since(4), "not back again");
        assert_eq!(ours.since(6), ours, "it cannot");
        assert_eq!(ours.at_most(4), Versions::new(3, 4));
        assert_eq!((ours.at_most(2), ours.at_most(6)), (None, None));
        let old = Versions::new(3, 3).expect("a range");
        assert_eq!(ours.common(old), Some(3));
        assert_eq!(ours.since(4).common(old), None);
    }
}
