//! A cache beside the disk that it caches, in the time of their models: the disk alone and the same behind the cache get
//! the same load. Nothing waits, so neither this machine nor what else it does counts.

mod database;
mod rig;

use ashlar_block::Durability;
use serde::Serialize;

use crate::failure::Failure;
pub(crate) use database::Run;
use database::{Cached, Lasts, database};
use rig::{Rig, State};

/// What is hoped for.
pub(crate) const GOAL: f64 = 0.95;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pattern {
    RandomRead,
    Read,
    RandomWrite,
    Write,
}

impl Pattern {
    pub(super) fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite)
    }

    /// Hosts of a database have their writes durable.
    pub(super) fn durability(self) -> Option<Durability> {
        match self {
            Self::RandomRead | Self::Read => None,
            Self::RandomWrite | Self::Write => Some(Durability::Durable),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RandomRead => "randread",
            Self::Read => "read",
            Self::RandomWrite => "randwrite",
            Self::Write => "write",
        }
    }
}

/// A load, and how the cache is when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    pattern: Pattern,
    depth: usize,
    state: State,
    count: usize,
}

/// The disk alone against the same behind a cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Slow {
    pub(crate) pattern: Pattern,
    pub(crate) depth: usize,
    pub(crate) state: &'static str,
    /// 8 KiB accesses a second of the models' time.
    pub(crate) disk: f64,
    pub(crate) cached: f64,
    pub(crate) ratio: f64,
    /// How often the disk's arm moved for an access.
    pub(crate) disk_seeks: f64,
    pub(crate) cached_seeks: f64,
}

/// Random and in order, on a cache that is empty, warm, or full of what is not written back.
fn loads() -> Vec<Load> {
    use Pattern::{RandomRead, RandomWrite, Read, Write};
    let each = [
        (RandomRead, State::Cold, 2000),
        (RandomRead, State::Warm, 20_000),
        (RandomRead, State::FullDirty, 2000),
        (Read, State::Cold, 60_000),
        (Read, State::Scattered, 60_000),
        (Read, State::FullDirty, 60_000),
        (RandomWrite, State::Cold, 20_000),
        (RandomWrite, State::FullDirty, 8000),
        (Write, State::FullDirty, 8000),
    ];
    let with = |depth| {
        each.map(|(pattern, state, count)| Load {
            pattern,
            depth,
            state,
            count,
        })
    };
    [1, 16].into_iter().flat_map(with).collect()
}

/// Measures all loads; `told` is called with each result.
pub(crate) fn slow(
    mut told: impl FnMut(&Slow) -> Result<(), Failure>,
) -> Result<Vec<Slow>, Failure> {
    let mut all = Vec::new();
    for load in loads() {
        let one = measure(load)?;
        told(&one)?;
        all.push(one);
    }
    Ok(all)
}

/// Measures the database on disks; `told` is called with each run.
pub(crate) fn databases(
    mut told: impl FnMut(&Run) -> Result<(), Failure>,
) -> Result<Vec<Run>, Failure> {
    let mut all = Vec::new();
    for with_system in [false, true] {
        for cached in [Cached::Nothing, Cached::Automatic, Cached::ByHand] {
            let run = database(cached, with_system, Lasts::FULL)?;
            told(&run)?;
            all.push(run);
        }
    }
    Ok(all)
}

fn measure(load: Load) -> Result<Slow, Failure> {
    let disk = Rig::disk(load.state)?.run(load)?;
    let cached = Rig::cached(load.state)?.run(load)?;
    Ok(Slow {
        pattern: load.pattern,
        depth: load.depth,
        state: load.state.name(),
        disk: disk.rate,
        cached: cached.rate,
        ratio: cached.rate / disk.rate,
        disk_seeks: disk.seeks,
        cached_seeks: cached.seeks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_never_slower_than_its_disk() {
        // Those that are cheap to model.
        let is_cheap = |load: &Load| {
            let read = load.depth == 1 && load.pattern == Pattern::RandomRead;
            let written = load.depth == 16 && load.state == State::FullDirty;
            let written = written && load.pattern == Pattern::RandomWrite;
            read || written || load.state == State::Scattered
        };
        for mut load in loads().into_iter().filter(is_cheap) {
            load.count /= 8;
            let one = measure(load).expect("measured");
            assert!(one.ratio >= GOAL, "{one:?}");
            if load.state == State::Warm {
                assert!(one.ratio > 10.0, "{one:?}");
            }
        }
    }
}
