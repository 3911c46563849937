//! Steps of destage and of tiers: how slots come to their homes, and move between them.

use ashlar_block::{IoBuffer, IoError};

use crate::engine::destage::{Around, Destage, Next};
use crate::engine::state::Retired;
use crate::engine::tier::{self, Tiers};
use crate::engine::{DestageIo, Engine};

impl Engine {
    pub(in crate::engine) fn destage(&mut self) -> (&mut Destage, Around<'_>) {
        let around = Around {
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
        (&mut self.destage, around)
    }

    /// A step of destage, and what follows from it.
    pub(in crate::engine) fn destage_step(
        &mut self,
        step: impl FnOnce(&mut Destage, &mut Around<'_>),
    ) {
        let (destage, mut around) = self.destage();
        step(destage, &mut around);
        while let Some(next) = self.destage.take_next() {
            match next {
                Next::Load { page, waiter } => self.load(page, waiter),
                Next::Gather(wish) => self.gather(wish),
                Next::Locked { key, waiter } => self.locked(key, waiter),
                Next::RoundEnded => {
                    let hosts_are_here = self.hosts_are_here();
                    self.base.again |= self.tiers.round_ended(self.base.now, hosts_are_here);
                }
            }
        }
    }

    pub(in crate::engine) fn destage_io_done(
        &mut self,
        io: DestageIo,
        drive: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        let buffer = buffer.filter(|_| result.is_ok());
        if let Err(error) = result
            && !matches!(io, DestageIo::Read { .. })
        {
            self.drive_failed(drive, &error);
        }
        self.destage_step(|destage, around| destage.io_done(io, drive, buffer, around));
    }

    fn tiers(&mut self) -> (&mut Tiers, tier::Around<'_>) {
        let around = tier::Around {
            base: &mut self.base,
            volumes: &self.volumes,
            space: &mut self.space,
            map: &mut self.map,
        };
        (&mut self.tiers, around)
    }

    /// Space for hot homes that found too little.
    pub(in crate::engine) fn provision_tiers(&mut self) {
        let (tiers, mut around) = self.tiers();
        for change in tiers.provision(&mut around) {
            self.journal.stage_first(change);
        }
    }

    /// A host reads a volume's homes.
    pub(in crate::engine) fn slots_read(&mut self, volume: u32, read: tier::Read<'_>) {
        let (tiers, mut around) = self.tiers();
        tiers.read(volume, read, &mut around);
    }

    /// Whether slots are on their way between homes, or have just left one: both homes are in use then.
    pub fn is_moving(&self) -> bool {
        let left = |what: &Retired| matches!(what, Retired::Slot(_));
        self.tiers.are_moving() || self.access.retires(left)
    }
}
