//! A thread for each service: sees, asks the machine, and has the host do what it says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::address::Holder;
use super::errand::{Done, Errand};
use super::fences::Order;
use super::guard::Guard;
use super::host::Host;
use super::machine::{Action, Left, Machine, Owner, STEADY_AFTER, Seen, Wanted};
use super::orders::Orders;
use super::tell::{Now, Teller};
use super::wake::Wake;
use super::{Ownership, Services};
use crate::model::{ControlError, CreateService, ServiceStatus, VolumeName};

/// It is looked at so often, and at once when something under way has ended or something new is wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// It is asked whether it is ready, and its volumes are written to, so often.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// A volume that does not answer a write for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// So often it is looked whether other nodes have copies of its volumes.
const FOLLOW_EVERY: Duration = Duration::from_secs(2);

/// A service under watch.
pub(super) struct Running(Arc<Shared>);

struct Shared {
    host: Host,
    volumes: Vec<VolumeName>,
    ownership: Arc<dyn Ownership>,
    services: Weak<Services>,
    begun: Instant,
    over: AtomicBool,
    /// Over as soon as it is down.
    retired: AtomicBool,
    wake: Arc<Wake>,
    inner: Mutex<Inner>,
}

struct Inner {
    machine: Machine,
    orders: Orders,
    owner: Owner,
    /// Nodes that have given it up.
    failed_on: Vec<String>,
    /// Nodes that know it.
    nodes: Vec<String>,
    /// Why others that have copies of its volumes cannot have it.
    strangers: Vec<String>,
    /// What was found when its volumes were written to last.
    full: Vec<String>,
    moves: u64,
    /// The node that had it last.
    last_node: Option<String>,
    /// What was told last.
    teller: Teller,
}

/// What is known of a service when its watch begins.
pub(super) struct Beginning {
    pub(super) host: Host,
    pub(super) ownership: Arc<dyn Ownership>,
    pub(super) services: Weak<Services>,
    pub(super) wanted: Wanted,
    pub(super) failed_on: Vec<String>,
    pub(super) nodes: Vec<String>,
}

impl Running {
    pub(super) fn begin(beginning: Beginning) -> Result<Self, ControlError> {
        let Beginning {
            host,
            ownership,
            services,
            wanted,
            failed_on,
            nodes,
        } = beginning;
        let volumes = host.service.volume_names()?;
        // Of a replicated one nothing is left.
        let left = match host.is_replicated() {
            true => Left::Nothing,
            false => host.left(),
        };
        if let Some(address) = host.address.as_ref().filter(|_| left == Left::Whole) {
            address.want();
        } else if let Err(why) = host.release() {
            // Left by a daemon that was killed while it stopped the service, or not there: it is taken over.
            tracing::warn!(service = %host.service.name, "{why}");
        }
        let owner = ownership.owner(&volumes);
        let name = format!("svc-{}", host.service.name);
        let teller = Teller::of(&host.service.name);
        let shared = Arc::new(Shared {
            host,
            volumes,
            ownership,
            services,
            begun: Instant::now(),
            over: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            wake: Arc::default(),
            inner: Mutex::new(Inner {
                machine: Machine::new(left),
                orders: Orders::new(wanted),
                owner,
                failed_on,
                nodes,
                strangers: Vec::new(),
                full: Vec::new(),
                moves: 0,
                last_node: None,
                teller,
            }),
        });
        let watched = shared.clone();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || watch(&watched));
        thread.map_err(|error| ControlError::environment(format!("a thread: {error}")))?;
        Ok(Self(shared))
    }

    pub(super) fn want(&self, wanted: Wanted, failed_on: &[String]) {
        let mut inner = self.0.lock();
        inner.orders.wanted = wanted;
        inner.failed_on = failed_on.to_vec();
        drop(inner);
        self.look();
    }

    /// Something is new that it should see at once.
    pub(super) fn look(&self) {
        self.0.wake.ring();
    }

    /// An operator has asked for it: what failed before does not count.
    pub(super) fn forgive(&self) {
        self.0.lock().machine.forgive();
    }

    /// Whether this node has its volumes.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.0.lock().owner, Owner::Here { .. })
    }

    /// The daemon ends: in order down, here; what another node makes of it is its own affair.
    pub(super) fn come_down(&self) {
        self.0.lock().orders.ends = true;
        self.look();
    }

    pub(super) fn service(&self) -> &CreateService {
        &self.0.host.service
    }

    /// Whether another node could have it.
    pub(super) fn is_replicated(&self) -> bool {
        self.0.host.is_replicated()
    }

    /// Whether nothing of it is left here.
    pub(super) fn is_down(&self) -> bool {
        self.0.lock().machine.is_down()
    }

    pub(super) fn move_to(&self, to: String) {
        self.0.lock().orders.move_to = Some(to);
        self.look();
    }

    /// Nodes that have given it up.
    pub(super) fn heard_of_failures(&self, failed_on: &[String]) {
        self.0.lock().failed_on = failed_on.to_vec();
    }

    /// The nodes that know it.
    pub(super) fn set_nodes(&self, nodes: &[String]) {
        self.0.lock().nodes = nodes.to_vec();
    }

    /// It is no more: watched until it is down.
    pub(super) fn retire(&self) {
        self.come_down();
        self.0.retired.store(true, Ordering::SeqCst);
    }

    /// Tells watchers apart that there are at one time.
    #[cfg(test)]
    pub(super) fn watcher(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }

    /// Where it is to go.
    #[cfg(test)]
    pub(super) fn moves_to(&self) -> Option<String> {
        self.0.lock().orders.move_to.clone()
    }

    /// As if it ran.
    #[cfg(test)]
    pub(super) fn pretend_to_run(&self) {
        self.0.lock().machine = Machine::new(Left::Whole);
    }

    /// Watches no longer, and leaves what runs.
    pub(super) fn end(&self) {
        self.0.over.store(true, Ordering::SeqCst);
    }

    pub(super) fn status(&self) -> ServiceStatus {
        let shared = &self.0;
        let inner = shared.lock();
        let (state, reason) = inner.machine.state(&inner.owner, inner.orders.wanted);
        let (node, epoch) = match &inner.owner {
            Owner::Here { epoch } => (Some(shared.ownership.node()), *epoch),
            Owner::Elsewhere { node, epoch } => (Some(node.clone()), *epoch),
            Owner::Unusable { .. } => (None, 0),
        };
        let able = shared.ownership.takers(&shared.volumes);
        let (takers, strangers): (Vec<String>, Vec<String>) = able
            .into_iter()
            .partition(|node| inner.nodes.contains(node));
        let totals = inner.machine.totals;
        let mut status = ServiceStatus {
            service: shared.host.service.clone(),
            state,
            reason,
            node,
            epoch,
            highly_available: !takers.is_empty(),
            address_here: shared.host.address.as_ref().map(Holder::is_held),
            since_seconds: shared
                .begun
                .elapsed()
                .saturating_sub(inner.machine.since())
                .as_secs_f64(),
            moves: inner.moves,
            starts: totals.starts,
            failures: totals.failures,
            last_gap_seconds: totals.last_gap.map(|gap| gap.as_secs_f64()),
            nodes: Vec::new(),
            warnings: Vec::new(),
        };
        let failed_on = inner.failed_on.clone();
        status.warnings = inner.strangers.clone();
        let full = match inner.machine.is_running() {
            true => inner.full.clone(),
            false => Vec::new(),
        };
        drop(inner);
        if status.warnings.is_empty() && shared.host.is_replicated() && !strangers.is_empty() {
            status.warnings.push(format!(
                "node {} has copies of its volumes and has not heard of it yet",
                strangers.join(", node ")
            ));
        }
        if !shared.host.is_replicated() {
            status.warnings.push("its volumes are not replicated: when this machine is lost it is down until the machine is back".into());
        } else if takers.is_empty() && self.is_here() {
            status.warnings.push(
                "no other node that knows it has a copy in sync: none takes over when this one is lost".into(),
            );
        }
        status.warnings.extend(full);
        if !failed_on.is_empty() {
            status.warnings.push(format!(
                "given up on node {}: `ashlar service start {}` tries there again",
                failed_on.join(", node "),
                status.service.name
            ));
        }
        status
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who has the volumes; of others' nodes, what they have told.
    fn owner(&self) -> Owner {
        let owner = self.ownership.owner(&self.volumes);
        if !self.host.is_replicated() {
            return owner;
        }
        let services = self.services.upgrade();
        let told = services.and_then(|services| services.told_of(&self.host.service.name));
        owner.or_later(told)
    }

    /// The other nodes that could have it now, know it, and have not given it up.
    fn takers(&self) -> Vec<String> {
        let mut takers = self.ownership.takers(&self.volumes);
        let inner = self.lock();
        takers.retain(|node| inner.nodes.contains(node) && !inner.failed_on.contains(node));
        takers
    }
}

/// What other nodes must know of it.
#[derive(Clone, Copy, Default)]
struct Standing {
    has_given_up: bool,
    is_steady: bool,
}

/// What is under way for a service.
#[derive(Default)]
struct Errands {
    action: Option<Errand<Done>>,
    probe: Option<Errand<Result<Vec<String>, String>>>,
    ready: Option<Errand<bool>>,
    address: Option<Errand<Done>>,
    asked: Option<Instant>,
    bad: Option<String>,
    /// Whether its volumes can be given away.
    may_give: Option<Errand<bool>>,
    may_give_asked: Option<Instant>,
    may_give_said: bool,
    gather: Option<Errand<()>>,
    gathered: Option<Instant>,
    follow: Option<Errand<Vec<String>>>,
    followed: Option<Instant>,
    /// This machine may connect to its volumes.
    let_in: Option<Errand<bool>>,
    is_let_in: bool,
    /// From before it is mounted until it is down.
    guard: Option<Guard>,
    /// As was said last.
    last: Standing,
}

fn watch(shared: &Arc<Shared>) {
    // Attaching asks the daemon, which does not listen yet when it comes up.
    while !shared.host.is_api_up() && !shared.over.load(Ordering::SeqCst) {
        std::thread::sleep(LOOK_EVERY);
    }
    let mut errands = Errands::default();
    while !shared.over.load(Ordering::SeqCst) {
        turn(shared, &mut errands);
        if shared.retired.load(Ordering::SeqCst) && shared.lock().machine.is_down() {
            break;
        }
        shared.wake.wait(LOOK_EVERY);
    }
}

fn turn(shared: &Arc<Shared>, errands: &mut Errands) {
    // First: all else may have to wait for something.
    if let Some(guard) = &mut errands.guard
        && !guard.beat()
        && errands.bad.is_none()
    {
        errands.bad = Some("its guard has ended".into());
    }
    // Asked without the lock: it may take a while.
    let owner = shared.owner();
    let takers = shared.takers();
    let silence = shared.ownership.silence(&shared.volumes);
    let alive = shared.host.group.is_alive();
    let ready = ask(shared, errands);
    gather(shared, errands, &owner);
    follow(shared, errands, &owner);
    let done = errands.action.as_ref().and_then(Errand::ended);
    if done.is_some() {
        errands.action = None;
    }
    // One that has died has failed.
    let done = done.map(|done| done.and_then(|done| done));
    let dark = shared.host.address.as_ref().and_then(Holder::dark);
    let may_give = may_give(shared, errands, takers.first().filter(|_| dark.is_some()));
    let mut inner = shared.lock();
    let has_changed = inner.saw(shared, &owner);
    inner.orders.saw(&owner);
    let seen = Seen {
        now: shared.begun.elapsed(),
        owner,
        wanted: inner.orders.seen(),
        can_move: !takers.is_empty(),
        may_give,
        silence,
        bad: errands.bad.clone(),
        dark: dark.clone(),
        alive,
        ready,
        done,
    };
    let action = inner.machine.step(&seen);
    // A service of volumes with one copy that was found running has none, and its volumes have no other.
    let epoch = inner.machine.epoch().unwrap_or(0);
    tell(shared, &mut inner);
    if !inner.machine.is_mounted() {
        errands.bad = None;
    }
    let move_to = match action {
        Some(Action::GiveAway) => inner.orders.give(),
        _ => None,
    };
    let is_down = inner.machine.is_down();
    let standing = Standing {
        has_given_up: inner.machine.has_given_up(),
        // Where none reaches it, it does not prove that the other nodes are worth another try.
        is_steady: inner.machine.runs_for(seen.now) >= STEADY_AFTER && dark.is_none(),
    };
    drop(inner);
    if is_down
        && action.is_none()
        && let Some(guard) = errands.guard.take()
    {
        guard.dismiss();
    }
    report(shared, errands, standing);
    if has_changed && let Some(services) = shared.services.upgrade() {
        services.tell_now();
    }
    let Some(action) = action else { return };
    if action == Action::Fence {
        // Not only when its thread runs. All orders until now are void.
        shared.host.strike();
    }
    let order = shared.host.fences.order();
    if action == Action::Mount && errands.guard.is_none() {
        match shared.host.guard() {
            Ok(guard) => errands.guard = guard,
            Err(why) => errands.bad = Some(why),
        }
    }
    if action == Action::Start
        && let Some(address) = &shared.host.address
    {
        address.want();
    }
    let details = Details {
        order,
        epoch,
        move_to,
    };
    let acting = shared.clone();
    errands.action = Some(Errand::begin(&shared.wake, "svc-action", move || {
        act(&acting, action, &details)
    }));
}

impl Inner {
    /// Notes who has it now; whether this node has it that had it not, or the other way round.
    fn saw(&mut self, shared: &Shared, owner: &Owner) -> bool {
        let node = match owner {
            Owner::Here { .. } => Some(shared.ownership.node()),
            Owner::Elsewhere { node, .. } => Some(node.clone()),
            Owner::Unusable { .. } => None,
        };
        if node.is_some() && node != self.last_node {
            self.moves += u64::from(self.last_node.is_some());
            self.last_node = node;
        }
        let is_here = |owner: &Owner| matches!(owner, Owner::Here { .. });
        let had_it = is_here(&self.owner);
        self.owner = owner.clone();
        had_it != is_here(owner)
    }
}

/// Where it has failed is remembered on all its nodes, and forgotten when it has run well.
fn report(shared: &Shared, errands: &mut Errands, standing: Standing) {
    let Some(services) = shared.services.upgrade() else {
        return;
    };
    let name = &shared.host.service.name;
    let last = std::mem::replace(&mut errands.last, standing);
    if standing.has_given_up && !last.has_given_up && shared.host.is_replicated() {
        // Nothing is left that a guard would take down.
        services.failed_here(name);
    }
    if standing.is_steady && !last.is_steady {
        // It runs: its guard must not wait for a file.
        let name = name.clone();
        drop(Errand::begin(&shared.wake, "svc-runs", move || {
            services.runs_here(&name)
        }));
    }
}

/// Volumes of one service are on one node: the one that has the first asks for the others.
fn gather(shared: &Arc<Shared>, errands: &mut Errands, owner: &Owner) {
    over(shared, &mut errands.gather);
    let is_due = errands
        .gathered
        .is_none_or(|gathered| gathered.elapsed() >= ASK_EVERY);
    let is_apart = shared.host.is_replicated()
        && shared.volumes.len() > 1
        && matches!(owner, Owner::Unusable { .. });
    if !is_apart || !is_due || errands.gather.is_some() {
        return;
    }
    errands.gathered = Some(Instant::now());
    let asking = shared.clone();
    errands.gather = Some(Errand::begin(&shared.wake, "svc-gather", move || {
        if let Err(error) = asking.ownership.gather(&asking.volumes) {
            let name = &asking.host.service.name;
            tracing::warn!(service = %name, "service {name}: {}", error.message);
        }
    }));
}

/// Whether its volumes could be given to a node, asked anew each second for as long as there is one.
fn may_give(shared: &Arc<Shared>, errands: &mut Errands, to: Option<&String>) -> bool {
    let said = over(shared, &mut errands.may_give);
    errands.may_give_said = said.unwrap_or(errands.may_give_said) && to.is_some();
    let is_due = errands
        .may_give_asked
        .is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
    if let Some(to) = to.filter(|_| is_due && errands.may_give.is_none()) {
        errands.may_give_asked = Some(Instant::now());
        let (asking, to) = (shared.clone(), to.clone());
        let ask = move || asking.ownership.may_give(&asking.volumes, &to).is_ok();
        errands.may_give = Some(Errand::begin(&shared.wake, "svc-may-give", ask));
    }
    errands.may_give_said
}

/// The nodes that have copies of its volumes are to know it: the one that has it sees to that; where none has it, all do.
fn follow(shared: &Arc<Shared>, errands: &mut Errands, owner: &Owner) {
    if let Some(strangers) = over(shared, &mut errands.follow) {
        shared.lock().strangers = strangers;
    }
    let is_let_in = over(shared, &mut errands.let_in);
    errands.is_let_in |= is_let_in == Some(true);
    let is_due = errands
        .followed
        .is_none_or(|followed| followed.elapsed() >= FOLLOW_EVERY);
    if !is_due || errands.follow.is_some() || errands.let_in.is_some() {
        return;
    }
    errands.followed = Some(Instant::now());
    if shared.host.is_replicated() && !errands.is_let_in {
        let asking = shared.clone();
        let ask = move || asking.ownership.let_in(&asking.volumes).is_ok();
        errands.let_in = Some(Errand::begin(&shared.wake, "svc-host", ask));
    }
    let services = shared.services.upgrade();
    if let Some(services) = services.filter(|_| !matches!(owner, Owner::Elsewhere { .. })) {
        let name = shared.host.service.name.clone();
        let look = move || services.follow_copies(&name);
        errands.follow = Some(Errand::begin(&shared.wake, "svc-follow", look));
    }
}

/// What an action is done by.
struct Details {
    order: Order,
    /// The change of owners since which its volumes are mounted.
    epoch: u64,
    /// Where the volumes are to go, if an operator has said so.
    move_to: Option<String>,
}

fn act(shared: &Shared, action: Action, details: &Details) -> Done {
    let (host, order) = (&shared.host, details.order);
    let begun = Instant::now();
    let done = match action {
        Action::Mount => host.mount(order),
        Action::Start => host.start(order, details.epoch),
        Action::Drain => host.drain(order),
        Action::Stop => host.stop(order),
        Action::Kill => host.kill(order),
        Action::Unmount => host.unmount(order),
        Action::Fence => host.fence(),
        Action::GiveAway => give(shared, details),
    };
    // Where the time of a move goes.
    let (name, took_ms) = (&host.service.name, begun.elapsed().as_millis() as u64);
    tracing::info!(service = %name, ?action, took_ms, failed = done.is_err(), "service step");
    done
}

fn give(shared: &Shared, details: &Details) -> Done {
    let to = details.move_to.clone();
    let preferred = || shared.ownership.preferred(shared.takers());
    let to = to.or_else(|| preferred().into_iter().next());
    let to = to.ok_or("no other node has a copy in sync")?;
    let may_give = shared.ownership.may_give(&shared.volumes, &to);
    may_give.map_err(|error| error.message)?;
    // It has failed here where another node gets it, and not where it stays.
    if details.move_to.is_none()
        && let Some(services) = shared.services.upgrade()
    {
        services.failed_here(&shared.host.service.name);
    }
    let given = shared.ownership.give(&shared.volumes, &to);
    given.map_err(|error| error.message)
}

/// What a question was answered. One that has died without an answer says nothing of what it asked about, and is asked
/// again.
fn over<T: Send + 'static>(shared: &Shared, errand: &mut Option<Errand<T>>) -> Option<T> {
    let ended = errand.as_ref()?.ended()?;
    *errand = None;
    if let Err(why) = &ended {
        tracing::warn!(service = %shared.host.service.name, "{why}");
    }
    ended.ok()
}

fn is_stuck<T: Send + 'static>(probe: &Errand<T>) -> bool {
    probe.begun().elapsed() > STUCK_AFTER
}

/// Asks a running service whether it is ready, its volumes whether they take writes, and for its address.
fn ask(shared: &Arc<Shared>, errands: &mut Errands) -> Option<bool> {
    match over(shared, &mut errands.probe) {
        Some(Err(why)) => errands.bad = Some(why),
        Some(Ok(full)) => shared.lock().full = full,
        None if errands.probe.as_ref().is_some_and(is_stuck) => {
            let seconds = STUCK_AFTER.as_secs();
            errands.bad = Some(format!("a volume has not answered a write for {seconds} s"));
        }
        None => {}
    }
    if let Some(Err(why)) = over(shared, &mut errands.address) {
        errands.bad = Some(why);
    }
    let ready = over(shared, &mut errands.ready);
    let is_due = errands
        .asked
        .is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
    if is_due && shared.lock().machine.is_running() {
        errands.asked = Some(Instant::now());
        if errands.probe.is_none() {
            let host = shared.host.clone();
            let probe = Errand::begin(&shared.wake, "svc-probe", move || host.probe());
            errands.probe = Some(probe);
        }
        if errands.address.is_none() && shared.host.address.is_some() {
            let host = shared.host.clone();
            let keep = Errand::begin(&shared.wake, "svc-address", move || host.keep_address());
            errands.address = Some(keep);
        }
        if errands.ready.is_none() {
            let (host, order) = (shared.host.clone(), shared.host.fences.order());
            let asked = Errand::begin(&shared.wake, "svc-ready", move || host.is_ready(order));
            errands.ready = Some(asked);
        }
    }
    ready
}

/// A line in the log and an event for each change.
fn tell(shared: &Shared, inner: &mut Inner) {
    let (state, reason) = inner.machine.state(&inner.owner, inner.orders.wanted);
    let now = Now {
        at: shared.begun.elapsed(),
        state,
        reason: reason.as_deref(),
        owner: &inner.owner,
        gap: inner.machine.gap(),
    };
    inner.teller.log(&now);
    let ownership = &shared.ownership;
    if let Some(event) = inner.teller.event(&now, &ownership.node()) {
        ownership.events().keep(event);
    }
}
