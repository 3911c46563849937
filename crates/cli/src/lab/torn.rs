//! `ashlar lab torn-pages`.

use std::path::Path;

use ashlar_lab::{Command, Journal, Origin, ResultFile};
use ashlar_torn::{Asked, Part, Wanted, torn_pages};

use super::ending;
use super::interrupt::interruptible;
use crate::args::{TornPagesArguments, TornPart};
use crate::exit::Failure;
use crate::output::print;
use crate::stack;

pub(super) fn run(arguments: &TornPagesArguments) -> Result<(), Failure> {
    // Whatever is wrong with the request is told before anything is there.
    let asked = asked(arguments);
    Wanted::of(&asked, &arguments.out)?;
    let mut journal = Journal::begin(&arguments.out, &Origin::asked(Command::TornPages, &asked)?)?;
    carry_out(asked, &arguments.out, &mut journal)
}

/// All of it, or what the journal does not have.
pub(super) fn carry_out(asked: Asked, out: &Path, journal: &mut Journal) -> Result<(), Failure> {
    let wanted = Wanted::of(&asked, out)?;
    let outcome = torn_pages(wanted, stack::open, journal, &interruptible()?)?;
    let mut text = outcome.result.text();
    match outcome.result.head().partial {
        true => text += &ending::to_go_on(out),
        false => journal.end()?,
    }
    print(&(text + "\n"))?;
    Ok(outcome.verdict()?)
}

fn asked(arguments: &TornPagesArguments) -> Asked {
    Asked {
        dir: arguments.dir.clone(),
        images: arguments.images,
        seed: arguments.seed,
        seconds: arguments.seconds,
        cost_seconds: arguments.cost_seconds,
        repeats: arguments.repeat,
        warehouses: arguments.warehouses,
        users: arguments.users,
        tear: arguments.tear.clone(),
        only: arguments.only.map(|part| match part {
            TornPart::Cost => Part::Cost,
            TornPart::Disk => Part::Disk,
            TornPart::Volume => Part::Volume,
        }),
        keeps: arguments.keep,
    }
}
