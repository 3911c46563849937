//! `ashlar lab torn-pages`.

use ashlar_lab::{ResultFile, check_out_dir};
use ashlar_torn::{Asked, Part, Wanted, torn_pages};

use super::interrupt::interruptible;
use crate::args::{TornPagesArguments, TornPart};
use crate::exit::Failure;
use crate::output::print;
use crate::stack;

pub(super) fn run(arguments: &TornPagesArguments) -> Result<(), Failure> {
    // Whatever is wrong with the request is told before anything is there.
    let wanted = Wanted::of(&asked(arguments))?;
    check_out_dir(&arguments.out)?;
    let outcome = torn_pages(wanted, stack::open, &interruptible()?)?;
    print(&outcome.result.text())?;
    Ok(outcome.verdict()?)
}

fn asked(arguments: &TornPagesArguments) -> Asked {
    Asked {
        dir: arguments.dir.clone(),
        out: arguments.out.clone(),
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
