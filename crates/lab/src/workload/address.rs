use serde::{Deserialize, Serialize};

use super::skew::Zipf;
use crate::access::Distribution;
use crate::{CellSpec, LabError};

/// The part of a device that one thread's accesses go to, in units of the cell's block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Area {
    /// First unit.
    pub(crate) first: u64,
    /// Number of units; at least one.
    pub(crate) units: u64,
}

impl Area {
    /// What `thread` of `cell` uses of `bytes` bytes. Random accesses of all threads range over
    /// everything; sequential threads, and all threads in verify mode (`owned`), have equal,
    /// adjoining regions of their own, so that they never meet.
    pub(crate) fn of(
        cell: &CellSpec,
        thread: u32,
        bytes: u64,
        owned: bool,
    ) -> Result<Self, LabError> {
        let units = bytes / u64::from(cell.block_bytes);
        let threads = u64::from(cell.threads);
        let area = if owned || !cell.pattern.is_random() {
            let each = units / threads;
            Self {
                first: u64::from(thread) * each,
                units: each,
            }
        } else {
            Self { first: 0, units }
        };
        // An owned region must have a unit for every access in flight, or two would overlap.
        let needed = if owned { u64::from(cell.depth) } else { 1 };
        if area.units < needed {
            return Err(LabError::usage(format!(
                "{}: {bytes} bytes are too few for {} threads at depth {}",
                cell.slug(),
                cell.threads,
                cell.depth
            )));
        }
        Ok(area)
    }
}

/// Where a thread's accesses go, one after the other.
#[derive(Clone, Debug)]
pub(crate) enum Walk {
    /// Uniform over the area.
    Random { area: Area, rng: fastrand::Rng },
    /// By Zipf's law.
    Zipf {
        area: Area,
        law: Zipf,
        rng: fastrand::Rng,
    },
    /// So often in the first units of the area.
    Hot {
        area: Area,
        /// Units of the hot part.
        hot: u64,
        /// Percent of the accesses that go there.
        accesses: u8,
        rng: fastrand::Rng,
    },
    /// Unit after unit, starting over at the end.
    Sequential {
        area: Area,
        /// Offset of the next unit in it.
        next: u64,
    },
}

impl Walk {
    /// Unit after unit.
    pub(crate) fn sequential(area: Area) -> Self {
        Self::Sequential { area, next: 0 }
    }

    /// As a distribution has it.
    pub(crate) fn random(area: Area, distribution: Distribution, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        match distribution {
            Distribution::Uniform => Self::Random { area, rng },
            Distribution::Zipf(theta) => Self::Zipf {
                area,
                law: Zipf::new(area.units, theta),
                rng,
            },
            // Something is hot, and something is not.
            Distribution::Hot { accesses, space } if area.units > 1 => Self::Hot {
                area,
                hot: (area.units * u64::from(space) / 100).clamp(1, area.units - 1),
                accesses,
                rng,
            },
            Distribution::Hot { .. } => Self::Random { area, rng },
        }
    }

    /// The next unit.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        match self {
            Self::Random { area, rng } => area.first + rng.u64(0..area.units),
            Self::Zipf { area, law, rng } => area.first + law.place(rng),
            Self::Hot {
                area,
                hot,
                accesses,
                rng,
            } => match rng.u8(0..100) < *accesses {
                true => area.first + rng.u64(0..*hot),
                false => area.first + rng.u64(*hot..area.units),
            },
            Self::Sequential { area, next } => {
                let unit = area.first + *next;
                *next = if *next + 1 < area.units { *next + 1 } else { 0 };
                unit
            }
        }
    }

    /// The area it covers.
    pub(crate) fn area(&self) -> Area {
        match self {
            Self::Random { area, .. }
            | Self::Zipf { area, .. }
            | Self::Hot { area, .. }
            | Self::Sequential { area, .. } => *area,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;

    fn cell(pattern: Pattern, threads: u32) -> CellSpec {
        CellSpec {
            pattern,
            read_pct: 50,
            block_bytes: 61440,
            threads,
            depth: 4,
            sync: false,
        }
    }

    #[test]
    fn sequential_threads_never_meet_and_start_over() {
        let cell = cell(Pattern::Rw, 3);
        let mut seen = std::collections::HashSet::new();
        for thread in 0..3 {
            let area = Area::of(&cell, thread, 100 * 61440 + 5000, false).expect("fits");
            assert_eq!(area.units, 33);
            let mut walk = Walk::sequential(area);
            let first = walk.next();
            assert!(seen.insert(first));
            for _ in 1..33 {
                assert!(seen.insert(walk.next()), "two threads meet");
            }
            assert_eq!(walk.next(), first);
        }
        assert!(seen.iter().all(|&unit| unit < 100));
    }

    #[test]
    fn random_covers_everything_and_replays_by_seed() {
        let area = Area::of(&cell(Pattern::RandRw, 3), 2, 64 * 61440, false).expect("fits");
        assert_eq!(
            area,
            Area {
                first: 0,
                units: 64
            }
        );
        let draw = |seed| {
            let mut walk = Walk::random(area, Distribution::Uniform, seed);
            (0..1000).map(|_| walk.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let distinct: std::collections::HashSet<_> = draw(7).into_iter().collect();
        assert_eq!(distinct.len(), 64);
    }

    #[test]
    fn a_hot_part_gets_its_share() {
        let area = Area {
            first: 100,
            units: 1000,
        };
        let hot = Distribution::Hot {
            accesses: 80,
            space: 20,
        };
        let mut walk = Walk::random(area, hot, 7);
        let draws: Vec<u64> = (0..10_000).map(|_| walk.next()).collect();
        assert!(draws.iter().all(|unit| (100..1100).contains(unit)));
        let first = draws.iter().filter(|&&unit| unit < 300).count();
        assert!((7_800..8_200).contains(&first), "{first}");
        let mut walk = Walk::random(area, Distribution::Zipf(1.0), 7);
        let mut counts = std::collections::HashMap::new();
        for _ in 0..10_000 {
            *counts.entry(walk.next()).or_insert(0u32) += 1;
        }
        let most = counts.values().max().copied().unwrap_or(0);
        // 1 / (1 + 1/2 + … + 1/1000) of them.
        assert!((1_150..1_550).contains(&most), "{most}");
    }

    #[test]
    fn owned_regions_have_a_unit_for_every_access_in_flight() {
        let cell = cell(Pattern::RandRw, 3);
        assert!(Area::of(&cell, 0, 12 * 61440, true).is_ok());
        assert_eq!(
            Area::of(&cell, 0, 11 * 61440, true).map_err(|e| e.exit_code()),
            Err(2)
        );
        assert!(Area::of(&cell, 0, 100, false).is_err());
    }
}
