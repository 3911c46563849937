//! Latencies of a database's transactions as a standard HdrHistogram log, step by step as they are measured: a run that
//! is killed has those of its steps, and one that goes on adds to them.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2Serializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::LabError;

const NAME: &str = "latency.hlog";

/// `latency.hlog` of a run.
#[derive(Clone, Debug, Default)]
pub struct LatencyLog(Option<PathBuf>);

/// When something was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// When it began, in seconds of Unix time.
    pub began_unix_s: f64,
    /// Seconds.
    pub seconds: f64,
}

/// Histograms of nanoseconds, by what they are of.
pub type Latencies = Vec<(String, Histogram<u64>)>;

impl LatencyLog {
    /// One that keeps nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// That of a run's directory. What is there of another run goes, unless this one `goes_on`.
    ///
    /// # Errors
    /// What is there cannot be removed.
    pub fn of(dir: &Path, goes_on: bool) -> Result<Self, LabError> {
        let path = dir.join(NAME);
        if !goes_on && path.exists() {
            std::fs::remove_file(&path).map_err(|error| LabError::caused(path.display(), error))?;
        }
        Ok(Self(Some(path)))
    }

    /// Adds what was measured; tags are `<of>.<what>`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, of: &str, at: Interval, all: &Latencies) -> Result<(), LabError> {
        let Some(path) = &self.0 else {
            return Ok(());
        };
        let refuse = |error: std::io::Error| LabError::caused(path.display(), error);
        let file = OpenOptions::new().append(true).create(true).open(path);
        let mut file = file.map_err(refuse)?;
        let is_new = file.metadata().map_err(refuse)?.len() == 0;
        let text = lines(of, at, (all, is_new))?;
        file.write_all(&text).map_err(refuse)
    }
}

fn lines(of: &str, at: Interval, (all, is_new): (&Latencies, bool)) -> Result<Vec<u8>, LabError> {
    let failed = |error: String| LabError::caused(NAME, error);
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let (mut text, mut serializer) = (Vec::new(), V2Serializer::new());
    let mut builder = IntervalLogWriterBuilder::new();
    if is_new {
        builder.add_comment("latencies in nanoseconds");
    }
    let writer = builder.begin_log_with(&mut text, &mut serializer);
    let mut writer = writer.map_err(|error| failed(error.to_string()))?;
    for (what, histogram) in all.iter().filter(|(_, histogram)| !histogram.is_empty()) {
        let name = format!("{of}.{what}");
        writer
            .write_histogram(
                histogram,
                seconds(at.began_unix_s),
                seconds(at.seconds),
                Tag::new(&name),
            )
            .map_err(|error| failed(format!("{error:?}")))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    fn tags(dir: &Path) -> Vec<String> {
        let text = std::fs::read(dir.join(NAME)).expect("there");
        let entries = IntervalLogIterator::new(&text).map(|entry| entry.expect("an entry"));
        let tag = |entry: LogEntry<'_>| match entry {
            LogEntry::Interval(of) => Some(of.tag().expect("a tag").as_str().to_owned()),
            _ => None,
        };
        entries.filter_map(tag).collect()
    }

    #[test]
    fn steps_are_added_and_another_run_s_go() {
        let dir = tempfile::tempdir().expect("folder");
        let mut histogram = Histogram::new(3).expect("fits");
        let empty = ("payment".to_owned(), histogram.clone());
        histogram.record(1_500_000).expect("fits");
        let all = vec![("new_order".to_owned(), histogram), empty];
        let at = Interval {
            began_unix_s: 1.7e9,
            seconds: 60.0,
        };
        let log = LatencyLog::of(dir.path(), false).expect("begun");
        log.add("8u.r1", at, &all).expect("added");
        let log = LatencyLog::of(dir.path(), true).expect("goes on");
        log.add("8u.r2", at, &all).expect("added");
        assert_eq!(tags(dir.path()), ["8u.r1.new_order", "8u.r2.new_order"]);
        let log = LatencyLog::of(dir.path(), false).expect("another");
        log.add("1u.r1", at, &all).expect("added");
        assert_eq!(tags(dir.path()), ["1u.r1.new_order"]);
        LatencyLog::none().add("x", at, &all).expect("kept nowhere");
    }
}
