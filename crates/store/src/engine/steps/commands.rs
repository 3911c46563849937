//! Steps of what hosts wait for: writes and clears; and what becomes of all that waits when the pool has stopped.

use ashlar_block::{ErrorKind, IoError};

use crate::engine::access::locks::SlotKey;
use crate::engine::clear::{self, Clears};
use crate::engine::invariant::invariant;
use crate::engine::write::{self, Outlook, Writes};
use crate::engine::{Engine, Waiter};
use crate::format::VolumeState;

impl Engine {
    /// A step of writes, and what follows from it.
    pub(in crate::engine) fn write_step(
        &mut self,
        step: impl FnOnce(&mut Writes, &mut Outlook<'_>, &mut write::Around<'_>),
    ) {
        let copies = self.log_copies();
        let (writes, clears) = self.waiting.commands();
        let mut outlook = Outlook {
            clears,
            checkpoint: &mut self.checkpoint,
            copies,
        };
        let mut around = write::Around {
            base: &mut self.base,
            identity: &self.identity,
            space: &mut self.space,
            volumes: &self.volumes,
            tiers: &mut self.tiers,
            journal: &mut self.journal,
            logs: &mut self.logs,
            map: &mut self.map,
            access: &mut self.access,
            rebuild: &self.rebuild,
        };
        step(writes, &mut outlook, &mut around);
        while let Some(next) = self.waiting.commands().0.take_next() {
            match next {
                write::Next::Load(page) => self.load(page, Waiter::Admission),
                write::Next::Unlock(key) => self.unlock(key),
            }
        }
    }

    pub(in crate::engine) fn bypass_written(
        &mut self,
        op: usize,
        drive: usize,
        result: Result<(), IoError>,
    ) {
        if let Err(error) = result {
            self.drive_failed(drive, &error);
        }
        self.write_step(|writes, _, around| writes.bypass_written(op, around));
    }

    /// A step of clears, and what follows from it.
    pub(in crate::engine) fn clear_step(
        &mut self,
        step: impl FnOnce(&mut Clears, &mut clear::Around<'_>),
    ) {
        let (writes, clears) = self.waiting.commands();
        let mut around = clear::Around {
            base: &mut self.base,
            space: &mut self.space,
            volumes: &self.volumes,
            journal: &mut self.journal,
            logs: &self.logs,
            map: &mut self.map,
            access: &mut self.access,
            destage: &self.destage,
            writes,
        };
        step(clears, &mut around);
        while let Some(next) = self.waiting.commands().1.take_next() {
            match next {
                clear::Next::Load { page, op } => self.load(page, Waiter::ClearPage(op)),
                clear::Next::Unlock(key) => self.unlock(key),
                clear::Next::Gone { volume } => self.volume_is_cleared(volume),
            }
        }
    }

    fn volume_is_cleared(&mut self, volume: u32) {
        let entry = self.volumes.get(&volume);
        if entry.is_some_and(|entry| entry.state == VolumeState::Deleting) {
            let state = VolumeState::Gone;
            self.volumes
                .set_state(volume, state, None, &mut self.journal);
        }
    }

    /// Gives a slot's lock up; who waited for it goes on.
    pub(in crate::engine) fn unlock(&mut self, key: SlotKey) {
        if let Some(waiter) = self.access.unlock(key) {
            self.locked(key, waiter);
        }
    }

    /// A slot's lock is this one's now.
    pub(in crate::engine) fn locked(&mut self, key: SlotKey, waiter: Waiter) {
        match waiter {
            Waiter::Bypass(op) => {
                self.write_step(|writes, _, around| writes.bypass_locked(op, around));
            }
            Waiter::ClearSlot(op, slot) => {
                self.clear_step(|clears, around| clears.slot_locked(op, slot, around));
            }
            Waiter::Walk => {
                self.walk_step(|rebuild, _, around| rebuild.slot_locked(key, around));
            }
            other => invariant!(self.base, "{other:?} has waited for a slot's lock"),
        }
    }

    /// Fails what waits to come in: the engine has stopped.
    pub(in crate::engine) fn fail_waiting(&mut self) {
        let why = self.base.failed.why().unwrap_or_default().to_owned();
        self.waiting.commands().1.fail(&why, &mut self.base);
        self.write_step(|writes, _, around| writes.fail(&why, around));
        for waiter in self.access.take_all_waiters() {
            if let Waiter::Read(op) = waiter {
                self.read_step(|reads, around| reads.fail_op(op, around));
            }
        }
        let mut waiting = self.raw.take_asked();
        waiting.append(&mut self.roots.add_log_copies.take_asked());
        waiting.append(&mut self.waiting.take_draining());
        waiting.append(&mut self.rebuild.take_asked());
        waiting.append(&mut self.roots.take_asked());
        waiting.append(&mut self.journal.take_asked());
        waiting.append(&mut self.replicas.take_asked());
        waiting.append(&mut self.space.upkeep.discards_mut().take_asked());
        waiting.append(&mut self.roots.features.take_asked());
        for id in waiting {
            let error = IoError::new(ErrorKind::Latched, why.clone());
            self.base.answer(id, Err(error));
        }
    }
}
