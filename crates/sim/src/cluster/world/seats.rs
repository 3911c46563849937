//! An operator who takes copies away, and gives others, while faults befall the cluster.

use super::*;

/// How often the operator looks at what has become of it.
const LOOKS_EVERY: Duration = Duration::from_millis(150);
/// Most copies that are taken away in a world.
const MOST: u64 = 3;

/// How long an operator waits.
const WAITS: Duration = Duration::from_secs(1);

/// What a node was asked for.
#[derive(Debug)]
pub(super) struct Wished {
    node: usize,
    wish: Wish,
}

impl World<'_> {
    /// Without taking from the world's chances: other worlds stay what they were.
    pub(super) fn plan_operator(&mut self, profile: &Profile, lasts: Duration) {
        let mut aside = self.chance.aside();
        if !aside.happens(profile.reseats) {
            return;
        }
        for _ in 0..aside.between(1, MOST) {
            let after = Duration::from_nanos(aside.below(lasts.as_nanos() as u64));
            let node = aside.below(self.nodes.len() as u64) as usize;
            self.at(after, Happening::Unseat(node));
        }
        self.at(LOOKS_EVERY, Happening::Operate);
    }

    /// A node's copy is to go. Its owner may have to say that its own cannot.
    pub(super) fn unseat(&mut self, node: usize) -> Result<(), String> {
        if self.has_healed {
            return Ok(());
        }
        self.say(|| format!("OPERATOR takes node {node}'s copy away"));
        self.reseat(self.seen.key.members.without(position(node)))
    }

    fn reseat(&mut self, members: Members) -> Result<(), String> {
        (0..self.nodes.len()).try_for_each(|node| {
            let wish = Wish {
                members,
                in_sync: self.seen.key.in_sync,
                until: self.nodes[node].clock.read(self.now) + WAITS,
            };
            self.wishes.push(Wished { node, wish });
            self.handle(node, Event::Reseat(wish))
        })
    }

    /// Copies change as an operator wants it who still waits, while those are in sync that the operator has seen.
    pub(super) fn look_at_wishes(&self, node: usize, question: &Question) -> Result<(), String> {
        let Question::Swap { revision, value } = question else {
            return Ok(());
        };
        let key = Key::decode(value).map_err(|why| why.to_string())?;
        let known = &self.seen.key;
        let nodes = |members: Members| members.map(|member| member.node);
        if *revision != self.seen.revision || nodes(key.members) == nodes(known.members) {
            return Ok(());
        }
        let now = self.nodes[node].clock.read(self.now);
        let is_it = |wished: &Wished| {
            let Wish {
                members,
                in_sync,
                until,
            } = wished.wish;
            (wished.node, members, in_sync) == (node, key.members, known.in_sync) && now < until
        };
        match self.wishes.iter().any(is_it) {
            true => Ok(()),
            false => Err(format!(
                "node {node} changes copies to {:?} with {:?} in sync, which no command waits for",
                key.members, known.in_sync
            )),
        }
    }

    /// Who has no copy gets one: mostly a new one, on the node that had the old.
    pub(super) fn operate(&mut self) -> Result<(), String> {
        self.at(LOOKS_EVERY, Happening::Operate);
        let members = self.seen.key.members;
        let has_none = |n: &usize| {
            let node = self.nodes[*n].config.node;
            members.find(|member| member.node == node).is_none()
        };
        let Some(n) = (0..self.nodes.len()).find(has_none) else {
            return Ok(());
        };
        let mut aside = self.chance.aside();
        if !self.has_healed && aside.happens(300) {
            return Ok(());
        }
        let has_old = !self.nodes[n].is_new;
        if has_old && (self.has_healed || aside.happens(800)) {
            self.replace(n, &mut aside)?;
        }
        self.say(|| format!("OPERATOR gives node {n} a copy"));
        let member = MemberId {
            node: self.nodes[n].config.node,
            replica: ReplicaUuid::NEW,
        };
        self.reseat(members.with(position(n), member))
    }

    /// The copy is deleted, and another made.
    fn replace(&mut self, n: usize, chance: &mut Chance) -> Result<(), String> {
        let is_up = self.crash(n);
        let seat = position(n);
        let node = &mut self.nodes[n];
        node.store = node.store.another(seat, &node.config, chance)?;
        node.config.uuid.0[1] += 1;
        node.is_new = true;
        self.summary.replaced += 1;
        if is_up {
            self.start(n);
        }
        Ok(())
    }
}
