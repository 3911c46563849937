//! What a target costs that is not used: without hosts, and with hosts that only say they live.

use std::time::Duration;

use serde::Serialize;

use super::{Bench, MEMORY};
use crate::cpu::{Meter, Sample};
use crate::failure::Failure;
use crate::figures::{Round, Spread};
use crate::raw::Host;
use crate::serve::{self, NQN};

const HOSTS: u8 = 4;
/// Measured time of all rounds together, if a round is not asked to be shorter than a second.
const TOTAL_S: f64 = 10.0;
const KEEP_ALIVE: Duration = Duration::from_secs(120);
/// What is hoped for, in percent of a core.
pub(crate) const GOAL_BELOW_PCT: f64 = 1.0;

/// An idle target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Idle {
    /// Connected hosts, each with an admin and an I/O queue.
    pub(crate) hosts: u8,
    /// The target's processor time, in percent of one core.
    pub(crate) cpu_pct: Spread,
    /// Over all rounds together.
    pub(crate) cpu_pct_overall: f64,
    /// What `cpu_pct` is hoped to stay below.
    pub(crate) goal_below_pct: f64,
    /// Measured time of all rounds together.
    pub(crate) seconds: f64,
}

/// Both targets idle at the same time: they do not disturb each other, or have missed the goal.
pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Idle>, Failure> {
    let core = [bench.server_core];
    let lonely = serve::ashlar(bench.options, "idle-0", MEMORY, &core)?;
    let visited = serve::ashlar(bench.options, "idle-4", MEMORY, &core)?;
    let connect = |number| Host::connect(visited.address, NQN, number, Some(KEEP_ALIVE));
    let mut hosts = (0..HOSTS).map(connect).collect::<Result<Vec<_>, _>>()?;
    let meters = [Meter::of(lonely.pid()), Meter::of(visited.pid())];
    let total = TOTAL_S * bench.length.as_secs_f64().min(1.0);
    let window = Duration::from_secs_f64(total / f64::from(bench.options.rounds));
    // Bring-up leaves a moment of spinning behind it.
    std::thread::sleep(Duration::from_millis(300));
    let sample =
        || -> Result<[Sample; 2], Failure> { Ok([meters[0].sample()?, meters[1].sample()?]) };
    let mut samples = vec![sample()?];
    for _ in 0..bench.options.rounds {
        std::thread::sleep(window);
        for host in &mut hosts {
            host.keep_alive()?;
        }
        samples.push(sample()?);
    }
    let idle = |index: usize, hosts: u8| {
        let of: Vec<Sample> = samples.iter().map(|both| both[index]).collect();
        let between = |from: &Sample, to: &Sample| Round::of(0.0, from, to).cpu_pct;
        let rounds: Vec<f64> = of.windows(2).map(|w| between(&w[0], &w[1])).collect();
        Idle {
            hosts,
            cpu_pct: Spread::of(&rounds),
            cpu_pct_overall: between(&of[0], &of[of.len() - 1]),
            goal_below_pct: GOAL_BELOW_PCT,
            seconds: total,
        }
    };
    Ok(vec![idle(0, 0), idle(1, HOSTS)])
}
