//! `ashlar lab trace` and `ashlar lab crash-image`.

use std::path::PathBuf;

use ashlar_device::parse_size;
use ashlar_device::record::{PowerCut, Trace, TraceError, write_image};
use serde_json::json;

use crate::args::{CrashImageArguments, TraceArguments};
use crate::exit::Failure;
use crate::output::print;

/// What went wrong with a trace, as an exit code.
pub(super) fn failure(error: TraceError) -> Failure {
    match error.is_environment() {
        true => Failure::environment(error.to_string()),
        false => Failure::usage(error.to_string()),
    }
}

pub(super) fn trace(arguments: &TraceArguments) -> Result<(), Failure> {
    let trace = Trace::open(&arguments.trace).map_err(failure)?;
    let sum = trace.summary();
    let seconds = sum.nanoseconds as f64 / 1e9;
    if arguments.json {
        let stamps: Vec<u64> = trace.entries().map(|entry| entry.at).collect();
        return shown(&json!({
            "device_bytes": trace.device_bytes(),
            "first": stamps.first(),
            "last": stamps.last(),
            "seconds": seconds,
            "openings": sum.openings,
            "reads": trace.header().has_reads.then_some(sum.reads),
            "read_bytes": trace.header().has_reads.then_some(sum.read_bytes),
            "writes": sum.writes,
            "write_bytes": sum.write_bytes,
            "durable_writes": sum.durable_writes,
            "zeroings": sum.zeroings,
            "deallocations": sum.deallocations,
            "flushes": sum.flushes,
            "failed": sum.failed,
            "unfinished": sum.unfinished,
            "longest_run": sum.longest_run,
            "longest_run_bytes": sum.longest_run_bytes,
            "cut_short": sum.cut_short,
        }));
    }
    let mut text = format!(
        "{} bytes, recorded for {seconds:.3} s\n\
         writes          {} ({} bytes), {} of them durable by themselves\n\
         zeroings        {}\n\
         deallocations   {}\n\
         flushes         {}\n\
         failed          {}\n\
         unfinished      {}\n\
         longest run     {} changes, {} bytes without a flush\n",
        trace.device_bytes(),
        sum.writes,
        sum.write_bytes,
        sum.durable_writes,
        sum.zeroings,
        sum.deallocations,
        sum.flushes,
        sum.failed,
        sum.unfinished,
        sum.longest_run,
        sum.longest_run_bytes,
    );
    if trace.header().has_reads {
        let (reads, bytes) = (sum.reads, sum.read_bytes);
        text.push_str(&format!("reads           {reads} ({bytes} bytes)\n"));
    }
    if sum.openings > 1 {
        text.push_str(&format!("openings        {}\n", sum.openings));
    }
    if sum.cut_short {
        text.push_str("it ends within an entry: the process was killed\n");
    }
    print(&text)
}

fn shown(value: &serde_json::Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::environment(error.to_string()))?;
    print(&format!("{text}\n"))
}

pub(super) fn image(arguments: &CrashImageArguments) -> Result<(), Failure> {
    let count = arguments.traces.len();
    if arguments.outs.len() != count {
        return Err(Failure::usage("give --out once for each --trace"));
    }
    if !arguments.bases.is_empty() && arguments.bases.len() != count {
        return Err(Failure::usage(
            "give --base once for each --trace, or not at all",
        ));
    }
    let tear = u32::try_from(parse_size(&arguments.tear)?).unwrap_or(u32::MAX);
    let traces: Result<Vec<Trace>, _> = arguments.traces.iter().map(|p| Trace::open(p)).collect();
    let traces = traces.map_err(failure)?;
    let cut = PowerCut {
        at: moment(arguments, &traces)?,
        seed: arguments.seed,
        tear,
    };
    let mut made = Vec::new();
    for (index, (trace, out)) in traces.iter().zip(&arguments.outs).enumerate() {
        let base = arguments.bases.get(index).map(PathBuf::as_path);
        let image = write_image(trace, index as u64, &cut, base, out).map_err(failure)?;
        made.push((out, image));
    }
    if arguments.json {
        let told = made.iter().map(|(out, image)| {
            json!({"out": out, "settled": image.settled, "there": image.there,
                   "missing": image.missing, "torn": image.torn})
        });
        let images: Vec<_> = told.collect();
        return shown(&json!({"at": cut.at, "seed": cut.seed, "tear": tear, "images": images}));
    }
    let mut text = format!("power cut at {} (seed {})\n", cut.at, cut.seed);
    for (out, image) in made {
        text.push_str(&format!(
            "{}: {} changes settled; of the rest {} there, {} missing, {} torn\n",
            out.display(),
            image.settled,
            image.there,
            image.missing,
            image.torn
        ));
    }
    print(&text)
}

fn moment(arguments: &CrashImageArguments, traces: &[Trace]) -> Result<u64, Failure> {
    match arguments.at.as_deref() {
        Some("end") => Ok(u64::MAX),
        Some(text) => text
            .parse()
            .map_err(|_| Failure::usage(format!("--at {text}: is no stamp and not `end`"))),
        None => PowerCut::moment(traces, &(0..=u64::MAX), arguments.seed).map_err(failure),
    }
}
