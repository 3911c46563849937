//! The layouts that simulated volumes have, in one place. Another one is a line in [`DRAWN`], and
//! what the world must know of it an arm of [`Facts::of`].

use ashlar_store::{Layout, Sizes};

use crate::chance::Chance;

/// Layouts, and how often they are drawn.
const DRAWN: &[(u64, Layout)] = &[
    (3, Layout::Mirror { copies: 1 }),
    (18, Layout::Mirror { copies: 2 }),
    (5, Layout::Mirror { copies: 3 }),
    (2, Layout::Mirror { copies: 4 }),
    (5, Layout::Parity { data: 2, parity: 1 }),
    (5, Layout::Parity { data: 3, parity: 1 }),
    (4, Layout::Parity { data: 4, parity: 1 }),
    (2, Layout::Parity { data: 2, parity: 2 }),
    (3, Layout::Parity { data: 3, parity: 2 }),
    (2, Layout::Stripe { columns: 1 }),
    (4, Layout::Stripe { columns: 2 }),
    (2, Layout::Stripe { columns: 3 }),
];

/// Granules of a slot.
pub(crate) const SLOT: u64 = 16;

/// What the world must know of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Drives that it needs.
    pub(crate) width: usize,
    /// Drives whose loss it survives.
    pub(crate) losses: usize,
    /// Columns of drive space for so many columns of data.
    pub(crate) cost: (u64, u64),
    /// Pass-through: in place, without log or checksum, all space taken when it is made.
    pub(crate) raw: bool,
}

impl Facts {
    /// Those of a layout.
    pub(crate) fn of(layout: Layout) -> Self {
        match layout {
            Layout::Mirror { copies } => Self {
                width: usize::from(copies),
                losses: usize::from(copies) - 1,
                cost: (u64::from(copies), 1),
                raw: false,
            },
            Layout::Parity { data, parity } => Self {
                width: layout.drives(),
                losses: usize::from(parity),
                // Strips are whole granules, columns whole extents.
                cost: (
                    layout.drives() as u64 * SLOT.div_ceil(data.into()) * 3 / 2,
                    SLOT,
                ),
                raw: false,
            },
            Layout::Stripe { columns } => Self {
                width: usize::from(columns),
                losses: 0,
                cost: (1, 1),
                raw: true,
            },
        }
    }
}

/// Granules of drive space that a volume of so many takes at most.
pub(crate) fn cost(layout: Layout, granules: u64, sizes: &Sizes) -> u64 {
    let facts = Facts::of(layout);
    let (space, data) = facts.cost;
    if !facts.raw {
        return granules.div_ceil(SLOT) * SLOT * space / data;
    }
    let segment = u64::from(sizes.segment_slots) * SLOT * facts.width as u64;
    granules.div_ceil(segment) * segment
}

/// What a world needs of its layouts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Drives that there are.
    pub(crate) drives: usize,
    /// Drives die, or rot: what is not redundant loses data.
    pub(crate) redundant: bool,
    /// Pass-through volumes may be drawn: only their errors tell of drives that die, and nothing of
    /// drives that rot.
    pub(crate) raw: bool,
}

/// One of the layouts that fit.
pub(crate) fn draw(chance: &mut Chance, need: Need) -> Layout {
    let fits = |layout: Layout| {
        let facts = Facts::of(layout);
        let safe = match facts.raw {
            true => need.raw,
            false => facts.losses > 0 || !need.redundant,
        };
        safe && facts.width <= need.drives
    };
    let fitting = || DRAWN.iter().filter(|(_, layout)| fits(*layout));
    let mut dice = chance.below(fitting().map(|(weight, _)| weight).sum());
    for &(weight, layout) in fitting() {
        if dice < weight {
            return layout;
        }
        dice -= weight;
    }
    Layout::Mirror { copies: 2 }
}
