//! What waits for the end of lost associations: all that writes, so that no late write lands on a newer one.

use ashlar_block::{ErrorKind, Moment, Operation};

use super::Session;
use super::path::Path;

impl Session {
    fn reads(&self, key: usize) -> bool {
        let pending = self.requests.get(key);
        pending.is_some_and(|pending| pending.request.op == Operation::Read)
    }

    /// The next request to be sent: writes wait for the end of lost associations that had some.
    pub(super) fn next_to_send(&self) -> Option<usize> {
        match self.paths.iter().any(Path::is_stale) {
            true => self.queue.iter().position(|key| self.reads(*key)),
            false => (!self.queue.is_empty()).then_some(0),
        }
    }

    /// Fails what has waited for that as long as there may be no path: without a keep-alive, or with a long one, the
    /// time may never say that it has come, and no controller may be able to.
    pub(super) fn fail_held(&mut self, now: Moment) {
        let Some(path) = self.paths.iter().find(|path| path.is_given_up(now)) else {
            return;
        };
        let why = format!(
            "writes sent to {} may be under way, and nothing has said for {} ms that they are not",
            path.config.address,
            self.config.loss.as_millis()
        );
        let queue = std::mem::take(&mut self.queue);
        let (reads, held) = queue.into_iter().partition(|key| self.reads(*key));
        self.queue = reads;
        for key in Vec::from(held) {
            let error = self.error(self.kind_of(key, ErrorKind::NotSent), &why);
            self.complete(key, Err(error));
        }
    }
}
