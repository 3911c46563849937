//! A thread for each service: sees, asks the machine, and has the host do what it says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Ownership;
use super::host::Host;
use super::machine::{Action, Machine, Owner, Seen, Wanted};
use crate::model::{ControlError, CreateService, ServiceState, ServiceStatus, VolumeName};

/// It is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// It is asked whether it is ready, and its volumes are written to, so often.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// A volume that does not answer a write for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// A service under watch.
pub(super) struct Running(Arc<Shared>);

struct Shared {
    host: Host,
    volumes: Vec<VolumeName>,
    ownership: Arc<dyn Ownership>,
    begun: Instant,
    over: AtomicBool,
    inner: Mutex<Inner>,
}

struct Inner {
    machine: Machine,
    wanted: Wanted,
    move_to: Option<String>,
    owner: Owner,
    moves: u64,
    /// For the log: what was told last.
    told: Option<ServiceState>,
}

impl Running {
    pub(super) fn begin(
        host: Host,
        ownership: Arc<dyn Ownership>,
        wanted: Wanted,
    ) -> Result<Self, ControlError> {
        let volumes = host.service.volume_names()?;
        // One that a daemon before this one has left running.
        let machine = Machine::new(host.group.is_alive() && host.are_mounted());
        let owner = ownership.owner(&volumes);
        let name = format!("svc-{}", host.service.name);
        let shared = Arc::new(Shared {
            host,
            volumes,
            ownership,
            begun: Instant::now(),
            over: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                machine,
                wanted,
                move_to: None,
                owner,
                moves: 0,
                told: None,
            }),
        });
        let watched = shared.clone();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || watch(&watched));
        thread.map_err(|error| ControlError::environment(format!("a thread: {error}")))?;
        Ok(Self(shared))
    }

    pub(super) fn service(&self) -> &CreateService {
        &self.0.host.service
    }

    pub(super) fn wanted(&self) -> Wanted {
        self.0.lock().wanted
    }

    pub(super) fn want(&self, wanted: Wanted) {
        let mut inner = self.0.lock();
        inner.wanted = wanted;
        if wanted == Wanted::Run {
            inner.machine.forgive();
        }
    }

    pub(super) fn move_to(&self, to: Option<String>) {
        let mut inner = self.0.lock();
        (inner.wanted, inner.move_to) = (Wanted::Moved, to);
    }

    /// Watches no longer, and leaves what runs.
    pub(super) fn end(&self) {
        self.0.over.store(true, Ordering::SeqCst);
    }

    pub(super) fn status(&self) -> ServiceStatus {
        let shared = &self.0;
        let inner = shared.lock();
        let (state, reason) = inner.machine.state(&inner.owner, inner.wanted);
        let (node, epoch) = match &inner.owner {
            Owner::Here { epoch } => (Some(shared.ownership.node()), *epoch),
            Owner::Elsewhere { node, epoch } => (Some(node.clone()), *epoch),
            Owner::Unusable { .. } => (None, 0),
        };
        let can_move = shared.ownership.can_move(&shared.volumes);
        let totals = inner.machine.totals;
        let warning = "its volumes are not replicated: when this machine is lost it is down until the machine is back";
        ServiceStatus {
            service: shared.host.service.clone(),
            state,
            reason,
            node,
            epoch,
            highly_available: can_move,
            since_seconds: shared
                .begun
                .elapsed()
                .saturating_sub(inner.machine.since())
                .as_secs_f64(),
            moves: inner.moves,
            starts: totals.starts,
            failures: totals.failures,
            last_gap_seconds: totals.last_gap.map(|gap| gap.as_secs_f64()),
            warnings: if can_move {
                Vec::new()
            } else {
                vec![warning.into()]
            },
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Done = Result<(), String>;

/// Something that is done on a thread of its own, whose end is waited for elsewhere.
struct Errand<T>(Receiver<T>, Instant);

impl<T: Send + 'static> Errand<T> {
    /// `None`: there is no thread to be had, which is tried again.
    fn begin(name: &str, errand: impl FnOnce() -> T + Send + 'static) -> Option<Self> {
        let (tell, told): (Sender<T>, Receiver<T>) = channel();
        let run = move || {
            // It may not be waited for any more.
            let _ = tell.send(errand());
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        thread.ok().map(|_| Self(told, Instant::now()))
    }

    fn ended(&self) -> Option<T> {
        self.0.try_recv().ok()
    }
}

/// What is under way for a service.
#[derive(Default)]
struct Errands {
    action: Option<Errand<Done>>,
    probe: Option<Errand<Done>>,
    ready: Option<Errand<bool>>,
    asked: Option<Instant>,
    bad: Option<String>,
}

fn watch(shared: &Arc<Shared>) {
    // Attaching asks the daemon, which does not listen yet when it comes up.
    while !shared.host.is_api_up() && !shared.over.load(Ordering::SeqCst) {
        std::thread::sleep(LOOK_EVERY);
    }
    let mut errands = Errands::default();
    while !shared.over.load(Ordering::SeqCst) {
        turn(shared, &mut errands);
        std::thread::sleep(LOOK_EVERY);
    }
}

fn turn(shared: &Arc<Shared>, errands: &mut Errands) {
    // Asked without the lock: it may take a while.
    let owner = shared.ownership.owner(&shared.volumes);
    let can_move = shared.ownership.can_move(&shared.volumes);
    let alive = shared.host.group.is_alive();
    let ready = ask(shared, errands);
    let done = errands.action.as_ref().and_then(Errand::ended);
    if done.is_some() {
        errands.action = None;
    }
    let mut inner = shared.lock();
    if epoch(&owner) != epoch(&inner.owner) {
        inner.moves += 1;
    }
    inner.owner = owner.clone();
    let seen = Seen {
        now: shared.begun.elapsed(),
        owner,
        wanted: inner.wanted,
        can_move,
        bad: errands.bad.clone(),
        alive,
        ready,
        done,
    };
    let action = inner.machine.step(&seen);
    let move_to = inner.move_to.clone();
    tell(shared, &mut inner);
    if !inner.machine.is_mounted() {
        errands.bad = None;
    }
    if action == Some(Action::GiveAway) {
        // Then it is any node's that has the volumes.
        (inner.wanted, inner.move_to) = (Wanted::Run, None);
    }
    drop(inner);
    if let Some(action) = action {
        let shared = shared.clone();
        errands.action = Errand::begin("svc-action", move || {
            act(&shared, action, move_to.as_deref())
        });
    }
}

fn epoch(owner: &Owner) -> Option<u64> {
    match owner {
        Owner::Here { epoch } | Owner::Elsewhere { epoch, .. } => Some(*epoch),
        Owner::Unusable { .. } => None,
    }
}

fn act(shared: &Shared, action: Action, to: Option<&str>) -> Done {
    let host = &shared.host;
    match action {
        Action::Mount => host.mount(),
        Action::Start => host.start(),
        Action::Stop => host.stop(),
        Action::Kill => host.group.kill(),
        Action::Unmount => host.unmount(false),
        Action::ForceUnmount => host.unmount(true),
        Action::GiveAway => {
            let given = shared.ownership.give(&shared.volumes, to);
            given.map_err(|error| error.message)
        }
    }
}

/// Asks a running service whether it is ready, and its volumes whether they take writes.
fn ask(shared: &Arc<Shared>, errands: &mut Errands) -> Option<bool> {
    if let Some(probe) = &errands.probe {
        match probe.ended() {
            Some(Ok(())) => errands.probe = None,
            Some(Err(why)) => {
                errands.bad = Some(why);
                errands.probe = None;
            }
            None if probe.1.elapsed() > STUCK_AFTER => {
                let seconds = STUCK_AFTER.as_secs();
                errands.bad = Some(format!("a volume has not answered a write for {seconds} s"));
            }
            None => {}
        }
    }
    let ready = errands.ready.as_ref().and_then(Errand::ended);
    if ready.is_some() {
        errands.ready = None;
    }
    let is_due = errands
        .asked
        .is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
    if is_due && shared.lock().machine.is_running() {
        errands.asked = Some(Instant::now());
        if errands.probe.is_none() {
            let host = shared.host.clone();
            errands.probe = Errand::begin("svc-probe", move || host.probe());
        }
        if errands.ready.is_none() {
            let host = shared.host.clone();
            errands.ready = Errand::begin("svc-ready", move || host.is_ready());
        }
    }
    ready
}

/// A line in the log for each change.
fn tell(shared: &Shared, inner: &mut Inner) {
    let (state, reason) = inner.machine.state(&inner.owner, inner.wanted);
    if inner.told == Some(state) {
        return;
    }
    inner.told = Some(state);
    let (name, reason) = (&shared.host.service.name, reason.unwrap_or_default());
    match state {
        ServiceState::Failed | ServiceState::Waiting => {
            tracing::warn!(service = %name, ?state, reason, "service");
        }
        _ => tracing::info!(service = %name, ?state, reason, "service"),
    }
}
