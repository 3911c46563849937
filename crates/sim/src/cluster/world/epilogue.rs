//! What a world goes through when faults have ended and all copies are in sync, quiet and equal: a move that nothing
//! disturbs, and a bit that flips on one copy.

use ashlar_replica::Extent;

use super::*;

/// Longer than anything is late, and than a session takes to begin again.
const CALM: Duration = Duration::from_secs(5);
/// How long after a move it is looked who owns the volume.
const SETTLED: Duration = Duration::from_secs(3);
/// How long it may take until a copy that differs is found and mended.
const FOUND_WITHIN: Duration = Duration::from_secs(10);

/// How far a world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Hosts work, faults befall it.
    Lives,
    /// All is well, and what is late yet arrives.
    Calms(Moment),
    /// The volume was moved in this epoch.
    Moved {
        from: Epoch,
        to: usize,
        since: Moment,
    },
    /// A copy differs.
    Flipped {
        flip: Flip,
        since: Moment,
        found: Found,
    },
}

/// A granule that has changed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flip {
    pub(crate) node: usize,
    pub(crate) granule: usize,
}

/// What has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// Its owner knows.
    Alarmed,
    /// The copy has left the in-sync set.
    Removed,
}

impl World<'_> {
    /// What differs on purpose.
    pub(super) const fn flip(&self) -> Option<Flip> {
        match self.stage {
            Stage::Flipped { flip, .. } => Some(flip),
            Stage::Lives | Stage::Calms(_) | Stage::Moved { .. } => None,
        }
    }

    /// Whether the world is over.
    pub(super) fn is_at_end(&mut self) -> Result<bool, String> {
        match self.stage {
            Stage::Lives => {
                if self.is_over()? {
                    self.calm();
                }
                Ok(false)
            }
            Stage::Calms(since) => {
                if self.now - since >= CALM && self.is_over()? {
                    self.begin_move()?;
                }
                Ok(false)
            }
            Stage::Moved { from, to, since } => {
                self.look_at_move(from, to)?;
                if self.now - since < SETTLED || !self.is_over()? {
                    return Ok(false);
                }
                self.begin_flip(to)
            }
            Stage::Flipped {
                flip,
                since,
                found: Found::Nothing,
            } => match self.now - since > FOUND_WITHIN {
                true => Err(format!("{flip:?}: a copy that differs is not found")),
                false => Ok(false),
            },
            Stage::Flipped {
                flip,
                since,
                found: Found::Alarmed,
            } => {
                if !self.seen.key.in_sync.has(position(flip.node)) {
                    let found = Found::Removed;
                    self.stage = Stage::Flipped { flip, since, found };
                }
                Ok(false)
            }
            Stage::Flipped { .. } => self.is_over(),
        }
    }

    /// The node that serves, if one does.
    pub(super) fn server(&self) -> Option<usize> {
        let serves = |node: &Node| node.replica.as_ref().is_some_and(|one| one.is_serving());
        self.nodes.iter().position(serves)
    }

    /// From here on nothing is slow, so that an order of things can be expected.
    fn calm(&mut self) {
        self.stage = Stage::Calms(self.now);
        self.heals_at = self.now;
        self.wires.calm();
        self.quorum_time = Duration::from_millis(8);
        for node in &mut self.nodes {
            node.store_time = STORE_TIME;
        }
    }

    fn begin_move(&mut self) -> Result<(), String> {
        let Some(owner) = self.server() else {
            return Ok(());
        };
        let others = self.nodes.len() as u64 - 1;
        let to = (owner + 1 + self.chance.below(others) as usize) % self.nodes.len();
        let (from, since) = (self.seen.key.epoch, self.now);
        self.stage = Stage::Moved { from, to, since };
        self.heals_at = self.now;
        self.say(|| format!("all is well: node {owner} hands over to {to}"));
        let to = position(to);
        self.handle(owner, Event::Move { to })
    }

    /// One epoch comes of a move, and it is the one that was asked for.
    fn look_at_move(&self, from: Epoch, to: usize) -> Result<(), String> {
        let key = &self.seen.key;
        let is_moved = key.epoch.0 == from.0 + 1 && key.owner.node == self.nodes[to].config.node;
        match is_moved || key.epoch == from {
            true => Ok(()),
            false => Err(format!(
                "{from} was handed over to node {to}, nothing has failed, and {} has {}",
                key.owner.node, key.epoch
            )),
        }
    }

    /// A bit flips on a copy that does not serve. Returns whether there is none in which that can be.
    fn begin_flip(&mut self, owner: usize) -> Result<bool, String> {
        let others = self.nodes.len() as u64 - 1;
        let node = (owner + 1 + self.chance.below(others) as usize) % self.nodes.len();
        let granules = self.nodes[node].store.content().len() as u64;
        let granule = self.chance.below(granules) as usize;
        if self.server() != Some(owner) || !self.nodes[node].store.flip(granule) {
            return Ok(true);
        }
        let (flip, since) = (Flip { node, granule }, self.now);
        let found = Found::Nothing;
        self.stage = Stage::Flipped { flip, since, found };
        self.heals_at = self.now;
        self.say(|| format!("a bit of granule {granule} flips on node {node}"));
        if self.summary.spoilt > 0 {
            self.read_flipped(owner, granule as u64)?;
            self.at(Duration::from_secs(1), Happening::Verify(owner));
        } else {
            self.handle(owner, Event::Verify)?;
        }
        Ok(false)
    }

    /// A host reads what has changed at another copy, and its owner cannot: it must not take what that copy has.
    fn read_flipped(&mut self, owner: usize, granule: u64) -> Result<(), String> {
        let is_data = granule != self.hosts.shape().register;
        let Some(extent) = Extent::new(granule, 1).filter(|_| is_data) else {
            return Ok(());
        };
        self.nodes[owner].store.spoil(granule, &mut self.chance);
        let read = Event::Host(HostCommand {
            command: self.hosts.attempt(),
            registrant: Registrant::default(),
            operation: HostOperation::Read { extent },
        });
        self.handle(owner, read)
    }

    /// A copy in sync differs, says its owner.
    pub(super) fn diverged(&mut self, copy: Position) -> Result<(), String> {
        match self.stage {
            Stage::Flipped { flip, since, .. } if position(flip.node) == copy => {
                let found = Found::Alarmed;
                self.stage = Stage::Flipped { flip, since, found };
                // Its owner gives it everything anew, and must have it for that.
                self.nodes.iter_mut().for_each(|node| node.store.unspoil());
                // A copy that is known to differ is given nothing.
                if let Some(node) = self.server() {
                    self.at(Duration::ZERO, Happening::Give { node, to: copy });
                }
                Ok(())
            }
            _ => Err(format!("{copy} is said to differ, and does not")),
        }
    }

    /// The proof that was asked for is over; a copy whose session was not open is asked for again.
    pub(super) fn proven(&mut self, owner: usize, compared: Positions) {
        if let Stage::Flipped {
            flip,
            found: Found::Nothing,
            ..
        } = self.stage
            && !compared.has(position(flip.node))
        {
            self.at(TICK, Happening::Verify(owner));
        }
    }
}
