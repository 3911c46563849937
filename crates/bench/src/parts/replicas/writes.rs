//! What a write to two copies costs beside one to one copy, counted: processor time of both nodes' daemons, bytes
//! between them, and bytes on the drives of each.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde::Serialize;

use super::{Bench, Cluster, Node};
use crate::cpu;
use crate::failure::Failure;
use crate::figures::{Case, Spread};
use crate::raw::load::Plan;
use crate::raw::{Host, Load, Wait};
use crate::volume::{self, Created};

const CASES: [Case; 6] = [
    Case::new("randwrite", 4096, 1),
    Case::new("randwrite", 8192, 1),
    Case::new("randwrite", 65536, 1),
    Case::new("randwrite", 4096, 32),
    Case::new("randwrite", 8192, 32),
    Case::new("randwrite", 65536, 32),
];
const WIRE: &str = "ashlar_replica_sent_bytes_total";
const DRIVES: &str = "ashlar_pool_device_written_bytes_total";
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Writes to two copies against those to one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WriteCost {
    #[serde(flatten)]
    pub(crate) case: Case,
    /// Processor time of a write, two copies / one, pair by pair.
    pub(crate) cpu_ratio: Spread,
    pub(crate) one: PerWrite,
    pub(crate) two: PerWrite,
}

/// What writes of one side cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PerWrite {
    /// Writes a second.
    pub(crate) iops: Spread,
    /// Microseconds of processor time a write, of the daemons of both nodes.
    pub(crate) cpu_us: Spread,
    /// Bytes a write that the nodes have sent each other.
    pub(crate) wire_bytes: Spread,
    /// Bytes written to drives for each byte that the host wrote: at the node that owns the volume.
    pub(crate) owner_device_bytes: Spread,
    /// The same at the other one.
    pub(crate) other_device_bytes: Spread,
}

impl PerWrite {
    fn of(rounds: &[Spent]) -> Self {
        let spread = |of: fn(&Spent) -> f64| Spread::of(&rounds.iter().map(of).collect::<Vec<_>>());
        Self {
            iops: spread(|round| round.iops),
            cpu_us: spread(|round| round.cpu_us),
            wire_bytes: spread(|round| round.wire_bytes),
            owner_device_bytes: spread(|round| round.owner_device_bytes),
            other_device_bytes: spread(|round| round.other_device_bytes),
        }
    }
}

/// A write's share of what a round took.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spent {
    iops: f64,
    cpu_us: f64,
    wire_bytes: f64,
    owner_device_bytes: f64,
    other_device_bytes: f64,
}

/// What both nodes have counted.
#[derive(Clone, Copy, Debug)]
struct Counts {
    at: Instant,
    cpu_ns: u64,
    wire: f64,
    /// Of the owner, and of the other.
    drives: [f64; 2],
}

impl Spent {
    fn of(case: &Case, iops: f64, [from, to]: [Counts; 2]) -> Self {
        let writes = iops * to.at.duration_since(from.at).as_secs_f64();
        let each = |count: f64| count / writes.max(1.0);
        let device =
            |at: usize| each(to.drives[at] - from.drives[at]) / f64::from(case.block_bytes);
        Self {
            iops,
            cpu_us: each(to.cpu_ns.saturating_sub(from.cpu_ns) as f64) / 1e3,
            wire_bytes: each(to.wire - from.wire),
            owner_device_bytes: device(0),
            other_device_bytes: device(1),
        }
    }
}

/// The cells, and what is to be said about them.
pub(crate) fn measure(bench: &Bench<'_>) -> Result<(Vec<WriteCost>, Vec<String>), Failure> {
    let place = volume::place(bench.options, 2)?;
    let cluster = Cluster::up(bench, place.dir.clone())?;
    let one = cluster.volume("tank/one", &[])?;
    let two = cluster.volume("tank/two", &["--replicas", "2", "--nodes", "a,b"])?;
    let nodes = [cluster.node("a")?, cluster.node("b")?];
    let (mut one, mut two) = (Side::connect(&one, 0)?, Side::connect(&two, 1)?);
    let plan = bench.plan(Wait::Sleep);
    let mut cells = Vec::new();
    for case in CASES {
        let (mut ones, mut twos) = (Vec::new(), Vec::new());
        for _ in 0..bench.options.rounds {
            ones.push(one.round(&case, &plan, &nodes)?);
            twos.push(two.round(&case, &plan, &nodes)?);
        }
        let cpu = |rounds: &[Spent]| rounds.iter().map(|one| one.cpu_us).collect::<Vec<_>>();
        cells.push(WriteCost {
            case,
            cpu_ratio: Spread::of_ratios(&cpu(&twos), &cpu(&ones)),
            one: PerWrite::of(&ones),
            two: PerWrite::of(&twos),
        });
    }
    Ok((cells, Vec::from_iter(place.note)))
}

/// A loaded volume.
struct Side {
    load: Load,
    /// Its admin queue, without which the controller ends.
    _host: Host,
}

impl Side {
    fn connect(volume: &Created, number: u8) -> Result<Self, Failure> {
        let address = volume.address.parse();
        let address = address.map_err(Failure::doing(&volume.address))?;
        let mut host = Host::connect(address, &volume.nqn, number, None)?;
        let mut load = host.load()?;
        load.fill()?;
        Ok(Self { load, _host: host })
    }

    fn round(&mut self, case: &Case, plan: &Plan, nodes: &[Node; 2]) -> Result<Spent, Failure> {
        let mut counts: Vec<Counts> = Vec::with_capacity(2);
        let iops = self.load.run(case, plan, || {
            // What asking costs is not in what is measured.
            let now = match counts.is_empty() {
                true => {
                    let counted = ask(nodes)?;
                    Counts {
                        cpu_ns: cpu_ns(nodes)?,
                        at: Instant::now(),
                        ..counted
                    }
                }
                false => {
                    let (at, cpu_ns) = (Instant::now(), cpu_ns(nodes)?);
                    Counts {
                        at,
                        cpu_ns,
                        ..ask(nodes)?
                    }
                }
            };
            counts.push(now);
            Ok(())
        })?;
        match counts[..] {
            [from, to] => Ok(Spent::of(case, iops, [from, to])),
            _ => Err(Failure::environment("a round without its counts")),
        }
    }
}

fn cpu_ns(nodes: &[Node; 2]) -> Result<u64, Failure> {
    let pids = nodes.iter().flat_map(|node| &node.pids);
    let pids = pids.filter_map(|&pid| Pid::from_raw(pid));
    pids.map(cpu::of_process).sum()
}

fn ask(nodes: &[Node; 2]) -> Result<Counts, Failure> {
    let texts = [metrics(&nodes[0].api)?, metrics(&nodes[1].api)?];
    Ok(Counts {
        at: Instant::now(),
        cpu_ns: 0,
        wire: texts.iter().map(|text| sum(text, WIRE)).sum(),
        drives: [sum(&texts[0], DRIVES), sum(&texts[1], DRIVES)],
    })
}

/// What a daemon says of itself.
fn metrics(api: &Path) -> Result<String, Failure> {
    let asked = UnixStream::connect(api).and_then(|mut stream| {
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    });
    asked.map_err(Failure::doing(api.display()))
}

/// All series of a name together.
fn sum(text: &str, name: &str) -> f64 {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labels) => labels.rsplit_once("} ")?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.trim().parse::<f64>().ok()
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_added_and_others_are_not() {
        let text = "# TYPE a_bytes counter\na_bytes_total{node=\"b} 7\"} 3\na_bytes_total{node=\"c\"} 4.5\n\
                    a_bytes_total 1\na_bytes_total_more 100\nb_bytes_total 100\n";
        assert_eq!(sum(text, "a_bytes_total"), 8.5);
        assert_eq!(sum(text, "c"), 0.0);
    }

    #[test]
    fn a_write_has_its_share() {
        let at = Instant::now();
        let from = Counts {
            at,
            cpu_ns: 1_000,
            wire: 100.0,
            drives: [10.0, 20.0],
        };
        let to = Counts {
            at: at + Duration::from_secs(2),
            cpu_ns: 1_000 + 4_000_000,
            wire: 100.0 + 200.0 * 4200.0,
            drives: [10.0 + 200.0 * 8192.0, 20.0 + 200.0 * 4096.0],
        };
        let case = Case::new("randwrite", 4096, 1);
        let expected = Spent {
            iops: 100.0,
            cpu_us: 20.0,
            wire_bytes: 4200.0,
            owner_device_bytes: 2.0,
            other_device_bytes: 1.0,
        };
        assert_eq!(Spent::of(&case, 100.0, [from, to]), expected);
    }
}
