//! A node: a store that outlives its processes, a clock, and a replica while a process runs.

use std::collections::VecDeque;
use std::time::Duration;

use ashlar_block::Moment;
use ashlar_replica::{
    Config, Effect, Event, HostOperation, Imported, Incarnation, Key, MemberId, Replica, Shape,
    Surroundings, Token,
};

use super::backing::Backing;
use super::world::Asking;

/// A node's own idea of time: it runs a little fast or slow, may jump, and may stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    per_million: u64,
    from: Moment,
    at: Moment,
    is_standing: bool,
}

impl Clock {
    /// A clock that runs so many parts of a million fast.
    pub(crate) fn new(per_million: u64, at: Moment) -> Self {
        Self {
            per_million,
            from: Moment::ORIGIN,
            at,
            is_standing: false,
        }
    }

    pub(crate) fn read(&self, now: Moment) -> Moment {
        if self.is_standing {
            return self.at;
        }
        let passed = (now - self.from).as_nanos() as u64;
        let parts = u128::from(passed) * u128::from(self.per_million) / 1_000_000;
        self.at + Duration::from_nanos(parts as u64)
    }

    pub(crate) fn jump(&mut self, now: Moment, by: Duration) {
        (self.at, self.from) = (self.read(now) + by, now);
    }

    pub(crate) fn drift(&mut self, now: Moment, per_million: u64) {
        (self.at, self.from) = (self.read(now), now);
        self.per_million = per_million;
    }

    pub(crate) fn stand(&mut self, now: Moment, stands: bool) {
        (self.at, self.from) = (self.read(now), now);
        self.is_standing = stands;
    }
}

/// Something that a process which is stopped will find when it goes on.
#[derive(Debug)]
pub(crate) enum Waiting {
    Event(Event),
    Petition(Asking),
    Finish(Token),
    Tear(Token),
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) store: Backing,
    /// This copy was made for the volume after others, and has not been in sync.
    pub(crate) is_new: bool,
    /// When the store is looked at next, if it says so itself.
    pub(crate) store_at: Option<Moment>,
    /// Why its pool could not be imported.
    pub(crate) trouble: Option<String>,
    pub(crate) clock: Clock,
    pub(crate) replica: Option<Replica>,
    pub(crate) is_stopped: bool,
    /// It owns the volume, and has said what the register holds.
    pub(crate) knows_register: bool,
    pub(crate) waiting: VecDeque<Waiting>,
    /// Counts processes: what was meant for an older one is dropped.
    pub(crate) life: u32,
    /// How long what the store does takes, mostly, and how many times that it takes now.
    pub(crate) store_time: Duration,
    pub(crate) slowness: u32,
    /// What the store does takes this long, one after the other.
    pub(crate) each: Option<Duration>,
    /// Until then it does nothing of what it is given.
    pub(crate) hangs_until: Option<Moment>,
    /// Its drives as they were, and whether they come back so.
    pub(crate) image: Option<Backing>,
    pub(crate) comes_back_old: bool,
    /// The copy is known to be an old image, and was not copied in full since.
    pub(crate) is_old: bool,
    /// Nothing but other copies knows that it is one; and whether it has left the in-sync set since.
    pub(crate) is_young: bool,
    pub(crate) has_left: bool,
    /// It was an image, and another copy may know of more than it has come to since.
    pub(crate) was_image: bool,
    /// When it has done all of that.
    free_at: Moment,
    /// Cut off from the quorum.
    pub(crate) is_isolated: bool,
}

impl Node {
    pub(crate) fn new(config: Config, store: Backing, clock: Clock) -> Self {
        Self {
            config,
            store,
            is_new: false,
            store_at: None,
            trouble: None,
            clock,
            replica: None,
            is_stopped: false,
            knows_register: false,
            waiting: VecDeque::new(),
            life: 0,
            store_time: Duration::from_micros(600),
            slowness: 1,
            each: None,
            hangs_until: None,
            image: None,
            comes_back_old: false,
            is_old: false,
            is_young: false,
            has_left: false,
            was_image: false,
            free_at: Moment::ORIGIN,
            is_isolated: false,
        }
    }

    /// How long something takes that is given to the store now, behind all that it has.
    pub(crate) fn queue(&mut self, now: Moment, each: Duration) -> Duration {
        self.free_at = self.free_at.max(now) + each;
        self.free_at - now
    }

    /// A process starts.
    pub(crate) fn start(&mut self, now: Moment) {
        self.life += 1;
        self.store_at = None;
        self.knows_register = false;
        self.config.incarnation = Incarnation(self.config.incarnation.0 + 1);
        let imported = Imported {
            entry: self.store.entry(),
            is_old_image: self.is_old && !self.is_young,
            size: None,
            head: self.store.found(),
            heads: self.store.heads(),
        };
        let granules = self.store.content().len() as u64;
        self.config.shape = Shape::new(granules, self.config.shape.leaf_granules);
        let now = self.clock.read(now);
        let mut replica = Replica::new(self.config, imported, now);
        replica.keep_heads();
        self.replica = Some(replica);
    }

    /// The key has changed: an image that was made equal is none.
    pub(crate) fn look_at_key(&mut self, key: &Key) {
        let is_in_sync = key.is_in_sync(self.config.position, self.member());
        if self.is_young && self.has_left && is_in_sync {
            (self.is_old, self.is_young) = (false, false);
        }
        self.has_left = self.is_young && (self.has_left || !is_in_sync);
        // A third copy may have missed that it was made equal, and know of more.
        self.was_image &= self.is_old || key.everybody().count() > 2;
    }

    pub(crate) const fn member(&self) -> MemberId {
        MemberId {
            node: self.config.node,
            replica: self.config.uuid,
        }
    }

    /// The process runs, and looks at what happens.
    pub(crate) fn runs(&self) -> bool {
        self.replica.is_some() && !self.is_stopped
    }

    /// Whether its process runs, and has asked to be woken by now.
    pub(crate) fn is_due(&self, now: Moment) -> bool {
        let due = |replica: &Replica| self.clock.read(now) >= replica.next_deadline();
        self.runs() && self.replica.as_ref().is_some_and(due)
    }

    pub(crate) fn handle(&mut self, now: Moment, event: Event, out: &mut Vec<Effect>) {
        let now = self.clock.read(now);
        if let Some(replica) = self.replica.as_mut() {
            let local = &mut self.store;
            // As nodes do; every other one, so that reads go both ways.
            if let Event::Host(host) = &event
                && let HostOperation::Read { extent } = host.operation
                && host.command.0.is_multiple_of(2)
                && replica.begin_direct(now, host.command, extent, local)
            {
                return;
            }
            replica.handle(event, Surroundings { now, local, out });
            self.is_old &= self.is_young || replica.is_old_image();
        }
    }
}
