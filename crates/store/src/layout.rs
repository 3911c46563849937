use std::fmt;

/// How a volume is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Every slot on this many drives, 1 to 4. More drives than copies: spread, like RAID-10.
    Mirror {
        /// Copies.
        copies: u8,
    },
    /// Every slot cut into this many columns of data, 2 to 7, with 1 or 2 of parity; at most 8 in
    /// all. Written as a whole and to fresh space, always: nothing is ever read to make parity, and
    /// no crash leaves data and parity apart.
    Parity {
        /// Columns of data.
        data: u8,
        /// Columns of parity: losses that it survives.
        parity: u8,
    },
    /// Pass-through over this many columns: in place, without log, checksum or redundancy.
    Stripe {
        /// Columns, 1 to 8.
        columns: u8,
    },
}

/// Most columns of any layout.
pub(crate) const MAX_COLUMNS: u8 = 8;

impl Layout {
    /// Whether there is such a layout.
    pub fn is_possible(self) -> bool {
        match self {
            Self::Mirror { copies } => (1..=4).contains(&copies),
            Self::Parity { data, parity } => {
                let columns = data.saturating_add(parity);
                data >= 2 && (1..=2).contains(&parity) && columns <= MAX_COLUMNS
            }
            Self::Stripe { columns } => (1..=MAX_COLUMNS).contains(&columns),
        }
    }

    /// Drives that it needs to be made.
    pub fn drives(self) -> usize {
        usize::from(match self {
            Self::Mirror { copies } => copies,
            Self::Parity { data, parity } => data.saturating_add(parity),
            Self::Stripe { columns } => columns,
        })
    }

    /// Lost drives at a time that it survives.
    pub fn survives(self) -> u8 {
        match self {
            Self::Mirror { copies } => copies.saturating_sub(1),
            Self::Parity { parity, .. } => parity,
            Self::Stripe { .. } => 0,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mirror { copies } => write!(f, "mirror:{copies}"),
            Self::Parity { data, parity } => write!(f, "parity:{data}+{parity}"),
            Self::Stripe { columns } => write!(f, "stripe:{columns}"),
        }
    }
}
