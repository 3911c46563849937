//! The world: a target, hosts, the network, what befalls them, and time.

use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BlockRange, BlockSize, Geometry, Moment};
use ashlar_nvme_initiator::reconnect::Unflushed;

use crate::chance::Chance;
use crate::content;
use crate::cores::Cores;
use crate::env::Env;
use crate::faults::Faults;
use crate::host::{HostSession, Who};
use crate::medium::{Medium, Shared};
use crate::model::Model;
use crate::net::Net;
use crate::profile::Profile;
use crate::report::{Failure, Listener, Summary, Trace};

/// Turns after which a world is stuck in a circle.
const MOST_TURNS: u64 = 2_000_000;
/// Simulated time after which a world should have come to its end.
const LIMIT: Duration = Duration::from_secs(600);
/// How long the target may take to forget connections after the hosts have left.
const PARTING: Duration = Duration::from_secs(30);

/// Lives a world through.
///
/// # Errors
/// The first promise that was broken.
pub fn run(seed: u64, profile: &Profile) -> Result<Summary, Failure> {
    run_traced(seed, profile, None)
}

/// The same, telling what happens.
///
/// # Errors
/// The first promise that was broken.
pub fn run_traced(
    seed: u64,
    profile: &Profile,
    listener: Option<Listener<'_>>,
) -> Result<Summary, Failure> {
    let env = Env {
        now: Moment::ORIGIN,
        chance: Chance::new(seed),
        net: Net::default(),
        profile: *profile,
        trace: Trace(listener),
    };
    let mut world = World::new(env);
    match world.live() {
        Ok(()) => Ok(world.summary()),
        Err(what) => {
            let now = world.env.now;
            world.env.trace.say(now, || format!("FAILED {what}"));
            Err(Failure {
                seed,
                profile: profile.name,
                micros: now.as_nanos() / 1000,
                what,
            })
        }
    }
}

struct World<'a> {
    env: Env<'a>,
    medium: Shared,
    model: Model,
    /// Absent while the target is down.
    cores: Option<Cores>,
    core_count: usize,
    hosts: Vec<HostSession>,
    faults: Faults,
    turns: u64,
}

impl<'a> World<'a> {
    fn new(mut env: Env<'a>) -> Self {
        let hosts = env.chance.between(1, env.profile.hosts) as usize;
        let core_count = env.chance.between(1, env.profile.cores) as usize;
        let sessions: Vec<usize> = (0..hosts)
            .flat_map(|h| vec![h; env.chance.between(1, 2) as usize])
            .collect();
        let (size, part) = env
            .chance
            .pick(&[(BlockSize::B512, 300), (BlockSize::B4096, 48)]);
        let mut geometry = Geometry::plain(size, u64::from(part) * sessions.len() as u64);
        geometry.volatile_cache = env.profile.crashes || env.chance.happens(300);
        geometry.deallocates = true;
        let medium = Medium::new(geometry, env.profile.device, env.profile.canary);
        let shared: Vec<Arc<Unflushed>> = (0..hosts).map(|_| Arc::default()).collect();
        let mut built = Vec::new();
        for (index, host) in sessions.into_iter().enumerate() {
            let own = BlockRange::new(index as u64 * u64::from(part), part);
            let unflushed = shared[host].clone();
            built.push(HostSession::new(
                &mut env,
                Who { index, host },
                geometry,
                own,
                unflushed,
            ));
        }
        Self {
            model: Model::new(geometry.blocks),
            medium,
            cores: None,
            core_count,
            hosts: built,
            faults: Faults::plan(&mut env),
            env,
            turns: 0,
        }
    }

    fn live(&mut self) -> Result<(), String> {
        self.start_target()?;
        self.until("the hosts find the namespace", |w| {
            w.hosts.iter().all(HostSession::is_running)
        })?;
        self.faults.begin(self.env.now);
        self.until("all requests are answered and all faults are over", |w| {
            w.faults.are_over() && w.hosts.iter().all(|host| host.load.is_done())
        })?;
        let now = self.env.now;
        self.hosts.iter_mut().for_each(|host| host.shutdown(now));
        self.until("the sessions end", |w| {
            w.hosts.iter().all(HostSession::is_over)
        })?;
        let gone = now + PARTING;
        self.until("the target forgets all connections", |w| {
            w.env.now > gone
                || w.cores
                    .as_ref()
                    .is_none_or(|cores| cores.connections() == 0)
        })?;
        self.check_end()
    }

    fn start_target(&mut self) -> Result<(), String> {
        let cores = Cores::start(&mut self.env, &self.medium, self.core_count)?;
        self.cores = Some(cores);
        Ok(())
    }

    /// Lets time go on until `done`.
    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        let limit = self.env.now + LIMIT;
        let mut busy = true;
        while !done(self) {
            if self.env.now > limit || self.turns > MOST_TURNS {
                let waiting: Vec<String> = self.hosts.iter().map(|h| h.load.waiting()).collect();
                return Err(format!("never: {what}; waiting: {waiting:?}"));
            }
            self.step(busy);
            busy = self.turn()?;
        }
        Ok(())
    }

    /// Time goes on to the next event.
    fn step(&mut self, busy: bool) {
        let now = self.env.now;
        let soon = now + Duration::from_micros(1);
        let cores = self.cores.as_ref().and_then(|cores| cores.next(now));
        let hosts = self.hosts.iter().filter_map(HostSession::next).min();
        let times = [cores, hosts, self.env.net.next(now), self.faults.next()];
        let next = times.into_iter().flatten().min();
        let later = now + Duration::from_millis(100);
        self.env.now = if busy {
            soon
        } else {
            next.unwrap_or(later).max(soon)
        };
        self.turns += 1;
    }

    /// All parts do what there is to do. True if anything was done.
    fn turn(&mut self) -> Result<bool, String> {
        let mut news = self.env.net.deliver(self.env.now);
        news |= self.accept();
        self.befall()?;
        if let Some(cores) = &mut self.cores {
            news |= cores.turn(&mut self.env);
        }
        for index in 0..self.hosts.len() {
            news |= self.hosts[index].turn(&mut self.env, &mut self.model)?;
            if self.faults.have_begun() {
                news |= self.work(index);
            }
        }
        Ok(news)
    }

    fn work(&mut self, index: usize) -> bool {
        let asked = self.hosts[index].work(&mut self.env, &mut self.model);
        let Some((range, value)) = asked else {
            return false;
        };
        if let Some(value) = value {
            self.hosts
                .iter_mut()
                .for_each(|host| host.load.also(range, value));
        }
        true
    }

    /// Decides on connections that were dialed.
    fn accept(&mut self) -> bool {
        let now = self.env.now;
        let links = self.env.net.links.iter();
        let due: Vec<u32> = links
            .filter(|(_, link)| !link.accepted && link.dialed <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in &due {
            match &mut self.cores {
                None => self.env.net.refuse(*id),
                Some(cores) => {
                    if let Some(link) = self.env.net.link(*id) {
                        link.accepted = true;
                    }
                    cores.accept(&mut self.env, *id);
                }
            }
        }
        !due.is_empty()
    }

    /// Lets happen what is due to happen.
    fn befall(&mut self) -> Result<(), String> {
        while let Some(fault) = self.faults.due(self.env.now) {
            self.faults
                .strike(&mut self.env, self.cores.as_mut(), fault);
        }
        if let Some(power_lost) = self.faults.stop_due(self.env.now)
            && let Some(cores) = self.cores.take()
        {
            self.stop_target(cores, power_lost)?;
        }
        if self.cores.is_none() && self.faults.start_due(self.env.now) {
            let now = self.env.now;
            self.env.trace.say(now, || "the target is back".into());
            self.start_target()?;
        }
        Ok(())
    }

    fn stop_target(&mut self, cores: Cores, power_lost: bool) -> Result<(), String> {
        let now = self.env.now;
        self.env.trace.say(now, || {
            format!("the target is gone, power lost: {power_lost}")
        });
        let links = cores.links();
        drop(cores);
        for link in links {
            self.env.net.close_target(now, &mut self.env.chance, link);
        }
        if power_lost {
            self.medium.borrow_mut().crash(&mut self.env.chance);
            for lba in 0..self.model.blocks() {
                let value = self.stored(lba)?;
                self.model.crashed(lba, value)?;
                let block = BlockRange::new(lba, 1);
                self.hosts
                    .iter_mut()
                    .for_each(|host| host.load.also(block, value));
            }
        }
        Ok(())
    }

    /// Which write the medium holds.
    fn stored(&self, lba: u64) -> Result<u64, String> {
        let medium = self.medium.borrow();
        content::read(medium.block(lba), lba)
            .map_err(|why| format!("on the medium LBA {lba} {why}"))
    }

    /// What must be so when all hosts have left.
    fn check_end(&mut self) -> Result<(), String> {
        if let Some(cores) = &self.cores {
            let (connections, bytes) = (cores.connections(), cores.outstanding_bytes());
            if connections > 0 || bytes > 0 {
                return Err(format!(
                    "the target keeps {connections} connections, {bytes} bytes"
                ));
            }
        }
        let outstanding = self.medium.borrow().outstanding;
        if outstanding > 0 {
            return Err(format!("{outstanding} requests are still in devices"));
        }
        let kept: usize = self.hosts.iter().map(HostSession::outstanding_bytes).sum();
        if kept > 0 {
            return Err(format!("the hosts keep {kept} bytes of buffers"));
        }
        let end = self.env.now + LIMIT;
        self.medium.borrow_mut().catch_up(end);
        for lba in 0..self.model.blocks() {
            let value = self.stored(lba)?;
            if !self.model.may_hold(lba, value) {
                let may = self.model.describe(lba);
                return Err(format!("LBA {lba} ends as write {value}, may be {may}"));
            }
        }
        Ok(())
    }

    fn summary(&self) -> Summary {
        let sum = |of: fn(&HostSession) -> u64| self.hosts.iter().map(of).sum();
        let mut summary = Summary {
            requests: sum(|host| host.load.completed),
            failed: sum(|host| host.load.failed),
            losses: sum(HostSession::losses),
            connections: self.env.net.dialed(),
            bytes: self.env.net.bytes(),
            micros: self.env.now.as_nanos() / 1000,
            turns: self.turns,
            ..Summary::default()
        };
        self.faults.count(&mut summary);
        summary
    }
}
