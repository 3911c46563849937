use std::fmt;

/// How a volume is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Every slot on this many drives, 1 to 4. More drives than copies: spread, like RAID-10.
    Mirror {
        /// Copies.
        copies: u8,
    },
    /// Pass-through over this many columns: in place, without log, checksum or redundancy.
    Stripe {
        /// Columns, 1 to 8.
        columns: u8,
    },
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mirror { copies } => write!(f, "mirror:{copies}"),
            Self::Stripe { columns } => write!(f, "stripe:{columns}"),
        }
    }
}
