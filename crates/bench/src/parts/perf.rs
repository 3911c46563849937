//! A peer's perf tool (`spdk_nvme_perf`) as the load, and a target's processor time meanwhile.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use crate::child::{Program, words};
use crate::cpu::{Meter, Sample};
use crate::failure::Failure;
use crate::figures::{Case, Round};

/// How often the target's processor time is read.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Bring-up and tear-down of the tool, beyond its warm-up and measured time.
const SETUP_TIMEOUT: Duration = Duration::from_secs(60);

/// The tool, and how it is run.
pub(super) struct Perf<'a> {
    pub(super) tool: PathBuf,
    pub(super) core: usize,
    /// It takes whole seconds only.
    pub(super) seconds: u32,
    pub(super) out: &'a Path,
}

/// Whom it loads.
#[derive(Clone, Copy)]
pub(super) struct Loaded<'a> {
    pub(super) address: SocketAddr,
    pub(super) nqn: &'a str,
    pub(super) pid: Pid,
}

impl Perf<'_> {
    /// One round: IOPS by the tool's own count, processor time of its busiest stretch of the measured
    /// length, since the tool does not say when its measured time begins.
    pub(super) fn round(&self, case: &Case, target: Loaded<'_>) -> Result<Round, Failure> {
        let output = self.out.join("peer-perf.txt");
        let mut child = self.program(case, target, &output).start()?;
        let meter = Meter {
            server: target.pid,
            client: Some(child.pid()),
        };
        let mut samples: Vec<Sample> = Vec::new();
        let measured = Duration::from_secs(u64::from(self.seconds));
        let most = (measured + SETUP_TIMEOUT).as_millis() / SAMPLE_EVERY.as_millis();
        while child.ended()?.is_none() {
            // The tool may end between these two lines.
            samples.extend(meter.sample().ok());
            if samples.len() as u128 > most {
                return Err(child.failed("does not end"));
            }
            std::thread::sleep(SAMPLE_EVERY);
        }
        child.finish()?;
        let text = std::fs::read_to_string(&output).map_err(Failure::doing(output.display()))?;
        let iops = total_iops(&text)
            .ok_or_else(|| Failure::environment(format!("{}: no total in it", output.display())))?;
        let (from, to) = busiest(&samples, measured)
            .ok_or_else(|| Failure::environment("the perf tool ended too early"))?;
        Ok(Round::of(iops, &from, &to))
    }

    fn program(&self, case: &Case, target: Loaded<'_>, output: &Path) -> Program {
        let transport = format!(
            "trtype:TCP adrfam:IPv4 traddr:{} trsvcid:{} subnqn:{}",
            target.address.ip(),
            target.address.port(),
            target.nqn
        );
        let (depth, block) = (case.depth.to_string(), case.block_bytes.to_string());
        let (mask, seconds) = (core_mask(self.core), self.seconds.to_string());
        let mut args = words(["--no-huge", "-s", "512", "-S", "posix", "-z", "posix"]);
        args.extend(words(["-c", &mask, "-q", &depth, "-o", &block]));
        args.extend(words(["-w", case.pattern, "-a", "1", "-t", &seconds]));
        args.extend(words(["-r", &transport]));
        Program {
            name: "the perf tool".into(),
            path: self.tool.clone(),
            args,
            core: None,
            log: self.out.join("peer-perf.log"),
            output: Some(output.to_owned()),
        }
    }
}

/// A mask of one core, as the peer's programs take it.
pub(super) fn core_mask(core: usize) -> String {
    format!("[{core}]")
}

/// IOPS in the line `Total : IOPS MiB/s …`.
fn total_iops(text: &str) -> Option<f64> {
    let mut totals = text.lines().rev().filter_map(|line| {
        let (name, figures) = line.split_once(':')?;
        (name.trim() == "Total").then_some(figures)
    });
    let figures = totals.next()?;
    figures.split_whitespace().next()?.parse().ok()
}

/// The two samples about `length` apart between which the server worked most.
fn busiest(samples: &[Sample], length: Duration) -> Option<(Sample, Sample)> {
    let stretch = |(index, from): (usize, &Sample)| {
        let to = samples[index..]
            .iter()
            .find(|to| to.at - from.at >= length)?;
        let share =
            to.server_ns.saturating_sub(from.server_ns) as f64 / (to.at - from.at).as_secs_f64();
        Some((share, *from, *to))
    };
    let all = samples.iter().enumerate().filter_map(stretch);
    all.max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, from, to)| (from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_total_is_found_in_the_tools_table() {
        let text = "Device Information          : IOPS MiB/s Average min max\n\
                    TCP (addr:127.0.0.1) NSID 1 from core 1: 10.00 0.04 1.00 1.00 1.00\n\
                    ====\n\
                    Total                       :   54321.50     212.19      18.35       9.00    1.00\n";
        assert_eq!(total_iops(text), Some(54_321.5));
        assert_eq!(total_iops("Total"), None);
    }

    #[test]
    fn the_busiest_stretch_leaves_bring_up_out() {
        let start = Instant::now();
        let sample = |ms: u64, server_ms: u64| Sample {
            at: start + Duration::from_millis(ms),
            server_ns: server_ms * 1_000_000,
            client_ns: 0,
            machine_ns: 0,
        };
        let samples = [
            sample(0, 5),
            sample(1000, 5),
            sample(2000, 805),
            sample(3000, 1705),
            sample(4000, 1705),
        ];
        let (from, to) = busiest(&samples, Duration::from_secs(2)).unwrap();
        assert_eq!((from.server_ns, to.server_ns), (5_000_000, 1_705_000_000));
        assert!(busiest(&samples, Duration::from_secs(9)).is_none());
    }
}
