//! Processor time and device traffic, of this process and of a database's processes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ashlar_lab::CpuTicks;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::database::ServerPlace;

/// Bytes of a sector in `/sys/dev/block/…/stat`, whatever the device's own are.
const SECTOR: u64 = 512;

/// Microseconds since 1970 (UTC).
pub(crate) fn unix_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as i64)
}

/// Processor seconds that this process has used.
pub(crate) fn process_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What a device transferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBytes {
    /// Bytes read; null if it cannot be told.
    pub read_bytes: Option<u64>,
    /// Bytes written; null if it cannot be told.
    pub write_bytes: Option<u64>,
    /// Of what was read, what the database's own processes did; null if it cannot be told. The device may
    /// serve others, too.
    #[serde(default)]
    pub own_read_bytes: Option<u64>,
    /// Why it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl DeviceBytes {
    /// The means of both.
    pub(crate) fn with(self, other: &Self) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| Some(u64::midpoint(one?, other?));
        Self {
            read_bytes: both(self.read_bytes, other.read_bytes),
            write_bytes: both(self.write_bytes, other.write_bytes),
            own_read_bytes: both(self.own_read_bytes, other.own_read_bytes),
            reason: self.reason.or_else(|| other.reason.clone()),
        }
    }

    /// What reached the storage of the database's reads, as far as it can be told.
    pub(crate) fn reads(&self) -> Option<u64> {
        match (self.own_read_bytes, self.read_bytes) {
            (Some(own), Some(all)) => Some(own.min(all)),
            (own, all) => own.or(all),
        }
    }
}

/// Counters at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    client_cpu_s: f64,
    server_cpu_s: Result<f64, String>,
    machine: Option<CpuTicks>,
    device: Result<(u64, u64), String>,
    own_reads: Option<u64>,
}

/// What was used between two moments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used {
    pub(crate) client_cpu_s: f64,
    pub(crate) server_cpu_s: Option<f64>,
    /// Why the server's time is not known.
    pub(crate) server_reason: Option<String>,
    /// Share of the whole machine's processors that was in use, 0 to 100.
    pub(crate) machine_cpu_pct: Option<f64>,
    pub(crate) device: DeviceBytes,
}

impl Used {
    /// Adds what was used later.
    pub(crate) fn add(&mut self, later: Self) {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        self.client_cpu_s += later.client_cpu_s;
        self.server_cpu_s = self
            .server_cpu_s
            .zip(later.server_cpu_s)
            .map(|(a, b)| a + b);
        self.server_reason = self.server_reason.take().or(later.server_reason);
        // Of times that are alike.
        let both = self.machine_cpu_pct.zip(later.machine_cpu_pct);
        self.machine_cpu_pct = both.map(|(a, b)| f64::midpoint(a, b));
        let (device, other) = (&mut self.device, later.device);
        device.read_bytes = sum(device.read_bytes, other.read_bytes);
        device.write_bytes = sum(device.write_bytes, other.write_bytes);
        device.own_read_bytes = sum(device.own_read_bytes, other.own_read_bytes);
        device.reason = device.reason.take().or(other.reason);
    }
}

/// What a database's device reads and writes in each second.
pub(crate) struct DeviceSeries<'a> {
    place: Option<&'a ServerPlace>,
    before: Option<(u64, u64)>,
    /// Of those whose ends could be told.
    pub(crate) seconds: Vec<(u64, u64)>,
}

impl<'a> DeviceSeries<'a> {
    /// From now on; of a place that is not known, nothing.
    pub(crate) fn new(place: Option<&'a ServerPlace>) -> Self {
        let mut new = Self {
            place,
            before: None,
            seconds: Vec::new(),
        };
        new.before = new.now();
        new
    }

    /// Another second has passed.
    pub(crate) fn second_has_passed(&mut self) {
        let now = self.now();
        if let Some((from, to)) = self.before.zip(now) {
            let since = (to.0.saturating_sub(from.0), to.1.saturating_sub(from.1));
            self.seconds.push(since);
        }
        self.before = now;
    }

    /// Read and written since boot, if it can be told.
    fn now(&self) -> Option<(u64, u64)> {
        device_bytes(self.place?.storage.as_ref().ok()?).ok()
    }
}

impl Usage {
    pub(crate) fn now(place: &ServerPlace) -> Self {
        let server = place.process.clone();
        let storage = place.storage.clone();
        Self {
            client_cpu_s: process_cpu_s(),
            server_cpu_s: server.and_then(family_cpu_s),
            own_reads: match &place.process {
                Ok(first) => family_reads(*first),
                Err(_) if place.is_inside => reads(std::process::id()),
                Err(_) => None,
            },
            machine: CpuTicks::now(),
            device: storage.and_then(|path| device_bytes(&path)),
        }
    }

    pub(crate) fn since(self, earlier: &Self) -> Used {
        let server = both(&earlier.server_cpu_s, self.server_cpu_s);
        let device = both(&earlier.device, self.device);
        let own_reads = self.own_reads.zip(earlier.own_reads);
        let own_read_bytes = own_reads.map(|(to, from)| to.saturating_sub(from));
        Used {
            client_cpu_s: self.client_cpu_s - earlier.client_cpu_s,
            server_reason: server.as_ref().err().cloned(),
            machine_cpu_pct: self
                .machine
                .zip(earlier.machine)
                .and_then(|(to, from)| to.pct_since(from)),
            server_cpu_s: server.ok().map(|(from, to)| (to - from).max(0.0)),
            device: match device {
                Ok((from, to)) => DeviceBytes {
                    read_bytes: Some(to.0.saturating_sub(from.0)),
                    write_bytes: Some(to.1.saturating_sub(from.1)),
                    own_read_bytes,
                    reason: None,
                },
                Err(reason) => DeviceBytes {
                    own_read_bytes,
                    reason: Some(reason),
                    ..DeviceBytes::default()
                },
            },
        }
    }
}

fn both<T: Copy>(from: &Result<T, String>, to: Result<T, String>) -> Result<(T, T), String> {
    Ok((*from.as_ref().map_err(String::clone)?, to?))
}

/// Processor seconds of a process, its children that have ended, and its children that run.
pub(crate) fn family_cpu_s(first: u32) -> Result<f64, String> {
    // Of one that has ended and was not waited for yet, the children's time is not all in.
    let own = Stat::of(first).filter(|own| !own.has_ended);
    let own = own.ok_or_else(|| format!("process {first} is not there"))?;
    let mut ticks = own.ticks + own.ended_children_ticks;
    for (_, stat) in children(first).map_err(|error| format!("/proc: {error}"))? {
        ticks += stat.ticks + stat.ended_children_ticks;
    }
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The children that a process has.
fn children(first: u32) -> std::io::Result<impl Iterator<Item = (u32, Stat)>> {
    let entries = fs::read_dir("/proc")?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let with_stat = numbers.filter_map(|number| Some((number, Stat::of(number)?)));
    Ok(with_stat.filter(move |(_, stat)| stat.parent == first))
}

/// Bytes that a process had fetched from storage, by proc(5)'s `/proc/N/io`; others' need rights.
fn reads(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes:"))?;
    line.trim().parse().ok()
}

/// The same of a process and the children that it has now.
fn family_reads(first: u32) -> Option<u64> {
    let own = reads(first)?;
    let others = children(first).ok()?;
    Some(own + others.filter_map(|(child, _)| reads(child)).sum::<u64>())
}

/// What proc(5)'s `/proc/N/stat` says.
struct Stat {
    has_ended: bool,
    parent: u32,
    ticks: u64,
    ended_children_ticks: u64,
}

impl Stat {
    fn of(process: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    /// The name, in parentheses, may hold anything; the fields after it are numbers.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            has_ended: *fields.first()? == "Z",
            parent: number(1)? as u32,
            ticks: number(11)? + number(12)?,
            ended_children_ticks: number(13)? + number(14)?,
        })
    }
}

/// The process that started `process`, if both bear `name`.
pub(crate) fn parent_named(process: u32, name: &str) -> Result<u32, String> {
    let parent = Stat::of(process).map(|stat| stat.parent);
    let parent = parent.ok_or_else(|| format!("process {process} is not on this machine"))?;
    for process in [process, parent] {
        let found = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        if found.trim() != name {
            return Err(format!("process {process} here is not {name}"));
        }
    }
    Ok(parent)
}

/// What a block device has done since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) reads: u64,
    /// Milliseconds that these took, added up.
    pub(crate) read_ms: u64,
    pub(crate) writes: u64,
    pub(crate) write_ms: u64,
    pub(crate) bytes: (u64, u64),
}

/// Bytes read and written since boot by the device that holds `path`.
fn device_bytes(path: &Path) -> Result<(u64, u64), String> {
    device_counters(path).map(|(_, counters)| counters.bytes)
}

/// The device that holds `path`, by its number, and what it has done.
pub(crate) fn device_counters(path: &Path) -> Result<(String, Counters), String> {
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    let device = fs::metadata(path).map_err(told)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let name = format!("/sys/dev/block/{major}:{minor}/stat");
    let text = fs::read_to_string(name).map_err(|_| {
        format!(
            "{} is on no block device of its own ({major}:{minor})",
            path.display()
        )
    })?;
    let fields: Vec<u64> = text
        .split_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    match fields[..] {
        [reads, _, read, read_ms, writes, _, written, write_ms, ..] => {
            let counters = Counters {
                reads,
                read_ms,
                writes,
                write_ms,
                bytes: (read * SECTOR, written * SECTOR),
            };
            Ok((format!("{major}:{minor}"), counters))
        }
        _ => Err(format!("{major}:{minor}: no statistics")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_its_line() {
        let line = "12 (a) b) c) S 7 12 12 0 -1 4 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7";
        let stat = Stat::parse(line).expect("a line");
        assert_eq!(
            (stat.parent, stat.ticks, stat.ended_children_ticks),
            (7, 120, 7)
        );
        assert!(Stat::parse("12 (x").is_none());
        let ended = Stat::parse(&line.replace(" S 7", " Z 7")).expect("a line");
        assert!(ended.has_ended && !stat.has_ended);
        let own = family_cpu_s(std::process::id()).expect("this process");
        assert!(own >= 0.0);
        assert!(parent_named(std::process::id(), "postgres").is_err());
    }

    #[test]
    fn what_cannot_be_told_has_a_reason() {
        let place = ServerPlace {
            process: Err("far away".into()),
            is_inside: false,
            storage: Ok("/proc".into()),
        };
        let used = Usage::now(&place).since(&Usage::now(&place));
        assert_eq!(used.server_reason.as_deref(), Some("far away"));
        assert_eq!(used.device.read_bytes, None);
        assert!(
            used.device
                .reason
                .expect("a reason")
                .contains("no block device")
        );
    }
}
