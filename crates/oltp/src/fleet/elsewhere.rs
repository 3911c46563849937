//! A step whose streams are at agents. All streams of a database are at one of them: they share its sessions, which run
//! whatever is due for longest, so that a database is driven as in one process, and its histogram is whole where it is.
//! A fleet has many databases, so agents have as many, or one more.

use ashlar_lab::{LabError, Progress};

use super::step::{Begun, Fleet, Home, Planned, Watch};
use super::storage::Storage;
use crate::postgres::Logic;
use crate::remote::RemoteUsers;
use crate::run::{Beside, Driven, Elsewhere, drive_elsewhere, setting};

/// The machine, while the step is measured.
struct Machine<'a> {
    storage: &'a Storage<'a>,
    begun: Option<Begun>,
    watch: Watch,
}

impl Beside for Machine<'_> {
    fn begins(&mut self) {
        self.begun = Some(Watch::begin(self.storage));
    }

    fn ends(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.watch = begun.end(self.storage);
        }
    }
}

/// All databases' streams at agents.
pub(super) fn drive(
    fleet: &Fleet<'_>,
    agents: &RemoteUsers<'_>,
    planned: Planned<'_>,
    progress: &Progress,
) -> Result<(Vec<Home>, Watch), LabError> {
    let Planned { plans, repeat } = planned;
    let mut all = Vec::new();
    for (number, (member, plan)) in fleet.members.all.iter().zip(plans).enumerate() {
        let unheard = || LabError::environment(format!("{}: listens nowhere", member.name));
        let address = member.listens().ok_or_else(unheard)?;
        member.database.prepare_run()?;
        let sessions = fleet.file.fleet.sessions;
        all.push(Elsewhere {
            database: &member.database,
            plan,
            setting: setting(plan, &member.marker, sessions, repeat),
            server: agents.server(address, Logic::Functions),
            at: agents.of_database(number),
        });
    }
    let mut machine = Machine {
        storage: &fleet.storage,
        begun: None,
        watch: Watch::default(),
    };
    let driven = drive_elsewhere(&all, agents.clients(), &mut machine, progress)?;
    let home = |of: Driven| Home {
        seconds: of.seconds,
        ..Home::of(of.window, repeat)
    };
    Ok((driven.into_iter().map(home).collect(), machine.watch))
}
