//! Worlds in which the quorum is away for long, and something else goes wrong meanwhile, and is mended: as soon as all
//! copies are there, hosts are served, with the quorum or without.

use super::*;

/// When messages and the quorum become quick.
const QUICK: Duration = Duration::from_secs(1);
/// When the quorum leaves: what was late before has arrived.
const LEAVES: Duration = Duration::from_millis(4500);
/// How often something goes wrong, how far apart, and how long it takes. A store hangs for less than what has its owner
/// hand over whether the quorum answers or not.
const TRIALS: u32 = 3;
const EVERY: Duration = Duration::from_secs(14);
const LASTS: (u64, u64) = (200, 9500);
const HANGS: (u64, u64) = (2200, 7000);
/// How soon hosts are served when it is mended, and when all are in sync with the quorum back.
const SERVED_WITHIN: Duration = Duration::from_secs(3);
const IN_SYNC_WITHIN: Duration = Duration::from_secs(5);
/// Hosts' commands are as far apart: each writer's next comes within the time above.
const THINK: Duration = Duration::from_millis(400);

/// What happens in such a world.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Quicken,
    Leave,
    Try,
    Mended,
    Served,
    Back,
    InSync,
}

/// What writers had still to do when something was mended; nothing while the quorum is there.
pub(super) type Left = Option<Vec<u64>>;

impl World<'_> {
    pub(super) fn plan_away(&mut self) {
        self.at(QUICK, Happening::Away(Step::Quicken));
        self.at(LEAVES, Happening::Away(Step::Leave));
        let first = LEAVES + EVERY / 14;
        for n in 0..TRIALS {
            self.at(first + EVERY * n, Happening::Away(Step::Try));
        }
        let back = first + EVERY * TRIALS;
        self.at(back, Happening::Away(Step::Back));
        self.at(back + IN_SYNC_WITHIN, Happening::Away(Step::InSync));
    }

    pub(super) fn away(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Quicken => {
                self.quicken();
                self.hosts.set_think(THINK);
                self.late_commands = 0;
            }
            Step::Leave => self.quorum_leaves(),
            _ if self.left.is_none() => {}
            Step::Try => return self.try_something(),
            Step::Mended => self.left = Some(self.hosts.left()),
            Step::Served => {
                self.served("the quorum is away")?;
                self.summary.trials += 1;
            }
            Step::Back => {
                self.say(|| "the quorum is back".into());
                self.quorum.set_members_down(0);
                self.left = Some(self.hosts.left());
            }
            Step::InSync => {
                self.served("the quorum is back")?;
                let in_sync = self.seen.key.in_sync;
                if in_sync != Positions::first(self.nodes.len()) {
                    let state = self.state();
                    return Err(format!(
                        "the quorum is back for {IN_SYNC_WITHIN:?}: {state}"
                    ));
                }
                self.hosts.end();
            }
        }
        Ok(())
    }

    /// It leaves a world in which nothing is under way that it must settle.
    fn quorum_leaves(&mut self) {
        let is_settled = |node: &Node| node.runs() && node.store.entry().absent.is_empty();
        let is_well = self.seen.key.in_sync == Positions::first(self.nodes.len());
        if is_well && self.nodes.iter().all(is_settled) && self.server().is_some() {
            let down = self.chance.between(2, 3) as usize;
            self.say(|| format!("{down} members of the quorum leave"));
            self.quorum.set_members_down(down);
            self.left = Some(self.hosts.left());
        }
    }

    fn try_something(&mut self) -> Result<(), String> {
        let Some(owner) = self.server() else {
            return Err(format!("the quorum is away: {}", self.state()));
        };
        let others = self.nodes.len() as u64 - 1;
        let member = (owner + 1 + self.chance.below(others) as usize) % self.nodes.len();
        let (least, most) = LASTS;
        let mut lasts = Duration::from_millis(self.chance.between(least, most));
        let node = self.chance.pick(&[owner, member]);
        let way = Way {
            from: node,
            to: owner + member - node,
        };
        let fault = match self.chance.below(6) {
            0 | 1 => Fault::Stop { node, lasts },
            2 => Fault::Cut {
                way,
                is_both: self.chance.happens(500),
                lasts,
            },
            3 | 4 => {
                let (least, most) = HANGS;
                lasts = Duration::from_millis(self.chance.between(least, most));
                Fault::Hang { node, lasts }
            }
            _ => {
                lasts = Duration::ZERO;
                Fault::Move { to: member }
            }
        };
        self.say(|| format!("FAULT {fault:?}"));
        if self.chance.happens(300) {
            let after = self.chance.time(lasts);
            self.at(after, Happening::Fault(Fault::Break { way }));
        }
        self.at(lasts, Happening::Away(Step::Mended));
        self.at(lasts + SERVED_WITHIN, Happening::Away(Step::Served));
        self.befall(fault)
    }

    /// All writers have been served since something was mended.
    fn served(&self, when: &str) -> Result<(), String> {
        let left = self.left.iter().flatten();
        let mut writers = self.hosts.writers.iter().zip(left).enumerate();
        let waits = |writer: &Writer, left: u64| {
            writer.left == left && !matches!(writer.doing, Doing::Done)
        };
        match writers.find(|(_, (writer, left))| waits(writer, **left)) {
            None => Ok(()),
            Some((n, _)) => Err(format!(
                "{when}, all copies are there, and writer {n} is not served: {}",
                self.state()
            )),
        }
    }
}
