//! What is to be done for a service, from what is seen of it: no I/O, time is a parameter.

use std::time::Duration;

use crate::model::ServiceState;

/// So many failures in a row, and it is given away or given up.
pub(super) const MOST_FAILURES: u32 = 3;
/// What ran for so long without a failure has none in a row.
pub(super) const STEADY_AFTER: Duration = Duration::from_secs(60);
/// Not ready for so long, having been: it hangs.
const HANGS_AFTER: Duration = Duration::from_secs(10);
/// After a failure so much more is waited for each one in a row.
const BACK_OFF: Duration = Duration::from_millis(500);

/// Who has all of a service's volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This node, since this change of owners.
    Here {
        /// Goes up with each change.
        epoch: u64,
    },
    /// Another node.
    Elsewhere {
        node: String,
        /// Goes up with each change.
        epoch: u64,
    },
    /// No node has all of them, or they cannot be used: why.
    Unusable {
        /// In words.
        why: String,
    },
}

impl Owner {
    /// What is known here, or what the owner itself has told. A node of which another one has all volumes since a later
    /// change does not know of that yet: what serves them here may stand still.
    pub(super) fn or_later(self, told: Option<Self>) -> Self {
        match (&self, &told) {
            (Self::Here { epoch: here }, Some(Self::Elsewhere { epoch, .. })) if epoch <= here => {
                self
            }
            _ => told.unwrap_or(self),
        }
    }
}

/// What an operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Run,
    Stopped,
    /// To run on another node.
    Moved,
}

/// What is seen of a service, at one moment.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) now: Duration,
    pub(super) owner: Owner,
    pub(super) wanted: Wanted,
    /// Another node could have it, and has not given it up.
    pub(super) can_move: bool,
    /// Nothing keeps its volumes here, as far as was asked, which is where clients do not reach it.
    pub(super) may_give: bool,
    /// How long the owner before had been silent when this node had the volumes.
    pub(super) silence: Option<Duration>,
    /// What is wrong with a mounted volume.
    pub(super) bad: Option<String>,
    /// Why clients do not reach it, though all else is well.
    pub(super) dark: Option<String>,
    /// It has processes.
    pub(super) alive: bool,
    /// It has been found ready, or not; nothing if it was not asked.
    pub(super) ready: Option<bool>,
    /// How the action that was under way has ended.
    pub(super) done: Option<Result<(), String>>,
}

/// What is to be done. One at a time; its end is told by [`Seen::done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Attach and mount all volumes.
    Mount,
    /// Give the start command, and wait until it is ready.
    Start,
    /// Give the command that makes a stop short; it serves on.
    Drain,
    /// Give the stop command, and wait until its processes have ended.
    Stop,
    /// Kill all its processes.
    Kill,
    /// Unmount and detach in order.
    Unmount,
    /// Kill, unmount and detach whatever state the volumes are in, and whatever hangs.
    Fence,
    /// Give the volumes to another node.
    GiveAway,
}

/// Why it is being taken down, and so what comes then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Rest,
    Again,
    GiveAway,
    GiveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is mounted.
    Down,
    Mounting,
    Starting,
    Running,
    /// It serves, and is about to be stopped.
    Draining(Then),
    /// In order: stop, kill what is left, unmount.
    Stopping(Then),
    /// At once: kill.
    Killing(Then),
    Unmounting(Then),
    Giving,
    GivenUp,
}

/// What an earlier daemon has left of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// It runs, and all of its volumes are mounted.
    Whole,
    /// Some processes, or something that is mounted: it was being started or stopped.
    Parts,
}

/// A service's life on this node.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    phase: Phase,
    busy: Option<Action>,
    /// When the phase began.
    since: Duration,
    not_before: Duration,
    /// In a row.
    failures: u32,
    unready_since: Option<Duration>,
    /// When it failed and has not been ready since.
    failed_at: Option<Duration>,
    reason: Option<String>,
    /// The change of owners since which it is mounted.
    epoch: Option<u64>,
    /// The change of owners since which it was tried last.
    came_with: Option<u64>,
    /// Its volumes are not to be trusted: it is taken down whatever hangs.
    is_lost: bool,
    /// When it was taken down so, it waits so long before it comes up again.
    pause: Duration,
    /// For how long it had not served when it was started last.
    gap: Option<Duration>,
    pub(super) totals: Totals,
}

/// What has happened since the daemon came up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) starts: u64,
    pub(super) failures: u64,
    pub(super) last_gap: Option<Duration>,
}

impl Machine {
    /// With what another daemon has left, of a service that only this node can have. Parts are taken down first,
    /// whatever is wanted: nothing may be mounted over them, and it is not stopped before they are gone.
    pub(super) fn new(left: Left) -> Self {
        Self {
            phase: match left {
                Left::Nothing => Phase::Down,
                Left::Whole => Phase::Running,
                Left::Parts => Phase::Killing(Then::Again),
            },
            busy: None,
            since: Duration::ZERO,
            not_before: Duration::ZERO,
            failures: 0,
            unready_since: None,
            failed_at: None,
            reason: None,
            epoch: None,
            came_with: None,
            is_lost: false,
            pause: Duration::ZERO,
            gap: None,
            totals: Totals::default(),
        }
    }

    /// Whether it is to be asked whether it is ready, and its volumes whether they answer.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Draining(_))
    }

    /// Whether its volumes are mounted by it, or about to be.
    pub(super) fn is_mounted(&self) -> bool {
        !matches!(
            self.phase,
            Phase::Down | Phase::GivenUp | Phase::Giving | Phase::Mounting
        )
    }

    /// Whether nothing of it is left here.
    pub(super) fn is_down(&self) -> bool {
        matches!(self.phase, Phase::Down | Phase::GivenUp | Phase::Giving)
    }

    pub(super) fn has_given_up(&self) -> bool {
        self.phase == Phase::GivenUp
    }

    /// For how long it has run.
    pub(super) fn runs_for(&self, now: Duration) -> Duration {
        match self.phase {
            Phase::Running | Phase::Draining(_) => now.saturating_sub(self.since),
            _ => Duration::ZERO,
        }
    }

    /// An operator wants it tried again at once.
    pub(super) fn forgive(&mut self) {
        (self.failures, self.not_before) = (0, Duration::ZERO);
        if self.phase == Phase::GivenUp {
            self.phase = Phase::Down;
        }
    }

    /// The change of owners since which it is mounted.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// For how long it had not served when it was started last; nothing if that was by order.
    pub(super) fn gap(&self) -> Option<Duration> {
        self.gap
    }

    /// Since when it is in its state.
    pub(super) fn since(&self) -> Duration {
        self.since
    }

    /// How it is, and why.
    pub(super) fn state(&self, owner: &Owner, wanted: Wanted) -> (ServiceState, Option<String>) {
        let state = match (self.phase, owner) {
            // Load balancers send clients to it until it is stopped.
            (Phase::Running | Phase::Draining(_), _) => return (ServiceState::Running, None),
            (Phase::Mounting, _) => ServiceState::Mounting,
            (Phase::Starting, _) => ServiceState::Starting,
            (Phase::Stopping(_) | Phase::Killing(_) | Phase::Unmounting(_) | Phase::Giving, _) => {
                ServiceState::Stopping
            }
            (Phase::GivenUp, _) => ServiceState::Failed,
            (Phase::Down, _) if wanted == Wanted::Stopped => return (ServiceState::Stopped, None),
            (Phase::Down, Owner::Elsewhere { .. }) => return (ServiceState::Elsewhere, None),
            (Phase::Down, Owner::Unusable { why }) => {
                return (ServiceState::Waiting, Some(why.clone()));
            }
            (Phase::Down, Owner::Here { .. }) => ServiceState::Waiting,
        };
        (state, self.reason.clone())
    }

    /// What is to be done now, if anything; called again and again.
    pub(super) fn step(&mut self, seen: &Seen) -> Option<Action> {
        if let Some(done) = &seen.done {
            let action = self.busy.take();
            self.ended(action, done, seen);
        }
        self.notice(seen);
        if self.busy.is_some() {
            return None;
        }
        let action = self.next(seen)?;
        self.busy = Some(action);
        Some(action)
    }

    fn enter(&mut self, phase: Phase, now: Duration) {
        (self.phase, self.since) = (phase, now);
        self.unready_since = None;
    }

    /// The action that was under way has ended.
    fn ended(&mut self, action: Option<Action>, done: &Result<(), String>, seen: &Seen) {
        let now = seen.now;
        match (self.phase, action, done) {
            (Phase::Mounting, Some(Action::Mount), Ok(())) => self.enter(Phase::Starting, now),
            (Phase::Starting, Some(Action::Start), Ok(())) => {
                self.totals.starts += 1;
                self.reason = None;
                let failed = self.failed_at.take();
                self.gap = failed.map(|failed| now.saturating_sub(failed));
                self.totals.last_gap = self.gap.or(self.totals.last_gap);
                self.enter(Phase::Running, now);
            }
            (Phase::Mounting | Phase::Starting, _, Err(why)) => {
                let then = self.fail(why, seen);
                self.enter(Phase::Killing(then), now);
            }
            (Phase::Draining(then), Some(Action::Drain), _) => {
                // What it was to make shorter takes longer, if it has failed.
                if then == Then::GiveAway {
                    self.failed_at.get_or_insert(now);
                }
                self.enter(Phase::Stopping(then), now);
            }
            (Phase::Stopping(then), _, _) => self.enter(Phase::Killing(then), now),
            (Phase::Killing(then), Some(Action::Kill), Ok(())) => {
                self.enter(Phase::Unmounting(then), now);
            }
            (Phase::Unmounting(then), Some(Action::Unmount), Ok(()))
            | (Phase::Killing(then) | Phase::Unmounting(then), Some(Action::Fence), Ok(())) => {
                self.came_down(then, now);
            }
            (Phase::Killing(_) | Phase::Unmounting(_), _, Err(why)) => {
                // Tried again: nothing else may happen to volumes that are in use.
                self.reason = Some(why.clone());
                self.not_before = now + BACK_OFF;
            }
            (Phase::Giving, _, done) => {
                if let Err(why) = done {
                    self.reason = Some(why.clone());
                }
                self.not_before = now + BACK_OFF;
                self.enter(Phase::Down, now);
            }
            _ => {}
        }
    }

    fn came_down(&mut self, then: Then, now: Duration) {
        (self.is_lost, self.epoch) = (false, None);
        self.not_before = self.not_before.max(now + std::mem::take(&mut self.pause));
        match then {
            Then::Rest | Then::Again => self.enter(Phase::Down, now),
            Then::GiveAway => self.enter(Phase::Giving, now),
            Then::GiveUp => self.enter(Phase::GivenUp, now),
        }
    }

    /// Counts a failure; what comes when it is down.
    fn fail(&mut self, why: &str, seen: &Seen) -> Then {
        self.failures += 1;
        self.totals.failures += 1;
        self.reason = Some(why.to_owned());
        self.failed_at.get_or_insert(seen.now);
        self.not_before = seen.now + BACK_OFF * self.failures;
        match self.failures {
            ..MOST_FAILURES => Then::Again,
            _ if seen.can_move => Then::GiveAway,
            _ => Then::GiveUp,
        }
    }

    /// Why its volumes are not what they were when it was mounted, if so.
    fn loss(&self, seen: &Seen) -> Option<String> {
        match &seen.owner {
            Owner::Here { epoch } if self.epoch.is_none_or(|known| known == *epoch) => None,
            Owner::Here { .. } => Some("its volumes were another node's meanwhile".into()),
            Owner::Elsewhere { node, .. } => Some(format!("its volumes are node {node}'s now")),
            Owner::Unusable { why } => Some(why.clone()),
        }
    }

    /// Looks for a reason to leave the phase that it is in.
    fn notice(&mut self, seen: &Seen) {
        // What comes when it is down, if it is on its way there.
        let then = match self.phase {
            Phase::Mounting | Phase::Starting | Phase::Running => None,
            Phase::Draining(then)
            | Phase::Stopping(then)
            | Phase::Killing(then)
            | Phase::Unmounting(then) => Some(then),
            Phase::Down | Phase::Giving | Phase::GivenUp => return,
        };
        let was_up = then.is_none() || matches!(self.phase, Phase::Draining(_));
        if let Some(why) = self.loss(seen) {
            // Another node may have it already: no orderly end, and nothing to give away.
            let then = then.filter(|then| *then != Then::GiveAway);
            self.lose(why, was_up, seen.now);
            return self.take_down_at_once(then.unwrap_or(Then::Again), seen.now);
        }
        if let Some(why) = seen.bad.clone().filter(|_| !self.is_lost) {
            // An orderly end would wait for it.
            self.totals.failures += u64::from(was_up);
            self.lose(why, was_up, seen.now);
            let then = then.unwrap_or_else(|| {
                self.failures += 1;
                match self.failures {
                    _ if seen.can_move => Then::GiveAway,
                    ..MOST_FAILURES => Then::Again,
                    _ => Then::GiveUp,
                }
            });
            if then == Then::Again {
                self.pause = BACK_OFF;
            }
            return self.take_down_at_once(then, seen.now);
        }
        if self.phase == Phase::Running && self.busy.is_none() {
            self.notice_in_place(seen);
        }
    }

    /// Why it is taken down, as long as that is not under way, and since when it does not serve.
    fn lose(&mut self, why: String, was_up: bool, now: Duration) {
        if was_up {
            self.failed_at.get_or_insert(now);
        }
        if !self.is_lost {
            self.reason = Some(why);
        }
    }

    /// Looks whether it does what it should, with volumes that do.
    fn notice_in_place(&mut self, seen: &Seen) {
        let now = seen.now;
        match seen.wanted {
            Wanted::Stopped => return self.phase = Phase::Draining(Then::Rest),
            Wanted::Moved => return self.phase = Phase::Draining(Then::GiveAway),
            Wanted::Run => {}
        }
        let may_go = seen.can_move && seen.may_give;
        if let Some(why) = seen.dark.as_ref().filter(|_| may_go) {
            // Where no other node can have it, programs of this machine may still use it.
            self.totals.failures += 1;
            self.failed_at.get_or_insert(now);
            self.reason = Some(why.clone());
            return self.enter(Phase::Stopping(Then::GiveAway), now);
        }
        if now.saturating_sub(self.since) >= STEADY_AFTER {
            self.failures = 0;
        }
        if !seen.alive {
            self.fail_in_place("its processes have ended", seen);
        } else if seen.ready == Some(false) {
            let since = *self.unready_since.get_or_insert(now);
            if now.saturating_sub(since) >= HANGS_AFTER {
                self.fail_in_place("it runs, and is not ready any more", seen);
            }
        } else if seen.ready == Some(true) {
            self.unready_since = None;
        }
    }

    /// What failed with good volumes is started again where they are mounted, while that may help.
    fn fail_in_place(&mut self, why: &str, seen: &Seen) {
        match self.fail(why, seen) {
            Then::Again => {
                // At once: a crash of the database is no reason to wait.
                self.not_before = Duration::ZERO;
                self.enter(Phase::Starting, seen.now);
            }
            then => self.enter(Phase::Killing(then), seen.now),
        }
    }

    /// What is under way, a start that hangs on its volume for instance, is not waited for: killing ends it.
    fn take_down_at_once(&mut self, then: Then, now: Duration) {
        if self.is_lost {
            // It is being taken down: what comes then may have changed.
            self.phase = Phase::Killing(then);
            return;
        }
        // Nor is what an earlier failure has it wait for.
        (self.busy, self.is_lost, self.not_before) = (None, true, now);
        self.enter(Phase::Killing(then), now);
    }

    /// It begins to come up, on volumes that this node has since this change of owners.
    fn come_up(&mut self, epoch: u64, seen: &Seen) {
        if self.came_with != Some(epoch) {
            // It ran elsewhere: what happened here before has nothing to do with it.
            self.failed_at = seen.silence.map(|silence| seen.now.saturating_sub(silence));
            (self.failures, self.came_with) = (0, Some(epoch));
        }
        self.epoch = Some(epoch);
        self.enter(Phase::Mounting, seen.now);
    }

    fn next(&mut self, seen: &Seen) -> Option<Action> {
        let is_ending = matches!(self.phase, Phase::Draining(_) | Phase::Stopping(_));
        if seen.now < self.not_before && !is_ending {
            return None;
        }
        match self.phase {
            Phase::Down | Phase::GivenUp => {
                let Owner::Here { epoch } = seen.owner else {
                    return None;
                };
                match seen.wanted {
                    // Where it has been given up here, another node may do better.
                    Wanted::Moved => {
                        self.enter(Phase::Giving, seen.now);
                        Some(Action::GiveAway)
                    }
                    Wanted::Run if self.phase == Phase::Down => {
                        self.come_up(epoch, seen);
                        Some(Action::Mount)
                    }
                    Wanted::Run | Wanted::Stopped => None,
                }
            }
            Phase::Mounting => Some(Action::Mount),
            Phase::Starting => Some(Action::Start),
            Phase::Running => None,
            Phase::Draining(_) => Some(Action::Drain),
            Phase::Stopping(_) => Some(Action::Stop),
            Phase::Killing(_) | Phase::Unmounting(_) if self.is_lost => Some(Action::Fence),
            Phase::Killing(_) => Some(Action::Kill),
            Phase::Unmounting(_) => Some(Action::Unmount),
            Phase::Giving => Some(Action::GiveAway),
        }
    }
}
