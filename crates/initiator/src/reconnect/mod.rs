//! A remote namespace that survives the loss of its connection, without I/O.
//!
//! A [`Session`] takes block requests, carries them out over an [`Association`], and makes a new
//! association when one is lost:
//!
//! 1. *Back off* (0, then 100 ms doubling to 2 s), connect, and check that the same namespace
//!    answers: UUID, NGUID, EUI64, size and block size, and no promise weakened. Otherwise every
//!    request fails for good.
//! 2. *Take over*: have the target end the lost association and wait until nothing of it is left
//!    (Cross-Controller Reset). A target whose link went silent does not know that it is lost, and a
//!    write that it still has in a device could land after a newer one.
//! 3. *Replay* what was never sent, and of what was sent and not acknowledged what
//!    [`Replay`] allows. Requests in flight together have no order, so sending a write again is
//!    within the contract. The rest fails with `Disconnected`: the outcome is unknown.
//! 4. *Flushes*: the loss may have been a power loss of the target. If writes that were
//!    acknowledged but not flushed may have been in a volatile cache, every flush that covers them
//!    fails, once; the caller then knows, and the next flush is judged afresh.
//! 5. *Give up* after [`Config::loss`] without an association: every request fails, for good.
//!
//! A request that the controller leaves unanswered three times fails with `Timeout`. One that is
//! [patient](Config::patient) goes on for [`Config::loss`], and does not take a refused Connect for an
//! answer either.

mod part;
#[cfg(test)]
mod tests;
mod unflushed;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{
    BufferPool, Completion, Durability, ErrorKind, Gather, Geometry, IoBuffer, IoError, Moment,
    Operation, Request,
};
use slab::Slab;

use crate::config::{Config, Replay};
use crate::controller::{Association, Instance, NamespaceFacts, Purpose};
use crate::failure::Failure;
use crate::queue_pair::{Finished, Outcome, Submission};
use crate::status::{self, Verdict};
use crate::streams::{Streams, Wish};

use part::{Pending, Shape};
pub use unflushed::Unflushed;

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(2);
/// A request that was left unanswered this often fails.
const MOST_TIMEOUTS: u32 = 3;
/// A request that the target puts off this often fails.
const MOST_RETRIES: u32 = 20;
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// How often `step` goes into `whole`.
fn times(whole: Duration, step: Duration) -> u32 {
    let times = whole.as_nanos() / step.as_nanos().max(1);
    u32::try_from(times).unwrap_or(u32::MAX)
}

/// Why no request is taken any more.
#[derive(Debug)]
struct Dead {
    kind: Option<ErrorKind>,
    why: String,
}

/// A remote namespace as one thread sees it. See the module's documentation.
#[derive(Debug)]
pub struct Session {
    config: Arc<Config>,
    pool: BufferPool,
    expected: NamespaceFacts,
    shape: Shape,
    association: Option<Association>,
    /// The last association that carried requests, of this session or before it: nothing may be left
    /// of it when the next does.
    predecessor: Option<Instance>,
    /// The association has been ready.
    established: bool,
    /// Since when there has been no ready association.
    lost_since: Option<Moment>,
    retry_at: Moment,
    backoff: Duration,
    dead: Option<Dead>,
    closing: bool,
    losses: u64,
    most_timeouts: u32,
    most_retries: u32,
    last_failure: Option<Failure>,
    requests: Slab<Pending>,
    /// Requests to be sent, in order.
    queue: VecDeque<usize>,
    /// Requests to be sent again at a moment.
    delayed: Vec<(Moment, usize)>,
    unflushed: Arc<Unflushed>,
    /// Acknowledged writes may be gone, and no flush has said so yet.
    doubt: bool,
    /// A completion in `done` says so.
    doubt_told: bool,
    done: Vec<Completion>,
}

impl Session {
    /// A session for the namespace that an earlier association found to be `expected`.
    pub fn new(
        now: Moment,
        config: Arc<Config>,
        expected: NamespaceFacts,
        unflushed: Arc<Unflushed>,
        pool: BufferPool,
    ) -> Self {
        let shape = Shape {
            nsid: expected.nsid,
            geometry: expected.geometry,
            writes_zeroes: expected.writes_zeroes,
        };
        let (most_timeouts, most_retries) = match config.patient {
            true => (
                times(config.loss, config.timeout).max(MOST_TIMEOUTS),
                times(config.loss, RETRY_DELAY).max(MOST_RETRIES),
            ),
            false => (MOST_TIMEOUTS, MOST_RETRIES),
        };
        Self {
            config,
            pool,
            expected,
            shape,
            association: None,
            predecessor: None,
            established: false,
            lost_since: Some(now),
            retry_at: now,
            backoff: Duration::ZERO,
            dead: None,
            closing: false,
            losses: 0,
            most_timeouts,
            most_retries,
            last_failure: None,
            requests: Slab::new(),
            queue: VecDeque::new(),
            delayed: Vec::new(),
            unflushed,
            doubt: false,
            doubt_told: false,
            done: Vec::new(),
        }
    }

    /// The namespace's shape and promises.
    pub fn geometry(&self) -> Geometry {
        self.shape.geometry
    }

    /// How often an association that had been ready was lost.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// Whether requests are being carried out.
    pub fn is_ready(&self) -> bool {
        self.association.as_ref().is_some_and(Association::is_ready)
    }

    /// Takes a request that [`Checked`](ashlar_block::Checked) has let through.
    pub fn submit(&mut self, request: Request) {
        if self.shape.is_nothing(&request) {
            return self.done.push(request.complete(Ok(())));
        }
        if let Some(dead) = &self.dead {
            let error = self.error(dead.kind.unwrap_or(ErrorKind::NotSent), &dead.why);
            return self.done.push(request.complete(Err(error)));
        }
        if self.doubt && request.op == Operation::Flush {
            // It was asked for after the loss, so it speaks for all that the loss may have taken.
            self.doubt_told = true;
            return self.fail_doubtful_flush(request);
        }
        let key = self.requests.insert(Pending::new(request));
        self.queue.push_back(key);
    }

    /// Makes progress and appends what has completed.
    pub fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        self.drive(now);
        self.take_finished(now);
        self.issue(now);
        done.append(&mut self.done);
        if self.doubt_told {
            (self.doubt, self.doubt_told) = (false, false);
        }
    }

    /// When [`poll`](Self::poll) must be called next.
    pub fn next_deadline(&self) -> Option<Moment> {
        let delayed = self.delayed.iter().map(|(at, _)| *at);
        let association = self
            .association
            .as_ref()
            .and_then(Association::next_deadline);
        let alive = self.dead.is_none() && !self.closing;
        let retry = (alive && self.association.is_none()).then_some(self.retry_at);
        let give_up = self
            .lost_since
            .filter(|_| alive)
            .map(|since| since + self.config.loss);
        delayed.chain(association).chain(retry).chain(give_up).min()
    }

    /// Ends the session: the controller is shut down in order, and what is outstanding fails.
    pub fn shutdown(&mut self, now: Moment) {
        self.closing = true;
        if let Some(association) = &mut self.association {
            association.shutdown(now);
        }
    }

    /// Whether a shutdown is complete.
    pub fn is_over(&self) -> bool {
        (self.closing || self.dead.is_some()) && self.association.is_none()
    }

    fn error(&self, kind: ErrorKind, why: &str) -> IoError {
        IoError::new(kind, format!("{}: {why}", self.config.peer()))
    }

    /// Looks after the association: ends, losses, reconnects.
    fn drive(&mut self, now: Moment) {
        if let Some(association) = &mut self.association {
            association.poll(now);
            if association.is_ready() && !self.established {
                self.welcome();
            }
        }
        if let Some(association) = self
            .association
            .take_if(|association| association.is_over())
        {
            self.bury(now, association);
        }
        let expired = |since: Moment| since + self.config.loss <= now;
        if self.dead.is_none() && !self.closing && self.lost_since.is_some_and(expired) {
            let after = self.config.loss.as_millis();
            let why = match &self.last_failure {
                Some(failure) => format!("no connection for {after} ms: {failure}"),
                None => format!("no connection for {after} ms"),
            };
            self.die(None, why);
        }
        if self.association.is_none()
            && self.dead.is_none()
            && !self.closing
            && self.retry_at <= now
        {
            self.established = false;
            let (config, pool) = (self.config.clone(), self.pool.clone());
            let association = Association::new(now, config, Purpose::Namespace, pool);
            self.association = Some(association.after(self.predecessor));
        }
    }

    /// Takes over from a process that used this association and has died. To be called before the
    /// first poll.
    pub fn take_over(&mut self, predecessor: Option<Instance>) {
        self.predecessor = predecessor;
    }

    /// The association that carries requests, or did last: what a process that takes over must end.
    pub fn instance(&self) -> Option<Instance> {
        self.predecessor
    }

    /// Checks that the namespace that answers is ours.
    fn welcome(&mut self) {
        let Some(found) = self.association.as_ref().and_then(Association::namespace) else {
            return;
        };
        let instance = self.association.as_ref().and_then(Association::instance);
        let (new, old) = (found.geometry, self.shape.geometry);
        let weaker = new.atomic_blocks < old.atomic_blocks
            || new.max_blocks < old.max_blocks
            || (new.volatile_cache && !old.volatile_cache)
            || (self.shape.writes_zeroes && !found.writes_zeroes)
            || (old.deallocates && !new.deallocates);
        let why = if !found.identity.continues(&self.expected.identity) {
            Some(format!(
                "another namespace answers at {}",
                self.config.address
            ))
        } else if weaker {
            Some("the namespace promises less than it did before".to_owned())
        } else {
            None
        };
        self.established = true;
        match why {
            None => {
                self.shape.nsid = found.nsid;
                self.predecessor = instance;
                (self.lost_since, self.backoff) = (None, Duration::ZERO);
            }
            Some(why) => {
                if let Some(association) = &mut self.association {
                    association.fail(Failure::Unusable(why.clone()));
                }
                self.die(None, why);
            }
        }
    }

    /// Takes leave of an association and decides what becomes of its commands.
    fn bury(&mut self, now: Moment, mut association: Association) {
        let failure = association.failure().cloned().unwrap_or(Failure::Closed);
        let mut finished = Vec::new();
        association.abandon(|one| finished.push(one));
        let was_ready = self.established && self.lost_since.is_none();
        self.established = false;
        for one in finished {
            self.settle(now, one, &failure);
        }
        if was_ready {
            self.losses += 1;
            self.lost_since = Some(now);
            self.backoff = Duration::ZERO;
            self.doubt |= self.shape.geometry.volatile_cache && self.unflushed.any();
        }
        if self.doubt {
            self.fail_queued_flushes();
        }
        self.retry_at = now + self.backoff;
        self.backoff = (self.backoff * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF);
        if self.closing {
            self.die(None, Failure::Shutdown.to_string());
        } else if !failure.may_pass() && !self.bears(&failure) {
            let kind = match failure {
                Failure::Command { status, .. } => Some(status::connect_kind(status)),
                _ => None,
            };
            self.die(kind, failure.to_string());
        }
        self.last_failure = Some(failure);
    }

    /// Whether a failure that is for good as the target says is waited out.
    fn bears(&self, failure: &Failure) -> bool {
        // There is a session only where the target has served us before.
        self.config.patient && matches!(failure, Failure::Command { .. })
    }

    /// Fails everything, now and from now on. Requests that may have been sent fail with
    /// `Disconnected`, others with `kind` or `NotSent`.
    fn die(&mut self, kind: Option<ErrorKind>, why: String) {
        if self.dead.is_some() {
            return;
        }
        if let Some(association) = &mut self.association {
            association.fail(Failure::Network(why.clone()));
        }
        let queued = self.queue.drain(..);
        let waiting: Vec<usize> = queued
            .chain(self.delayed.drain(..).map(|(_, key)| key))
            .collect();
        self.dead = Some(Dead { kind, why });
        for key in waiting {
            self.fail_dead(key);
        }
    }

    fn fail_dead(&mut self, key: usize) {
        let Some(dead) = &self.dead else { return };
        let sent = self.requests.get(key).is_some_and(|pending| pending.sent);
        let unsent = dead.kind.unwrap_or(ErrorKind::NotSent);
        let error = self.error(
            if sent {
                ErrorKind::Disconnected
            } else {
                unsent
            },
            &dead.why,
        );
        self.complete(key, Err(error));
    }

    fn take_finished(&mut self, now: Moment) {
        while let Some(finished) = self.association.as_mut().and_then(Association::finished) {
            self.settle(now, finished, &Failure::Closed);
        }
        let mut at = 0;
        while at < self.delayed.len() {
            if self.delayed[at].0 <= now {
                let (_, key) = self.delayed.swap_remove(at);
                self.queue.push_back(key);
            } else {
                at += 1;
            }
        }
    }

    /// Decides what becomes of a request whose command has ended.
    fn settle(&mut self, now: Moment, finished: Finished, failure: &Failure) {
        let key = finished.user as usize;
        let Some(pending) = self.requests.get_mut(key) else {
            return;
        };
        if pending.request.op.has_buffer() {
            pending.request.buffer = finished.buffer;
        }
        match finished.outcome {
            Outcome::Answered(completion) if completion.status().is_success() => {
                pending.done += pending.part;
                if pending.left() > 0 {
                    self.queue.push_back(key);
                } else {
                    self.acknowledge(key);
                }
            }
            Outcome::Answered(completion) => self.refused(now, key, completion.status()),
            Outcome::Lost { sent } => self.lost_request(key, sent, failure),
        }
    }

    fn acknowledge(&mut self, key: usize) {
        if self.shape.geometry.volatile_cache {
            let pending = &self.requests[key];
            match pending.request.op {
                Operation::Flush => self.unflushed.flushed(pending.flush),
                Operation::Write(Durability::Durable) | Operation::Read => {}
                Operation::WriteZeroes {
                    durability: Durability::Durable,
                    ..
                } => {}
                _ => self.unflushed.wrote(),
            }
        }
        self.complete(key, Ok(()));
    }

    fn refused(&mut self, now: Moment, key: usize, refusal: ashlar_nvme::Status) {
        let pending = &mut self.requests[key];
        let kind = match status::judge(pending.request.op, refusal) {
            Verdict::Retry(_) if pending.retries < self.most_retries && self.dead.is_none() => {
                pending.retries += 1;
                return self.delayed.push((now + RETRY_DELAY, key));
            }
            Verdict::Retry(kind) | Verdict::Fail(kind) => kind,
        };
        let why = format!("{}: {refusal}", pending.request.range);
        let error = self.error(kind, &why);
        self.complete(key, Err(error));
    }

    fn lost_request(&mut self, key: usize, sent: bool, failure: &Failure) {
        let pending = &mut self.requests[key];
        pending.sent |= sent;
        let timed_out = matches!(failure, Failure::Timeout { .. });
        pending.timeouts += u32::from(sent && timed_out);
        if self.dead.is_some() {
            return self.fail_dead(key);
        }
        let allowed = match (self.config.replay, pending.request.op) {
            _ if !sent => true,
            (Replay::All, _) => true,
            (Replay::Reads, op) => !op.modifies(),
            (Replay::None, _) => false,
        };
        if !allowed {
            let error = self.error(ErrorKind::Disconnected, &failure.to_string());
            self.complete(key, Err(error));
        } else if pending.timeouts >= self.most_timeouts {
            let error = self.error(ErrorKind::Timeout, &failure.to_string());
            self.complete(key, Err(error));
        } else {
            self.queue.push_front(key);
        }
    }

    fn fail_queued_flushes(&mut self) {
        let is_flush = |key: &usize| {
            let pending = self.requests.get(*key);
            pending.is_some_and(|pending| pending.request.op == Operation::Flush)
        };
        let delayed = self.delayed.iter().map(|(_, key)| *key);
        let flushes: Vec<usize> = self
            .queue
            .iter()
            .copied()
            .chain(delayed)
            .filter(is_flush)
            .collect();
        self.queue.retain(|key| !flushes.contains(key));
        self.delayed.retain(|(_, key)| !flushes.contains(key));
        for key in flushes {
            let request = self.requests.remove(key).request;
            self.fail_doubtful_flush(request);
        }
    }

    fn fail_doubtful_flush(&mut self, request: Request) {
        let why = "the connection was lost while writes were not flushed; they may be gone";
        let error = self.error(ErrorKind::Disconnected, why);
        self.done.push(request.complete(Err(error)));
    }

    fn complete(&mut self, key: usize, result: Result<(), IoError>) {
        if let Some(pending) = self.requests.try_remove(key) {
            self.done.push(pending.request.complete(result));
        }
    }

    /// Sends what is waiting, as far as there is room.
    fn issue(&mut self, now: Moment) {
        while !self.queue.is_empty() {
            let Some(association) = &mut self.association else {
                return;
            };
            let Some(queue) = association.roomiest().filter(|_| self.established) else {
                return;
            };
            let Some(key) = self.queue.pop_front() else {
                return;
            };
            let Some(pending) = self.requests.get_mut(key) else {
                continue;
            };
            if pending.request.op == Operation::Flush {
                pending.flush = self.unflushed.begin();
            }
            let (command, data) = match self.shape.next(pending, &self.pool) {
                Ok(next) => next,
                Err(error) => {
                    self.complete(key, Err(error));
                    continue;
                }
            };
            let submission = Submission {
                user: key as u64,
                command,
                data,
                timed: true,
            };
            if let Err(back) = association.submit(now, queue, submission) {
                let buffer = match back.data {
                    crate::queue_pair::Data::ToHost(buffer)
                    | crate::queue_pair::Data::ToController(buffer) => Some(buffer),
                    crate::queue_pair::Data::None => None,
                };
                if pending.request.op.has_buffer() {
                    pending.request.buffer = buffer;
                }
                self.queue.push_front(key);
                return;
            }
        }
    }
}

impl Streams for Session {
    fn streams(&self) -> usize {
        1 + usize::from(self.config.queues.max(1))
    }

    fn wish(&self, stream: usize) -> Wish {
        self.association
            .as_ref()
            .map_or(Wish::None, |one| one.wish(stream))
    }

    fn opened(&mut self, now: Moment, stream: usize) {
        if let Some(association) = &mut self.association {
            association.opened(now, stream);
        }
    }

    fn lost(&mut self, stream: usize, failure: Failure) {
        if let Some(association) = &mut self.association {
            association.lost(stream, failure);
        }
    }

    fn closed(&mut self, stream: usize) {
        if let Some(association) = &mut self.association {
            association.closed(stream);
        }
    }

    fn receive(&mut self, stream: usize, bytes: &[u8]) {
        if let Some(association) = &mut self.association {
            association.receive(stream, bytes);
        }
    }

    fn direct(&mut self, stream: usize, least: usize) -> Option<(IoBuffer, Range<usize>)> {
        self.association.as_mut()?.direct(stream, least)
    }

    fn direct_done(&mut self, stream: usize, buffer: IoBuffer, filled: usize) {
        if let Some(association) = &mut self.association {
            association.direct_done(stream, buffer, filled);
        }
    }

    fn transmit(&mut self, stream: usize, out: &mut Gather) {
        if let Some(association) = &mut self.association {
            association.transmit(stream, out);
        }
    }

    fn sent(&mut self, stream: usize, batch: &mut Gather) {
        match &mut self.association {
            Some(association) => association.sent(stream, batch),
            None => batch.clear(),
        }
    }
}
