//! `ashlar lab run fci-vs-bag`: both sides on storage of this machine, made for it, measured and taken away again.

mod ground;
mod meters;

use ashlar_lab::{
    Command, Journal, LabError, Machine, Origin, Progress, ResultFile, Scale, check_out_dir,
};
use ashlar_oltp::versus::{Part, PartFile, VersusFile, VersusResult};
use ashlar_oltp::{ScenarioRun, run_scenario};

use self::ground::Ground;
use self::meters::Meters;
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
    let mut result = VersusResult::begun(&file, scale.factor(), ground.told(), arguments.changed());
    let measured = parts(&all, arguments, &ground, (&mut result, &progress));
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

fn parts(
    all: &[PartFile],
    arguments: &RunArguments,
    ground: &Ground,
    (result, progress): (&mut VersusResult, &Progress),
) -> Result<(), LabError> {
    let out = arguments.out.as_deref().unwrap_or(&arguments.dir);
    let changed = arguments.changed();
    for PartFile { name, text } in all {
        progress.go_on()?;
        let places = ground.places();
        let own = out.join(name);
        check_out_dir(&own)?;
        let origin = Origin {
            command: Command::Run,
            scenario: text.clone(),
            changed: changed.clone(),
            scale: arguments.scale.clone(),
            dir: arguments.dir.clone(),
            machine: Machine::here(),
            ..Origin::default()
        };
        let mut journal = Journal::begin(&own, &origin)?;
        let meters = Meters::start(ground.sources()?)?;
        let run = ScenarioRun {
            text,
            changed: &changed,
            scale: arguments.scale.parse()?,
            places: &places,
            dir: &arguments.dir,
            out: &own,
            patroni: Some(ground.group()),
        };
        let ran = run_scenario(&run, progress, &mut journal);
        let seen = meters.end();
        let ran = ran?;
        journal.end()?;
        result.parts.push(Part::of(&ran, &seen)?);
        let flags = ran.head.flags.iter().map(|flag| format!("{name}: {flag}"));
        result.head.flags.extend(flags);
        result.head.partial |= ran.head.partial;
        let problems = ran
            .head
            .problems
            .iter()
            .map(|text| format!("{name}: {text}"));
        result.head.problems.extend(problems);
        result.head.problems.extend(ran.complaint());
        result.write(out)?;
    }
    Ok(())
}
