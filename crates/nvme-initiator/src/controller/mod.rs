//! An association with a controller, without I/O: an admin queue and, for a namespace, I/O queues,
//! each a stream; from the first Connect to the orderly shutdown.
//!
//! ```text
//! admin stream ─▶ Connect ─▶ CAP, VS, CC ─▶ enable, ready ─▶ Identify
//!     ─▶ (the end of the association before) ─▶ queues, events
//!     ─▶ I/O streams ─▶ Connect each ─▶ Ready (keep-alive, events) ─▶ CC.SHN ─▶ closed
//! ```
//!
//! Any failure of any stream ends the whole association, as NVMe over Fabrics has it: a controller
//! does not survive the loss of its admin queue, and a host that lost an I/O queue knows too little.

mod admin;
mod bring_up;
pub mod discovery;
mod facts;
mod paths;
mod succession;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BufferPool, IoBuffer, Moment};
use ashlar_nvme::Command;

use crate::config::Config;
use crate::failure::Failure;
use crate::queue_pair::{Data, Finished, QueuePair, Settings, Submission};
use crate::streams::{Streams, Wish};

use bring_up::Step;
pub use facts::{ControllerFacts, Identity, NamespaceFacts};
pub use succession::{EndOfOther, Instance, Predecessor, end_of_other};

/// Admin commands outstanding: bring-up, keep-alive, an event request, the owner's calls.
const ADMIN_DEPTH: u16 = 31;
/// The stream of the admin queue.
const ADMIN: usize = 0;
/// How long an orderly shutdown may take before the connection is simply closed.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// What an association is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Admin commands only: discovery, identify.
    Admin,
    /// A namespace with I/O queues.
    Namespace,
    /// To be told of changes by a discovery service.
    Discovery,
}

#[derive(Debug)]
enum Stream {
    /// Not used (yet).
    Idle,
    /// To be connected.
    Opening,
    Up(Box<QueuePair>),
    /// Gone for good; what it was may hold finished commands.
    Ended(Option<Box<QueuePair>>),
}

/// An association. See the module's documentation.
#[derive(Debug)]
pub struct Association {
    config: Arc<Config>,
    purpose: Purpose,
    pool: BufferPool,
    streams: Vec<Stream>,
    failure: Option<Failure>,
    step: Step,
    /// A command of the current step is outstanding.
    waiting: bool,
    /// The current step goes on at this moment.
    pause: Option<Moment>,
    /// The current step fails at this moment.
    step_deadline: Option<Moment>,
    cntlid: u16,
    cap: ashlar_nvme::fabrics::Cap,
    cc: ashlar_nvme::fabrics::Cc,
    version: u32,
    controller: Option<Box<ControllerFacts>>,
    nsid: u32,
    namespace: Option<NamespaceFacts>,
    /// How the namespace is reached, as the controller told last; `None` if it tells nothing of it.
    path: Option<ashlar_nvme::log::AnaState>,
    /// Since when.
    path_since: Moment,
    /// Whether the ANA log page is being read.
    reading: paths::Reading,
    io_connected: usize,
    keep_alive: Option<admin::KeepAlive>,
    /// The event whose log page is being read.
    event: Option<ashlar_nvme::event::AsyncEvent>,
    /// The discovery log page has changed since it was asked for last.
    discovery_changed: bool,
    /// The controller has told of another host's doing about a reservation since it was asked for last.
    reservation_changed: bool,
    called: std::collections::VecDeque<Finished>,
    /// The lost association from which this one takes over, until nothing is left of it.
    predecessor: Option<Predecessor>,
}

impl Association {
    /// An association to be made as `config` says; buffers for admin data come from `pool`.
    pub fn new(now: Moment, config: Arc<Config>, purpose: Purpose, pool: BufferPool) -> Self {
        let queues = match purpose {
            Purpose::Admin | Purpose::Discovery => 0,
            Purpose::Namespace => usize::from(config.queues.max(1)),
        };
        let mut streams = vec![Stream::Opening];
        streams.resize_with(1 + queues, || Stream::Idle);
        Self {
            purpose,
            pool,
            streams,
            failure: None,
            step: Step::OpenAdmin,
            waiting: false,
            pause: None,
            step_deadline: Some(now + config.timeout),
            cntlid: 0,
            cap: Default::default(),
            cc: Default::default(),
            version: 0,
            controller: None,
            nsid: config.nsid.unwrap_or(0),
            namespace: None,
            path: None,
            path_since: Moment::ORIGIN,
            reading: paths::Reading::Not,
            io_connected: 0,
            keep_alive: None,
            event: None,
            discovery_changed: false,
            reservation_changed: false,
            called: Default::default(),
            predecessor: None,
            config,
        }
    }

    /// Whether commands are taken.
    pub fn is_ready(&self) -> bool {
        self.step == Step::Ready && self.failure.is_none()
    }

    /// What the association is doing, or was doing when it failed, for people.
    pub fn stage(&self) -> &'static str {
        self.step.name()
    }

    /// Why the association has ended, once it has.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Whether it has ended and nothing of it is left outside.
    pub fn is_over(&self) -> bool {
        let gone = |stream: &Stream| matches!(stream, Stream::Idle | Stream::Ended(_));
        self.failure.is_some() && self.streams.iter().all(gone)
    }

    /// What the controller told about itself.
    pub fn controller(&self) -> Option<&ControllerFacts> {
        self.controller.as_deref()
    }

    /// What the controller told about the namespace.
    pub fn namespace(&self) -> Option<&NamespaceFacts> {
        self.namespace.as_ref()
    }

    /// How many I/O queues there are: streams 1 to this.
    pub fn io_queues(&self) -> usize {
        self.io_connected
    }

    /// Ends the association.
    pub fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() {
            self.failure = Some(failure);
        }
    }

    /// Takes an I/O command for queue `queue` (from 1); gives it back if there is no room.
    ///
    /// # Errors
    /// The submission itself.
    pub fn submit(
        &mut self,
        now: Moment,
        queue: usize,
        submission: Submission,
    ) -> Result<(), Submission> {
        match self.streams.get_mut(queue) {
            Some(Stream::Up(pair)) if queue != ADMIN && self.step == Step::Ready => {
                pair.submit(now, submission)
            }
            _ => Err(submission),
        }
    }

    /// The I/O queue with the fewest outstanding commands that has room.
    pub fn roomiest(&self) -> Option<usize> {
        if !self.is_ready() {
            return None;
        }
        let pairs = self.streams.iter().enumerate().skip(1);
        pairs
            .filter_map(|(at, stream)| match stream {
                Stream::Up(pair) if pair.has_room() => Some((pair.outstanding(), at)),
                _ => None,
            })
            .min()
            .map(|(_, at)| at)
    }

    /// The next I/O command that has ended.
    pub fn finished(&mut self) -> Option<Finished> {
        self.streams[1..]
            .iter_mut()
            .find_map(|stream| match stream {
                Stream::Up(pair) => pair.finished(),
                _ => None,
            })
    }

    /// Whether an I/O command is outstanding.
    pub fn is_busy(&self) -> bool {
        let busy = |stream: &Stream| matches!(stream, Stream::Up(pair) if pair.outstanding() > 0);
        self.streams[1..].iter().any(busy)
    }

    /// Submits an admin command of the owner's; its answer comes by [`called`](Self::called).
    ///
    /// # Errors
    /// The submission's data, if the admin queue has no room or the association is not ready.
    pub fn call(&mut self, now: Moment, command: Command, data: Data) -> Result<(), Data> {
        if !self.is_ready() {
            return Err(data);
        }
        self.submit_admin(now, admin::CALL, command, data)
    }

    /// The next answer to a [`call`](Self::call).
    pub fn called(&mut self) -> Option<Finished> {
        self.called.pop_front()
    }

    /// A buffer for the data of an admin command.
    ///
    /// # Errors
    /// The pool is exhausted.
    pub fn buffer(&self, bytes: usize) -> Result<IoBuffer, Failure> {
        let buffer = self.pool.get(bytes);
        buffer.ok_or_else(|| Failure::Network("no buffer for an admin command is left".into()))
    }

    /// Starts the orderly shutdown; I/O commands that are outstanding are lost.
    pub fn shutdown(&mut self, now: Moment) {
        if self.failure.is_some() || self.step.is_shutdown() {
            return;
        }
        if self.step < Step::IdentifyController {
            return self.fail(Failure::Shutdown);
        }
        self.step = Step::AskShutdown;
        self.waiting = false;
        self.pause = None;
        self.step_deadline = Some(now + SHUTDOWN_LIMIT);
        self.advance(now);
    }

    /// Makes progress: takes answers in, issues what is next, looks at the time.
    pub fn poll(&mut self, now: Moment) {
        for stream in &mut self.streams {
            let Stream::Up(pair) = stream else { continue };
            pair.check_time(now);
            if let Some(failure) = pair.failure()
                && self.failure.is_none()
            {
                self.failure = Some(failure.clone());
            }
        }
        if self.failure.is_none() {
            self.take_admin_answers(now);
            self.check_step_time(now);
            self.advance(now);
            self.keep_alive(now);
        }
    }

    /// When [`poll`](Self::poll) must be called next.
    pub fn next_deadline(&self) -> Option<Moment> {
        if self.failure.is_some() {
            return None;
        }
        let pairs = self.streams.iter().filter_map(|stream| match stream {
            Stream::Up(pair) => pair.next_deadline(),
            _ => None,
        });
        let keep_alive = self.keep_alive.as_ref().map(|keep| keep.next());
        pairs
            .chain(self.pause)
            .chain(self.step_deadline)
            .chain(keep_alive)
            .min()
    }

    /// Takes every I/O command out of an association that is over.
    pub fn abandon(&mut self, mut each: impl FnMut(Finished)) {
        for stream in &mut self.streams[1..] {
            if let Stream::Ended(Some(pair)) = stream {
                pair.abandon(&mut each);
            }
        }
    }

    fn pair(&mut self, stream: usize) -> Option<&mut QueuePair> {
        match self.streams.get_mut(stream)? {
            Stream::Up(pair) => Some(pair),
            _ => None,
        }
    }

    fn settings(&self, stream: usize) -> Settings {
        let facts = self.controller.as_deref();
        Settings {
            digests: self.config.digests,
            depth: if stream == ADMIN {
                ADMIN_DEPTH
            } else {
                self.io_depth()
            },
            timeout: self.config.timeout,
            in_capsule: facts.map_or(0, |facts| facts.in_capsule),
            admin: stream == ADMIN,
        }
    }

    /// Commands outstanding on an I/O queue. One entry of the queue stays empty, or head and tail
    /// could not tell full from empty.
    fn io_depth(&self) -> u16 {
        let entries = self.cap.max_queue_entries().saturating_sub(1).max(1);
        let most = self
            .controller
            .as_deref()
            .and_then(|facts| facts.max_commands);
        let wanted = u32::from(self.config.depth).min(entries);
        wanted.min(u32::from(most.unwrap_or(u16::MAX)).max(1)) as u16
    }
}

impl Streams for Association {
    fn streams(&self) -> usize {
        self.streams.len()
    }

    fn wish(&self, stream: usize) -> Wish {
        match self.streams.get(stream) {
            None | Some(Stream::Idle | Stream::Ended(_)) => Wish::None,
            Some(_) if self.failure.is_some() => Wish::Close,
            Some(Stream::Opening) => Wish::Open,
            Some(Stream::Up(_)) => Wish::None,
        }
    }

    fn opened(&mut self, now: Moment, stream: usize) {
        let settings = self.settings(stream);
        if let Some(slot @ Stream::Opening) = self.streams.get_mut(stream) {
            *slot = Stream::Up(Box::new(QueuePair::new(now, settings)));
            self.connect_queue(now, stream);
        }
    }

    fn lost(&mut self, stream: usize, failure: Failure) {
        if let Some(pair) = self.pair(stream) {
            pair.fail(failure.clone());
        }
        self.fail(failure);
    }

    fn closed(&mut self, stream: usize) {
        let Some(slot) = self.streams.get_mut(stream) else {
            return;
        };
        *slot = match std::mem::replace(slot, Stream::Idle) {
            Stream::Up(pair) => Stream::Ended(Some(pair)),
            Stream::Ended(pair) => Stream::Ended(pair),
            Stream::Idle | Stream::Opening => Stream::Ended(None),
        };
        self.fail(Failure::Closed);
    }

    fn receive(&mut self, stream: usize, bytes: &[u8]) {
        if let Some(pair) = self.pair(stream) {
            pair.receive(bytes);
        }
    }

    fn direct(
        &mut self,
        stream: usize,
        least: usize,
    ) -> Option<(IoBuffer, std::ops::Range<usize>)> {
        self.pair(stream)?.direct(least)
    }

    fn direct_done(&mut self, stream: usize, buffer: IoBuffer, filled: usize) {
        if let Some(pair) = self.pair(stream) {
            pair.direct_done(buffer, filled);
        }
    }

    fn transmit(&mut self, stream: usize, out: &mut ashlar_block::Gather) {
        if let Some(pair) = self.pair(stream) {
            pair.transmit(out);
        }
    }

    fn sent(&mut self, stream: usize, batch: &mut ashlar_block::Gather) {
        match self.pair(stream) {
            Some(pair) => pair.sent(batch),
            None => batch.clear(),
        }
    }
}
