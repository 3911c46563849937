//! The agent's side of a fault: it happens to what the agent has started, and is over when it is told so, when its time is
//! over, and when the one who has ordered it is gone.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ashlar_lab::LabError;

use super::OVER_AFTER_S;
use super::seats::Own;
use super::words::{Break, Site};
use crate::cut::{Cut, Sides};
use crate::faults::Fault;
use crate::group::node::{Member, Seat};
use crate::processes::{self, Sign};

/// What is broken, and when it is over.
pub(super) struct Broken {
    fault: Fault,
    until: Instant,
}

impl Broken {
    pub(super) fn is_cut(&self) -> bool {
        self.fault == Fault::CutNetwork
    }
}

/// # Errors
/// A usage error that names a fault that is not an agent's to do; an environment error of one that this host cannot.
pub(super) fn able(faults: &[Fault], ip: IpAddr) -> Result<(), LabError> {
    faults.iter().try_for_each(|fault| match fault {
        Fault::KillDatabase | Fault::KillNode | Fault::StopNode | Fault::EtcdDown => Ok(()),
        Fault::CutNetwork => Cut::try_out(ip),
        Fault::DriveDies | Fault::DriveHangs => Err(LabError::usage(format!(
            "{fault}: the host's drives are not the lab's to break"
        ))),
        Fault::KillDaemon | Fault::Move => Err(LabError::usage(format!(
            "{fault}: is nothing that is done to a host"
        ))),
    })
}

impl Own {
    pub(super) fn break_it(&mut self, order: &Break) -> Result<(), LabError> {
        let Break { fault, seconds } = *order;
        if self.broken.is_some() || !(1..=OVER_AFTER_S).contains(&seconds) {
            return Err(LabError::usage(format!(
                "{fault} for {seconds} s: one fault at a time, for at most {OVER_AFTER_S} s"
            )));
        }
        able(&[fault], self.site.database.ip())?;
        // Before it happens: half of it must be mended, too.
        self.broken = Some(Broken {
            fault,
            until: Instant::now() + Duration::from_secs(seconds.into()),
        });
        let all = [self.folder.path().to_owned()];
        match fault {
            Fault::KillDatabase => processes::signal(&self.databases(), Sign::Kill),
            Fault::KillNode => processes::signal(&all, Sign::Kill),
            Fault::StopNode => processes::signal(&all, Sign::Stop),
            Fault::EtcdDown => processes::signal(&self.folders(is_etcd), Sign::Kill),
            Fault::CutNetwork => self.cut_off(seconds)?,
            Fault::KillDaemon | Fault::DriveDies | Fault::DriveHangs | Fault::Move => {}
        }
        Ok(())
    }

    fn cut_off(&self, seconds: u32) -> Result<(), LabError> {
        let sites = self
            .sites
            .ok_or_else(|| LabError::usage("it knows no others"))?;
        let all = Seat::NODES.map(|seat| *sites.of(seat));
        let others = all.iter().filter(|site| **site != self.site);
        let sides = Sides {
            own: self.site.database.ip(),
            others: others.map(|site| site.database.ip()).collect(),
            ports: all.iter().flat_map(Site::ports).collect(),
            seconds,
        };
        Cut::of(self.folder.path()).begin(&sides)
    }

    /// Ends what is broken, if something is.
    ///
    /// # Errors
    /// It stays, and may be tried again.
    pub(super) fn mend(&mut self) -> Result<(), LabError> {
        let fault = self.broken.as_ref().map(|broken| broken.fault);
        match fault {
            Some(Fault::StopNode) => {
                processes::signal(&[self.folder.path().to_owned()], Sign::Continue);
            }
            Some(Fault::CutNetwork) => Cut::of(self.folder.path()).end()?,
            Some(Fault::KillNode) => self.start_again(|_| true)?,
            Some(Fault::EtcdDown) => self.start_again(is_etcd)?,
            _ => {}
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

    fn start_again(&self, is_one: fn(Member) -> bool) -> Result<(), LabError> {
        let some = self.started.iter().filter(|one| is_one(one.member));
        for one in some {
            // Nothing runs twice, however often this is tried.
            processes::end(&[self.folder(one.member)])?;
            self.spawn(one)?;
        }
        Ok(())
    }

    fn folders(&self, is_one: fn(Member) -> bool) -> Vec<PathBuf> {
        let members = self.started.iter().map(|one| one.member);
        let members = members.filter(|&member| is_one(member));
        members.map(|member| self.folder(member)).collect()
    }

    /// Where PostgreSQL itself works.
    fn databases(&self) -> Vec<PathBuf> {
        let mut folders = self.folders(|member| matches!(member, Member::Patroni(_)));
        folders.iter_mut().for_each(|folder| folder.push("data"));
        folders
    }
}

fn is_etcd(member: Member) -> bool {
    Member::ETCD.contains(&member)
}
