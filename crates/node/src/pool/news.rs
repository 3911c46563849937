//! What an operator must hear of a pool when it happens: the daemon's log outlives the daemon.

use ashlar_store::Engine;

use crate::notice::notice;

/// What has been told already.
#[derive(Default)]
pub(super) struct News {
    losses: usize,
    failed: bool,
}

impl News {
    /// Tells, once each, that a drive has left the pool and that the pool has stopped.
    pub fn tell(&mut self, engine: &Engine) {
        let pool = &engine.label().pool_name;
        let losses = engine.losses();
        for (number, why) in losses.iter().skip(self.losses) {
            let id = engine.members().get(*number).map(|member| member.drive);
            let id = id.map(|id| id.to_string()).unwrap_or_default();
            notice(format_args!(
                "pool {pool}: drive {number} ({id}) is out of service: {why}"
            ));
        }
        self.losses = losses.len();
        if let (Some(why), false) = (engine.failure(), self.failed) {
            self.failed = true;
            notice(format_args!("pool {pool} has stopped: {why}"));
        }
    }
}
