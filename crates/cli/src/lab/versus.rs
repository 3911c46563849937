//! `ashlar lab run fci-vs-bag`.

use std::path::Path;

use ashlar_failover::versus;
use ashlar_lab::scenario::{FILE, refuse_changed};
use ashlar_lab::{Command, Journal, LabError, Machine, Origin, Scale, write_whole};
use ashlar_oltp::versus::{PartFile, VersusFile, VersusRun};

use super::ending;
use super::interrupt::interruptible;
use crate::args::RunArguments;
use crate::exit::Failure;

pub(super) fn run(arguments: &RunArguments, text: &str) -> Result<(), Failure> {
    let out = arguments.out.as_deref();
    let out = out.ok_or_else(|| Failure::usage("lab run: needs --out DIR"))?;
    let (file, parts) = VersusFile::parse(text, &arguments.set, &arguments.users)?;
    refuse_others(arguments, &file)?;
    arguments.scale.parse::<Scale>()?;
    let origin = Origin {
        command: Command::Run,
        scenario: VersusFile::changed(text, &arguments.set)?,
        changed: arguments.changed(),
        scale: arguments.scale.clone(),
        dir: arguments.dir.clone(),
        machine: Machine::here(),
        parts: parts.iter().map(|part| part.text.clone()).collect(),
        ..Origin::default()
    };
    for part in &parts {
        Journal::refuse_used(&out.join(&part.name))?;
    }
    let mut journal = Journal::begin(out, &origin)?;
    write_whole(&out.join(FILE), &origin.scenario)?;
    carry_out(&origin, out, &mut journal)
}

/// What is left of one.
pub(super) fn resume(origin: &Origin, out: &Path, journal: &mut Journal) -> Result<(), Failure> {
    for part in parts(origin)? {
        refuse_changed(&out.join(&part.name), &part.text)?;
    }
    carry_out(origin, out, journal)
}

fn parts(origin: &Origin) -> Result<Vec<PartFile>, LabError> {
    let texts = origin.parts.iter();
    texts.map(|text| PartFile::kept(text)).collect()
}

fn carry_out(origin: &Origin, out: &Path, journal: &mut Journal) -> Result<(), Failure> {
    let file = VersusFile::kept(&origin.scenario)?;
    let run = VersusRun {
        name: &file.name,
        parts: &parts(origin)?,
        scale: &origin.scale,
        changed: &origin.changed,
        dir: &origin.dir,
        out,
        progress: &interruptible()?,
    };
    let result = versus(&file, &run, journal)?;
    ending::end_resumable(&result, out, journal)?;
    // All was measured, and something of the storage stays.
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
