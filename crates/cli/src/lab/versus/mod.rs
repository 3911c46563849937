//! `ashlar lab run fci-vs-bag`: storage of this machine, made for both sides, and taken away again. What is run on it is
//! [`run_versus`].

mod ground;

use ashlar_lab::{ResultFile, Scale, check_out_dir};
use ashlar_oltp::versus::{VersusFile, VersusResult, VersusRun, run_versus};

use self::ground::Ground;
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
    let ground = Ground::make(&arguments.dir, &file, &progress)?;
    let changed = arguments.changed();
    let run = VersusRun {
        parts: &all,
        scale: &arguments.scale,
        changed: &changed,
        dir: &arguments.dir,
        out,
    };
    let told = ground.told();
    let mut result = VersusResult::begun(&file, scale.factor(), told, changed.clone());
    let measured = run_versus(&run, &ground, &mut result, &progress);
    if let Err(error) = measured {
        result.head.broke_off(error.to_string());
    }
    if let Err(error) = ground.end() {
        result.head.problems.push(error.to_string());
    }
    progress.finish();
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
