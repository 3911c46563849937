//! What one worker, and all workers of a repeat together, saw.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

use serde::{Deserialize, Serialize};

use crate::LabError;

/// What a histogram in HDR's V2 encoding begins with, and its bytes before its counts: that, the length of these, an
/// offset, figures, bounds and a ratio.
const COOKIE: [u8; 4] = 0x1c84_9313_u32.to_be_bytes();
const HEAD: usize = 40;
/// Latencies are kept from 1 ns to this many (137 s); longer ones count as this.
const LONGEST_NS: u64 = 1 << 37;

/// An HDR histogram of nanoseconds with three significant figures.
pub(crate) fn latency_histogram() -> Result<Histogram<u64>, LabError> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3)
        .map_err(|error| LabError::caused("latency histogram", error))
}

/// Counts of one interval of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

/// How throughput is cut into intervals of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeriesShape {
    pub(crate) interval: Duration,
    pub(crate) samples: usize,
}

impl SeriesShape {
    /// Twenty intervals, or as many of one second as fit when they would be longer than that.
    pub(crate) fn of(measure: Duration) -> Self {
        let seconds = measure.as_secs_f64();
        let samples = if seconds <= 20.0 {
            20
        } else {
            seconds.floor() as usize
        };
        Self {
            interval: measure / samples as u32,
            samples,
        }
    }
}

/// What was measured: histograms, series, and everything that went wrong.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) reads: Histogram<u64>,
    pub(crate) writes: Histogram<u64>,
    /// What comes between accesses: flushes, and trims.
    pub(crate) flushes: Histogram<u64>,
    pub(crate) trims: Histogram<u64>,
    /// Bytes read and written.
    pub(crate) bytes: u64,
    pub(crate) series: Vec<Sample>,
    /// Accesses that failed, at any time.
    pub(crate) errors: u64,
    /// The first few reasons.
    pub(crate) examples: Vec<String>,
    /// Open loop: the most arrivals that waited at once, on any worker.
    pub(crate) backlog_max: u64,
    /// Open loop: arrivals that were given up because too many waited, and those that still
    /// waited at the end.
    pub(crate) missed: u64,
    /// Workers that did not finish.
    pub(crate) lost_workers: u32,
    /// Share of the machine's processor time in use while measuring.
    pub(crate) cpu_pct: Option<f64>,
    /// Processor seconds that the machine had in that time, used or not.
    pub(crate) machine_cpu_s: Option<f64>,
    /// Processor seconds that this machine's load threads used in it.
    pub(crate) load_cpu_s: f64,
    /// The same of processes that are neither load nor storage.
    pub(crate) others_cpu_s: Option<f64>,
}

const MOST_EXAMPLES: usize = 5;

impl Measured {
    pub(crate) fn new(shape: SeriesShape) -> Result<Self, LabError> {
        Ok(Self {
            reads: latency_histogram()?,
            writes: latency_histogram()?,
            flushes: latency_histogram()?,
            trims: latency_histogram()?,
            bytes: 0,
            series: vec![Sample::default(); shape.samples],
            errors: 0,
            examples: Vec::new(),
            backlog_max: 0,
            missed: 0,
            lost_workers: 0,
            cpu_pct: None,
            machine_cpu_s: None,
            load_cpu_s: 0.0,
            others_cpu_s: None,
        })
    }

    pub(crate) fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < MOST_EXAMPLES {
            self.examples.push(text());
        }
    }

    /// Adds another worker's figures.
    pub(crate) fn merge(&mut self, other: &Measured) -> Result<(), LabError> {
        let add = |into: &mut Histogram<u64>, from: &Histogram<u64>| {
            into.add(from)
                .map_err(|error| LabError::caused("merging histograms", error))
        };
        add(&mut self.reads, &other.reads)?;
        add(&mut self.writes, &other.writes)?;
        add(&mut self.flushes, &other.flushes)?;
        add(&mut self.trims, &other.trims)?;
        // Others may be other processes, which can send anything.
        self.bytes = self.bytes.saturating_add(other.bytes);
        for (into, from) in self.series.iter_mut().zip(&other.series) {
            into.reads = into.reads.saturating_add(from.reads);
            into.writes = into.writes.saturating_add(from.writes);
        }
        self.errors = self.errors.saturating_add(other.errors);
        for text in &other.examples {
            self.example(|| text.clone());
        }
        self.backlog_max = self.backlog_max.max(other.backlog_max);
        self.missed = self.missed.saturating_add(other.missed);
        self.lost_workers = self.lost_workers.saturating_add(other.lost_workers);
        self.cpu_pct = self.cpu_pct.or(other.cpu_pct);
        self.machine_cpu_s = self.machine_cpu_s.or(other.machine_cpu_s);
        self.load_cpu_s += other.load_cpu_s;
        self.others_cpu_s = self.others_cpu_s.or(other.others_cpu_s);
        Ok(())
    }

    /// Accesses completed while measuring. Latencies may be of more: see [`crate::workload`]'s open loop.
    pub(crate) fn count(&self) -> u64 {
        self.sum(|sample| sample.reads.saturating_add(sample.writes))
    }

    /// Of these, what is asked of each interval.
    pub(crate) fn sum(&self, of: impl Fn(&Sample) -> u64) -> u64 {
        self.series.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Reads and writes in one histogram.
    pub(crate) fn all(&self) -> Histogram<u64> {
        let mut all = self.reads.clone();
        // Same bounds, so adding cannot fail.
        let _ = all.add(&self.writes);
        all
    }

    /// The load threads' share of the machine's processor time, 0 to 100.
    pub(crate) fn load_cpu_pct(&self) -> Option<f64> {
        let machine = self.machine_cpu_s.filter(|seconds| *seconds > 0.0)?;
        Some((100.0 * self.load_cpu_s / machine).min(100.0))
    }

    /// The same of processes that are neither load nor storage.
    pub(crate) fn others_cpu_pct(&self) -> Option<f64> {
        let machine = self.machine_cpu_s.filter(|seconds| *seconds > 0.0)?;
        Some((100.0 * self.others_cpu_s? / machine).min(100.0))
    }

    /// Accesses a second in each interval.
    pub(crate) fn rates(&self, interval: Duration) -> Vec<f64> {
        let seconds = interval.as_secs_f64();
        self.series
            .iter()
            .map(|s| s.reads.saturating_add(s.writes) as f64 / seconds)
            .collect()
    }
}

/// A histogram in HDR's V2 encoding: a few KiB instead of a few hundred. As text it is that in base 64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Packed(Vec<u8>);

impl From<Packed> for String {
    fn from(packed: Packed) -> Self {
        BASE64_STANDARD.encode(packed.0)
    }
}

impl TryFrom<String> for Packed {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        BASE64_STANDARD.decode(text).map(Self)
    }
}

impl Packed {
    /// Packs one.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn new(histogram: &Histogram<u64>) -> Result<Self, LabError> {
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(histogram, &mut bytes)
            .map_err(|error| LabError::caused("packing a histogram", error))?;
        Ok(Self(bytes))
    }

    /// The histogram again.
    ///
    /// # Errors
    /// What is damaged: taken for empty, accesses would vanish without a word.
    pub fn unpack(&self) -> Result<Histogram<u64>, LabError> {
        if !self.is_sound() {
            return Err(LabError::environment("a damaged histogram"));
        }
        Deserializer::new()
            .deserialize(&mut self.0.as_slice())
            .map_err(|error| LabError::caused("a damaged histogram", format!("{error:?}")))
    }

    /// Whether its bytes are as many as they say, which are made room for before they are read; it has no more figures
    /// than ours; and no count is one of nine bytes, among which is one that has no negative.
    fn is_sound(&self) -> bool {
        let Some((head, counts)) = self.0.split_at_checked(HEAD) else {
            return false;
        };
        let length = u32::try_from(counts.len()).map(u32::to_be_bytes);
        let figures = [1, 2, 3].map(u32::to_be_bytes);
        length.is_ok_and(|length| head[..8] == [COOKIE, length].concat())
            && figures.iter().any(|of| head[12..16] == *of)
            && !counts
                .windows(8)
                .any(|of| of.iter().all(|byte| byte >> 7 == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_says_may_be_any_number() {
        let shape = SeriesShape::of(Duration::from_secs(2));
        let mut all = Measured::new(shape).expect("fits");
        for one in [&mut all.reads, &mut all.writes] {
            one.record_n(1000, u64::MAX).expect("within bounds");
        }
        all.series[0] = Sample {
            reads: u64::MAX,
            writes: u64::MAX,
        };
        (all.bytes, all.errors, all.missed) = (u64::MAX, u64::MAX, u64::MAX);
        all.lost_workers = u32::MAX;
        all.merge(&all.clone()).expect("same bounds");
        assert_eq!(
            (all.bytes, all.errors, all.missed, all.lost_workers),
            (u64::MAX, u64::MAX, u64::MAX, u32::MAX)
        );
        assert_eq!(all.count(), u64::MAX);
        assert!(all.rates(shape.interval)[0] > 1e19);
    }

    #[test]
    fn workers_merge() {
        let shape = SeriesShape::of(Duration::from_secs(2));
        assert_eq!(
            (shape.samples, shape.interval),
            (20, Duration::from_millis(100))
        );
        let mut a = Measured::new(shape).expect("fits");
        let mut b = Measured::new(shape).expect("fits");
        a.reads.saturating_record(1000);
        b.reads.saturating_record(3000);
        b.writes.saturating_record(u64::MAX);
        b.series[1] = Sample {
            reads: 1,
            writes: 2,
        };
        b.errors = 2;
        b.backlog_max = 9;
        a.merge(&b).expect("same bounds");
        assert_eq!(
            (a.count(), a.all().len(), a.errors, a.backlog_max),
            (3, 3, 2, 9)
        );
        assert_eq!(a.rates(shape.interval)[1], 30.0);
        assert!((a.reads.mean() - 2000.0).abs() < 5.0);
        assert_eq!(SeriesShape::of(Duration::from_secs(60)).samples, 60);
        let packed = Packed::new(&a.reads).expect("packs");
        assert_eq!(packed.unpack().expect("whole"), a.reads);
        let text = serde_json::to_string(&packed).expect("text");
        assert_eq!(
            serde_json::from_str::<Packed>(&text).ok(),
            Some(packed.clone())
        );
        assert!(packed.0.len() < 200, "{}", packed.0.len());
        let cut = Packed(packed.0[..packed.0.len() / 2].to_vec());
        let error = cut.unpack().expect_err("half of it is missing").to_string();
        assert!(error.contains("damaged histogram"), "{error}");
        // More than it has, more figures, and a count without a negative.
        let mut wrong = [(); 3].map(|()| packed.clone());
        wrong[0].0[4..8].fill(0xff);
        wrong[1].0[15] = 5;
        wrong[2].0.truncate(HEAD);
        wrong[2].0[7] = 9;
        wrong[2].0.extend([0xff; 9]);
        for one in wrong {
            assert!(!one.is_sound() && one.unpack().is_err());
        }
    }
}
