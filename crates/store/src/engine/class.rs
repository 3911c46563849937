//! Kinds of homes: what volumes of one redundancy and grain share, and the shape of one segment of it.

use super::space::Wanted;
use crate::Layout;
use crate::format::{ChunkCopy, DriveClass, SegmentEntry, SegmentKind, VolumeEntry};
use crate::sizes::{GRANULE, Grain, Sizes};

/// Homes of one redundancy and grain: they share free slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class {
    pub(crate) redundancy: Redundancy,
    /// Size of a slot.
    pub(crate) grain: Grain,
    /// The drives that they lie on; any, without one.
    pub(crate) media: Option<DriveClass>,
    /// The volume whose hot home they are; no other volume's slots are there.
    pub(crate) hot_of: Option<u32>,
}

/// What protects a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Redundancy {
    /// So many copies.
    Mirror(u8),
    /// So many columns of data, and of parity.
    Parity(u8, u8),
}

/// How one slot lies in a segment. Drives may have been missing when the segment was made: it has
/// fewer columns than its class then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Columns that share the slot's granules; 1 in a mirror.
    pub(crate) data: u8,
    /// Columns of parity; 0 in a mirror.
    pub(crate) parity: u8,
    /// Size of a slot.
    pub(crate) grain: Grain,
}

impl Class {
    /// Mirrors with so many copies, of the grain that most have.
    pub(crate) const fn mirror(copies: u8) -> Self {
        Self {
            redundancy: Redundancy::Mirror(copies),
            grain: Grain::K64,
            media: None,
            hot_of: None,
        }
    }

    /// The class that a layout's volumes of a grain have homes in; none if they are passed through.
    pub(crate) fn of(layout: Layout, grain: Grain) -> Option<Self> {
        let redundancy = match layout {
            Layout::Mirror { copies } => Redundancy::Mirror(copies),
            Layout::Parity { data, parity } => Redundancy::Parity(data, parity),
            Layout::Stripe { .. } => return None,
        };
        Some(Self {
            redundancy,
            grain,
            media: None,
            hot_of: None,
        })
    }

    /// The class that a volume has homes in; of one with a tier, those that are not hot.
    pub(crate) fn of_volume(entry: &VolumeEntry) -> Option<Self> {
        let class = Self::of(entry.layout, entry.grain)?;
        Some(Self {
            media: entry.class,
            ..class
        })
    }

    /// The class of a volume's hot home, if it has one.
    pub(crate) fn hot_of_volume(number: u32, entry: &VolumeEntry) -> Option<Self> {
        let hot = entry.hot?;
        Some(Self {
            media: hot.class.or(entry.class),
            hot_of: Some(number),
            ..Self::of(hot.layout(), entry.grain)?
        })
    }

    /// All classes that a volume has homes in.
    pub(crate) fn all_of_volume(number: u32, entry: &VolumeEntry) -> impl Iterator<Item = Self> {
        let hot = Self::hot_of_volume(number, entry);
        Self::of_volume(entry).into_iter().chain(hot)
    }

    /// The class of a segment with this entry.
    pub(crate) fn of_segment(entry: &SegmentEntry) -> Self {
        let redundancy = match entry.kind {
            SegmentKind::Parity => Redundancy::Parity(entry.data, entry.copies - entry.data),
            _ => Redundancy::Mirror(entry.copies),
        };
        Self {
            redundancy,
            grain: entry.grain,
            media: entry.class,
            hot_of: (entry.volume != 0).then_some(entry.volume),
        }
    }

    /// Whether its slots are cut over columns, with parity.
    pub(crate) fn has_parity(self) -> bool {
        matches!(self.redundancy, Redundancy::Parity(..))
    }

    /// The layout of its volumes.
    pub(crate) fn layout(self) -> Layout {
        match self.redundancy {
            Redundancy::Mirror(copies) => Layout::Mirror { copies },
            Redundancy::Parity(data, parity) => Layout::Parity { data, parity },
        }
    }

    /// Columns of a segment made while no drive is missing.
    pub(crate) fn columns(self) -> usize {
        match self.redundancy {
            Redundancy::Mirror(copies) => usize::from(copies),
            Redundancy::Parity(data, parity) => usize::from(data + parity),
        }
    }

    /// Columns that its segments should have.
    pub(crate) fn wanted(self) -> Wanted {
        Wanted {
            columns: self.columns(),
            parity: match self.redundancy {
                Redundancy::Mirror(_) => None,
                Redundancy::Parity(_, parity) => Some(usize::from(parity)),
            },
        }
    }

    /// The shape of a segment of so many columns: parity comes first, for it is what survives the
    /// next loss, and then data, of which there is one at least.
    pub(crate) fn shape_of(self, columns: usize) -> Shape {
        let grain = self.grain;
        match self.redundancy {
            Redundancy::Mirror(_) => Shape::mirror(grain),
            Redundancy::Parity(data, parity) => {
                let columns = columns.max(1) as u8;
                let parity = parity.min(columns - 1);
                let data = data.min(columns - parity);
                Shape {
                    data,
                    parity,
                    grain,
                }
            }
        }
    }

    /// The entry of a segment of this class.
    pub(crate) fn entry(self, columns: &[ChunkCopy], shape: Shape) -> SegmentEntry {
        let (kind, data) = match self.redundancy {
            Redundancy::Mirror(_) => (SegmentKind::Mirror, 0),
            Redundancy::Parity(data, _) => (SegmentKind::Parity, data),
        };
        SegmentEntry {
            kind,
            copies: self.columns() as u8,
            data,
            parity: shape.parity,
            grain: self.grain,
            class: self.media,
            volume: self.hot_of.unwrap_or(0),
            ordinal: 0,
            columns: columns
                .iter()
                .map(|copy| (copy.drive, copy.extent))
                .collect(),
        }
    }
}

impl Shape {
    /// Every column has the whole slot.
    pub(crate) const fn mirror(grain: Grain) -> Self {
        Self {
            data: 1,
            parity: 0,
            grain,
        }
    }

    /// Whether every column has the whole slot.
    pub(crate) fn is_mirror(self) -> bool {
        self.parity == 0 && self.data == 1
    }

    /// Granules of a slot.
    pub(crate) fn granules(self) -> usize {
        self.grain.granules() as usize
    }

    /// Granules of a slot in one column.
    pub(crate) fn rows(self) -> usize {
        self.granules().div_ceil(usize::from(self.data.max(1)))
    }

    /// Bytes of a slot in one column.
    pub(crate) fn strip_bytes(self) -> usize {
        self.rows() * GRANULE
    }

    /// Column and row of a granule of the slot.
    pub(crate) fn place(self, granule: usize) -> (usize, usize) {
        (granule / self.rows(), granule % self.rows())
    }

    /// The granule at a row of a data column; none in the padding of a slot that does not divide.
    pub(crate) fn granule(self, column: usize, row: usize) -> Option<usize> {
        let granule = column * self.rows() + row;
        let is_data = column < usize::from(self.data) && granule < self.granules();
        is_data.then_some(granule)
    }

    /// Extents of each column.
    pub(crate) fn extents(self, sizes: &Sizes) -> u32 {
        let bytes = u64::from(sizes.slots(self.grain)) * self.strip_bytes() as u64;
        bytes.div_ceil(sizes.extent_bytes()) as u32
    }

    /// Where a slot's strip lies on the drive of a column, in bytes.
    pub(crate) fn strip_at(self, sizes: &Sizes, column: ChunkCopy, slot: u32) -> u64 {
        super::space::unit_at(sizes, column, slot, self.strip_bytes() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_spread_over_its_columns() {
        let shape = |data, grain| Shape {
            data,
            parity: 1,
            grain,
        };
        let wide = shape(4, Grain::K64);
        assert_eq!((wide.rows(), wide.strip_bytes()), (4, 16 << 10));
        assert_eq!((wide.place(0), wide.place(7)), ((0, 0), (1, 3)));
        assert_eq!(wide.granule(3, 3), Some(15));
        assert_eq!(wide.granule(4, 0), None);
        let row = shape(4, Grain::K16);
        assert_eq!((row.rows(), row.place(3)), (1, (3, 0)));
        let odd = shape(3, Grain::K64);
        assert_eq!(
            (odd.rows(), odd.granule(2, 3), odd.granule(2, 4)),
            (6, Some(15), None)
        );
    }

    #[test]
    fn with_drives_missing_parity_goes_before_width() {
        let grain = Grain::K16;
        let class = Class {
            redundancy: Redundancy::Parity(4, 2),
            grain,
            media: None,
            hot_of: None,
        };
        let shape = |data, parity| Shape {
            data,
            parity,
            grain,
        };
        let expected = [(6, 4, 2), (5, 3, 2), (3, 1, 2), (2, 1, 1), (1, 1, 0)];
        for (columns, data, parity) in expected {
            assert_eq!(class.shape_of(columns), shape(data, parity), "{columns}");
        }
    }
}
