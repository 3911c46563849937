//! The reservation that keeps other hosts from writing to a volume while its file system is mounted here.

use std::path::Path;
use std::time::Duration;

use ashlar_attach::{Folder, State};
use ashlar_block::IoError;
use ashlar_nvme::reservation::{Registrant, ReservationType};
use ashlar_nvme_initiator::{
    Acquire, Config, Host, ReservationDesk, local_host, recorded_portals, url,
};

use super::helper::ASSOCIATION;
use crate::exit::Failure;

/// Others may read, and only this host writes.
const KIND: ReservationType = ReservationType::WriteExclusive;
/// How long a path is looked for: longer than a failover takes.
const PATH_TIMEOUT: Duration = Duration::from_secs(30);
/// What ends need not wait long for what only tidies up.
const SHORT: Duration = Duration::from_secs(5);
/// How often the holder may change while it is taken over.
const ATTEMPTS: u32 = 5;

/// A host's key, the same at every attach: what it has left behind is its own.
fn key(host: &Host) -> u64 {
    let id = u128::from_le_bytes(host.id);
    // A key of zero is none.
    ((id >> 64) as u64 ^ id as u64).max(1)
}

/// What is to be reserved, and for whom.
pub(super) struct Wanted<'a> {
    /// As it was asked for.
    pub(super) volume: &'a str,
    /// How it is reached, and who we are.
    pub(super) config: &'a Config,
    /// Hosts whose names are known: a reservation has identifiers only.
    pub(super) known: &'a [String],
    /// A host that holds it loses it.
    pub(super) preempt: bool,
}

/// A reservation that was taken for an attachment that is being made.
pub(super) struct Reserved {
    config: Config,
    /// This host had it before: of an attachment that is still there, perhaps.
    had_it: bool,
}

/// Registers this host and takes the reservation.
///
/// # Errors
/// Environment: another host has it, which is named, or the volume cannot be reached.
pub(super) fn take(wanted: &Wanted<'_>) -> Result<Reserved, Failure> {
    let config = wanted.config;
    let failed = |error: IoError| Failure::environment(format!("cannot reserve it: {error}"));
    let ours = key(&config.host);
    let mut desk = ReservationDesk::new(config.clone(), PATH_TIMEOUT);
    let mut had_it = None;
    for _ in 0..ATTEMPTS {
        let status = desk.report().map_err(failed)?;
        let is_ours = |one: &Registrant| one.host == config.host.id;
        let holder = status.registrants.iter().find(|one| one.holds);
        let has_it = holder.is_some_and(is_ours);
        let had_it = *had_it.get_or_insert(has_it);
        match holder {
            Some(one) if !is_ours(one) && !wanted.preempt => return Err(held(wanted, one)),
            Some(one) if !is_ours(one) => {
                let (named, other) = (name(wanted, one), one.key);
                desk.register(ours).map_err(failed)?;
                let taken = match other {
                    // No such host can be preempted. Earlier targets let one register.
                    0 => desk.clear(ours),
                    _ => desk.acquire(ours, KIND, Acquire::Preempt(other)),
                };
                if taken.is_ok() {
                    eprintln!(
                        "ashlar: {} is taken over: {named} can write to it no more",
                        wanted.volume
                    );
                    continue;
                }
            }
            Some(one) if status.kind == Some(KIND) && one.key == ours => {
                return Ok(Reserved {
                    config: config.clone(),
                    had_it,
                });
            }
            _ => {
                desk.register(ours).map_err(failed)?;
                if let Some(other) = status.kind.filter(|kind| has_it && *kind != KIND) {
                    desk.release(ours, other).map_err(failed)?;
                }
                // Another may have been faster: it is looked at again.
                let _ = desk.acquire(ours, KIND, Acquire::IfFree);
            }
        }
    }
    Err(Failure::environment(format!(
        "{}: others take and leave its reservation all the time: try again",
        wanted.volume
    )))
}

fn held(wanted: &Wanted<'_>, holder: &Registrant) -> Failure {
    let volume = wanted.volume;
    Failure::environment(format!(
        "{volume} is reserved by {}: detach it there, or take it over with --preempt if that host is gone or must not \
         write any more; --shared to attach it without a reservation, to read only",
        name(wanted, holder)
    ))
}

/// The host that is meant, by its NQN if that is known.
fn name(wanted: &Wanted<'_>, holder: &Registrant) -> String {
    let is_it = |nqn: &&String| Host::named(nqn).id == holder.host;
    match wanted.known.iter().find(is_it) {
        Some(nqn) => format!("host {nqn}"),
        None => format!(
            "the host of identifier {}",
            uuid::Uuid::from_bytes(holder.host)
        ),
    }
}

impl Reserved {
    /// The attachment has failed: it is given back, unless this host had it before.
    pub(super) fn undo(self) {
        if !self.had_it
            && let Err(error) = give_back(&self.config)
        {
            eprintln!("ashlar: the reservation was not given back: {error}");
        }
    }
}

/// Ends this host's registration, and with it its reservation. There may be none: another host has taken it.
fn give_back(config: &Config) -> Result<(), IoError> {
    let mut desk = ReservationDesk::new(config.clone(), SHORT);
    let status = desk.report()?;
    match status
        .registrants
        .iter()
        .any(|one| one.host == config.host.id)
    {
        true => desk.unregister(),
        false => Ok(()),
    }
}

/// A reservation of an attachment that is about to be taken down.
pub(super) struct Lease(Config);

impl Lease {
    /// That of the attachment in this folder, if it has one. To be asked for while the folder is there.
    pub(super) fn of(folder: &Folder) -> Option<Self> {
        let state = folder.state().ok().filter(|state| state.reserved)?;
        Self::reached(&state, folder.path())
    }

    fn reached(state: &State, folder: &Path) -> Option<Self> {
        let mut config = url::parse(&state.url, &local_host()).ok()?;
        config.add_portals(recorded_portals(&folder.join(ASSOCIATION)).unwrap_or_default());
        Some(Self(config))
    }

    /// Gives it back; what there is to say if that fails.
    pub(super) fn end(self) -> Option<String> {
        give_back(&self.0).err().map(|error| {
            format!(
                "this host's reservation of it stays, until it attaches and detaches it again; another host takes it \
                 over with `ashlar attach --preempt`: {error}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_its_key_and_no_two_have_the_same() {
        let key = |nqn: &str| key(&Host::named(nqn));
        assert_eq!(key("nqn.2026-01.x:a"), key("nqn.2026-01.x:a"));
        assert_ne!(key("nqn.2026-01.x:a"), key("nqn.2026-01.x:b"));
        let zero = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000000";
        assert_eq!(key(zero), 1);
    }

    #[test]
    fn a_holder_is_named_by_its_nqn_if_that_is_known() {
        let known = ["nqn.2026-01.x:a".to_owned()];
        let host = Host::named("nqn.2026-01.x:b");
        let wanted = Wanted {
            volume: "tank/db",
            config: &Config::new("a:1", "nqn.2026-01.x:s", host.clone()),
            known: &known,
            preempt: false,
        };
        let holder = |host: Host| Registrant {
            host: host.id,
            key: 7,
            holds: true,
        };
        let refusal = held(&wanted, &holder(Host::named(&known[0])));
        for piece in ["tank/db", "host nqn.2026-01.x:a", "--preempt", "--shared"] {
            assert!(refusal.message().contains(piece), "{}", refusal.message());
        }
        let unknown = name(&wanted, &holder(host.clone()));
        assert!(unknown.contains(&uuid::Uuid::from_bytes(host.id).to_string()));
    }
}
