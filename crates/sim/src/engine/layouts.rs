//! The layouts that simulated volumes have, in one place. Another one is a line in [`DRAWN`], and
//! what the world must know of it an arm of [`Facts::of`].

use ashlar_store::{Grain, Layout, Sizes};

use crate::chance::Chance;

/// Layouts and grains, and how often they are drawn.
const DRAWN: &[(u64, Layout, Option<Grain>)] = &[
    (2, mirror(1), Some(Grain::K64)),
    (1, mirror(1), Some(Grain::K8)),
    (12, mirror(2), None),
    (4, mirror(2), Some(Grain::K8)),
    (2, mirror(2), Some(Grain::K16)),
    (1, mirror(2), Some(Grain::K32)),
    (4, mirror(3), None),
    (1, mirror(3), Some(Grain::K8)),
    (2, mirror(4), None),
    (4, parity(2, 1), None),
    (1, parity(2, 1), Some(Grain::K16)),
    (2, parity(2, 1), Some(Grain::K64)),
    (3, parity(3, 1), None),
    (2, parity(3, 1), Some(Grain::K64)),
    (4, parity(4, 1), None),
    (1, parity(4, 1), Some(Grain::K32)),
    (1, parity(4, 1), Some(Grain::K64)),
    (2, parity(2, 2), None),
    (2, parity(3, 2), None),
    (1, parity(3, 2), Some(Grain::K64)),
    (2, Layout::Stripe { columns: 1 }, None),
    (4, Layout::Stripe { columns: 2 }, None),
    (2, Layout::Stripe { columns: 3 }, None),
];

const fn mirror(copies: u8) -> Layout {
    Layout::Mirror { copies }
}

const fn parity(data: u8, parity: u8) -> Layout {
    Layout::Parity { data, parity }
}

/// Granules of a unit: of the largest slot.
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
    /// Drives that die, or rot: what survives fewer losses loses data.
    pub(crate) losses: usize,
    /// Pass-through volumes may be drawn: only their errors tell of drives that die, and nothing of
    /// drives that rot.
    pub(crate) raw: bool,
}

/// One of the layouts that fit, and a grain; `None` for the layout's own.
pub(crate) fn draw(chance: &mut Chance, need: Need) -> (Layout, Option<Grain>) {
    let fits = |layout: Layout| {
        let facts = Facts::of(layout);
        let safe = match facts.raw {
            true => need.raw,
            false => facts.losses >= need.losses,
        };
        safe && facts.width <= need.drives
    };
    let fitting = || DRAWN.iter().filter(|(_, layout, _)| fits(*layout));
    let mut dice = chance.below(fitting().map(|(weight, ..)| weight).sum());
    for &(weight, layout, grain) in fitting() {
        if dice < weight {
            return (layout, grain);
        }
        dice -= weight;
    }
    (mirror(need.losses as u8 + 1), None)
}
