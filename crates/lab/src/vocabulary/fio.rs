//! fio's job options.

use std::time::Duration;

use super::{ONE_REPEAT, Single, TIMES, Translated, number, seconds};
use crate::access::{Access, Distribution, Share};
use crate::units::{parse_block, parse_bytes};
use crate::{LabError, Pattern};

/// Options that change nothing about what the lab measures.
const WITHOUT_EFFECT: [&str; 16] = [
    "name",
    "ioengine",
    "direct",
    "group_reporting",
    "time_based",
    "thread",
    "norandommap",
    "randrepeat",
    "output-format",
    "output",
    "gtod_reduce",
    "loops",
    "clocksource",
    "refill_buffers",
    "eta",
    "fallocate",
];

pub(super) fn translate(words: &[&str]) -> Result<Translated, LabError> {
    let mut job = Job::default();
    for word in words {
        let plain = word.strip_prefix("--").unwrap_or(word);
        let (key, value) = plain.split_once('=').unwrap_or((plain, "1"));
        job.take(key, value)?;
    }
    Ok(job.translated())
}

/// A job, as far as its options have been read.
pub(super) struct Job {
    single: Single,
    extra: Extra,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            single: Single {
                pattern: Pattern::Read,
                read_pct: 50,
                block: 4096,
                threads: 1,
                depth: 1,
                targets: Vec::new(),
            },
            extra: Extra::default(),
        }
    }
}

impl Job {
    /// Takes one option.
    pub(super) fn take(&mut self, key: &str, value: &str) -> Result<(), LabError> {
        take(&mut self.single, &mut self.extra, key, value)
    }

    pub(super) fn translated(self) -> Translated {
        let Self { mut single, extra } = self;
        let threads = single.threads;
        let mut assumed = extra.assumed.clone();
        let mut default = |given: bool, text: &str| {
            if !given {
                assumed.push(text.to_owned());
            }
        };
        let has_block = extra.block || !extra.access.sizes.is_empty();
        default(extra.pattern, "fio's default pattern: read");
        default(has_block, "fio's default block size: 4 KiB");
        default(extra.depth, "fio's default depth: 1");
        default(extra.runtime.is_some(), TIMES[0]);
        if single.pattern.is_mixed() {
            default(extra.mix, "fio's default mix: 50 % reads");
        }
        default(
            threads == 1 || single.pattern.is_random(),
            "each thread walks a region of its own (fio's jobs all start at offset 0)",
        );
        default(
            extra.rate.is_none() || !single.pattern.is_mixed(),
            "rate_iops is of reads and writes together (fio's is of each)",
        );
        default(
            extra.access.think.is_zero(),
            "thinktime is between an access and the next of its own slot (fio's stalls the job)",
        );
        default(
            !extra.fdatasync,
            "fdatasync is fsync: a device has one kind of flush",
        );
        // A cell is named by its largest access.
        single.block = extra.access.largest(single.block);
        let mut plan = single.plan();
        if let Some(runtime) = extra.runtime {
            plan.set_measure(runtime);
        }
        plan.warmup = extra.ramp.unwrap_or(plan.warmup);
        plan.repeats = 1;
        plan.size = extra.size;
        plan.sync = extra.sync;
        plan.verify = extra.verify;
        plan.seed = extra.seed.unwrap_or(plan.seed);
        plan.rate = extra.rate.map(|rate| rate * f64::from(threads));
        plan.access = extra.access;
        assumed.push(ONE_REPEAT.to_owned());
        Translated { plan, assumed }
    }
}

#[derive(Default)]
struct Extra {
    pattern: bool,
    block: bool,
    depth: bool,
    mix: bool,
    runtime: Option<Duration>,
    ramp: Option<Duration>,
    size: Option<u64>,
    sync: bool,
    verify: bool,
    seed: Option<u64>,
    rate: Option<f64>,
    access: Access,
    fdatasync: bool,
    assumed: Vec<String>,
}

fn take(single: &mut Single, extra: &mut Extra, key: &str, value: &str) -> Result<(), LabError> {
    let wrong = |_| LabError::usage(format!("{key}={value}: no size that the lab can use"));
    match key {
        "rw" | "readwrite" => {
            single.pattern = if value == "readwrite" {
                Pattern::Rw
            } else {
                value.parse()?
            };
            extra.pattern = true;
        }
        "bs" | "blocksize" => {
            single.block = same(key, value).and_then(|value| parse_block(value).map_err(wrong))?;
            extra.block = true;
        }
        "rwmixread" | "rwmixwrite" => {
            let pct: u8 = number(key, value)?;
            let rest = 100u8.checked_sub(pct);
            let rest = rest.ok_or_else(|| LabError::usage(format!("{key}: more than 100 %")))?;
            single.read_pct = if key == "rwmixread" { pct } else { rest };
            extra.mix = true;
        }
        "iodepth" => {
            single.depth = number(key, value)?;
            extra.depth = true;
        }
        "numjobs" => single.threads = number(key, value)?,
        "filename" => single.targets.push(value.to_owned()),
        "runtime" => extra.runtime = Some(seconds(key, value)?),
        "ramp_time" => extra.ramp = Some(seconds(key, value)?),
        "size" => extra.size = Some(parse_bytes(value).map_err(wrong)?),
        "sync" => extra.sync = !matches!(value, "0" | "none"),
        "verify" => extra.verify = value != "0",
        "randseed" => extra.seed = Some(number(key, value)?),
        "rate_iops" => extra.rate = Some(number(key, value)?),
        "fsync" | "fdatasync" => {
            extra.access.flush_every = number(key, value)?;
            extra.fdatasync = key == "fdatasync";
        }
        "thinktime" => extra.access.think = microseconds(key, value)?,
        "random_distribution" => extra.access.distribution = distribution(value)?,
        "bssplit" => {
            let parts = value.split(':').map(|part| part.parse::<Share>());
            let sizes = parts.collect::<Result<Vec<_>, _>>();
            extra.access.sizes =
                sizes.map_err(|error| LabError::usage(format!("bssplit={value}: {error}")))?;
        }
        "buffered" if value == "0" => {}
        key if WITHOUT_EFFECT.contains(&key) => {
            if !matches!(key, "name" | "direct" | "group_reporting" | "time_based") {
                extra
                    .assumed
                    .push(format!("{key}={value} changes nothing here"));
            }
            if key == "direct" && value == "0" {
                extra
                    .assumed
                    .push("direct=0: the lab always goes past the page cache".to_owned());
            }
        }
        _ => {
            return Err(LabError::usage(format!(
                "fio's {key}={value} has no counterpart in the lab; leave it out"
            )));
        }
    }
    Ok(())
}

/// A time that is in microseconds if it says nothing else.
fn microseconds(key: &str, value: &str) -> Result<Duration, LabError> {
    match value.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(Duration::from_micros(number(key, value)?)),
        false => seconds(key, value),
    }
}

/// fio's words for a distribution: `zoned` with two zones is a hot part.
fn distribution(value: &str) -> Result<Distribution, LabError> {
    let unknown = |error: LabError| {
        LabError::usage(format!(
            "random_distribution={value}: {error}, or zoned:80/20:20/80"
        ))
    };
    let Some(zones) = value.strip_prefix("zoned:") else {
        return value.parse().map_err(unknown);
    };
    let zone = |text: &str| -> Option<(u8, u8)> {
        let (accesses, space) = text.split_once('/')?;
        Some((accesses.parse().ok()?, space.parse().ok()?))
    };
    let all: Option<Vec<(u8, u8)>> = zones.split(':').map(zone).collect();
    match all.as_deref() {
        Some(&[(accesses, space), (rest, others)])
            if u16::from(accesses) + u16::from(rest) == 100
                && u16::from(space) + u16::from(others) == 100 =>
        {
            Ok(Distribution::Hot { accesses, space })
        }
        _ => Err(LabError::usage(format!(
            "random_distribution={value}: two zones, whose shares add up to 100, are what the lab has"
        ))),
    }
}

/// fio allows a value each for reads, writes and trims; the lab has one.
fn same<'a>(key: &str, value: &'a str) -> Result<&'a str, LabError> {
    let mut parts = value.split(',').filter(|part| !part.is_empty());
    let first = parts.next().unwrap_or(value);
    if parts.any(|part| part != first) {
        return Err(LabError::usage(format!(
            "{key}={value}: the lab has one block size a cell"
        )));
    }
    Ok(first)
}
