//! How the namespaces of a subsystem are reached here: Asymmetric Namespace Access (Base 2.1, 8.1.1).
//!
//! Each namespace is an ANA group of its own, whose id is its NSID.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ashlar_nvme::Status;
use ashlar_nvme::identify::{IdentifyController, anacap, cmic};
use ashlar_nvme::log::{AnaGroup, AnaLog, AnaState};

use crate::namespace::Namespace;

/// ANATT: seconds that a path may be *change*. Linux resets a controller that takes twice as long.
const LONGEST_TRANSITION_SECONDS: u8 = 30;

/// A namespace's path. Every command looks at its state, on every core.
pub(crate) struct Path {
    state: AtomicU8,
    changes: AtomicU64,
}

impl Path {
    pub(crate) fn new(state: AnaState) -> Self {
        Self {
            state: AtomicU8::new(state as u8),
            changes: AtomicU64::new(1),
        }
    }

    pub(crate) fn state(&self) -> AnaState {
        let byte = self.state.load(Ordering::Acquire);
        AnaState::from_byte(byte).unwrap_or(AnaState::Change)
    }

    /// The status of every command while the path is not usable.
    pub(crate) fn refusal(&self) -> Option<Status> {
        match self.state() {
            AnaState::Optimized | AnaState::NonOptimized => None,
            AnaState::Inaccessible => Some(Status::ANA_INACCESSIBLE),
            AnaState::PersistentLoss => Some(Status::ANA_PERSISTENT_LOSS),
            AnaState::Change => Some(Status::ANA_TRANSITION),
        }
    }
}

/// Counts the changes of a subsystem's paths, and lets them happen one at a time.
pub(crate) struct Paths(Mutex<u64>);

impl Paths {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(1))
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the path of each of `namespaces`. True if that is news.
    pub(crate) fn set<'a>(
        &self,
        namespaces: impl Iterator<Item = &'a Namespace>,
        state: AnaState,
    ) -> bool {
        let mut changes = self.lock();
        let before = *changes;
        for path in namespaces.map(|namespace| &namespace.path) {
            if path.state() != state {
                path.state.store(state as u8, Ordering::Release);
                path.changes.fetch_add(1, Ordering::Relaxed);
                *changes = before + 1;
            }
        }
        *changes != before
    }

    /// The ANA log page; with `groups_only` without the namespaces of each group.
    pub(crate) fn page(&self, namespaces: &[Namespace], groups_only: bool) -> Vec<u8> {
        let changes = self.lock();
        let group = |namespace: &Namespace| AnaGroup {
            id: group_of(namespace),
            change_count: namespace.path.changes.load(Ordering::Relaxed),
            state: namespace.path.state(),
            namespaces: match groups_only {
                true => Vec::new(),
                false => vec![namespace.nsid],
            },
        };
        let log = AnaLog {
            change_count: *changes,
            groups: namespaces.iter().map(group).collect(),
        };
        log.to_page()
    }
}

/// ANAGRPID of a namespace of a shared subsystem.
pub(crate) fn group_of(namespace: &Namespace) -> u32 {
    namespace.nsid
}

/// Where Identify Controller has CQT, in milliseconds.
const CQT: usize = 386;

/// Adds how long commands of a lost association may go on.
pub(crate) fn identify_quiesce(page: &mut [u8], quiesce: Duration) {
    let milliseconds = u16::try_from(quiesce.as_millis()).unwrap_or(u16::MAX);
    page[CQT..CQT + 2].copy_from_slice(&milliseconds.to_le_bytes());
}

/// What Identify Controller says of the paths of so many `namespaces`.
pub(crate) fn identify(id: &mut IdentifyController, namespaces: u32) {
    id.cmic |= cmic::ANA_REPORTING;
    id.anatt = LONGEST_TRANSITION_SECONDS;
    id.anacap = anacap::OPTIMIZED
        | anacap::NON_OPTIMIZED
        | anacap::INACCESSIBLE
        | anacap::PERSISTENT_LOSS
        | anacap::CHANGE
        | anacap::GROUP_FIXED;
    id.anagrpmax.set(namespaces);
    id.nanagrpid.set(namespaces);
}
