//! Worlds in which nothing fails but one member, at last: who is slow, or was held up, must stay in sync, and who is
//! dead must not.

use super::*;

/// When messages and the quorum become quick: what was late before has arrived when all must stay as it is.
const QUICK: Duration = Duration::from_secs(1);
/// When hosts have begun, and all that was still to join has.
const FROM: Duration = Duration::from_secs(3);
/// A member's store does one thing after the other, each in this time: so what is given to it together takes longer
/// than a store may be silent.
const EACH: Duration = Duration::from_millis(700);
/// How often the owner is held up, and how long: less than the members' promises last.
const PAUSE_EVERY: Duration = Duration::from_millis(2200);
const PAUSE: (u64, u64) = (600, 1200);
const PAUSES: u32 = 3;
/// When a member dies, and when it must be out.
const DIES: Duration = Duration::from_secs(8);
const OUT_WITHIN: Duration = Duration::from_millis(1600);
/// The same of one that ends in order, and says so: that waits for no silence.
const LEFT_WITHIN: Duration = Duration::from_millis(200);
/// When sessions break: what members' stores have in hand then takes longer than a member may be silent.
const BREAKS: [Duration; 2] = [Duration::from_millis(1300), Duration::from_millis(5600)];
/// A host does not give up sooner than a copy is given up.
const PATIENT: Duration = Duration::from_secs(10);

/// What happens in such a world.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Quicken,
    Begin,
    HoldUp,
    Break,
    Die,
    /// A member that ends in order is out by now.
    JudgeEnd,
    Judge,
}

/// What must stay as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calm {
    owner: usize,
    epoch: Epoch,
    /// The member that has died.
    dead: Option<usize>,
}

impl World<'_> {
    pub(super) fn plan_steady(&mut self) {
        self.at(QUICK, Happening::Steady(Step::Quicken));
        self.at(FROM, Happening::Steady(Step::Begin));
        for n in 1..=PAUSES {
            self.at(FROM + PAUSE_EVERY * n, Happening::Steady(Step::HoldUp));
        }
        for after in BREAKS {
            self.at(FROM + after, Happening::Steady(Step::Break));
        }
        self.at(FROM + DIES, Happening::Steady(Step::Die));
        self.at(FROM + DIES + OUT_WITHIN, Happening::Steady(Step::Judge));
    }

    pub(super) fn steady(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Quicken => self.quicken(),
            Step::Begin => self.begin_steady(),
            Step::HoldUp | Step::Break | Step::Die | Step::JudgeEnd | Step::Judge => {}
        }
        let Some(calm) = self.steady.filter(|_| !self.has_healed) else {
            return Ok(());
        };
        match step {
            Step::Quicken | Step::Begin => Ok(()),
            Step::HoldUp => {
                let (least, most) = PAUSE;
                let lasts = Duration::from_millis(self.chance.between(least, most));
                let node = calm.owner;
                self.befall(Fault::Stop { node, lasts })
            }
            Step::Break => {
                let (from, to) = (calm.owner, (calm.owner + 1) % self.nodes.len());
                self.befall(Fault::Break {
                    way: Way { from, to },
                })
            }
            Step::Die => {
                // The owner, if two others are left, of which one takes over.
                let mut aside = self.chance.aside();
                let is_owner = self.nodes.len() > 2 && aside.happens(500);
                let dead = match is_owner {
                    true => calm.owner,
                    false => (calm.owner + 1) % self.nodes.len(),
                };
                self.steady = Some(Calm {
                    dead: Some(dead),
                    ..calm
                });
                if dead != calm.owner && aside.happens(500) {
                    self.at(LEFT_WITHIN, Happening::Steady(Step::JudgeEnd));
                    return self.end(dead);
                }
                self.say(|| format!("node {dead} dies"));
                self.crash(dead);
                Ok(())
            }
            Step::JudgeEnd => match calm.dead.map(position) {
                Some(dead) if self.seen.key.in_sync.has(dead) => Err(format!(
                    "{dead} ends in order since {LEFT_WITHIN:?}, and counts as in sync"
                )),
                _ => Ok(()),
            },
            Step::Judge => match calm.dead.map(position) {
                Some(dead) if dead.index() != calm.owner && self.seen.key.in_sync.has(dead) => Err(
                    format!("{dead} is dead since {OUT_WITHIN:?}, and counts as in sync"),
                ),
                _ => Ok(()),
            },
        }
    }

    pub(super) fn quicken(&mut self) {
        self.wires.calm();
        self.quorum_time = Duration::from_millis(8);
        self.hosts.set_timeout(PATIENT);
        for node in &mut self.nodes {
            node.store_time = STORE_TIME;
        }
    }

    fn begin_steady(&mut self) {
        let all = Positions::first(self.nodes.len());
        let Some(owner) = self.server().filter(|_| self.seen.key.in_sync == all) else {
            return;
        };
        for (n, node) in self.nodes.iter_mut().enumerate() {
            node.each = (n != owner).then_some(EACH);
        }
        let (epoch, dead) = (self.seen.key.epoch, None);
        self.steady = Some(Calm { owner, epoch, dead });
        self.summary.steady += 1;
        self.say(|| format!("from here on node {owner} stays the owner, and all stay in sync"));
    }

    /// Looks at a change of the key.
    pub(super) fn look_at_calm(&self, before: Positions) -> Result<(), String> {
        let Some(calm) = self.steady.filter(|_| !self.has_healed) else {
            return Ok(());
        };
        let key = &self.seen.key;
        let dead = calm.dead.map(position);
        let lost = before.minus(key.in_sync);
        match lost.iter().find(|&one| Some(one) != dead) {
            Some(lost) => Err(format!("{lost} lives, and was left out")),
            None if key.epoch != calm.epoch && calm.dead != Some(calm.owner) => Err(format!(
                "{} has taken the volume from node {}, which lives",
                key.owner.node, calm.owner
            )),
            None => Ok(()),
        }
    }
}
