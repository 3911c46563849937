//! What a second copy costs: a volume of one copy and one of two, on the same node of a cluster on this machine, where
//! the other node's work counts, too. Hosts are at the owner, at the other node, and at both.

use std::ffi::OsString;
use std::path::PathBuf;

use ashlar_lab::Pattern;
use ashlar_lab::result::CellResult;
use serde::{Deserialize, Serialize};

mod pieces;
mod writes;

pub(crate) use writes::WriteCost;
pub(super) use writes::measure as measure_writes;

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
const OTHER_HOST: &str = "nqn.2026-01.bench:other-host";
/// Each node's drives hold less than this.
const DRIVE_SIZE: &str = "1GiB";

/// Two copies against one, by one way to them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Against {
    /// IOPS, two copies / one, pair by pair.
    pub(crate) ratio: Spread,
    /// Accesses a second.
    pub(crate) one_iops: Spread,
    pub(crate) two_iops: Spread,
    /// Mean latency, in microseconds.
    pub(crate) one_us: f64,
    pub(crate) two_us: f64,
}

impl Against {
    fn of(one: &CellResult, two: &CellResult) -> Self {
        let (single, double) = one.pairs(two);
        Self {
            ratio: Spread::of_ratios(&double, &single),
            one_iops: Spread::of(&single),
            two_iops: Spread::of(&double),
            one_us: one.latency_us.mean,
            two_us: two.latency_us.mean,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Copies {
    pub(crate) pattern: Pattern,
    /// Bytes of an access.
    pub(crate) block_bytes: u32,
    /// Accesses in flight.
    pub(crate) depth: u32,
    /// What the owner's ratio is hoped to reach; none for one write at a time, which has a rule of its own.
    pub(crate) goal_at_least: Option<f64>,
    /// At the node that owns the volume.
    #[serde(flatten)]
    pub(crate) owner: Against,
    /// At the other one, which forwards.
    pub(crate) other: Against,
    /// Every other 64 KiB at either, by a host of each.
    pub(crate) spread: Against,
    /// Of one write at a time.
    pub(crate) one_at_a_time: Option<OneAtATime>,
}

/// What one write at a time is made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct OneAtATime {
    /// As much as is written over a connection of this machine, and 64 bytes back.
    pub(crate) round_trip_us: f64,
    /// As much appended to a file beside the nodes' drives, durably.
    pub(crate) append_us: f64,
    /// Mean latency of two copies, of one copy's and both of these.
    pub(crate) ratio: f64,
    pub(crate) goal_at_most: f64,
}

impl OneAtATime {
    fn of(owner: &Against, round_trip_us: f64, append_us: f64) -> Self {
        Self {
            round_trip_us,
            append_us,
            ratio: owner.two_us / (owner.one_us + round_trip_us + append_us),
            goal_at_most: 1.2,
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
    let cluster = Cluster::up(bench, place.dir.clone())?;
    let one = cluster.volume("tank/one", &[])?.by(None);
    let two = cluster.volume("tank/two", &["--replicas", "2", "--nodes", "a,b"])?;
    let (owner, other) = (two.by(None), two.by(Some(&cluster.node("b")?.portal)));
    // Two hosts, as clients that are spread are: labels hold back what one host writes by two paths in turn.
    let both = format!("stripe:[{owner}],[{other}&hostnqn={OTHER_HOST}]");
    let ways = [("owner", &owner), ("other", &other), ("spread", &both)];
    let (mut cells, mut notes) = (Vec::new(), Vec::from_iter(place.note));
    for (pattern, blocks) in LOADS {
        let mut by_way = Vec::new();
        for (way, two) in ways {
            let sweep = Sweep {
                part: &format!("replicas-{way}"),
                pattern,
                blocks,
                depths: DEPTHS,
                sides: [("one", &one), ("two", two)],
            };
            let swept = sweep.measure(bench)?;
            by_way.push(swept.pairs);
            notes.extend(swept.notes);
        }
        let [owner, other, spread] = &by_way[..] else {
            return Err(Failure::environment("a way was not swept"));
        };
        for ((owner, other), spread) in owner.iter().zip(other).zip(spread) {
            let cell = &owner.0;
            let owner = Against::of(&owner.0, &owner.1);
            let is_rule = cell.pattern == Pattern::RandWrite && cell.depth == 1;
            let one_at_a_time = match is_rule {
                true => Some(OneAtATime::of(
                    &owner,
                    pieces::round_trip_us(cell.block_bytes)?,
                    pieces::append_us(&place.dir, cell.block_bytes)?,
                )),
                false => None,
            };
            cells.push(Copies {
                pattern: cell.pattern,
                block_bytes: cell.block_bytes,
                depth: cell.depth,
                goal_at_least: goal(cell.pattern, cell.depth),
                owner,
                other: Against::of(&other.0, &other.1),
                spread: Against::of(&spread.0, &spread.1),
                one_at_a_time,
            });
        }
    }
    Ok((cells, notes))
}

impl Created {
    /// The device, by the node that has made it or at this portal.
    fn by(&self, portal: Option<&str>) -> String {
        let portal = portal.unwrap_or(&self.address);
        format!("nvme-tcp://{portal}/{}?ns=1", self.nqn)
    }
}

/// What is read of `lab cluster status --json`.
#[derive(Deserialize)]
struct Nodes {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    name: String,
    portal: String,
    api: PathBuf,
    pids: Vec<i32>,
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

    fn node(&self, name: &str) -> Result<Node, Failure> {
        let told = self.order("cluster-status", self.lab("status", &["--json"]))?;
        let told: Nodes = serde_json::from_str(&told).map_err(Failure::doing("status"))?;
        let node = told.nodes.into_iter().find(|node| node.name == name);
        node.ok_or_else(|| Failure::environment(format!("there is no node {name}")))
    }

    /// Makes a volume at node `a`.
    fn volume(&self, name: &str, more: &[&str]) -> Result<Created, Failure> {
        let mut args = words(["volume", "create", name, "--json", "--allow-any-host"]);
        args.extend(words(["--size", VOLUME_SIZE, "--layout", LAYOUT]));
        args.extend(words(more));
        args.extend(words([
            "--api".as_ref(),
            self.dir.join("a/state/api.sock").as_os_str(),
        ]));
        let told = self.order("volume", args)?;
        serde_json::from_str(&told).map_err(Failure::doing(name))
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

    #[test]
    fn one_write_at_a_time_is_judged_by_what_it_is_made_of() {
        let owner = Against {
            ratio: Spread::default(),
            one_iops: Spread::default(),
            two_iops: Spread::default(),
            one_us: 50.0,
            two_us: 90.0,
        };
        let rule = OneAtATime::of(&owner, 20.0, 5.0);
        assert_eq!((rule.ratio, rule.goal_at_most), (1.2, 1.2));
    }
}
