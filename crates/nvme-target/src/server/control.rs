//! Changes to a running server: subsystems that come, change and go, and residents.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ashlar_block::IoError;
use ashlar_nvme::log::AnaState;
use ashlar_reactor::{Mailbox, Opener};

use super::claims::Claims;
use super::error::ServeError;
use super::export::{Export, geometries};
use super::mail::{Mail, Reply};
use super::resident::MakeResident;
use super::stranger::Strangers;
use crate::config::HostAccess;
use crate::core::Notice;
use crate::reservation::News;
use crate::roster::Listing;
use crate::target::{ConfigError, Target};

/// How often a caller that waits for a core's answer looks whether it is alive.
const LIFE_CHECK: Duration = Duration::from_millis(20);
/// How often it is looked whether the cores have ended.
const END_CHECK: Duration = Duration::from_millis(2);

/// A core as others see it.
pub(super) struct Link {
    /// Its number for the kernel.
    pub(super) core: usize,
    pub(super) mailbox: Mailbox<Mail>,
    /// Its thread has ended: it reads no mail.
    pub(super) ended: Arc<AtomicBool>,
}

type Openers = Vec<Arc<dyn Opener>>;

struct Shared {
    target: Arc<Target>,
    links: Vec<Link>,
    /// The openers of each subsystem, by NQN.
    exports: Mutex<HashMap<String, Openers>>,
    /// Which core, by index, each resident lives on.
    residents: Mutex<HashMap<String, usize>>,
    changing: Claims,
    settling: Claims,
    /// Where hosts wait until they are welcome.
    held: Mutex<Option<OwnedFd>>,
}

/// Changes a running server, from any thread. Changes of one subsystem wait for each other.
#[derive(Clone)]
pub struct Control(Arc<Shared>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn invalid(why: String) -> ServeError {
    ServeError::Config(ConfigError::new(why))
}

impl Control {
    pub(super) fn new(
        target: Arc<Target>,
        links: Vec<Link>,
        exports: HashMap<String, Openers>,
        held: Option<OwnedFd>,
    ) -> Self {
        Self(Arc::new(Shared {
            target,
            links,
            exports: Mutex::new(exports),
            residents: Mutex::default(),
            changing: Claims::default(),
            settling: Claims::default(),
            held: Mutex::new(held),
        }))
    }

    /// Lets in hosts that [`ServerConfig::hold`](super::ServerConfig::hold) has kept waiting.
    pub fn welcome(&self) {
        let held = lock(&self.0.held).take();
        if let (Some(listener), Some(first)) = (held, self.0.links.first()) {
            first.mailbox.post(Mail::Listen(listener));
        }
    }

    /// Counters and configuration.
    pub fn target(&self) -> &Target {
        &self.0.target
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.0.links.len()
    }

    /// Adds a subsystem: opens its devices on every core, then lets hosts connect.
    ///
    /// # Errors
    /// The export makes no sense, its NQN is taken, or a core cannot open a device or has died;
    /// then everything is as before.
    pub fn add(&self, export: Export) -> Result<(), ServeError> {
        let _claim = self.0.changing.claim(&export.nqn);
        let listing = self.0.target.prepare(export.config())?;
        let admitted = self
            .open(&listing.devices(), &export.devices)
            .and_then(|()| Ok(self.0.target.admit(&listing)?));
        if let Err(error) = admitted {
            // What has not opened closes at once; a core that has died has no devices.
            if self.close(&listing).is_ok_and(|clear| clear) {
                self.0.target.forget(listing);
            }
            return Err(error);
        }
        lock(&self.0.exports).insert(export.nqn, export.devices);
        self.tell(&[Notice::Events]);
        Ok(())
    }

    /// Removes a subsystem: hosts find it no more, its connections end when what devices have is
    /// answered, or after five seconds, then its devices close on every core. Returns when all that
    /// is done.
    ///
    /// # Errors
    /// There is no such subsystem, a core has died, or ([`ServeError::Stuck`]) its devices have not
    /// given everything back within ten seconds. In the latter two cases it is removed for hosts.
    pub fn remove(&self, nqn: &str) -> Result<(), ServeError> {
        let _claim = self.0.changing.claim(nqn);
        let listing = self.0.target.expel(nqn)?;
        lock(&self.0.exports).remove(nqn);
        self.tell(&[Notice::Reap, Notice::Events]);
        if !self.close(&listing)? {
            return Err(ServeError::Stuck(nqn.to_owned()));
        }
        self.0.target.forget(listing);
        Ok(())
    }

    /// The devices of a subsystem have changed size, or what else their geometry says: asks their
    /// openers again, opens them anew on every core, and tells hosts that want to know. Does
    /// nothing if nothing has changed.
    ///
    /// # Errors
    /// There is no such subsystem, a block size has changed, or a core cannot open a device or has
    /// died. Hosts are then told nothing, and use what they know of; try again.
    pub fn resized(&self, nqn: &str) -> Result<(), ServeError> {
        let _claim = self.0.changing.claim(nqn);
        let openers = lock(&self.0.exports).get(nqn).cloned().unwrap_or_default();
        let geometries = geometries(&openers);
        if self.0.target.changes(nqn, &geometries)?.is_empty() {
            return Ok(());
        }
        self.open(&self.0.target.devices_of(nqn)?, &openers)?;
        self.0.target.reshape(nqn, &geometries)?;
        self.tell(&[Notice::Events]);
        Ok(())
    }

    /// Changes who may connect to a subsystem. Connections of hosts that may no more end as in
    /// [`remove`](Self::remove), but are not waited for.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn allow(&self, nqn: &str, access: HostAccess) -> Result<(), ServeError> {
        let _claim = self.0.changing.claim(nqn);
        self.0.target.allow(nqn, access)?;
        self.tell(&[Notice::Reap, Notice::Events]);
        Ok(())
    }

    /// `opener`'s device, which is the only one of a subsystem, for a user without a connection: what hosts
    /// have reserved holds for it as for one that is not registered.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn for_stranger(
        &self,
        nqn: &str,
        opener: Arc<dyn Opener>,
    ) -> Result<Arc<dyn Opener>, ServeError> {
        let subsystem = self.0.target.known(nqn)?;
        Ok(Arc::new(Strangers { subsystem, opener }))
    }

    /// How namespace `nsid` of a shared subsystem, or all with `None`, is reached here from now on. Hosts
    /// are told. Waits for no core: it may be called from a core's own thread.
    ///
    /// # Errors
    /// There is no such subsystem or namespace, or it is not shared.
    pub fn set_path(
        &self,
        nqn: &str,
        nsid: Option<u32>,
        state: AnaState,
    ) -> Result<(), ServeError> {
        if self.0.target.set_path(nqn, nsid, state)? {
            self.tell(&[Notice::Events]);
        }
        Ok(())
    }

    /// Hosts of a subsystem with one namespace are told what has become of their reservations, by the doing of a host
    /// that is connected elsewhere; associations of those whose commands are to end do. Waits for no core.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn tell_reserved(&self, nqn: &str, news: &News) -> Result<(), ServeError> {
        self.0.target.tell_reserved(nqn, news)?;
        self.tell(&[Notice::Reap, Notice::Events]);
        Ok(())
    }

    /// Where other targets serve a subsystem, as discovery tells hosts from now on. Waits for no core.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn set_portals(&self, nqn: &str, portals: Vec<SocketAddr>) -> Result<(), ServeError> {
        self.0.target.set_portals(nqn, portals)?;
        self.tell(&[Notice::Events]);
        Ok(())
    }

    /// Closes the connections of all hosts of a subsystem once what devices have of them is answered;
    /// what was not read of them never is. Hosts may come again at once. Waits for no core.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn send_away(&self, nqn: &str) -> Result<(), ServeError> {
        self.0.target.send_away(nqn)?;
        self.tell(&[Notice::Reap]);
        Ok(())
    }

    /// Makes a resident on the core with this index, from 0, in the order of the server's
    /// configuration.
    ///
    /// # Errors
    /// There is no such core, the name is taken, the resident could not be made
    /// ([`ServeError::Resident`]), or the core has died.
    pub fn settle_in(&self, core: usize, name: &str, make: MakeResident) -> Result<(), ServeError> {
        let _claim = self.0.settling.claim(name);
        if core >= self.cores() {
            return Err(invalid(format!("resident {name:?}: no core {core}")));
        }
        if lock(&self.0.residents).contains_key(name) {
            return Err(invalid(format!("resident {name:?}: the name is taken")));
        }
        let mail = |reply| Mail::SettleIn(name.to_owned(), make, reply);
        self.ask(core, mail)?.map_err(ServeError::Resident)?;
        lock(&self.0.residents).insert(name.to_owned(), core);
        Ok(())
    }

    /// Drops a resident on its core's thread. Whatever uses it should be gone.
    ///
    /// # Errors
    /// There is no resident of this name, or its core has died.
    pub fn move_out(&self, name: &str) -> Result<(), ServeError> {
        let _claim = self.0.settling.claim(name);
        let Some(core) = lock(&self.0.residents).remove(name) else {
            return Err(invalid(format!("resident {name:?}: there is none")));
        };
        self.ask(core, |reply| Mail::MoveOut(name.to_owned(), reply))
    }

    /// From now on no host gets in: the listener is closed, and a connection that is no queue's yet ends
    /// without an answer. Hosts take that for a server that is away for a while, and come again.
    ///
    /// # Errors
    /// A core has died.
    pub fn turn_away(&self) -> Result<(), ServeError> {
        drop(lock(&self.0.held).take());
        self.ask_all(Mail::TurnAway).map(|_| ())
    }

    /// From now on no command of a host is taken; returns when what devices have is answered.
    /// Connections stay, and end with [`stop`](Self::stop).
    ///
    /// # Errors
    /// A core has died, or ([`ServeError::Unanswered`]) some command is not answered within ten
    /// seconds.
    pub fn quiesce(&self) -> Result<(), ServeError> {
        match self.ask_all(Mail::Quiesce)?.into_iter().all(|quiet| quiet) {
            true => Ok(()),
            false => Err(ServeError::Unanswered),
        }
    }

    /// Makes the server stop: no host gets in, what devices have is answered, connections end.
    pub fn stop(&self) {
        for link in &self.0.links {
            link.mailbox.post(Mail::Stop);
        }
    }

    /// Whether every core ends within `limit`: its connections and devices are closed then. A device that does
    /// not answer holds its core longer than connections, which are closed after five seconds at the latest.
    pub fn has_ended_within(&self, limit: Duration) -> bool {
        let begun = Instant::now();
        loop {
            if (0..self.cores()).all(|index| self.has_ended(index)) {
                return true;
            }
            if begun.elapsed() >= limit {
                return false;
            }
            std::thread::sleep(END_CHECK);
        }
    }

    fn tell(&self, notices: &[Notice]) {
        for link in &self.0.links {
            for &notice in notices {
                link.mailbox.post(Mail::Notice(notice));
            }
        }
    }

    /// Opens devices on every core.
    fn open(&self, numbers: &[usize], openers: &[Arc<dyn Opener>]) -> Result<(), ServeError> {
        let numbered = || numbers.iter().copied().zip(openers.iter().cloned());
        let opened = self.ask_all(|reply| Mail::Open(numbered().collect(), reply))?;
        let opened: Result<Vec<()>, IoError> = opened.into_iter().collect();
        opened.map(|_| ()).map_err(ServeError::Device)
    }

    /// Closes a subsystem's devices on every core. False if some core could not in time.
    fn close(&self, listing: &Listing) -> Result<bool, ServeError> {
        let clear = self.ask_all(|reply| Mail::Close(listing.clone(), reply))?;
        Ok(clear.into_iter().all(|clear| clear))
    }

    /// Asks one core.
    fn ask<T>(&self, index: usize, make: impl FnOnce(Reply<T>) -> Mail) -> Result<T, ServeError> {
        let (sender, receiver) = channel();
        self.0.links[index]
            .mailbox
            .post(make(Reply { index, sender }));
        self.answer(&receiver, &[index]).map(|(_, answer)| answer)
    }

    /// Asks every core; their answers, in no order. Does not return while one may still be at it.
    fn ask_all<T>(&self, make: impl Fn(Reply<T>) -> Mail) -> Result<Vec<T>, ServeError> {
        let (sender, receiver) = channel();
        for (index, link) in self.0.links.iter().enumerate() {
            let sender = sender.clone();
            link.mailbox.post(make(Reply { index, sender }));
        }
        let mut waiting: Vec<usize> = (0..self.cores()).collect();
        let (mut answers, mut died) = (Vec::new(), None);
        while !waiting.is_empty() {
            match self.answer(&receiver, &waiting) {
                Ok((index, answer)) => {
                    waiting.retain(|&other| other != index);
                    answers.push(answer);
                }
                Err(error) => {
                    let before = waiting.len();
                    waiting.retain(|&index| !self.has_ended(index));
                    if waiting.len() == before {
                        // No core is left that could answer: the server is stopping.
                        waiting.clear();
                    }
                    died = Some(error);
                }
            }
        }
        died.map_or(Ok(answers), Err)
    }

    /// The next answer, or an error when one of those `waiting` for has ended.
    fn answer<T>(
        &self,
        receiver: &Receiver<(usize, T)>,
        waiting: &[usize],
    ) -> Result<(usize, T), ServeError> {
        loop {
            let ended = waiting.iter().find(|&&index| self.has_ended(index));
            match (receiver.recv_timeout(LIFE_CHECK), ended) {
                (Ok(answer), _) => return Ok(answer),
                (Err(RecvTimeoutError::Timeout), None) => {}
                (Err(_), ended) => {
                    let index = ended.or(waiting.first()).copied().unwrap_or(0);
                    let core = self.0.links.get(index).map_or(index, |link| link.core);
                    return Err(ServeError::Core(core, "it answers no more".into()));
                }
            }
        }
    }

    fn has_ended(&self, index: usize) -> bool {
        self.0.links[index].ended.load(Ordering::Acquire)
    }
}
