use serde::Serialize;

use crate::LabError;
use crate::result::RunResult;
use crate::runner::RunOutcome;

/// A row of `result.csv`: a cell on a configuration. Latencies in microseconds.
#[derive(Serialize)]
struct CellRow<'a> {
    configuration: &'a str,
    role: &'a str,
    pattern: &'a str,
    read_pct: u8,
    block_bytes: u32,
    threads: u32,
    depth: u32,
    iops: f64,
    mib_s: f64,
    latency_mean_us: f64,
    latency_p50_us: f64,
    latency_p95_us: f64,
    latency_p99_us: f64,
    latency_p999_us: f64,
    latency_p9999_us: f64,
    latency_p99999_us: f64,
    latency_max_us: f64,
    cpu_pct: Option<f64>,
    iops_per_cpu_pct: Option<f64>,
    storage_cpu_pct: Option<f64>,
    iops_per_storage_cpu_pct: Option<f64>,
    pct_of_first: Option<f64>,
    published_pct_of_first: Option<f64>,
    iops_mean: f64,
    iops_spread: f64,
    repeats: usize,
    steady: bool,
    errors: u64,
    partial: bool,
}

/// `result.csv`.
pub(super) fn cells(result: &RunResult) -> Result<String, LabError> {
    let rows = result.configurations.iter().flat_map(|configuration| {
        configuration.cells.iter().map(|cell| CellRow {
            configuration: &configuration.name,
            role: &cell.role,
            pattern: cell.pattern.name(),
            read_pct: cell.read_pct,
            block_bytes: cell.block_bytes,
            threads: cell.threads,
            depth: cell.depth,
            iops: cell.iops,
            mib_s: cell.mib_s,
            latency_mean_us: cell.latency_us.mean,
            latency_p50_us: cell.latency_us.p50,
            latency_p95_us: cell.latency_us.p95,
            latency_p99_us: cell.latency_us.p99,
            latency_p999_us: cell.latency_us.p999,
            latency_p9999_us: cell.latency_us.p9999,
            latency_p99999_us: cell.latency_us.p99999,
            latency_max_us: cell.latency_us.max,
            cpu_pct: cell.cpu_pct,
            iops_per_cpu_pct: cell.iops_per_cpu_pct,
            storage_cpu_pct: cell.storage_cpu_pct,
            iops_per_storage_cpu_pct: cell.iops_per_storage_cpu_pct,
            pct_of_first: cell.versus_first.as_ref().map(|ratio| ratio.ratio * 100.0),
            published_pct_of_first: cell.published.as_ref().and_then(|p| p.pct_of_first),
            iops_mean: cell.mean,
            iops_spread: cell.spread,
            repeats: cell.repeats.len(),
            steady: cell.steady,
            errors: cell.errors,
            partial: cell.partial,
        })
    });
    to_csv(rows)
}

/// A row of `series.csv`: one interval of one repeat.
#[derive(Serialize)]
struct SeriesRow<'a> {
    configuration: &'a str,
    cell: String,
    repeat: u32,
    from_s: f64,
    read_iops: f64,
    write_iops: f64,
}

/// `series.csv`.
pub(super) fn series(outcome: &RunOutcome) -> Result<String, LabError> {
    let rows = outcome.details.iter().flat_map(|detail| {
        let seconds = detail.interval.as_secs_f64();
        let name = &outcome.plan.configurations[detail.configuration].name;
        detail
            .series
            .iter()
            .enumerate()
            .map(move |(index, sample)| SeriesRow {
                configuration: name,
                cell: detail.cell.slug(),
                repeat: detail.repeat + 1,
                from_s: index as f64 * seconds,
                read_iops: sample.reads as f64 / seconds,
                write_iops: sample.writes as f64 / seconds,
            })
    });
    to_csv(rows)
}

fn to_csv(rows: impl Iterator<Item = impl Serialize>) -> Result<String, LabError> {
    let failed = |error: String| LabError::caused("CSV", error);
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer
            .serialize(row)
            .map_err(|error| failed(error.to_string()))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| failed(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| failed(error.to_string()))
}
