//! The agent's side of a fault: it happens to what the agent has started, and is over when it is told so, when its time is
//! over, and when the one who has ordered it is gone.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use ashlar_oltp::cut::{Cut, Sides};
use ashlar_oltp::faults::Fault;
use ashlar_oltp::group::OVER_AFTER_S;
use ashlar_oltp::processes::{self, Sign};

use super::seats::Own;
use super::words::Host;
use crate::nodes::{DriveTrouble, OWN_MOUNTS, Seat, Site};

/// What is broken, and when it is over.
pub(super) struct Broken {
    pub(super) fault: Fault,
    until: Instant,
}

/// # Errors
/// A usage error that names a fault that is not an agent's to do; an environment error of one that this host cannot.
pub(super) fn able(faults: &[Fault], ip: IpAddr) -> Result<(), LabError> {
    match faults.iter().find(|fault| **fault == Fault::Move) {
        Some(fault) => Err(LabError::usage(format!(
            "{fault}: is nothing that is done to a host"
        ))),
        None if faults.contains(&Fault::CutNetwork) => Cut::try_out(ip),
        None => Ok(()),
    }
}

impl Own {
    pub(super) fn break_it(&mut self, fault: Fault) -> Result<(), LabError> {
        if self.broken.is_some() {
            return Err(LabError::usage(format!("{fault}: one fault at a time")));
        }
        able(&[fault], self.site.door.ip())?;
        self.nodes()?;
        if fault != Fault::EtcdDown {
            self.node()?;
        }
        // Before it happens: half of it must be mended, too.
        self.broken = Some(Broken {
            fault,
            until: Instant::now() + Duration::from_secs(OVER_AFTER_S.into()),
        });
        let etcd = Seat::Etcd(self.host.number());
        let nodes = self.nodes()?;
        if fault == Fault::EtcdDown {
            return nodes.kill(&etcd);
        }
        let node = self.node()?;
        let both = [etcd, Seat::node(node)];
        match fault {
            Fault::KillDatabase => {
                let is_its = |pid: &u32| {
                    let place = std::fs::read_link(format!("/proc/{pid}/cwd"));
                    place.is_ok_and(|place| place.starts_with(OWN_MOUNTS))
                };
                let database = || self.world().into_iter().filter(is_its).collect();
                processes::end_all(&database)
            }
            Fault::KillDaemon => nodes.kill_daemon(node),
            Fault::KillNode => processes::end_all(&|| {
                let all = both.iter().flat_map(|seat| nodes.processes(seat));
                all.chain(self.world()).collect()
            }),
            Fault::StopNode => {
                both.iter().for_each(|seat| nodes.signal(seat, Sign::Stop));
                Ok(())
            }
            Fault::CutNetwork => self.cut_off(),
            Fault::DriveDies => nodes.set_drives(node, Some(DriveTrouble::Dead)),
            Fault::DriveHangs => nodes.set_drives(node, Some(DriveTrouble::Hung)),
            Fault::EtcdDown | Fault::Move => Ok(()),
        }
    }

    /// All that its node has started, wherever it works.
    pub(super) fn world(&self) -> Vec<u32> {
        let node = self.node().map(Seat::node);
        let folder = node.and_then(|node| Ok(self.nodes()?.folder(&node)));
        folder.map_or_else(|_| Vec::new(), |folder| processes::in_worlds_of(&[folder]))
    }

    fn cut_off(&self) -> Result<(), LabError> {
        let own = Host::ALL.into_iter().filter(|host| *host != self.host);
        let others = own.map(|host| self.sites[host.number()].door.ip());
        let ports = self.sites.iter().flat_map(Site::all);
        Cut::of(self.folder.path()).begin(&Sides {
            own: self.site.door.ip(),
            others: others.collect(),
            ports: ports.map(|at| at.port()).collect(),
            seconds: OVER_AFTER_S,
        })
    }

    /// Ends what is broken, if something is.
    ///
    /// # Errors
    /// It stays, and may be tried again.
    pub(super) fn mend(&mut self) -> Result<(), LabError> {
        let Some(Broken { fault, .. }) = self.broken else {
            return Ok(());
        };
        let nodes = self.nodes()?;
        match fault {
            Fault::KillDatabase | Fault::Move => {}
            Fault::EtcdDown => nodes.start_etcd()?,
            Fault::CutNetwork => Cut::of(self.folder.path()).end()?,
            Fault::StopNode => {
                processes::signal(&[PathBuf::from(self.folder.path())], Sign::Continue);
            }
            Fault::KillDaemon | Fault::KillNode => {
                let node = self.node()?;
                nodes.kill(&Seat::node(node))?;
                nodes.start_etcd()?;
                nodes.start_node(node)?;
            }
            Fault::DriveHangs => nodes.set_drives(self.node()?, None)?,
            Fault::DriveDies => {
                // A pool that has failed comes back with its daemon.
                let node = self.node()?;
                nodes.set_drives(node, None)?;
                nodes.end_daemon(node)?;
                nodes.start_node(node)?;
            }
        }
        self.broken = None;
        Ok(())
    }

    /// Ends what is broken if its time is over. What cannot be ended is tried again.
    pub(super) fn mend_in_time(&mut self) {
        let is_due = |broken: &Broken| broken.until <= Instant::now();
        if self.broken.as_ref().is_some_and(is_due) {
            let _ = self.mend();
        }
    }
}
