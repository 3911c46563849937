//! Pools whose volumes are larger than they are.

use ashlar_block::{BlockRange, Operation};

use super::layouts::SLOT;
use super::load::Command;
use super::seam::Subject;
use super::volumes::Order;
use super::world::World;

/// Slots that can be written again once there is room.
const AGAIN: u64 = 24;

impl<S: Subject> World<'_, S> {
    /// Slots that the pool has left for a volume, if the engine knows.
    fn room(&self, volume: usize) -> Option<u64> {
        let wish = self.volumes.wish(volume);
        self.node.as_ref()?.engine().room(&wish)
    }

    /// A write was refused for want of space: it must have been true.
    pub(crate) fn check_full(
        &mut self,
        volume: usize,
        slots: u64,
        named: &str,
    ) -> Result<(), String> {
        self.summary.refused += 1;
        let margin = u64::from(self.plan.shape.sizes.segment_slots);
        // What the map takes beside them is not known before it is clear where they are.
        let sparse = self.plan.wishes.iter().any(|wish| wish.spread.is_sparse());
        // Room that has come in the same turn may have come after the refusal.
        let grows = |order: &Order| matches!(order, Order::Add | Order::Reserve(_));
        let known = !sparse && !self.volumes.awaits_any(grows);
        match self.room(volume).filter(|_| known) {
            Some(room) if room > slots + margin => {
                Err(format!("{named}, but there is room for {room} slots"))
            }
            _ => Ok(()),
        }
    }

    /// What is given up can be used again.
    pub(crate) fn relieve(&mut self) -> Result<(), String> {
        self.say(|| "everything is given up".into());
        for volume in self.volumes.made().into_iter().filter(|&v| v > 0) {
            self.give_up(volume);
        }
        self.until("volumes are deleted", |w| {
            w.volumes.is_idle() && w.caches.is_idle()
        })?;
        if self.volumes.number(0).is_none() {
            return Ok(());
        }
        let size = self.model.granules(0);
        self.ask_for(0, Operation::Deallocate, BlockRange::new(0, size as u32))?;
        self.until("everything is deallocated", |w| w.load.is_idle())?;
        self.settle_at_last()?;
        self.load.excuses.full = false;
        let room = self.room(0).unwrap_or(0);
        if room < AGAIN.min(size / SLOT) {
            return Err(format!(
                "nothing is in use, but there is room for {room} slots"
            ));
        }
        let spread = self.volumes.wish(0).spread;
        for slot in 0..AGAIN.min(size / SLOT) {
            let range = spread.cut(BlockRange::new(slot * SLOT, SLOT as u32));
            let write = Operation::Write(ashlar_block::Durability::Cached);
            self.ask_for(0, write, range)?;
        }
        self.until("there is room again", |w| w.load.is_idle())?;
        self.check_all("everything is read after it was given up")
    }

    /// A command for a volume.
    pub(crate) fn ask_for(
        &mut self,
        volume: usize,
        op: Operation,
        range: BlockRange,
    ) -> Result<(), String> {
        let now = self.rig.now();
        let command = Command { volume, op, range };
        let asked = self.load.command(command, now, &mut self.model);
        self.pass_on(asked.ok_or("no memory for a command")?);
        Ok(())
    }

    /// Whether the pool is asked to empty its logs.
    pub(crate) fn is_settling(&self) -> bool {
        self.volumes.awaits(Order::Settle)
    }
}
