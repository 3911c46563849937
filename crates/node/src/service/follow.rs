//! The nodes of a service: those that have copies of its volumes, also when these are others than when it was made.

use tracing::{info, warn};

use super::Services;
use super::entry::{Entry, Told, Words, order_after};
use crate::model::ControlError;

impl Services {
    /// Has the nodes know a service that have copies of its volumes now, and those forget it that have none any more.
    /// Why some cannot have it.
    pub(super) fn follow_copies(&self, name: &str) -> Vec<String> {
        match self.try_follow(name) {
            Ok(strangers) => strangers,
            Err(error) => vec![error.message],
        }
    }

    fn try_follow(&self, name: &str) -> Result<Vec<String>, ControlError> {
        let Some(mut entry) = self.entry_of(name) else {
            return Ok(Vec::new());
        };
        let volumes = entry.service.volume_names()?;
        let me = self.ownership.node();
        // While copies are on different nodes, or no owner is known, it stays with those that it has.
        let nodes = self.ownership.nodes(&volumes).unwrap_or_default();
        if !nodes.contains(&me) {
            return Ok(Vec::new());
        }
        if !entry.is_replicated() && !self.is_down(name) {
            return Ok(vec![format!(
                "its volumes have copies on other nodes since it was started: `ashlar service stop {name}` and `start`, \
                 and those can have it"
            )]);
        }
        let mut strangers = Vec::new();
        // This node first: one that only others know would be lost with them.
        let added = std::iter::once(&me).chain(nodes.iter().filter(|node| **node != me));
        for node in added {
            if entry.nodes.contains(node) {
                continue;
            }
            let mut next = entry.with_node(node);
            let offered = match *node == me {
                true => self.ownership.let_in(&volumes),
                // What it remembers of an earlier one of the name must not count as what has become of this one.
                false => self.deleted_at(node, &next.service).and_then(|deleted| {
                    if deleted > 0 {
                        next.revision = next.revision.max(order_after(deleted));
                    }
                    let entry = Box::new(next.clone());
                    self.ownership.say(node, Words::Offer { entry }).map(drop)
                }),
            };
            match offered {
                Ok(()) => {
                    info!(service = name, "service {name}: node {node} can have it");
                    self.replace(&entry, next.clone())?;
                    entry = next;
                }
                Err(error) => strangers.push(format!(
                    "node {node} has copies of its volumes and cannot have it: {}",
                    error.message
                )),
            }
        }
        let gone: Vec<String> = entry
            .nodes
            .iter()
            .filter(|node| !nodes.contains(node))
            .cloned()
            .collect();
        if !gone.is_empty() {
            let next = entry.without_nodes(&gone);
            self.replace(&entry, next.clone())?;
            for node in &gone {
                self.dismiss(node, &next);
            }
        }
        Ok(strangers)
    }

    fn entry_of(&self, name: &str) -> Option<Entry> {
        let all = self.lock();
        let one = all.get(name).filter(|one| one.running.is_some());
        one.map(|one| one.entry.clone())
    }

    fn is_down(&self, name: &str) -> bool {
        let all = self.lock();
        let running = all.get(name).and_then(|one| one.running.as_ref());
        running.is_some_and(super::driver::Running::is_down)
    }

    /// Other nodes can have it from now on, unless it has changed meanwhile.
    fn replace(&self, before: &Entry, next: Entry) -> Result<(), ControlError> {
        let name = next.service.name.clone();
        let mut all = self.lock();
        let one = all.get_mut(&name).filter(|one| one.entry == *before);
        let one = one.ok_or_else(|| {
            ControlError::conflict(format!("service {name} has changed meanwhile"))
        })?;
        if before.is_replicated() {
            if let Some(running) = &one.running {
                running.set_nodes(&next.nodes);
            }
            one.entry = next;
        } else {
            // It reaches its volumes in another way, and has a guard.
            if let Some(running) = one.running.take() {
                self.retire(running);
            }
            drop(all);
            self.begin(next)?;
            all = self.lock();
        }
        self.remember(&all)?;
        drop(all);
        self.tell_now();
        Ok(())
    }

    /// A node that has no copies any more forgets it: at once, or when it says that it knows it.
    fn dismiss(&self, node: &str, entry: &Entry) {
        let told = Told {
            node: self.ownership.node(),
            entries: vec![entry.clone()],
            ..Told::default()
        };
        if let Err(error) = self.ownership.say(node, Words::Tell { told }) {
            let name = &entry.service.name;
            warn!(service = %name, "service {name}: node {node} is not told that it has it no more: {}", error.message);
        }
    }
}
