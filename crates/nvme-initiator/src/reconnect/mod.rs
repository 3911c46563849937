//! A remote namespace that survives the loss of its connection, without I/O.
//!
//! A [`Session`] takes block requests, carries them out over an [`Association`], and makes a new
//! association when one is lost:
//!
//! 1. *Back off* (0, then 100 ms doubling to 2 s; anew when the last path is lost), connect, and check that
//!    the same namespace answers: UUID, NGUID, EUI64, size and block size, and no promise weakened. Otherwise
//!    every request fails for good.
//! 2. *Take over*: have the target end the lost association and wait until nothing of it is left
//!    (Cross-Controller Reset), or until its keep-alive has run out there. A target whose link went silent does not know that it is lost, and a
//!    write that it still has in a device could land after a newer one.
//! 3. *Replay* what was never sent, and of what was sent and not acknowledged what
//!    [`Replay`] allows. Requests in flight together have no order, so sending a write again is
//!    within the contract. The rest fails with `Disconnected`: the outcome is unknown.
//! 4. *Flushes*: the loss may have been a power loss of the target. If writes that were
//!    acknowledged but not flushed may have been in a volatile cache, every flush that covers them
//!    fails, once; the caller then knows, and the next flush is judged afresh.
//! 5. *Give up* after [`Config::loss`] without a path that can be used: every request fails, for good.
//!
//! With several portals ([`Config::others`]) each is a path with an association of its own, and requests
//! take the best: one that its target calls optimized (ANA), else non-optimized. One that is neither is
//! left alone until the target says otherwise. When a path is lost with writes under way, nothing that
//! writes is sent over another before the lost association has ended: a controller of another path says
//! so (Cross-Controller Reset), or the path itself when it is back, or its keep-alive has run out at the
//! target, two seconds and CQT included. What a target *answers*, with a refusal for the path's sake too,
//! has ended there, and may be sent over another path at once. Reads wait for nothing. A target that holds
//! commands while another path is better, and does not say a word for a second, is given up: it is stopped, or
//! cut off. What cannot know that the end has come, without a keep-alive, fails after [`Config::loss`] (`hold`).
//!
//! A session that is told its own node's portal takes that for a while though another is better (`prefer`); one whose
//! host was preempted ends (`fence`); portals come and go (`portals`).
//!
//! A request that the controller leaves unanswered three times fails with `Timeout`. One that is
//! [patient](Config::patient) goes on for [`Config::loss`], and does not take a refused Connect for an
//! answer either.

mod fence;
mod hold;
mod part;
mod path;
#[cfg(test)]
mod path_tests;
mod portals;
mod prefer;
mod report;
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
use crate::controller::{Association, NamespaceFacts};
use crate::failure::Failure;
use crate::queue_pair::{Finished, Outcome, Submission};
use crate::status::{self, Verdict};
use crate::streams::{Streams, Wish};

use fence::Vigil;
use part::{Pending, Shape};
use path::Path;
pub(crate) use portals::MOST_PORTALS;
pub use portals::PathInstance;
use prefer::Home;
pub use report::PathReport;
use report::Told;
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
    paths: Vec<Path>,
    /// Since when there has been no path that can be used.
    lost_since: Option<Moment>,
    dead: Option<Dead>,
    closing: bool,
    losses: u64,
    most_timeouts: u32,
    most_retries: u32,
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
    /// When it was polled last.
    polled: Moment,
    /// What was told of its paths.
    told: Told,
    vigil: Vigil,
    is_fenced: bool,
    home: Home,
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
        let paths = config.paths().into_iter();
        let paths = paths.map(|path| Path::new(now, path, shape)).collect();
        let (most_timeouts, most_retries) = match config.patient {
            true => (
                times(config.loss, config.timeout).max(MOST_TIMEOUTS),
                times(config.loss, RETRY_DELAY).max(MOST_RETRIES),
            ),
            false => (MOST_TIMEOUTS, MOST_RETRIES),
        };
        Self {
            paths,
            config,
            pool,
            expected,
            shape,
            lost_since: Some(now),
            dead: None,
            closing: false,
            losses: 0,
            most_timeouts,
            most_retries,
            requests: Slab::new(),
            queue: VecDeque::new(),
            delayed: Vec::new(),
            unflushed,
            doubt: false,
            doubt_told: false,
            done: Vec::new(),
            polled: now,
            told: Told::default(),
            vigil: Vigil::default(),
            is_fenced: false,
            home: Home::default(),
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
        let has_connection = |path: &Path| path.state().is_some();
        self.paths.iter().any(has_connection)
    }

    /// Whether all that it was asked for is answered.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
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
        self.polled = now;
        self.drive(now);
        self.take_finished(now);
        self.keep_vigil(now);
        self.issue(now);
        done.append(&mut self.done);
        if self.doubt_told {
            (self.doubt, self.doubt_told) = (false, false);
        }
    }

    /// When [`poll`](Self::poll) must be called next.
    pub fn next_deadline(&self) -> Option<Moment> {
        let delayed = self.delayed.iter().map(|(at, _)| *at);
        let alive = self.dead.is_none() && !self.closing;
        let paths = self.paths.iter();
        let paths = paths.filter_map(|path| path.next_deadline(self.polled, alive));
        let question = path::next_question(self.polled, &self.paths);
        let give_up = self.lost_since.map(|since| since + self.config.loss);
        delayed
            .chain(paths)
            .chain(question.filter(|_| alive))
            .chain(self.next_look().filter(|_| alive))
            .chain(give_up.filter(|_| alive))
            .min()
    }

    /// Ends the session: the controller is shut down in order, and what is outstanding fails.
    pub fn shutdown(&mut self, now: Moment) {
        self.closing = true;
        for path in &mut self.paths {
            if let Some(association) = &mut path.association {
                association.shutdown(now);
            }
        }
    }

    /// Whether a shutdown is complete.
    pub fn is_over(&self) -> bool {
        let gone = |path: &Path| path.association.is_none();
        (self.closing || self.dead.is_some()) && self.paths.iter().all(gone)
    }

    fn error(&self, kind: ErrorKind, why: &str) -> IoError {
        IoError::new(kind, format!("{}: {why}", self.config.peer()))
    }

    /// Looks after the associations: ends, losses, reconnects.
    fn drive(&mut self, now: Moment) {
        for at in 0..self.paths.len() {
            self.drive_path(now, at);
        }
        path::end_stale(now, &mut self.paths);
        let best = self.best_path(now);
        match best {
            Some(at) if self.may_use(at) => self.lost_since = None,
            _ if self.lost_since.is_none() => {
                self.lost_since = Some(now);
                self.paths.iter_mut().for_each(|path| path.hurry(now));
            }
            _ => {}
        }
        self.told.look(&self.paths, best);
        for (at, path) in self.paths.iter_mut().enumerate() {
            path.look_after(now, best.is_some_and(|best| best != at));
        }
        let expired = |since: Moment| since + self.config.loss <= now;
        if self.dead.is_none() && !self.closing && self.lost_since.is_some_and(expired) {
            self.die(None, self.no_path());
        }
        for path in &mut self.paths {
            let is_due = path.association.is_none() && path.is_tried() && path.retry_at <= now;
            if is_due && self.dead.is_none() && !self.closing {
                path.connect(now, &self.pool);
            }
        }
    }

    fn drive_path(&mut self, now: Moment, at: usize) {
        let path = &mut self.paths[at];
        if let Some(association) = &mut path.association {
            association.poll(now);
            if association.is_ready() && !path.established {
                self.welcome(at);
            }
        }
        let path = &mut self.paths[at];
        path.part(now);
        let over = path.association.take_if(|one| one.is_over());
        if let Some(association) = over {
            self.bury(now, at, association);
        }
    }

    /// Why nothing can be sent, for people.
    fn no_path(&self) -> String {
        let after = self.config.loss.as_millis();
        let paths: Vec<&Path> = self.paths.iter().filter(|path| !path.is_let_go()).collect();
        let troubles: Vec<String> = paths.iter().map(|path| path.trouble()).collect();
        match paths[..] {
            [one] if one.state().is_none() => match &one.last_failure {
                Some(failure) => format!("no connection for {after} ms: {failure}"),
                None => format!("no connection for {after} ms"),
            },
            _ => format!(
                "no path can be used for {after} ms: {}",
                troubles.join("; ")
            ),
        }
    }

    /// The path that commands take: the own node's while it is preferred, or of the best the first.
    fn best_path(&self, now: Moment) -> Option<usize> {
        if let Some(home) = self.home_path(now) {
            return Some(home);
        }
        let ranks = self.paths.iter().enumerate();
        let ranked = ranks.filter_map(|(at, path)| Some((path.rank(now)?, at)));
        ranked.min().map(|(_, at)| at)
    }

    /// Checks that the namespace that answers is ours.
    fn welcome(&mut self, at: usize) {
        let path = &mut self.paths[at];
        let Some(association) = &mut path.association else {
            return;
        };
        let Some(found) = association.namespace() else {
            return;
        };
        let (nsid, new, old) = (found.nsid, found.geometry, self.shape.geometry);
        let weaker = new.atomic_blocks < old.atomic_blocks
            || new.max_blocks < old.max_blocks
            || (new.volatile_cache && !old.volatile_cache)
            || (self.shape.writes_zeroes && !found.writes_zeroes)
            || (old.deallocates && !new.deallocates);
        let why = if !found.identity.continues(&self.expected.identity) {
            format!("another namespace answers at {}", path.config.address)
        } else if weaker {
            "the namespace promises less than it did before".to_owned()
        } else {
            return path.settle(nsid);
        };
        association.fail(Failure::Unusable(why));
    }

    /// Takes leave of an association and decides what becomes of its commands.
    fn bury(&mut self, now: Moment, at: usize, mut association: Association) {
        let failure = association.failure().cloned().unwrap_or(Failure::Closed);
        let mut finished = Vec::new();
        association.abandon(|one| finished.push(one));
        let is_lost_write = |one: &Finished| {
            let pending = self.requests.get(one.user as usize);
            let writes = pending.is_some_and(|pending| pending.request.op.modifies());
            writes && matches!(one.outcome, Outcome::Lost { sent: true })
        };
        let writes_lost = finished.iter().any(is_lost_write);
        let path = &mut self.paths[at];
        let was_ready = std::mem::take(&mut path.established);
        path.asked = None;
        if was_ready {
            path.note_loss(now, path::quiesce_time(&association));
        }
        if writes_lost {
            path.become_stale(now);
        }
        // In their order: the first of them must be the first again.
        for one in finished {
            self.settle(now, at, one, &failure);
        }
        let path = &mut self.paths[at];
        if was_ready {
            self.losses += 1;
            path.backoff = Duration::ZERO;
            let unflushed = path.has_written && self.unflushed.any();
            self.doubt |= self.shape.geometry.volatile_cache && unflushed;
        }
        path.back_off(now);
        path.last_failure = Some(failure.clone());
        self.told.note_change();
        if self.doubt {
            self.fail_queued_flushes();
        }
        if self.closing {
            if self.paths.iter().all(|path| path.association.is_none()) {
                self.die(None, Failure::Shutdown.to_string());
            }
        } else if !failure.may_pass() && !self.bears(&failure) {
            self.bar(at, &failure);
        }
    }

    /// A path is not tried again; without any other, everything fails.
    fn bar(&mut self, at: usize, failure: &Failure) {
        self.paths[at].barred = true;
        if self
            .paths
            .iter()
            .all(|path| path.barred || path.is_let_go())
        {
            let kind = match failure {
                Failure::Command { status, .. } => Some(status::connect_kind(*status)),
                _ => None,
            };
            self.die(kind, failure.to_string());
        }
    }

    /// Whether a failure that is for good as the target says is waited out.
    fn bears(&self, failure: &Failure) -> bool {
        // There is a session only where the target has served us before.
        let waits = self.config.patient || self.paths.len() > 1;
        waits && matches!(failure, Failure::Command { .. })
    }

    /// Fails everything, now and from now on. Requests that may have been sent fail with
    /// `Disconnected`, others with `kind` or `NotSent`.
    fn die(&mut self, kind: Option<ErrorKind>, why: String) {
        if self.dead.is_some() {
            return;
        }
        for association in self
            .paths
            .iter_mut()
            .filter_map(|path| path.association.as_mut())
        {
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
        let unsent = dead.kind.unwrap_or(ErrorKind::NotSent);
        let error = self.error(self.kind_of(key, unsent), &dead.why);
        self.complete(key, Err(error));
    }

    /// How a request fails that will not be sent any more: with `unsent` if nothing of it has changed anything.
    fn kind_of(&self, key: usize, unsent: ErrorKind) -> ErrorKind {
        let pending = self.requests.get(key);
        let has_begun = |one: &Pending| one.sent || (one.done > 0 && one.request.op.modifies());
        match pending.is_some_and(has_begun) {
            true => ErrorKind::Disconnected,
            false => unsent,
        }
    }

    fn take_finished(&mut self, now: Moment) {
        for at in 0..self.paths.len() {
            while let Some(association) = &mut self.paths[at].association
                && let Some(finished) = association.finished()
            {
                self.settle(now, at, finished, &Failure::Closed);
            }
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
    fn settle(&mut self, now: Moment, at: usize, finished: Finished, failure: &Failure) {
        if finished.user == fence::REPORT {
            return self.reported(now, at, &finished);
        }
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
                let (is_part, is_read) =
                    (pending.left() > 0, pending.request.op == Operation::Read);
                if self.dead.is_some() && (is_part || is_read) {
                    // The rest is not sent, and what was read may be another's by now.
                    self.fail_dead(key);
                } else if is_part {
                    self.queue.push_back(key);
                } else {
                    self.acknowledge(key);
                }
            }
            Outcome::Answered(completion) => self.refused(now, at, key, completion.status()),
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

    fn refused(&mut self, now: Moment, at: usize, key: usize, refusal: ashlar_nvme::Status) {
        let pending = &mut self.requests[key];
        let kind = match status::judge(pending.request.op, refusal) {
            Verdict::Retry(_) if pending.retries < self.most_retries && self.dead.is_none() => {
                pending.retries += 1;
                return self.delayed.push((now + RETRY_DELAY, key));
            }
            Verdict::OtherPath(_, state)
                if self.dead.is_none() && pending.may_wait(now, self.config.loss) =>
            {
                self.paths[at].avoid(now, state);
                return self.queue.push_front(key);
            }
            Verdict::Retry(kind) | Verdict::OtherPath(kind, _) | Verdict::Fail(kind) => kind,
        };
        let why = format!("{}: {refusal}", pending.request.range);
        let error = self.error(kind, &why);
        self.complete(key, Err(error));
        if self.config.holds_reservation && refusal.is(ashlar_nvme::Status::RESERVATION_CONFLICT) {
            self.fence("another host has taken the volume over".into());
        }
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
        if self.queue.is_empty() {
            return;
        }
        self.fail_held(now);
        let Some(at) = self.best_path(now).filter(|at| self.may_use(*at)) else {
            return;
        };
        self.note_home(now, at);
        while let Some(next) = self.next_to_send() {
            let Some(path) = self.paths.get_mut(at) else {
                return;
            };
            let Some(association) = &mut path.association else {
                return;
            };
            let Some(queue) = association.roomiest() else {
                return;
            };
            let Some(key) = self.queue.remove(next) else {
                return;
            };
            let Some(pending) = self.requests.get_mut(key) else {
                continue;
            };
            if pending.request.op == Operation::Flush {
                pending.flush = self.unflushed.begin();
            }
            path.has_written |= pending.request.op.modifies();
            let (command, data) = match path.shape.next(pending, &self.pool) {
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

    /// Streams of one path.
    fn streams_a_path(&self) -> usize {
        1 + usize::from(self.config.queues.max(1))
    }

    /// The association that a stream is of, and the stream's number there.
    fn of_stream(&mut self, stream: usize) -> Option<(&mut Association, usize)> {
        let each = self.streams_a_path();
        let path = self.paths.get_mut(stream / each)?;
        path.association.as_mut().map(|one| (one, stream % each))
    }
}

impl Streams for Session {
    fn streams(&self) -> usize {
        self.streams_a_path() * self.paths.len()
    }

    fn wish(&self, stream: usize) -> Wish {
        let each = self.streams_a_path();
        let path = self.paths.get(stream / each);
        let association = path.and_then(|path| path.association.as_ref());
        association.map_or(Wish::None, |one| one.wish(stream % each))
    }

    fn opened(&mut self, now: Moment, stream: usize) {
        if let Some((association, stream)) = self.of_stream(stream) {
            association.opened(now, stream);
        }
    }

    fn lost(&mut self, stream: usize, failure: Failure) {
        if let Some((association, stream)) = self.of_stream(stream) {
            association.lost(stream, failure);
        }
    }

    fn closed(&mut self, stream: usize) {
        if let Some((association, stream)) = self.of_stream(stream) {
            association.closed(stream);
        }
    }

    fn receive(&mut self, stream: usize, bytes: &[u8]) {
        if let Some((association, stream)) = self.of_stream(stream) {
            association.receive(stream, bytes);
        }
    }

    fn direct(&mut self, stream: usize, least: usize) -> Option<(IoBuffer, Range<usize>)> {
        let (association, stream) = self.of_stream(stream)?;
        association.direct(stream, least)
    }

    fn direct_done(&mut self, stream: usize, buffer: IoBuffer, filled: usize) {
        if let Some((association, stream)) = self.of_stream(stream) {
            association.direct_done(stream, buffer, filled);
        }
    }

    fn transmit(&mut self, stream: usize, out: &mut Gather) {
        if let Some((association, stream)) = self.of_stream(stream) {
            association.transmit(stream, out);
        }
    }

    fn sent(&mut self, stream: usize, batch: &mut Gather) {
        match self.of_stream(stream) {
            Some((association, stream)) => association.sent(stream, batch),
            None => batch.clear(),
        }
    }
}
