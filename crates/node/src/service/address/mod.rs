//! The address that goes where a service goes: given to an interface before the service is started, so that it can be
//! bound to and a client that comes early is refused at once; taken away when the service's processes have ended, so
//! that those have told their clients.
//!
//! It has no fence of its own: it is added by what starts the service, and removed by what kills it.

mod links;
mod network;
mod packet;
#[cfg(test)]
mod tests;
mod words;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::links::Link;
use self::network::Neighbours;
use crate::model::{ControlError, ServiceAddress};

/// When neighbours are told again: the first word may have been lost, or a switch may have come up since.
const AGAIN_AFTER: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(1000)];
/// And then so often, as long as the service runs.
const REPEAT_EVERY: Duration = Duration::from_secs(10);
/// An interface without a carrier for longer than this is cut off, and not a switch that starts anew.
const DARK_AFTER: Duration = Duration::from_secs(3);
/// That it does not work is said so often.
const WARN_EVERY: Duration = Duration::from_secs(300);
/// One who has stood still for longer than this does not know any more whether the address is here.
const STALE_AFTER: Duration = Duration::from_millis(300);
/// Capabilities that adding and announcing need, by their numbers.
const CAPABILITIES: [(&str, u32); 2] = [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13)];

/// The address of a service, as this process has it.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    service: String,
    address: ServiceAddress,
    flags: Arc<Flags>,
    state: Arc<Mutex<State>>,
}

/// Apart from the state: that is locked while `ip` runs.
#[derive(Debug, Default)]
struct Flags {
    /// This node has it.
    is_held: AtomicBool,
    /// The service is being started, or runs. What comes later than the order to take it down adds nothing.
    is_wanted: AtomicBool,
    /// It has been on an interface without a carrier for a while.
    is_dark: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Goes up whenever it comes or goes.
    changes: u64,
    told: Option<Instant>,
    warned: Option<Instant>,
    /// Since when its interface has had no carrier.
    dark_since: Option<Instant>,
}

impl State {
    /// Notes whether there is a carrier; whether there has been none for a while. When it comes again neighbours, who may
    /// be others, are told at once.
    fn see(&mut self, has_carrier: bool) -> bool {
        if !has_carrier {
            let since = *self.dark_since.get_or_insert_with(Instant::now);
            return since.elapsed() > DARK_AFTER;
        }
        if self.dark_since.take().is_some() {
            self.told = None;
        }
        false
    }

    /// Neighbours are to be told again.
    fn is_due(&self) -> bool {
        self.told.is_none_or(|told| told.elapsed() > REPEAT_EVERY)
    }
}

impl Holder {
    pub(super) fn new(service: &str, address: ServiceAddress) -> Self {
        Self {
            service: service.into(),
            address,
            flags: Arc::default(),
            state: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Single fields.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As while `ip` runs.
    #[cfg(test)]
    pub(super) fn busy(&self) -> impl Sized {
        self.lock()
    }

    /// Whether this node has it.
    pub(super) fn is_held(&self) -> bool {
        self.flags.is_held.load(Ordering::SeqCst)
    }

    /// The service is about to be started, or was found running.
    pub(super) fn want(&self) {
        self.flags.is_wanted.store(true, Ordering::SeqCst);
    }

    /// It is not to be added any more, and nothing more is to be said of it. What is doing that ends soon.
    pub(super) fn unwant(&self) {
        self.flags.is_wanted.store(false, Ordering::SeqCst);
    }

    fn check(&self) -> Result<(), String> {
        match self.flags.is_wanted.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err("the service was taken down while it was being started".into()),
        }
    }

    /// Why clients do not reach it, though it is here.
    pub(super) fn dark(&self) -> Option<String> {
        let is_dark = self.flags.is_dark.load(Ordering::SeqCst) && self.check().is_ok();
        let seconds = DARK_AFTER.as_secs();
        is_dark.then(|| {
            format!(
                "address {}: its interface has had no carrier for {seconds} s",
                self.address
            )
        })
    }

    fn set_held(&self, is_held: bool) {
        self.flags.is_held.store(is_held, Ordering::SeqCst);
    }

    /// This node has it from now on, and its neighbours are told.
    pub(super) fn hold(&self) -> Result<(), String> {
        let mut state = self.lock();
        let held = self.check().and_then(|()| self.add(&mut state));
        held.map_err(|why| format!("address {}: {why}", self.address))
    }

    fn add(&self, state: &mut State) -> Result<(), String> {
        let links = links::all()?;
        let link = links::choose(&links, &self.address)?;
        if !link.is_up() {
            return Err(format!("interface {} is down", link.name));
        }
        let neighbours = Neighbours::of(link, self.address.ip())?;
        if link.prefix_of(self.address.ip()).is_none() {
            self.check()?;
            links::add(link, &self.address)?;
            if let Err(why) = self.check() {
                // It may have been looked for before it was there.
                links::remove(link, self.address.ip(), self.address.prefix())?;
                return Err(why);
            }
            let interface = &link.name;
            tracing::info!(service = %self.service, address = %self.address, interface, "address added");
        }
        self.set_held(true);
        state.changes += 1;
        state.told = Some(Instant::now());
        neighbours.tell()?;
        self.tell_again(neighbours, state.changes)
    }

    /// Tells neighbours a few times more, unless it has gone meanwhile: a late word would lead them astray.
    fn tell_again(&self, neighbours: Neighbours, changes: u64) -> Result<(), String> {
        let (holder, begun) = (self.clone(), Instant::now());
        let tell = move || {
            for after in AGAIN_AFTER {
                std::thread::sleep(after.saturating_sub(begun.elapsed()));
                let state = holder.lock();
                let is_late = begun.elapsed() > after + STALE_AFTER;
                if state.changes != changes || is_late || holder.check().is_err() {
                    return;
                }
                if let Err(why) = neighbours.tell() {
                    tracing::warn!(service = %holder.service, "address {}: {why}", holder.address);
                }
            }
        };
        let thread = std::thread::Builder::new().name("svc-announce".into());
        let begun = thread.spawn(tell);
        begun
            .map(drop)
            .map_err(|error| format!("a thread: {error}"))
    }

    /// It is still here, while the service is. One that was taken away by hand is added again.
    pub(super) fn keep(&self, is_alive: impl FnOnce() -> bool) -> Result<(), String> {
        let mut state = self.lock();
        if self.check().is_err() {
            return Ok(());
        }
        let links = match links::all() {
            Ok(links) => links,
            Err(why) => {
                // Nothing is known of it, which is no reason to end what runs.
                tracing::warn!(service = %self.service, "address {}: {why}", self.address);
                return Ok(());
            }
        };
        let places = places(&links, &self.address);
        let here = places.first().map(|(link, _)| *link);
        self.set_held(here.is_some());
        let is_dark = here.is_some_and(|link| state.see(link.has_carrier()));
        self.flags.is_dark.store(is_dark, Ordering::SeqCst);
        // Where a guard has taken it away, the service was killed before.
        if here.is_some_and(|link| link.is_up() && !state.is_due()) || !is_alive() {
            return Ok(());
        }
        let kept = match here {
            Some(link) if link.is_up() => {
                self.repeat(&mut state, link);
                Ok(())
            }
            Some(link) => Err(format!("interface {} is down", link.name)),
            None => {
                tracing::warn!(service = %self.service, "address {} is gone, and is added again", self.address);
                self.add(&mut state)
            }
        };
        kept.map_err(|why| format!("address {}: {why}", self.address))
    }

    /// Tells neighbours again. They have been told before: that it does not work is no reason to end what they use.
    fn repeat(&self, state: &mut State, link: &Link) {
        state.told = Some(Instant::now());
        let neighbours = Neighbours::of(link, self.address.ip());
        let Err(why) = neighbours.and_then(|neighbours| neighbours.tell()) else {
            state.warned = None;
            return;
        };
        if state
            .warned
            .is_none_or(|warned| warned.elapsed() > WARN_EVERY)
        {
            state.warned = Some(Instant::now());
            tracing::warn!(service = %self.service, "address {} is not announced again: {why}", self.address);
        }
    }

    /// It is not added any more, and nothing more is said of it, by what was under way neither.
    fn forget(&self) {
        self.unwant();
        let mut state = self.lock();
        (state.told, state.dark_since) = (None, None);
        state.changes += 1;
        self.set_held(false);
        self.flags.is_dark.store(false, Ordering::SeqCst);
    }

    /// This node has it no more.
    pub(super) fn let_go(&self) -> Result<(), String> {
        self.forget();
        release(&self.address)
    }
}

/// Where on this machine an address is.
fn places<'a>(links: &'a [Link], address: &ServiceAddress) -> Vec<(&'a Link, u8)> {
    let named = |link: &&Link| address.interface().is_none_or(|name| name == link.name);
    let links = links.iter().filter(named);
    let with = links.filter_map(|link| Some((link, link.prefix_of(address.ip())?)));
    with.collect()
}

/// Takes an address away from this machine; one that is not there is none.
pub(super) fn release(address: &ServiceAddress) -> Result<(), String> {
    let what = |why| format!("address {address}: {why}");
    let found = links::all().map_err(what)?;
    let held = places(&found, address);
    if !held.is_empty() {
        links::cut_clients(address.ip());
    }
    for (link, prefix) in held {
        if let Err(why) = links::remove(link, address.ip(), prefix) {
            // A guard may have been quicker.
            let now = links::all().map_err(what)?;
            if !places(&now, address).is_empty() {
                return Err(what(why));
            }
        }
        tracing::info!(address = %address, interface = link.name, "address removed");
    }
    Ok(())
}

/// Whether this node could have an address.
///
/// # Errors
/// Usage: it has no such interface. Conflict: it has the address already. Environment: a program or a privilege is missing.
pub(super) fn check(address: &ServiceAddress) -> Result<(), ControlError> {
    let what = |why: String| format!("address {address}: {why}");
    let environment = |why| ControlError::environment(what(why));
    let found = links::all().map_err(environment)?;
    let ip = address.ip();
    if let Some(link) = found.iter().find(|link| link.prefix_of(ip).is_some()) {
        let why = format!("interface {} has {ip} already", link.name);
        return Err(ControlError::conflict(what(why)));
    }
    let link = links::choose(&found, address);
    let link = link.map_err(|why| ControlError::usage(what(why)))?;
    link.mac().map_err(|why| ControlError::usage(what(why)))?;
    if !link.is_up() {
        return Err(ControlError::conflict(what(format!(
            "interface {} is down",
            link.name
        ))));
    }
    match missing_capability() {
        Some(name) => Err(environment(format!("the daemon has no {name}"))),
        None => Ok(()),
    }
}

/// Whether another machine has an address already. All nodes of a service are on the network that it is in: one asks.
///
/// # Errors
/// Conflict: one has. Environment: neighbours cannot be asked.
pub(super) fn check_neighbours(address: &ServiceAddress) -> Result<(), ControlError> {
    let environment = |why| ControlError::environment(format!("address {address}: {why}"));
    let found = links::all().map_err(environment)?;
    let link = links::choose(&found, address).map_err(environment)?;
    let neighbours = Neighbours::of(link, address.ip()).map_err(environment)?;
    let Some(mac) = neighbours.who_has().map_err(environment)? else {
        return Ok(());
    };
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    Err(ControlError::conflict(format!(
        "address {address}: it is in use: {mac} answers for it on {}",
        link.name
    )))
}

/// One that this process does not have.
fn missing_capability() -> Option<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    // What cannot be read shows itself when it is used.
    let held = held.unwrap_or(u64::MAX);
    let missing = CAPABILITIES.iter().find(|(_, bit)| held & (1 << bit) == 0);
    missing.map(|(name, _)| *name)
}
