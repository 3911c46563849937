//! Labels that refuse a host's late duplicates.
//!
//! Epochs do not stop a late duplicate of one write from overwriting a newer one: hosts try again by another
//! association as soon as one is gone, and what the old one still carries may arrive at any time. So a command carries a
//! *label*: what was known when its host was last known to use its association. What another association had written
//! by then the host has sent beside the command, not after it. The command is refused if there was another epoch then,
//! or if *another association of the same host* has written since.
//!
//! A host may also write by two associations at once. What one of them has written beside the other's command makes
//! that command no duplicate, if it has written something else: a kernel that has given up a read or a write of blocks
//! sends *the same* again, and only then what replaces it. So a command passes if what its label does not know of is
//! [young](YOUTH) and touches nothing that the command changes.
//!
//! Hosts also give commands up without sending them again. So some touch everything: what changes hosts' rights, whether
//! it comes late or before (a host is told that it failed, and goes on), and the first write of an association (its host
//! may have begun anew, or found its other paths dead). And how long the rest may go on is bounded: between two
//! associations that both had written before, such a command does not come late for ever.
//!
//! A label is never made fresh again: a command that is refused goes back to its host.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ashlar_block::{AssociationId, HostId, Label, Moment};

use crate::canary::{Cage, Canary};
use crate::extent::Extent;
use crate::ids::Epoch;

/// How long what a host has written by another association is looked at, instead of ageing all labels.
const YOUTH: Duration = Duration::from_secs(2);
/// Writes of a host that are kept for that: what two associations with 128 commands each get done while a label is
/// proven, several times.
const MOST_RECENT: usize = 4096;

/// It is looked so often for what is older.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    pub host: HostId,
    /// By which association.
    pub association: AssociationId,
}

/// What a command changes.
#[derive(Clone, Copy, Debug)]
pub struct Intent {
    pub extent: Extent,
    /// What hosts may do is changed, which counts for all granules that come later.
    pub is_of_rights: bool,
    pub at: Moment,
}

#[derive(Debug)]
struct Write {
    association: AssociationId,
    /// Its association's first.
    is_first: bool,
    intent: Intent,
}

impl Write {
    /// Whether one that comes later must not be one of before.
    const fn concerns(&self, later: &Intent) -> bool {
        let touches_all = self.is_first || self.intent.is_of_rights || later.is_of_rights;
        touches_all || self.intent.extent.overlaps(later.extent)
    }
}

#[derive(Debug, Default)]
struct Count {
    all: u64,
    by_association: BTreeMap<AssociationId, u64>,
    /// The newest, last.
    recent: VecDeque<Write>,
}

impl Count {
    fn add(&mut self, association: AssociationId, intent: Intent) {
        self.all += 1;
        let is_first = !self.by_association.contains_key(&association);
        *self.by_association.entry(association).or_default() += 1;
        let is_old = |write: &Write| intent.at.since(write.intent.at) > YOUTH;
        while self.recent.front().is_some_and(is_old) || self.recent.len() >= MOST_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Write {
            association,
            is_first,
            intent,
        });
    }

    /// Whether the last writes of other associations than this, so many, are young and touch nothing of the change.
    fn is_beside(&self, association: AssociationId, missed: u64, intent: &Intent) -> bool {
        let others = self.recent.iter().rev();
        let mut others = others.filter(|write| write.association != association);
        (0..missed).all(|_| {
            others.next().is_some_and(|write| {
                let is_young = intent.at.since(write.intent.at) <= YOUTH;
                is_young && !write.concerns(intent)
            })
        })
    }

    /// What is old refuses as what is not remembered does.
    fn forget_old(&mut self, now: Moment) {
        let is_old = |write: &Write| now.since(write.intent.at) > YOUTH;
        if self.recent.back().is_some_and(is_old) {
            self.recent = VecDeque::new();
        }
    }

    fn remove(&mut self, association: AssociationId) {
        self.by_association.remove(&association);
        if self.by_association.is_empty() {
            self.recent = VecDeque::new();
        }
    }
}

/// An owner's counts of each host's writes in its epoch. A new owner begins with none.
#[derive(Debug)]
pub struct Fence {
    epoch: Epoch,
    hosts: BTreeMap<HostId, Count>,
    /// When it was last looked for what is old.
    looked: Option<Moment>,
    cage: Cage,
}

impl Fence {
    /// An owner's, from the beginning of its epoch.
    pub const fn new(epoch: Epoch, cage: Cage) -> Self {
        Self {
            epoch,
            hosts: BTreeMap::new(),
            looked: None,
            cage,
        }
    }

    /// The label of an association's commands, once its host is known to use it after now.
    pub fn label(&self, origin: Origin) -> Label {
        Label {
            epoch: self.epoch.0,
            writes: self.others(origin),
        }
    }

    fn others(&self, origin: Origin) -> u64 {
        let Some(count) = self.hosts.get(&origin.host) else {
            return 0;
        };
        if self.cage.sings(Canary::FenceByNode) {
            return 0;
        }
        count.all - count.by_association.get(&origin.association).unwrap_or(&0)
    }

    /// Whether a write may be sequenced; if it may, it counts from now on.
    pub fn admits(&mut self, origin: Origin, label: Label, intent: Intent) -> bool {
        let now = self.label(origin);
        let same_epoch = label.epoch == now.epoch || self.cage.sings(Canary::FenceWithoutEpoch);
        let is_fresh = same_epoch && self.is_beside(origin, label, &intent);
        let refreshes = self.cage.sings(Canary::FenceRefreshed) && label.epoch != now.epoch;
        if !(is_fresh || refreshes || self.cage.sings(Canary::FenceOff)) {
            return false;
        }
        let count = self.hosts.entry(origin.host).or_default();
        count.add(origin.association, intent);
        true
    }

    /// Whether what the host's other associations have written without the label's knowing is beside the change.
    fn is_beside(&self, origin: Origin, label: Label, intent: &Intent) -> bool {
        let Some(missed) = self.others(origin).checked_sub(label.writes) else {
            return false;
        };
        let Some(count) = self.hosts.get(&origin.host).filter(|_| missed > 0) else {
            return missed == 0;
        };
        self.cage.sings(Canary::FenceBlind) && missed <= count.recent.len() as u64
            || count.is_beside(origin.association, missed, intent)
    }

    /// Time has passed. Where hosts that write no more have written takes no room: of those that have come by other
    /// nodes it is not told when they go.
    pub fn tick(&mut self, now: Moment) {
        if self.looked.is_some_and(|at| now.since(at) < LOOK_EVERY) {
            return;
        }
        self.looked = Some(now);
        for count in self.hosts.values_mut() {
            count.forget_old(now);
        }
    }

    /// How many writes it knows the place of.
    #[cfg(test)]
    pub fn remembers(&self) -> usize {
        let all = self.hosts.values();
        all.map(|count| count.recent.len()).sum()
    }

    /// An association is gone, and nothing of it is left in its socket: its writes still count against others.
    pub fn ended(&mut self, origin: Origin) {
        if let Some(count) = self.hosts.get_mut(&origin.host) {
            count.remove(origin.association);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(association: u64) -> Origin {
        Origin {
            host: HostId(1),
            association: AssociationId(association),
        }
    }

    /// A write at a time, in milliseconds.
    fn write(first: u64, at: u64) -> Intent {
        Intent {
            extent: Extent::new(first, 2).expect("not empty"),
            is_of_rights: false,
            at: Moment::from_nanos(at * 1_000_000),
        }
    }

    const HERE: u64 = 10;

    #[test]
    fn a_late_duplicate_is_refused_once_another_association_has_written() {
        let mut fence = Fence::new(Epoch(3), Cage::default());
        let (old, new) = (origin(1), origin(2));
        let label = fence.label(old);
        assert!(
            fence.admits(old, label, write(HERE, 0)),
            "no other has written"
        );
        assert!(
            fence.admits(old, label, write(HERE, 0)),
            "its own writes do not age a label"
        );
        let fresh = fence.label(new);
        assert!(fence.admits(new, fresh, write(HERE, 0)));
        assert!(
            !fence.admits(old, label, write(HERE, 0)),
            "another association has written since"
        );
        let relabelled = fence.label(old);
        assert!(fence.admits(old, relabelled, write(HERE, 0)));
        assert!(!fence.admits(new, fresh, write(HERE, 0)));
        fence.ended(new);
        assert!(
            !fence.admits(old, label, write(HERE, 0)),
            "the writes of one that is gone still count"
        );
    }

    #[test]
    fn hosts_do_not_age_each_others_labels_and_epochs_do() {
        let mut fence = Fence::new(Epoch(3), Cage::default());
        let other = Origin {
            host: HostId(2),
            association: AssociationId(9),
        };
        let label = fence.label(origin(1));
        let its = fence.label(other);
        assert!(
            fence.admits(other, its, write(HERE, 0))
                && fence.admits(origin(1), label, write(HERE, 0))
        );
        let mut next = Fence::new(Epoch(4), Cage::default());
        assert!(!next.admits(origin(1), label, write(HERE, 0)));
    }

    /// Two associations that have written, the second at granule 1000, and labels that know of all.
    fn two_that_write(fence: &mut Fence) -> [(Origin, Label); 2] {
        let two = [(origin(1), 0), (origin(2), 1000)];
        for (one, first) in two {
            let label = fence.label(one);
            assert!(fence.admits(one, label, write(first, 0)));
        }
        two.map(|(one, _)| (one, fence.label(one)))
    }

    fn rights(at: u64) -> Intent {
        Intent {
            is_of_rights: true,
            ..write(2000, at)
        }
    }

    #[test]
    fn two_live_associations_refuse_only_what_the_other_has_just_changed() {
        let mut fence = Fence::new(Epoch(3), Cage::default());
        let [(one, its), (two, label)] = two_that_write(&mut fence);
        for at in 1..200 {
            assert!(fence.admits(one, its, write(2 * at, at)), "{at}");
            assert!(fence.admits(two, label, write(1000 + 2 * at, at)), "{at}");
        }
        assert!(
            !fence.admits(two, label, write(21, 200)),
            "one has written there"
        );
        assert!(
            fence.admits(one, its, write(21, 200)),
            "its own is no obstacle"
        );
        // The label knows of the write there, and not of what came behind it.
        let known = fence.label(two);
        assert!(fence.admits(one, its, write(500, 200)));
        assert!(fence.admits(two, known, write(21, 200)));
    }

    #[test]
    fn what_is_not_known_of_for_long_ages_a_label_wherever_it_is() {
        let mut fence = Fence::new(Epoch(3), Cage::default());
        let [(one, its), (two, label)] = two_that_write(&mut fence);
        assert!(fence.admits(one, its, write(0, 1)));
        assert!(fence.admits(two, label, write(100, 2000)));
        assert!(!fence.admits(two, label, write(100, 2002)));
        let fresh = fence.label(two);
        assert!(fence.admits(two, fresh, write(100, 2002)));
        // More than is remembered, in no time.
        for _ in 0..MOST_RECENT {
            let its = fence.label(one);
            assert!(fence.admits(one, its, write(0, 2002)));
        }
        assert!(fence.admits(two, fresh, write(100, 2002)));
        assert!(!fence.admits(two, fresh, write(100, 2002)));
    }

    #[test]
    fn what_changes_hosts_rights_ages_all_labels() {
        let mut fence = Fence::new(Epoch(3), Cage::default());
        let [(one, its), (two, label)] = two_that_write(&mut fence);
        assert!(fence.admits(one, its, rights(0)));
        assert!(!fence.admits(two, label, write(100, 0)));
    }

    #[test]
    fn a_late_change_of_rights_is_refused_wherever_its_host_has_written() {
        let mut fence = Fence::new(Epoch(3), Cage::default());
        let [(one, its), (two, label)] = two_that_write(&mut fence);
        assert!(fence.admits(one, its, write(0, 1)));
        assert!(!fence.admits(two, label, rights(1)), "its host has gone on");
        let fresh = fence.label(two);
        assert!(fence.admits(two, fresh, rights(1)));
    }

    #[test]
    fn the_first_write_of_an_association_ages_all_labels() {
        let mut fence = Fence::new(Epoch(3), Cage::default());
        let [_, (two, label)] = two_that_write(&mut fence);
        let next = origin(3);
        let its = fence.label(next);
        assert!(fence.admits(next, its, write(500, 1)));
        assert!(
            !fence.admits(two, label, write(100, 1)),
            "its host may have begun anew"
        );
        let fresh = fence.label(two);
        assert!(fence.admits(next, its, write(500, 2)));
        assert!(fence.admits(two, fresh, write(100, 2)), "both are live");
    }

    #[test]
    fn where_a_host_has_written_is_forgotten_when_it_is_old() {
        let mut fence = Fence::new(Epoch(3), Cage::default());
        let [(one, its), (two, label)] = two_that_write(&mut fence);
        let millis = |at: u64| Moment::from_nanos(at * 1_000_000);
        assert!(fence.admits(one, its, write(0, 500)));
        fence.tick(millis(2000));
        assert_eq!(fence.remembers(), 3);
        fence.tick(millis(2600));
        assert_eq!(fence.remembers(), 3, "it was looked not long ago");
        fence.tick(millis(3000));
        assert_eq!(fence.remembers(), 0);
        assert!(!fence.admits(two, label, write(100, 3000)));
        let fresh = fence.label(two);
        assert!(fence.admits(two, fresh, write(100, 3000)));
    }
}
