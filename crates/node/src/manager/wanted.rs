//! Which pool an import is about, and what is to be done about drives that hold another, or none.

use uuid::Uuid;

use crate::model::ControlError;
use crate::pool::{Found, OpenDrive, Opening, label_of_taken, probe};

/// How to go on without a drive.
pub(super) const GO_ON: &str =
    "If the pool is to go on without it, for good, leave it out or say --degraded";

/// A pool that is to be imported.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) id: Option<Uuid>,
    /// The name that it gets.
    pub(super) new_name: Option<&'a str>,
    pub(super) degraded: bool,
    pub(super) accept_data_loss: bool,
    /// Its drives are named by an operator: not one of them is left out for good in silence.
    pub(super) named: bool,
    /// The pool that has its name here and is not in service.
    pub(super) known: Option<Uuid>,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(name: &'a str, id: Option<Uuid>) -> Self {
        Self {
            name,
            id,
            new_name: None,
            degraded: false,
            accept_data_loss: false,
            named: false,
            known: None,
        }
    }

    /// The pool of the first of these drives that has a label.
    pub(super) fn pool_of(&self, drives: &[OpenDrive]) -> Result<Option<Uuid>, ControlError> {
        let found = probe(drives)?;
        let pool = found.iter().find_map(|found| match found {
            Found::Label(label) => Some(label.pool),
            _ => None,
        });
        // What has no label is the engine's to refuse.
        Ok(pool.or(self.id))
    }

    /// Whether a drive that another process has may be one of this pool's: what its label says, if that can be told.
    pub(super) fn may_hold(&self, spec: &str, how: Opening) -> bool {
        match label_of_taken(spec, how) {
            Ok(None) => false,
            Ok(Some(label)) => match self.id {
                Some(id) => label.pool == id,
                None => [Some(self.name), self.new_name].contains(&Some(&label.pool_name)),
            },
            Err(_) => true,
        }
    }

    /// Whether no drive may be left out.
    pub(super) fn needs_all(&self) -> bool {
        self.named && !self.degraded
    }

    /// Refuses drives that hold another pool than the one that is meant, or none that can be read where
    /// that matters. Says what its drives are to be called if they are not called that: on request, or
    /// because that was interrupted.
    pub(super) fn check(&self, drives: &[OpenDrive]) -> Result<Option<String>, ControlError> {
        let name = self.new_name.unwrap_or(self.name);
        let mut labels = Vec::new();
        for (drive, found) in drives.iter().zip(probe(drives)?) {
            match found {
                Found::Label(label) => labels.push((drive, label)),
                Found::Damaged(why) if self.needs_all() => {
                    return Err(ControlError::refused(format!(
                        "{why}: it cannot be told whose it is, and nothing was changed. If another version \
                         of Ashlar has written it, import with that one. {GO_ON}"
                    )));
                }
                Found::Nothing if self.needs_all() => {
                    return Err(ControlError::refused(format!(
                        "drive {} belongs to no pool: it has no label. Name the drives of pool {}. {GO_ON}",
                        drive.spec, self.name
                    )));
                }
                Found::Silent(why) if self.needs_all() => {
                    return Err(ControlError::environment(format!(
                        "{why}. Nothing was changed. {GO_ON}"
                    )));
                }
                Found::Damaged(_) | Found::Nothing | Found::Silent(_) => {}
            }
        }
        let named = |wanted: &str| {
            let mut theirs = labels.iter();
            theirs
                .find(|(_, label)| label.pool_name == wanted)
                .map(|(_, label)| label.pool)
        };
        let meant = self.id.or_else(|| named(self.name)).or_else(|| named(name));
        let known = |text: &str| text == self.name || text == name;
        let ours = labels.iter().any(|(_, label)| known(&label.pool_name));
        for (drive, label) in &labels {
            let holds = format!(
                "drive {} holds pool {} ({})",
                drive.spec, label.pool_name, label.pool
            );
            if meant != Some(label.pool) || !ours {
                let why = self.other_pool(&holds, &label.pool_name, meant);
                return Err(ControlError::conflict(why));
            }
            if let Some(known) = self.known.filter(|&known| known != label.pool) {
                return Err(ControlError::conflict(format!(
                    "{holds}, and another pool {} ({known}) is known here and not in service: give this \
                     one another name with --as, or let the other go first (`pool export {}`)",
                    self.name, self.name
                )));
            }
        }
        let differs = labels.iter().any(|(_, label)| label.pool_name != name);
        Ok(differs.then(|| name.to_owned()))
    }

    /// What to do about a drive that holds another pool than the one that is meant.
    fn other_pool(&self, holds: &str, its_name: &str, meant: Option<Uuid>) -> String {
        let name = self.name;
        match meant {
            Some(meant) if its_name == name => format!(
                "{holds}, and pool {name} ({meant}) is another of the same name: import one at a time, \
                 naming its drives only (--id says which is meant), and give one of them another name \
                 with --as"
            ),
            _ => format!(
                "{holds}, not {name}: leave it out, or import it under its own name (--as gives it \
                 another)"
            ),
        }
    }
}
