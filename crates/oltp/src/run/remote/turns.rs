//! Users that stay logged in at agents, and take turns with those of other databases.

use std::time::Duration;

use ashlar_lab::agent::{Begun, Clients, Onlooker};
use ashlar_lab::{LabError, Progress};

use super::{Ask, Driven, Elsewhere, asked, deal};
use crate::remote::{LoadWords, TurnWords};
use crate::run::plan::RunPlan;
use crate::run::users::Window;

/// Whether all have ended is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Users that are logged in at agents, at all of these databases.
pub(crate) struct Away<'a> {
    clients: &'a Clients,
    progress: &'a Progress,
}

/// There is nothing to look at.
struct Waits;

impl Onlooker for Waits {
    fn before(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn meanwhile(&mut self, begun: &Begun<'_>) {
        while !begun.has_ended() {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl<'a> Away<'a> {
    /// Logs the users of all databases in. They work for the ramp, and rest.
    ///
    /// # Errors
    /// Not all of them can.
    pub(crate) fn log_in(
        all: &[Elsewhere<'_>],
        clients: &'a Clients,
        progress: &'a Progress,
    ) -> Result<Self, LabError> {
        let words = asked(&deal(all, clients.count()), &LoadWords::Enter)?;
        let homes = clients.carry_out(&words, progress, &mut Waits)?;
        let away = Self { clients, progress };
        homes
            .into_iter()
            .try_for_each(|home| home.measured.map(drop))?;
        Ok(away)
    }

    /// The users of the database of this number work, after `settle` it counts, and they rest.
    ///
    /// # Errors
    /// It cannot be begun, or was not looked at.
    pub(crate) fn turn(
        &self,
        of: &Elsewhere<'_>,
        place: usize,
        settle: Duration,
    ) -> Result<Window, LabError> {
        let plan = RunPlan {
            ramp: settle,
            ..of.plan.clone()
        };
        let turn = TurnWords {
            place,
            slow_down: plan.slow_down,
            settle,
            measure: plan.measure,
        };
        let own = Elsewhere {
            plan: &plan,
            server: of.server.clone(),
            ..*of
        };
        let ask = Ask {
            clients: self.clients,
            words: &|_| LoadWords::Turn(turn),
            beside: &mut (),
        };
        let mut driven = ask.of(&[own], self.progress)?;
        let none = || LabError::environment("a turn without users");
        let Driven { window, .. } = driven.pop().ok_or_else(none)?;
        Ok(window)
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        let count = self.clients.count();
        for at in 0..count {
            // Each by itself: one that is not reached any more has no users, and the others have.
            let leave = || crate::remote::text(&LoadWords::Leave).ok();
            let words = (0..count).map(|one| (one == at).then(leave).flatten());
            let words: Vec<Option<String>> = words.collect();
            let _ = self.clients.carry_out(&words, self.progress, &mut Waits);
        }
    }
}
