//! Every repeat's latencies as a standard HdrHistogram log (nanoseconds), for tools that read
//! those.

use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::serialization::V2Serializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::LabError;
use crate::runner::RunOutcome;

/// `latency.hlog`. Tags are `c<configuration>.<cell>.r<repeat>.<read|write>`, counted from 1.
pub(super) fn log(outcome: &RunOutcome) -> Result<String, LabError> {
    let failed = |error: String| LabError::caused("latency.hlog", error);
    let mut text = Vec::new();
    let mut serializer = V2Serializer::new();
    let start = UNIX_EPOCH + Duration::from_secs(outcome.result.head.machine.started_unix_s);
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("latencies in nanoseconds")
        .with_start_time(start);
    let mut writer = builder
        .begin_log_with(&mut text, &mut serializer)
        .map_err(|error| failed(error.to_string()))?;
    let mut at = Duration::ZERO;
    for detail in &outcome.details {
        let measure = outcome.plan.measuring(&detail.cell).measure;
        let name = format!(
            "c{}.{}.r{}",
            detail.configuration + 1,
            detail.cell.slug(),
            detail.repeat + 1
        );
        for (kind, packed) in [("read", &detail.reads), ("write", &detail.writes)] {
            let histogram = packed.unpack()?;
            if histogram.is_empty() {
                continue;
            }
            let name = format!("{name}.{kind}");
            writer
                .write_histogram(&histogram, at, measure, Tag::new(&name))
                .map_err(|error| failed(format!("{error:?}")))?;
        }
        at += measure;
    }
    String::from_utf8(text).map_err(|error| failed(error.to_string()))
}
