//! What a copy whose store has failed still says, before its connections are closed.

use ashlar_block::Moment;
use ashlar_reactor::What;
use ashlar_replica::Envelope;

use super::Replicated;

impl Replicated {
    /// What was said when the store failed leaves. Of what comes then only a JOIN counts: the next owner is told that
    /// nothing will come of it, and need not wait.
    pub(super) fn say_last_words(&mut self, now: Moment) {
        if self.closes_at.is_none_or(|at| now >= at) {
            return self.close();
        }
        while let Some(event) = self.port.next() {
            let streams = self.peers.iter_mut();
            let mut streams = streams.filter_map(|peer| peer.stream.as_mut());
            let Some(stream) = streams.find(|stream| stream.key() == event.key) else {
                continue;
            };
            let mut heard = Vec::new();
            let result = match event.what {
                What::Received(result, frame, _) => stream.received(result, frame, &mut heard),
                What::Sent(result, batch) => stream.sent(result, batch),
                _ => Ok(()),
            };
            for answer in heard.iter().filter_map(Envelope::answer_of_failed) {
                stream.push(&answer);
            }
            // One that is broken has no more to say.
            let _ = result.and_then(|()| stream.flush(&self.port));
        }
    }

    pub(super) fn close(&mut self) {
        self.closes_at = None;
        self.peers.iter_mut().for_each(|peer| peer.stream = None);
    }
}
