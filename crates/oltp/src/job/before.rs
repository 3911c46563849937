//! What would be refused afterwards is refused before anything is put back or built over.

use ashlar_lab::LabError;

use super::Job;
use super::saved::Saved;
use crate::database::{Database, Description};
use crate::schema::State;
use crate::{OltpResult, planned};

/// What is known of a run before anything is put back or built over.
pub(super) struct Before<'a> {
    pub(super) job: &'a Job,
    pub(super) saved: Option<&'a Saved>,
    pub(super) earlier: Option<&'a OltpResult>,
}

impl Before<'_> {
    /// Refuses what would be refused afterwards, when what was there is gone.
    pub(super) fn check(&self, database: &dyn Database) -> Result<(), LabError> {
        let copied = match self.saved {
            Some(saved) => saved.warehouses()?,
            None => None,
        };
        if let Some((found, copy)) = &copied {
            let of = format!("--restore {copy}");
            self.job.have_warehouses(*found, &of, "name another copy")?;
        }
        let Some(earlier) = self.earlier else {
            return Ok(());
        };
        let warehouses = match (copied, self.job.build.destroy_data, database.state()?) {
            (Some((found, _)), ..) => found,
            (None, false, State::Built(marker)) => marker.shape.warehouses,
            (None, true, _) | (None, _, State::Empty) => self.job.build.shape.warehouses,
            // Told by what comes.
            _ => earlier.method.warehouses,
        };
        let described = self.described(earlier, database)?;
        let mut planned = planned(&self.job.plan, described, warehouses);
        planned.method.restored = self.saved.is_some();
        earlier.check_alike(&planned)
    }

    /// The database as it will be. Settings that go with what is put back or built are asked for afterwards.
    fn described(
        &self,
        earlier: &OltpResult,
        database: &dyn Database,
    ) -> Result<Description, LabError> {
        let target = database.target();
        if target.starts_with("sqlite:") {
            return Ok(Description {
                target,
                ..earlier.database.clone()
            });
        }
        let mut described = database.describe()?;
        if self.saved.is_some() {
            described.settings = earlier.database.settings.clone();
        }
        Ok(described)
    }
}
