//! fio's job files: sections of `key=value`, `[global]` for all that follow.

use super::{Translated, fio};
use crate::{LabError, SweepPlan};

/// A line of a section.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    key: &'a str,
    value: &'a str,
}

/// A job: its name, and its lines after those of `[global]` before it.
struct Section<'a> {
    name: &'a str,
    number: usize,
    lines: Vec<Line<'a>>,
}

/// Keys that say that a job waits for the one before.
const WAITS: [&str; 2] = ["stonewall", "wait_for_previous"];

/// Reads a fio job file, `name` in messages: its jobs, one after the other, are the cells.
///
/// # Errors
/// A usage error that names the key and its line.
pub fn translate_job_file(name: &str, text: &str) -> Result<Translated, LabError> {
    let at = |line: usize, why: &dyn std::fmt::Display| {
        LabError::usage(format!("{name}, line {line}: {why}"))
    };
    let sections = sections(text).map_err(|(line, why)| at(line, &why))?;
    let mut all: Option<Translated> = None;
    for (position, section) in sections.iter().enumerate() {
        let waits = |line: &Line<'_>| WAITS.contains(&line.key) && line.value != "0";
        if position > 0 && !section.lines.iter().any(waits) {
            let why = format!(
                "job {} runs at the same time as the one before: the lab measures one after the other, give it \
                 `stonewall`",
                section.name
            );
            return Err(at(section.number, &why));
        }
        let mut job = fio::Job::default();
        for line in section
            .lines
            .iter()
            .filter(|line| !WAITS.contains(&line.key))
        {
            let taken = job.take(line.key, line.value);
            taken.map_err(|error| at(line.number, &error))?;
        }
        let mut theirs = job.translated();
        for matrix in &mut theirs.plan.matrices {
            matrix.role = section.name.to_owned();
        }
        match &mut all {
            None => all = Some(theirs),
            Some(all) => {
                let differs = differs(&all.plan, &theirs.plan);
                if let Some(what) = differs {
                    let why = format!(
                        "job {} has another {what} than the one before: one run has one; put it into [global]",
                        section.name
                    );
                    return Err(at(section.number, &why));
                }
                all.plan.matrices.append(&mut theirs.plan.matrices);
                let new = theirs.assumed.into_iter();
                let new: Vec<String> = new.filter(|text| !all.assumed.contains(text)).collect();
                all.assumed.extend(new);
            }
        }
    }
    let mut all = all.ok_or_else(|| LabError::usage(format!("{name}: has no job")))?;
    all.plan.precondition.fill = all.plan.cells().iter().any(crate::CellSpec::writes);
    Ok(all)
}

/// What jobs of a run must have in common, and have not.
fn differs(ours: &SweepPlan, theirs: &SweepPlan) -> Option<&'static str> {
    let all = [
        ("filename", ours.configurations == theirs.configurations),
        ("runtime", ours.measure == theirs.measure),
        ("ramp_time", ours.warmup == theirs.warmup),
        ("size", ours.size == theirs.size),
        ("sync", ours.sync == theirs.sync),
        ("verify", ours.verify == theirs.verify),
        ("rate_iops (times numjobs)", ours.rate == theirs.rate),
        ("randseed", ours.seed == theirs.seed),
        (
            "random_distribution, bssplit, fsync or thinktime",
            ours.access == theirs.access,
        ),
    ];
    all.into_iter()
        .find(|(_, same)| !same)
        .map(|(what, _)| what)
}

fn sections(text: &str) -> Result<Vec<Section<'_>>, (usize, String)> {
    let mut jobs: Vec<Section<'_>> = Vec::new();
    let mut global: Vec<Line<'_>> = Vec::new();
    let mut is_global = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name
                .strip_suffix(']')
                .map(str::trim)
                .filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| (number, format!("{line}: is no section")))?;
            is_global = Some(name == "global");
            if name != "global" {
                jobs.push(Section {
                    name,
                    number,
                    lines: global.clone(),
                });
            }
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "1"));
        let line = Line {
            number,
            key: key.trim(),
            value: value.trim(),
        };
        match (is_global, jobs.last_mut()) {
            (Some(true), _) => global.push(line),
            (Some(false), Some(job)) => job.lines.push(line),
            _ => return Err((number, format!("{}: stands before any section", line.key))),
        }
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Distribution, Share};

    const FILE: &str = "
; what a database does
[global]
ioengine=libaio
direct=1
filename=/dev/nvme9n1
runtime=1m
ramp_time=5
random_distribution=zipf:1.1   # most of it goes to few places
fsync=32
thinktime=200us

[log]
rw=randwrite
bs=4k
iodepth=1

[data]
stonewall
rw=randrw
rwmixread=70
bssplit=8k/75:64k/25
numjobs=4
iodepth=16
";

    #[test]
    fn a_job_file_is_a_sweep() {
        let mut text = FILE.replace("bssplit=8k/75:64k/25\n", "bs=8k\n");
        let it = translate_job_file("db.fio", &text).expect("translates");
        let slugs: Vec<String> = it.plan.cells().iter().map(crate::CellSpec::slug).collect();
        assert_eq!(slugs, ["randwrite-4k-t1-d1", "randrw70-8k-t4-d16"]);
        let roles: Vec<&str> = it
            .plan
            .matrices
            .iter()
            .map(|matrix| &*matrix.role)
            .collect();
        assert_eq!(roles, ["log", "data"]);
        assert_eq!(it.plan.configurations[0].spec, "file:/dev/nvme9n1");
        assert_eq!(
            (it.plan.measure, it.plan.warmup),
            (Duration::from_secs(60), Duration::from_secs(5))
        );
        let access = &it.plan.access;
        assert_eq!(
            (access.distribution, access.flush_every),
            (Distribution::Zipf(1.1), 32)
        );
        assert_eq!(access.think, Duration::from_micros(200));
        assert!(it.plan.precondition.fill && it.plan.check().is_ok());
        // Sizes are the whole run's.
        let error = translate_job_file("db.fio", FILE).expect_err("another");
        assert!(
            error.to_string().contains("line 18") && error.to_string().contains("bssplit"),
            "{error}"
        );
        text = FILE.replace("bs=4k", "bssplit=8k/75:64k/25");
        let it = translate_job_file("db.fio", &text).expect("translates");
        let share = |bytes, pct| Share { bytes, pct };
        assert_eq!(it.plan.access.sizes, [share(8192, 75), share(65536, 25)]);
        assert_eq!(it.plan.cells()[1].slug(), "randrw70-64k-t4-d16");
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_line() {
        for (was, is, line, named) in [
            ("ioengine=libaio", "iodepth_batch=4", 4, "iodepth_batch"),
            ("rw=randrw", "rw=randtrim", 20, "randtrim"),
            ("iodepth=16", "iodepth=many", 24, "iodepth"),
            ("stonewall", "", 18, "stonewall"),
            ("fsync=32", "fsync=often", 10, "fsync"),
            ("zipf:1.1", "pareto:0.2", 9, "pareto"),
            ("thinktime=200us", "thinktime=soon", 11, "thinktime"),
            ("bssplit=8k/75:64k/25", "bssplit=8k/75:64k", 22, "bssplit"),
            (
                "bssplit=8k/75:64k/25",
                "filename=/dev/other",
                18,
                "filename",
            ),
            ("[global]", "oops=1\n[global]", 3, "oops"),
            ("[log]", "[log", 13, "[log"),
        ] {
            let text = FILE.replacen(was, is, 1);
            let error = translate_job_file("db.fio", &text).expect_err(is);
            let told = error.to_string();
            let place = format!("db.fio, line {line}: ");
            assert!(
                error.exit_code() == 2 && told.starts_with(&place) && told.contains(named),
                "{told}"
            );
        }
        let error = translate_job_file("db.fio", "[global]\nbs=4k\n").expect_err("no job");
        assert!(error.to_string().contains("no job"), "{error}");
    }
}
