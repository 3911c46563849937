//! What an operator must hear of a pool when it happens: the daemon's log outlives the daemon.

use std::time::Duration;

use ashlar_block::Moment;
use ashlar_store::Engine;
use tracing::{error, info, warn};

use super::room::{is_over, room_of, scarcest};
use crate::model::LayoutSpec;

/// How often its room is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// What has been told already.
#[derive(Default)]
pub(super) struct News {
    losses: usize,
    failed: bool,
    is_scarce: bool,
    looked: Option<Moment>,
    /// Something has happened since.
    due: Option<Moment>,
}

impl News {
    /// Tells, once each, that a drive has left the pool, that the pool has stopped, that it is nearly
    /// full, and that it is not any more.
    pub fn tell(&mut self, engine: &Engine, now: Moment) {
        let pool = &engine.label().pool_name;
        let losses = engine.losses();
        for (number, why) in losses.iter().skip(self.losses) {
            let id = engine.members().get(*number).map(|member| member.drive);
            let id = id.map(|id| id.to_string()).unwrap_or_default();
            error!(pool, drive = %id, "pool {pool}: drive {number} ({id}) is out of service: {why}");
        }
        self.losses = losses.len();
        if let (Some(why), false) = (engine.failure(), self.failed) {
            self.failed = true;
            error!(pool, "pool {pool} has stopped: {why}");
        }
        match self.looked.map(|at| at + EVERY).filter(|&next| now < next) {
            Some(next) => self.due = Some(next),
            None => {
                (self.looked, self.due) = (Some(now), None);
                self.tell_of_room(engine);
            }
        }
    }

    /// When it must be asked again, even if nothing happens until then.
    pub fn due(&self) -> Option<Moment> {
        self.due
    }

    fn tell_of_room(&mut self, engine: &Engine) {
        let pool = &engine.label().pool_name;
        let homes = engine.homes();
        match (self.is_scarce, scarcest(&homes)) {
            (false, Some(home)) => {
                self.is_scarce = true;
                warn!(
                    pool,
                    "pool {pool} is nearly full: {} bytes are left as {}. Writes will fail when there are \
                     none: add a drive, or delete something",
                    room_of(home),
                    LayoutSpec::from(home.layout)
                );
            }
            (true, None) if is_over(&homes) => {
                self.is_scarce = false;
                info!(pool, "pool {pool} has room again");
            }
            _ => {}
        }
    }
}
