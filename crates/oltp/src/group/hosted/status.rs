//! What is on given hosts, as it is shown.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::group::Role;

/// What a group is at, or an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostedStatus {
    /// `hosted`, a group; `fci`, an instance.
    pub kind: String,
    pub dir: PathBuf,
    /// What `--db` takes, and any client: the database through the listener, as its owner, with the password.
    pub url: String,
    /// The same as the superuser, who may have any program run on the hosts.
    pub superuser_url: String,
    /// Of an instance.
    #[serde(flatten)]
    pub instance: Option<InstanceStatus>,
    /// In the order in which they were given.
    pub hosts: Vec<HostStatus>,
}

/// What an instance is at, wherever its nodes are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstanceStatus {
    /// The node that runs the database.
    pub primary: Option<String>,
    /// Whether both copies of its volume are in sync.
    pub in_sync: bool,
    /// Network namespaces that were made for it: none on hosts.
    pub namespaces: Vec<String>,
    pub nodes: Vec<InstanceNode>,
}

/// What a node of an instance is at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstanceNode {
    /// What it is called.
    pub node: String,
    /// How the service is there; none if its daemon does not answer.
    pub service: Option<String>,
    /// Its database past the listener.
    pub url: String,
    /// Where its API is: a socket, or an address.
    pub api: String,
}

/// What a host is at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// The agent's address.
    pub host: String,
    /// `a`, `b` or `w`, the witness.
    pub seat: String,
    /// What the database of a group's node says of itself.
    pub role: Option<Role>,
    /// How many processes it has.
    pub processes: usize,
    /// The database past the listener, as its owner.
    pub url: Option<String>,
    /// What is wrong with it.
    pub trouble: Option<String>,
}

impl InstanceStatus {
    /// Whether its copies are in sync, in words.
    pub fn copies(&self) -> &'static str {
        match self.in_sync {
            true => "in sync",
            false => "not in sync",
        }
    }

    /// What a node is at, in words.
    pub fn told(&self, node: &InstanceNode) -> String {
        let is_primary = self.primary.as_ref() == Some(&node.node);
        let state = match &node.service {
            _ if is_primary => "runs the database",
            Some(state) => state.as_str(),
            None => "does not answer",
        };
        format!("{state}, api {}", node.api)
    }
}

impl HostedStatus {
    fn told(&self, host: &HostStatus) -> String {
        let mut nodes = self.instance.iter().flat_map(|instance| {
            let nodes = instance.nodes.iter();
            nodes.map(move |node| (&node.node, instance.told(node)))
        });
        let node = nodes.find(|(node, _)| **node == host.seat);
        match (host.role, node) {
            (Some(role), _) => format!("{role:?}"),
            (None, Some((_, told))) => told,
            (None, None) => "witness, listener".into(),
        }
    }
}

impl fmt::Display for HostedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "listener: {}", self.url)?;
        if let Some(instance) = &self.instance {
            writeln!(f, "copies: {}", instance.copies())?;
        }
        for host in &self.hosts {
            let trouble = host.trouble.as_ref();
            let trouble = trouble.map_or(String::new(), |why| format!("; {why}"));
            writeln!(
                f,
                "{} at {}: {}, {} processes{trouble}",
                host.seat,
                host.host,
                self.told(host),
                host.processes
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(instance: Option<InstanceStatus>) -> HostedStatus {
        let host = |seat: &str, role| HostStatus {
            host: format!("{seat}.example"),
            seat: seat.into(),
            role,
            processes: 2,
            url: None,
            trouble: None,
        };
        let role = instance.is_none().then_some(Role::Primary);
        HostedStatus {
            kind: "hosted".into(),
            dir: "/d".into(),
            url: "postgres://x".into(),
            superuser_url: "postgres://y".into(),
            instance,
            hosts: vec![host("a", role), host("w", None)],
        }
    }

    /// As `lab cluster status` shows what the command that holds it has written.
    fn shown(status: &HostedStatus) -> String {
        let text = serde_json::to_string(status).expect("JSON");
        let read: HostedStatus = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read.instance.is_some(), status.instance.is_some());
        read.to_string()
    }

    #[test]
    fn a_node_of_an_instance_is_told_as_it_is() {
        let group = shown(&status(None));
        assert!(
            group.contains("a at a.example: Primary, 2 processes\n"),
            "{group}"
        );
        let told = |service: Option<&str>, primary: Option<&str>| {
            shown(&status(Some(InstanceStatus {
                primary: primary.map(str::to_owned),
                in_sync: false,
                namespaces: Vec::new(),
                nodes: vec![InstanceNode {
                    node: "a".into(),
                    service: service.map(str::to_owned),
                    url: String::new(),
                    api: "[::1]:9".into(),
                }],
            })))
        };
        for (service, primary, words) in [
            (Some("running"), Some("a"), "runs the database"),
            (Some("failed"), None, "failed"),
            (Some("waiting"), Some("b"), "waiting"),
            (None, None, "does not answer"),
        ] {
            let told = told(service, primary);
            let line = format!("a at a.example: {words}, api [::1]:9, 2 processes\n");
            assert!(told.contains(&line), "{told}");
            assert!(told.contains("copies: not in sync\n"), "{told}");
            assert!(
                told.contains("w at w.example: witness, listener, 2"),
                "{told}"
            );
        }
    }
}
