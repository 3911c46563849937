//! Processes that end in order while faults befall the cluster: what they own is handed over, then they ask the owner to
//! leave their copy out of the in-sync set, and end when that is so, or after some time in any case.

use super::*;

/// How often a process that ends looks whether it may.
const LOOKS_EVERY: Duration = Duration::from_millis(30);
/// An owner is asked so often to hand over: at each so many looks.
const MOVES_EVERY: u32 = 16;
/// How long it waits at most.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// How long it is away, at most.
const AWAY_AT_MOST: Duration = Duration::from_secs(2);
/// Most ends in a world.
const MOST_ENDS: u64 = 4;
/// How long an order is on its way, mostly; of a thousand, those that take much longer.
const ORDER_TIME: Duration = Duration::from_millis(8);
const LATE: (u32, Duration) = (50, Duration::from_secs(3));

/// A process that ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    node: usize,
    life: u32,
    until: Moment,
    looks: u32,
}

impl World<'_> {
    /// Without taking from the world's chances: other worlds stay what they were.
    pub(super) fn plan_ends(&mut self, profile: &Profile, lasts: Duration) {
        let mut aside = self.chance.aside();
        // Not those that decide on operators.
        aside.below(2);
        aside.below(2);
        if !aside.happens(profile.ends) {
            return;
        }
        for _ in 0..aside.between(1, MOST_ENDS) {
            let after = Duration::from_nanos(aside.below(lasts.as_nanos() as u64));
            let node = aside.below(self.nodes.len() as u64) as usize;
            self.at(after, Happening::End(node));
        }
    }

    /// A process is told to end.
    pub(super) fn end(&mut self, node: usize) -> Result<(), String> {
        if self.has_healed {
            return Ok(());
        }
        self.say(|| format!("node {node} is to end in order"));
        let life = self.nodes[node].life;
        self.goes_on_ending(Ending {
            node,
            life,
            until: self.now + ENDS_WITHIN,
            looks: 0,
        })
    }

    pub(super) fn goes_on_ending(&mut self, ending: Ending) -> Result<(), String> {
        let Ending {
            node, life, looks, ..
        } = ending;
        let known = &self.nodes[node];
        let replica = known.replica.as_ref();
        let Some(replica) = replica.filter(|_| known.life == life && !self.has_healed) else {
            return Ok(());
        };
        let (owns, key, me) = (replica.owns().is_some(), &self.seen.key, position(node));
        let sees = known.runs() && !known.is_isolated;
        let heir = key.in_sync.without(me).iter().next();
        let owner = key.position(key.owner.node).map(Position::index);
        let has_left = sees && !owns && !key.in_sync.has(me);
        self.summary.left += u64::from(has_left);
        if has_left || self.now >= ending.until {
            self.say(|| format!("node {node} ends; its copy has left: {has_left}"));
            let lasts = self.chance.time(AWAY_AT_MOST);
            let is_certified = true;
            return self.befall(Fault::Crash {
                node,
                lasts,
                is_certified,
            });
        }
        let looks = looks + 1;
        self.at(LOOKS_EVERY, Happening::Ends(Ending { looks, ..ending }));
        match (owns, heir, owner) {
            _ if !sees => {}
            (true, Some(to), _) if looks % MOVES_EVERY == 1 => {
                return self.handle(node, Event::Move { to });
            }
            (false, _, Some(owner)) if owner != node => self.asks_to_leave(node, owner),
            _ => {}
        }
        Ok(())
    }

    /// By an order, not by the session.
    fn asks_to_leave(&mut self, node: usize, owner: usize) {
        let way = Way {
            from: node,
            to: owner,
        };
        if [way, back(way)].iter().any(|&way| self.wires.is_cut(way)) {
            return;
        }
        let mut after = Duration::from_micros(100) + self.chance.time(ORDER_TIME);
        if !self.has_healed && self.chance.happens(LATE.0) {
            after += self.chance.time(LATE.1);
        }
        let leaves = Happening::Leaves {
            node: owner,
            of: node,
            incarnation: self.nodes[node].config.incarnation,
        };
        self.at(after, leaves);
    }
}
