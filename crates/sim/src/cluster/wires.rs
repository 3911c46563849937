//! The wires between nodes, one for each direction of each pair. What a session sends arrives in order, late, or not
//! at all; sessions overtake each other.

use std::collections::HashMap;
use std::time::Duration;

use ashlar_block::Moment;
use ashlar_replica::{Envelope, SessionId};

use crate::chance::Chance;

/// How long one is late that is.
const LATE: Duration = Duration::from_millis(3000);

/// From which node to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// All wires.
#[derive(Debug)]
pub(crate) struct Wires {
    cut: Vec<Way>,
    /// When the last message of a session arrives. Whose session: the way's owner side is told by the epoch.
    last: HashMap<(Way, u32, SessionId), Moment>,
    /// How long a message takes, mostly.
    usual: Duration,
    /// Of a thousand messages, those that are late, and those that are lost.
    pub(crate) late: u32,
    pub(crate) lost: u32,
}

impl Wires {
    pub(crate) fn new(usual: Duration, late: u32) -> Self {
        Self {
            cut: Vec::new(),
            last: HashMap::new(),
            usual,
            late,
            lost: 0,
        }
    }

    pub(crate) fn cut(&mut self, way: Way) {
        self.cut.push(way);
    }

    pub(crate) fn mend(&mut self, way: Way) {
        if let Some(at) = self.cut.iter().position(|&cut| cut == way) {
            self.cut.remove(at);
        }
    }

    pub(crate) fn mend_all(&mut self) {
        self.cut.clear();
        self.lost = 0;
        self.late = 0;
    }

    pub(crate) fn is_cut(&self, way: Way) -> bool {
        self.cut.contains(&way)
    }

    /// From now on they are quick.
    pub(crate) fn calm(&mut self) {
        self.usual = Duration::from_millis(1);
        self.late = 0;
    }

    /// When a message arrives, if it does.
    pub(crate) fn arrives(
        &mut self,
        way: Way,
        envelope: &Envelope,
        now: Moment,
        chance: &mut Chance,
    ) -> Option<Moment> {
        if self.cut.contains(&way) || chance.happens(self.lost) {
            return None;
        }
        let mut at = now + Duration::from_micros(40) + chance.time(self.usual);
        if chance.happens(self.late) {
            at = at + chance.time(LATE);
        }
        let key = (way, envelope.epoch.0, envelope.session);
        let last = self.last.entry(key).or_insert(at);
        at = at.max(*last + Duration::from_nanos(1));
        *last = at;
        Some(at)
    }
}
