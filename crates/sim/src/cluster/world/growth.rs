//! An operator who makes the volume larger while faults befall the cluster. The order again and again, as one who repeats
//! a command until it is done: the key says the size that there is, the copies grow one by one, the key says the new size.

use ashlar_replica::{Canary, Growth, Replica, Size};

use super::*;

/// How often the operator looks at what has become of it.
const LOOKS_EVERY: Duration = Duration::from_millis(120);
/// How long an operator waits for an owner.
const WAITS: Duration = Duration::from_secs(1);
/// Most granules that hosts get, each time.
const MOST: u64 = 12;
/// Granules that no volume of a world goes beyond its first ones.
pub(super) const ROOM: usize = Size::GAP as usize + 2 * MOST as usize;

/// What the volume is to become, the next first.
#[derive(Debug, Default)]
pub(super) struct Growths {
    wanted: Vec<Size>,
    round: Option<Round>,
}

/// A command of the operator's: which copies there were when it began, and nodes that it has given room since.
#[derive(Debug)]
struct Round {
    members: Members,
    given: Vec<usize>,
}

impl Growths {
    pub(super) fn are_done(&self) -> bool {
        self.wanted.is_empty()
    }
}

impl World<'_> {
    /// Without taking from the world's chances: other worlds stay what they were.
    pub(super) fn plan_growth(&mut self, profile: &Profile, lasts: Duration) {
        let mut aside = self.chance.aside();
        // Not the one that decides on the operator of copies.
        aside.below(2);
        let is_simulated = |node: &Node| matches!(node.store, Backing::Simulated(_));
        if !aside.happens(profile.grows) || !self.nodes.iter().all(is_simulated) {
            return;
        }
        let mut size = self.hosts.shape().size();
        for _ in 0..aside.between(1, 2) {
            let hosts = size.hosts() + aside.between(1, MOST);
            size = size.grown(hosts).unwrap_or(size);
            self.growths.wanted.push(size);
        }
        let after = Duration::from_nanos(aside.below(lasts.as_nanos() as u64));
        self.at(after, Happening::Grow);
    }

    /// Goes on with what is to become of the volume.
    pub(super) fn grow(&mut self) -> Result<(), String> {
        let Some(&wanted) = self.growths.wanted.first() else {
            return Ok(());
        };
        self.at(LOOKS_EVERY, Happening::Grow);
        if self.seen.key.size == Some(wanted) {
            return self.has_grown(wanted);
        }
        let skips_pin = self.nodes[0].config.cage.sings(Canary::GrowUnpinned);
        let size = self.seen.key.size;
        let mut owners = self.nodes.iter().filter_map(|node| node.replica.as_ref());
        let is_told = |one: &Replica| !one.is_serving() || one.said_size() == size;
        let is_pinned = size.is_some() && owners.all(is_told);
        let members = self.seen.key.members;
        if self.seen.key.size.is_none() && !skips_pin {
            return self.resize(self.hosts.shape().size(), members);
        }
        if !is_pinned && !skips_pin {
            return Ok(());
        }
        let given = Vec::new();
        let round = self.growths.round.take();
        let mut round = round.unwrap_or(Round { members, given });
        let all = self.give_rooms(&mut round, wanted)?;
        // Between the last and the wish anything may happen.
        let mut aside = self.chance.aside();
        if !all || !self.has_healed && aside.happens(700) {
            self.growths.round = Some(round);
            return Ok(());
        }
        self.resize(wanted, round.members)
    }

    /// Whether all copies that there were when the command began have got the room: one that is not reached has the rest
    /// wait.
    fn give_rooms(&mut self, round: &mut Round, wanted: Size) -> Result<bool, String> {
        let mut aside = self.chance.aside();
        for at in round.members.positions().iter() {
            let node = at.index();
            if round.given.contains(&node) {
                continue;
            }
            let one = &self.nodes[node];
            if !one.runs() || aside.happens(300) {
                return Ok(false);
            }
            if (one.store.content().len() as u64) < wanted.granules {
                self.give_room(node, wanted)?;
            }
            round.given.push(node);
        }
        Ok(true)
    }

    fn give_room(&mut self, node: usize, size: Size) -> Result<(), String> {
        self.say(|| format!("OPERATOR gives node {node} room for {size:?}"));
        self.nodes[node].store.grow(size.granules);
        let granules = size.granules;
        self.handle(node, Event::Grown { granules })
    }

    fn resize(&mut self, size: Size, members: Members) -> Result<(), String> {
        self.say(|| format!("OPERATOR wants {size:?}"));
        (0..self.nodes.len()).try_for_each(|node| {
            let until = self.nodes[node].clock.read(self.now) + WAITS;
            let growth = Growth {
                size,
                members,
                until,
            };
            self.handle(node, Event::Resize(growth))
        })
    }

    /// Hosts hear of it once an owner serves that size.
    fn has_grown(&mut self, size: Size) -> Result<(), String> {
        let now = self.now;
        let serves = |node: &Node| {
            let clock = node.clock.read(now);
            let replica = node.replica.as_ref().filter(|one| one.reads(clock));
            replica.and_then(|one| one.size(clock)) == Some(size)
        };
        if self.nodes.iter().any(serves) {
            self.say(|| format!("hosts hear that the volume has {size:?}"));
            self.hosts.set_size(size);
            self.growths.wanted.remove(0);
            // Who has room for this size need not have it for the next.
            self.growths.round = None;
            self.summary.growths += 1;
        }
        Ok(())
    }

    /// A copy has less than its owner speaks of: one that has got its place lately may, and gets the room.
    pub(super) fn lacks_room(&mut self, node: usize) -> Result<(), String> {
        if self.seen.key.in_sync.has(position(node)) {
            return Err(format!(
                "node {node} is in sync, and has no room for {:?}",
                self.seen.key.size
            ));
        }
        // It goes out of service, and is imported again.
        self.at(Duration::ZERO, Happening::Enlarge(node));
        Ok(())
    }

    /// Before a process starts: a copy from before the volume grew has its room first.
    pub(super) fn catch_up_size(&mut self, node: usize) {
        if let Some(size) = self.seen.key.size {
            self.nodes[node].store.grow(size.granules);
        }
    }
}
