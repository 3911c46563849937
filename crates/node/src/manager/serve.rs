//! Pools on cores, volumes as subsystems.

use std::cell::Cell;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;

use ashlar_block::{ErrorKind, IoError, Moment};
use ashlar_nvme_target::server::{Export, Resident, ServeError};
use ashlar_nvme_target::{DecidedReservations, HostAccess, Reservations, Shared};
use ashlar_reactor::Opener;
use ashlar_store::format::MemberState;
use tracing::info;
use uuid::Uuid;

use super::replication::CopyVolume;
use super::{Dismissal, KnownDrive, LivePool, PoolManager, Served};
use crate::VolumeAccess;
use crate::model::ControlError;
use crate::pool::{EngineDriver, ImportedPool, PoolLink, VolumeOpener};

/// The core that engines live on. One for now: a pool is one shard.
pub(super) const CORE: usize = 0;

/// A device that hosts are let in to.
pub(super) struct Offered<'a> {
    /// For people.
    pub(super) name: &'a str,
    pub(super) uuid: Uuid,
    pub(super) opener: Arc<dyn Opener>,
    pub(super) access: Option<&'a VolumeAccess>,
    /// If other nodes serve it, too.
    pub(super) shared: Option<SharedCopy>,
}

/// How hosts reach a copy, and what decides on their reservations.
pub(super) struct SharedCopy {
    pub(super) shared: Shared,
    pub(super) decided: DecidedReservations,
}

/// An engine driver as the target's core polls it.
struct Settled {
    driver: Rc<RefCell<EngineDriver>>,
    link: PoolLink,
}

impl Resident for Settled {
    fn poll(&mut self, now: Moment) {
        self.driver.borrow_mut().turn(now);
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.driver.borrow().next_deadline()
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        EngineDriver::leave(&self.link);
    }
}

pub(super) fn served(error: ServeError) -> ControlError {
    match error {
        ServeError::Config(_) => ControlError::conflict(error.to_string()),
        _ => ControlError::environment(error.to_string()),
    }
}

/// How hosts name a volume: by its identity, so that neither a rename nor another node changes it.
pub(super) fn nqn(uuid: Uuid) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}")
}

fn resident_name(pool: Uuid) -> String {
    format!("pool {pool}")
}

impl PoolManager {
    /// Puts an imported pool on its core.
    pub(super) fn settle(
        &self,
        id: Uuid,
        imported: ImportedPool,
    ) -> Result<LivePool, ControlError> {
        let ImportedPool { engine, drives } = imported;
        let unjudged = Cell::new(Some(engine.published()));
        let known = {
            let state = self.state.read();
            let members = engine.members().iter().zip(&drives);
            let known = members.map(|(member, open)| {
                let entry = state.drive(id, member.drive);
                let before = KnownDrive::missing(member.drive, entry);
                let ordered = before.removed || member.state == MemberState::Leaving;
                KnownDrive {
                    removed: ordered,
                    ..open
                        .as_ref()
                        .map_or(before, |open| KnownDrive::open(member.drive, open))
                }
            });
            known.collect()
        };
        let openers: Vec<Option<Arc<dyn Opener>>> = drives
            .iter()
            .map(|drive| drive.as_ref().map(|drive| drive.opener.clone()))
            .collect();
        let (sender, receiver) = channel();
        let memory = self.memory.maker();
        let make = Box::new(move |reactor: &ashlar_reactor::Handle| {
            let link = EngineDriver::link(reactor);
            let driver = EngineDriver::settle(engine, &openers, reactor, &link)?;
            driver.borrow_mut().remember_in(memory(link.clone()));
            let gone = |_| IoError::new(ErrorKind::Internal, "the pool's caller is gone");
            sender.send(link.clone()).map_err(gone)?;
            Ok(Box::new(Settled { driver, link }) as Box<dyn Resident>)
        });
        self.target
            .settle_in(CORE, &resident_name(id), make)
            .map_err(served)?;
        let link = receiver
            .recv()
            .map_err(|_| ControlError::internal("the pool's core said nothing".to_owned()))?;
        Ok(LivePool {
            id,
            link,
            drives: known,
            joining: Vec::new(),
            volumes: Default::default(),
            caches: Default::default(),
            unjudged,
            since: std::time::Instant::now(),
        })
    }

    /// Takes a pool off its core; its drives are let go.
    pub(super) fn unsettle(&self, id: Uuid) -> Result<(), ControlError> {
        self.target.move_out(&resident_name(id)).map_err(served)
    }

    /// Lets hosts connect to a volume.
    pub(super) fn serve(
        &self,
        pool: &mut LivePool,
        number: u32,
        name: &str,
        uuid: Uuid,
        access: Option<&VolumeAccess>,
    ) -> Result<(), ControlError> {
        let opener = VolumeOpener::new(pool.link.clone(), number, name.to_owned())
            .map_err(|error| ControlError::environment(error.to_string()))?;
        let served = self.export(Offered {
            name,
            uuid,
            opener: opener.clone(),
            access,
            shared: None,
        })?;
        let volume = Some(opener);
        pool.volumes.insert(number, Served { volume, ..served });
        Ok(())
    }

    /// The same of a copy of a volume that other nodes serve, too.
    pub(super) fn serve_shared(
        &self,
        pool: &mut LivePool,
        volume: &CopyVolume,
        access: Option<&VolumeAccess>,
        shared: SharedCopy,
    ) -> Result<(), ControlError> {
        let opener = VolumeOpener::new(pool.link.clone(), volume.number, volume.name.clone())
            .map_err(|error| ControlError::environment(error.to_string()))?;
        let served = self.export(Offered {
            name: &volume.name,
            uuid: volume.uuid,
            opener: opener.clone(),
            access,
            shared: Some(shared),
        })?;
        let number = volume.number;
        let volume = Some(opener);
        pool.volumes.insert(number, Served { volume, ..served });
        Ok(())
    }

    /// Takes a volume out of service: its user here goes first, then its hosts. It is known until both are gone, so
    /// that the order can be given again.
    pub(super) fn withdraw(
        &self,
        pool: &mut LivePool,
        number: u32,
        why: Dismissal,
    ) -> Result<(), ControlError> {
        if let Some(volume) = pool.volumes.get(&number) {
            self.send_away(&volume.nqn, why)?;
            self.unserve(&volume.nqn)?;
        }
        pool.volumes.remove(&number);
        Ok(())
    }

    /// Takes a subsystem away from hosts, if it is there.
    pub(super) fn unserve(&self, nqn: &str) -> Result<(), ControlError> {
        match self.target.remove(nqn) {
            // An order before this one has done it, and has failed at what comes then.
            Err(ServeError::Config(_)) => Ok(()),
            removed => removed.map_err(served),
        }
    }

    /// Lets hosts connect to a device.
    pub(super) fn export(&self, offered: Offered<'_>) -> Result<Served, ControlError> {
        let Offered {
            name,
            uuid,
            opener,
            access,
            shared,
        } = offered;
        let nqn = nqn(uuid);
        let (shared, reservations) = match shared {
            Some(SharedCopy { shared, decided }) => (Some(shared), Reservations::Decided(decided)),
            None => (None, self.reservations(uuid)?.into()),
        };
        let export = Export {
            nqn: nqn.clone(),
            devices: vec![opener.clone()],
            identities: vec![Some(uuid)],
            access: access_of(access),
            advertise: self.advertise,
            reservations: vec![Some(reservations)],
            shared,
        };
        self.target.add(export).map_err(served)?;
        info!(
            volume = name,
            subsystem = nqn,
            "volume {name} is served as {nqn}"
        );
        Ok(Served {
            nqn,
            opener,
            volume: None,
        })
    }
}

pub(super) fn access_of(access: Option<&VolumeAccess>) -> HostAccess {
    match access {
        Some(access) if access.allow_any_host => HostAccess::Any,
        Some(access) => HostAccess::Listed(access.allow_hosts.clone()),
        None => HostAccess::Listed(Vec::new()),
    }
}

/// The texts that name a pool's drives: those to be looked at when it is imported again.
pub(super) fn specs(drives: &[KnownDrive]) -> Vec<String> {
    let here = drives.iter().filter(|drive| drive.is_here);
    here.map(|drive| drive.spec.clone()).collect()
}
