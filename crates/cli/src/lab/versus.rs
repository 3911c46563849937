//! `ashlar lab run fci-vs-bag`.

use ashlar_failover::versus;
use ashlar_lab::{ResultFile, Scale, check_out_dir};
use ashlar_oltp::versus::{VersusFile, VersusRun};

use super::interrupt::interruptible;
use super::report_path;
use crate::args::RunArguments;
use crate::exit::Failure;
use crate::output::print;

pub(super) fn run(arguments: &RunArguments, text: &str) -> Result<(), Failure> {
    let out = arguments.out.as_deref();
    let out = out.ok_or_else(|| Failure::usage("lab run: needs --out DIR"))?;
    let (file, all) = VersusFile::parse(text, &arguments.set, &arguments.users)?;
    refuse_others(arguments, &file)?;
    let scale = arguments.scale.parse::<Scale>()?;
    check_out_dir(out)?;
    let progress = interruptible()?;
    let changed = arguments.changed();
    let run = VersusRun {
        parts: &all,
        scale: &arguments.scale,
        changed: &changed,
        dir: &arguments.dir,
        out,
    };
    let result = versus(&file, &run, scale.factor(), &progress)?;
    result.write(out)?;
    result.write_report(out)?;
    print(&format!(
        "{}{}\n",
        result.text(),
        report_path(out).display()
    ))?;
    match result.head.problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::environment(result.head.problems.join("; "))),
    }
}

/// What it makes by itself cannot be said.
fn refuse_others(arguments: &RunArguments, file: &VersusFile) -> Result<(), Failure> {
    for (option, is_given) in [
        ("--place", !arguments.places.is_empty()),
        ("--pool", !arguments.pools.is_empty()),
        ("--databases", arguments.databases.is_some()),
        ("--streams", arguments.streams.is_some()),
        ("--nodes", arguments.nodes.is_some()),
        ("--destroy-data", arguments.destroy_data),
        ("--client", !arguments.agents.clients.is_empty()),
    ] {
        if is_given {
            return Err(Failure::usage(format!(
                "{option}: {} makes its own storage and runs {}; run these by themselves for it",
                file.name,
                file.parts.join(" and ")
            )));
        }
    }
    Ok(())
}
