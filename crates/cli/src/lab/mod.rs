//! `ashlar lab`.

mod agent;
mod cluster;
mod crash;
mod databases;
mod ending;
mod faults;
mod ha;
mod interrupt;
mod oltp;
mod runs;
mod server;
mod torn;
mod versus;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ashlar_device::parse_size;
use ashlar_lab::result::RunResult;
use ashlar_lab::{
    Access, Configuration, LabError, Matrix, Pattern, Procedure, ResultFile, SHIPPED, Share,
    SweepPlan, find_text, render_index, vocabulary,
};

use vocabulary::Translated;

use crate::args::{CompareArguments, LabCommand, SweepArguments};
use crate::exit::Failure;
use crate::output::print;

pub(crate) fn run(command: &LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::Sweep(arguments) => runs::sweep(&plan(arguments)?, arguments),
        LabCommand::Agent(arguments) => agent::run(arguments),
        LabCommand::Run(arguments) => runs::run(arguments),
        LabCommand::Oltp(arguments) => oltp::run(arguments),
        LabCommand::Scan(arguments) => oltp::read_all(arguments),
        LabCommand::Failover(arguments) => databases::failover(arguments),
        LabCommand::Server(arguments) => server::run(arguments),
        LabCommand::Cluster(arguments) => cluster::run(arguments),
        LabCommand::Ha(arguments) => ha::run(arguments),
        LabCommand::Trace(arguments) => crash::trace(arguments),
        LabCommand::CrashImage(arguments) => crash::image(arguments),
        LabCommand::TornPages(arguments) => torn::run(arguments),
        LabCommand::Compare(arguments) => compare(arguments),
        LabCommand::Report { dirs, out, into } => {
            let to = match into {
                Some(run) => report_into(dirs, run)?,
                None => report(dirs, out.as_deref())?,
            };
            print(&format!("{}\n", to.display()))
        }
        LabCommand::Show { name } => print(&text_of(name)?),
    }
}

/// Whether all of them are directories of runs.
fn are_of_runs(dirs: &[&PathBuf]) -> Result<(), Failure> {
    match dirs.iter().find(|dir| !dir.join("result.json").exists()) {
        Some(dir) => Err(Failure::environment(format!(
            "{}: is no directory of a run: there is no result.json in it",
            dir.display()
        ))),
        None => Ok(()),
    }
}

/// Compares two runs of one kind, and fails if the second is worse than it may be.
fn compare(arguments: &CompareArguments) -> Result<(), Failure> {
    let CompareArguments { first, second, .. } = arguments;
    if let Some(share) = arguments.fail_below
        && !(share > 0.0 && share.is_finite())
    {
        return Err(Failure::usage(format!(
            "--fail-below {share}: must be above 0"
        )));
    }
    are_of_runs(&[first, second])?;
    let found = oltp::compared(first, second)?;
    match arguments.json {
        true => {
            let json = serde_json::to_string_pretty(&found).map_err(Failure::environment)?;
            print(&(json + "\n"))?;
        }
        false => print(&format!("{found}\n"))?,
    }
    let below = arguments.fail_below.map(|share| found.below(share));
    match below.filter(|below| !below.is_empty()) {
        Some(below) => Err(Failure::check(below.join("; "))),
        None => Ok(()),
    }
}

/// Makes two OLTP runs a part of a run of devices; where its report is.
fn report_into(dirs: &[PathBuf], run: &PathBuf) -> Result<PathBuf, Failure> {
    are_of_runs(&dirs.iter().chain([run]).collect::<Vec<_>>())?;
    match dirs {
        [first, second] if oltp::are_runs(first, second) && RunResult::is_in(run) => {
            let mut result = RunResult::load(run)?;
            let names = ashlar_oltp::names(first, second);
            result.database = Some(ashlar_oltp::beside(first, second, names)?);
            result.write(run)?;
            result.write_report(run)?;
            Ok(report_path(run))
        }
        _ => {
            let mut given = Vec::new();
            for dir in dirs {
                given.push(oltp::kind(dir)?);
            }
            Err(Failure::usage(format!(
                "--into {}: takes two runs of `lab oltp`, and the directory of a sweep or scenario of devices; given: \
                 {}, into {}",
                run.display(),
                given.join(", "),
                oltp::kind(run)?
            )))
        }
    }
}

/// Whether folders of a directory are runs.
fn has_runs(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .any(|path| path.join("result.json").exists())
}

/// Renders a report; where it is.
fn report(dirs: &[PathBuf], out: Option<&Path>) -> Result<PathBuf, Failure> {
    if let ([dir], None) = (dirs, out)
        && !dir.join("result.json").exists()
        && has_runs(dir)
    {
        render_index(dir)?;
        return Ok(dir.join("index.html"));
    }
    are_of_runs(&dirs.iter().collect::<Vec<_>>())?;
    match (dirs, out) {
        ([dir], None) => {
            ashlar_oltp::render_report(dir)?;
            Ok(report_path(dir))
        }
        ([first, second], out) if oltp::are_runs(first, second) => {
            let to = out.map_or_else(|| second.join("comparison.html"), Path::to_owned);
            ashlar_oltp::render_comparison(first, second, &to)?;
            Ok(to)
        }
        ([_], Some(_)) => Err(Failure::usage(
            "--out: the report of one run is its report.html",
        )),
        _ => Err(Failure::usage(
            "a report of two directories takes two runs of `lab oltp`; others: `lab compare`",
        )),
    }
}

/// The text of a scenario that ships, of devices or of databases, or of a file.
fn text_of(name_or_path: &str) -> Result<String, Failure> {
    let all: Vec<(&str, &str)> = SHIPPED
        .iter()
        .chain(&databases::SHIPPED)
        .chain(&ashlar_oltp::versus::SHIPPED)
        .copied()
        .collect();
    Ok(find_text(&all, name_or_path)?)
}

fn report_path(dir: &Path) -> PathBuf {
    dir.join("report.html")
}

fn plan(arguments: &SweepArguments) -> Result<SweepPlan, Failure> {
    let mut plan = match translated(arguments)? {
        Some(mut translated) => {
            let time = arguments.seconds.map(|time| seconds("--seconds", time));
            translated.measured(arguments.repeat, time.transpose()?);
            for line in &translated.assumed {
                eprintln!("assumed: {line}");
            }
            translated.plan
        }
        None => {
            let access = access(arguments)?;
            let mut plan = SweepPlan::new(Vec::new(), matrices(arguments, &access)?);
            plan.set_measure(seconds("--seconds", arguments.seconds.unwrap_or(2.0))?);
            plan.repeats = arguments.repeat.unwrap_or(3);
            plan.access = access;
            plan
        }
    };
    if arguments.trim > 0 {
        plan.access.trim_pct = arguments.trim;
        plan.precondition.fill = true;
    }
    plan.configurations.extend(configurations(arguments)?);
    if let Some(size) = &arguments.size {
        plan.size = Some(parse_size(size)?);
    }
    plan.sync |= arguments.sync;
    plan.verify |= arguments.verify;
    plan.rate = arguments.rate.or(plan.rate);
    plan.destroy_data = arguments.destroy_data;
    Ok(plan)
}

/// The sweep in another tool's words, if it was given so.
fn translated(arguments: &SweepArguments) -> Result<Option<Translated>, Failure> {
    let found = match (&arguments.words, &arguments.fio_job) {
        (Some(words), _) => vocabulary::translate(words)?,
        (None, Some(path)) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("--fio-job {name}: {error}")))?;
            vocabulary::translate_job_file(&name, &text)?
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(found))
}

/// What accesses are like besides pattern, size and depth.
fn access(arguments: &SweepArguments) -> Result<Access, Failure> {
    let named = |option: &str, error: LabError| Failure::usage(format!("{option}: {error}"));
    let sizes = arguments.sizes.iter().map(|text| text.parse::<Share>());
    let sizes = sizes.collect::<Result<_, _>>();
    let distribution = arguments.distribution.parse();
    Ok(Access {
        distribution: distribution.map_err(|error| named("--distribution", error))?,
        flush_every: arguments.fsync,
        think: seconds("--think", arguments.think / 1000.0)?,
        sizes: sizes.map_err(|error| named("--sizes", error))?,
        trim_pct: 0,
    })
}

fn seconds(option: &str, seconds: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| Failure::usage(format!("{option} {seconds}: {error}")))
}

/// What is measured: each with the name that `--name` or its own words give it, or a letter.
fn configurations(arguments: &SweepArguments) -> Result<Vec<Configuration>, Failure> {
    let (on, names) = (&arguments.on, &arguments.names);
    if let Some(name) = names.get(on.len()) {
        let devices = on.len();
        return Err(Failure::usage(format!(
            "--name {name}: there are only {devices} devices"
        )));
    }
    let named = on.iter().enumerate().map(|(position, text)| {
        let (own, spec) = split_name(text);
        match (own, names.get(position)) {
            (Some(own), Some(name)) => Err(Failure::usage(format!(
                "--name {name}: the device is called {own} already"
            ))),
            (None, None) => Ok(Configuration::labelled(position, spec)),
            (own, name) => Ok(Configuration {
                name: own.or(name.map(String::as_str)).unwrap_or_default().into(),
                ..Configuration::on(spec)
            }),
        }
    });
    named.collect()
}

/// `NAME=DEVICE`, where a name has nothing that a device specification begins with.
fn split_name(text: &str) -> (Option<&str>, &str) {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_alphanumeric() || "-_ ".contains(c))
    };
    match text.split_once('=') {
        Some((name, spec)) if is_name(name) => (Some(name), spec),
        _ => (None, text),
    }
}

fn matrices(arguments: &SweepArguments, access: &Access) -> Result<Vec<Matrix>, Failure> {
    let block = |text: &String| -> Result<u32, Failure> {
        u32::try_from(parse_size(text)?)
            .map_err(|_| Failure::usage(format!("--block {text}: too large")))
    };
    // Cells with mixed sizes are named by the largest.
    let largest = access.sizes.iter().map(|share| share.bytes).max();
    let blocks: Vec<u32> = match largest {
        Some(largest) => vec![largest],
        None => {
            let blocks = arguments.block.iter().map(block);
            blocks.collect::<Result<_, _>>()?
        }
    };
    let matrix = |pattern: &String| -> Result<Matrix, LabError> {
        Ok(Matrix {
            role: String::new(),
            pattern: pattern.parse::<Pattern>()?,
            read_pct: arguments.read_pct,
            blocks: blocks.clone(),
            threads: arguments.threads.clone(),
            depths: arguments.depth.clone(),
            procedure: Procedure::default(),
        })
    };
    Ok(arguments
        .pattern
        .iter()
        .map(matrix)
        .collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sweep: SweepArguments,
    }

    fn names(words: &[&str]) -> Result<Vec<(String, String)>, String> {
        let line = Line::try_parse_from([&["sweep", "--out", "o"], words].concat());
        let sweep = line.map_err(|error| error.to_string())?.sweep;
        let named = configurations(&sweep).map_err(|failure| failure.message().to_owned())?;
        Ok(named.into_iter().map(|one| (one.name, one.spec)).collect())
    }

    #[test]
    fn devices_have_short_names() {
        let url = "nvme-tcp://127.0.0.1:4420/nqn.2026-11.com.example:db?ns=1";
        let pair = |name: &str, spec: &str| (name.to_owned(), spec.to_owned());
        let unnamed = names(&["--on", "memory:1GiB", "--on", url]).expect("valid");
        assert_eq!(unnamed, [pair("a", "memory:1GiB"), pair("b", url)]);
        let own = names(&["--on", "local=memory:1GiB", "--on", url]).expect("valid");
        assert_eq!(own, [pair("local", "memory:1GiB"), pair("b", url)]);
        let words = ["--on", "memory:1GiB", "--on", url, "--name", "here"];
        let some = names(&words).expect("valid");
        assert_eq!(some, [pair("here", "memory:1GiB"), pair("b", url)]);
        let twice = names(&["--on", "x=memory:1GiB", "--name", "y"]).expect_err("twice");
        assert!(twice.contains("called x already"), "{twice}");
        let more = names(&["--on", "memory:1GiB", "--name", "x", "--name", "y"]);
        assert!(more.expect_err("too many").contains("only 1 devices"));
    }
}
