use std::fmt;

use crate::sizes::Grain;

/// How a volume is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Every slot on this many drives, 1 to 4. More drives than copies: spread, like RAID-10.
    Mirror { copies: u8 },
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

    /// Granules of padding of a slot, and all its granules of data and padding: a slot is cut into
    /// columns of whole granules.
    fn padding(self, grain: Grain) -> (u64, u64) {
        let columns = match self {
            Self::Parity { data, .. } => u64::from(data.max(1)),
            Self::Mirror { .. } | Self::Stripe { .. } => 1,
        };
        let all = grain.granules().div_ceil(columns) * columns;
        (all - grain.granules(), all)
    }

    /// Share of the space of its columns that holds data, if its slots have this grain.
    pub fn efficiency(self, grain: Grain) -> f64 {
        let (padding, all) = self.padding(grain);
        let data = (all - padding) as f64 / all as f64;
        match self {
            Self::Mirror { copies } => data / f64::from(copies.max(1)),
            Self::Parity { data: columns, .. } => {
                data * f64::from(columns) / self.drives().max(1) as f64
            }
            Self::Stripe { .. } => 1.0,
        }
    }

    /// Whether its volumes may have this grain: one that pads no more than a quarter of a slot. A
    /// `stripe` has no slots, and 64 KiB stand for that.
    pub fn takes(self, grain: Grain) -> bool {
        let (padding, all) = self.padding(grain);
        match self {
            Self::Stripe { .. } => grain == Grain::K64,
            _ => padding * 4 <= all,
        }
    }

    /// The smallest grain that its volumes may have.
    pub fn least_grain(self) -> Grain {
        let mut grains = Grain::ALL.into_iter();
        grains
            .find(|&grain| self.takes(grain))
            .unwrap_or(Grain::K64)
    }

    /// The grain that its volumes have if no other is said: with parity the smallest that pads
    /// least, for every small write moves a slot; of mirrors, which are written in place, the
    /// largest.
    pub fn default_grain(self) -> Grain {
        self.default_grain_on(false)
    }

    /// The same where its homes are on drives that seek, or not. With parity on those that do it is the
    /// largest that pads least: a strip takes the arm as long to come to whether it is large or
    /// small, and a small read then has all of it in one strip.
    pub fn default_grain_on(self, seeks: bool) -> Grain {
        let Self::Parity { .. } = self else {
            return Grain::K64;
        };
        let is_better = |next: Grain, best: Grain| {
            let ((next, of_next), (best, of_best)) = (self.padding(next), self.padding(best));
            let (next, best) = (next * of_best, best * of_next);
            next < best || seeks && next == best
        };
        let all = Grain::ALL.into_iter();
        let best = all.reduce(|best, next| if is_better(next, best) { next } else { best });
        best.unwrap_or(Grain::K64)
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

/// What a drive is good at; in the order of speed, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DriveClass {
    /// NVMe flash.
    Nvme = 1,
    /// SATA or SAS flash.
    Ssd = 2,
    /// A disk that seeks.
    Hdd = 3,
}

impl DriveClass {
    /// All of them, fastest first.
    pub const ALL: [Self; 3] = [Self::Nvme, Self::Ssd, Self::Hdd];

    /// Whether it takes long to come to a place.
    pub fn seeks(self) -> bool {
        self == Self::Hdd
    }
}

impl fmt::Display for DriveClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvme => "nvme",
            Self::Ssd => "ssd",
            Self::Hdd => "hdd",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grains_that_columns_of_data_fill() {
        use Grain as G;
        let grains = [
            (2, G::K8, G::K8),
            (3, G::K32, G::K32),
            (4, G::K16, G::K16),
            (5, G::K16, G::K16),
            (6, G::K64, G::K64),
            (7, G::K64, G::K64),
        ];
        for (data, default, least) in grains {
            let layout = Layout::Parity { data, parity: 1 };
            assert_eq!(layout.default_grain(), default, "{layout}");
            assert_eq!(layout.least_grain(), least, "{layout}");
            assert!(layout.takes(default) && layout.takes(G::K64), "{layout}");
            assert_eq!(layout.default_grain_on(false), default, "{layout}");
            // What is large there costs no space.
            assert_eq!(layout.default_grain_on(true), G::K64, "{layout}");
            assert_eq!(layout.efficiency(G::K64), layout.efficiency(default));
        }
        let three = Layout::Parity { data: 3, parity: 1 };
        assert_eq!(three.efficiency(Grain::K32), 8.0 / 12.0);
        let mirror = Layout::Mirror { copies: 2 };
        assert_eq!(
            (mirror.default_grain(), mirror.least_grain()),
            (G::K64, G::K8)
        );
        assert!(!Layout::Stripe { columns: 2 }.takes(G::K8));
    }
}
