//! Who may connect to a volume, as it is remembered and as nodes with copies tell each other.
//!
//! A change counts host by host, and has a number: of two nodes the one with the higher number of a host is right about
//! it. So a node that was away hears of what has changed, and nothing that it knows alone is lost.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::{ControlError, HostList, check_remembered_hosts};

/// Every host, among the names of hosts. No NQN is like it.
const ANY: &str = "*";
/// Hosts that are out stay known, so that no node lets them in again: the last so many.
const MOST_OUT: usize = 256;

/// Who may connect to a volume. A volume that is not listed admits no host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeAccess {
    /// The pool's identity.
    pub pool: Uuid,
    /// The volume's identity.
    pub volume: Uuid,
    /// These hosts, by NQN.
    #[serde(default)]
    pub allow_hosts: Vec<String>,
    /// Every host.
    #[serde(default)]
    pub allow_any_host: bool,
    /// In a cluster, the number of the change that let each host in or out last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changes: BTreeMap<String, u64>,
}

/// Of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ruling {
    change: u64,
    is_in: bool,
}

impl Ruling {
    /// Of two changes at once that which lets no host in counts, the same everywhere.
    fn is_newer_than(self, other: Self) -> bool {
        (self.change, !self.is_in) > (other.change, !other.is_in)
    }
}

/// What a node knows of who may connect to a volume. A host that is not in it was never let in or out by a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Admission {
    hosts: BTreeMap<String, Ruling>,
}

impl VolumeAccess {
    /// That of a new volume.
    pub(crate) fn new(pool: Uuid, volume: Uuid, list: HostList) -> Self {
        Self {
            pool,
            volume,
            allow_hosts: list.hosts,
            allow_any_host: list.any_host,
            changes: BTreeMap::new(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ControlError> {
        check_remembered_hosts(&self.allow_hosts)?;
        let named: Vec<String> = self.changes.keys().cloned().collect();
        check_remembered_hosts(&named)
    }

    /// What another node is to know of it.
    pub(crate) fn admission(&self) -> Admission {
        let any = self.allow_any_host.then_some(ANY);
        let listed = self.allow_hosts.iter().map(String::as_str);
        let within: BTreeSet<&str> = listed.chain(any).collect();
        let all = within
            .iter()
            .copied()
            .chain(self.changes.keys().map(String::as_str));
        let ruling = |host: &str| Ruling {
            change: self.changes.get(host).copied().unwrap_or(0),
            is_in: within.contains(host),
        };
        Admission {
            hosts: all.map(|host| (host.to_owned(), ruling(host))).collect(),
        }
    }

    /// Lets these hosts in, and no others: a change that other nodes are to hear of.
    pub(crate) fn change_to(&mut self, list: HostList) {
        let next = self.changes.values().max().copied().unwrap_or(0);
        let next = next.saturating_add(1);
        let before = self.admission();
        (self.allow_hosts, self.allow_any_host) = (list.hosts, list.any_host);
        for (host, now) in self.admission().hosts {
            let was_in = before.hosts.get(&host).is_some_and(|was| was.is_in);
            if was_in != now.is_in {
                self.changes.insert(host, next);
            }
        }
        for (host, was) in before.hosts {
            if was.is_in && !self.lets_in(&host) {
                self.changes.insert(host, next);
            }
        }
        self.forget_oldest();
    }

    /// Takes what another node knows, where that is newer.
    pub(crate) fn hear(&mut self, told: &Admission) {
        let ours = self.admission().hosts;
        for (host, ruling) in &told.hosts {
            if ours.get(host).is_none_or(|our| ruling.is_newer_than(*our)) {
                self.rule(host, *ruling);
            }
        }
        self.forget_oldest();
    }

    fn lets_in(&self, host: &str) -> bool {
        match host {
            ANY => self.allow_any_host,
            _ => self.allow_hosts.iter().any(|listed| listed == host),
        }
    }

    fn rule(&mut self, host: &str, ruling: Ruling) {
        if host == ANY {
            self.allow_any_host = ruling.is_in;
        } else if !ruling.is_in {
            self.allow_hosts.retain(|listed| listed != host);
        } else if !self.lets_in(host) {
            self.allow_hosts.push(host.to_owned());
        }
        if ruling.change > 0 {
            self.changes.insert(host.to_owned(), ruling.change);
        }
    }

    fn forget_oldest(&mut self) {
        let out = self.changes.iter().filter(|(host, _)| !self.lets_in(host));
        let mut out: Vec<(u64, String)> =
            out.map(|(host, &change)| (change, host.clone())).collect();
        out.sort_unstable();
        let many = out.len().saturating_sub(MOST_OUT);
        for (_, host) in &out[..many] {
            self.changes.remove(host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hosts: &[&str]) -> HostList {
        HostList {
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            any_host: false,
        }
    }

    fn access(hosts: &[&str]) -> VolumeAccess {
        VolumeAccess::new(Uuid::nil(), Uuid::nil(), list(hosts))
    }

    /// Each hears of the other, in either order: they agree.
    fn agree(mut one: VolumeAccess, mut other: VolumeAccess) -> VolumeAccess {
        let (first, second) = (one.admission(), other.admission());
        one.hear(&second);
        other.hear(&first);
        assert_eq!(one.admission(), other.admission());
        one.allow_hosts.sort();
        one
    }

    #[test]
    fn a_node_that_was_away_hears_of_what_has_changed_and_what_it_knows_alone_stays() {
        let mut here = access(&["a", "b"]);
        let mut away = here.clone();
        here.change_to(list(&["b", "c"]));
        away.change_to(list(&["a", "b", "d"]));
        assert_eq!(agree(here.clone(), away).allow_hosts, ["b", "c", "d"]);
        // Let in again, later.
        here.change_to(list(&["a", "b", "c"]));
        assert_eq!(agree(here, access(&["a"])).allow_hosts, ["a", "b", "c"]);
    }

    #[test]
    fn of_two_changes_at_once_the_one_that_lets_no_host_in_counts() {
        let mut one = access(&["a"]);
        one.change_to(list(&[]));
        let mut other = access(&[]);
        other.change_to(HostList {
            any_host: true,
            ..list(&["a"])
        });
        let both = agree(one, other);
        assert!(both.allow_hosts.is_empty() && both.allow_any_host);
    }

    #[test]
    fn of_hosts_that_are_out_the_last_ones_stay_known() {
        let mut access = access(&["stays"]);
        for number in 0..MOST_OUT + 10 {
            let guest = format!("guest-{number}");
            access.change_to(list(&["stays", &guest]));
        }
        assert_eq!(access.allow_hosts.len(), 2);
        assert_eq!(access.changes.len(), MOST_OUT + 1);
        assert!(!access.changes.contains_key("guest-0"));
    }
}
