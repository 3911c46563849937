//! What has happened lately on this node, for operators.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::ClusterEvent;

/// How many are kept.
const MOST: usize = 1000;

/// What has happened lately.
#[derive(Default)]
pub struct Events(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// How many there have been.
    count: u64,
    last: VecDeque<ClusterEvent>,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // What is kept is whole after each step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a volume, or of the node.
    pub(crate) fn add(&self, kind: &str, volume: Option<String>, text: String) {
        self.keep(ClusterEvent {
            kind: kind.to_owned(),
            volume,
            text,
            ..ClusterEvent::default()
        });
    }

    /// Gives it its number and its time.
    pub(crate) fn keep(&self, event: ClusterEvent) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut kept = self.lock();
        kept.count += 1;
        let event = ClusterEvent {
            number: kept.count,
            // A clock before 1970 says nothing.
            seconds: since.map_or(0.0, |time| time.as_secs_f64()),
            ..event
        };
        kept.last.push_back(event);
        if kept.last.len() > MOST {
            kept.last.pop_front();
        }
    }

    /// Those after this number that are kept.
    pub(crate) fn after(&self, number: u64) -> Vec<ClusterEvent> {
        let kept = self.lock();
        let after = kept.last.iter().filter(|event| event.number > number);
        after.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_with_their_numbers() {
        let events = Events::default();
        for n in 0..MOST + 3 {
            events.add("serves", None, n.to_string());
        }
        let all = events.after(0);
        assert_eq!((all.len(), all[0].number), (MOST, 4));
        let last = events.after(MOST as u64 + 2);
        assert_eq!(last.len(), 1);
        assert_eq!(last[0].text, (MOST + 2).to_string());
    }
}
