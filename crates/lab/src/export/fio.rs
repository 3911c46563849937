//! The shape that `fio --output-format=json` has: a job for every cell of every configuration,
//! all repeats together.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::runner::{Merged, RunOutcome};
use crate::{CellSpec, LabError};

/// fio's default percentile list.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// `result.fio.json`.
pub(super) fn json(outcome: &RunOutcome) -> Result<String, LabError> {
    let mut jobs = Vec::new();
    for (index, configuration) in outcome.result.configurations.iter().enumerate() {
        for cell in &configuration.cells {
            let spec = cell.spec();
            if let Some(merged) = outcome.merged(index, &spec)? {
                jobs.push(job(outcome, &configuration.name, &spec, &merged));
            }
        }
    }
    let started = outcome.result.head.machine.started_unix_s;
    let whole = json!({
        "fio version": format!("ashlar-lab-{}", outcome.result.head.machine.lab_version),
        "timestamp": started,
        "timestamp_ms": started * 1000,
        "jobs": jobs,
        "disk_util": [],
    });
    let text = serde_json::to_string_pretty(&whole);
    text.map(|text| text + "\n")
        .map_err(|error| LabError::caused("result.fio.json", error))
}

fn job(outcome: &RunOutcome, name: &str, cell: &CellSpec, merged: &Merged) -> Value {
    let plan = &outcome.plan;
    let measuring = plan.measuring(cell);
    let mut options = json!({
        "name": cell.slug(),
        "filename": name,
        "rw": cell.pattern.name(),
        "bs": cell.block_bytes.to_string(),
        "iodepth": cell.depth.to_string(),
        "numjobs": cell.threads.to_string(),
        "runtime": measuring.measure.as_secs_f64().to_string(),
        "ramp_time": measuring.warmup.as_secs_f64().to_string(),
        "loops": measuring.repeats.to_string(),
        "direct": "1",
    });
    let mut option = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            options[key] = Value::String(value);
        }
    };
    option(
        "rwmixread",
        cell.pattern.is_mixed().then(|| cell.read_pct.to_string()),
    );
    option("size", plan.size.map(|size| size.to_string()));
    option("sync", (plan.sync || cell.sync).then(|| "1".to_owned()));
    option(
        "rate_iops",
        measuring
            .rate
            .map(|rate| (rate / f64::from(cell.threads)).to_string()),
    );
    let bytes_each = plan.access.mean_bytes(cell.block_bytes);
    let runtime_ms = merged.measured.as_millis() as u64;
    let found = outcome
        .result
        .configurations
        .iter()
        .find(|c| c.name == name);
    let cell_result = found.and_then(|c| c.cells.iter().find(|r| r.spec() == *cell));
    json!({
        "jobname": format!("{name}/{}", cell.slug()),
        "groupid": 0,
        "error": i32::from(cell_result.is_some_and(|c| c.errors > 0)) * 5,
        "elapsed": merged.measured.as_secs().max(1),
        "job options": options,
        "read": direction(&merged.reads, bytes_each, runtime_ms),
        "write": direction(&merged.writes, bytes_each, runtime_ms),
        "trim": direction(&Histogram::new(3).unwrap_or_else(|_| merged.reads.clone()), bytes_each, 0),
        "job_runtime": runtime_ms,
        "latency_depth": cell.depth,
    })
}

fn direction(ns: &Histogram<u64>, bytes_each: f64, runtime_ms: u64) -> Value {
    let ios = ns.len();
    let bytes = (ios as f64 * bytes_each) as u64;
    let a_second = |amount: u64| {
        if runtime_ms == 0 {
            0.0
        } else {
            amount as f64 * 1000.0 / runtime_ms as f64
        }
    };
    json!({
        "io_bytes": bytes,
        "io_kbytes": bytes >> 10,
        "bw_bytes": a_second(bytes) as u64,
        "bw": (a_second(bytes) / 1024.0) as u64,
        "iops": a_second(ios),
        "runtime": if ios > 0 { runtime_ms } else { 0 },
        "total_ios": ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": { "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 },
        "clat_ns": latency(ns, true),
        "lat_ns": latency(ns, false),
    })
}

fn latency(ns: &Histogram<u64>, percentiles: bool) -> Value {
    let empty = ns.is_empty();
    let mut value = json!({
        "min": if empty { 0 } else { ns.min() },
        "max": ns.max(),
        "mean": ns.mean(),
        "stddev": ns.stdev(),
        "N": ns.len(),
    });
    if percentiles && !empty {
        let list = PERCENTILES.iter().map(|&p| {
            (
                format!("{p:.6}"),
                Value::from(ns.value_at_quantile(p / 100.0)),
            )
        });
        value["percentile"] = Value::Object(list.collect());
    }
    value
}
