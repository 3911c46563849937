//! Imports: with the drives that are there, cut off or not, by an operator who knows what is gone.

use std::rc::Rc;

use ashlar_store::NodeMemory;

use super::World;
use crate::engine::drive::{Handle, Shared};
use crate::engine::node::Node;
use crate::engine::rig::Cut;
use crate::engine::seam::{Devices, Running, Subject, Wish};

/// What the operator knows who imports a pool.
#[derive(Clone, Copy, Debug, Default)]
struct Operator {
    /// Drives that are not here are gone.
    knows_gone: bool,
    /// What no copy is left of is gone.
    accepts_loss: bool,
}

/// The drives of the next import: one is back, and another is not there at first.
#[derive(Clone, Copy)]
pub(super) struct Swap {
    pub(super) back: Option<usize>,
    pub(super) absent: usize,
    /// The node has stored that both have everything.
    pub(super) must_serve: bool,
}

impl Swap {
    pub(super) fn of(back: usize, absent: usize) -> Self {
        Self {
            back: Some(back),
            absent,
            must_serve: false,
        }
    }
}

impl<S: Subject> World<'_, S> {
    /// Brings the pool into service, however often that is cut off.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        if let Some(swap) = self.swap.take()
            && self.swapped_import(swap)?
        {
            return self.begin();
        }
        let mut cuts = 0;
        loop {
            if cuts < 4 && self.chance.happens(self.plan.import_cuts) {
                let most = self.chance.pick(&[3, 10, 40]);
                let cut = self.chance.pick(&[Cut::Before, Cut::Torn]);
                self.rig.set_fuse(self.chance.below(most), cut);
                self.power = self.chance.happens(500);
            }
            if let Some((after, cut)) = self.plan.recovery
                && self.summary.crashes > 0
            {
                self.plan.recovery = None;
                self.rig.set_fuse(after, cut);
            }
            if self.import()? {
                return self.begin();
            }
            cuts += 1;
            self.fail_power();
        }
    }

    /// An import with a drive that was dead, and without one that was not. It may be refused, for
    /// the one may lack what the other has; then the other comes back, and nothing was changed.
    fn swapped_import(&mut self, swap: Swap) -> Result<bool, String> {
        let Swap {
            back,
            absent,
            must_serve,
        } = swap;
        back.into_iter().for_each(|back| self.revive(back));
        self.lose_drive(absent);
        let running = self.try_import(Operator::default());
        self.say(|| format!("an import with drive {back:?}, without drive {absent}"));
        match running {
            Ok(running) => {
                self.summary.halves += u64::from(self.plan.remembers);
                self.serve(running);
                Ok(true)
            }
            Err(why) if must_serve => Err(format!(
                "without drive {absent} an import is refused, though the others have everything: {why}"
            )),
            Err(why) => {
                self.say(|| format!("it is refused: {why}"));
                self.revive(absent);
                Ok(false)
            }
        }
    }

    fn serve(&mut self, running: Running<S>) {
        let node = Node::new(running);
        self.node = Some(match self.plan.remembers {
            true => node.that_remembers(),
            false => node,
        });
    }

    /// One import; false if it was cut off.
    pub(crate) fn import(&mut self) -> Result<bool, String> {
        self.say(|| "import".into());
        self.summary.imports += 1;
        let lost = |(drive, shared): (usize, &Shared)| {
            shared.borrow().is_silent() && !self.members.is_pulled(drive)
        };
        let degraded = self.drives.iter().enumerate().any(lost);
        let usual = Operator {
            knows_gone: degraded,
            accepts_loss: false,
        };
        let mut running = self.try_import(usual);
        let rots = self.plan.liar.is_some();
        if running.is_err() && rots && !self.rig.is_off() {
            // Both labels of the drive that rots may be gone: its operator does without it. Or something is lost
            // of which there was one copy: its operator does without that.
            running = self.try_import(Operator {
                knows_gone: true,
                accepts_loss: self.load.excuses.rotten,
            });
        }
        self.tell();
        if let Some(violation) = self.rig.violation() {
            return Err(violation);
        }
        if self.rig.is_off() {
            return Ok(false);
        }
        let running = running.map_err(|why| format!("import failed: {why}"));
        if self.load.excuses.rotten {
            self.over = running.as_ref().err().cloned();
        }
        self.serve(running?);
        Ok(true)
    }

    fn try_import(&mut self, operator: Operator) -> Result<Running<S>, String> {
        let mut devices: Devices = Vec::new();
        for drive in &self.drives {
            // A drive that is dead may be there and refuse everything, or not be there.
            if !drive.borrow().is_dead() || self.chance.happens(500) {
                devices.push(Handle::open(drive));
            }
        }
        for at in (1..devices.len()).rev() {
            let other = self.chance.below(at as u64 + 1) as usize;
            devices.swap(at, other);
        }
        let canary = self.plan.canary;
        let leaf_bytes = self.plan.leaf_bytes();
        S::import(
            devices,
            self.wait(),
            Wish {
                degraded: operator.knows_gone,
                accept_data_loss: operator.accepts_loss,
                canary,
                leaf_bytes,
                repair_after: self.plan.repair_after,
                memory: self
                    .plan
                    .remembers
                    .then(|| self.memory.clone() as Rc<dyn NodeMemory>),
            },
        )
    }

    /// The pool is in service.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        self.since = self.rig.now();
        self.check_terms()?;
        self.look_for_volumes()?;
        if self.chance.happens(500) && self.volumes.are_made() {
            self.load.check_all(&self.model);
        }
        Ok(())
    }
}
