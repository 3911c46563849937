use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ashlar_block::{AssociationId, Moment};
use ashlar_nvme::Status;
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::fabrics::{Cc, Csts, Shutdown};
use ashlar_nvme::log::ErrorInformation;
use ashlar_nvme::reservation::Notification;
use tracing::info;

use crate::namespace::Namespace;
use crate::pulse::Pulse;
use crate::reservation::Known;
use crate::subsystem::{Host, Subsystem};

/// Most I/O queues a controller offers.
pub(crate) const MAX_IO_QUEUES: u16 = 128;
/// Events kept for a host that has no request outstanding.
const MAX_PENDING_EVENTS: usize = 16;
/// Entries of the error log (ELPE plus one).
const ERROR_ENTRIES: usize = 64;
/// Reservation notifications kept for a host that does not read them; the page counts no more.
const MOST_NOTIFICATIONS: usize = 255;

/// Which subsystem a controller belongs to.
#[derive(Clone)]
pub(crate) enum Role {
    /// The discovery subsystem.
    Discovery,
    /// A subsystem with namespaces.
    Io(Arc<Subsystem>),
}

/// What tells a controller from all others that have or had its id (CIU and CIRN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) uniquifier: u8,
    pub(crate) number: u64,
}

impl Instance {
    /// The uniquifier is never 0, which would mean that there is none.
    pub(crate) fn new(number: u64) -> Self {
        Self {
            uniquifier: (number % 255) as u8 + 1,
            number,
        }
    }
}

/// What a controller is known by from its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControllerName {
    pub(crate) id: u16,
    pub(crate) instance: Instance,
}

/// What became of a claim on an I/O queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is the caller's.
    Granted,
    /// Its last connection has ended, but commands are still being executed.
    Draining,
    /// A connection has it.
    Taken,
    /// The host has not been granted as many queues.
    BeyondGrant,
}

/// An association between a host and a subsystem. Its queues live on several cores and share this.
pub(crate) struct Controller {
    pub(crate) id: u16,
    pub(crate) host: Arc<Host>,
    pub(crate) role: Role,
    pub(crate) instance: Instance,
    alive: AtomicBool,
    /// Connections that carry its queues, closed ones with commands in devices included.
    connections: AtomicUsize,
    /// The target has ended it: its connections may answer what devices have.
    dismissed: AtomicBool,
    ready: AtomicBool,
    /// The host wants writes acknowledged from the volatile cache (feature 06h).
    write_cache: AtomicBool,
    /// The host wants nothing handed on to another target (feature C0h).
    here_only: AtomicBool,
    keep_alive_ms: AtomicU32,
    /// What its host may do to each namespace, as it was found out last.
    known: Box<[Known]>,
    last_seen: AtomicU64,
    pub(crate) pulse: Pulse,
    /// How often the host has disabled or shut down the controller: queues of before must go.
    resets: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) cc: Cc,
    pub(crate) csts: Csts,
    /// Connected I/O queues; true while one only drains.
    queues: BTreeMap<u16, bool>,
    /// I/O queues granted by Set Features 07h.
    pub(crate) granted_queues: Option<u16>,
    /// Which asynchronous events the host wants (feature 0Bh).
    pub(crate) event_mask: u32,
    /// Features that are remembered and change nothing.
    pub(crate) plain: BTreeMap<u8, u32>,
    /// Events that the host has not been told.
    events: VecDeque<AsyncEvent>,
    /// Events that came while it wanted no such, and it has not looked into.
    masked: Vec<AsyncEvent>,
    /// Events it was told and has not looked into: not told again until it has.
    told: Vec<AsyncEvent>,
    /// An event is to come, whether or not anything has changed: the request behind it proves that the host is there.
    wants_proof: bool,
    /// Namespaces that changed since the host last looked.
    changed: BTreeSet<u32>,
    /// What others have done to the host's reservations, and it has not read.
    notifications: VecDeque<(u32, Notification)>,
    /// How many there were.
    notified: u64,
    /// What it does not want to be told, by namespace (feature 82h).
    pub(crate) notification_masks: BTreeMap<u32, u32>,
    errors: VecDeque<ErrorInformation>,
    error_count: u64,
    media_errors: u64,
}

impl Controller {
    pub(crate) fn new(
        name: ControllerName,
        role: Role,
        host: Arc<Host>,
        keep_alive_ms: u32,
        now: Moment,
    ) -> Self {
        let ControllerName { id, instance } = name;
        let namespaces = match &role {
            Role::Io(subsystem) => subsystem.namespaces.len(),
            Role::Discovery => 0,
        };
        Self {
            known: (0..namespaces).map(|_| Known::default()).collect(),
            id,
            host,
            role,
            instance,
            alive: AtomicBool::new(true),
            connections: AtomicUsize::new(0),
            dismissed: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            write_cache: AtomicBool::new(true),
            here_only: AtomicBool::new(false),
            keep_alive_ms: AtomicU32::new(keep_alive_ms),
            last_seen: AtomicU64::new(now.as_nanos()),
            pulse: Pulse::default(),
            resets: AtomicU32::new(0),
            state: Mutex::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What devices know it by: one for all its queues.
    pub(crate) fn association(&self) -> AssociationId {
        AssociationId(self.instance.number)
    }

    /// A connection carries a queue of it from now on.
    pub(crate) fn join(&self) {
        self.connections.fetch_add(1, Ordering::AcqRel);
    }

    /// A connection that carried a queue of it is gone. True if the association has ended and nothing is
    /// left of it.
    pub(crate) fn part(&self) -> bool {
        self.connections.fetch_sub(1, Ordering::AcqRel) == 1 && !self.is_alive()
    }

    /// Whether the association still exists.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Ends the association; true for the first caller.
    pub(crate) fn end(&self) -> bool {
        let was_alive = self.alive.swap(false, Ordering::AcqRel);
        if let (true, Role::Io(subsystem)) = (was_alive, &self.role) {
            let (host, subsystem) = (&self.host.nqn, &subsystem.nqn);
            match self.is_dismissed() {
                true => info!(
                    ?host,
                    subsystem, "host {host:?} was sent away from {subsystem}"
                ),
                false => info!(?host, subsystem, "host {host:?} has left {subsystem}"),
            }
        }
        was_alive
    }

    /// Ends the association because the host may not be here any more.
    pub(crate) fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Release);
        self.end();
    }

    /// Whether it was the target that ended the association.
    pub(crate) fn is_dismissed(&self) -> bool {
        self.dismissed.load(Ordering::Acquire)
    }

    /// Whether the host has enabled the controller.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn write_cache(&self) -> bool {
        self.write_cache.load(Ordering::Relaxed)
    }

    pub(crate) fn set_write_cache(&self, on: bool) {
        self.write_cache.store(on, Ordering::Relaxed);
    }

    pub(crate) fn here_only(&self) -> bool {
        self.here_only.load(Ordering::Relaxed)
    }

    pub(crate) fn set_here_only(&self, on: bool) {
        self.here_only.store(on, Ordering::Relaxed);
    }

    pub(crate) fn keep_alive_ms(&self) -> u32 {
        self.keep_alive_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn set_keep_alive_ms(&self, ms: u32) {
        self.keep_alive_ms.store(ms, Ordering::Relaxed);
    }

    /// Notes a sign of life.
    pub(crate) fn touch(&self, now: Moment) {
        self.last_seen.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// When the keep-alive timer runs out; `None` if the host wants none.
    pub(crate) fn expires(&self) -> Option<Moment> {
        let ms = self.keep_alive_ms();
        let last_seen = Moment::from_nanos(self.last_seen.load(Ordering::Relaxed));
        (ms > 0).then(|| last_seen + Duration::from_millis(u64::from(ms)))
    }

    /// Applies a write of CC. True when the I/O queues must go: the host disabled or shut down the
    /// controller.
    pub(crate) fn configure(&self, cc: Cc) -> bool {
        let mut state = self.state();
        let was_enabled = state.cc.enabled();
        state.cc = cc;
        let shut_down = cc.shutdown() != Shutdown::None;
        let ready = if cc.enabled() { Csts::READY } else { 0 };
        let shutdown = if shut_down {
            Csts::SHUTDOWN_COMPLETE
        } else {
            0
        };
        state.csts = Csts(ready | shutdown);
        self.ready
            .store(cc.enabled() && !shut_down, Ordering::Release);
        if was_enabled && !cc.enabled() {
            state.granted_queues = None;
            state.event_mask = 0;
            state.events.clear();
            state.masked.clear();
            state.told.clear();
            state.wants_proof = false;
            state.changed.clear();
            state.notifications.clear();
            state.notification_masks.clear();
        }
        let must_go = (was_enabled && !cc.enabled()) || shut_down;
        if must_go {
            self.resets.fetch_add(1, Ordering::AcqRel);
            state.queues.values_mut().for_each(|drains| *drains = true);
        }
        must_go
    }

    /// How often the I/O queues had to go.
    pub(crate) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Acquire)
    }

    /// Claims I/O queue `qid` for a connection.
    pub(crate) fn claim_queue(&self, qid: u16) -> Claim {
        let mut state = self.state();
        if qid > state.granted_queues.unwrap_or(MAX_IO_QUEUES) {
            return Claim::BeyondGrant;
        }
        match state.queues.get(&qid) {
            Some(true) => Claim::Draining,
            Some(false) => Claim::Taken,
            None => {
                state.queues.insert(qid, false);
                Claim::Granted
            }
        }
    }

    /// Whether a connection carries an I/O queue.
    pub(crate) fn has_io_queue(&self) -> bool {
        self.state().queues.values().any(|&draining| !draining)
    }

    /// The connection of I/O queue `qid` has ended; its commands may not have.
    pub(crate) fn drain_queue(&self, qid: u16) {
        self.state().queues.insert(qid, true);
    }

    /// Whether commands of an ended I/O queue are still being executed.
    pub(crate) fn is_draining(&self) -> bool {
        self.state().queues.values().any(|&draining| draining)
    }

    /// The last command of a drained queue is done.
    pub(crate) fn release_queue(&self, qid: u16) {
        self.state().queues.remove(&qid);
    }

    /// Notes a failed command for the error log.
    pub(crate) fn record_error(&self, mut error: ErrorInformation) {
        let media = [Status::WRITE_FAULT, Status::UNRECOVERED_READ_ERROR];
        let mut state = self.state();
        state.error_count += 1;
        state.media_errors += u64::from(media.iter().any(|&status| error.status().is(status)));
        error.error_count.set(state.error_count);
        state.errors.push_front(error);
        state.errors.truncate(ERROR_ENTRIES);
    }

    /// The error log, newest first.
    pub(crate) fn error_page(&self) -> Vec<u8> {
        let mut page: Vec<u8> = self
            .state()
            .errors
            .iter()
            .flat_map(|error| error.as_wire().to_vec())
            .collect();
        page.resize(ERROR_ENTRIES * ErrorInformation::BYTES, 0);
        page
    }

    /// Failed commands, and how many of them the medium failed.
    pub(crate) fn error_counts(&self) -> (u64, u64) {
        let state = self.state();
        (state.error_count, state.media_errors)
    }

    /// Keeps an event until a request takes it, if the host wants such. The same event is kept
    /// once, and not at all while the host has yet to look into the last.
    pub(crate) fn raise(&self, event: AsyncEvent) {
        self.state().raise(event);
    }

    /// The oldest event that the host has not been told.
    pub(crate) fn take_event(&self) -> Option<AsyncEvent> {
        let mut state = self.state();
        let event = state.events.pop_front()?;
        state.told.push(event);
        if event == AsyncEvent::AnaChange {
            state.wants_proof = false;
        }
        Some(event)
    }

    /// These namespaces have changed.
    pub(crate) fn note_changed(&self, nsids: &[u32]) {
        let mut state = self.state();
        state.changed.extend(nsids);
        if !nsids.is_empty() {
            state.raise(AsyncEvent::NamespaceAttributeChanged);
        }
    }

    /// The host is about to be shown a log page: what happens from now on is told again. To be
    /// called before the page is made, or a change in between would never be told.
    pub(crate) fn rearm(&self, log: u8) {
        let mut state = self.state();
        state.told.retain(|event| event.log_page() != log);
        state.masked.retain(|event| event.log_page() != log);
        state.events.retain(|event| event.log_page() != log);
        if log == AsyncEvent::AnaChange.log_page() && state.wants_proof {
            state.raise(AsyncEvent::AnaChange);
        }
    }

    /// Which asynchronous events the host wants from now on.
    pub(crate) fn want_events(&self, mask: u32) {
        let mut state = self.state();
        state.event_mask = mask;
        // Linux reads the page of paths before it asks for events, and not again.
        for event in std::mem::take(&mut state.masked) {
            state.raise(event);
        }
        if state.wants_proof {
            state.raise(AsyncEvent::AnaChange);
        }
    }

    /// Has the host told that paths may have changed, if it has not been since the last call. True if an event waits
    /// for it.
    pub(crate) fn want_proof(&self) -> bool {
        let mut state = self.state();
        if state.wants_proof {
            return false;
        }
        state.wants_proof = true;
        state.raise(AsyncEvent::AnaChange);
        state.events.contains(&AsyncEvent::AnaChange)
    }

    /// Whether the host may send this command to the namespace now.
    pub(crate) fn may(&self, namespace: &Namespace, opcode: u8) -> bool {
        let known = self.known.get((namespace.nsid as usize).wrapping_sub(1));
        match (&namespace.guard, known) {
            (Some(guard), Some(known)) => guard.admits(&self.host.id, known, opcode),
            _ => true,
        }
    }

    /// Another host has done something to this one's registration with a namespace, or its reservation.
    pub(crate) fn notify(&self, nsid: u32, what: Notification) {
        let mut state = self.state();
        let mask = state.notification_masks.get(&nsid).copied().unwrap_or(0);
        if mask & what.mask() == 0 && state.notifications.len() < MOST_NOTIFICATIONS {
            state.notifications.push_back((nsid, what));
            state.notified += 1;
            state.raise(AsyncEvent::ReservationLogAvailable);
        }
    }

    /// The Reservation Notification log page: the oldest that was not read, which is gone then unless it is
    /// to be retained. There is an event for each that is left.
    pub(crate) fn notification_page(&self, retain: bool) -> Vec<u8> {
        let mut state = self.state();
        let waiting = state.notifications.len();
        let oldest = match retain {
            true => state.notifications.front().copied(),
            false => state.notifications.pop_front(),
        };
        let Some((nsid, what)) = oldest else {
            return vec![0; 64];
        };
        if !retain && waiting > 1 {
            state.raise(AsyncEvent::ReservationLogAvailable);
        }
        let count = state.notified - (waiting as u64 - 1);
        what.to_page(nsid, count, waiting - 1)
    }

    /// The namespaces that have changed since the last call that did not `retain` them.
    pub(crate) fn changed(&self, retain: bool) -> Vec<u32> {
        let mut state = self.state();
        if retain {
            return state.changed.iter().copied().collect();
        }
        std::mem::take(&mut state.changed).into_iter().collect()
    }
}

impl State {
    fn raise(&mut self, event: AsyncEvent) {
        let wanted = event
            .enabled_by()
            .is_none_or(|bit| self.event_mask & bit != 0);
        let known = self.events.contains(&event) || self.told.contains(&event);
        if !wanted && !self.masked.contains(&event) {
            self.masked.push(event);
        }
        if wanted && !known && self.events.len() < MAX_PENDING_EVENTS {
            self.events.push_back(event);
        }
    }
}
