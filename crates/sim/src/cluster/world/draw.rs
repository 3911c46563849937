//! What a seed makes of a profile: the cluster, its hosts, and what will befall them.

use super::*;
use crate::cluster::asks::Asks;

impl<'a> World<'a> {
    pub(crate) fn draw(seed: u64, profile: &Profile, listener: Option<Listener<'a>>) -> Self {
        let mut chance = Chance::new(seed);
        let count = if chance.happens(500) { 2 } else { 3 };
        let drawn_leaf = chance.between(2, 6) as u32;
        // Without taking from the world's chances: other worlds stay what they were.
        let mut aside = chance.aside();
        let is_engine = aside.happens(profile.engines);
        let leaf_granules = if is_engine { LEAF_GRANULES } else { drawn_leaf };
        let shape = Shape::new(chance.between(6, 20) + 1, leaf_granules);
        let member = |n: usize| MemberId {
            node: NodeId(n as u32),
            replica: ReplicaUuid([n as u8 + 1; 16]),
        };
        let members = match Members::first((0..count).map(member)) {
            Ok(members) => members,
            Err(why) => panic!("{why}"),
        };
        let in_sync = match chance.below(4) {
            0 => Positions::first(1),
            _ => Positions::first(count),
        };
        let key = Key {
            epoch: Epoch(1),
            owner: ashlar_replica::OwnerId {
                node: NodeId(0),
                incarnation: Incarnation(0),
            },
            in_sync,
            members,
            forced: 0,
            size: None,
        };
        let reads = match profile.clocks > 0 {
            true => ReadMode::Confirmed,
            false => ReadMode::Leased,
        };
        let entry = Entry {
            promised: Epoch(1),
            session: SessionId(0),
            absent: key.absent(),
        };
        let power_loss_wait = match chance.below(3) {
            0 => POWER_LOSS_WAIT,
            1 => REMOVE_AFTER,
            _ => Duration::from_secs(2),
        };
        // One that is left out says nothing of an image.
        let power_loss_wait = match profile.is_young {
            true => POWER_LOSS_WAIT,
            false => power_loss_wait,
        };
        let prove_every = match aside.happens(profile.proofs) {
            true => Duration::from_millis(aside.pick(&[200, 2000])),
            false => Duration::from_secs(3600),
        };
        let mut runs = aside.aside();
        let written_leaves = runs.between(1, 3) as u32;
        let unwritten_leaves = runs.between(1, 4) as u32;
        let cage = Cage::new(profile.canary);
        let mut nodes = Vec::new();
        for (n, member) in members.iter().map(|(at, member)| (at.index(), member)) {
            let config = Config {
                volume: VOLUME,
                shard: ShardId(0),
                node: member.node,
                incarnation: Incarnation(0),
                position: position(n),
                uuid: member.replica,
                shape,
                reads,
                limits: Limits {
                    piece_granules: chance.between(1, 4) as u32,
                    base_pieces: chance.between(1, 4) as usize,
                    copies: chance.between(1, 3) as usize,
                    learner_records: 64,
                    learner_granules: 16_384,
                    power_loss_wait,
                    resync_free: 100,
                    prove_every,
                    written_leaves,
                    unwritten_leaves,
                },
                cage,
            };
            let store = match is_engine {
                true => Self::pool(position(n), shape, entry, profile, &mut aside),
                false => Ok(Backing::Simulated(Box::new(Store::new(
                    position(n),
                    shape,
                    entry,
                    cage,
                )))),
            };
            let store = match store {
                Ok(store) => store,
                // Nothing has happened to it yet.
                Err(why) => panic!("a pool cannot be made: {why}"),
            };
            let per_million = chance.between(990_100, 1_009_900);
            let start = Moment::from_nanos(chance.below(1_000_000_000_000));
            nodes.push(Node::new(config, store, Clock::new(per_million, start)));
        }
        let mut quorum = MemoryQuorum::new(3);
        let revision = quorum.put(VOLUME, key.encode());
        let lasts = Duration::from_millis(500 * profile.faults + chance.below(2000));
        let commands = chance.between(profile.commands / 3, profile.commands);
        let mut hosts = Hosts::draw(&mut chance, shape, commands, lasts);
        let mut ages = chance.aside();
        let mut asks = ages.aside();
        let rights = asks.happens(profile.rights).then(|| Rights::new(count));
        if rights.is_some() {
            hosts.reserve(Asks::draw_up(asks));
        } else if ages.happens(profile.pairs) {
            hosts.pair_up(ages);
        }
        let millis = |millis: u64| Duration::from_millis(millis);
        let quorum_time = chance.pick(&[millis(8), millis(8), millis(60), millis(400)]);
        let usual = chance.pick(&[millis(1), millis(1), millis(5), millis(40)]);
        let late = chance.pick(&[0, 4, 30]);
        let late_commands = chance.pick(&[0, 50, 300]);
        let drawn = chance.below(profile.ambushes + 1);
        let mut ambushes: Vec<Ambush> = Vec::new();
        for lure in profile.lures.iter().cycle().take(4 * profile.lures.len()) {
            ambushes.push(faults::lured(&mut chance, *lure));
        }
        ambushes.extend((0..drawn).map(|_| faults::ambush(&mut chance)));
        let slow = chance.pick(&[1, 8, 40]);
        for node in &mut nodes {
            let times = if chance.happens(300) { 8 } else { 1 };
            node.store_time = STORE_TIME * slow * times;
        }
        let mut world = Self {
            now: Moment::ORIGIN,
            due: BinaryHeap::new(),
            turns: 0,
            chance,
            trace: Trace(listener),
            nodes,
            wires: Wires::new(usual, late),
            quorum,
            quorum_at: None,
            is_silent: false,
            quorum_time,
            late_commands,
            ambushes,
            hosts,
            model: Model::new(shape.granules as usize + growth::ROOM),
            unanswered: Default::default(),
            rights,
            seen: Seen::new(revision, key, Moment::ORIGIN),
            wishes: Vec::new(),
            growths: Growths::default(),
            heals_at: Moment::ORIGIN + lasts,
            has_healed: false,
            dark_until: Moment::ORIGIN,
            fails_until: Moment::ORIGIN,
            spoils_all: profile.spoils_all,
            stage: Stage::Lives,
            steady: None,
            left: None,
            strikes: Vec::new(),
            summary: Summary {
                nodes: count,
                ..Summary::default()
            },
        };
        world.plan(profile, lasts);
        world
    }

    fn pool(
        seat: Position,
        shape: Shape,
        entry: Entry,
        profile: &Profile,
        chance: &mut Chance,
    ) -> Result<Backing, String> {
        let canary = profile.engine_canary;
        let store = PoolStore::new(seat, shape, entry, canary, chance)?;
        Ok(Backing::Engine(Box::new(store)))
    }

    pub(super) fn plan(&mut self, profile: &Profile, lasts: Duration) {
        let count = self.nodes.len();
        self.say(|| format!("{count} nodes, faults for {lasts:?}"));
        for node in 0..count {
            let after = self.chance.time(Duration::from_millis(300));
            self.at(
                after,
                Happening::Over(Fault::Crash {
                    node,
                    lasts,
                    is_certified: false,
                }),
            );
        }
        for writer in 0..self.hosts.writers.len() {
            let after = self.hosts.pause(&mut self.chance);
            self.at(after, Happening::Next(writer));
        }
        if profile.is_steady {
            self.plan_steady();
        }
        if profile.is_away {
            self.plan_away();
        }
        let faults = match profile.faults {
            0 => 0,
            _ if profile.is_steady || profile.is_away => 0,
            most => self.chance.between(1, most),
        };
        for _ in 0..faults {
            let after = Duration::from_nanos(self.chance.below(lasts.as_nanos() as u64));
            let fault = faults::draw(&mut self.chance, profile, count);
            self.at(after, Happening::Fault(fault));
        }
        let heals = match profile.is_young {
            true => self.plan_young_image(lasts),
            false => lasts,
        };
        self.at(heals, Happening::Heal);
        self.plan_operator(profile, lasts);
        self.plan_growth(profile, lasts);
        self.plan_ends(profile, lasts);
    }
}
