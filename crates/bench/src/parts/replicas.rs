//! What a second copy costs: a volume of one copy and one of two, on the same node of a cluster on this machine, where
//! the other node's work counts, too.

use std::ffi::OsString;
use std::path::PathBuf;

use ashlar_lab::Pattern;
use ashlar_lab::result::CellResult;
use serde::Serialize;

use super::Bench;
use super::sweep::Sweep;
use crate::child::{Program, words};
use crate::failure::Failure;
use crate::figures::Spread;
use crate::volume::{self, Created, LAYOUT};

const DEPTHS: &str = "1,32";
/// Patterns, and their blocks.
const LOADS: [(&str, &str); 2] = [("randwrite", "4k,8k,64k"), ("randread", "8k,64k")];
const VOLUME_SIZE: &str = "256MiB";
/// Each node's drives hold less than this.
const DRIVE_SIZE: &str = "1GiB";

/// A cell, two copies against one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Copies {
    pub(crate) pattern: Pattern,
    /// Bytes of an access.
    pub(crate) block_bytes: u32,
    /// Accesses in flight.
    pub(crate) depth: u32,
    /// IOPS, two copies / one, pair by pair.
    pub(crate) ratio: Spread,
    /// What it is hoped to reach; none for one write at a time, which waits for a network that is not here.
    pub(crate) goal_at_least: Option<f64>,
    /// Accesses a second.
    pub(crate) one_iops: Spread,
    pub(crate) two_iops: Spread,
    /// Mean latency, in microseconds.
    pub(crate) one_us: f64,
    pub(crate) two_us: f64,
}

impl Copies {
    fn of((one, two): &(CellResult, CellResult)) -> Self {
        let (single, double) = one.pairs(two);
        Self {
            pattern: one.pattern,
            block_bytes: one.block_bytes,
            depth: one.depth,
            ratio: Spread::of_ratios(&double, &single),
            goal_at_least: goal(one.pattern, one.depth),
            one_iops: Spread::of(&single),
            two_iops: Spread::of(&double),
            one_us: one.latency_us.mean,
            two_us: two.latency_us.mean,
        }
    }
}

fn goal(pattern: Pattern, depth: u32) -> Option<f64> {
    match (pattern, depth) {
        (Pattern::RandRead, _) => Some(0.97),
        (_, 1) => None,
        _ => Some(0.45),
    }
}

/// The cells, and what is to be said about them.
pub(super) fn measure(bench: &Bench<'_>) -> Result<(Vec<Copies>, Vec<String>), Failure> {
    let place = volume::place(bench.options, 2)?;
    let cluster = Cluster::up(bench, place.dir)?;
    let one = cluster.volume("tank/one", &[])?;
    let two = cluster.volume("tank/two", &["--replicas", "2", "--nodes", "a,b"])?;
    let (mut cells, mut notes) = (Vec::new(), Vec::from_iter(place.note));
    for (pattern, blocks) in LOADS {
        let sweep = Sweep {
            part: "replicas",
            pattern,
            blocks,
            depths: DEPTHS,
            sides: [("one", &one), ("two", &two)],
        };
        let swept = sweep.measure(bench)?;
        cells.extend(swept.pairs.iter().map(Copies::of));
        notes.extend(swept.notes);
    }
    Ok((cells, notes))
}

/// Two nodes on this machine, ended with this.
struct Cluster<'a> {
    bench: &'a Bench<'a>,
    dir: PathBuf,
}

impl<'a> Cluster<'a> {
    fn up(bench: &'a Bench<'a>, place: PathBuf) -> Result<Self, Failure> {
        let dir = place.join(format!("ashlar-bench-replicas-{}", std::process::id()));
        let cluster = Self { bench, dir };
        cluster.order(
            "cluster-up",
            cluster.lab("up", &["--drive-size", DRIVE_SIZE, "--loopback"]),
        )?;
        Ok(cluster)
    }

    fn lab(&self, action: &str, more: &[&str]) -> Vec<OsString> {
        let mut args = words(["lab", "cluster", action]);
        args.extend(words(more));
        args.extend(words(["--dir".as_ref(), self.dir.as_os_str()]));
        args
    }

    /// Makes a volume at node `a`: its device.
    fn volume(&self, name: &str, more: &[&str]) -> Result<String, Failure> {
        let mut args = words(["volume", "create", name, "--json", "--allow-any-host"]);
        args.extend(words(["--size", VOLUME_SIZE, "--layout", LAYOUT]));
        args.extend(words(more));
        args.extend(words([
            "--api".as_ref(),
            self.dir.join("a/state/api.sock").as_os_str(),
        ]));
        let told = self.order("volume", args)?;
        let made: Created = serde_json::from_str(&told).map_err(Failure::doing(name))?;
        Ok(format!("nvme-tcp://{}/{}?ns=1", made.address, made.nqn))
    }

    fn order(&self, what: &str, args: Vec<OsString>) -> Result<String, Failure> {
        let logs = &self.bench.options.out;
        let told = logs.join(format!("replicas-{what}.out"));
        let program = Program {
            name: format!("ashlar {what}"),
            path: self.bench.options.ashlar.clone(),
            args,
            core: None,
            log: logs.join(format!("replicas-{what}.log")),
            output: Some(told.clone()),
        };
        program.start()?.finish()?;
        std::fs::read_to_string(&told).map_err(Failure::doing(told.display()))
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        // The measurement's own failure is the one to tell; what is left, `lab cluster down` ends.
        let _ = self.order("cluster-down", self.lab("down", &[]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_the_promised_ones() {
        assert_eq!(goal(Pattern::RandRead, 1), Some(0.97));
        assert_eq!(goal(Pattern::RandWrite, 32), Some(0.45));
        assert_eq!(goal(Pattern::RandWrite, 1), None);
    }
}
