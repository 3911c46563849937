//! What news ask for that waits for a pool: on a thread of the volume's own, for paths of others do not wait with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tracing::warn;
use uuid::Uuid;

use super::news::All;
use crate::PoolManager;
use crate::model::ControlError;

/// What is to be done for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chore {
    /// It hears who has copies, and how large the volume is: that may have changed while this node was not heard.
    LookAtSeats,
    /// It lacks what its owner speaks of.
    GiveRoom,
}

/// Who does it, and where it is shown.
#[derive(Clone)]
pub(super) struct Hands {
    manager: Weak<PoolManager>,
    shown: All,
}

impl Hands {
    pub(super) fn of(manager: &Arc<PoolManager>, shown: &All) -> Self {
        Self {
            manager: Arc::downgrade(manager),
            shown: Arc::clone(shown),
        }
    }
}

/// What waits, of each volume that has a thread.
#[derive(Clone, Default)]
pub(super) struct Chores(Arc<Mutex<BTreeMap<Uuid, BTreeSet<Chore>>>>);

impl Chores {
    /// It is done soon, once for as often as it is asked for before it begins.
    pub(super) fn add(&self, volume: Uuid, chore: Chore, hands: &Hands) {
        let hands = hands.clone();
        self.add_for(volume, chore, move |chore| hands.carry_out(volume, chore));
    }

    fn add_for(&self, volume: Uuid, chore: Chore, act: impl Fn(Chore) + Send + 'static) {
        let mut all = self.lock();
        if let Some(waiting) = all.get_mut(&volume) {
            waiting.insert(chore);
            return;
        }
        all.insert(volume, BTreeSet::from([chore]));
        drop(all);
        let chores = self.clone();
        let carry_out = move || {
            while let Some(chore) = chores.next(volume) {
                act(chore);
            }
        };
        let thread = std::thread::Builder::new().name("copy-chores".into());
        if let Err(error) = thread.spawn(carry_out) {
            warn!(%volume, "volume {volume}: {chore:?} is not done: {error}");
            self.lock().remove(&volume);
        }
    }

    /// The thread ends with the last.
    fn next(&self, volume: Uuid) -> Option<Chore> {
        let mut all = self.lock();
        let next = all.get_mut(&volume)?.pop_first();
        if next.is_none() {
            all.remove(&volume);
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, BTreeSet<Chore>>> {
        // Single insertions and removals.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hands {
    fn carry_out(&self, volume: Uuid, chore: Chore) {
        let Some(manager) = self.manager.upgrade() else {
            return;
        };
        match chore {
            Chore::LookAtSeats => {
                // It is told again with the next change.
                let _ = manager.look_at_seats(volume);
            }
            Chore::GiveRoom => {
                let given = manager.give_room(volume);
                // One that has left meanwhile is not shown.
                if manager.is_copy(volume) {
                    show_room(volume, &self.shown, given);
                }
            }
        }
    }
}

const LACKS_ROOM: &str = "the copy here is smaller than the volume, and takes no part: `pool export` and `pool import` \
                          bring it back as what it is";

/// Whether the copy has its room now is shown.
fn show_room(volume: Uuid, shown: &All, given: Result<(), ControlError>) {
    let mut all = shown.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all.entry(volume).or_default();
    match given {
        Ok(()) => {
            let is_of_room = |alarm: &mut String| alarm.starts_with(LACKS_ROOM);
            known.alarm.take_if(is_of_room);
        }
        Err(error) => {
            let text = format!("{LACKS_ROOM}: {}", error.message);
            if known.alarm.as_ref() != Some(&text) {
                warn!(%volume, "volume {volume}: {text}");
                known.alarm = Some(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// A pool that hangs keeps neither who tells of it waiting nor another volume's copy.
    #[test]
    fn one_that_hangs_keeps_no_other_waiting() {
        let chores = Chores::default();
        let (hung, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let (begun, begins) = channel();
        let (go_on, goes_on) = channel::<()>();
        let goes_on = Mutex::new(goes_on);
        let told = begun.clone();
        chores.add_for(hung, Chore::GiveRoom, move |chore| {
            told.send((hung, chore)).expect("heard");
            let _ = goes_on.lock().expect("whole").recv();
        });
        assert_eq!(begins.recv_timeout(SOON), Ok((hung, Chore::GiveRoom)));
        for chore in [Chore::GiveRoom, Chore::LookAtSeats, Chore::GiveRoom] {
            chores.add_for(hung, chore, |_| panic!("it has a thread"));
        }
        chores.add_for(other, Chore::LookAtSeats, move |chore| {
            begun.send((other, chore)).expect("heard");
        });
        assert_eq!(begins.recv_timeout(SOON), Ok((other, Chore::LookAtSeats)));
        // What it was asked for meanwhile is done once.
        drop(go_on);
        assert_eq!(begins.recv_timeout(SOON), Ok((hung, Chore::LookAtSeats)));
        assert_eq!(begins.recv_timeout(SOON), Ok((hung, Chore::GiveRoom)));
        assert!(begins.recv_timeout(SOON).is_err(), "the threads have ended");
        assert!(chores.lock().is_empty());
    }

    #[test]
    fn the_alarm_goes_when_a_later_try_gives_the_room() {
        let volume = Uuid::from_u128(1);
        let shown = All::default();
        let alarm = || shown.lock().expect("whole")[&volume].alarm.clone();
        show_room(
            volume,
            &shown,
            Err(ControlError::conflict("a plane has a bit")),
        );
        let text = alarm().expect("an alarm");
        assert!(text.contains("smaller than the volume"), "{text}");
        assert!(text.contains("a plane has a bit"), "{text}");
        show_room(volume, &shown, Ok(()));
        assert_eq!(alarm(), None);
        // Others' stay.
        let other = Some("other".to_owned());
        shown
            .lock()
            .expect("whole")
            .entry(volume)
            .or_default()
            .alarm = other.clone();
        show_room(volume, &shown, Ok(()));
        assert_eq!(alarm(), other);
    }
}
