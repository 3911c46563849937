//! The two homes of a volume with a tier: a mirror for what is small and hot, and the volume's own layout for
//! all else.

use std::fmt;

use crate::layout::{DriveClass, Layout};

/// How much of a volume its hot home may hold, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u8);

impl Share {
    /// What a tier has that names none.
    pub const DEFAULT: Self = Self(20);
    /// The largest: above, the volume is the mirror that it wants.
    pub const MOST: u8 = 90;

    /// So many percent, 1 to 90.
    pub fn of_percent(percent: u8) -> Option<Self> {
        (1..=Self::MOST).contains(&percent).then_some(Self(percent))
    }

    /// The same as a number.
    pub const fn percent(self) -> u8 {
        self.0
    }

    /// This share of so many; one at least.
    pub(crate) fn of(self, all: u64) -> u64 {
        (all / 100 * u64::from(self.0) + all % 100 * u64::from(self.0) / 100).max(1)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// A volume's hot home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HotTier {
    /// Copies of each slot there, 1 to 4.
    pub copies: u8,
    /// Drives of this class hold it; without one, those of the volume's other homes.
    pub class: Option<DriveClass>,
    /// How much of the volume may be there.
    pub share: Share,
}

impl HotTier {
    /// How it is laid out.
    pub const fn layout(self) -> Layout {
        Layout::Mirror {
            copies: self.copies,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percents() {
        assert_eq!(Share::of_percent(0), None);
        assert_eq!(Share::of_percent(91), None);
        let fifth = Share::of_percent(20).expect("a share");
        assert_eq!((fifth.of(1000), fifth.of(3), fifth.of(0)), (200, 1, 1));
        assert_eq!(fifth.of(1 << 60), (1 << 60) / 5);
        assert_eq!(fifth.to_string(), "20%");
    }
}
