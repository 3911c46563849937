//! What is remembered of a service, and what the nodes that have its volumes tell each other of it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::model::{CreateService, ServiceStatus};

/// A service as it is remembered: the same on every node that has its volumes, once they have heard of each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub(super) service: CreateService,
    /// An operator has stopped it.
    pub(super) stopped: bool,
    /// The nodes that have copies of its volumes. None: they are not replicated.
    #[serde(default)]
    pub(super) nodes: Vec<String>,
    /// Goes up with each change: the upper half with what an operator orders, and the lower with what a node notes.
    /// Earlier versions count both in the lower.
    #[serde(default)]
    pub(super) revision: u64,
    /// Nodes that have given it up.
    #[serde(default)]
    pub(super) failed_on: Vec<String>,
    /// It is remembered only so that others learn that it is no more.
    #[serde(default)]
    pub(super) deleted: bool,
}

impl Entry {
    pub(super) fn new(service: CreateService, nodes: Vec<String>, revision: u64) -> Self {
        Self {
            service,
            stopped: false,
            nodes,
            revision,
            failed_on: Vec::new(),
            deleted: false,
        }
    }

    /// The same, which one more node can have.
    pub(super) fn with_node(&self, node: &str) -> Self {
        let mut next = self.clone();
        next.nodes.push(node.into());
        next.noted();
        next
    }

    /// The same, which these nodes cannot have any more.
    pub(super) fn without_nodes(&self, gone: &[String]) -> Self {
        let mut next = self.clone();
        next.nodes.retain(|node| !gone.contains(node));
        next.failed_on.retain(|node| !gone.contains(node));
        next.noted();
        next
    }

    /// It has been changed by an order.
    pub(super) fn ordered(&mut self) {
        self.revision = order_after(self.revision);
    }

    /// It has been changed by what a node has seen.
    pub(super) fn noted(&mut self) {
        self.revision = self.revision.saturating_add(1);
    }

    /// Whether another node can have it.
    pub(super) fn is_replicated(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Whether it is what has become of the other. Two changes at once, each made where the other was not known: one
    /// of them counts, the same everywhere. An order counts more than whatever was noted where it was not known.
    pub(super) fn supersedes(&self, other: &Self) -> bool {
        let rank = |entry: &Self| (entry.revision, entry.deleted, entry.stopped);
        let places = |entry: &'_ Self| (entry.failed_on.clone(), entry.nodes.clone());
        rank(self) > rank(other) || (rank(self) == rank(other) && places(self) > places(other))
    }
}

/// So many bits of a revision count what was noted since the last order.
const NOTES: u32 = 32;

/// The revision of the next order after this one.
pub(super) fn order_after(revision: u64) -> u64 {
    (revision.saturating_add(1 << NOTES) >> NOTES) << NOTES
}

/// What a node says to another.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case", deny_unknown_fields)]
pub enum Words {
    /// A new service: take it, or say why not.
    Offer { entry: Box<Entry> },
    /// What is known here of services that both have.
    Tell {
        /// All of it.
        told: Told,
    },
    /// Move this service, which you run.
    Move {
        service: String,
        /// The node; without, any other.
        to: Option<String>,
    },
}

/// What a node knows of the services that it shares with another.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    pub(super) node: String,
    pub(super) entries: Vec<Entry>,
    /// Of services whose volumes it has: how they are.
    pub(super) here: Vec<ServiceStatus>,
    /// Where its API listens on TCP.
    pub(super) api: Option<SocketAddr>,
}

/// The answer to [`Words`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// It is done.
    Done,
    /// What is known there.
    Told {
        /// All of it.
        told: Told,
    },
    /// It is being moved.
    Moving {
        /// How it is.
        status: Box<ServiceStatus>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(revision: u64) -> Entry {
        let service = CreateService {
            name: "s".into(),
            volumes: vec!["tank/s".into()],
            mounts: vec!["/s".into()],
            user: None,
            start: "x".into(),
            drain: None,
            stop: None,
            ready: None,
            file_system: None,
            address: None,
        };
        Entry::new(service, vec!["a".into(), "b".into()], revision)
    }

    #[test]
    fn of_two_changes_at_once_the_same_one_counts_everywhere() {
        let old = entry(1);
        let variants = [
            entry(2),
            Entry {
                stopped: true,
                ..entry(2)
            },
            Entry {
                deleted: true,
                ..entry(2)
            },
            Entry {
                failed_on: vec!["a".into()],
                ..entry(2)
            },
            entry(1).with_node("c"),
        ];
        for one in &variants {
            assert!(one.supersedes(&old) && !old.supersedes(one) && !one.supersedes(one));
            for other in variants.iter().filter(|other| *other != one) {
                assert_ne!(one.supersedes(other), other.supersedes(one));
            }
        }
    }

    #[test]
    fn an_order_counts_more_than_what_was_noted_where_it_was_not_known() {
        // Of this version, and as an earlier one has left it.
        for first in [entry(order_after(0)), entry(5)] {
            let mut stopped = first.clone();
            stopped.stopped = true;
            stopped.ordered();
            let mut noted = first.clone();
            for failed_on in [vec!["a".into()], Vec::new()] {
                noted.failed_on = failed_on;
                noted.noted();
            }
            assert!(noted.supersedes(&first));
            assert!(stopped.supersedes(&noted) && !noted.supersedes(&stopped));
            let mut deleted = stopped.clone();
            deleted.deleted = true;
            deleted.ordered();
            stopped.noted();
            assert!(deleted.supersedes(&stopped) && !stopped.supersedes(&deleted));
            // A new one of the name.
            let again = entry(order_after(deleted.revision));
            assert!(again.supersedes(&deleted) && !deleted.supersedes(&again));
        }
    }

    #[test]
    fn what_an_older_version_has_remembered_is_read() {
        let old = r#"{"service":{"name":"s","volumes":["tank/s"],"mounts":["/s"],"start":"x"},"stopped":true}"#;
        let read: Entry = serde_json::from_str(old).expect("read");
        assert!(read.stopped && !read.is_replicated() && read.revision == 0);
    }
}
