//! Tables for people, `bench.json` for programs. `docs/bench.md` documents the latter, key by key;
//! the two change together.

mod replicas;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use ashlar_lab::Machine;
use serde::Serialize;

use crate::engine::{
    Cost, CostRatio, DiskCost, Memory, Reads, Recovery, TierRatio, WriteCache, cost_ratios,
};
use crate::failure::Failure;
use crate::figures::{Case, Row, Side, Spread};
use crate::parts::{Bench, Copies, Hoarders, Idle, Remote, Scaling, WriteCost};
use crate::policy::{self, PolicyCell};
use crate::slow::{self, Slow};

/// The `schema` of what this version writes.
const SCHEMA: &str = "ashlar-bench-1";
/// Others' processor time, in percent of a core, from which a reader is warned.
const DISTURBED_PCT: f64 = 10.0;

/// Everything that was measured.
#[derive(Serialize)]
struct Results {
    schema: &'static str,
    machine: Machine,
    method: Method,
    #[serde(skip_serializing_if = "Option::is_none")]
    bare: Option<Vec<Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<Vec<Remote>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<Vec<Idle>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<Vec<Scaling>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hoarders: Option<Vec<Hoarders>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<Vec<Copies>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replica_cost: Option<Vec<WriteCost>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<Vec<Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Vec<Cost>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cost_ratios: Vec<CostRatio>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tiers: Option<Vec<TierRatio>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disks: Option<Vec<DiskCost>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_cache: Option<[WriteCache; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery: Option<Vec<Recovery>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reads: Option<Vec<Reads>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Vec<PolicyCell>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow: Option<Vec<Slow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_databases: Option<Vec<slow::Run>>,
    skipped: Vec<String>,
    flags: Vec<String>,
}

#[derive(Serialize)]
struct Method {
    rounds: u32,
    seconds: f64,
    server_core: usize,
    client_core: usize,
}

/// Prints parts as they come, and keeps `bench.json` up to date.
pub(crate) struct Report {
    results: Results,
    path: PathBuf,
}

impl Report {
    /// Begins with the machine and the method.
    pub(crate) fn new(bench: &Bench<'_>) -> Result<Self, Failure> {
        let method = Method {
            rounds: bench.options.rounds,
            seconds: bench.length.as_secs_f64(),
            server_core: bench.server_core,
            client_core: bench.client_core,
        };
        let machine = Machine::here();
        print(&format!(
            "Ratios on this machine ({}, {} cores, {}).\n{} interleaved pairs of {} s; median, and (smallest–largest) of the pairs' ratios.\n",
            machine.cpu_model, machine.cores, machine.kernel, method.rounds, method.seconds
        ))?;
        Ok(Self {
            results: Results {
                schema: SCHEMA,
                machine,
                method,
                bare: None,
                local: None,
                idle: None,
                cores: None,
                hoarders: None,
                replicas: None,
                replica_cost: None,
                peer: None,
                cost: None,
                cost_ratios: Vec::new(),
                tiers: None,
                disks: None,
                write_cache: None,
                recovery: None,
                memory: None,
                reads: None,
                policy: None,
                slow: None,
                slow_databases: None,
                skipped: Vec::new(),
                flags: Vec::new(),
            },
            path: bench.options.out.join("bench.json"),
        })
    }

    /// The target against the bare socket.
    pub(crate) fn bare(&mut self, rows: Vec<Row>) -> Result<(), Failure> {
        self.watch("bare", rows.iter().flat_map(|row| [&row.ours, &row.base]));
        print(&rows_table(
            "Target / bare socket server",
            ["target", "bare"],
            &rows,
        ))?;
        self.results.bare = Some(rows);
        self.save()
    }

    /// Remote against local.
    pub(crate) fn local(&mut self, cells: Vec<Remote>, notes: Vec<String>) -> Result<(), Failure> {
        self.results.flags.extend(notes);
        let mut table = Table::new(&["load", "remote in % of local", "goal"]);
        for cell in &cells {
            let load = load_name(cell.pattern.name(), cell.block_bytes, cell.depth);
            let percent = &cell.remote_pct_of_local;
            let goal = format!(
                "≥ {:.0}{}",
                cell.goal_pct,
                mark(percent.median >= cell.goal_pct)
            );
            table.row([load, range(percent, 1), goal]);
        }
        print(&table.text("Remote / local, one file (IOPS)"))?;
        self.results.local = Some(cells);
        self.save()
    }

    /// Idle targets.
    pub(crate) fn idle(&mut self, idle: Vec<Idle>) -> Result<(), Failure> {
        let mut table = Table::new(&["connected hosts", "CPU, % of a core", "goal"]);
        for target in &idle {
            let met = target.cpu_pct.median < target.goal_below_pct;
            table.row([
                target.hosts.to_string(),
                range(&target.cpu_pct, 3),
                format!("< {}{}", target.goal_below_pct, mark(met)),
            ]);
        }
        let seconds = idle.first().map_or(0.0, |target| target.seconds);
        print(&table.text(&format!("Idle target over {seconds} s")))?;
        self.results.idle = Some(idle);
        self.save()
    }

    /// A writer beside hoarders.
    pub(crate) fn hoarders(&mut self, results: Vec<Hoarders>) -> Result<(), Failure> {
        let mut table = Table::new(&[
            "hosts",
            "hoarders",
            "writes a second / alone",
            "goal",
            "longest wait, ms",
            "goal",
        ]);
        for one in &results {
            let met = one.longest_wait_ms <= one.goal_wait_ms;
            table.row([
                one.hosts.to_owned(),
                one.way.to_owned(),
                range(&one.rate_ratio, 2),
                at_least(Some(one.goal_at_least), &one.rate_ratio),
                format!("{:.0}", one.longest_wait_ms),
                format!("≤ {:.0}{}", one.goal_wait_ms, mark(met)),
            ]);
        }
        let queues = results.first().map_or(0, |one| one.queues);
        print(&table.text(&format!(
            "128 KiB writes at depth 8 beside {queues} queues that owe data"
        )))?;
        self.results.hoarders = Some(results);
        self.save()
    }

    /// Two cores against one, of memory.
    pub(crate) fn cores(&mut self, results: Vec<Scaling>) -> Result<(), Failure> {
        let flag = "cores: fewer than four cores, so the clients share the target's";
        let shared = results.iter().any(|result| !result.clients_apart);
        let notes = shared.then(|| flag.to_owned());
        self.scaling("Two cores / one, a connection a core", results, notes)
    }

    /// The same of a volume, or why not.
    pub(crate) fn cores_of_a_volume(
        &mut self,
        outcome: Result<(Vec<Scaling>, Option<String>), Failure>,
    ) -> Result<(), Failure> {
        match outcome {
            Ok((results, note)) => {
                let notes = note.map(|note| format!("cores: {note}"));
                self.scaling(
                    "Two cores / one, two connections on both sides",
                    results,
                    notes,
                )
            }
            Err(why) => self.skip(format!("cores, of a volume: {why}")),
        }
    }

    fn scaling(
        &mut self,
        title: &str,
        results: Vec<Scaling>,
        note: Option<String>,
    ) -> Result<(), Failure> {
        self.watch("cores", results.iter().flat_map(|r| [&r.one, &r.two]));
        let mut table = Table::new(&[
            "served",
            "load, each connection",
            "CPU a command, two / one",
            "goal",
            "IOPS, two / one",
        ]);
        for result in &results {
            let ratio = &result.cpu_ns_per_command_ratio;
            let met = ratio.median <= result.goal_at_most;
            table.row([
                result.served.into(),
                case_name(&result.case),
                range(ratio, 2),
                format!("≤ {:.1}{}", result.goal_at_most, mark(met)),
                range(&result.iops_ratio, 2),
            ]);
        }
        let mut text = table.text(title);
        if let Some(note) = note {
            let _ = writeln!(text, "  ({note})");
            self.results.flags.push(note);
        }
        print(&text)?;
        self.results.cores.get_or_insert_default().extend(results);
        self.save()
    }

    /// Something that was asked for was not measured.
    fn skip(&mut self, line: String) -> Result<(), Failure> {
        print(&format!("\n{line}\n"))?;
        self.results.skipped.push(line);
        self.save()
    }

    /// Against a peer, or why not.
    pub(crate) fn peer(&mut self, outcome: Result<Vec<Row>, String>) -> Result<(), Failure> {
        match outcome {
            Ok(rows) => {
                self.watch("peer", rows.iter().flat_map(|row| [&row.ours, &row.base]));
                print(&rows_table(
                    "Ours / the peer's target, its perf tool",
                    ["ours", "peer"],
                    &rows,
                ))?;
                self.results.peer = Some(rows);
                self.save()
            }
            Err(why) => self.skip(format!("peer: {why}")),
        }
    }

    /// A cell of the cost table is there: it takes a while.
    pub(crate) fn cost_cell(&mut self, cell: &Cost) -> Result<(), Failure> {
        if self.results.cost.is_none() {
            print("\nDevice bytes a user byte, steady state (counted)\n")?;
            print(
                "  layout    load                  fill  depth  written  pages    read   goal\n",
            )?;
            self.results.cost = Some(Vec::new());
        }
        let goal = cell.limit.map_or_else(String::new, |limit| {
            format!("≤ {limit}{}", mark(cell.written_per_byte <= limit + 0.005))
        });
        print(&format!(
            "  {:8}  {:9} {:5} KiB  {:3} %  {:5}  {:7.3}  {:5.3}  {:6.3}   {goal}\n",
            cell.layout,
            cell.pattern,
            cell.block_bytes / 1024,
            cell.fill_pct,
            cell.depth,
            cell.written_per_byte,
            cell.pages_per_byte,
            cell.read_per_byte,
        ))
    }

    /// The engine's cost.
    pub(crate) fn cost(&mut self, cells: Vec<Cost>) -> Result<(), Failure> {
        let ratios = cost_ratios(&cells);
        let mut text = String::new();
        for ratio in &ratios {
            let _ = writeln!(
                text,
                "  {} / {}, {} {} KiB, depth {}, {} %: {:.2} of its bytes a second, goal ≥ {}{}; longest silence {:.0} us",
                ratio.ours,
                ratio.base,
                ratio.pattern,
                ratio.block_bytes / 1024,
                ratio.depth,
                ratio.fill_pct,
                ratio.rate_ratio,
                ratio.goal,
                mark(ratio.rate_ratio >= ratio.goal),
                ratio.longest_silence_us,
            );
        }
        print(&text)?;
        self.results.cost_ratios = ratios;
        self.results.cost = Some(cells);
        self.save()
    }

    /// Writes that are spread over more than a hot home may hold.
    pub(crate) fn tiers(&mut self, rows: Vec<TierRatio>) -> Result<(), Failure> {
        let mut table = Table::new(&[
            "load",
            "of in-tier speed",
            "goal",
            "of mirror:2",
            "device bytes a byte",
            "MiB moved to, from",
        ]);
        for row in &rows {
            let load = load_name("randwrite", row.block_bytes, row.depth as u32);
            table.row([
                format!("{load} {}", row.spread),
                format!("{:.2}", row.of_inside),
                row.goal.map_or_else(String::new, |goal| {
                    format!("≥ {goal}{}", mark(row.of_inside >= goal))
                }),
                format!("{:.2}", row.of_mirror),
                format!("{:.2}", row.device_bytes_per_user_byte),
                format!("{}, {}", row.promoted_bytes >> 20, row.demoted_bytes >> 20),
            ]);
        }
        print(
            &table.text(
                "parity:4+1 with 20 % in a hot mirror:2, all of it written (drives simulated)",
            ),
        )?;
        self.results.tiers = Some(rows);
        self.save()
    }

    /// Parity on disks, with small and large slots.
    pub(crate) fn disks(&mut self, rows: Vec<DiskCost>) -> Result<(), Failure> {
        let mut table = Table::new(&["load", "slots", "seeks a MiB", "MiB/s"]);
        for row in &rows {
            let default = if row.is_default { " (default)" } else { "" };
            table.row([
                load_name(row.pattern, row.block_bytes, row.depth as u32),
                format!("{} KiB{default}", row.grain_bytes >> 10),
                format!("{:.1}", row.seeks_per_mib),
                format!("{:.1}", row.mib_per_s),
            ]);
        }
        print(&table.text("parity:4+1 on five modelled disks, logs on NVMe: how often arms move"))?;
        self.results.disks = Some(rows);
        self.save()
    }

    /// Writes with the ring on the homes' drives, and on faster ones.
    pub(crate) fn write_cache(&mut self, both: [WriteCache; 2]) -> Result<(), Failure> {
        let mut table = Table::new(&[
            "ring on",
            "write p50 us",
            "p95",
            "p99.9",
            "longest",
            "read p95",
        ]);
        for one in &both {
            let us = |us: f64| format!("{us:.0}");
            table.row([
                one.ring.to_owned(),
                us(one.write_p50_us),
                us(one.write_p95_us),
                us(one.write_p999_us),
                us(one.write_longest_us),
                us(one.read_p95_us),
            ]);
        }
        let [sata, nvme] = &both;
        print(&table.text(&format!(
            "Eight databases at one rate on mirror:2 of SATA drives, 70 % full, {} s of the drives' time",
            sata.simulated_seconds
        )))?;
        print(&format!(
            "  write p95 below that of the plain layout{}\n",
            mark(nvme.write_p95_us < sata.write_p95_us)
        ))?;
        self.results.write_cache = Some(both);
        self.save()
    }

    /// How the engine comes back, and what its map takes.
    pub(crate) fn recovery(
        &mut self,
        imports: Vec<Recovery>,
        memory: Memory,
    ) -> Result<(), Failure> {
        let mut table = Table::new(&[
            "import after a crash",
            "seconds",
            "per",
            "processor s",
            "drives s",
            "reads",
            "goal",
        ]);
        for import in &imports {
            table.row([
                import.case.into(),
                format!("{:.2}", import.seconds_a_unit),
                import.unit.into(),
                format!("{:.3}", import.cpu_s),
                format!("{:.3}", import.drive_s),
                import.reads.to_string(),
                format!(
                    "≤ {}{}",
                    import.goal_s,
                    mark(import.seconds_a_unit <= import.goal_s)
                ),
            ]);
        }
        let mut text = table.text("Recovery (processor measured, drives simulated)");
        let _ = writeln!(
            text,
            "  the map in memory: {:.2} GiB a mapped TiB if all of it is used, bound to {:.2}; goal ≤ {}{}",
            memory.gib_a_tib,
            memory.bound_gib_a_tib,
            memory.goal_gib,
            mark(memory.bound_gib_a_tib <= memory.goal_gib)
        );
        print(&text)?;
        (self.results.recovery, self.results.memory) = (Some(imports), Some(memory));
        self.save()
    }

    /// Reads through the engine.
    pub(crate) fn reads(&mut self, reads: Vec<Reads>) -> Result<(), Failure> {
        let mut table = Table::new(&[
            "load",
            "IOPS, engine / drives",
            "goal",
            "CPU ns, engine",
            "CPU ns, drives",
        ]);
        for read in &reads {
            table.row([
                load_name("randread", read.block_bytes, read.depth as u32),
                range(&read.iops_ratio, 2),
                at_least(read.goal, &read.iops_ratio),
                format!("{:.0}", read.engine_cpu_ns.median),
                format!("{:.0}", read.drives_cpu_ns.median),
            ]);
        }
        print(&table.text("Reads of mirror:2 through the engine / of its two files"))?;
        self.results.reads = Some(reads);
        self.save()
    }

    /// A cell of the policies' table is there.
    pub(crate) fn policy_cell(&mut self, cell: &PolicyCell) -> Result<(), Failure> {
        let mut line = String::new();
        if self.results.policy.is_none() {
            self.results.policy = Some(Vec::new());
            line.push_str("\nHit ratios of the cache's policy beside others (counted)\n");
            let _ = write!(line, "  {:14}  {:>8}", "trace", "slots");
            policy::NAMES
                .iter()
                .for_each(|name| line.push_str(&format!("  {name:>9}")));
            line.push_str("   of the best  bytes a slot\n");
        }
        let _ = write!(line, "  {:14}  {:8}", cell.trace, cell.slots);
        for ratio in cell.hit_ratios {
            let _ = write!(line, "  {ratio:9.4}");
        }
        let met = mark(cell.of_best >= policy::GOAL);
        let (of_best, bytes) = (cell.of_best, cell.bytes_a_slot);
        let _ = writeln!(line, "   {of_best:11.3}  {bytes:12}{met}");
        print(&line)
    }

    /// Policies beside each other.
    pub(crate) fn policy(&mut self, cells: Vec<PolicyCell>) -> Result<(), Failure> {
        let met = cells.iter().filter(|cell| cell.of_best >= policy::GOAL);
        let (met, all, goal) = (met.count(), cells.len(), policy::GOAL);
        print(&format!(
            "  at least {goal} of the best of the others: {met} of {all}\n"
        ))?;
        self.results.policy = Some(cells);
        self.save()
    }

    /// A load on a cache beside its disk is measured.
    pub(crate) fn slow_one(&mut self, one: &Slow) -> Result<(), Failure> {
        let mut text = String::new();
        if self.results.slow.is_none() {
            self.results.slow = Some(Vec::new());
            text.push_str(
                "\nA cache beside the disk that it caches, 8 KiB (accesses a modelled second)\n",
            );
            text.push_str("  load       depth  cache        disk        cached      ratio   seeks each: disk, cached\n");
        }
        let _ = writeln!(
            text,
            "  {:9}  {:5}  {:11}  {:10.1}  {:10.1}  {:7.2}   {:.2}, {:.2}{}",
            one.pattern.name(),
            one.depth,
            one.state,
            one.disk,
            one.cached,
            one.ratio,
            one.disk_seeks,
            one.cached_seeks,
            mark(one.ratio >= slow::GOAL),
        );
        print(&text)
    }

    /// A cache beside its disk.
    pub(crate) fn slow(&mut self, all: Vec<Slow>) -> Result<(), Failure> {
        self.results.slow = Some(all);
        self.save()
    }

    /// A database on disks is measured.
    pub(crate) fn slow_database(&mut self, run: &slow::Run) -> Result<(), Failure> {
        let mut text = String::new();
        let runs = self.results.slow_databases.get_or_insert_default();
        if runs.is_empty() {
            text.push_str("\nA database on RAID-5 of ten disks, a third of it cached (transactions a modelled second)\n");
            text.push_str("  beside it  cached         tps   of none   commits ms: 99.9 %, all   tps, hits %, seeks/s and newer % over time\n");
        }
        runs.push(run.clone());
        let alone = runs.iter().find(|one| one.with_system == run.with_system);
        let of_none = run.tps / alone.map_or(run.tps, |one| one.tps);
        let beside = if run.with_system {
            "a system"
        } else {
            "nothing"
        };
        let _ = write!(
            text,
            "  {beside:9}  {:9}  {:8.1}  {of_none:8.2}   {:11.1}, {:8.1}  ",
            run.cached.name(),
            run.tps,
            run.commit_p999_ms,
            run.commit_most_ms,
        );
        for point in &run.curve {
            let _ = write!(
                text,
                "  {}s {:.0} {:.0} {:.0} {:.0}",
                point.until_seconds,
                point.tps,
                point.hit_pct,
                point.seeks_a_second,
                point.newer_pct
            );
        }
        text.push('\n');
        print(&text)
    }

    /// A database on disks, alone and behind caches.
    pub(crate) fn slow_databases(&mut self, runs: Vec<slow::Run>) -> Result<(), Failure> {
        self.results.slow_databases = Some(runs);
        self.save()
    }

    /// Ends with what to know before quoting a figure.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let mut text = String::from("\n");
        for flag in &self.results.flags {
            let _ = writeln!(text, "note: {flag}");
        }
        for line in &self.results.skipped {
            let _ = writeln!(text, "not measured: {line}");
        }
        let _ = writeln!(text, "{}", self.path.display());
        print(&text)
    }

    fn watch<'a>(&mut self, part: &str, sides: impl Iterator<Item = &'a Side>) {
        let most = sides.map(Side::others_most).fold(0.0, f64::max);
        if most > DISTURBED_PCT {
            self.results.flags.push(format!(
                "{part}: other processes took up to {most:.0} % of a core in a round: measure on a quiet machine"
            ));
        }
    }

    fn save(&self) -> Result<(), Failure> {
        let name = self.path.display();
        let text = serde_json::to_string_pretty(&self.results).map_err(Failure::doing(&name))?;
        std::fs::write(&self.path, text + "\n").map_err(Failure::doing(&name))
    }
}

fn rows_table(title: &str, [ours, base]: [&str; 2], rows: &[Row]) -> String {
    let (ours, base) = (format!("CPU % {ours}"), format!("CPU % {base}"));
    let mut table = Table::new(&[
        "load",
        "IOPS",
        "goal",
        "IOPS per CPU-second",
        "goal",
        &ours,
        &base,
    ]);
    for row in rows {
        table.row([
            case_name(&row.case),
            range(&row.iops_ratio, 2),
            at_least(row.goal_iops, &row.iops_ratio),
            range(&row.iops_per_cpu_s_ratio, 2),
            at_least(row.goal_iops_per_cpu_s, &row.iops_per_cpu_s_ratio),
            format!("{:.0}", row.ours.cpu_pct.median),
            format!("{:.0}", row.base.cpu_pct.median),
        ]);
    }
    table.text(title)
}

fn at_least(goal: Option<f64>, ratio: &Spread) -> String {
    goal.map_or_else(String::new, |goal| {
        format!("≥ {goal}{}", mark(ratio.median >= goal))
    })
}

/// Goals that are missed stand out; none decides anything here.
fn mark(met: bool) -> &'static str {
    if met { "" } else { "  missed" }
}

fn range(spread: &Spread, digits: usize) -> String {
    let Spread { median, min, max } = spread;
    format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
}

fn case_name(case: &Case) -> String {
    load_name(case.pattern, case.block_bytes, case.depth)
}

fn load_name(pattern: &str, block_bytes: u32, depth: u32) -> String {
    format!("{pattern} {} KiB, depth {depth}", block_bytes / 1024)
}

/// Text in columns.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        let head = head.iter().map(|&cell| cell.to_owned()).collect();
        Self { rows: vec![head] }
    }

    fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    fn text(&self, title: &str) -> String {
        let mut text = format!("\n{title}\n");
        let columns = self.rows.first().map_or(0, Vec::len);
        let wide = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(wide).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "  {cell:width$}");
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::doing("standard output"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_that_fails_leaves_what_was_measured() {
        use clap::Parser;

        let dir = tempfile::tempdir().expect("a folder");
        let out = dir.path().display().to_string();
        let arguments = ["ashlar-bench", "--ashlar", "/bin/false", "--out", &out];
        let arguments = crate::args::Arguments::try_parse_from(arguments).expect("arguments");
        let bench = Bench {
            options: &arguments.options,
            length: std::time::Duration::from_secs(1),
            server_core: 0,
            client_core: 1,
            cores: vec![0, 1],
        };
        let mut report = Report::new(&bench).expect("a report");
        report.cores(Vec::new()).expect("kept");
        let failed = Failure::environment("no space");
        report.cores_of_a_volume(Err(failed)).expect("told");
        report.finish().expect("told");
        let text = std::fs::read_to_string(dir.path().join("bench.json")).expect("a file");
        let found: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(found["cores"].is_array(), "{text}");
        assert_eq!(found["skipped"][0], "cores, of a volume: no space");
    }

    #[test]
    fn columns_line_up_and_missed_goals_stand_out() {
        let mut table = Table::new(&["load", "ratio"]);
        table.row(["a longer name".into(), "1.0".into()]);
        assert_eq!(
            table.text("T"),
            "\nT\n  load           ratio\n  a longer name  1.0\n"
        );
        let ratio = Spread {
            median: 0.9,
            min: 0.8,
            max: 1.25,
        };
        assert_eq!(range(&ratio, 2), "0.90 (0.80–1.25)");
        assert_eq!(at_least(Some(0.95), &ratio), "≥ 0.95  missed");
        assert_eq!(at_least(Some(0.9), &ratio), "≥ 0.9");
        assert_eq!(at_least(None, &ratio), "");
    }
}
