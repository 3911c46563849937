//! The shape that DISKSPD prints with `-Rxml`: a `TimeSpan` for every cell of every
//! configuration, all repeats together.

use std::io;

use hdrhistogram::Histogram;
use quick_xml::Writer;
use quick_xml::events::BytesText;

use crate::LabError;
use crate::result::{CellResult, RunResult};
use crate::runner::{Merged, RunOutcome};

type Xml = Writer<Vec<u8>>;

/// A cell on a configuration, with all its repeats.
struct Span<'a> {
    target: &'a str,
    cell: &'a CellResult,
    merged: Merged,
    /// Bytes of an access, on average.
    bytes_each: f64,
}

/// `result.diskspd.xml`.
pub(super) fn xml(outcome: &RunOutcome) -> Result<String, LabError> {
    let failed = |error: String| LabError::caused("result.diskspd.xml", error);
    let mut spans = Vec::new();
    for (index, configuration) in outcome.result.configurations.iter().enumerate() {
        for cell in &configuration.cells {
            if let Some(merged) = outcome.merged(index, &cell.spec())? {
                spans.push(Span {
                    target: &configuration.name,
                    cell,
                    merged,
                    bytes_each: outcome.plan.access.mean_bytes(cell.block_bytes),
                });
            }
        }
    }
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
    document(&mut xml, outcome, &spans).map_err(|error| failed(error.to_string()))?;
    let mut bytes = xml.into_inner();
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(|error| failed(error.to_string()))
}

fn document(xml: &mut Xml, outcome: &RunOutcome, spans: &[Span<'_>]) -> io::Result<()> {
    within(xml, "Results", |xml| {
        system(xml, &outcome.result)?;
        within(xml, "Profile", |xml| {
            text(xml, "Progress", 0)?;
            text(xml, "ResultFormat", "xml")?;
            text(xml, "Verbose", false)?;
            within(xml, "TimeSpans", |xml| {
                spans
                    .iter()
                    .try_for_each(|span| profile(xml, outcome, span))
            })
        })?;
        spans
            .iter()
            .try_for_each(|span| time_span(xml, &outcome.result, span))
    })
}

fn system(xml: &mut Xml, result: &RunResult) -> io::Result<()> {
    within(xml, "System", |xml| {
        text(xml, "ComputerName", &result.head.machine.cpu_model)?;
        within(xml, "Tool", |xml| {
            text(
                xml,
                "Version",
                format!("ashlar-lab {}", result.head.machine.lab_version),
            )
        })?;
        text(xml, "RunTime", result.head.machine.started_unix_s)
    })
}

fn profile(xml: &mut Xml, outcome: &RunOutcome, span: &Span<'_>) -> io::Result<()> {
    let (plan, cell) = (&outcome.plan, span.cell);
    within(xml, "TimeSpan", |xml| {
        text(xml, "CompletionRoutines", false)?;
        text(xml, "MeasureLatency", true)?;
        text(xml, "CalculateIopsStdDev", false)?;
        text(xml, "Duration", span.merged.measured.as_secs())?;
        text(xml, "Warmup", plan.measuring(&cell.spec()).warmup.as_secs())?;
        text(xml, "Cooldown", 0)?;
        text(xml, "ThreadCount", 0)?;
        text(xml, "RandSeed", plan.seed)?;
        within(xml, "Targets", |xml| {
            within(xml, "Target", |xml| {
                text(xml, "Path", span.target)?;
                text(xml, "BlockSize", cell.block_bytes)?;
                text(xml, "BaseFileOffset", 0)?;
                text(xml, "SequentialScan", false)?;
                text(xml, "RandomAccess", false)?;
                text(xml, "TemporaryFile", false)?;
                text(xml, "UseLargePages", false)?;
                text(xml, "DisableOSCache", true)?;
                if plan.sync || cell.sync {
                    text(xml, "WriteThrough", true)?;
                }
                text(xml, "ParallelAsyncIO", false)?;
                let order = if cell.pattern.is_random() {
                    "Random"
                } else {
                    "StrideSize"
                };
                text(xml, order, cell.block_bytes)?;
                text(xml, "MaxFileSize", outcome.result.method.size_bytes)?;
                text(xml, "RequestCount", cell.depth)?;
                text(xml, "WriteRatio", 100 - cell.read_pct)?;
                text(xml, "ThreadsPerFile", cell.threads)
            })
        })
    })
}

fn time_span(xml: &mut Xml, result: &RunResult, span: &Span<'_>) -> io::Result<()> {
    within(xml, "TimeSpan", |xml| {
        text(
            xml,
            "TestTimeSeconds",
            format!("{:.2}", span.merged.measured.as_secs_f64()),
        )?;
        text(xml, "ThreadCount", span.cell.threads)?;
        text(xml, "ProcCount", result.head.machine.cores)?;
        within(xml, "CpuUtilization", |xml| {
            within(xml, "Average", |xml| {
                let busy = span.cell.cpu_pct.unwrap_or(0.0);
                text(xml, "UsagePercent", format!("{busy:.2}"))?;
                text(xml, "IdlePercent", format!("{:.2}", 100.0 - busy))
            })
        })?;
        latency(xml, &span.merged)?;
        // The lab merges its threads' figures; they stand here as one.
        within(xml, "Thread", |xml| {
            text(xml, "Id", 0)?;
            within(xml, "Target", |xml| target(xml, result, span))
        })
    })
}

fn target(xml: &mut Xml, result: &RunResult, span: &Span<'_>) -> io::Result<()> {
    let (reads, writes) = (span.merged.reads.len(), span.merged.writes.len());
    let bytes = |count: u64| (count as f64 * span.bytes_each) as u64;
    text(xml, "Path", span.target)?;
    text(xml, "BytesCount", bytes(reads + writes))?;
    text(xml, "FileSize", result.method.size_bytes)?;
    text(xml, "IOCount", reads + writes)?;
    text(xml, "ReadBytes", bytes(reads))?;
    text(xml, "ReadCount", reads)?;
    text(xml, "WriteBytes", bytes(writes))?;
    text(xml, "WriteCount", writes)?;
    for (of, ns) in directions(&span.merged) {
        if !ns.is_empty() {
            text(
                xml,
                &format!("Average{of}LatencyMilliseconds"),
                ms(ns.mean()),
            )?;
            text(xml, &format!("{of}LatencyStdev"), ms(ns.stdev()))?;
        }
    }
    Ok(())
}

fn directions(merged: &Merged) -> [(&'static str, Histogram<u64>); 3] {
    [
        ("Read", merged.reads.clone()),
        ("Write", merged.writes.clone()),
        ("", merged.all()),
    ]
}

fn latency(xml: &mut Xml, merged: &Merged) -> io::Result<()> {
    let all = directions(merged).map(|(of, ns)| (if of.is_empty() { "Total" } else { of }, ns));
    within(xml, "Latency", |xml| {
        for (of, ns) in all.iter().filter(|(_, ns)| !ns.is_empty()) {
            text(xml, &format!("Average{of}Milliseconds"), ms(ns.mean()))?;
            let of = if *of == "Total" { "" } else { of };
            text(xml, &format!("{of}LatencyStdev"), ms(ns.stdev()))?;
        }
        let whole = (0..=99).map(|p| (format!("{p}"), f64::from(p)));
        let nines = (1..=7).map(|n: usize| {
            let p = 100.0 - 10f64.powi(-(n as i32));
            (format!("{p:.n$}"), p)
        });
        for (name, percentile) in whole.chain(nines).chain([("100".to_owned(), 100.0)]) {
            within(xml, "Bucket", |xml| {
                text(xml, "Percentile", &name)?;
                for (of, ns) in all.iter().filter(|(_, ns)| !ns.is_empty()) {
                    let at = ns.value_at_quantile(percentile / 100.0) as f64;
                    text(xml, &format!("{of}Milliseconds"), ms(at))?;
                }
                Ok(())
            })?;
        }
        Ok(())
    })
}

fn ms(ns: f64) -> String {
    format!("{:.3}", ns / 1e6)
}

fn within(
    xml: &mut Xml,
    name: &str,
    inner: impl FnOnce(&mut Xml) -> io::Result<()>,
) -> io::Result<()> {
    xml.create_element(name)
        .write_inner_content(inner)
        .map(|_| ())
}

fn text(xml: &mut Xml, name: &str, value: impl ToString) -> io::Result<()> {
    let value = value.to_string();
    xml.create_element(name)
        .write_text_content(BytesText::new(&value))
        .map(|_| ())
}
